//! What any N hosts cost at least, kept up to date while hosts change: a start at which that is no better than the best so far is passed
//! over.
//!
//! For any prices of the totals, any threshold, and any charges for hosts of sites whose links limit them, which are not negative, N hosts
//! that reach the totals cost no less than `sum price asked + N threshold - sum charge most + sum over hosts of min(worth + charge - threshold,
//! 0)`; [`super::spend`] finds those for which that is largest at one start. Each change updates it for one host.
//!
//! Invariant: a site that may be the home, whose hosts are not limited then, has no charge.

use super::{
    links::usable,
    market::Market,
    problem::{Problem, Slot},
    spend::{Duals, in_thousandths},
};
use crate::time::Time;

/// Guards kept at a time; the oldest makes room.
const GUARDS_MAX: usize = 3;

/// The guards of a sweep.
#[derive(Default)]
pub(crate) struct CostGuards {
    guards: Vec<Guard>,
    next: usize,
    /// A start of the part of the window that is swept; costs do not change inside it.
    first: i64,
}

struct Guard {
    duals: Duals,
    /// The binding totals, without hosts.
    market: Market,
    /// How many hosts each site has in all.
    hosts_at: Vec<usize>,
    /// How far each host lies below its threshold, in parts, and the sum over all.
    below: Vec<i128>,
    sum: i128,
    /// What the hosts that links bear are charged together.
    charged: i128,
}

impl CostGuards {
    /// Begins a part of the window; all hosts are to be updated.
    pub fn begin(&mut self, problem: &Problem<'_>, first: Time) {
        self.first = first.0;
        self.charge(problem, first);
    }

    /// Notes what links bear from this start on; until one has more room, none bears more later.
    pub fn charge(&mut self, problem: &Problem<'_>, start: Time) {
        self.guards.iter_mut().for_each(|guard| guard.charge(problem, start));
    }

    /// Notes what a host has free now; `None` when it is not available.
    pub fn update(&mut self, problem: &Problem<'_>, host: usize, free: Option<&[i64]>) {
        for guard in &mut self.guards {
            guard.update(problem, self.first, host, free);
        }
    }

    /// No N hosts that are there cost less, in thousandths of a credit.
    pub fn least(&self, problem: &Problem<'_>) -> i64 {
        let bounds = self.guards.iter().map(|guard| guard.bound(problem.pick));
        bounds.max().map_or(0, in_thousandths)
    }

    /// Keeps what has proven a bound at the start of this slot.
    pub fn keep(&mut self, problem: &Problem<'_>, slot: &Slot, duals: Duals) {
        let mut guard = Guard::new(problem, duals);
        guard.charge(problem, slot.start);
        for (at, host) in slot.hosts.iter().enumerate() {
            guard.update(problem, slot.start.0, *host as usize, Some(slot.free_at(problem.width(), at)));
        }
        if self.guards.len() < GUARDS_MAX {
            self.guards.push(guard);
        } else {
            self.guards[self.next] = guard;
            self.next = (self.next + 1) % GUARDS_MAX;
        }
    }
}

impl Guard {
    fn new(problem: &Problem<'_>, mut duals: Duals) -> Guard {
        let mut hosts_at = Vec::new();
        if let Some(links) = &problem.links {
            hosts_at = links.counts(problem.every_host().into_iter());
            let may_be_home = |hosts: usize| hosts >= links.all - links.all / 2;
            let charges = duals.charges.iter_mut().zip(&hosts_at);
            charges.filter(|(_, hosts)| may_be_home(**hosts)).for_each(|(charge, _)| *charge = 0);
        }
        let below = vec![0; problem.hosts.len()];
        Guard { duals, market: Market::empty(problem), hosts_at, below, sum: 0, charged: 0 }
    }

    fn charge(&mut self, problem: &Problem<'_>, start: Time) {
        let Some(links) = &problem.links else { return };
        let charged = self.duals.charges.iter().enumerate().filter(|(_, charge)| **charge > 0);
        let most = |site: usize| usable(self.hosts_at[site], links.most(site, problem.window(start)), links.all);
        self.charged = charged.map(|(site, charge)| charge * most(site) as i128).sum();
    }

    fn update(&mut self, problem: &Problem<'_>, start: i64, host: usize, free: Option<&[i64]>) {
        let below = match (free, &problem.costs) {
            (Some(free), Some(costs)) => {
                let worth = self.market.worth(problem, costs, (free, costs.step_at(host, start)), &self.duals.prices);
                let site = problem.links.as_ref().map_or(0, |links| links.of[host] as usize);
                (worth + self.duals.charges.get(site).copied().unwrap_or(0) - self.duals.threshold).min(0)
            }
            _ => 0,
        };
        self.sum += below - self.below[host];
        self.below[host] = below;
    }

    fn bound(&self, pick: usize) -> i128 {
        let asked = self.duals.prices.iter().zip(&self.market.asked).map(|(price, asked)| price * i128::from(*asked));
        asked.sum::<i128>() + pick as i128 * self.duals.threshold + self.sum - self.charged
    }
}
