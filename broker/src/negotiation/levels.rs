//! Levels: hosts of a class as the planner sees them, by how many are in use at a time and not by which.
//!
//! A site that binds late gives a seat any host of its class, and moves what floats there out of the way. So of hosts whose seats take them
//! whole the first is shown in use where any is, the second where two are, and so on. Seats are intervals: k more of them have room for a
//! window exactly where the last k of these hosts are free for all of it, since what crosses any second of it is then never more than there
//! are hosts. What runs now cannot move, but stands at the left edge of time, where it is one of those counted all the same.
//!
//! Invariant: at each second from now on, the same amounts are in use on the hosts of a group together. A host with seats on parts of it,
//! and one without others of its kind, is shown as it is. Work of the owner, or a seat on a host that its user has named, does not move,
//! which schedules do not tell: where a site refuses, a search sees its hosts as they are.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap};

use crate::{
    amount::Amount,
    classes::class_and_number,
    host::Host,
    ids::SiteId,
    resources::{ResourceName, amount_of},
    schedule::{Occupancy, Schedule},
    time::{Time, Window},
};

/// Most kinds of hosts with names of one class that are told apart; further ones are shown as they are.
const KINDS_MAX: usize = 16;

/// Shows hosts of one class by level, from `from` on, at those sites where that may be.
pub(super) fn level(
    hosts: &[(&SiteId, &Host)],
    schedules: &mut [Cow<'_, Schedule>],
    from: Time,
    may_be: impl Fn(&SiteId) -> bool,
) {
    for group in groups(hosts, schedules, may_be) {
        let alike: Vec<Whole> =
            group.iter().filter_map(|at| Whole::of(*at, hosts[*at].1, &schedules[*at], from)).collect();
        let capacity = &hosts[group[0]].1.capacity;
        let count_by = |name: &&ResourceName| alike.iter().filter(|host| host.is_whole_in(name)).count();
        let Some(name) = capacity.keys().rev().max_by_key(count_by) else { continue };
        let mut alike: Vec<Whole> = alike.into_iter().filter(|host| host.is_whole_in(name)).collect();
        // Where each host is in use whenever the next one is, this changes nothing.
        alike.sort_by_key(|host| Reverse(host.busy_s));
        let shown: Vec<&Schedule> = alike.iter().map(|host| &*schedules[host.at]).collect();
        let Some(levels) = levels_of(&shown, from) else { continue };
        for (host, level) in alike.iter().zip(levels) {
            schedules[host.at] = Cow::Owned(level);
        }
    }
}

/// Hosts that are alike and numbered as those of one class, where more than one is in use.
fn groups(
    hosts: &[(&SiteId, &Host)],
    schedules: &[Cow<'_, Schedule>],
    may_be: impl Fn(&SiteId) -> bool,
) -> Vec<Vec<usize>> {
    let mut of_class: BTreeMap<(&SiteId, &str), Vec<usize>> = BTreeMap::new();
    let (free, used): (Vec<usize>, Vec<usize>) = (0..hosts.len()).partition(|at| schedules[*at].is_empty());
    let key = |at: usize| Some((hosts[at].0, class_and_number(&hosts[at].1.id)?.0));
    for at in used {
        if let Some(key) = key(at) {
            of_class.entry(key).or_default().push(at);
        }
    }
    of_class.retain(|(site, _), used| used.len() > 1 && may_be(site));
    for at in free {
        if let Some(class) = key(at).and_then(|key| of_class.get_mut(&key)) {
            class.push(at);
        }
    }
    of_class.into_values().flat_map(|class| kinds(hosts, class)).filter(|kind| kind.len() > 1).collect()
}

/// These hosts, those that differ in nothing but their names together.
fn kinds(hosts: &[(&SiteId, &Host)], class: Vec<usize>) -> Vec<Vec<usize>> {
    let is_like = |one: usize, other: usize| {
        let (one, other) = (hosts[one].1, hosts[other].1);
        one.capacity == other.capacity
            && one.speed == other.speed
            && one.attributes == other.attributes
            && one.tariff == other.tariff
    };
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for at in class {
        match kinds.iter().position(|kind| is_like(kind[0], at)) {
            Some(kind) => kinds[kind].push(at),
            None if kinds.len() < KINDS_MAX => kinds.push(vec![at]),
            None => {}
        }
    }
    kinds
}

/// A host of which more than half of some resource is in use whenever it is in use, so that no two like that go on one host.
struct Whole<'a> {
    at: usize,
    /// The resources of which that holds; none is in use of a host that is free.
    by: Option<Vec<&'a ResourceName>>,
    /// How long it is in use.
    busy_s: i128,
}

impl<'a> Whole<'a> {
    fn of(at: usize, host: &'a Host, schedule: &Schedule, from: Time) -> Option<Whole<'a>> {
        let busy = schedule.busy();
        let steps: Vec<(Time, Amount)> = busy.segments(to_the_end(from)).collect();
        let ends = steps.iter().skip(1).map(|(end, _)| *end);
        let spans = steps.iter().zip(ends).filter(|((_, used), _)| *used > Amount::ZERO);
        let busy_s = spans.map(|((start, _), end)| i128::from(end.0) - i128::from(start.0)).sum();
        if busy_s == 0 {
            return Some(Whole { at, by: None, busy_s });
        }
        let is_whole = |name: &&ResourceName| {
            let half = amount_of(&host.capacity, name).0 / 2;
            let takes = |used: &Occupancy| {
                let of_it = used.segments(to_the_end(from)).map(|(time, _)| time);
                steps
                    .iter()
                    .map(|(time, _)| *time)
                    .chain(of_it)
                    .all(|time| used.used_at(time).0 > half || busy.used_at(time) == Amount::ZERO)
            };
            schedule.occupancy(name).is_some_and(takes)
        };
        let by: Vec<&ResourceName> = host.capacity.keys().filter(is_whole).collect();
        (!by.is_empty()).then_some(Whole { at, by: Some(by), busy_s })
    }

    fn is_whole_in(&self, name: &ResourceName) -> bool {
        self.by.as_ref().is_none_or(|by| by.contains(&name))
    }
}

fn to_the_end(from: Time) -> Window {
    Window { start: from, end: Time(i64::MAX) }
}

/// As many schedules: of each resource the first has the most that any of these uses at a second, the next the next most. None where an
/// amount is out of range.
fn levels_of(schedules: &[&Schedule], from: Time) -> Option<Vec<Schedule>> {
    let mut uses: BTreeMap<&ResourceName, Vec<(Time, usize, u64)>> = BTreeMap::new();
    for (host, schedule) in schedules.iter().enumerate() {
        for (name, used) in schedule.occupancies() {
            let steps = used.segments(to_the_end(from)).map(|(time, used)| (time, host, used.0));
            uses.entry(name).or_default().extend(steps);
        }
    }
    let mut levels: Vec<BTreeMap<ResourceName, Vec<(Time, Amount)>>> = vec![BTreeMap::new(); schedules.len()];
    for (name, mut steps) in uses {
        steps.sort_unstable();
        let mut of_host = vec![0; schedules.len()];
        let (mut sorted, mut shown) = (of_host.clone(), of_host.clone());
        for at_once in steps.chunk_by(|one, other| one.0 == other.0) {
            let (mut first, mut last) = (schedules.len(), 0);
            for &(_, host, used) in at_once {
                let before = std::mem::replace(&mut of_host[host], used);
                let from = sorted.partition_point(|other| *other > before);
                sorted.remove(from);
                let to = sorted.partition_point(|other| *other >= used);
                sorted.insert(to, used);
                (first, last) = (first.min(from.min(to)), last.max(from.max(to)));
            }
            for level in (first..=last).filter(|level| sorted[*level] != shown[*level]).collect::<Vec<_>>() {
                shown[level] = sorted[level];
                levels[level].entry(name.clone()).or_default().push((at_once[0].0, Amount(sorted[level])));
            }
        }
    }
    levels.iter().map(|steps| Schedule::from_steps(steps).ok()).collect()
}

#[cfg(test)]
#[path = "levels_tests.rs"]
mod tests;
