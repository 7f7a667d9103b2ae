//! The start that came nearest to a solution, for the reason of a rejection.
//!
//! Invariant: scores come from the bounds that closed a start or a stride, so they cost nothing extra; only the winner
//! is looked at closely, once.

use super::{bounds::Picker, problem::Problem};
use crate::{amount::Amount, plan::NearestMiss, time::Time};

/// Keeps the start with the best score, the earliest among equals.
pub(crate) struct Miss {
    start: Time,
    score: f64,
}

impl Miss {
    /// Begins with a start that is worse than any other.
    pub fn new(start: Time) -> Miss {
        Miss { start, score: f64::NEG_INFINITY }
    }

    /// The score of a start with too few hosts: worse than any with enough.
    pub fn too_few(available: usize, pick: usize) -> f64 {
        available as f64 / pick as f64 - 1.0
    }

    /// Notes a start and how near it came: the reachable part of the scarcest total, or [`Miss::too_few`].
    pub fn note(&mut self, start: Time, score: f64) {
        if score > self.score {
            *self = Miss { start, score };
        }
    }

    /// Looks closely at the nearest start.
    pub fn describe(&self, problem: &Problem<'_>, picker: &mut Picker) -> NearestMiss {
        let slot = problem.slot_at(self.start);
        let width = problem.width();
        let mut short = Vec::new();
        for resource in (0..width).filter(|resource| problem.is_binding[*resource]) {
            let count = problem.pick.min(slot.len());
            let best = picker.sum_of_largest(count, slot.free.iter().skip(resource).step_by(width).copied());
            if best < problem.needed[resource] {
                let missing = Amount((problem.needed[resource] - best).cast_unsigned());
                short.push((problem.resources[resource].clone(), missing));
            }
        }
        NearestMiss { start: self.start, hosts_available: slot.len() as u64, short }
    }
}
