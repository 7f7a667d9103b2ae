//! Mutations of bytes from a seed: what a test tries beside the corpus, without libFuzzer and the same every time.
//!
//! Invariant: the same seed gives the same bytes on every machine.

/// Longest result.
const BYTES_MAX: usize = 1 << 16;
/// Most mutations of one input.
const MUTATIONS_MAX: usize = 6;
/// Values at which lengths and numbers go wrong: signs, and the length marks of bincode.
const ODD_BYTES: [u8; 12] = [0, 1, 2, 0x7f, 0x80, 0xff, 250, 251, 252, 253, b'"', b'-'];

/// Random numbers from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers that depend on `seed` only.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 when that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.number() % limit).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }
}

/// A file of `corpus` with a few mutations, some of which borrow from other files.
#[must_use]
pub fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let Some(mut bytes) = corpus.get(random.below(corpus.len())).cloned() else { return Vec::new() };
    for _ in 0..=random.below(MUTATIONS_MAX) {
        mutate_once(&mut bytes, corpus, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn mutate_once(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len());
    match (random.below(8), bytes.is_empty()) {
        (0, false) => bytes[at] ^= 1 << random.below(8),
        (1, false) => bytes[at] = random.byte(),
        (2, false) => bytes[at] = ODD_BYTES[random.below(ODD_BYTES.len())],
        (3, false) => bytes.truncate(at),
        (4, false) => {
            let end = (at + 1 + random.below(16)).min(bytes.len());
            bytes.drain(at..end);
        }
        (5, false) => {
            let end = (at + 1 + random.below(64)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        (6, _) => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len());
            let end = (from + 1 + random.below(256)).min(other.len());
            bytes.splice(at..at, other.get(from..end).unwrap_or_default().iter().copied());
        }
        _ => {
            let count = 1 + random.below(8);
            let new: Vec<u8> = (0..count).map(|_| random.byte()).collect();
            bytes.splice(at..at, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_they_are_new() {
        let corpus = vec![b"abcdef".to_vec(), Vec::new(), vec![0; 100]];
        let run = |seed| {
            let mut random = Random::new(seed);
            (0..200).map(|_| mutated(&corpus, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let new = run(1).iter().filter(|bytes| !corpus.contains(bytes)).count();
        assert!(new > 150, "{new}");
        assert!(mutated(&[], &mut Random::new(1)).is_empty());
    }
}
