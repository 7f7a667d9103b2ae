//! The least latest end by branch and bound over starts in order of time.
//!
//! At each time at which something may start, gangs are started in some mode, or time goes on to the next one. A branch is cut when a
//! bound reaches the best known end, when a gang that starts could have started earlier (left shift), and when a state at least as good
//! was searched already. Invariant: [`Proof::is_complete`] only if no placement of all gangs was left out that ends earlier.

use super::{
    super::watch::{Patience, Progress, Watch},
    bounds::{Bounds, GANGS_MAX, Row},
    memo::{Memo, Profile},
    modes::Modes,
    problem::{Placement, Problem, Units},
    room::{Room, fits},
};

/// Work between two questions whether to go on, some milliseconds.
const ASK_EVERY: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Running {
    gang: usize,
    mode: usize,
    start: i64,
    end: i64,
}

/// The search.
pub(super) struct Exact<'a> {
    problem: &'a Problem,
    modes: &'a [Modes],
    room: &'a Room,
    bounds: Bounds,
    memo: Memo,
    /// Started gangs in the order of their starts.
    started: Vec<Running>,
    best_end: i64,
    best: Option<Vec<Placement>>,
    /// Rows looked at, beside what the memo counts, and how much may be.
    work: u64,
    work_max: u64,
    is_cut: bool,
    patience: Patience<'a>,
}

/// What came of the search.
pub(super) struct Proof {
    /// A placement that ends before the one that was known.
    pub better: Option<Vec<Placement>>,
    /// Whether nothing ends earlier.
    pub is_complete: bool,
}

impl<'a> Exact<'a> {
    /// A search for an end before `known`.
    pub fn new(
        problem: &'a Problem,
        modes: &'a [Modes],
        room: &'a Room,
        bounds: Bounds,
        known: i64,
        watch: Watch<'a>,
    ) -> Exact<'a> {
        let memo = Memo::new(modes.len(), room.width());
        let (started, best) = (Vec::new(), None);
        let (is_cut, patience) = (modes.iter().any(|modes| modes.is_cut), Patience::new(watch, ASK_EVERY));
        let (work, work_max) = (0, 0);
        Exact { problem, modes, room, bounds, memo, started, best_end: known, best, work, work_max, is_cut, patience }
    }

    /// Searches with at most so much work.
    pub fn run(mut self, work_max: u64) -> Proof {
        self.work_max = work_max;
        let left = (1_u32 << self.modes.len()) - 1;
        let first = self.problem.gangs.iter().map(|gang| gang.earliest).min().unwrap_or(0);
        let before = vec![0; self.room.width()];
        self.visit(first, left, &before);
        Proof { better: self.best, is_complete: !self.is_cut }
    }

    /// Everything that may happen from this time on; `before` is what is used just before it.
    fn visit(&mut self, now: i64, left: u32, before: &[Units]) {
        let free = self.free_at(now);
        self.start(now, left, 0, &free, before);
    }

    /// Starts gangs from this one on, or lets time go on.
    fn start(&mut self, now: i64, left: u32, first: usize, free: &[Units], before: &[Units]) {
        if self.is_spent() {
            return;
        }
        if left == 0 {
            self.keep();
            return;
        }
        if self.is_bounded(now, left) {
            return;
        }
        for gang in first..self.modes.len() {
            let asked = &self.problem.gangs[gang];
            if left & (1 << gang) == 0 || asked.earliest > now {
                continue;
            }
            let modes = self.modes;
            for (at, mode) in modes[gang].all.iter().enumerate() {
                let end = now + mode.seconds;
                if end >= self.best_end || now > asked.latest_start(mode.seconds) {
                    break;
                }
                if !fits(free, &mode.needs) || !self.stays_free(now, mode.seconds, &mode.needs) {
                    continue;
                }
                if asked.earliest < now && self.fits_before(now, &mode.needs, before) {
                    continue;
                }
                let rest: Vec<Units> = free.iter().zip(&mode.needs).map(|(free, need)| free - need).collect();
                self.started.push(Running { gang, mode: at, start: now, end });
                self.start(now, left & !(1 << gang), gang + 1, &rest, before);
                self.started.pop();
                if self.is_spent() {
                    return;
                }
            }
        }
        self.go_on(now, left, free);
    }

    fn is_spent(&mut self) -> bool {
        let work = self.work + self.memo.work;
        let progress = || Progress { placed: self.modes.len(), value: Some(self.best_end) };
        let is_spent = work > self.work_max || self.patience.is_over(work, progress);
        self.is_cut |= is_spent;
        is_spent
    }

    /// Lets time go on to when something else may start.
    fn go_on(&mut self, now: i64, left: u32, free: &[Units]) {
        let Some(next) = self.next_time(now, left) else { return };
        if self.could_have_ended(now, next, left, free) {
            return;
        }
        let profile = self.profile(next);
        if self.memo.knows(left, &profile) {
            return;
        }
        // Used just before the next time: all that run until then.
        let mut used = vec![0; self.room.width()];
        for running in self.started.iter().filter(|running| running.end >= next) {
            add(&mut used, &self.modes[running.gang].all[running.mode].needs);
        }
        self.visit(next, left, &used);
        // Only now: a state that waits is no worse than what it waits for. After the end of the work it was not searched.
        if !self.is_spent() {
            self.memo.remember(left, profile);
        }
    }

    /// Whether a gang that is left could run and end before time goes on.
    fn could_have_ended(&self, now: i64, next: i64, left: u32, free: &[Units]) -> bool {
        (0..self.modes.len()).filter(|gang| left & (1 << gang) != 0).any(|gang| {
            let asked = &self.problem.gangs[gang];
            asked.earliest <= now
                && self.modes[gang]
                    .all
                    .iter()
                    .take_while(|mode| now + mode.seconds <= next && now <= asked.latest_start(mode.seconds))
                    .any(|mode| fits(free, &mode.needs) && self.stays_free(now, mode.seconds, &mode.needs))
        })
    }

    fn next_time(&self, now: i64, left: u32) -> Option<i64> {
        let ends = self.started.iter().map(|running| running.end);
        let arrivals = self.problem.gangs.iter().enumerate().filter(|(gang, _)| left & (1 << gang) != 0);
        let changes = self.room.times().iter().copied();
        ends.chain(arrivals.map(|(_, gang)| gang.earliest)).chain(changes).filter(|time| *time > now).min()
    }

    /// What is free at this time, beside what has started.
    fn free_at(&self, now: i64) -> Vec<Units> {
        let mut free = self.room.level(self.room.step_at(now)).to_vec();
        for running in self.started.iter().filter(|running| running.end > now) {
            let needs = &self.modes[running.gang].all[running.mode].needs;
            free.iter_mut().zip(needs).for_each(|(free, need)| *free -= need);
        }
        free
    }

    /// Whether needs that are met now are met for so long, although less may be free of the room later.
    fn stays_free(&self, now: i64, seconds: i64, needs: &[Units]) -> bool {
        let times = self.room.times();
        let at = self.room.step_at(now);
        (at + 1..times.len())
            .take_while(|at| times[*at] < now + seconds)
            .all(|at| fits(&self.free_at(times[at]), needs))
    }

    /// Whether these needs were met just before this time.
    fn fits_before(&self, now: i64, needs: &[Units], before: &[Units]) -> bool {
        let level = self.room.level(self.room.step_at(now - 1));
        level.iter().zip(before).zip(needs).all(|((level, before), need)| level - before >= *need)
    }

    fn profile(&self, from: i64) -> Profile {
        let mut ends: Vec<i64> = self.started.iter().map(|running| running.end).filter(|end| *end > from).collect();
        ends.sort_unstable();
        ends.dedup();
        let width = self.room.width();
        let times: Vec<i64> = [from].into_iter().chain(ends).collect();
        let mut needs = vec![0; width * times.len()];
        for running in self.started.iter().filter(|running| running.end > from) {
            for at in (0..times.len()).take_while(|at| times[*at] < running.end) {
                add(&mut needs[at * width..(at + 1) * width], &self.modes[running.gang].all[running.mode].needs);
            }
        }
        Profile { times, needs }
    }

    /// Whether nothing from here on ends before the best known.
    fn is_bounded(&mut self, now: i64, left: u32) -> bool {
        let limit = self.best_end - 1;
        let mut classes = [0_usize; GANGS_MAX];
        let mut arrivals = [now; GANGS_MAX + 1];
        let mut count = 1;
        for gang in (0..self.modes.len()).filter(|gang| left & (1 << gang) != 0) {
            let earliest = self.problem.gangs[gang].earliest;
            classes[gang] = self.bounds.class(gang, limit - earliest.max(now));
            if classes[gang] == 0 {
                return true;
            }
            if earliest > now && !arrivals[..count].contains(&earliest) {
                arrivals[count] = earliest;
                count += 1;
            }
        }
        let cuts = |row: &Row| {
            arrivals[..count].iter().any(|from| {
                let mut area = 0;
                for gang in (0..self.modes.len()).filter(|gang| left & (1 << gang) != 0) {
                    if self.problem.gangs[gang].earliest.max(now) >= *from {
                        area += row.areas[gang][classes[gang] - 1];
                    }
                }
                for running in &self.started {
                    if running.end > *from {
                        area += row.shares[running.gang][running.mode] * (running.end - from);
                    }
                }
                row.end(&self.bounds.times, *from, area) > limit
            })
        };
        let found = self.bounds.rows.iter().position(cuts);
        self.work += found.map_or(self.bounds.rows.len(), |at| at + 1) as u64 * count as u64;
        found.iter().for_each(|at| self.bounds.rows.swap(*at, at / 2));
        found.is_some()
    }

    fn keep(&mut self) {
        let end = self.started.iter().map(|running| running.end).max().unwrap_or(0);
        if end >= self.best_end {
            return;
        }
        self.best_end = end;
        let mut placed = vec![Placement { start: 0, mode: 0 }; self.modes.len()];
        for running in &self.started {
            placed[running.gang] = Placement { start: running.start, mode: running.mode };
        }
        self.best = Some(placed);
    }
}

fn add(sum: &mut [Units], needs: &[Units]) {
    sum.iter_mut().zip(needs).for_each(|(sum, need)| *sum += need);
}
