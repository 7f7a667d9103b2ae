//! Calls by those who have a token and do not show it: the node shows first that it knows the token, and gives a nonce for one call.
//!
//! Invariants: nothing is kept of what is asked, since anybody may ask: a nonce says by itself when it was given, and by which run of the node,
//! and is believed in a call by a token's holder only. Such a call counts once, and within [`NONCE_LIFE`]; of each token at most [`USED_MAX`]
//! are remembered that long, and its holder's further ones are refused: nobody uses up what others may call.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use data_encoding::HEXLOWER;
use kolo_runtime::lock::locked;
use kolo_trust::{TrustFileError, random_bytes};

use super::challenge::NONCE_LIFE;

/// [`NONCE_LIFE`] in milliseconds.
const NONCE_LIFE_MS: u64 = NONCE_LIFE.as_secs() * 1_000;
/// Most calls by the holder of a token within [`NONCE_LIFE`]: some 500 a second.
const USED_MAX: usize = 16_384;

/// The nonces of one run of the node.
pub struct Proofs {
    /// Random name of this run of the node, in hexadecimal.
    run: String,
    start: Instant,
    given: AtomicU64,
    /// Used nonces, by the name of the token: when they were given, in milliseconds since the start, and their number.
    used: Mutex<BTreeMap<String, BTreeSet<(u64, u64)>>>,
}

/// A nonce that is not good for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadNonce {
    /// The nonce was used, is too old, or was given by another run of the node.
    Spent,
    /// Too many calls were made lately by the token.
    Busy,
}

impl Proofs {
    /// None were given yet.
    ///
    /// # Errors
    /// [`TrustFileError::Random`].
    pub fn new(now: Instant) -> Result<Proofs, TrustFileError> {
        let run = HEXLOWER.encode(&random_bytes::<8>()?);
        Ok(Proofs { run, start: now, given: AtomicU64::new(0), used: Mutex::default() })
    }

    /// A nonce that was never given.
    pub fn give(&self, now: Instant) -> String {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        format!("{}-{:x}-{number:x}", self.run, self.ms_at(now))
    }

    /// Uses up the nonce of a call by the holder of the token with this name.
    ///
    /// # Errors
    /// [`BadNonce`].
    pub fn use_up(&self, token: &str, nonce: &str, now: Instant) -> Result<(), BadNonce> {
        let now = self.ms_at(now);
        let is_young = |(given, _): &(u64, u64)| now.checked_sub(*given).is_some_and(|age| age < NONCE_LIFE_MS);
        let nonce = self.read(nonce).filter(is_young).ok_or(BadNonce::Spent)?;
        let mut all = locked(&self.used);
        if !all.contains_key(token) {
            // Tokens come and go: what a gone one has used is forgotten when it is old.
            all.retain(|_, used| used.last().is_some_and(is_young));
        }
        let used = all.entry(token.to_owned()).or_default();
        if used.contains(&nonce) {
            return Err(BadNonce::Spent);
        }
        if used.len() >= USED_MAX {
            used.retain(is_young);
        }
        if used.len() >= USED_MAX {
            return Err(BadNonce::Busy);
        }
        used.insert(nonce);
        Ok(())
    }

    /// When a nonce of this run was given, and its number.
    fn read(&self, nonce: &str) -> Option<(u64, u64)> {
        let (given, number) = nonce.strip_prefix(&self.run)?.strip_prefix('-')?.split_once('-')?;
        Some((u64::from_str_radix(given, 16).ok()?, u64::from_str_radix(number, 16).ok()?))
    }

    /// Milliseconds since the start.
    fn ms_at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: &str = "0123456789abcdef";

    #[test]
    fn a_nonce_counts_once_soon_and_in_its_run_only() {
        let now = Instant::now();
        let (proofs, other) = (Proofs::new(now).unwrap(), Proofs::new(now).unwrap());
        let (one, two) = (proofs.give(now), proofs.give(now));
        assert_ne!(one, two);
        assert_eq!(other.use_up(ADA, &one, now), Err(BadNonce::Spent), "of another run");
        assert_eq!(proofs.use_up(ADA, &one, now), Ok(()));
        assert_eq!(proofs.use_up(ADA, &one, now), Err(BadNonce::Spent), "a second time");
        let late = now + NONCE_LIFE;
        assert_eq!(proofs.use_up(ADA, &two, late), Err(BadNonce::Spent));
        let third = proofs.give(late);
        assert_eq!(proofs.use_up(ADA, &third, now), Err(BadNonce::Spent), "before it can have been given");
        assert_eq!(proofs.use_up(ADA, &third, late), Ok(()));
        for damaged in ["", "-0-0", &one[1..], &proofs.run, &format!("{}-x-0", proofs.run), &format!("{two}x")] {
            assert_eq!(proofs.use_up(ADA, damaged, now), Err(BadNonce::Spent), "{damaged}");
        }
    }

    #[test]
    fn used_nonces_are_bounded_by_token_and_old_ones_make_room() {
        let (proofs, now) = (Proofs::new(Instant::now()).unwrap(), Instant::now());
        for _ in 0..USED_MAX {
            assert_eq!(proofs.use_up(ADA, &proofs.give(now), now), Ok(()));
        }
        assert_eq!(proofs.use_up(ADA, &proofs.give(now), now), Err(BadNonce::Busy));
        assert_eq!(proofs.use_up("of another", &proofs.give(now), now), Ok(()), "whatever others have used");
        let later = now + NONCE_LIFE;
        assert_eq!(proofs.use_up(ADA, &proofs.give(later), later), Ok(()));
        assert_eq!(proofs.use_up("of a third", &proofs.give(later), later), Ok(()));
        assert_eq!(locked(&proofs.used).len(), 2, "nothing is kept of a token that is not used any more");
    }
}
