//! Better plans by local search: a plan is an order of the jobs that wait, each put where it starts first.
//!
//! First come orders by simple rules, then small changes of the best order. Invariant: the plan never gets worse, and the same seed gives
//! the same plan.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    job::{Job, JobKey, Place, Quality},
    room::Room,
    timetable::{Planned, Timetable},
};

/// Changes concern so many jobs that come first; those behind them follow.
const HEAD_MAX: usize = 64;

type Rule = fn(&Job) -> i64;

/// Orders by rules, ascending: by deadline, by length, by area, by both, by arrival.
const RULES: [Rule; 5] = [
    |job| job.deadline_s.unwrap_or(i64::MAX),
    |job| job.length_s,
    area,
    |job| job.length_s.saturating_mul(area(job)),
    |job| job.arrival_s,
];

fn area(job: &Job) -> i64 {
    let amount = i64::try_from(job.amounts[0].max(1)).unwrap_or(i64::MAX);
    let hosts = i64::try_from(job.hosts).unwrap_or(i64::MAX);
    job.length_s.saturating_mul(hosts).saturating_mul(amount)
}

/// An order of jobs, laid out.
struct Laid<'a> {
    room: &'a mut Room,
    jobs: &'a [Planned],
    order: Vec<usize>,
    /// By job.
    places: Vec<Place>,
    /// By position: what the jobs before it are worth.
    before: Vec<Quality>,
    /// By job: what it is worth if it starts at once.
    ideal: Vec<Quality>,
}

impl Laid<'_> {
    /// What the whole is worth.
    fn quality(&self) -> Quality {
        self.before.last().copied().unwrap_or_default()
    }

    /// Takes another order that differs from `first` on, if its plan is worth more than `least`; else all stays. Returns whether it is.
    fn try_order(&mut self, order: &[usize], first: usize, least: Quality) -> bool {
        for job in &self.order[first..] {
            self.room.take_out(&self.jobs[*job].job, &self.places[*job]);
        }
        let mut hope = self.before[first];
        order[first..].iter().for_each(|job| hope += self.ideal[*job]);
        let mut laid: Vec<Place> = Vec::with_capacity(order.len() - first);
        for job in &order[first..] {
            let Planned { job: what, clusters, .. } = &self.jobs[*job];
            let place = self.room.earliest_of(what, clusters, self.room.now_s).unwrap_or_else(Place::never);
            hope -= self.ideal[*job];
            hope += what.quality_at(place.start_s);
            if hope >= least {
                break;
            }
            self.room.put(what, &place);
            laid.push(place);
        }
        if laid.len() < order.len() - first {
            for (job, place) in order[first..].iter().zip(&laid) {
                self.room.take_out(&self.jobs[*job].job, place);
            }
            for job in &self.order[first..] {
                self.room.put(&self.jobs[*job].job, &self.places[*job]);
            }
            return false;
        }
        for (job, place) in order[first..].iter().zip(laid) {
            self.places[*job] = place;
        }
        self.order.splice(first.., order[first..].iter().copied());
        self.count(first);
        true
    }

    /// Counts again what the jobs are worth, from a position on.
    fn count(&mut self, first: usize) {
        self.before.truncate(first + 1);
        let mut quality = self.before[first];
        for job in &self.order[first..] {
            quality += self.jobs[*job].job.quality_at(self.places[*job].start_s);
            self.before.push(quality);
        }
    }
}

impl Timetable {
    /// Looks at so many other plans of the jobs that wait, and takes the best.
    pub fn improve(&mut self, plans: u32, seed: u64) {
        let keys: Vec<JobKey> = self.starts.iter().map(|(_, key)| *key).collect();
        let jobs: Vec<Planned> = keys.iter().filter_map(|key| self.waiting.get(key)).cloned().collect();
        if plans == 0 || jobs.is_empty() || jobs.len() != keys.len() {
            return;
        }
        let now_s = self.room.now_s;
        let mut laid = Laid {
            room: &mut self.room,
            order: (0..jobs.len()).collect(),
            places: jobs.iter().map(|planned| planned.place.clone()).collect(),
            before: vec![Quality::default()],
            ideal: jobs.iter().map(|planned| planned.job.quality_at(now_s)).collect(),
            jobs: &jobs,
        };
        laid.count(0);
        search(&mut laid, plans, seed);
        for ((key, planned), place) in keys.iter().zip(&jobs).zip(laid.places) {
            self.starts.remove(&(planned.place.start_s, *key));
            self.starts.insert((place.start_s, *key));
            if let Some(planned) = self.waiting.get_mut(key) {
                planned.place = place;
            }
        }
    }
}

fn search(laid: &mut Laid<'_>, plans: u32, seed: u64) {
    let (mut random, mut left) = (Xoshiro256PlusPlus::seed_from_u64(seed), plans);
    let as_it_is = laid.order.clone();
    laid.try_order(&as_it_is, 0, laid.quality());
    for rule in RULES.iter().take(plans as usize) {
        let mut order = as_it_is.clone();
        order.sort_by_key(|job| (rule(&laid.jobs[*job].job), *job));
        laid.try_order(&order, 0, laid.quality());
        left -= 1;
    }
    let head = laid.order.len().min(HEAD_MAX);
    if head < 2 {
        return;
    }
    for _ in 0..left {
        let (from, to) = (random.random_range(0..head), random.random_range(0..head));
        let mut order = laid.order.clone();
        let job = order.remove(from);
        order.insert(to, job);
        laid.try_order(&order, from.min(to), laid.quality());
    }
}
