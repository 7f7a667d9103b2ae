//! The numbers of one planning run, in flat arrays: what the request needs, what the hosts have, and what is free at one
//! start.
//!
//! Invariant: hosts are ordered by site and host id and distinct, whatever order they were given in; every host could
//! satisfy the minima if it were empty. Amounts are at most [`Amount::MAX`], so sums over N hosts fit `i64`.

use super::Candidate;
use crate::{
    amount::Amount,
    plan::CutCounts,
    request::Request,
    resources::{ResourceName, amount_of},
    schedule::Occupancy,
    time::{Span, Time, Window},
};

/// Most hosts looked at in one planning run; bounds keep their sums inside 64 bits up to here.
pub(crate) const MAX_POOL: usize = 1 << 17;

/// One planning run's numbers. Arrays over hosts and resources are indexed `host * width + resource`.
pub(crate) struct Problem<'a> {
    /// N.
    pub pick: usize,
    /// `t_res`.
    pub duration: Span,
    /// The resources considered, in order of their names.
    pub resources: Vec<ResourceName>,
    /// `d_i`.
    pub minimum: Vec<i64>,
    /// `max(e_i, N d_i)`.
    pub needed: Vec<i64>,
    /// Whether the total asks more than the minima of N hosts already give.
    pub is_binding: Vec<bool>,
    /// The hosts that could satisfy the minima.
    pub hosts: Vec<&'a Candidate<'a>>,
    /// `r_ij`.
    pub capacity: Vec<i64>,
    /// How many hosts were left out, by the first resource they lack.
    pub cut: CutCounts,
    /// Who occupies what, `None` where nothing ever is.
    pub occupancy: Vec<Option<&'a Occupancy>>,
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
    pub fn new(request: &Request, candidates: &'a [Candidate<'a>]) -> Problem<'a> {
        let resources = request.resources();
        let minimum: Vec<i64> = resources.iter().map(|name| signed(request.minimum_on_each(name))).collect();
        let pick = request.hosts();
        // At most MAX_HOSTS minima of at most 2^48: inside 63 bits.
        let needed: Vec<i64> = resources.iter().map(|name| request.needed_in_sum(name).0.cast_signed()).collect();
        let is_binding = minimum.iter().zip(&needed).map(|(d, e)| *e > d * pick.cast_signed() as i64).collect();
        let mut hosts: Vec<&Candidate<'_>> = candidates.iter().collect();
        let key = |candidate: &&'a Candidate<'a>| (candidate.site, &candidate.host.id);
        if !hosts.is_sorted_by(|a, b| key(a) < key(b)) {
            hosts.sort_by(|a, b| key(a).cmp(&key(b)));
            hosts.dedup_by(|a, b| key(a) == key(b));
        }
        let mut capacity = Vec::with_capacity(hosts.len() * resources.len());
        let mut cut = vec![0; resources.len()];
        hosts.retain(|candidate| {
            let filled = capacity.len();
            capacity.extend(resources.iter().map(|name| signed(amount_of(&candidate.host.capacity, name))));
            let lacking = capacity[filled..].iter().zip(&minimum).position(|(r, d)| r < d);
            if let Some(resource) = lacking {
                cut[resource] += 1;
                capacity.truncate(filled);
            }
            lacking.is_none()
        });
        hosts.truncate(MAX_POOL);
        capacity.truncate(hosts.len() * resources.len());
        let occupancy = hosts
            .iter()
            .flat_map(|candidate| resources.iter().map(|name| candidate.schedule.occupancy(name)))
            .collect();
        let cut = resources.iter().cloned().zip(cut).filter(|(_, count)| *count > 0).collect();
        let cut = CutCounts { resources: cut, ..CutCounts::default() };
        let duration = request.duration();
        Problem { pick, duration, resources, minimum, needed, is_binding, hosts, capacity, cut, occupancy }
    }

    /// Number of resources.
    pub fn width(&self) -> usize {
        self.resources.len()
    }

    /// The largest use that leaves `d_i` free on `host`.
    pub fn limit(&self, host: usize, resource: usize) -> i64 {
        self.capacity[host * self.width() + resource] - self.minimum[resource]
    }

    /// What is free at `start`, from the schedules themselves.
    pub fn slot_at(&self, start: Time) -> Slot {
        let width = self.width();
        let window = Window::starting(start, self.duration);
        let mut slot = Slot { start, hosts: Vec::with_capacity(self.hosts.len()), free: Vec::new() };
        slot.free.reserve(self.hosts.len() * width);
        for host in 0..self.hosts.len() {
            let filled = slot.free.len();
            let available = (0..width).all(|resource| {
                let cell = host * width + resource;
                let used = self.occupancy[cell].map_or(0, |occupancy| signed_use(occupancy.peak(window)));
                slot.free.push(self.capacity[cell].saturating_sub(used));
                used <= self.limit(host, resource)
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

    /// Whether the `chosen` positions reach every total.
    pub fn is_feasible(&self, problem: &Problem<'_>, chosen: &[u32]) -> bool {
        let width = problem.width();
        chosen.len() == problem.pick
            && (0..width).all(|resource| {
                let sum: i64 = chosen.iter().map(|position| self.free[*position as usize * width + resource]).sum();
                sum >= problem.needed[resource]
            })
    }
}
