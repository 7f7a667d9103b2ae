//! What is best for a batch: one number of all plans together.
//!
//! Invariant: whole numbers, smaller is better; times count from the earliest start that any request allows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::choice::{Aim, Item};
use crate::{
    cost::Cost,
    ids::{HostId, SiteId},
    plan::Plan,
    request::ObjectiveKind,
    time::Time,
};

/// What is best for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchObjective {
    /// The sum of the costs.
    Cost,
    /// The sum of the lengths of all seats.
    #[serde(alias = "host-time")]
    HostTime,
    /// The sum over the requests of their latest ends.
    #[default]
    Finish,
    /// The latest end of all.
    Makespan,
    /// The sum over the hosts of their last ends.
    #[serde(alias = "run-time")]
    RunTime,
}

impl BatchObjective {
    /// All of them, with their names in the formats.
    pub const ALL: [(&str, BatchObjective); 5] = [
        ("cost", BatchObjective::Cost),
        ("host_time", BatchObjective::HostTime),
        ("finish", BatchObjective::Finish),
        ("makespan", BatchObjective::Makespan),
        ("run_time", BatchObjective::RunTime),
    ];

    pub(super) fn aim(self) -> Aim {
        match self {
            BatchObjective::Cost | BatchObjective::HostTime | BatchObjective::Finish => Aim::Sum,
            BatchObjective::Makespan => Aim::Latest,
            BatchObjective::RunTime => Aim::Together,
        }
    }

    /// The objective of a single request that serves this one best.
    pub(super) fn of_request(self) -> ObjectiveKind {
        match self {
            BatchObjective::Cost => ObjectiveKind::Cost,
            BatchObjective::HostTime => ObjectiveKind::HostTime,
            BatchObjective::Finish | BatchObjective::Makespan | BatchObjective::RunTime => ObjectiveKind::Finish,
        }
    }

    /// Its value for plans that are taken together.
    pub(super) fn of_plans(self, plans: &[&Plan], origin: Time) -> i64 {
        let values = || plans.iter().map(|plan| self.item(plan, origin).value);
        match self.aim() {
            Aim::Sum => values().sum(),
            Aim::Latest => values().max().unwrap_or(0),
            Aim::Together => last_ends(plans.iter().copied()).values().map(|end| since(*end, origin)).sum(),
        }
    }

    /// What a plan is for the choice.
    pub(super) fn item(self, plan: &Plan, origin: Time) -> Item {
        let end = since(plan.end(), origin);
        let value = match self {
            BatchObjective::Cost => cost(plan).cast_signed(),
            BatchObjective::HostTime => host_time(plan).cast_signed(),
            BatchObjective::Finish | BatchObjective::Makespan => end,
            // Only where it stands in the order of what is tried.
            BatchObjective::RunTime => plan.seats.iter().map(|seat| since(seat.window.end, origin)).sum(),
        };
        Item::new(value, cost(plan), end)
    }
}

/// Seconds after the origin; none before it.
pub(super) fn since(time: Time, origin: Time) -> i64 {
    time.since(origin).0.cast_signed()
}

/// What a plan costs, in thousandths of a credit; more than the largest amount of money counts as that.
pub(super) fn cost(plan: &Plan) -> u64 {
    plan.cost().min(Cost::MAX).0
}

/// The lengths of all seats, in seconds.
pub(super) fn host_time(plan: &Plan) -> u64 {
    plan.seats.iter().map(|seat| seat.window.duration().0).sum()
}

/// The last end on each host that the plans use.
pub(super) fn last_ends<'a>(plans: impl Iterator<Item = &'a Plan>) -> BTreeMap<(&'a SiteId, &'a HostId), Time> {
    let mut ends = BTreeMap::new();
    for seat in plans.flat_map(|plan| &plan.seats) {
        let end = ends.entry((&seat.site, seat.host())).or_insert(seat.window.end);
        *end = seat.window.end.max(*end);
    }
    ends
}
