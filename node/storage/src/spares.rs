//! Descriptors that the writer of the ledger keeps for itself.
//!
//! Invariant: that other parts of the process have taken all descriptors fails no write of the ledger: what needs one gives the spare ones
//! back to the process first, and is tried again for [`WANT_MAX`].

use std::{
    fs::File,
    thread,
    time::{Duration, Instant},
};

use super::error::StoreError;

/// Descriptors that are kept: as many as a compaction has open at once (journal, snapshot before and after, directory).
const KEPT: usize = 4;
/// Longest wait for descriptors: idle connections to the API are closed after 20 s, and give theirs back.
const WANT_MAX: Duration = Duration::from_secs(60);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Descriptors that stand for later ones.
pub struct Spares {
    /// An open file, of which the spare ones are duplicates.
    model: File,
    kept: Vec<File>,
}

impl Spares {
    /// As many as can be had, each a duplicate of `model`.
    pub fn of(model: File) -> Spares {
        let mut spares = Spares { model, kept: Vec::new() };
        spares.keep();
        spares
    }

    fn keep(&mut self) {
        while self.kept.len() < KEPT {
            let Ok(file) = self.model.try_clone() else { return };
            self.kept.push(file);
        }
    }

    /// Does what may open up to [`KEPT`] files at once, and does it again from its beginning when it fails for want of descriptors.
    ///
    /// # Errors
    /// Whatever else it fails for, and [`StoreError::TooManyOpen`] after [`WANT_MAX`].
    pub fn lend<T>(&mut self, mut work: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let until = Instant::now() + WANT_MAX;
        loop {
            match work() {
                Err(StoreError::TooManyOpen { .. }) if !self.kept.is_empty() => self.kept.clear(),
                Err(StoreError::TooManyOpen { .. }) if Instant::now() < until => thread::sleep(PAUSE),
                done => {
                    self.keep();
                    return done;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spares() -> Spares {
        Spares::of(tempfile::tempfile().unwrap())
    }

    #[test]
    fn what_fails_for_want_of_descriptors_is_done_again_with_those_that_were_kept() {
        let mut tries = 0;
        let done = spares().lend(|| {
            tries += 1;
            if tries < 3 { Err(StoreError::TooManyOpen { file: "journal.2".to_owned() }) } else { Ok(tries) }
        });
        assert_eq!(done.unwrap(), 3);
    }

    #[test]
    fn another_failure_is_not_tried_again_and_the_spare_ones_are_there_afterwards() {
        let (mut spares, mut tries) = (spares(), 0);
        let failed: Result<(), _> = spares.lend(|| {
            tries += 1;
            Err(StoreError::Stopped)
        });
        assert!(matches!((failed, tries), (Err(StoreError::Stopped), 1)));
        assert_eq!(spares.kept.len(), KEPT);
    }
}
