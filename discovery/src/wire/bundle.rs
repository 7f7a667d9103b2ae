//! Bundles: several envelopes in one gossip message.

use super::encoding::UPDATE_BYTES_MAX;

/// A bundle begins with a number that no other has: gossipsub knows messages by their content and sends none twice, but
/// two nodes may have the same updates to pass on.
pub const NAME_BYTES: usize = 16;
/// Each envelope of a bundle is preceded by its length (big endian).
const LENGTH_BYTES: usize = 4;
/// Largest bundle: room for the largest update, or for many small ones.
pub const BUNDLE_BYTES_MAX: usize = NAME_BYTES + LENGTH_BYTES + UPDATE_BYTES_MAX;

/// The envelopes in a bundle, in order; none when it is not made of whole envelopes, or of no envelope at all.
#[must_use]
pub fn unbundle(bundle: &[u8]) -> Option<Vec<&[u8]>> {
    let mut envelopes = Vec::new();
    let mut rest = bundle.get(NAME_BYTES..)?;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (envelope, behind) = behind.split_at_checked(length)?;
        // Nothing that is signed is empty; a bundle of nothing but lengths is no bundle.
        if envelope.is_empty() {
            return None;
        }
        envelopes.push(envelope);
        rest = behind;
    }
    (!envelopes.is_empty()).then_some(envelopes)
}

/// A bundle without envelopes.
#[must_use]
pub fn empty(name: u128) -> Vec<u8> {
    name.to_be_bytes().to_vec()
}

/// A bundle of one envelope.
#[cfg(test)]
pub(crate) fn bundle_of(name: u128, envelope: &[u8]) -> Vec<u8> {
    let mut bundle = empty(name);
    append(&mut bundle, envelope);
    bundle
}

/// How many bytes an envelope takes in a bundle.
#[must_use]
pub fn bundled_bytes(envelope_bytes: usize) -> usize {
    LENGTH_BYTES + envelope_bytes
}

/// Puts an envelope behind those that are in the bundle.
pub fn append(bundle: &mut Vec<u8>, envelope: &[u8]) {
    // No envelope is longer than its kind may be.
    bundle.extend_from_slice(&u32::try_from(envelope.len()).unwrap_or(u32::MAX).to_be_bytes());
    bundle.extend_from_slice(envelope);
}
