//! Public keys and signatures as values: hexadecimal for display and in JSON, plain bytes on the wire.
//!
//! Invariant: a [`PublicKey`] is 32 bytes, whether a key of the curve or not; that is found when it verifies something.

use std::{cell::RefCell, fmt};

use data_encoding::HEXLOWER;
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha512};

use super::{TrustError, cache::Cache};

/// Signatures that a thread remembers as good.
const VERIFIED_MAX: usize = 1024;

thread_local! {
    /// What this thread has verified of late, by the digest of key, signature and message: each step of a request opens the same
    /// statements again. Nobody sees it but by the time that it saves.
    static VERIFIED: RefCell<Cache<[u8; 64], ()>> = RefCell::new(Cache::new(VERIFIED_MAX, usize::MAX));
}

#[cfg(test)]
thread_local! {
    /// Signatures that this thread has looked at, whether it remembered them or not.
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many signatures this thread has looked at.
#[cfg(test)]
pub(super) fn signatures_looked_at() -> usize {
    LOOKED_AT.get()
}

/// Characters of a [`PublicKey::fingerprint`].
pub const FINGERPRINT_CHARACTERS: usize = 16;

/// An Ed25519 public key: a user, an admin, an invitation, or a grid's root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> PublicKey {
        PublicKey(bytes)
    }

    /// The public half of `key`.
    #[must_use]
    pub fn of(key: &SigningKey) -> PublicKey {
        PublicKey(key.verifying_key().to_bytes())
    }

    /// Reads 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`TrustError::Text`] when it is anything else.
    pub fn from_text(text: &str) -> Result<PublicKey, TrustError> {
        from_hex(text)
            .map(PublicKey)
            .ok_or(TrustError::Text { what: "public key", expected: "64 lower-case hexadecimal digits" })
    }

    /// The key's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 16 digits: enough to tell users apart in lists and policies.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        HEXLOWER.encode(&self.0[..FINGERPRINT_CHARACTERS / 2])
    }

    /// Whether `signature` is this key's over `message`. Strict: weak keys and malleable signatures are refused.
    pub(super) fn has_signed(&self, message: &[u8], signature: &Signature) -> bool {
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + 1);
        let digest = Sha512::new().chain_update(self.0).chain_update(signature.0).chain_update(message).finalize();
        let digest: [u8; 64] = digest.into();
        if VERIFIED.with_borrow(|verified| verified.get(&digest).is_some()) {
            return true;
        }
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        let is_signed =
            VerifyingKey::from_bytes(&self.0).is_ok_and(|key| key.verify_strict(message, &signature).is_ok());
        if is_signed {
            VERIFIED.with_borrow_mut(|verified| verified.insert(&digest, (), 0));
        }
        is_signed
    }
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}...", self.fingerprint())
    }
}

impl std::str::FromStr for PublicKey {
    type Err = TrustError;
    fn from_str(text: &str) -> Result<PublicKey, TrustError> {
        PublicKey::from_text(text)
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        if deserializer.is_human_readable() {
            PublicKey::from_text(&String::deserialize(deserializer)?).map_err(D::Error::custom)
        } else {
            <[u8; 32]>::deserialize(deserializer).map(PublicKey)
        }
    }
}

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature([u8; 64]);

impl Signature {
    /// The signature with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 64]) -> Signature {
        Signature(bytes)
    }

    /// The signature's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}...", HEXLOWER.encode(&self.0[..4]))
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&HEXLOWER.encode(&self.0))
        } else {
            // Longer arrays than 32 have no form of their own.
            let (first, second) = self.0.split_at(32);
            (halves(first), halves(second)).serialize(serializer)
        }
    }
}

fn halves(bytes: &[u8]) -> [u8; 32] {
    let mut half = [0; 32];
    half.copy_from_slice(bytes);
    half
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Signature, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            return from_hex(&text)
                .map(Signature)
                .ok_or_else(|| D::Error::custom("signature: expected 128 lower-case hexadecimal digits"));
        }
        let (first, second) = <([u8; 32], [u8; 32])>::deserialize(deserializer)?;
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&first);
        bytes[32..].copy_from_slice(&second);
        Ok(Signature(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_signatures_are_text_for_people_and_bytes_on_the_wire() {
        let key = PublicKey::from_bytes(std::array::from_fn(|i| i as u8));
        let signature = Signature::from_bytes(std::array::from_fn(|i| 255 - i as u8));
        let text = serde_json::to_string(&(key, signature)).unwrap();
        assert_eq!(text.len(), 64 + 128 + 7);
        assert_eq!(serde_json::from_str::<(PublicKey, Signature)>(&text).unwrap(), (key, signature));
        let config = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec((key, signature), config).unwrap();
        assert_eq!(bytes.len(), 96);
        let (read, _): ((PublicKey, Signature), _) = bincode::serde::decode_from_slice(&bytes, config).unwrap();
        assert_eq!(read, (key, signature));
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(key.fingerprint(), "0001020304050607");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "00", &"g".repeat(64), &"A".repeat(64), &"0".repeat(66)] {
            assert!(PublicKey::from_text(text).is_err(), "{text}");
            assert!(serde_json::from_str::<Signature>(&format!("{text:?}")).is_err(), "{text}");
        }
    }
}
