//! What a seat on each host costs, for every start: a step function of the start for each host.
//!
//! Invariant: a seat with the minima costs its `fixed` part, and `per_unit` for each base unit more of a resource; sums over N seats fit
//! 126 bits, since whatever is larger than any budget counts as that.

use super::Candidate;
use crate::{
    amount::Amount,
    cost::{Cost, PARTS, Price, PriceList, parts_of_seat},
    demand::Demand,
    resources::ResourceName,
    time::Span,
};

/// No seat is counted with more, in parts.
const PARTS_MAX: i128 = PARTS << 48;

/// See the module.
pub(crate) struct Costs {
    /// Number of resources.
    width: usize,
    /// The first step of each host, and the number of all steps.
    first: Vec<u32>,
    /// The first start of each step.
    from: Vec<i64>,
    /// When some host's costs change, in order.
    changes: Vec<i64>,
    /// What a seat with the minima costs, in parts.
    fixed: Vec<i128>,
    /// What one more base unit costs, in parts, indexed `step * width + resource`; empty when seats have the minima only, or whole hosts.
    per_unit: Vec<i128>,
}

impl Costs {
    /// The costs of seats with these lengths and minima. `shares`: totals add to the minima.
    pub fn new(
        demand: &Demand,
        hosts: &[&Candidate<'_>],
        lengths: &[i64],
        resources: &[ResourceName],
        shares: bool,
    ) -> Costs {
        let width = resources.len();
        let mut costs = Costs {
            width,
            first: vec![0],
            from: Vec::new(),
            changes: Vec::new(),
            fixed: Vec::new(),
            per_unit: Vec::new(),
        };
        let minima: Vec<Amount> = resources.iter().map(|name| demand.minimum_on_each(name)).collect();
        let nothing = PriceList::new();
        for (candidate, length) in hosts.iter().zip(lengths) {
            let (host, span) = (candidate.host, Span(length.unsigned_abs()));
            for (from, list) in host.tariff.prices.steps() {
                let list = list.unwrap_or(&nothing);
                let parts = match demand.is_exclusive() {
                    true => parts_of_seat(list, span, host.capacity.iter().map(|(name, amount)| (name, *amount))),
                    false => parts_of_seat(list, span, resources.iter().zip(minima.iter().copied())),
                };
                costs.from.push(from.0);
                costs.fixed.push(parts.min(PARTS_MAX));
                if shares {
                    let of = |name| list.get(name).copied().unwrap_or(Price(0)).of_base_unit(name);
                    let per_unit = resources.iter().map(|name| (of(name) * i128::from(*length)).min(PARTS_MAX));
                    costs.per_unit.extend(per_unit);
                }
            }
            // The pool holds at most MAX_POOL hosts, and what was read has far fewer than 2^32 steps.
            costs.first.push(costs.from.len() as u32);
        }
        costs.changes.extend(costs.from.iter().filter(|from| **from > i64::MIN));
        costs.changes.sort_unstable();
        costs.changes.dedup();
        costs
    }

    /// Number of steps of all hosts together.
    pub fn len(&self) -> usize {
        self.from.len()
    }

    /// The steps of a host, in order.
    pub fn steps(&self, host: usize) -> std::ops::Range<usize> {
        self.first[host] as usize..self.first[host + 1] as usize
    }

    /// The first start after this one at which a host's costs change.
    pub fn change_after(&self, start: i64) -> Option<i64> {
        self.changes.get(self.changes.partition_point(|change| *change <= start)).copied()
    }

    /// The first start of a step.
    pub fn from(&self, step: usize) -> i64 {
        self.from[step]
    }

    /// The step of a host that is in force at this start.
    pub fn step_at(&self, host: usize, start: i64) -> usize {
        let steps = self.steps(host);
        let after = self.from[steps.clone()].partition_point(|from| *from <= start);
        // The first step is in force from the beginning of time.
        (steps.start + after).saturating_sub(1)
    }

    /// What a seat with the minima costs in a step, in parts.
    pub fn fixed(&self, step: usize) -> i128 {
        self.fixed[step]
    }

    /// What a seat with the minima costs in a step, in thousandths of a credit.
    pub fn of_minima(&self, step: usize) -> i64 {
        Cost::of_parts(self.fixed[step]).0.cast_signed()
    }

    /// Whether what hosts give beyond the minima costs something.
    pub fn has_shares(&self) -> bool {
        !self.per_unit.is_empty()
    }

    /// What one more base unit of each resource costs in a step, in parts; none when shares cost nothing.
    pub fn per_unit(&self, step: usize) -> Option<&[i128]> {
        self.has_shares().then(|| &self.per_unit[step * self.width..][..self.width])
    }
}
