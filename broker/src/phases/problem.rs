//! The numbers of one planning run, in flat arrays: what the request needs, what the hosts have, and what is free at one
//! start.
//!
//! Invariant: hosts are ordered by site and host id and distinct, whatever order they were given in; every host could
//! satisfy the minima if it were empty. Amounts are at most [`Amount::MAX`], so sums over N hosts fit `i64`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Candidate, Job,
    costs::Costs,
    links::Links,
    market::{self, Market},
    sites,
};
use crate::{
    amount::Amount,
    demand::{Demand, Unmet},
    ids::SiteId,
    objective::Measures,
    plan::Seat,
    reason::CutCounts,
    request::ObjectiveKind,
    resources::{ResourceName, amount_of},
    schedule::{Longest, Occupancy},
    time::{Span, Time, Window},
};

/// Most hosts looked at in one planning run; bounds keep their sums inside 64 bits up to here.
pub(crate) const MAX_POOL: usize = 1 << 17;

/// One planning run's numbers. A column is a resource, or another limit that hosts meet together or by themselves; the
/// resources come first. Arrays over hosts and columns are indexed `host * width + column`.
pub(crate) struct Problem<'a> {
    /// N.
    pub pick: usize,
    /// How long a seat on each host lasts, in seconds.
    pub lengths: Vec<i64>,
    /// The longest of them, at least 1.
    pub length_max: i64,
    /// The latest start on each host that meets the deadline; empty when there is none.
    latest: Vec<i64>,
    /// The resources considered, in order of their names: the first columns.
    pub resources: Vec<ResourceName>,
    /// `d_i`, by column.
    pub minimum: Vec<i64>,
    /// `max(e_i, N d_i)`, by column.
    pub needed: Vec<i64>,
    /// Whether the total asks more than the minima of N hosts already give, by column.
    pub is_binding: Vec<bool>,
    /// The hosts that could satisfy the minima.
    pub hosts: Vec<&'a Candidate<'a>>,
    /// `r_ij`.
    pub capacity: Vec<i64>,
    /// How many hosts were left out, by the first resource they lack.
    pub cut: CutCounts,
    /// What occupies the resources, `None` where nothing ever does; indexed `host * resources + resource`.
    occupancy: Vec<Option<&'a Occupancy>>,
    /// What occupies resources of which something was taken since they were gathered, by the same index.
    taken: BTreeMap<usize, Occupancy>,
    /// When each host cannot be had, whatever is asked of it: when its owner does not offer it, and for seats that take hosts whole when
    /// anything of it is used. It is the column after the resources, where any host has such times.
    blocked: Option<Vec<Cow<'a, Occupancy>>>,
    is_exclusive: bool,
    /// The limit of the number of sites, if there is one.
    pub sites: Option<SiteLimit>,
    /// The links of the sites, for seats that talk to each other. They last equally long: see [`Problem::set_length`].
    pub links: Option<Links<'a>>,
    /// What seats cost; none when neither the objective nor a budget asks for it.
    pub costs: Option<Costs>,
    /// See [`Job::asked_at`].
    pub asked_at: Option<Time>,
    /// All seats together cost at most this, in thousandths of a credit; `i64::MAX` when any cost will do.
    pub budget: i64,
    /// The shares of sets of at most so many seats are settled to the rounding.
    pub settled_max: usize,
}

/// At most so many sites besides those that count for nothing.
#[derive(Clone)]
pub(crate) struct SiteLimit {
    /// How many.
    pub most: usize,
    /// The site of each host, numbered from 0; sites that the request has anyway are [`SiteLimit::KEPT`].
    pub of: Vec<u32>,
    /// How many sites are numbered.
    pub count: usize,
    /// How many sites with hosts here the request has anyway.
    pub kept: usize,
}

impl SiteLimit {
    /// A site that does not count.
    pub const KEPT: u32 = u32::MAX;

    fn new(most: usize, hosts: &[&Candidate<'_>], kept: &BTreeSet<SiteId>) -> SiteLimit {
        let (mut count, mut kept_here) = (0, 0);
        let mut before: Option<(&SiteId, u32)> = None;
        // Hosts are ordered by site.
        let of = hosts.iter().map(|candidate| match before {
            Some((site, number)) if site == candidate.site => number,
            _ => {
                let number = if kept.contains(candidate.site) { SiteLimit::KEPT } else { count };
                count += u32::from(number != SiteLimit::KEPT);
                kept_here += usize::from(number == SiteLimit::KEPT);
                before = Some((candidate.site, number));
                number
            }
        });
        let of = of.collect();
        SiteLimit { most, of, count: count as usize, kept: kept_here }
    }
}

/// An amount as a signed number; amounts above [`Amount::MAX`] count as that.
fn signed(amount: Amount) -> i64 {
    amount.0.min(Amount::MAX.0).cast_signed()
}

/// Use as a signed number. Over-commitment may exceed every capacity, so it saturates instead.
pub(crate) fn signed_use(amount: Amount) -> i64 {
    i64::try_from(amount.0).unwrap_or(i64::MAX)
}

impl<'a> Problem<'a> {
    /// Gathers the numbers; hosts that cannot satisfy the minima even when empty are left out.
    pub fn new(job: &Job<'a>, candidates: &'a [Candidate<'a>]) -> Problem<'a> {
        let demand = job.demand;
        let resources = demand.resources();
        let mut minimum: Vec<i64> = resources.iter().map(|name| signed(demand.minimum_on_each(name))).collect();
        let pick = demand.seats();
        // At most MAX_HOSTS minima of at most 2^48: inside 63 bits.
        let mut needed: Vec<i64> = resources.iter().map(|name| demand.needed_in_sum(name).0.cast_signed()).collect();
        let mut is_binding: Vec<bool> =
            minimum.iter().zip(&needed).map(|(d, e)| *e > d * pick.cast_signed() as i64).collect();
        let is_exclusive = demand.is_exclusive();
        // What limits the starts of a request that asks nothing of the hosts needs a column to be noted in.
        let is_limited = job.deadline.is_some() || demand.traffic().is_some();
        let is_closed = candidates.iter().any(|candidate| candidate.schedule.closed().is_some());
        let is_blocked = is_exclusive || is_closed;
        if is_blocked || (resources.is_empty() && is_limited) {
            minimum.push(0);
            needed.push(0);
            is_binding.push(false);
        }
        let (hosts, capacity, cut) = capacities(demand, &resources, &minimum, candidates);
        let occupancy = hosts
            .iter()
            .flat_map(|candidate| resources.iter().map(|name| candidate.schedule.occupancy(name)))
            .collect();
        let blocked = |candidate: &&'a Candidate<'a>| match candidate.schedule.closed() {
            _ if is_exclusive => Cow::Owned(candidate.schedule.busy()),
            Some(closed) => Cow::Borrowed(closed),
            None => Cow::Owned(Occupancy::default()),
        };
        let blocked = is_blocked.then(|| hosts.iter().map(blocked).collect());
        let lengths: Vec<i64> =
            hosts.iter().map(|candidate| demand.length_on(candidate.host).0.cast_signed()).collect();
        let latest =
            job.deadline.map_or_else(Vec::new, |deadline| lengths.iter().map(|length| deadline.0 - length).collect());
        let sites_left = demand.sites_max().map(|most| most.saturating_sub(job.kept_sites.len()));
        let sites = sites_left.filter(|most| *most < pick).map(|most| SiteLimit::new(most, &hosts, job.kept_sites));
        let links = demand.traffic().map(|traffic| Links::new(traffic, job, &hosts));
        let mut problem = Problem {
            pick,
            length_max: lengths.iter().copied().max().unwrap_or(1),
            lengths,
            latest,
            resources,
            minimum,
            needed,
            is_binding,
            hosts,
            capacity,
            cut,
            occupancy,
            taken: BTreeMap::new(),
            blocked,
            is_exclusive,
            sites,
            links,
            costs: None,
            asked_at: job.asked_at,
            budget: job.budget.map_or(i64::MAX, |budget| budget.0.cast_signed()),
            settled_max: market::SEATS_MAX,
        };
        problem.set_costs(job);
        problem
    }

    fn set_costs(&mut self, job: &Job<'_>) {
        let is_priced = job.budget.is_some() || job.objective == ObjectiveKind::Cost;
        let shares = !self.is_exclusive() && self.is_binding.contains(&true);
        self.costs = is_priced.then(|| Costs::new(job, &self.hosts, &self.lengths, &self.resources, shares));
    }

    /// Makes all seats last `length`. Hosts on which a seat by itself would take longer, by `own`, are never available, nor are those
    /// whose owners do not give so long seats.
    pub fn set_length(&mut self, job: &Job<'_>, own: &[i64], length: i64) {
        let last = job.deadline.map_or(i64::MAX, |deadline| deadline.0 - length);
        self.lengths.fill(length);
        self.length_max = length;
        let gives = |host: &Candidate<'_>| host.schedule.excluding(Span(length.unsigned_abs())).is_none();
        let latest = |(own, host): (&i64, &&Candidate<'_>)| if *own <= length && gives(host) { last } else { i64::MIN };
        self.latest = own.iter().zip(&self.hosts).map(latest).collect();
        self.set_costs(job);
    }

    /// Whether any N available hosts serve: neither a total nor sites are to be reached together.
    pub fn is_free_choice(&self) -> bool {
        self.sites.is_none() && self.links.is_none() && !self.is_binding.contains(&true)
    }

    /// Whether every seat takes its host whole.
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// From a start to the end of the longest seat.
    pub fn window(&self, start: Time) -> Window {
        Window::starting(start, Span(self.length_max.unsigned_abs()))
    }

    /// Every host, by its number.
    pub fn every_host(&self) -> Vec<u32> {
        // The pool holds at most MAX_POOL hosts.
        (0..self.hosts.len() as u32).collect()
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.minimum.len()
    }

    /// The largest use that leaves `d_i` free on `host`.
    pub fn limit(&self, host: usize, column: usize) -> i64 {
        self.capacity[host * self.width() + column] - self.minimum[column]
    }

    /// What occupies a column of a host.
    pub fn occupancy(&self, host: usize, column: usize) -> Option<&Occupancy> {
        match self.resources.len() {
            resources if column < resources => {
                let index = host * resources + column;
                self.taken.get(&index).or(self.occupancy[index])
            }
            resources if column == resources => self.blocked.as_ref().map(|blocked| &*blocked[host]),
            _ => None,
        }
    }

    /// The last start on `host` that meets the deadline.
    pub fn latest(&self, host: usize) -> i64 {
        self.latest.get(host).copied().unwrap_or(i64::MAX)
    }

    /// Takes the host of a seat whole while the seat lasts, beside what the seat itself takes of it. Says which one it is; none when it is
    /// not among the hosts.
    pub fn take_whole(&mut self, seat: &Seat) -> Option<usize> {
        let key = (&seat.site, seat.host());
        let host = self.hosts.binary_search_by(|known| (known.site, &known.host.id).cmp(&key)).ok()?;
        let capacity = &self.hosts[host].host.capacity;
        for (column, name) in self.resources.iter().enumerate() {
            let index = host * self.resources.len() + column;
            let taken = self.taken.entry(index).or_insert_with(|| self.occupancy[index].cloned().unwrap_or_default());
            taken.add(seat.window, amount_of(capacity, name));
            taken.add(seat.window, amount_of(&seat.amounts, name));
        }
        if let Some(blocked) = &mut self.blocked
            && capacity.values().any(|amount| *amount > Amount::ZERO)
        {
            blocked[host].to_mut().add(seat.window, Amount(1));
        }
        Some(host)
    }

    /// What is free at `start`, from the schedules themselves.
    pub fn slot_at(&self, start: Time) -> Slot {
        self.slot_of(start, 0..self.hosts.len())
    }

    /// The same of some hosts only, in ascending order.
    pub fn slot_of(&self, start: Time, hosts: impl ExactSizeIterator<Item = usize>) -> Slot {
        let width = self.width();
        let mut slot = Slot { start, hosts: Vec::with_capacity(hosts.len()), free: Vec::new() };
        slot.free.reserve(hosts.len() * width);
        for host in hosts.filter(|host| start.0 <= self.latest(*host)) {
            let filled = slot.free.len();
            let window = Window::starting(start, Span(self.lengths[host].unsigned_abs()));
            let available = (0..width).all(|column| {
                let used = self.occupancy(host, column).map_or(0, |occupancy| signed_use(occupancy.peak(window)));
                slot.free.push(self.capacity[host * width + column].saturating_sub(used));
                used <= self.limit(host, column)
            });
            if available {
                // The pool holds at most MAX_POOL hosts.
                slot.hosts.push(host as u32);
            } else {
                slot.free.truncate(filled);
            }
        }
        slot
    }

    /// Whether the chosen positions reach every total, lie at few enough sites and are within the budget.
    pub fn accepts(&self, slot: &Slot, chosen: &[u32]) -> bool {
        let is_few = |limit: &SiteLimit| sites::are_few(limit, slot, chosen);
        slot.is_feasible(self, chosen)
            && self.sites.as_ref().is_none_or(is_few)
            && self.links.as_ref().is_none_or(|links| {
                links.bear(chosen.iter().map(|at| slot.hosts[*at as usize]), self.window(slot.start))
            })
            && self.cost_of(slot, chosen) <= self.budget
    }

    /// What seats at the `chosen` positions cost at least, in thousandths of a credit; they reach every total. Nothing when that does not
    /// matter.
    pub fn cost_of(&self, slot: &Slot, chosen: &[u32]) -> i64 {
        let Some(costs) = &self.costs else { return 0 };
        if costs.has_shares() {
            let mut chosen = chosen.to_vec();
            chosen.sort_unstable();
            return Market::new(self, costs, slot).shares(&chosen).map_or(i64::MAX, |shares| shares.cost);
        }
        let of = |at: &u32| costs.of_minima(costs.step_at(slot.hosts[*at as usize] as usize, slot.start.0));
        chosen.iter().map(of).sum()
    }

    /// The same problem among the hosts of `slot` only, with one more column for a limit of what the chosen ones weigh together, to be
    /// set by [`Problem::set_limit`]: a total like any other. `weights` are not negative, one a host of the problem. Only the numbers
    /// that feasibility and the efficiency factor need are there; schedules are not.
    pub fn with_limit(&self, slot: &Slot, weights: &[i64]) -> (Problem<'a>, Slot) {
        let width = self.width();
        let heaviest = heaviest(slot, weights);
        let with = |column: &[i64]| column.iter().copied().chain([0]).collect();
        let mut free = Vec::with_capacity(slot.len() * (width + 1));
        for (at, host) in slot.hosts.iter().enumerate() {
            free.extend_from_slice(&slot.free[at * width..][..width]);
            free.push(heaviest - weights[*host as usize]);
        }
        let mut capacity = Vec::with_capacity(weights.len() * (width + 1));
        for (host, weight) in weights.iter().enumerate() {
            capacity.extend_from_slice(&self.capacity[host * width..][..width]);
            capacity.push((heaviest - weight).max(0));
        }
        let limited = Problem {
            pick: self.pick,
            lengths: Vec::new(),
            length_max: self.length_max,
            latest: Vec::new(),
            resources: self.resources.clone(),
            minimum: with(&self.minimum),
            needed: with(&self.needed),
            is_binding: self.is_binding.iter().copied().chain([false]).collect(),
            hosts: Vec::new(),
            capacity,
            cut: CutCounts::default(),
            asked_at: self.asked_at,
            occupancy: Vec::new(),
            taken: BTreeMap::new(),
            blocked: None,
            is_exclusive: false,
            sites: self.sites.clone(),
            links: None,
            costs: None,
            budget: i64::MAX,
            settled_max: self.settled_max,
        };
        (limited, Slot { start: slot.start, hosts: slot.hosts.clone(), free })
    }

    /// The chosen hosts weigh at most `most` together. With C the largest weight this is `sum (C - w_j) >= N C - most`.
    pub fn set_limit(&mut self, slot: &Slot, weights: &[i64], most: i64) {
        let needed = (self.pick.cast_signed() as i64 * heaviest(slot, weights) - most).max(0);
        let last = self.width() - 1;
        self.needed[last] = needed;
        self.is_binding[last] = needed > 0;
    }
}

fn heaviest(slot: &Slot, weights: &[i64]) -> i64 {
    slot.hosts.iter().map(|host| weights[*host as usize]).max().unwrap_or(0)
}

/// The distinct hosts that have the minima, ordered by site and host id, with their capacities by column.
fn capacities<'a>(
    demand: &Demand,
    resources: &[ResourceName],
    minimum: &[i64],
    candidates: &'a [Candidate<'a>],
) -> (Vec<&'a Candidate<'a>>, Vec<i64>, CutCounts) {
    let mut hosts: Vec<&Candidate<'_>> = candidates.iter().collect();
    let key = |candidate: &&'a Candidate<'a>| (candidate.site, &candidate.host.id);
    if !hosts.is_sorted_by(|a, b| key(a) < key(b)) {
        hosts.sort_by(|a, b| key(a).cmp(&key(b)));
        hosts.dedup_by(|a, b| key(a) == key(b));
    }
    let width = minimum.len();
    let mut capacity = Vec::with_capacity(hosts.len() * width);
    let mut cut = vec![0; resources.len()];
    let mut counts = CutCounts::default();
    hosts.retain(|candidate| {
        let length = demand.length_on(candidate.host);
        let excluding = candidate.schedule.excluding(length);
        let cut_by = match excluding {
            _ if length > Span::MAX => Some(&mut counts.speed),
            Some(Longest::OfOwner(_)) => Some(&mut counts.length),
            Some(Longest::OfUser(_)) => Some(&mut counts.host_hours),
            None => None,
        };
        if let Some(hosts) = cut_by {
            *hosts += 1;
            return false;
        }
        let filled = capacity.len();
        capacity.extend(resources.iter().map(|name| signed(amount_of(&candidate.host.capacity, name))));
        capacity.resize(filled + width, 0);
        let lacking = capacity[filled..].iter().zip(minimum).position(|(r, d)| r < d);
        if let Some(resource) = lacking {
            cut[resource] += 1;
            capacity.truncate(filled);
        }
        lacking.is_none()
    });
    hosts.truncate(MAX_POOL);
    capacity.truncate(hosts.len() * width);
    for ((name, least), hosts) in resources.iter().zip(minimum).zip(cut).filter(|(_, hosts)| *hosts > 0) {
        counts.add(Unmet::Minimum(name.clone(), Amount(least.unsigned_abs())), hosts);
    }
    (hosts, capacity, counts)
}

/// The hosts that can take part at one start (the source's `V_a`), and their free amounts `a_ij^t`.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// The start.
    pub start: Time,
    /// Indices into the problem's hosts, ascending.
    pub hosts: Vec<u32>,
    /// `a_ij^t`, indexed `position * width + resource`.
    pub free: Vec<i64>,
}

impl Slot {
    /// Number of available hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// What the host at a position has free, by column; there may be no column.
    pub fn free_at(&self, width: usize, at: usize) -> &[i64] {
        &self.free[at * width..][..width]
    }

    /// Whether the `chosen` positions reach every total.
    pub fn is_feasible(&self, problem: &Problem<'_>, chosen: &[u32]) -> bool {
        let width = problem.width();
        chosen.len() == problem.pick
            && (0..width).all(|resource| {
                let sum: i64 = chosen.iter().map(|position| self.free[*position as usize * width + resource]).sum();
                sum >= problem.needed[resource]
            })
    }

    /// The position of an available host.
    pub fn position_of(&self, host: u32) -> u32 {
        // The pool holds at most MAX_POOL hosts.
        self.hosts.partition_point(|other| *other < host) as u32
    }

    /// What seats at the `chosen` positions measure.
    pub fn measures(&self, problem: &Problem<'_>, chosen: &[u32]) -> Measures {
        let lengths = || chosen.iter().map(|at| problem.lengths[self.hosts[*at as usize] as usize]);
        let cost = problem.cost_of(self, chosen);
        Measures { longest: lengths().max().unwrap_or(0), together: lengths().sum(), cost }
    }

    /// The N positions with the shortest seats, the earlier hosts among equals; there are N.
    pub fn shortest(&self, problem: &Problem<'_>) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        let key = |at: &u32| (problem.lengths[self.hosts[*at as usize] as usize], *at);
        order.select_nth_unstable_by_key(problem.pick - 1, key);
        order.truncate(problem.pick);
        order
    }

    /// Only the hosts that `keep` keeps.
    pub fn filtered(&self, width: usize, mut keep: impl FnMut(u32) -> bool) -> Slot {
        let mut slot = Slot { start: self.start, hosts: Vec::with_capacity(self.len()), free: Vec::new() };
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, host)| keep(**host)) {
            slot.hosts.push(*host);
            slot.free.extend_from_slice(self.free_at(width, at));
        }
        slot
    }
}
