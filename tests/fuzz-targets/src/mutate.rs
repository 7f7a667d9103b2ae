//! Mutations of bytes from a seed: what a test tries beside the corpus, without libFuzzer and the same every time.
//!
//! Invariant: the same seed gives the same bytes on every machine.

use rand::{Rng, RngExt as _};

/// Longest result.
const BYTES_MAX: usize = 1 << 16;
/// Most mutations of one input.
const MUTATIONS_MAX: usize = 6;
/// Values at which lengths and numbers go wrong: signs, and the length marks of bincode.
const ODD_BYTES: [u8; 12] = [0, 1, 2, 0x7f, 0x80, 0xff, 250, 251, 252, 253, b'"', b'-'];

/// A file of `corpus` with a few mutations, some of which borrow from other files.
#[must_use]
pub fn mutated(corpus: &[Vec<u8>], random: &mut impl Rng) -> Vec<u8> {
    let Some(mut bytes) = corpus.get(below(corpus.len(), random)).cloned() else { return Vec::new() };
    for _ in 0..=below(MUTATIONS_MAX, random) {
        mutate_once(&mut bytes, corpus, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// A number below `limit`; 0 when that is 0.
fn below(limit: usize, random: &mut impl Rng) -> usize {
    random.random_range(0..limit.max(1))
}

fn mutate_once(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut impl Rng) {
    let at = below(bytes.len(), random);
    match (below(8, random), bytes.is_empty()) {
        (0, false) => bytes[at] ^= 1 << below(8, random),
        (1, false) => bytes[at] = random.random(),
        (2, false) => bytes[at] = ODD_BYTES[below(ODD_BYTES.len(), random)],
        (3, false) => bytes.truncate(at),
        (4, false) => {
            let end = (at + 1 + below(16, random)).min(bytes.len());
            bytes.drain(at..end);
        }
        (5, false) => {
            let end = (at + 1 + below(64, random)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        (6, _) => {
            let other = &corpus[below(corpus.len(), random)];
            let from = below(other.len(), random);
            let end = (from + 1 + below(256, random)).min(other.len());
            bytes.splice(at..at, other.get(from..end).unwrap_or_default().iter().copied());
        }
        _ => {
            let count = 1 + below(8, random);
            let new: Vec<u8> = (0..count).map(|_| random.random()).collect();
            bytes.splice(at..at, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_xoshiro::SplitMix64;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_they_are_new() {
        let corpus = vec![b"abcdef".to_vec(), Vec::new(), vec![0; 100]];
        let run = |seed| {
            let mut random = SplitMix64::seed_from_u64(seed);
            (0..200).map(|_| mutated(&corpus, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let new = run(1).iter().filter(|bytes| !corpus.contains(bytes)).count();
        assert!(new > 150, "{new}");
        assert!(mutated(&[], &mut SplitMix64::seed_from_u64(1)).is_empty());
    }
}
