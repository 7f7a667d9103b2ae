//! What becomes of the groups: substitutes that are placed as one (the set form), or jobs that are placed one after another (the partition
//! form), and the reference, longest or highest demand first without groups.
//!
//! Source: sections 4.4 and 4.5 of the thesis on co-location.

use std::cmp::Reverse;

use super::{
    super::watch::Watch,
    matching,
    pairing::{Group, Roles, Thresholds, groups},
    problem::{Job, Needs, Placed, Placement, Problem, RESOURCES_MAX, Sized},
    room::Room,
};

/// Whose turn it is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::batch) enum Turns {
    /// The longest first.
    Longest,
    /// The highest demand of a seat for any resource first.
    Highest,
}

/// The largest part of a host that something needs of any resource.
fn part(needs: &Needs, capacity: &Needs) -> u128 {
    let part = |(need, capacity): (&u64, &u64)| (u128::from(*need) << 32) / u128::from((*capacity).max(1));
    needs.iter().zip(capacity).map(part).max().unwrap_or(0)
}

impl Turns {
    fn key(self, sized: &Sized, capacity: &Needs) -> Reverse<u128> {
        Reverse(match self {
            Turns::Longest => u128::from(sized.seconds.cast_unsigned()),
            Turns::Highest => part(&sized.needs, capacity),
        })
    }
}

/// Jobs as they are, one after the other.
pub(in crate::batch) fn plain(problem: &Problem, turns: Turns) -> Placed {
    let sized: Vec<(usize, Sized)> =
        problem.jobs.iter().enumerate().map(|(at, job)| (at, job.at(job.plain()))).collect();
    in_turn(problem, turns, sized.into_iter().map(|job| Group { jobs: vec![job] }).collect(), false)
}

/// The set form: a group is placed as one job.
pub(in crate::batch) fn set(problem: &Problem, roles: Roles, thresholds: Thresholds, turns: Turns) -> Placed {
    in_turn(problem, turns, groups(problem, roles, thresholds), true)
}

/// The partition form: the jobs of a group follow each other.
pub(in crate::batch) fn partition(problem: &Problem, roles: Roles, thresholds: Thresholds, turns: Turns) -> Placed {
    in_turn(problem, turns, groups(problem, roles, thresholds), false)
}

/// The pairs that save most host time, each placed as one job, with either's turn first.
pub(in crate::batch) fn matched(problem: &Problem, watch: Watch<'_>) -> [Placed; 2] {
    let groups = matching::groups(problem, watch);
    [Turns::Longest, Turns::Highest].map(|turns| in_turn(problem, turns, groups.clone(), true))
}

fn in_turn(problem: &Problem, turns: Turns, mut groups: Vec<Group>, as_one: bool) -> Placed {
    let mut room = Room::of(problem);
    let mut placed: Placed = vec![None; problem.jobs.len()];
    let capacity = &problem.largest();
    groups.sort_by_cached_key(|group| {
        let substitute = Substitute::of(problem, group);
        turns.key(&substitute.sized, capacity)
    });
    for mut group in groups {
        if as_one && let Some(places) = Substitute::of(problem, &group).place(&mut room, &group, problem) {
            for ((job, sized), placement) in group.jobs.iter().zip(places) {
                room.put(*job, sized, &placement);
                placed[*job] = Some(placement);
            }
            continue;
        }
        group.jobs.sort_by_key(|(job, sized)| (Turns::Highest.key(sized, capacity), *job));
        for (job, sized) in group.jobs {
            let of = &problem.jobs[job];
            let mut at = |sized: Sized| room.earliest(of, &sized).map(|placement| (sized, placement));
            // At the size that fills a usual host it may fit on too few.
            let found = at(sized).or_else(|| at(of.at(of.plain())));
            found.iter().for_each(|(sized, placement)| room.put(job, sized, placement));
            placed[job] = found.map(|(_, placement)| placement);
        }
    }
    placed
}

/// The one job that stands for a group.
struct Substitute {
    job: Job,
    sized: Sized,
}

impl Substitute {
    /// As long as its longest job, with the demands of those that share a host added up; where those differ from host to host, the most.
    fn of(problem: &Problem, group: &Group) -> Substitute {
        let seats = |job: &usize| problem.jobs[*job].seats;
        let widest = group.jobs.iter().map(|(job, _)| seats(job)).max().unwrap_or(0);
        let mut needs: Needs = [0; RESOURCES_MAX];
        let (on_all, on_some): (Vec<_>, Vec<_>) = group.jobs.iter().partition(|(job, _)| seats(job) == widest);
        for (resource, need) in needs.iter_mut().enumerate() {
            let of = |(_, sized): &&(usize, Sized)| sized.needs[resource];
            *need = on_all.iter().map(of).sum::<u64>() + on_some.iter().map(of).max().unwrap_or(0);
        }
        let seconds = group.jobs.iter().map(|(_, sized)| sized.seconds).max().unwrap_or(0);
        let jobs = || group.jobs.iter().map(|(job, _)| &problem.jobs[*job]);
        let first = jobs().map(|job| job.starts.0).max().unwrap_or(0);
        let last = group.jobs.iter().map(|(job, sized)| problem.jobs[*job].last_start(sized.seconds)).min();
        let starts = (first, last.unwrap_or(0));
        let job = Job { seats: widest, seconds, needs, scale: (1000, 1000), starts, deadline: i64::MAX };
        Substitute { sized: job.at(1000), job }
    }

    /// Where each job of the group is, if all of them find a place together.
    fn place(&self, room: &mut Room, group: &Group, problem: &Problem) -> Option<Vec<Placement>> {
        let Placement { start, hosts, .. } = room.earliest(&self.job, &self.sized)?;
        let mut next = 0;
        let mut place = |(job, sized): &(usize, Sized)| {
            let seats = problem.jobs[*job].seats;
            let from = if seats == hosts.len() { 0 } else { next };
            if seats < hosts.len() {
                next += seats;
            }
            Placement { start, factor: sized.factor, hosts: hosts[from..from + seats].to_vec() }
        };
        Some(group.jobs.iter().map(&mut place).collect())
    }
}
