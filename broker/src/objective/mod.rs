//! What makes one plan better than another: one file an objective.
//!
//! Every seat of a plan starts together, so a plan's value follows from its start and from what its seats measure. Source:
//! section 2 of the dissertation on windows of slots (`formats.md`, version 2). Invariant: values are whole seconds, or thousandths of
//! a credit; smaller is better, and with the same measures no value falls as the start grows.

mod cost;
mod finish;
mod host_time;
mod runtime;
mod start;

use crate::{
    cost::Cost,
    plan::{ObjectiveValue, Seat},
    request::ObjectiveKind,
    time::Time,
};

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
        let cost: Cost = seats.iter().map(|seat| seat.cost).sum();
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

/// The registry: what a request's objective is computed by.
pub(crate) fn of(kind: ObjectiveKind) -> &'static dyn Objective {
    match kind {
        ObjectiveKind::Start => &start::Start,
        ObjectiveKind::Finish => &finish::Finish,
        ObjectiveKind::Runtime => &runtime::Runtime,
        ObjectiveKind::HostTime => &host_time::HostTime,
        ObjectiveKind::Cost => &cost::LeastCost,
    }
}

/// What seats that were not planned together are worth; nothing is known of better ones.
pub(crate) fn unproven(kind: ObjectiveKind, start: Time, seats: &[Seat]) -> ObjectiveValue {
    ObjectiveValue { kind, value: of(kind).value(start.0, Measures::of(seats)), bound: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_means_no_worse() {
        let kinds = [
            ObjectiveKind::Start,
            ObjectiveKind::Finish,
            ObjectiveKind::Runtime,
            ObjectiveKind::HostTime,
            ObjectiveKind::Cost,
        ];
        for kind in kinds {
            let objective = of(kind);
            let measures = Measures { longest: 9, together: 21, cost: 33 };
            let value = objective.value(100, measures);
            let is_within = |limit| match objective.within(100, limit) {
                Within::Any => true,
                Within::Longest(most) => measures.longest <= most,
                Within::Together(most) => measures.together <= most,
                Within::Cost(most) => measures.cost <= most,
            };
            // Every set has the same start.
            assert!(is_within(value) && (kind == ObjectiveKind::Start || !is_within(value - 1)), "{kind:?}");
        }
    }
}
