//! The hosts with what is on them over time: where a job fits, and when first.
//!
//! Invariant: the steps of a host are in the order of their times, the first begins before all time, and no two that follow each other are
//! alike; nothing is put where it does not fit.

use std::cmp::Reverse;

use super::problem::{Block, Job, Needs, Placement, Problem, RESOURCES_MAX, Sized};

/// A job on a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub job: usize,
    pub end: i64,
}

/// What is used on a host from a moment until the next step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub time: i64,
    pub used: Needs,
}

#[derive(Debug, Clone)]
struct Host {
    steps: Vec<Step>,
    seats: Vec<Seat>,
    /// The last end of a job's seat.
    end: i64,
    /// Hosts with the same on them have the same; others hardly ever.
    print: u64,
}

/// What a seat adds to the print of its host.
fn print(job: usize, block: &Block) -> u64 {
    let mixed = (job as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ block.start.cast_unsigned().rotate_left(20);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9).wrapping_add(block.end.cast_unsigned());
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 29)
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Room {
    /// Of the largest host; what another has less is used there at all times.
    pub capacity: Needs,
    /// Resources behind these are not looked at: no job needs any.
    resources: usize,
    hosts: Vec<Host>,
    run_time: i64,
    /// How often something was looked at, for limits of work.
    pub work: u64,
}

impl Host {
    fn new(resources: usize, number: usize, lacking: Needs, blocks: &[Block]) -> Host {
        let mix = |mixed: u64, lack: &u64| (mixed ^ lack).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let steps = vec![Step { time: i64::MIN, used: lacking }];
        let mut host = Host { steps, seats: Vec::new(), end: 0, print: lacking.iter().fold(0, mix) };
        for block in blocks {
            host.change(resources, block, true);
            // No other host is like one that something is on already.
            host.print ^= print(number, block);
        }
        host
    }

    /// The step in which a moment lies.
    fn step_at(&self, time: i64) -> usize {
        // Most often asked for what is at the end.
        if self.steps[self.steps.len() - 1].time <= time {
            return self.steps.len() - 1;
        }
        self.steps.partition_point(|step| step.time <= time) - 1
    }

    /// The step that begins at this moment, new if need be.
    fn cut(&mut self, time: i64) -> usize {
        let at = self.step_at(time);
        if self.steps[at].time == time {
            return at;
        }
        self.steps.insert(at + 1, Step { time, ..self.steps[at] });
        at + 1
    }

    /// Leaves out a step that is like the one before it.
    fn join(&mut self, resources: usize, at: usize) {
        if at > 0 && self.steps[at].used[..resources] == self.steps[at - 1].used[..resources] {
            self.steps.remove(at);
        }
    }

    /// Adds what a block needs, or takes it away.
    fn change(&mut self, resources: usize, block: &Block, is_more: bool) {
        let first = self.cut(block.start);
        let last = self.cut(block.end);
        for step in &mut self.steps[first..last] {
            for (used, need) in step.used[..resources].iter_mut().zip(&block.needs) {
                *used = if is_more { *used + need } else { *used - need };
            }
        }
        self.join(resources, last);
        self.join(resources, first);
    }
}

impl Room {
    /// The hosts before any job is placed.
    pub fn of(problem: &Problem) -> Room {
        let is_needed = |resource: &usize| problem.jobs.iter().any(|job| job.needs[*resource] > 0);
        let resources = (0..RESOURCES_MAX).rev().find(is_needed).map_or(0, |last| last + 1);
        let capacity = problem.largest();
        let host = |(number, (own, blocks)): (usize, (&Needs, &Vec<Block>))| {
            let lacking = std::array::from_fn(|resource| capacity[resource] - own[resource]);
            Host::new(resources, number, lacking, blocks)
        };
        let hosts = problem.hosts.iter().zip(&problem.taken).enumerate().map(host).collect();
        Room { capacity, resources, hosts, run_time: 0, work: 0 }
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The same for hosts with the same on them.
    pub fn print(&self, host: usize) -> u64 {
        self.hosts[host].print
    }

    /// How many resources are looked at.
    pub fn resources(&self) -> usize {
        self.resources
    }

    /// The seats of jobs on a host.
    pub fn seats(&self, host: usize) -> &[Seat] {
        &self.hosts[host].seats
    }

    /// What is used on a host over time.
    pub fn steps(&self, host: usize) -> &[Step] {
        &self.hosts[host].steps
    }

    /// The last end of a job on this host; 0 when it has none.
    pub fn end(&self, host: usize) -> i64 {
        self.hosts[host].end
    }

    /// The last ends of all hosts together.
    pub fn run_time(&self) -> i64 {
        self.run_time
    }

    fn exceeds(&self, step: &Step, needs: &Needs) -> bool {
        let both = step.used[..self.resources].iter().zip(needs).zip(&self.capacity);
        both.fold(false, |exceeds, ((used, need), capacity)| exceeds | (used + need > *capacity))
    }

    /// Whether this fits on a host from `start` on; else the first later start that is not excluded by what was in the way.
    pub fn fits(&mut self, host: usize, start: i64, sized: &Sized) -> Result<(), i64> {
        let end = start + sized.seconds;
        let steps = &self.hosts[host].steps;
        let first = self.hosts[host].step_at(start);
        for (at, step) in steps.iter().enumerate().skip(first) {
            if step.time >= end {
                break;
            }
            self.work += 1;
            if self.exceeds(step, &sized.needs) {
                return Err(steps.get(at + 1).map_or(i64::MAX, |next| next.time));
            }
        }
        Ok(())
    }

    /// Until when at least this fits on a host from `start` on, however long it lasts; `start` where it does not.
    pub fn free_until(&mut self, host: usize, start: i64, needs: &Needs) -> i64 {
        let first = self.hosts[host].step_at(start);
        let steps = &self.hosts[host].steps[first..];
        let free = steps.iter().take_while(|step| !self.exceeds(step, needs)).count();
        let until = steps.get(free).map_or(i64::MAX, |step| step.time.max(start));
        self.work += free as u64 + 1;
        until
    }

    /// The step of a host in which a moment lies.
    pub fn step_at(&self, host: usize, time: i64) -> usize {
        self.hosts[host].step_at(time)
    }

    /// When something that takes at least this may begin in a step, from `earliest` on, where something else has just ended.
    pub fn start_in(&self, host: usize, at: usize, earliest: i64, needs: &Needs) -> Option<i64> {
        let steps = &self.hosts[host].steps;
        let step = &steps[at];
        if step.time <= earliest {
            let is_last = steps.get(at + 1).is_none_or(|next| next.time > earliest);
            return (is_last && !self.exceeds(step, needs)).then_some(earliest);
        }
        let before = &steps[at - 1].used;
        let is_less = (0..self.resources).any(|resource| step.used[resource] < before[resource]);
        (is_less && !self.exceeds(step, needs)).then_some(step.time)
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
                free.sort_by_key(|host| (Reverse(self.end(*host)), *host));
                free.truncate(job.seats);
                return Some(Placement { start: nth, factor: sized.factor, hosts: free });
            }
            start = nth;
        }
    }

    /// Puts a job where it fits.
    pub fn put(&mut self, job: usize, sized: &Sized, placement: &Placement) {
        let Placement { start, hosts, .. } = placement;
        let block = Block { start: *start, end: *start + sized.seconds, needs: sized.needs };
        for host in hosts {
            let host = &mut self.hosts[*host];
            host.change(self.resources, &block, true);
            host.print ^= print(job, &block);
            host.seats.push(Seat { job, end: block.end });
            self.run_time += (block.end - host.end).max(0);
            host.end = host.end.max(block.end);
        }
    }

    /// Takes a job away that was put there.
    pub fn take(&mut self, job: usize, sized: &Sized, placement: &Placement) {
        let block = Block { start: placement.start, end: placement.start + sized.seconds, needs: sized.needs };
        for host in &placement.hosts {
            let host = &mut self.hosts[*host];
            host.change(self.resources, &block, false);
            host.print ^= print(job, &block);
            host.seats.retain(|seat| seat.job != job);
            let end = host.seats.iter().map(|seat| seat.end).max().unwrap_or(0);
            self.run_time -= host.end - end;
            host.end = end;
        }
    }
}
