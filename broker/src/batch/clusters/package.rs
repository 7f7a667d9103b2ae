//! PAS and what it is compared with, on schedules: a package of gangs whose seats fit into the free hosts is chosen, and then placed at once.
//!
//! Source: the thesis, 3.1 (algorithm 1 and the model of figure 3.4) and 3.1.3 (CBS, JPR). The exact assignment is a search over modes. A
//! package leaves out what no uplink carries beside it. Invariant: all gangs of a package start together; no uplink is saturated.

use super::{
    super::multicluster::{Beside, cheapest, is_chunk, selected},
    local::Placed,
    modes::Modes,
    problem::{Placement, Problem, Units},
    room::Room,
};

/// Most steps of the assignment of a package.
const STEPS_MAX: u64 = 200_000;
/// Most steps until it is known that a gang may join it.
const JOIN_STEPS_MAX: u64 = 2_000;
/// Most numbers that all packages of a call look at, some seconds of work; what is left then is not placed.
const WORK_MAX: u64 = 4_000_000_000;

/// What is least for a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::batch) enum Taste {
    /// PAS: the sum of the run times (3.8).
    ShortRuns,
    /// CBS: the Mbit/s on all uplinks, three quarters of the seats at one site where a site is large enough.
    FewLoads,
    /// JPR: how far the hosts are from the fastest one.
    FastHosts,
}

impl Taste {
    /// What each mode costs; none for one that is out of the question.
    pub(super) fn costs(self, problem: &Problem, modes: &Modes) -> Vec<Option<i64>> {
        let groups = problem.groups.len();
        let sum = |needs: &[Units]| needs.iter().map(|need| i64::from(*need)).sum::<i64>();
        let fastest = problem.groups.iter().map(|group| i64::from(group.speed)).max().unwrap_or(0);
        let hosts = |at: &dyn Fn(usize) -> bool, needs: &[Units]| -> u32 {
            (0..groups).filter(|group| at(*group)).map(|group| needs[group].max(0).cast_unsigned()).sum()
        };
        let has_its_chunk = |needs: &[Units]| {
            let all = hosts(&|_| true, needs);
            let here = |site| hosts(&|group| problem.groups[group].site == site, needs);
            problem.groups.iter().any(|group| is_chunk(here(group.site), all))
        };
        let has_chunk = self == Taste::FewLoads && modes.all.iter().any(|mode| has_its_chunk(&mode.needs));
        let cost = |needs: &[Units], seconds: i64, speeds: i64| match self {
            Taste::ShortRuns => Some(seconds),
            Taste::FewLoads => (!has_chunk || has_its_chunk(needs)).then(|| sum(&needs[groups..])),
            Taste::FastHosts => Some(sum(&needs[..groups]) * fastest - speeds),
        };
        modes.all.iter().map(|mode| cost(&mode.needs, mode.seconds, mode.speeds)).collect()
    }
}

/// Places all gangs, package by package; `queue` says whose turn is first. With `strict` a package ends at the first that does not fit.
pub(in crate::batch) fn packages(
    problem: &Problem,
    modes: &[Modes],
    empty: &Room,
    taste: Taste,
    (queue, strict): &(Vec<usize>, bool),
) -> Placed {
    let costs: Vec<Vec<Option<i64>>> = modes.iter().map(|modes| taste.costs(problem, modes)).collect();
    let mut room = empty.clone();
    let mut placed: Placed = vec![None; modes.len()];
    let mut queue: Vec<usize> = queue.iter().copied().filter(|gang| !modes[*gang].all.is_empty()).collect();
    let arrival = |queue: &[usize], now: Option<i64>| {
        let later = |gang: &&usize| now.is_none_or(|now| problem.gangs[**gang].earliest > now);
        queue.iter().filter(later).map(|gang| problem.gangs[*gang].earliest).min()
    };
    let (mut next, mut work) = (arrival(&queue, None), 0);
    while let Some(now) = next.filter(|_| work < WORK_MAX) {
        room.forget_before(now);
        queue.retain(|gang| now <= problem.gangs[*gang].latest_start(modes[*gang].all[0].seconds));
        let mut assignment = Assignment::new(problem, modes, &costs, &room, (now, work));
        let chosen = assignment.package(&queue, *strict);
        work = assignment.search.work;
        for (gang, mode) in &chosen {
            let taken = &modes[*gang].all[*mode];
            room.take(&taken.needs, now, taken.seconds);
            placed[*gang] = Some(Placement { start: now, mode: *mode });
        }
        queue.retain(|gang| placed[*gang].is_none());
        next = [room.next_change(now), arrival(&queue, Some(now))].into_iter().flatten().min();
        next = next.filter(|_| !queue.is_empty());
    }
    placed
}

/// The assignments of packages that start now.
struct Assignment<'a> {
    /// By gang: what each of its modes costs.
    costs: &'a [Vec<Option<i64>>],
    /// By gang: its modes that fit now, cheaper ones first.
    open: Vec<Option<Vec<(i64, usize)>>>,
    room: &'a Room,
    search: Search<'a>,
}

/// The package whose assignment is searched for, with the work done for it and its bounds.
struct Search<'a> {
    problem: &'a Problem,
    modes: &'a [Modes],
    now: i64,
    package: Vec<usize>,
    steps: u64,
    steps_max: u64,
    /// Numbers looked at, of this package and those before it.
    work: u64,
}

impl Beside<usize> for Search<'_> {
    type Room = Room;

    fn with(&mut self, room: &Room, job: usize, mode: &usize) -> Option<Room> {
        let mode = &self.modes[self.package[job]].all[*mode];
        self.work += room.width() as u64;
        room.admits(&mode.needs, self.now, mode.seconds).then(|| {
            self.work += room.size() as u64;
            let mut after = room.clone();
            after.take(&mode.needs, self.now, mode.seconds);
            after
        })
    }

    fn may_go_on(&mut self) -> bool {
        self.steps += 1;
        self.steps <= self.steps_max && self.work <= WORK_MAX
    }
}

impl<'a> Assignment<'a> {
    fn new(
        problem: &'a Problem,
        modes: &'a [Modes],
        costs: &'a [Vec<Option<i64>>],
        room: &'a Room,
        (now, work): (i64, u64),
    ) -> Assignment<'a> {
        let search = Search { problem, modes, now, package: Vec::new(), steps: 0, steps_max: 0, work };
        Assignment { costs, open: vec![None; modes.len()], room, search }
    }

    /// Who is in the package, and the mode of each.
    fn package(&mut self, queue: &[usize], strict: bool) -> Vec<(usize, usize)> {
        let (problem, now) = (self.search.problem, self.search.now);
        let level = &self.room.level(self.room.step_at(now))[..problem.groups.len()];
        let hosts = level.iter().map(|free| (*free).max(0).cast_unsigned()).sum();
        let arrived = queue.iter().copied().filter(|gang| problem.gangs[*gang].earliest <= now);
        let seats = |gang: usize| problem.gangs[gang].seats.cast_unsigned();
        let mut chosen = Vec::new();
        let package = selected(arrived, hosts, strict, seats, |package| {
            let found = self.assign(package, true);
            let joins = found.is_some();
            chosen = found.unwrap_or_else(|| std::mem::take(&mut chosen));
            joins
        });
        let best = self.assign(&package, false).unwrap_or(chosen);
        package.into_iter().zip(best).collect()
    }

    /// The cheapest modes of these gangs that fit together, or the `first` found; none when none were found within the steps.
    fn assign(&mut self, package: &[usize], first: bool) -> Option<Vec<usize>> {
        package.iter().for_each(|gang| self.open(*gang));
        let steps_max = if first { JOIN_STEPS_MAX } else { STEPS_MAX };
        (self.search.steps, self.search.steps_max, self.search.package) = (0, steps_max, package.to_vec());
        let open: Vec<&[(i64, usize)]> =
            package.iter().map(|gang| self.open[*gang].as_deref().unwrap_or_default()).collect();
        let modes = cheapest(&open, self.room, &mut self.search, first)?.modes;
        Some(open.iter().zip(modes).map(|(open, at)| open[at].1).collect())
    }

    fn open(&mut self, gang: usize) {
        if self.open[gang].is_none() {
            let Search { problem, modes, now, .. } = self.search;
            let fits_now = |mode: &usize| {
                let (asked, mode) = (&problem.gangs[gang], &modes[gang].all[*mode]);
                now <= asked.latest_start(mode.seconds) && self.room.admits(&mode.needs, now, mode.seconds)
            };
            let priced = self.costs[gang].iter().enumerate().filter_map(|(mode, cost)| Some(((*cost)?, mode)));
            let mut open: Vec<(i64, usize)> = priced.filter(|(_, mode)| fits_now(mode)).collect();
            open.sort_unstable();
            self.search.work += (self.costs[gang].len() * self.room.width()) as u64;
            self.open[gang] = Some(open);
        }
    }
}
