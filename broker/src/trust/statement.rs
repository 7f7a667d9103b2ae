//! Signed statements: a text whose bytes are verified before it is read.
//!
//! The first line says what it is and of which version, `kolo-KIND/VERSION`; JSON follows. No canonical form is needed, since the text
//! travels as it was signed. Statements grow by keys, and a reader that does not know a key refuses the statement, naming
//! the key: what a signed request asks must be granted as it stands or not at all. A new version is for a change of
//! what is known. Invariant: a text of one kind is never a valid text of another, because the kind is part of what is signed.

use ed25519_dalek::{Signer as _, SigningKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{PublicKey, Signature, TrustError};
use crate::document::read_object;

/// Something that can be signed. Its reader must refuse unknown keys.
pub trait Statement: Serialize + DeserializeOwned {
    /// What it is; part of what is signed.
    const KIND: &'static str;
    /// The one version that is signed and read.
    const VERSION: u16 = 1;
    /// Longest text that is accepted.
    const TEXT_BYTES_MAX: usize;
}

/// A text with its author and signature; unchecked until [`SignedText::open`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedText {
    /// The line that says what it is, and the statement as JSON.
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
        let text = SignedText::text_of(statement)?;
        let signature = key.sign(text.as_bytes());
        Ok(SignedText { text, author: PublicKey::of(key), signature: Signature::from_bytes(signature.to_bytes()) })
    }

    /// The text that [`SignedText::sign`] signs.
    ///
    /// # Errors
    /// As for [`SignedText::sign`].
    pub fn text_of<T: Statement>(statement: &T) -> Result<String, TrustError> {
        let json = serde_json::to_string(statement)
            .map_err(|error| TrustError::Malformed { kind: T::KIND, detail: error.to_string() })?;
        let text = format!("{PREFIX}{}/{}\n{json}", T::KIND, T::VERSION);
        check_size::<T>(&text)?;
        Ok(text)
    }

    /// Checks size and signature, then reads the statement.
    ///
    /// # Errors
    /// [`TrustError::TooLarge`], [`TrustError::BadSignature`], [`TrustError::Malformed`], or
    /// [`TrustError::NotUnderstood`] with the version or the key that this program does not know.
    pub fn open<T: Statement>(&self) -> Result<T, TrustError> {
        check_size::<T>(&self.text)?;
        if !self.author.has_signed(self.text.as_bytes(), &self.signature) {
            return Err(TrustError::BadSignature { kind: T::KIND });
        }
        read(&self.text)
    }
}

impl SignedText {
    /// Whether the text begins as a `T` does, of whatever version; unchecked.
    #[must_use]
    pub fn claims_to_be<T: Statement>(&self) -> bool {
        let of_kind = self.text.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(T::KIND));
        of_kind.is_some_and(|rest| rest.starts_with('/'))
    }

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

/// What every text begins with, so that it is nothing else that the key may have signed.
const PREFIX: &str = "kolo-";

/// Reads a text, whoever has signed it.
pub(super) fn read<T: Statement>(text: &str) -> Result<T, TrustError> {
    let kind = T::KIND;
    let malformed = |detail: String| TrustError::Malformed { kind, detail };
    let not_understood = |what: String| TrustError::NotUnderstood { kind, what };
    let parts = text.split_once('\n').and_then(|(head, json)| {
        let (of_kind, version) = head.strip_prefix(PREFIX)?.rsplit_once('/')?;
        Some((of_kind, version.parse::<u16>().ok()?, json))
    });
    let Some((of_kind, version, json)) = parts else {
        return Err(malformed(format!("expected a first line `{PREFIX}{kind}/{}`", T::VERSION)));
    };
    if of_kind != kind {
        return Err(malformed(format!("it is a {of_kind}")));
    }
    if version != T::VERSION {
        return Err(not_understood(format!("version {version}")));
    }
    read_object(json.as_bytes()).map_err(|misfit| match misfit.unknown() {
        Some(unknown) => not_understood(unknown),
        None => malformed(misfit.to_string()),
    })
}
