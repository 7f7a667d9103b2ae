//! How many hosts could be had at which start, and how much they have free together: what a person asks before a request
//! is written.
//!
//! Every host tells, for each start, whether it has the minima free for the whole duration, and how much it has free
//! there; the sums over hosts change only where some host changes. Invariant: the steps are exact for the schedules that
//! were given. Source: section 3.2 of the dissertation, for each start instead of the earliest one.

use std::collections::{BTreeMap, VecDeque};

use super::Candidate;
use crate::{
    amount::Amount,
    request::Request,
    resources::{Amounts, ResourceName, amount_of},
    schedule::Schedule,
    time::{Span, Time, Window},
};

/// From `start` on, until the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailabilityStep {
    /// First start for which this holds.
    pub start: Time,
    /// Hosts that have the minima free from there on for the duration.
    pub hosts: usize,
    /// What these hosts have free together all through the duration, of each resource that the request names.
    pub free: Amounts,
}

/// What could be had, over all starts of a window; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    steps: Vec<AvailabilityStep>,
    latest: Time,
}

/// Change of a sum at one start: the number of hosts, then one amount for each resource.
type Change = Vec<i128>;

impl Availability {
    /// Looks at every start in `earliest..=latest` (both in range, and in this order). Every candidate has the attributes
    /// that the request asks for.
    #[must_use]
    pub fn new(request: &Request, (earliest, latest): (Time, Time), candidates: &[Candidate<'_>]) -> Availability {
        let latest = latest.max(earliest);
        let names = request.resources();
        let mut changes: BTreeMap<Time, Change> = BTreeMap::new();
        changes.insert(earliest, vec![0; names.len() + 1]);
        for candidate in candidates {
            let mut before = vec![0; names.len() + 1];
            for (start, now) in host_steps(request, &names, (earliest, latest), candidate) {
                let change = changes.entry(start).or_insert_with(|| vec![0; names.len() + 1]);
                for (change, (now, before)) in change.iter_mut().zip(now.iter().zip(&before)) {
                    *change += now - before;
                }
                before = now;
            }
        }
        let mut sums: Change = vec![0; names.len() + 1];
        let mut steps: Vec<AvailabilityStep> = Vec::with_capacity(changes.len());
        for (start, change) in changes {
            sums.iter_mut().zip(&change).for_each(|(sum, change)| *sum += change);
            let step = step_of(start, &names, &sums);
            if steps.last().is_none_or(|last| (last.hosts, &last.free) != (step.hosts, &step.free)) {
                steps.push(step);
            }
        }
        Availability { steps, latest }
    }

    /// All steps in order; the last one holds until the latest start.
    #[must_use]
    pub fn steps(&self) -> &[AvailabilityStep] {
        &self.steps
    }

    /// What could be had at `start`; at the earliest start when it is before that.
    #[must_use]
    pub fn at(&self, start: Time) -> &AvailabilityStep {
        let after = self.steps.partition_point(|step| step.start <= start);
        &self.steps[after.saturating_sub(1)]
    }

    /// Where most hosts could be had, the earliest of such starts: no fewer than the request asks for, and with its totals
    /// free on all of them together.
    #[must_use]
    pub fn most(&self, request: &Request) -> Option<&AvailabilityStep> {
        let has_totals = |step: &&AvailabilityStep| {
            request.total().iter().all(|(name, total)| amount_of(&step.free, name) >= *total)
        };
        let enough = self.steps.iter().filter(|step| step.hosts >= request.hosts()).filter(has_totals);
        enough.max_by_key(|step| (step.hosts, std::cmp::Reverse(step.start)))
    }

    /// At most `count` steps (at least one) that promise no more than there is: neighbours are taken together, with the
    /// least of what any of them has.
    #[must_use]
    pub fn thinned(&self, count: usize) -> Vec<AvailabilityStep> {
        let Some(first) = self.steps.first().filter(|_| self.steps.len() > count) else { return self.steps.clone() };
        let count = count.max(1) as u64;
        let width = (self.latest.since(first.start).0 / count).saturating_add(1);
        let mut thinned: Vec<AvailabilityStep> = Vec::new();
        for piece in 0..count {
            let start = first.start + Span(piece * width);
            if start > self.latest {
                break;
            }
            let end = start + Span(width);
            let position = |time: Time| self.steps.partition_point(|step| step.start < time);
            let mut least = AvailabilityStep { start, ..self.at(start).clone() };
            for step in &self.steps[position(start)..position(end)] {
                least.hosts = least.hosts.min(step.hosts);
                for (name, free) in &mut least.free {
                    *free = (*free).min(amount_of(&step.free, name));
                }
            }
            thinned.push(least);
        }
        thinned
    }
}

fn step_of(start: Time, names: &[ResourceName], sums: &[i128]) -> AvailabilityStep {
    let amount = |sum: &i128| Amount(u64::try_from(*sum).unwrap_or(u64::MAX));
    let (hosts, free) = sums.split_first().map_or((0, &[][..]), |(hosts, free)| (*hosts, free));
    AvailabilityStep {
        start,
        hosts: usize::try_from(hosts).unwrap_or(0),
        free: names.iter().cloned().zip(free.iter().map(amount)).collect(),
    }
}

/// What one host adds to the sums, from each start at which that changes.
fn host_steps(
    request: &Request,
    names: &[ResourceName],
    starts: (Time, Time),
    candidate: &Candidate<'_>,
) -> Vec<(Time, Change)> {
    let mut of_resource: Vec<Vec<(Time, u64)>> = Vec::with_capacity(names.len());
    let mut changes: Vec<Time> = vec![starts.0];
    for name in names {
        let peaks = peaks_by_start(candidate.schedule, name, starts, request.duration());
        changes.extend(peaks.iter().map(|(start, _)| *start));
        of_resource.push(peaks);
    }
    changes.sort_unstable();
    changes.dedup();
    let mut positions = vec![0; names.len()];
    let mut steps = Vec::with_capacity(changes.len());
    for start in changes {
        let mut sums: Change = vec![1];
        for (resource, name) in names.iter().enumerate() {
            let (peaks, position) = (&of_resource[resource], &mut positions[resource]);
            while peaks.get(*position + 1).is_some_and(|(next, _)| *next <= start) {
                *position += 1;
            }
            let used = peaks.get(*position).map_or(0, |(_, used)| *used);
            let free = amount_of(&candidate.host.capacity, name).saturating_sub(Amount(used));
            if free < amount_of(request.per_host(), name) {
                sums[0] = 0;
            }
            sums.push(i128::from(free.0));
        }
        if sums[0] == 0 {
            sums.fill(0);
        }
        steps.push((start, sums));
    }
    steps
}

/// The largest use in `[s, s + duration)` as a function of the start s, for all starts of the range: `(s, use)` holds from s
/// on. A piece of the occupancy lies in the windows that start less than a duration before it and before its end, so both
/// its first and its last such start ascend with the pieces; a queue keeps those that may still be the largest.
fn peaks_by_start(
    schedule: &Schedule,
    name: &ResourceName,
    (earliest, latest): (Time, Time),
    duration: Span,
) -> Vec<(Time, u64)> {
    let Some(occupancy) = schedule.occupancy(name) else { return vec![(earliest, 0)] };
    let window = Window { start: earliest, end: latest + duration };
    let pieces: Vec<(Time, u64)> = occupancy.segments(window).map(|(start, used)| (start, used.0)).collect();
    let enters = |piece: usize| (Time(pieces[piece].0.0 + 1) - duration).max(earliest);
    let leaves = |piece: usize| pieces.get(piece + 1).map_or(window.end, |(start, _)| *start);
    let mut peaks: Vec<(Time, u64)> = Vec::new();
    let mut largest: VecDeque<usize> = VecDeque::new();
    let (mut next, mut now) = (0, earliest);
    while now <= latest {
        while next < pieces.len() && enters(next) <= now {
            while largest.back().is_some_and(|last| pieces[*last].1 <= pieces[next].1) {
                largest.pop_back();
            }
            largest.push_back(next);
            next += 1;
        }
        while largest.front().is_some_and(|first| leaves(*first) <= now) {
            largest.pop_front();
        }
        let used = largest.front().map_or(0, |first| pieces[*first].1);
        if peaks.last().is_none_or(|(_, last)| *last != used) {
            peaks.push((now, used));
        }
        let entry = (next < pieces.len()).then(|| enters(next));
        let exit = largest.front().map(|first| leaves(*first));
        let Some(change) = [entry, exit].into_iter().flatten().min() else { break };
        now = change;
    }
    peaks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        host::Host,
        ids::{HostId, SiteId},
    };

    fn request(text: &str) -> Request {
        serde_json::from_str(text).unwrap()
    }

    fn host(cpu: u64, uses: &[(i64, i64, u64)]) -> (Host, Schedule) {
        let name = ResourceName::new("cpu").unwrap();
        let mut schedule = Schedule::default();
        for (start, length, amount) in uses {
            let window = Window { start: Time(*start), end: Time(start + length) };
            schedule.add(window, &[(name.clone(), Amount(*amount))].into());
        }
        let id = HostId::new("h").unwrap();
        let capacity = [(name, Amount(cpu))].into();
        (Host { id, capacity, attributes: Default::default(), speed: 1000, price: 0 }, schedule)
    }

    fn availability(request: &Request, window: (i64, i64), hosts: &[(Host, Schedule)]) -> Availability {
        let site = SiteId::new("s").unwrap();
        let candidates: Vec<_> =
            hosts.iter().map(|(host, schedule)| Candidate { site: &site, host, schedule }).collect();
        Availability::new(request, (Time(window.0), Time(window.1)), &candidates)
    }

    /// Looks at every start by itself.
    fn slowly(request: &Request, start: i64, hosts: &[(Host, Schedule)]) -> (usize, u64) {
        let name = ResourceName::new("cpu").unwrap();
        let window = Window::starting(Time(start), request.duration());
        let free = |(host, schedule): &(Host, Schedule)| {
            amount_of(&host.capacity, &name).saturating_sub(schedule.peak(&name, window)).0
        };
        let minimum = amount_of(request.per_host(), &name).0;
        let fitting: Vec<u64> = hosts.iter().map(free).filter(|free| *free >= minimum).collect();
        (fitting.len(), fitting.iter().sum())
    }

    proptest! {
        #[test]
        fn every_start_tells_what_a_look_at_it_alone_tells(
            hosts in prop::collection::vec(
                (1_u64..9, prop::collection::vec((0_i64..60, 1_i64..20, 1_u64..5), 0..6)), 0..6),
            duration in 1_i64..25,
            minimum in 0_u64..6,
            earliest in 0_i64..20,
            reach in 0_i64..50,
            count in 1_usize..9,
        ) {
            let request = request(&format!(
                r#"{{"hosts":1,"duration":{duration},"per_host":{{"cpu":{minimum}}},"total":{{"cpu":0}}}}"#
            ));
            let hosts: Vec<_> = hosts.iter().map(|(cpu, uses)| host(*cpu, uses)).collect();
            let latest = earliest + reach;
            let availability = availability(&request, (earliest, latest), &hosts);
            let thinned = availability.thinned(count);
            prop_assert!(thinned.len() <= count.max(1) || thinned == availability.steps());
            for start in earliest..=latest {
                let step = availability.at(Time(start));
                let cpu = step.free.values().next().map_or(0, |free| free.0);
                prop_assert_eq!((step.hosts, cpu), slowly(&request, start, &hosts), "start {}", start);
                let thin = thinned.iter().rev().find(|thin| thin.start <= Time(start)).unwrap();
                prop_assert!(thin.hosts <= step.hosts && thin.free <= step.free);
            }
            let best = (earliest..=latest).map(|start| slowly(&request, start, &hosts).0).max().unwrap();
            let most = availability.most(&request);
            prop_assert_eq!(most.map_or(0, |step| step.hosts), best);
            if let Some(most) = most {
                let first = (earliest..=latest).find(|start| slowly(&request, *start, &hosts).0 == best);
                prop_assert_eq!(Some(most.start.0), first);
            }
        }
    }

    #[test]
    fn most_wants_the_totals_as_well() {
        let hosts = [host(4, &[(0, 10, 3)]), host(4, &[(0, 10, 3)]), host(4, &[(10, 90, 4)])];
        let request = request(r#"{"hosts":2,"duration":5,"per_host":{"cpu":1},"total":{"cpu":8}}"#);
        let availability = availability(&request, (0, 50), &hosts);
        assert_eq!(availability.at(Time(0)).hosts, 3);
        let most = availability.most(&request).unwrap();
        assert_eq!((most.start, most.hosts), (Time(10), 2));
    }
}
