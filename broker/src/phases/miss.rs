//! The start that came nearest to a solution, for the reason of a rejection.
//!
//! Invariant: scores come from the bounds that closed a start or a stride, so they cost nothing extra; only the winners
//! are looked at closely, once.

use super::{bounds::Picker, problem::Problem};
use crate::{amount::Amount, plan::NearestMiss, time::Time};

/// A start and how near it came: the part of the scarcest total that is in reach, or less than 0 for too few hosts.
#[derive(Clone, Copy)]
struct Near {
    start: Time,
    score: f64,
}

/// Keeps the start with the best score, the one noted first among equals.
pub(crate) struct Miss {
    start: Near,
    /// The best stride. Its bound may promise more than any start inside it keeps.
    stride: Near,
}

impl Miss {
    /// Begins with a start that is worse than any other.
    pub fn new(start: Time) -> Miss {
        let worst = Near { start, score: f64::NEG_INFINITY };
        Miss { start: worst, stride: worst }
    }

    /// The score of a start with too few hosts: worse than any with enough.
    pub fn too_few(available: usize, pick: usize) -> f64 {
        available as f64 / pick as f64 - 1.0
    }

    /// Notes a start that was excluded.
    pub fn note(&mut self, start: Time, score: f64) {
        if score > self.start.score {
            self.start = Near { start, score };
        }
    }

    /// Notes a stride that was closed, by its first start.
    pub fn note_stride(&mut self, start: Time, score: f64) {
        if score > self.stride.score {
            self.stride = Near { start, score };
        }
    }

    /// Looks closely at the nearest start.
    pub fn describe(&self, problem: &Problem<'_>, picker: &mut Picker) -> NearestMiss {
        if self.stride.score > self.start.score {
            let (score, nearest) = look(problem, self.stride.start, picker);
            if score > self.start.score {
                return nearest;
            }
        }
        look(problem, self.start.start, picker).1
    }
}

/// How near the start comes, by count and by every total alone.
pub(crate) fn look(problem: &Problem<'_>, start: Time, picker: &mut Picker) -> (f64, NearestMiss) {
    let slot = problem.slot_at(start);
    let (width, available) = (problem.width(), slot.len());
    let mut short = Vec::new();
    let mut score = f64::INFINITY;
    for resource in (0..width).filter(|resource| problem.is_binding[*resource]) {
        let needed = problem.needed[resource];
        let free = slot.free.iter().skip(resource).step_by(width).copied();
        let best = picker.sum_of_largest(problem.pick.min(available), free);
        score = score.min(best as f64 / needed as f64);
        if best < needed {
            short.push((problem.resources[resource].clone(), Amount((needed - best).cast_unsigned())));
        }
    }
    if available < problem.pick {
        score = Miss::too_few(available, problem.pick);
    }
    (score, NearestMiss { start, hosts_available: available as u64, short })
}
