//! The start that came nearest to a solution, for the reason of a rejection.
//!
//! Invariant: scores come from the bounds that closed a start or a stride, so they cost nothing extra; only the winners
//! are looked at closely, once.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    Candidate,
    bounds::Picker,
    problem::{Problem, SiteLimit},
};
use crate::{
    amount::Amount,
    reason::{Limit, NearestMiss},
    schedule::{Longest, Occupancy},
    tariff::Parts,
    time::{Span, Time, Window},
};

/// So many limits are named that keep hosts from a start.
const CUTS_MAX: usize = 3;

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
    let cuts =
        if short.is_empty() || available < problem.pick { cuts(problem, start, &slot.hosts) } else { Vec::new() };
    (score, NearestMiss { start, hosts_available: available as u64, short, cuts })
}

/// What keeps how many hosts from a start at which these are available.
fn cuts(problem: &Problem<'_>, start: Time, available: &[u32]) -> Vec<(Limit, u64)> {
    let mut counts: BTreeMap<Limit, u64> = BTreeMap::new();
    if available.len() < problem.pick {
        let is_available = |host: &usize| available.binary_search(&(*host as u32)).is_ok();
        let others = (0..problem.hosts.len()).filter(|host| !is_available(host));
        for limit in others.filter_map(|host| limit_of(problem, start, host)) {
            *counts.entry(limit).or_default() += 1;
        }
    } else if let Some(limit) = &problem.sites {
        let (mut best, mut at_site) = (0, vec![0; limit.count]);
        for host in available {
            match limit.of[*host as usize] {
                SiteLimit::KEPT => best += 1,
                site => at_site[site as usize] += 1,
            }
        }
        at_site.sort_unstable_by(|one: &usize, other| other.cmp(one));
        best += at_site.iter().take(limit.most).sum::<usize>();
        if best < problem.pick {
            counts.insert(Limit::SitesMax(limit.most as u64), (available.len() - best) as u64);
        }
    }
    let mut counts: Vec<(Limit, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, hosts)| Reverse(*hosts));
    counts.truncate(CUTS_MAX);
    counts
}

/// What keeps a host from a start, beside what is booked on it.
fn limit_of(problem: &Problem<'_>, start: Time, host: usize) -> Option<Limit> {
    let (latest, length) = (problem.latest(host), problem.lengths[host]);
    // A host that is too slow for the length at hand is none that the deadline cuts.
    if start.0 > latest && latest != i64::MIN {
        return Some(Limit::Deadline(Time(latest + length)));
    }
    let Candidate { site, schedule, .. } = *problem.hosts[host];
    match schedule.excluding(Span(length.unsigned_abs())) {
        Some(Longest::OfOwner(longest)) => return Some(Limit::Longest(longest)),
        Some(Longest::OfUser(left)) => return Some(Limit::HostHours(left)),
        None => {}
    }
    limit_of_conditions(problem, start, host).or_else(|| {
        let is_open = schedule.is_open(Window::starting(start, Span(length.unsigned_abs())));
        let next = || schedule.closed().and_then(|closed| next_offered(closed, start));
        (!is_open).then(|| Limit::Offered(site.clone(), next()))
    })
}

/// The first time that ends after `start` and is not closed.
fn next_offered(closed: &Occupancy, start: Time) -> Option<Window> {
    let mut open = None;
    for (time, closed) in closed.segments(Window { start, end: Time(2 * Time::MAX.0) }) {
        match open {
            None if closed == Amount::ZERO => open = Some(time),
            Some(from) if closed > Amount::ZERO => return Some(Window { start: from, end: time }),
            _ => {}
        }
    }
    open.map(|from| Window { start: from, end: Time::MAX })
}

/// Which of the conditions of its tariff keeps a host from a start.
fn limit_of_conditions(problem: &Problem<'_>, start: Time, host: usize) -> Option<Limit> {
    let length = problem.lengths[host];
    let (now, conditions) = (problem.asked_at?, &problem.hosts[host].host.tariff.conditions);
    if start < now + conditions.notice_min {
        return Some(Limit::Notice(conditions.notice_min));
    }
    let behind = |horizon| start.0.saturating_add(length) > (now + horizon).0;
    if let Some(horizon) = conditions.horizon.filter(|horizon| behind(*horizon)) {
        return Some(Limit::Horizon(horizon));
    }
    let width = problem.width();
    let is_above = |Parts(share): Parts| {
        let above = |resource: usize| {
            let given = i128::from(problem.capacity[host * width + resource]) * i128::from(share) / 1000;
            i128::from(problem.minimum[resource]) > given
        };
        problem.is_exclusive() && share < 1000 || (0..problem.resources.len()).any(above)
    };
    conditions.share_max.filter(|share| is_above(*share)).map(Limit::Share)
}
