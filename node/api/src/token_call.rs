//! A call that a token's holder makes without showing the token: the header `Authorization` of it, as it is written and read.
//!
//! Invariant: what is hashed names method, path with its query, nonce and the body's hash, so it is good for no other call.

use kolo_trust::{TokenKey, body_hash};

use crate::signed_call::fields;

/// Scheme of the header of a call by a token that is not shown.
const SCHEME: &str = "Kolo-Token ";

/// The value of the header `Authorization` by which the holder of a token makes one call.
pub fn authorize(key: &TokenKey, method: &str, path: &str, nonce: &str, body: &[u8]) -> String {
    let (token, body) = (key.name(), body_hash(body));
    let mac = key.of_call(&[method, path, nonce, &body]);
    format!("{SCHEME}token={token}, nonce={nonce}, body={body}, mac={mac}")
}

/// The fields of a header of this scheme, before the keyed hash is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCall<'a> {
    /// Name of the token, as [`TokenKey::name`] gives it.
    pub token: &'a str,
    /// Nonce that the node gave with its proof.
    pub nonce: &'a str,
    /// Hash of the body, as [`body_hash`] gives it.
    pub body: &'a str,
    mac: &'a str,
}

impl<'a> TokenCall<'a> {
    /// Reads a header; none when it is no such header, or not whole.
    #[must_use]
    pub fn read(header: &'a str) -> Option<TokenCall<'a>> {
        let [token, nonce, body, mac] = fields(header, SCHEME, ["token", "nonce", "body", "mac"])?;
        Some(TokenCall { token, nonce, body, mac })
    }

    /// True when the keyed hash was made with `key` for this method and path.
    #[must_use]
    pub fn is_by(&self, key: &TokenKey, method: &str, path: &str) -> bool {
        key.is_of_call(&[method, path, self.nonce, self.body], self.mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_good_for_its_call_only() {
        let key = TokenKey::of("00ff");
        let header = authorize(&key, "POST", "/v1/drain", "n-1", b"{}");
        assert!(!header.contains("00ff"));
        let call = TokenCall::read(&header).unwrap();
        assert_eq!((call.token, call.nonce, call.body), (&*key.name(), "n-1", &*body_hash(b"{}")));
        assert!(call.is_by(&key, "POST", "/v1/drain"));
        assert!(!call.is_by(&key, "GET", "/v1/drain") && !call.is_by(&key, "POST", "/v1/drain?"));
        assert!(!call.is_by(&TokenKey::of("00fe"), "POST", "/v1/drain"));
        let other = body_hash(b"{ }");
        for changed in [TokenCall { nonce: "n-2", ..call }, TokenCall { body: &other, ..call }] {
            assert!(!changed.is_by(&key, "POST", "/v1/drain"), "{changed:?}");
        }
        for damaged in ["", "Kolo-Token ", "Bearer 00ff", &header[..20], &format!("{header}, more=1")] {
            assert_eq!(TokenCall::read(damaged), None, "{damaged}");
        }
    }
}
