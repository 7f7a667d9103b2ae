//! The snapshot as a room that alternatives are put into, and what is then reached of the objective.

use std::collections::BTreeMap;

use super::{
    choice::{Aim, Room},
    objective::{BatchObjective, since},
};
use crate::{
    ids::{HostId, SiteId},
    offline::OfflinePlanner,
    plan::Plan,
    time::Time,
};

/// See the module.
pub(super) struct Snapshot<'a> {
    planner: &'a mut OfflinePlanner,
    plans: &'a [Vec<Plan>],
    objective: BatchObjective,
    origin: Time,
    /// The sum of the values, or of the last ends of all hosts.
    sum: i64,
    /// Ends that are taken, and how often; of each host where the objective asks for them, else of the batch under no host.
    ends: BTreeMap<Option<(SiteId, HostId)>, Vec<i64>>,
}

impl<'a> Snapshot<'a> {
    /// A room beside plans that are fixed already; a sum leaves them out.
    pub fn new(
        planner: &'a mut OfflinePlanner,
        plans: &'a [Vec<Plan>],
        objective: BatchObjective,
        origin: Time,
        fixed: &[&Plan],
    ) -> Snapshot<'a> {
        let mut room = Snapshot { planner, plans, objective, origin, sum: 0, ends: BTreeMap::new() };
        if objective.aim() != Aim::Sum {
            fixed.iter().for_each(|plan| room.count(plan));
        }
        room
    }

    fn count(&mut self, plan: &Plan) {
        match self.objective.aim() {
            Aim::Sum => self.sum += self.objective.item(plan, self.origin).value,
            Aim::Latest => self.ends.entry(None).or_default().push(since(plan.end(), self.origin)),
            Aim::Together => {
                for seat in &plan.seats {
                    let ends = self.ends.entry(Some((seat.site.clone(), seat.host().clone()))).or_default();
                    self.sum -= latest(ends);
                    ends.push(since(seat.window.end, self.origin));
                    self.sum += latest(ends);
                }
            }
        }
    }

    fn discount(&mut self, plan: &Plan) {
        let drop_one = |ends: &mut Vec<i64>, end: i64| {
            if let Some(at) = ends.iter().rposition(|known| *known == end) {
                ends.swap_remove(at);
            }
        };
        match self.objective.aim() {
            Aim::Sum => self.sum -= self.objective.item(plan, self.origin).value,
            Aim::Latest => drop_one(self.ends.entry(None).or_default(), since(plan.end(), self.origin)),
            Aim::Together => {
                for seat in &plan.seats {
                    let ends = self.ends.entry(Some((seat.site.clone(), seat.host().clone()))).or_default();
                    self.sum -= latest(ends);
                    drop_one(ends, since(seat.window.end, self.origin));
                    self.sum += latest(ends);
                }
            }
        }
    }
}

fn latest(ends: &[i64]) -> i64 {
    ends.iter().max().copied().unwrap_or(0)
}

impl Room for Snapshot<'_> {
    fn take(&mut self, request: usize, item: usize) -> bool {
        let plans = self.plans;
        let plan = &plans[request][item];
        let fits = self.planner.admits(plan);
        if fits {
            self.planner.occupy(plan);
            self.count(plan);
        }
        fits
    }

    fn give_back(&mut self, request: usize, item: usize) {
        let plans = self.plans;
        let plan = &plans[request][item];
        self.planner.vacate(plan);
        self.discount(plan);
    }

    fn value(&self) -> i64 {
        match self.objective.aim() {
            Aim::Sum | Aim::Together => self.sum,
            Aim::Latest => self.ends.get(&None).map_or(0, |ends| latest(ends)),
        }
    }
}
