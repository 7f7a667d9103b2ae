//! MESD: always the gang that loses least against the best that it could have.
//!
//! Source: the thesis, algorithms 2 and 3 (line 11 of algorithm 2 has its comparison reversed; the text and the example say the smallest
//! difference). A call places all gangs that have arrived, and only then others, so none starves. Invariant: no time goes back.

use super::{
    local::Placed,
    modes::Modes,
    problem::{Placement, Problem, Units},
    room::{Room, fits},
};

/// Most numbers that a call looks at, some seconds of work; what is left then is not placed.
const WORK_MAX: u64 = 4_000_000_000;

/// How hosts are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::batch) enum Choice {
    /// The fastest ones, moved to the slowest site among them; when its uplinks do not carry that, the gang waits.
    Literal,
    /// The shortest mode that the uplinks carry, of those the one on the slowest hosts.
    Carried,
}

/// Places all gangs.
pub(in crate::batch) fn mesd(problem: &Problem, modes: &[Modes], empty: &Room, choice: Choice) -> Placed {
    let mut room = empty.clone();
    let mut placed: Placed = vec![None; modes.len()];
    let mut waiting: Vec<usize> = (0..modes.len()).filter(|gang| !modes[*gang].all.is_empty()).collect();
    waiting.sort_by_key(|gang| problem.gangs[*gang].earliest);
    let mut called: Vec<usize> = Vec::new();
    let (mut now, mut work) = (0, 0);
    while work < WORK_MAX {
        if called.is_empty() {
            let Some(first) = waiting.first() else { break };
            now = now.max(problem.gangs[*first].earliest);
            let arrived = waiting.partition_point(|gang| problem.gangs[*gang].earliest <= now);
            called.extend(waiting.drain(..arrived));
        }
        room.forget_before(now);
        called.retain(|gang| now <= problem.gangs[*gang].latest_start(modes[*gang].all[0].seconds));
        if called.is_empty() {
            continue;
        }
        let mut loss = |gang: &usize| {
            let mode = allocate(problem, &modes[*gang], &room, *gang, now, choice, &mut work)?;
            Some((modes[*gang].all[mode].seconds - modes[*gang].all[0].seconds, mode))
        };
        let found = called.iter().enumerate().filter_map(|(at, gang)| loss(gang).map(|(loss, mode)| (loss, at, mode)));
        if let Some((_, at, mode)) = found.min() {
            let gang = called.remove(at);
            let taken = &modes[gang].all[mode];
            room.take(&taken.needs, now, taken.seconds);
            placed[gang] = Some(Placement { start: now, mode });
        } else if let Some(next) = room.next_change(now) {
            now = next;
        } else {
            // Nothing will ever be free that is not free now.
            called.clear();
        }
    }
    placed
}

/// The mode of a gang that starts now, if any fits.
fn allocate(
    problem: &Problem,
    modes: &Modes,
    room: &Room,
    gang: usize,
    now: i64,
    choice: Choice,
    work: &mut u64,
) -> Option<usize> {
    let asked = &problem.gangs[gang];
    let from = room.step_at(now);
    let (mut least, mut next) = (room.level(from).to_vec(), from + 1);
    let mut known = None;
    for (at, mode) in modes.all.iter().enumerate() {
        if now > asked.latest_start(mode.seconds) {
            return None;
        }
        if known != Some(mode.seconds) {
            next = room.narrow(next, now + mode.seconds, &mut least);
            known = Some(mode.seconds);
            if choice == Choice::Literal
                && let Some(hosts) = fastest(problem, gang, mode.seconds, &least)
            {
                let groups = problem.groups.len();
                return modes.all.iter().position(|mode| mode.needs[..groups] == hosts && fits(&least, &mode.needs));
            }
        }
        *work += room.width() as u64;
        if choice == Choice::Carried && fits(&least, &mode.needs) {
            return Some(at);
        }
    }
    None
}

/// Algorithm 3: the fastest free hosts of those on which the gang lasts at most so long, then moved to the slowest site among them.
fn fastest(problem: &Problem, gang: usize, seconds: i64, free: &[Units]) -> Option<Vec<Units>> {
    let asked = &problem.gangs[gang];
    let mut groups: Vec<usize> =
        (0..problem.groups.len()).filter(|group| asked.seconds[*group].is_some_and(|own| own <= seconds)).collect();
    groups.sort_by_key(|group| asked.seconds[*group]);
    let mut hosts = vec![0; problem.groups.len()];
    let mut left = asked.seats;
    for group in &groups {
        hosts[*group] = free[*group].clamp(0, left);
        left -= hosts[*group];
    }
    if left > 0 {
        return None;
    }
    let slowest = groups.iter().rev().find(|group| hosts[**group] > 0)?;
    let site = problem.groups[*slowest].site;
    let (there, elsewhere): (Vec<usize>, Vec<usize>) =
        groups.iter().partition(|group| problem.groups[**group].site == site);
    for from in elsewhere {
        for to in there.iter().rev() {
            let moved = hosts[from].min(free[*to] - hosts[*to]);
            hosts[from] -= moved;
            hosts[*to] += moved;
        }
    }
    Some(hosts)
}
