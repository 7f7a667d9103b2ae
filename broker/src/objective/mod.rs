//! What makes one plan better than another: one file an objective.
//!
//! Every seat of a plan starts together, so a plan's value follows from its start and from the lengths of its seats. Source:
//! section 2 of the dissertation on windows of slots (`formats.md`, version 2). Invariant: values are whole seconds, smaller
//! is better, and no bound falls as the start grows.

mod finish;
mod host_time;
mod runtime;
mod start;

use crate::{
    plan::{ObjectiveValue, Seat},
    request::ObjectiveKind,
    time::Time,
};

/// The N shortest lengths that can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Least {
    /// The longest of them, in seconds.
    pub longest: i64,
    /// All of them together, in seconds.
    pub together: i64,
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
}

/// An objective of a request.
pub(crate) trait Objective: Sync {
    /// The value of a plan with seats of these lengths that begin at `start`.
    fn value(&self, start: i64, lengths: &[i64]) -> i64;

    /// No plan that begins at `start` has a smaller value, when the N shortest seats to be had are `least`. Where even the
    /// N shortest of all hosts give no better value than the best plan so far, the search ends.
    fn bound(&self, start: i64, least: Least) -> i64;

    /// The sets of hosts whose value at `start` is at most `value`, which some set reaches there.
    fn within(&self, start: i64, value: i64) -> Within;
}

/// The registry: what a request's objective is computed by. A cost needs prices, which are not supported yet; a checked request
/// never asks for one.
pub(crate) fn of(kind: ObjectiveKind) -> &'static dyn Objective {
    match kind {
        ObjectiveKind::Start | ObjectiveKind::Cost => &start::Start,
        ObjectiveKind::Finish => &finish::Finish,
        ObjectiveKind::Runtime => &runtime::Runtime,
        ObjectiveKind::HostTime => &host_time::HostTime,
    }
}

/// What seats that were not planned together are worth; nothing is known of better ones.
pub(crate) fn unproven(kind: ObjectiveKind, start: Time, seats: &[Seat]) -> ObjectiveValue {
    let lengths: Vec<i64> = seats.iter().map(|seat| seat.window.duration().0.cast_signed()).collect();
    ObjectiveValue { kind, value: of(kind).value(start.0, &lengths), bound: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_value_of_the_shortest_seats_and_within_means_no_worse() {
        let lengths = [5, 9, 7];
        let least = Least { longest: 9, together: 21 };
        for kind in [ObjectiveKind::Start, ObjectiveKind::Finish, ObjectiveKind::Runtime, ObjectiveKind::HostTime] {
            let objective = of(kind);
            let value = objective.value(100, &lengths);
            assert_eq!(value, objective.bound(100, least), "{kind:?}");
            let is_within = |limit| match objective.within(100, limit) {
                Within::Any => true,
                Within::Longest(most) => lengths.iter().all(|length| *length <= most),
                Within::Together(most) => lengths.iter().sum::<i64>() <= most,
            };
            // Every set has the same start.
            assert!(is_within(value) && (kind == ObjectiveKind::Start || !is_within(value - 1)), "{kind:?}");
        }
    }
}
