//! A call that its user has signed: the header `Authorization` of it, as it is written and read.
//!
//! Invariant: what is signed names method, path with its query, nonce and node, so it is good for no other call.

use std::{collections::BTreeMap, fmt};

use broker::{
    ids::SiteId,
    trust::{PublicKey, Signature, SignedText, Statement},
};
use data_encoding::HEXLOWER;
use kolo_trust::{TrustFileError, UserKey};
use serde::{Deserialize, Serialize};

/// How the header of a signed call begins.
const SCHEME: &str = "Kolo-Signature ";

/// What is signed of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    method: String,
    /// With the query.
    path: String,
    nonce: String,
    /// The node that gave the nonce.
    site: SiteId,
}

impl Statement for Call {
    const KIND: &'static str = "call";
    const TEXT_BYTES_MAX: usize = 16 * 1024;
}

/// The value of the header `Authorization` by which the holder of `key` makes one call.
///
/// # Errors
/// [`TrustFileError`] when the path is too long, or an agent does not sign.
pub fn sign(key: &UserKey, method: &str, path: &str, nonce: &str, site: &SiteId) -> Result<String, TrustFileError> {
    let call = Call { method: method.to_owned(), path: path.to_owned(), nonce: nonce.to_owned(), site: site.clone() };
    let signed = key.sign(&call)?;
    Ok(SignedCall { key: signed.author, nonce, signature: signed.signature }.to_string())
}

/// What the header of a signed call says, unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCall<'a> {
    key: PublicKey,
    /// That the node gave for the call.
    pub nonce: &'a str,
    signature: Signature,
}

impl fmt::Display for SignedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SignedCall { key, nonce, signature } = self;
        write!(f, "{SCHEME}key={key}, nonce={nonce}, signature={}", HEXLOWER.encode(signature.as_bytes()))
    }
}

impl<'a> SignedCall<'a> {
    /// Reads a header; none when it is no such header, or not whole.
    #[must_use]
    pub fn read(header: &'a str) -> Option<SignedCall<'a>> {
        let [key, nonce, signature] = fields(header, SCHEME, ["key", "nonce", "signature"])?;
        let bytes = HEXLOWER.decode(signature.as_bytes()).ok()?.try_into().ok()?;
        Some(SignedCall { key: key.parse().ok()?, nonce, signature: Signature::from_bytes(bytes) })
    }

    /// Who has signed this call to the node `site`; none when nobody has.
    #[must_use]
    pub fn signer(&self, method: &str, path: &str, site: &SiteId) -> Option<PublicKey> {
        let (method, path, nonce) = (method.to_owned(), path.to_owned(), self.nonce.to_owned());
        let text = SignedText::text_of(&Call { method, path, nonce, site: site.clone() }).ok()?;
        SignedText { text, author: self.key, signature: self.signature }.open::<Call>().ok().map(|_| self.key)
    }
}

/// The values of a header `SCHEME name=value, ...` in the order of `names`; none when the scheme or the set of names differs.
pub(crate) fn fields<'a, const N: usize>(header: &'a str, scheme: &str, names: [&str; N]) -> Option<[&'a str; N]> {
    let fields: BTreeMap<&str, &str> =
        header.strip_prefix(scheme)?.split(", ").map(|field| field.split_once('=')).collect::<Option<_>>()?;
    if fields.len() != N || !names.iter().all(|name| fields.contains_key(name)) {
        return None;
    }
    Some(names.map(|name| fields.get(name).copied().unwrap_or_default()))
}

/// Whether a header claims to sign the call.
pub fn is_signature(header: &str) -> bool {
    header.starts_with(SCHEME)
}
