//! A batch of moldable jobs on equally fast hosts, in whole numbers.
//!
//! Source: section 4.2 of the thesis on co-location; `formats.md`, version 2 (`scale`). Invariant: a factor is inside the job's range, and
//! amounts and lengths are rounded up, as everywhere.

use std::collections::BTreeMap;

use crate::{amount::Amount, scale::Factor};

/// Most resources of a batch.
pub(in crate::batch) const RESOURCES_MAX: usize = 8;

/// An amount of each resource; those that the batch does not name are zero.
pub(super) type Needs = [u64; RESOURCES_MAX];

/// A job: seats that start together and last equally long.
#[derive(Debug, Clone)]
pub(in crate::batch) struct Job {
    /// Its seats, each on a host of its own.
    pub seats: usize,
    /// How long each lasts at factor 1000, in seconds.
    pub seconds: i64,
    /// What each takes at factor 1000.
    pub needs: Needs,
    /// The smallest and the largest factor, in thousandths.
    pub scale: (u32, u32),
    /// When it may start, first and last.
    pub starts: (i64, i64),
    /// It must have ended by then.
    pub deadline: i64,
}

/// A job at a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sized {
    pub factor: u32,
    pub seconds: i64,
    pub needs: Needs,
}

impl Job {
    /// The factor at which it is not scaled, or what comes nearest in its range.
    pub fn plain(&self) -> u32 {
        1000.clamp(self.scale.0, self.scale.1)
    }

    /// How long it lasts at this factor.
    pub fn seconds_at(&self, factor: u32) -> i64 {
        (self.seconds.cast_unsigned() * 1000).div_ceil(u64::from(factor)).cast_signed()
    }

    /// The job at this factor.
    pub(super) fn at(&self, factor: u32) -> Sized {
        let needs = self.needs.map(|need| Factor::of_thousandths(factor).amount(Amount(need)).0);
        Sized { factor, seconds: self.seconds_at(factor), needs }
    }

    /// How long it keeps hosts at factor 1000, all of them together.
    pub(super) fn host_seconds(&self) -> i64 {
        self.seconds.saturating_mul((self.seats as u64).cast_signed())
    }

    /// The smallest factor at which it lasts at most so long; none when it always lasts longer.
    pub fn within(&self, seconds: i64) -> Option<u32> {
        let needed = (self.seconds.cast_unsigned() * 1000).div_ceil(seconds.max(1).cast_unsigned());
        let factor = u32::try_from(needed).ok()?.max(self.scale.0);
        (factor <= self.scale.1).then_some(factor)
    }

    /// The largest factor at which it takes at most this; none when it always takes more.
    pub fn inside(&self, room: &[u64]) -> Option<u32> {
        let most = |(need, room): (&u64, &u64)| (room * 1000).checked_div(*need).unwrap_or(u64::MAX);
        let factor = self.needs.iter().zip(room).map(most).min()?.min(u64::from(self.scale.1));
        u32::try_from(factor).ok().filter(|factor| *factor >= self.scale.0)
    }

    /// The last start at which it is in time when it lasts so long.
    pub fn last_start(&self, seconds: i64) -> i64 {
        self.starts.1.min(self.deadline - seconds)
    }
}

/// Something on a host that the batch does not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::batch) struct Block {
    /// From when.
    pub start: i64,
    /// Until when.
    pub end: i64,
    /// How much.
    pub needs: Needs,
}

/// See the module.
#[derive(Debug, Clone)]
pub(in crate::batch) struct Problem {
    /// What each host has.
    pub hosts: Vec<Needs>,
    /// By host: what is on it already.
    pub taken: Vec<Vec<Block>>,
    /// The jobs.
    pub jobs: Vec<Job>,
}

/// Where and when a job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::batch) struct Placement {
    /// The start.
    pub start: i64,
    /// The factor.
    pub factor: u32,
    /// Its hosts.
    pub hosts: Vec<usize>,
}

/// By job; none for one that found no place.
pub(in crate::batch) type Placed = Vec<Option<Placement>>;

/// What a schedule is worth; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::batch) struct Worth {
    /// Jobs without a place.
    pub postponed: usize,
    /// The last ends of all hosts together.
    pub run_time: i64,
    /// The latest end.
    pub makespan: i64,
}

impl Problem {
    /// The most that any host has of each resource.
    pub(super) fn largest(&self) -> Needs {
        std::array::from_fn(|resource| self.hosts.iter().map(|host| host[resource]).max().unwrap_or(0))
    }

    /// What most hosts have, the most of it among equals: that is what pairs are to fill.
    pub(super) fn usual(&self) -> Needs {
        let mut counts: BTreeMap<&Needs, usize> = BTreeMap::new();
        self.hosts.iter().for_each(|host| *counts.entry(host).or_default() += 1);
        counts.into_iter().max_by_key(|(host, count)| (*count, *host)).map_or([0; RESOURCES_MAX], |(host, _)| *host)
    }

    /// What a schedule is worth.
    pub fn worth(&self, placed: &Placed) -> Worth {
        let mut ends = vec![0; self.taken.len()];
        for (job, placement) in self.jobs.iter().zip(placed) {
            let Some(placement) = placement else { continue };
            let end = placement.start + job.seconds_at(placement.factor);
            placement.hosts.iter().for_each(|host| ends[*host] = end.max(ends[*host]));
        }
        Worth {
            postponed: placed.iter().filter(|placement| placement.is_none()).count(),
            run_time: ends.iter().sum(),
            makespan: ends.iter().copied().max().unwrap_or(0),
        }
    }

    /// Whether the job has a place where nothing else is; no other job changes that.
    pub fn could_run(&self, job: &Job) -> bool {
        let least = job.at(job.scale.0).needs;
        let holds = |host: &&Needs| least.iter().zip(*host).all(|(need, capacity)| need <= capacity);
        self.hosts.iter().filter(holds).count() >= job.seats
            && job.starts.0 <= job.last_start(job.seconds_at(job.scale.1))
    }

    /// No schedule of all jobs that could run has a smaller run time: what is needed of the scarcest resource, on hosts that are full until
    /// they end, and not less than any job makes its own hosts end.
    pub fn least_run_time(&self) -> i64 {
        let jobs = || self.jobs.iter().filter(|job| self.could_run(job));
        let largest = self.largest();
        let of_resource = |resource: usize| {
            let needed = |job: &Job| {
                // Amounts are rounded up, so no factor makes the product smaller.
                job.seats as u128 * u128::from(job.needs[resource]) * u128::from(job.seconds.cast_unsigned())
            };
            jobs().map(needed).sum::<u128>().div_ceil(u128::from(largest[resource].max(1)))
        };
        let area = (0..RESOURCES_MAX).map(of_resource).max().unwrap_or(0);
        let alone = |job: &Job| {
            let end = job.starts.0.max(0).saturating_add(job.seconds_at(job.scale.1));
            end.saturating_mul((job.seats as u64).cast_signed())
        };
        i64::try_from(area).unwrap_or(i64::MAX).max(jobs().map(alone).max().unwrap_or(0))
    }
}
