//! PAS and what it is compared with: a package of gangs whose seats fit into the free hosts is chosen, and then placed at once.
//!
//! Source: the thesis, 3.1 (algorithm 1 and the model of figure 3.4) and 3.1.3 (CBS, JPR). The exact assignment is a search over modes. A
//! package leaves out what no uplink carries beside it. Invariant: all gangs of a package start together; no uplink is saturated.

use super::{
    local::Placed,
    modes::Modes,
    problem::{Gang, Placement, Problem, Units},
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
        let is_chunk = |needs: &[Units]| {
            let at = |site| {
                (0..groups)
                    .filter(|group| problem.groups[*group].site == site)
                    .map(|group| i64::from(needs[group]))
                    .sum::<i64>()
            };
            problem.groups.iter().any(|group| at(group.site) * 4 >= sum(&needs[..groups]) * 3)
        };
        let has_chunk = self == Taste::FewLoads && modes.all.iter().any(|mode| is_chunk(&mode.needs));
        let cost = |needs: &[Units], seconds: i64, speeds: i64| match self {
            Taste::ShortRuns => Some(seconds),
            Taste::FewLoads => (!has_chunk || is_chunk(needs)).then(|| sum(&needs[groups..])),
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
        let mut assignment = Assignment::new(problem, modes, &costs, &room, now);
        assignment.work = work;
        let chosen = assignment.package(&queue, *strict);
        work = assignment.work;
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

/// The exact assignment of a package that starts now.
struct Assignment<'a> {
    problem: &'a Problem,
    room: &'a Room,
    modes: &'a [Modes],
    now: i64,
    /// By gang: its modes that fit now, cheaper ones first.
    costs: &'a [Vec<Option<i64>>],
    open: Vec<Option<Vec<(i64, usize)>>>,
    steps: u64,
    /// Numbers looked at, of this package and those before it.
    work: u64,
    /// Whether any assignment will do.
    first: bool,
    best: Option<(i64, Vec<usize>)>,
}

impl<'a> Assignment<'a> {
    fn new(
        problem: &'a Problem,
        modes: &'a [Modes],
        costs: &'a [Vec<Option<i64>>],
        room: &'a Room,
        now: i64,
    ) -> Assignment<'a> {
        let open = vec![None; modes.len()];
        Assignment { problem, room, modes, now, costs, open, steps: 0, work: 0, first: false, best: None }
    }

    /// Algorithm 1: who is in the package, and the mode of each.
    fn package(&mut self, queue: &[usize], strict: bool) -> Vec<(usize, usize)> {
        let groups = self.problem.groups.len();
        let mut hosts: Units =
            self.room.level(self.room.step_at(self.now))[..groups].iter().map(|free| (*free).max(0)).sum();
        let (mut package, mut chosen) = (Vec::new(), Vec::new());
        for gang in queue {
            let Gang { seats, earliest, .. } = self.problem.gangs[*gang];
            if earliest > self.now {
                continue;
            }
            if seats <= hosts {
                package.push(*gang);
                if let Some(found) = self.assign(&package, true) {
                    chosen = found;
                    hosts -= seats;
                    continue;
                }
                package.pop();
            }
            if strict {
                break;
            }
        }
        let best = self.assign(&package, false).unwrap_or(chosen);
        package.into_iter().zip(best).collect()
    }

    /// The cheapest modes of these gangs that fit together, or the `first` found; none when none were found within the steps.
    fn assign(&mut self, package: &[usize], first: bool) -> Option<Vec<usize>> {
        package.iter().for_each(|gang| self.open(*gang));
        (self.steps, self.first, self.best) = (0, first, None);
        let room = self.room;
        self.visit(package, &mut Vec::new(), 0, room);
        self.best.take().map(|(_, modes)| modes)
    }

    fn open(&mut self, gang: usize) {
        if self.open[gang].is_none() {
            let fits_now = |mode: &usize| {
                let (asked, mode) = (&self.problem.gangs[gang], &self.modes[gang].all[*mode]);
                self.now <= asked.latest_start(mode.seconds) && self.room.admits(&mode.needs, self.now, mode.seconds)
            };
            let priced = self.costs[gang].iter().enumerate().filter_map(|(mode, cost)| Some(((*cost)?, mode)));
            let mut open: Vec<(i64, usize)> = priced.filter(|(_, mode)| fits_now(mode)).collect();
            open.sort_unstable();
            self.work += (self.costs[gang].len() * self.room.width()) as u64;
            self.open[gang] = Some(open);
        }
    }

    fn visit(&mut self, package: &[usize], chosen: &mut Vec<usize>, cost: i64, room: &Room) {
        self.steps += 1;
        let cheapest = |gang: &usize| self.open[*gang].as_ref().and_then(|open| open.first()).map_or(0, |open| open.0);
        let rest: i64 = package[chosen.len()..].iter().map(cheapest).sum();
        let is_done = |(best, _): &(i64, Vec<usize>)| self.first || cost + rest >= *best;
        let steps_max = if self.first { JOIN_STEPS_MAX } else { STEPS_MAX };
        if self.steps > steps_max || self.work > WORK_MAX || self.best.as_ref().is_some_and(is_done) {
            return;
        }
        let Some(gang) = package.get(chosen.len()) else {
            self.best = Some((cost, chosen.clone()));
            return;
        };
        let (modes, open) = (self.modes, self.open[*gang].take().unwrap_or_default());
        let own = open.first().map_or(0, |open| open.0);
        for (price, at) in &open {
            if self.best.as_ref().is_some_and(|(best, _)| cost + rest - own + price >= *best) {
                break;
            }
            let mode = &modes[*gang].all[*at];
            self.work += room.width() as u64;
            if room.admits(&mode.needs, self.now, mode.seconds) {
                self.work += room.size() as u64;
                let mut after = room.clone();
                after.take(&mode.needs, self.now, mode.seconds);
                chosen.push(*at);
                self.visit(package, chosen, cost + price, &after);
                chosen.pop();
            }
        }
        self.open[*gang] = Some(open);
    }
}
