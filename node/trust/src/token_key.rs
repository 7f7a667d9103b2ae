//! What the holder of a token and its node both know, and by which each shows the other that it does, without the token.
//!
//! Invariant: what goes out tells neither the token nor the key, and what a node shows is never what a caller shows. The key is as good as the
//! token: it is kept where the token could be.

use std::{fmt, net::SocketAddr};

use blake3::{Hash, Hasher};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes of a name: enough to tell a few dozen tokens apart.
const NAME_BYTES: usize = 8;

/// SHA-256 of a token, in hexadecimal where it is written down. A token is 256 random bits, so nothing slower is needed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// The key of a token.
    #[must_use]
    pub fn of(token: &str) -> TokenKey {
        TokenKey(Sha256::digest(token).into())
    }

    /// Public name of the token: 16 hexadecimal digits, from which neither token nor key follows.
    #[must_use]
    pub fn name(&self) -> String {
        HEXLOWER.encode(&self.keyed("name", &[]).as_bytes()[..NAME_BYTES])
    }

    /// Proof of the node at `address` that it knows the token and has given `nonce`; `asked` is the fresh nonce of the caller. Hexadecimal.
    #[must_use]
    pub fn of_node(&self, address: SocketAddr, asked: &str, nonce: &str) -> String {
        self.keyed("node", &[&address.to_string(), asked, nonce]).to_hex().to_string()
    }

    /// True when `shown` is the value of [`TokenKey::of_node`]; takes the same time wherever it differs.
    #[must_use]
    pub fn is_of_node(&self, address: SocketAddr, asked: &str, nonce: &str, shown: &str) -> bool {
        is(&self.keyed("node", &[&address.to_string(), asked, nonce]), shown)
    }

    /// Keyed hash by which a holder of the token authorizes a call with these parts. Hexadecimal.
    #[must_use]
    pub fn of_call(&self, parts: &[&str]) -> String {
        self.keyed("call", parts).to_hex().to_string()
    }

    /// True when `shown` is the value of [`TokenKey::of_call`]; takes the same time wherever it differs.
    #[must_use]
    pub fn is_of_call(&self, parts: &[&str], shown: &str) -> bool {
        is(&self.keyed("call", parts), shown)
    }

    fn keyed(&self, what: &str, parts: &[&str]) -> Hash {
        let mut hasher = Hasher::new_keyed(&self.0);
        for part in std::iter::once(&what).chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize()
    }
}

fn is(hash: &Hash, shown: &str) -> bool {
    // Hashes are compared in constant time.
    Hash::from_hex(shown).is_ok_and(|shown| shown == *hash)
}

/// The hash of a call's body, in hexadecimal.
#[must_use]
pub fn body_hash(body: &[u8]) -> String {
    blake3::hash(body).to_hex().to_string()
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey")
    }
}

impl From<TokenKey> for String {
    fn from(key: TokenKey) -> String {
        HEXLOWER.encode(&key.0)
    }
}

impl TryFrom<String> for TokenKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<TokenKey, &'static str> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(TokenKey).ok_or("expected 64 lower-case hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_token_shows_it_and_for_one_thing_only() {
        let (key, other) = (TokenKey::of("00ff"), TokenKey::of("00fe"));
        const AT: &str = "127.0.0.1:7740";
        let at = |text: &str| text.parse().unwrap();
        let shown = key.of_node(at(AT), "asked", "nonce");
        let is_shown = |key: &TokenKey, text, asked, nonce| key.is_of_node(at(text), asked, nonce, &shown);
        assert!(is_shown(&key, AT, "asked", "nonce") && !is_shown(&other, AT, "asked", "nonce"));
        for elsewhere in ["127.0.0.1:7741", "127.0.0.2:7740", "[::1]:7740"] {
            assert!(!is_shown(&key, elsewhere, "asked", "nonce"), "{elsewhere}");
        }
        assert!(!is_shown(&key, AT, "ask", "ednonce"));
        assert!(!key.is_of_call(&[AT, "asked", "nonce"], &shown), "a node's answer is no call");
        let call = key.of_call(&["GET", "/v1/status"]);
        assert!(key.is_of_call(&["GET", "/v1/status"], &call) && !key.is_of_call(&["GET/v1", "/status"], &call));
        for damaged in ["", "00", &call[1..], &format!("{call}0")] {
            assert!(!key.is_of_call(&["GET", "/v1/status"], damaged), "{damaged}");
        }
        assert_ne!(key.name(), other.name());
        assert!(!String::from(key.clone()).starts_with(&key.name()), "the name is no part of the key");
    }

    #[test]
    fn it_is_written_as_hexadecimal_and_read_again() {
        let key = TokenKey::of("00ff");
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text.len(), 66);
        assert_eq!(serde_json::from_str::<TokenKey>(&text).unwrap(), key);
        assert!(serde_json::from_str::<TokenKey>("\"00ff\"").is_err());
        assert_eq!(format!("{key:?}"), "TokenKey", "it is in no log");
    }
}
