//! Looks for the highest rate that a grid keeps up with.
//!
//! First the rate is doubled while it is kept up with (or halved until one is), then the gap between the highest rate that
//! was and the lowest one that was not is halved, geometrically. Pure. Invariant: the search ends after [`STEPS_MAX`] steps,
//! and the rate it ends with was kept up with in a step of its own.

/// Fewest requests a second.
pub const RATE_MIN: f64 = 0.01;
/// Most requests a second.
pub const RATE_MAX: f64 = 10_000.0;

/// Most steps.
const STEPS_MAX: usize = 12;
/// The search is over when the two ends are this near to each other.
const NEAR: f64 = 1.1;

/// How far a search is.
#[derive(Debug, Clone)]
pub struct RateSearch {
    first: f64,
    steps: usize,
    kept: Option<f64>,
    missed: Option<f64>,
}

impl RateSearch {
    /// A search that begins with `first` requests a second.
    pub fn new(first: f64) -> RateSearch {
        RateSearch { first, steps: 0, kept: None, missed: None }
    }

    /// The next rate; `None` when the search is over.
    pub fn next(&self) -> Option<f64> {
        let next = match (self.kept, self.missed) {
            (None, None) => self.first,
            (Some(kept), None) => kept * 2.0,
            (None, Some(missed)) => missed / 2.0,
            (Some(kept), Some(missed)) if missed / kept <= NEAR => return None,
            (Some(kept), Some(missed)) => (kept * missed).sqrt(),
        };
        (self.steps < STEPS_MAX && (RATE_MIN..=RATE_MAX).contains(&next)).then_some(next)
    }

    /// Notes whether the grid kept up with `rate`.
    pub fn tried(&mut self, rate: f64, has_kept_up: bool) {
        self.steps += 1;
        if has_kept_up {
            self.kept = Some(self.kept.map_or(rate, |kept| kept.max(rate)));
        } else {
            self.missed = Some(self.missed.map_or(rate, |missed| missed.min(rate)));
        }
    }

    /// The highest rate that was kept up with.
    pub fn highest(&self) -> Option<f64> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(first: f64, limit: f64) -> RateSearch {
        let mut search = RateSearch::new(first);
        while let Some(rate) = search.next() {
            search.tried(rate, rate <= limit);
        }
        search
    }

    #[test]
    fn the_highest_rate_is_found_within_a_tenth() {
        for first in [1.0, 7.0, 10.0, 50.0, 99.0] {
            for limit in (2..300).map(f64::from) {
                let search = search(first, limit);
                let highest = search.highest().unwrap();
                assert!(search.steps <= STEPS_MAX && highest <= limit, "from {first}: {highest} of {limit}");
                let is_near = limit < highest * NEAR * 1.000_001;
                assert!(is_near || search.steps == STEPS_MAX, "from {first}: {highest} of {limit}");
            }
        }
        assert_eq!(search(10.0, 80.0).steps, 8);
    }

    #[test]
    fn a_grid_that_keeps_up_with_nothing_or_everything_ends_the_search() {
        assert_eq!(search(10.0, 0.0).highest(), None);
        assert!(search(10.0, f64::INFINITY).highest().unwrap() <= RATE_MAX);
    }
}
