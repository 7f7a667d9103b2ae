//! The hosts with what is on them over time: where a job fits, and when first.
//!
//! Invariant: seats of a host are in the order of their starts; nothing is put where it does not fit.

use std::cmp::Reverse;

use super::problem::{Block, Job, Needs, Placement, Problem, RESOURCES_MAX, Sized};

/// A seat of a job, or what was there before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub job: Option<usize>,
    pub block: Block,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Room {
    pub capacity: Needs,
    hosts: Vec<Vec<Seat>>,
    /// By host: the last end of a job's seat.
    ends: Vec<i64>,
    /// How often something was looked at, for limits of work.
    pub work: u64,
}

fn add(used: &mut Needs, more: &Needs) {
    used.iter_mut().zip(more).for_each(|(used, more)| *used += more);
}

fn exceeds(used: &Needs, needs: &Needs, capacity: &Needs) -> bool {
    (0..RESOURCES_MAX).any(|resource| used[resource] + needs[resource] > capacity[resource])
}

impl Room {
    /// The hosts before any job is placed.
    pub fn of(problem: &Problem) -> Room {
        let seats = |blocks: &Vec<Block>| {
            let mut seats: Vec<Seat> = blocks.iter().map(|block| Seat { job: None, block: *block }).collect();
            seats.sort_by_key(|seat| seat.block.start);
            seats
        };
        let hosts: Vec<Vec<Seat>> = problem.taken.iter().map(seats).collect();
        Room { capacity: problem.capacity, ends: vec![0; hosts.len()], hosts, work: 0 }
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The seats of a host, by start.
    pub fn seats(&self, host: usize) -> &[Seat] {
        &self.hosts[host]
    }

    /// The last end of a job on this host; 0 when it has none.
    pub fn end(&self, host: usize) -> i64 {
        self.ends[host]
    }

    /// The last ends of all hosts together.
    pub fn run_time(&self) -> i64 {
        self.ends.iter().sum()
    }

    /// Whether this fits on a host from `start` on; else the first later start that is not excluded by what was in the way.
    pub fn fits(&mut self, host: usize, start: i64, sized: &Sized) -> Result<(), i64> {
        self.work += 1;
        if exceeds(&[0; RESOURCES_MAX], &sized.needs, &self.capacity) {
            return Err(i64::MAX);
        }
        let end = start + sized.seconds;
        let seats = &self.hosts[host];
        let beside = |seat: &&Seat| seat.block.start < end && start < seat.block.end;
        let at = |time: i64| {
            let mut used = [0; RESOURCES_MAX];
            let here = |seat: &&Seat| seat.block.start <= time && time < seat.block.end;
            seats
                .iter()
                .take_while(|seat| seat.block.start <= time)
                .filter(here)
                .for_each(|seat| add(&mut used, &seat.block.needs));
            exceeds(&used, &sized.needs, &self.capacity)
        };
        let times = seats
            .iter()
            .take_while(|seat| seat.block.start < end)
            .filter(beside)
            .map(|seat| seat.block.start.max(start));
        let mut last = None;
        for time in times {
            if last == Some(time) || !at(time) {
                last = Some(time);
                continue;
            }
            let here = |seat: &&Seat| seat.block.start <= time && time < seat.block.end;
            return Err(seats.iter().filter(here).map(|seat| seat.block.end).min().unwrap_or(i64::MAX));
        }
        Ok(())
    }

    /// What is free on a host at a moment.
    pub fn free(&self, host: usize, time: i64) -> Needs {
        let mut used = [0; RESOURCES_MAX];
        let here = |seat: &&Seat| seat.block.start <= time && time < seat.block.end;
        self.hosts[host].iter().filter(here).for_each(|seat| add(&mut used, &seat.block.needs));
        let mut free = self.capacity;
        free.iter_mut().zip(used).for_each(|(free, used)| *free = free.saturating_sub(used));
        free
    }

    /// The first start from `from` to `latest` at which this fits on a host.
    fn first_on(&mut self, host: usize, from: i64, latest: i64, sized: &Sized) -> Option<i64> {
        let mut start = from;
        while start <= latest {
            match self.fits(host, start, sized) {
                Ok(()) => return Some(start),
                Err(next) => start = next,
            }
        }
        None
    }

    /// As the source's LJF and HDF: at the earliest start, of the hosts that are free those whose last seat ends latest, then by number.
    pub fn earliest(&mut self, job: &Job, sized: &Sized) -> Option<Placement> {
        if job.seats == 0 || job.seats > self.hosts() {
            return None;
        }
        let latest = job.last_start(sized.seconds);
        let mut start = job.starts.0;
        let mut firsts: Vec<(i64, usize)> = (0..self.hosts()).map(|host| (start, host)).collect();
        loop {
            for (first, host) in firsts.iter_mut().filter(|(first, _)| *first <= start) {
                *first = self.first_on(*host, start, latest, sized).unwrap_or(i64::MAX);
            }
            // Before this moment fewer hosts than needed are free together.
            let nth = firsts.select_nth_unstable(job.seats - 1).1.0;
            if nth > latest {
                return None;
            }
            if firsts.iter().all(|(first, _)| *first >= nth) {
                let free = firsts.iter().filter(|(first, _)| *first == nth);
                let mut free: Vec<usize> = free.map(|(_, host)| *host).collect();
                free.sort_by_key(|host| (Reverse(self.ends[*host]), *host));
                free.truncate(job.seats);
                return Some(Placement { start: nth, factor: sized.factor, hosts: free });
            }
            start = nth;
        }
    }

    /// Puts a job where it fits.
    pub fn put(&mut self, job: usize, sized: &Sized, placement: &Placement) {
        let block = Block { start: placement.start, end: placement.start + sized.seconds, needs: sized.needs };
        for host in &placement.hosts {
            let seats = &mut self.hosts[*host];
            let at = seats.partition_point(|seat| seat.block.start <= block.start);
            seats.insert(at, Seat { job: Some(job), block });
            self.ends[*host] = self.ends[*host].max(block.end);
        }
    }

    /// Takes a job away.
    pub fn take(&mut self, job: usize, placement: &Placement) {
        for host in &placement.hosts {
            let seats = &mut self.hosts[*host];
            seats.retain(|seat| seat.job != Some(job));
            let ends = seats.iter().filter(|seat| seat.job.is_some()).map(|seat| seat.block.end);
            self.ends[*host] = ends.max().unwrap_or(0);
        }
    }
}
