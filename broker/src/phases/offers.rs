//! When each host can be had, and at what cost: for requests whose hosts need not reach anything together.
//!
//! Invariant: at every start of the window, the kinds that are on are exactly the hosts that are available there, each at its cost of
//! that start.

use super::{
    Candidate, Job,
    problem::{Problem, signed_use},
};
use crate::time::{Span, Time, Window};

/// See the module. A kind is a host at one cost.
pub(crate) struct Offers {
    /// The host of each kind.
    pub host: Vec<u32>,
    /// How long its seat lasts.
    pub length: Vec<i64>,
    /// What it costs, in thousandths of a credit.
    pub cost: Vec<i64>,
    /// When a kind comes or goes, in order of time: `(start, 2 * kind + 1 when it comes)`.
    pub events: Vec<(i64, u32)>,
}

impl Offers {
    /// All offers in a window of starts.
    pub fn new(problem: &Problem<'_>, (earliest, latest): (Time, Time)) -> Offers {
        let mut offers = Offers { host: Vec::new(), length: Vec::new(), cost: Vec::new(), events: Vec::new() };
        let (mut blocked, mut free) = (Vec::new(), Vec::new());
        for host in 0..problem.hosts.len() {
            let last = latest.0.min(problem.latest(host));
            free.clear();
            if earliest.0 <= last {
                find_free(problem, host, (earliest.0, last), &mut blocked, &mut free);
            }
            let Some(costs) = &problem.costs else {
                offers.push(problem, host, 0, (i64::MIN, i64::MAX), (&free, latest.0));
                continue;
            };
            let steps = costs.steps(host);
            let mut step = steps.start;
            while step < steps.end {
                let cost = costs.of_minima(step);
                // Neighbours of one cost are one kind.
                let next = (step + 1..steps.end).find(|next| costs.of_minima(*next) != cost).unwrap_or(steps.end);
                let until = if next < steps.end { costs.from(next) - 1 } else { i64::MAX };
                offers.push(problem, host, cost, (costs.from(step), until), (&free, latest.0));
                step = next;
            }
        }
        offers.events.sort_unstable();
        offers
    }

    fn push(
        &mut self,
        problem: &Problem<'_>,
        host: usize,
        cost: i64,
        (from, until): (i64, i64),
        (free, latest): (&[(i64, i64)], i64),
    ) {
        // The pool holds at most MAX_POOL hosts, each with few steps.
        let kind = 2 * self.host.len() as u32;
        let before = self.events.len();
        for (first, last) in free.iter().map(|(first, last)| (*first.max(&from), *last.min(&until))) {
            if first <= last {
                self.events.push((first, kind + 1));
                if last < latest {
                    self.events.push((last + 1, kind));
                }
            }
        }
        if self.events.len() > before {
            self.host.push(host as u32);
            self.length.push(problem.lengths[host]);
            self.cost.push(cost);
        }
    }
}

/// A time in which a host is free, by the starts of seats.
#[derive(Debug, Clone, Copy)]
pub struct FreeSlot<'a> {
    /// The host.
    pub candidate: &'a Candidate<'a>,
    /// The first start.
    pub first: Time,
    /// The last start from which a seat still ends in time.
    pub last: Time,
    /// How long a seat lasts.
    pub length: Span,
}

/// The times in which a host has its minima free, in order of their first start.
#[must_use]
pub fn free_slots<'a>(job: &Job<'a>, candidates: &'a [Candidate<'a>]) -> Vec<FreeSlot<'a>> {
    let problem = Problem::new(job, candidates);
    let (mut blocked, mut free, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    for host in 0..problem.hosts.len() {
        let last = job.latest.0.min(problem.latest(host));
        free.clear();
        if job.earliest.0 <= last {
            find_free(&problem, host, (job.earliest.0, last), &mut blocked, &mut free);
        }
        let (candidate, length) = (problem.hosts[host], Span(problem.lengths[host].unsigned_abs()));
        let slot = |(first, last): &(i64, i64)| FreeSlot { candidate, first: Time(*first), last: Time(*last), length };
        slots.extend(free.iter().map(slot));
    }
    slots.sort_by_key(|slot| slot.first);
    slots
}

/// The starts in `[earliest, last]` at which a host has its minima free for the whole seat, as ranges in order.
pub(super) fn find_free(
    problem: &Problem<'_>,
    host: usize,
    (earliest, last): (i64, i64),
    blocked: &mut Vec<(i64, i64)>,
    free: &mut Vec<(i64, i64)>,
) {
    let length = problem.lengths[host];
    let window = Window { start: Time(earliest), end: Time(last + length) };
    blocked.clear();
    for column in 0..problem.width() {
        let Some(occupancy) = problem.occupancy(host, column) else { continue };
        let limit = problem.limit(host, column);
        let mut since = None;
        for (time, used) in occupancy.segments(window) {
            if signed_use(used) > limit {
                since.get_or_insert(time.0);
            } else if let Some(since) = since.take() {
                blocked.push((since, time.0));
            }
        }
        blocked.extend(since.map(|since| (since, window.end.0)));
    }
    blocked.sort_unstable();
    let mut next = earliest;
    for (begin, end) in blocked.iter() {
        if begin - length >= next {
            free.push((next, (begin - length).min(last)));
        }
        next = next.max(*end);
    }
    if next <= last {
        free.push((next, last));
    }
}
