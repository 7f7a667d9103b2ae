//! What a seat on each host costs, for every start: a step function of the start, which hosts share whose seats cost the same: those of
//! one site with the same tariff, for seats of one length.
//!
//! Invariant: a seat with the minima costs its `fixed` part, and `per_unit` for each base unit more of a resource; sums over N seats fit
//! 126 bits, since whatever is larger than any budget counts as that.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::{Candidate, Job};
use crate::{
    amount::Amount,
    cost::{Cost, PARTS, Price, PriceList, Prices, parts_of_seat},
    resources::{Amounts, ResourceName},
    tariff::{Tariff, surcharged},
    time::{Span, Time},
};

/// No seat is counted with more, in parts.
const PARTS_MAX: i128 = PARTS << 48;

/// See the module.
pub(crate) struct Costs {
    /// Number of resources.
    width: usize,
    /// The steps of each host.
    of_host: Vec<Range<u32>>,
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
        job: &Job<'_>,
        hosts: &[&Candidate<'_>],
        lengths: &[i64],
        resources: &[ResourceName],
        shares: bool,
    ) -> Costs {
        let width = resources.len();
        let mut costs = Costs {
            width,
            of_host: Vec::with_capacity(hosts.len()),
            from: Vec::new(),
            changes: Vec::new(),
            fixed: Vec::new(),
            per_unit: Vec::new(),
        };
        let demand = job.demand;
        let minima: Vec<Amount> = resources.iter().map(|name| demand.minimum_on_each(name)).collect();
        let nothing = PriceList::new();
        let mut known: BTreeMap<(*const Tariff, i64, Option<&Amounts>), Range<u32>> = BTreeMap::new();
        for (candidate, length) in hosts.iter().zip(lengths) {
            let (host, span) = (candidate.host, Span(length.unsigned_abs()));
            let key = (Arc::as_ptr(&host.tariff), *length, demand.is_exclusive().then_some(&host.capacity));
            if let Some(steps) = known.get(&key) {
                costs.of_host.push(steps.clone());
                continue;
            }
            let first = costs.from.len() as u32;
            for (from, list, multiplier) in steps_of(&host.tariff, job) {
                let list = list.unwrap_or(&nothing);
                let parts = match demand.is_exclusive() {
                    true => parts_of_seat(list, span, host.capacity.iter().map(|(name, amount)| (name, *amount))),
                    false => parts_of_seat(list, span, resources.iter().zip(minima.iter().copied())),
                };
                costs.from.push(from.0);
                costs.fixed.push(surcharged(parts, multiplier).min(PARTS_MAX));
                if shares {
                    let of = |name| list.get(name).copied().unwrap_or(Price(0)).of_base_unit(name);
                    let of_length = |name| surcharged(of(name) * i128::from(*length), multiplier);
                    let per_unit = resources.iter().map(|name| of_length(name).min(PARTS_MAX));
                    costs.per_unit.extend(per_unit);
                }
            }
            // The pool holds at most MAX_POOL hosts, and what was read has far fewer than 2^32 steps.
            let steps = first..costs.from.len() as u32;
            known.insert(key, steps.clone());
            costs.of_host.push(steps);
        }
        costs.changes.extend(costs.from.iter().filter(|from| **from > i64::MIN));
        costs.changes.sort_unstable();
        costs.changes.dedup();
        costs
    }

    /// The steps of a host, in order.
    pub fn steps(&self, host: usize) -> Range<usize> {
        let Range { start, end } = self.of_host[host];
        start as usize..end as usize
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

/// The price lists in force at the starts of a job, each with the first start that it counts for and what a surcharge makes of it, in
/// thousandths. The first counts from the beginning of time.
fn steps_of<'t>(tariff: &'t Tariff, job: &Job<'_>) -> Vec<(Time, Option<&'t PriceList>, i128)> {
    let surcharges =
        job.asked_at.map(|now| (now, &tariff.conditions.surcharges)).filter(|(_, steps)| !steps.is_empty());
    if let (Prices::Always(list), None) = (&tariff.prices, surcharges) {
        return vec![(Time(i64::MIN), Some(list), 1000)];
    }
    let lists: Vec<(Time, Option<&PriceList>)> = tariff.prices.steps().collect();
    let mut from: Vec<Time> = lists.iter().map(|(from, _)| *from).collect();
    from.extend(surcharges.into_iter().flat_map(|(now, steps)| steps.iter().map(move |step| now + step.start)));
    from.sort_unstable();
    from.dedup();
    let first = from.partition_point(|from| *from <= job.earliest).saturating_sub(1);
    let mut steps = Vec::new();
    for from in from.into_iter().skip(first).take_while(|from| *from <= job.latest || *from <= job.earliest) {
        let list = lists[..lists.partition_point(|(begin, _)| *begin <= from)].last().and_then(|(_, list)| *list);
        let multiplier = job.asked_at.map_or(1000, |now| tariff.conditions.multiplier(now, from));
        let begin = if steps.is_empty() { Time(i64::MIN) } else { from };
        steps.push((begin, list, multiplier));
    }
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        host::Host,
        ids::{HostId, SiteId},
        request::Request,
        schedule::Schedule,
        tariff::{Before, Conditions, Parts},
        time::Window,
    };

    /// With prices that change, or with the first one at all times.
    fn tariff(prices: &[(i64, u32)], changes: bool, surcharges: &[(u64, u32)]) -> Tariff {
        let gpu = |price: u32| PriceList::from([(ResourceName::new("gpu").unwrap(), Price(price))]);
        let step = |(start, part): &(u64, u32)| Before { start: Span(*start), part: Parts(*part) };
        Tariff {
            prices: match prices {
                [(_, always), ..] if !changes => Prices::Always(gpu(*always)),
                steps => Prices::From(steps.iter().map(|(from, price)| (Time(*from), gpu(*price))).collect()),
            },
            conditions: Conditions { surcharges: surcharges.iter().map(step).collect(), ..Conditions::default() },
        }
    }

    #[test]
    fn hosts_share_the_steps_of_their_tariff_for_seats_of_one_length() {
        let steps: Vec<(i64, u32)> = (0..900).map(|step| (step * 3_600, 1_000 + step as u32)).collect();
        let (one, other) = (Arc::new(tariff(&steps, true, &[])), Arc::new(tariff(&steps, true, &[])));
        let gpu = ResourceName::new("gpu").unwrap();
        let host = |at: usize| Host {
            id: HostId::new(&format!("h{at}")).unwrap(),
            capacity: Amounts::from([(gpu.clone(), Amount(9))]),
            attributes: Default::default(),
            speed: Default::default(),
            tariff: if at < 600 { one.clone() } else { other.clone() },
        };
        let hosts: Vec<Host> = (0..1_000).map(host).collect();
        let (site, schedule) = (SiteId::new("s").unwrap(), Schedule::default());
        let candidates: Vec<_> =
            hosts.iter().map(|host| Candidate { site: &site, host, schedule: &schedule }).collect();
        let request: Request = serde_json::from_str(r#"{"hosts":1,"duration":900,"per_host":{"gpu":2}}"#).unwrap();
        let job = Job::of(&request, (Time(0), Time(899 * 3_600)));
        let lengths: Vec<i64> = (0..1_000).map(|at| if at % 2 == 0 { 900 } else { 450 }).collect();
        let costs = Costs::new(&job, &candidates.iter().collect::<Vec<_>>(), &lengths, &[gpu], false);
        assert_eq!(costs.from.len(), 4 * 900, "two tariffs, two lengths");
        assert_eq!((costs.steps(0), costs.steps(598)), (costs.steps(2), costs.steps(2)));
        for (at, length) in [(0, 900), (1, 450), (999, 450)] {
            let list = PriceList::from([(ResourceName::new("gpu").unwrap(), Price(1_010))]);
            let parts =
                parts_of_seat(&list, Span(length), [(&ResourceName::new("gpu").unwrap(), Amount(2))].into_iter());
            assert_eq!(costs.fixed(costs.step_at(at, 10 * 3_600)), parts);
        }
    }

    proptest! {
        #[test]
        fn at_every_start_a_seat_costs_what_its_owner_will_ask_for(
            prices in prop::collection::btree_map(0_i64..60, 0_u32..5_000, 0..5),
            changes: bool,
            surcharges in prop::collection::btree_map(0_u64..40, 0_u32..3_000, 0..4),
            (earliest, wait, asked_at) in (0_i64..40, 0_i64..40, prop::option::of(0_i64..40)),
        ) {
            let prices: Vec<_> = prices.into_iter().collect();
            let tariff = tariff(&prices, changes, &surcharges.into_iter().collect::<Vec<_>>());
            let request: Request = serde_json::from_str(r#"{"hosts":1,"duration":900,"per_host":{"gpu":2}}"#).unwrap();
            let gpu = ResourceName::new("gpu").unwrap();
            let host = Host {
                id: HostId::new("h").unwrap(),
                capacity: Amounts::from([(gpu.clone(), Amount(9))]),
                attributes: Default::default(),
                speed: Default::default(),
                tariff: Arc::new(tariff.clone()),
            };
            let (site, schedule) = (SiteId::new("s").unwrap(), Schedule::default());
            let candidate = Candidate { site: &site, host: &host, schedule: &schedule };
            let asked_at = asked_at.map(Time);
            let job = Job { asked_at, ..Job::of(&request, (Time(earliest), Time(earliest + wait))) };
            let costs = Costs::new(&job, &[&candidate], &[900], std::slice::from_ref(&gpu), false);
            let amounts = Amounts::from([(gpu, Amount(2))]);
            for start in earliest..=earliest + wait {
                let asked = tariff.agreement(asked_at, Window::starting(Time(start), Span(900)), &amounts).cost;
                prop_assert_eq!(costs.of_minima(costs.step_at(0, start)), asked.0.cast_signed(), "at {}", start);
            }
        }
    }
}
