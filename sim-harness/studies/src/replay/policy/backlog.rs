//! Waiting jobs in the order of submission, with a quick search for the next one that is narrow or short enough.
//!
//! A binary tree over all jobs submitted keeps, for every part of it, the fewest processors and the shortest planned
//! time of the jobs that wait there; a search passes over parts in which no job can qualify. That keeps backfilling
//! affordable when a hundred thousand jobs wait. Invariant: a part without waiting jobs has the largest values of both.

use crate::replay::job::{JobIndex, Known};

/// Fewest processors and shortest planned time in a part of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Least {
    processors: u32,
    planned_s: u32,
}

const NO_JOB: Least = Least { processors: u32::MAX, planned_s: u32::MAX };

/// What a job may take to qualify.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Any job with at most this many processors.
    pub any_processors: u64,
    /// A job that is planned for less than `short_s` seconds, with at most this many processors.
    pub short_processors: u64,
    /// See `short_processors`.
    pub short_s: i64,
}

impl Room {
    fn admits(&self, least: Least) -> bool {
        let processors = u64::from(least.processors);
        processors <= self.any_processors
            || (processors <= self.short_processors && i64::from(least.planned_s) < self.short_s)
    }
}

/// The waiting jobs.
#[derive(Debug, Default)]
pub struct Backlog {
    /// The root is at 1, the children of `i` at `2 i` and `2 i + 1`, the jobs at `leaves..`.
    tree: Vec<Least>,
    leaves: usize,
}

impl Backlog {
    /// A job begins to wait.
    pub fn insert(&mut self, index: JobIndex, job: &Known) {
        // The largest value means "no job"; a job of 2^32 seconds or processors does not exist.
        let processors = u32::try_from(job.shape.processors()).unwrap_or(u32::MAX - 1);
        let planned_s = u32::try_from(job.planned_s).unwrap_or(u32::MAX - 1);
        if index.at() >= self.leaves {
            self.grow((index.at() + 1).next_power_of_two());
        }
        self.set(index, Least { processors, planned_s });
    }

    fn grow(&mut self, leaves: usize) {
        let waiting = self.tree.split_off(self.leaves);
        self.tree = vec![NO_JOB; 2 * leaves];
        self.tree[leaves..leaves + waiting.len()].copy_from_slice(&waiting);
        self.leaves = leaves;
        (1..leaves).rev().for_each(|at| self.join(at));
    }

    /// A job no longer waits.
    pub fn remove(&mut self, index: JobIndex) {
        self.set(index, NO_JOB);
    }

    /// The job that waits longest.
    pub fn first(&self) -> Option<JobIndex> {
        self.find_from(0, &Room { any_processors: u64::from(u32::MAX - 1), short_processors: 0, short_s: 0 })
    }

    /// The first job after `index` that `room` admits.
    pub fn next_after(&self, index: JobIndex, room: &Room) -> Option<JobIndex> {
        self.find_from(index.at() + 1, room)
    }

    fn set(&mut self, index: JobIndex, least: Least) {
        let mut at = self.leaves + index.at();
        self.tree[at] = least;
        while at > 1 {
            at /= 2;
            self.join(at);
        }
    }

    fn join(&mut self, at: usize) {
        let (left, right) = (self.tree[2 * at], self.tree[2 * at + 1]);
        self.tree[at] =
            Least { processors: left.processors.min(right.processors), planned_s: left.planned_s.min(right.planned_s) };
    }

    fn find_from(&self, first: usize, room: &Room) -> Option<JobIndex> {
        let mut at = self.leaves + first;
        if first >= self.leaves {
            return None;
        }
        loop {
            if room.admits(self.tree[at]) {
                if at >= self.leaves {
                    // There are at most 2^32 jobs.
                    return Some(JobIndex((at - self.leaves) as u32));
                }
                at *= 2;
                continue;
            }
            // On to the next part that begins where this one ends.
            while at % 2 == 1 {
                at /= 2;
                if at == 0 {
                    return None;
                }
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::replay::{job::Job, tests::job};

    /// Whether a search by looking at every waiting job gives the same answer.
    #[test]
    fn searches_find_what_a_walk_over_all_jobs_finds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        for size in [1, 2, 5, 64, 77] {
            let jobs: Vec<Job> =
                (0..size).map(|_| job(0, random.random_range(1..50), 1, random.random_range(1..9))).collect();
            let mut backlog = Backlog::default();
            let mut waiting = vec![false; jobs.len()];
            for _ in 0..400 {
                let at = random.random_range(0..jobs.len());
                waiting[at] = !waiting[at];
                let index = JobIndex(at as u32);
                if waiting[at] {
                    backlog.insert(index, &jobs[at].known);
                } else {
                    backlog.remove(index);
                }
                let room = Room {
                    any_processors: random.random_range(0..9),
                    short_processors: random.random_range(0..9),
                    short_s: random.random_range(0..50),
                };
                let after = random.random_range(0..jobs.len());
                let qualifies = |job: &Job| {
                    let processors = job.known.shape.processors();
                    processors <= room.any_processors
                        || (processors <= room.short_processors && job.known.planned_s < room.short_s)
                };
                let walked = (after + 1..jobs.len()).find(|at| waiting[*at] && qualifies(&jobs[*at]));
                let found = backlog.next_after(JobIndex(after as u32), &room);
                // A part of the tree may mix two jobs, a single job never does.
                assert_eq!(found.map(JobIndex::at), walked);
                assert_eq!(backlog.first().map(JobIndex::at), waiting.iter().position(|waits| *waits));
            }
        }
    }
}
