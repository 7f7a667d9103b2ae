//! Signed statements: a JSON text whose bytes are verified before it is read.
//!
//! No canonical form is needed, since the text travels as it was signed. Invariant: a text of one kind is never a valid
//! text of another, because the kind is part of what is signed.

use ed25519_dalek::{Signer as _, SigningKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{PublicKey, Signature, TrustError};

/// Something that can be signed. Its reader must refuse unknown keys.
pub trait Statement: Serialize + DeserializeOwned {
    /// What it is; part of what is signed.
    const KIND: &'static str;
    /// Longest text that is accepted.
    const TEXT_BYTES_MAX: usize;
}

/// A text with its author and signature; unchecked until [`SignedText::open`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedText {
    /// The statement as JSON.
    pub text: String,
    /// Who signed it.
    pub author: PublicKey,
    /// The author's signature.
    pub signature: Signature,
}

impl SignedText {
    /// Signs `statement` with `key`.
    ///
    /// # Errors
    /// [`TrustError::TooLarge`] when no node would accept it, [`TrustError::Malformed`] when it cannot be written as JSON.
    pub fn sign<T: Statement>(statement: &T, key: &SigningKey) -> Result<SignedText, TrustError> {
        let text = serde_json::to_string(statement)
            .map_err(|error| TrustError::Malformed { kind: T::KIND, detail: error.to_string() })?;
        check_size::<T>(&text)?;
        let signature = key.sign(&signed_bytes::<T>(&text));
        Ok(SignedText { text, author: PublicKey::of(key), signature: Signature::from_bytes(signature.to_bytes()) })
    }

    /// Checks size and signature, then reads the statement.
    ///
    /// # Errors
    /// [`TrustError::TooLarge`], [`TrustError::BadSignature`] or [`TrustError::Malformed`].
    pub fn open<T: Statement>(&self) -> Result<T, TrustError> {
        check_size::<T>(&self.text)?;
        if !self.author.has_signed(&signed_bytes::<T>(&self.text), &self.signature) {
            return Err(TrustError::BadSignature { kind: T::KIND });
        }
        serde_json::from_str(&self.text)
            .map_err(|error| TrustError::Malformed { kind: T::KIND, detail: error.to_string() })
    }
}

impl SignedText {
    /// Bytes of text, key and signature, for bounds on memory.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<SignedText>() + self.text.len()
    }
}

fn check_size<T: Statement>(text: &str) -> Result<(), TrustError> {
    if text.len() > T::TEXT_BYTES_MAX {
        return Err(TrustError::TooLarge { kind: T::KIND, bytes: text.len(), limit: T::TEXT_BYTES_MAX });
    }
    Ok(())
}

fn signed_bytes<T: Statement>(text: &str) -> Vec<u8> {
    [b"kolo-", T::KIND.as_bytes(), b"/1\n", text.as_bytes()].concat()
}
