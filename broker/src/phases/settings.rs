//! What an administrator decides about planning.
//!
//! Invariant: M never grows past the largest one; who reads settings sees to it that M is at least 1 and no larger at first.

use serde::{Deserialize, Serialize};

use crate::{
    request::{Effort, ObjectiveKind},
    time::Span,
};

/// Settings of the planner. Every key may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Effort of requests that ask for none.
    pub effort: Effort,
    /// M of the first round of phase I, at least 1: the schedules of M N hosts are asked for where they are not known.
    pub m_init: u32,
    /// The largest M, at least `m_init`.
    pub m_max: u32,
    /// From the earliest to the latest start of requests that leave the latest open (the source's `t_C`).
    pub default_reach: Span,
    /// Whether, of nearly equal plans, one at the sites with most processors free is taken, so that load spreads.
    pub spread: bool,
}

impl Default for Settings {
    /// The source settles on 3 for the first M (section 3.4.3) and leaves the largest open. Here it is 24, three
    /// doublings: beyond 24 hosts for each one asked a request hardly ever becomes solvable, but every round costs all
    /// sites that are asked. What is known costs nothing, and is all planned on.
    fn default() -> Self {
        Settings { effort: Effort::Balanced, m_init: 3, m_max: 24, default_reach: Span(24 * 3600), spread: false }
    }
}

impl Settings {
    /// M of the first round. The cheapest hosts may be any, so where cost is what counts as many are asked for as ever are.
    #[must_use]
    pub fn first_m(&self, objective: ObjectiveKind) -> u32 {
        if objective == ObjectiveKind::Cost { self.m_max } else { self.m_init }
    }

    /// M of the round after the one with `m`; `None` when that was the last.
    #[must_use]
    pub fn next_m(&self, m: u32) -> Option<u32> {
        m.checked_mul(2).filter(|next| *next <= self.m_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_doubles_up_to_its_largest() {
        let settings = Settings::default();
        assert_eq!([ObjectiveKind::Start, ObjectiveKind::Cost].map(|kind| settings.first_m(kind)), [3, 24]);
        assert_eq!([3, 6, 12, 24].map(|m| settings.next_m(m)), [Some(6), Some(12), Some(24), None]);
    }
}
