//! What an objective is, and what it looks at.

use crate::{cost::Cost, plan::Seat};

/// What the seats of a plan measure; or the least of each that any N hosts can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measures {
    /// The longest seat, in seconds.
    pub longest: i64,
    /// All seats together, in seconds.
    pub together: i64,
    /// What they cost, in thousandths of a credit.
    pub cost: i64,
}

impl Measures {
    /// Of seats that are planned.
    pub fn of(seats: &[Seat]) -> Measures {
        let lengths = || seats.iter().map(|seat| seat.window.duration().0.cast_signed());
        let cost: Cost = seats.iter().map(|seat| seat.agreed.cost).sum();
        Measures { longest: lengths().max().unwrap_or(0), together: lengths().sum(), cost: cost.0.cast_signed() }
    }
}

/// Sets of hosts, by what they may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// Every set.
    Any,
    /// No seat is longer than this.
    Longest(i64),
    /// The seats together are no longer than this.
    Together(i64),
    /// The seats together cost no more than this.
    Cost(i64),
}

/// An objective of a request.
pub(crate) trait Objective: Sync {
    /// The value of a plan that begins at `start` with seats of these measures. It rises with each measure, so with the least of each
    /// that any N hosts have there no plan is better.
    fn value(&self, start: i64, of: Measures) -> i64;

    /// The sets of hosts whose value at `start` is at most `value`, which some set reaches there.
    fn within(&self, start: i64, value: i64) -> Within;
}
