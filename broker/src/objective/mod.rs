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
mod value;

pub(crate) use self::value::{Measures, Objective, Within};
use crate::{
    plan::{ObjectiveValue, Seat},
    request::ObjectiveKind,
    time::Time,
};

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
