//! What is free over time of all groups and uplinks together.
//!
//! Invariant: times rise strictly; the last level holds for ever, the first one from its time on.

use super::problem::{Problem, Steps, Units};

/// See the module.
#[derive(Debug, Clone)]
pub(in crate::batch) struct Room {
    width: usize,
    times: Vec<i64>,
    free: Vec<Units>,
}

impl Room {
    /// The room before anything is placed.
    pub fn of(problem: &Problem) -> Room {
        let groups = problem.groups.iter().map(|group| &group.free);
        let all: Vec<&Steps> = groups.chain(problem.links.iter().map(|link| &link.free)).collect();
        let mut times: Vec<i64> =
            all.iter().flat_map(|steps| steps.iter().map(|step| step.0.max(0))).chain([0]).collect();
        times.sort_unstable();
        times.dedup();
        let level = |steps: &Steps, at: i64| {
            let known = steps.iter().rev().find(|step| step.0 <= at).or(steps.first());
            known.map_or(0, |step| step.1)
        };
        let free = times.iter().flat_map(|at| all.iter().map(|steps| level(steps, *at))).collect();
        let mut room = Room { width: all.len(), times, free };
        room.drop_equal_steps();
        room
    }

    fn drop_equal_steps(&mut self) {
        let kept: Vec<usize> =
            (0..self.times.len()).filter(|at| *at == 0 || self.level(*at) != self.level(at - 1)).collect();
        self.free = kept.iter().flat_map(|at| self.level(*at).to_vec()).collect();
        self.times = kept.iter().map(|at| self.times[*at]).collect();
    }

    /// How many groups and uplinks there are.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many numbers it consists of.
    pub fn size(&self) -> usize {
        self.free.len()
    }

    /// When what is free changes.
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// What is free from one of these times on.
    pub fn level(&self, at: usize) -> &[Units] {
        &self.free[at * self.width..(at + 1) * self.width]
    }

    /// The step that holds at this time.
    pub fn step_at(&self, time: i64) -> usize {
        self.times.partition_point(|known| *known <= time).saturating_sub(1)
    }

    /// When what is free changes next.
    pub fn next_change(&self, now: i64) -> Option<i64> {
        self.times.get(self.times.partition_point(|known| *known <= now)).copied()
    }

    /// The most of each that is ever free.
    pub fn most(&self) -> Vec<Units> {
        (0..self.width).map(|unit| (0..self.times.len()).map(|at| self.level(at)[unit]).max().unwrap_or(0)).collect()
    }

    /// Whether these needs are met throughout.
    pub fn admits(&self, needs: &[Units], start: i64, seconds: i64) -> bool {
        let from = self.step_at(start);
        (from..self.times.len())
            .take_while(|at| *at == from || self.times[*at] < start + seconds)
            .all(|at| fits(self.level(at), needs))
    }

    /// The least of each that is free in steps from this one on that begin before `until`, and `least` already; tells the first step behind.
    pub fn narrow(&self, from: usize, until: i64, least: &mut [Units]) -> usize {
        let mut at = from;
        while self.times.get(at).is_some_and(|time| *time < until) {
            least.iter_mut().zip(self.level(at)).for_each(|(least, free)| *least = (*least).min(*free));
            at += 1;
        }
        at
    }

    /// Takes these needs out of the room.
    pub fn take(&mut self, needs: &[Units], start: i64, seconds: i64) {
        let (from, to) = (self.split(start), self.split(start + seconds));
        for level in self.free[from * self.width..to * self.width].chunks_exact_mut(self.width) {
            level.iter_mut().zip(needs).for_each(|(free, need)| *free -= need);
        }
    }

    /// Drops what was before this time.
    pub fn forget_before(&mut self, now: i64) {
        let first = self.step_at(now);
        self.times.drain(..first);
        self.free.drain(..first * self.width);
    }

    /// Makes this time the begin of a step and tells which.
    fn split(&mut self, time: i64) -> usize {
        let at = self.step_at(time);
        if self.times[at] == time {
            return at;
        }
        self.times.insert(at + 1, time);
        let (begin, end) = (at * self.width, (at + 1) * self.width);
        self.free.extend_from_within(begin..end);
        self.free[end..].rotate_right(self.width);
        at + 1
    }
}

/// Whether so much is free.
pub(super) fn fits(free: &[Units], needs: &[Units]) -> bool {
    free.iter().zip(needs).all(|(free, need)| free >= need)
}
