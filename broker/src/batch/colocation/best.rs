//! The least run time that a search finds: jobs of a few hosts are taken out and put back, where and at the factors at which they make the
//! hosts end least late.
//!
//! Large neighbourhood search with annealing. Work is counted in looked-at places, never in time, and the arithmetic is whole. Invariant:
//! the same problem and the same work give the same answer, which is never worse than what the search begins with and ends no later.

use std::cmp::Reverse;

use rand::{RngExt, rand_core::SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    super::watch::{Patience, Progress, Watch},
    places::{self, Bounds, Shape},
    problem::{Placed, Placement, Problem},
    room::Room,
};

/// Looked-at steps for each job. Measured on the published sets: about 1 ms for each.
const WORK_A_JOB: u64 = 30_000;
/// Fewest and most looked-at steps.
const WORK: (u64, u64) = (3_000_000, 600_000_000);
/// Looked-at steps between two questions whether to go on, some milliseconds of work.
const ASK_EVERY: u64 = 200_000;
/// Most jobs that are taken out at a time.
const TAKEN_MAX: usize = 4;
/// The same where they are first put side by side, as they are in half of the steps.
const TOGETHER_MAX: usize = 6;
/// Most hosts that jobs are taken from at a time.
const HOSTS_MAX: usize = 3;
/// Hosts that are looked at beside those that jobs were taken from.
const OTHERS: usize = 2;
/// A schedule may at first be worse by this part of the mean host time of a job.
const HEAT_PART: i64 = 20;

struct Search<'a> {
    shapes: Vec<Shape<'a>>,
    room: Room,
    placed: Placed,
    /// Jobs without a place that could have one.
    postponed: usize,
    /// By job: whether it could have one at all.
    could_run: Vec<bool>,
    /// No job ends later.
    limit: i64,
    random: Xoshiro256PlusPlus,
}

/// The best schedule found, beginning with this one; no job of it ends later than `limit`.
pub(in crate::batch) fn search(problem: &Problem, begun: &Placed, limit: i64, watch: Watch<'_>) -> Placed {
    let work = problem.jobs.len() as u64 * WORK_A_JOB;
    search_for(problem, begun, limit, work.clamp(WORK.0, WORK.1), watch)
}

/// The best schedule found with this much work.
pub(super) fn search_for(problem: &Problem, begun: &Placed, limit: i64, work: u64, watch: Watch<'_>) -> Placed {
    let could_run: Vec<bool> = problem.jobs.iter().map(|job| problem.could_run(job)).collect();
    let mut search = Search {
        shapes: problem.jobs.iter().map(Shape::of).collect(),
        room: Room::of(problem),
        placed: vec![None; begun.len()],
        postponed: could_run.iter().filter(|could| **could).count(),
        could_run,
        limit,
        random: Xoshiro256PlusPlus::seed_from_u64(1),
    };
    for (job, placement) in begun.iter().enumerate() {
        placement.iter().for_each(|placement| search.put(job, placement.clone()));
    }
    search.run(work, problem.least_run_time(), Patience::new(watch, ASK_EVERY))
}

/// The best schedule so far, and what has changed since.
struct Kept {
    worth: (usize, i64),
    placed: Placed,
    changed: Vec<usize>,
}

impl Kept {
    fn keep(&mut self, worth: (usize, i64), placed: &Placed) {
        self.worth = worth;
        for job in self.changed.drain(..) {
            self.placed[job].clone_from(&placed[job]);
        }
    }
}

impl Search<'_> {
    fn run(&mut self, work: u64, bound: i64, mut patience: Patience<'_>) -> Placed {
        let able = || self.shapes.iter().zip(&self.could_run).filter(|(_, could)| **could);
        let jobs = (able().count() as u64).cast_signed();
        let mean = able().map(|(shape, _)| shape.job.host_seconds()).sum::<i64>() / jobs.max(1);
        let mut best = Kept { worth: self.worth(), placed: self.placed.clone(), changed: Vec::new() };
        self.room.work = 0;
        while self.room.work < work && self.room.hosts() > 0 && best.worth > (0, bound) {
            let placed = || best.placed.iter().flatten().count();
            if patience.is_over(self.room.work, || Progress { placed: placed(), value: Some(best.worth.1) }) {
                break;
            }
            // A step that looks at nothing is work too.
            self.room.work += 1;
            let before = self.worth();
            let left = i128::from(work.saturating_sub(self.room.work));
            let heat = (i128::from(mean / HEAT_PART) * left / i128::from(work)) as i64;
            // A job that had no place is worth any rise.
            let most = if before.0 > 0 { i64::MAX } else { before.1 + heat };
            let undo = self.step(before.0, most);
            let after = self.worth();
            if after.0 > before.0 || after.0 == before.0 && after.1 > before.1 + heat {
                self.undo(undo);
                continue;
            }
            best.changed.extend(undo.iter().map(|(job, _)| *job));
            if after < best.worth {
                best.keep(after, &self.placed);
            } else if best.changed.len() > 4 * self.placed.len() {
                best.changed.sort_unstable();
                best.changed.dedup();
            }
        }
        best.placed
    }

    /// Jobs without a place, and the run time.
    fn worth(&self) -> (usize, i64) {
        (self.postponed, self.room.run_time())
    }

    fn put(&mut self, job: usize, placement: Placement) {
        self.room.put(job, &self.shapes[job].job.at(placement.factor), &placement);
        self.placed[job] = Some(placement);
        self.postponed -= 1;
    }

    fn take(&mut self, job: usize) -> Option<Placement> {
        let placement = self.placed[job].take()?;
        self.room.take(job, &self.shapes[job].job.at(placement.factor), &placement);
        self.postponed += 1;
        Some(placement)
    }

    /// Takes jobs out and puts them back elsewhere, unless more than so many find no place or the run time becomes more than `most`; where
    /// they were.
    fn step(&mut self, postponed: usize, most: i64) -> Vec<(usize, Option<Placement>)> {
        let mut hosts = self.some_hosts(1, HOSTS_MAX);
        let is_together = self.random.random();
        let mut jobs = self.some_jobs(&hosts, if is_together { TOGETHER_MAX } else { TAKEN_MAX });
        let undo: Vec<(usize, Option<Placement>)> = jobs.iter().map(|job| (*job, self.take(*job))).collect();
        if is_together && self.put_together(&jobs, &undo, most) {
            return undo;
        }
        hosts.extend(self.some_hosts(OTHERS, OTHERS));
        hosts.sort_unstable();
        hosts.dedup();
        let random = &mut self.random;
        jobs.sort_by_cached_key(|job| Reverse(self.shapes[*job].job.host_seconds() * random.random_range(2..=6)));
        let mut missing = 0;
        for job in jobs {
            let shape = &self.shapes[job];
            let find = if shape.job.seats == 1 { places::of_one } else { places::of_many };
            let bounds = Bounds { end: self.limit, rise: most - self.room.run_time() };
            match find(&mut self.room, shape, &hosts, bounds, &mut self.random) {
                Some(found) => self.put(job, found),
                None if missing == postponed => break,
                None => missing += 1,
            }
        }
        undo
    }

    /// Puts jobs that were taken out side by side on the hosts of one of them, if all fit there.
    fn put_together(&mut self, jobs: &[usize], undo: &[(usize, Option<Placement>)], most: i64) -> bool {
        let hosts =
            undo.iter().filter_map(|(_, placement)| Some(&placement.as_ref()?.hosts)).max_by_key(|hosts| hosts.len());
        let shapes: Vec<&Shape<'_>> = jobs.iter().map(|job| &self.shapes[*job]).collect();
        let Some(hosts) = hosts else { return false };
        if shapes.len() < 2 || shapes.iter().any(|shape| shape.job.seats > hosts.len()) {
            return false;
        }
        let bounds = Bounds { end: self.limit, rise: most - self.room.run_time() };
        let found = places::together(&mut self.room, &shapes, hosts, bounds, &mut self.random);
        let Some(found) = found else { return false };
        jobs.iter().zip(found).for_each(|(job, placement)| self.put(*job, placement));
        true
    }

    fn some_hosts(&mut self, least: usize, most: usize) -> Vec<usize> {
        let count = self.random.random_range(least..=most);
        (0..count).map(|_| self.random.random_range(0..self.room.hosts())).collect()
    }

    /// At most so many jobs of these hosts, of half of the time only those that end late, and one without a place.
    fn some_jobs(&mut self, hosts: &[usize], most: usize) -> Vec<usize> {
        let last = hosts.iter().map(|host| self.room.end(*host)).max().unwrap_or(0);
        let from = if self.random.random() { 0 } else { self.random.random_range(0..=last) };
        let seats = hosts.iter().flat_map(|host| self.room.seats(*host));
        let mut jobs: Vec<usize> = seats.filter(|seat| seat.end > from).map(|seat| seat.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs.shuffle(&mut self.random);
        jobs.truncate(self.random.random_range(2..=most));
        if self.postponed > 0 {
            let nth = self.random.random_range(0..self.postponed);
            let waits = |job: &usize| self.could_run[*job] && self.placed[*job].is_none();
            jobs.extend((0..self.placed.len()).filter(waits).nth(nth));
        }
        jobs
    }

    fn undo(&mut self, undo: Vec<(usize, Option<Placement>)>) {
        for (job, _) in &undo {
            self.take(*job);
        }
        for (job, placement) in undo {
            if let Some(placement) = placement {
                self.put(job, placement);
            }
        }
    }
}
