//! The least run time that a search finds: jobs of a few hosts are taken out and put back, where and at the factors at which they make the
//! hosts end least late.
//!
//! Large neighbourhood search with annealing. Work is counted in looked-at places, never in time, and the arithmetic is whole. Invariant:
//! the same problem and the same work give the same answer, which is never worse than what the search begins with and ends no later.

use std::cmp::Reverse;

use rand::{RngExt, rand_core::SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    problem::{Placed, Placement, Problem, Sized, Worth},
    room::Room,
};

/// Looked-at places for each job. Measured on the published sets: about 2 s for 700 jobs.
const WORK_A_JOB: u64 = 100_000;
/// Fewest looked-at places: few jobs of many seats need more of them.
const WORK_MIN: u64 = 20_000_000;
/// Most looked-at places.
const WORK_MAX: u64 = 300_000_000;
/// Most jobs that are taken out at a time.
const TAKEN_MAX: usize = 12;
/// Hosts that are looked at beside those that jobs were taken from.
const OTHERS: usize = 2;
/// Most hosts that jobs are taken from at a time.
const HOSTS_MAX: usize = 3;
/// A schedule may at first be worse by this part of a job's mean length.
const HEAT_PART: i64 = 8;
/// Most starts that are looked at for a job of several seats.
const STARTS_MAX: usize = 24;

struct Search<'a> {
    problem: &'a Problem,
    room: Room,
    placed: Placed,
    /// No job ends later.
    limit: i64,
    random: Xoshiro256PlusPlus,
}

/// The best schedule found, beginning with this one.
pub(in crate::batch) fn search(problem: &Problem, begun: &Placed) -> Placed {
    let mut room = Room::of(problem);
    let all = || problem.jobs.iter().zip(begun).enumerate();
    for (at, (job, placement)) in all() {
        placement.iter().for_each(|placement| room.put(at, &job.at(placement.factor), placement));
    }
    let limit = problem.worth(begun).makespan;
    let random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut search = Search { problem, room, placed: begun.clone(), limit, random };
    let jobs = problem.jobs.len() as u64;
    search.run((jobs * WORK_A_JOB).clamp(WORK_MIN, WORK_MAX), problem.area())
}

impl Search<'_> {
    fn run(&mut self, work: u64, bound: i64) -> Placed {
        let hosts = self.room.hosts();
        let jobs = (self.problem.jobs.len() as u64).cast_signed();
        let mean = self.problem.jobs.iter().map(|job| job.seconds).sum::<i64>() / jobs.max(1);
        let mut best = (self.worth(), self.placed.clone());
        self.room.work = 0;
        while self.room.work < work && hosts > 0 && best.0.run_time > bound {
            // A step that looks at nothing is work too.
            self.room.work += 1;
            let before = self.worth();
            let left = i128::from(work.saturating_sub(self.room.work));
            let heat = i128::from(mean / HEAT_PART) * left / i128::from(work);
            let undo = self.step();
            let after = self.worth();
            let is_kept =
                after.postponed <= before.postponed && i128::from(after.run_time) <= i128::from(before.run_time) + heat;
            if !is_kept {
                self.undo(undo);
            } else if (after.postponed, after.run_time) < (best.0.postponed, best.0.run_time) {
                best = (after, self.placed.clone());
            }
        }
        best.1
    }

    fn worth(&self) -> Worth {
        let postponed = self.placed.iter().filter(|placement| placement.is_none()).count();
        Worth { postponed, run_time: self.room.run_time(), makespan: self.limit }
    }

    /// Takes jobs out and puts them back elsewhere; where they were.
    fn step(&mut self) -> Vec<(usize, Option<Placement>)> {
        let mut hosts: Vec<usize> = Vec::new();
        for _ in 0..self.random.random_range(1..=HOSTS_MAX) {
            hosts.push(self.random.random_range(0..self.room.hosts()));
        }
        let last = hosts.iter().map(|host| self.room.end(*host)).max().unwrap_or(0);
        let from = if self.random.random() { 0 } else { self.random.random_range(0..=last) };
        let seats = hosts.iter().flat_map(|host| self.room.seats(*host));
        let mut jobs: Vec<usize> = seats.filter(|seat| seat.block.end > from).filter_map(|seat| seat.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs.shuffle(&mut self.random);
        jobs.truncate(self.random.random_range(2..=TAKEN_MAX));
        jobs.extend(self.placed.iter().position(Option::is_none));
        let mut undo = Vec::with_capacity(jobs.len());
        for job in &jobs {
            let placement = self.placed[*job].take();
            placement.iter().for_each(|placement| self.room.take(*job, placement));
            undo.push((*job, placement));
        }
        for _ in 0..OTHERS {
            hosts.push(self.random.random_range(0..self.room.hosts()));
        }
        hosts.sort_unstable();
        hosts.dedup();
        let mut keyed: Vec<(i64, usize)> = Vec::with_capacity(jobs.len());
        for job in jobs {
            let area = self.problem.jobs[job].seconds * (self.problem.jobs[job].seats as u64).cast_signed();
            keyed.push((area * self.random.random_range(2..=6), job));
        }
        keyed.sort_unstable_by_key(|key| Reverse(*key));
        for (_, job) in keyed {
            let found = if self.problem.jobs[job].seats == 1 {
                self.place_one(job, &hosts)
            } else {
                self.place_many(job, &hosts)
            };
            if let Some((placement, sized)) = found {
                self.room.put(job, &sized, &placement);
                self.placed[job] = Some(placement);
            }
        }
        undo
    }

    fn undo(&mut self, undo: Vec<(usize, Option<Placement>)>) {
        for (job, _) in &undo {
            if let Some(placement) = self.placed[*job].take() {
                self.room.take(*job, &placement);
            }
        }
        for (job, placement) in undo {
            if let Some(placement) = &placement {
                self.room.put(job, &self.problem.jobs[job].at(placement.factor), placement);
            }
            self.placed[job] = placement;
        }
    }

    /// Factors that fill what is free at a start, or end with something that runs then.
    fn factors(&mut self, job: usize, host: usize, start: i64) -> Vec<u32> {
        self.room.work += 1;
        let asked = &self.problem.jobs[job];
        let Some(most) = asked.inside(&self.room.free(host, start)) else { return Vec::new() };
        let mut factors = vec![most, asked.plain(), asked.scale.0];
        let running = self.room.seats(host).iter().map(|seat| seat.block.end).filter(|end| *end > start);
        factors.extend(running.filter_map(|end| asked.within(end - start)));
        factors.retain(|factor| *factor <= most);
        factors.sort_unstable();
        factors.dedup();
        factors
    }

    /// The place of a single seat that makes its host end least late.
    fn place_one(&mut self, job: usize, hosts: &[usize]) -> Option<(Placement, Sized)> {
        let asked = &self.problem.jobs[job];
        let mut best: Option<(i64, Placement, Sized)> = None;
        for host in hosts {
            let end = self.room.end(*host);
            let mut starts: Vec<i64> = self.room.seats(*host).iter().map(|seat| seat.block.end).collect();
            starts.push(asked.starts.0);
            starts.retain(|start| *start >= asked.starts.0);
            starts.sort_unstable();
            starts.dedup();
            for start in starts {
                for factor in self.factors(job, *host, start) {
                    let sized = asked.at(factor);
                    if start + sized.seconds > self.limit || start > asked.last_start(sized.seconds) {
                        continue;
                    }
                    let later = (start + sized.seconds - end).max(0);
                    let rise = later + self.random.random_range(0..=later / 8 + 4);
                    if best.as_ref().is_none_or(|(least, ..)| rise < *least)
                        && self.room.fits(*host, start, &sized).is_ok()
                    {
                        best = Some((rise, Placement { start, factor, hosts: vec![*host] }, sized));
                    }
                }
            }
        }
        best.map(|(_, placement, sized)| (placement, sized))
    }

    /// The place of several seats, at the starts that these hosts suggest.
    fn place_many(&mut self, job: usize, hosts: &[usize]) -> Option<(Placement, Sized)> {
        let asked = &self.problem.jobs[job];
        let placed = self.problem.jobs.iter().zip(&self.placed);
        let ends = placed.filter_map(|(job, at)| at.as_ref().map(|at| at.start + job.seconds_at(at.factor)));
        let mut starts: Vec<i64> = ends.filter(|start| *start >= asked.starts.0).collect();
        starts.push(asked.starts.0);
        starts.sort_unstable();
        starts.dedup();
        starts.shuffle(&mut self.random);
        starts.truncate(STARTS_MAX);
        let mut best: Option<(i64, Placement, Sized)> = None;
        for start in starts {
            let mut factors = vec![asked.plain(), asked.scale.0, asked.scale.1];
            for host in hosts {
                factors.extend(self.factors(job, *host, start));
            }
            factors.sort_unstable();
            factors.dedup();
            factors.shuffle(&mut self.random);
            factors.truncate(6);
            for factor in factors {
                let sized = asked.at(factor);
                let end = start + sized.seconds;
                if end > self.limit || start > asked.last_start(sized.seconds) {
                    continue;
                }
                let mut free: Vec<(i64, u32, usize)> = Vec::new();
                for host in 0..self.room.hosts() {
                    let later = (end - self.room.end(host)).max(0);
                    if self.room.fits(host, start, &sized).is_ok() {
                        free.push((later, self.random.random(), host));
                    }
                }
                if free.len() < asked.seats {
                    continue;
                }
                free.sort_unstable();
                free.truncate(asked.seats);
                let later: i64 = free.iter().map(|(later, ..)| later).sum();
                let rise = later + self.random.random_range(0..=later / 8 + 4);
                if best.as_ref().is_none_or(|(least, ..)| rise < *least) {
                    let mut chosen: Vec<usize> = free.into_iter().map(|(.., host)| host).collect();
                    chosen.sort_unstable();
                    best = Some((rise, Placement { start, factor, hosts: chosen }, sized));
                }
            }
        }
        best.map(|(_, placement, sized)| (placement, sized))
    }
}
