//! MESD: always the gang that loses least against the best that it could have.
//!
//! Source: the thesis, algorithms 2 and 3 (line 11 of algorithm 2 has its comparison reversed; the text and the example say the smallest
//! difference). A call places all gangs that have arrived, and only then others, so none starves. Invariant: no time goes back.

use super::{
    super::multicluster::{Choice, Grid, allocated, least_slowdown_first},
    local::Placed,
    modes::Modes,
    problem::{Placement, Problem, Units},
    room::{Room, fits},
};

/// Most numbers that a call looks at, some seconds of work; what is left then is not placed.
const WORK_MAX: u64 = 4_000_000_000;

/// State of a call of MESD: the gangs placed so far, and the room beside them at a time.
struct Call<'a> {
    problem: &'a Problem,
    modes: &'a [Modes],
    choice: Choice,
    room: Room,
    now: i64,
    work: u64,
    placed: Placed,
}

/// Places all gangs. `Choice::Literal` waits where the uplinks do not carry what it chooses.
pub(in crate::batch) fn mesd(problem: &Problem, modes: &[Modes], empty: &Room, choice: Choice) -> Placed {
    let mut waiting: Vec<usize> = (0..modes.len()).filter(|gang| !modes[*gang].all.is_empty()).collect();
    waiting.sort_by_key(|gang| problem.gangs[*gang].earliest);
    let placed = vec![None; modes.len()];
    let mut call = Call { problem, modes, choice, room: empty.clone(), now: 0, work: 0, placed };
    while let Some(first) = waiting.first().filter(|_| call.work < WORK_MAX) {
        call.now = call.now.max(problem.gangs[*first].earliest);
        let arrived = waiting.partition_point(|gang| problem.gangs[*gang].earliest <= call.now);
        least_slowdown_first(waiting.drain(..arrived).collect(), &mut call);
    }
    call.placed
}

impl Grid for Call<'_> {
    type Loss = i64;
    /// Number of the gang's mode.
    type Hosts = usize;

    fn keep(&mut self, left: &mut Vec<usize>) {
        let (now, is_over) = (self.now, self.work >= WORK_MAX);
        self.room.forget_before(now);
        let shortest = |gang: usize| self.modes[gang].all[0].seconds;
        left.retain(|gang| !is_over && now <= self.problem.gangs[*gang].latest_start(shortest(*gang)));
    }

    fn allocate(&mut self, gang: usize) -> Option<(i64, usize)> {
        let modes = &self.modes[gang];
        let mode = allocate(self.problem, modes, &self.room, gang, self.now, self.choice, &mut self.work)?;
        Some((modes.all[mode].seconds - modes.all[0].seconds, mode))
    }

    fn begin(&mut self, gang: usize, mode: usize) {
        let taken = &self.modes[gang].all[mode];
        self.room.take(&taken.needs, self.now, taken.seconds);
        self.placed[gang] = Some(Placement { start: self.now, mode });
    }

    fn free_next(&mut self) -> bool {
        let next = self.room.next_change(self.now);
        self.now = next.unwrap_or(self.now);
        next.is_some()
    }
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

/// Algorithm 3, on the hosts on which the gang lasts at most so long.
fn fastest(problem: &Problem, gang: usize, seconds: i64, free: &[Units]) -> Option<Vec<Units>> {
    let asked = &problem.gangs[gang];
    let mut groups: Vec<usize> =
        (0..problem.groups.len()).filter(|group| asked.seconds[*group].is_some_and(|own| own <= seconds)).collect();
    groups.sort_by_key(|group| asked.seconds[*group]);
    let free: Vec<u32> = free[..problem.groups.len()].iter().map(|free| (*free).max(0).cast_unsigned()).collect();
    let hosts = allocated(asked.seats.cast_unsigned(), &groups, &free, |group| problem.groups[group].site)?;
    Some(hosts.into_iter().map(u32::cast_signed).collect())
}
