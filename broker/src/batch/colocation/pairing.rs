//! The source's preprocessor: which jobs are to share hosts, and at which factors (steps 1 to 4 of figure 4.3).
//!
//! Source: section 4.3 of the thesis on co-location; equations 4.2 to 4.11. Invariant: every job is in exactly one group, and the jobs of a
//! group fit together on hosts as most are.

use std::{cell::Cell, cmp::Reverse};

use super::problem::{Job, Needs, Problem, RESOURCES_MAX, Sized};

/// How unlike jobs may be and still be paired; the default is the source's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// How different a demand may be from that for the processor and still count as alike (alpha of equation 4.2), in per cent.
    pub alpha_percent: u64,
    /// How many times larger one of two jobs may be (W of equation 4.5), in per cent.
    pub size_percent: u64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { alpha_percent: 10, size_percent: 175 }
    }
}

/// Most partners of unlike width that are looked at for a job.
const PARTNERS_MAX: usize = 64;

/// The demand for a resource against that for the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Low,
    Alike,
    High,
}
use Level::{Alike, High, Low};

/// The class of a job by memory and input and output.
type Class = (Level, Level);

/// Jobs that are to share hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// The jobs at their factors: the widest first, alone or beside each of the others.
    pub jobs: Vec<(usize, Sized)>,
}

/// Which of a problem's resources is what the source calls so.
#[derive(Debug, Clone, Copy)]
pub(in crate::batch) struct Roles {
    /// The processor.
    pub cpu: usize,
    /// The two others.
    pub others: (usize, usize),
}

struct Pairing<'a> {
    problem: &'a Problem,
    /// What pairs are to fill.
    capacity: Needs,
    thresholds: Thresholds,
    /// Jobs that are in no group yet, with their classes.
    classes: Vec<Option<Class>>,
    /// The scarcest resource.
    scarcest: usize,
    groups: Vec<Group>,
    /// How often two jobs were scaled to each other.
    tried: Cell<u64>,
}

/// Steps 1 to 4.
pub(super) fn groups(problem: &Problem, roles: Roles, thresholds: Thresholds) -> Vec<Group> {
    grouped(problem, roles, thresholds).groups
}

/// How many pairs of jobs steps 1 to 4 scale to each other, which is most of what they take.
pub(in crate::batch) fn pairings_tried(problem: &Problem, roles: Roles, thresholds: Thresholds) -> u64 {
    grouped(problem, roles, thresholds).tried.get()
}

fn grouped(problem: &Problem, roles: Roles, thresholds: Thresholds) -> Pairing<'_> {
    let capacity = problem.usual();
    let classes = problem.jobs.iter().map(|job| Some(class(job, &capacity, roles, thresholds.alpha_percent))).collect();
    let scarcest = scarcest(problem, &capacity);
    let mut pairing =
        Pairing { problem, capacity, thresholds, classes, scarcest, groups: Vec::new(), tried: Cell::new(0) };
    pairing.merge(&[(High, High)], &[(Low, Low)]);
    pairing.merge(&[(Low, High)], &[(High, Low)]);
    // What is left counts for both of the classes that it is nearest to; once it is in a group it is left no longer.
    pairing.merge(&[(Alike, High), (Low, High), (High, High)], &[(Alike, Low), (Low, Low), (High, Low)]);
    pairing.merge(&[(Low, Alike), (Low, Low), (Low, High)], &[(High, Alike), (High, Low), (High, High)]);
    let alone = |job: usize| Group { jobs: vec![(job, whole(&problem.jobs[job], &capacity))] };
    let left = pairing.classes.iter().enumerate().filter(|(_, class)| class.is_some());
    let left: Vec<Group> = left.map(|(job, _)| alone(job)).collect();
    pairing.groups.extend(left);
    pairing
}

/// Equations 4.2 and 4.3, with demands as parts of a host.
fn class(job: &Job, capacity: &Needs, roles: Roles, alpha_percent: u64) -> Class {
    let part = |resource: usize, of: usize| u128::from(job.needs[resource]) * u128::from(capacity[of].max(1));
    let level = |resource: usize| {
        let (own, cpu) = (part(resource, roles.cpu) * 100, part(roles.cpu, resource));
        if own < cpu * u128::from(100_u64.saturating_sub(alpha_percent)) {
            Low
        } else if own > cpu * u128::from(100 + alpha_percent) {
            High
        } else {
            Alike
        }
    };
    (level(roles.others.0), level(roles.others.1))
}

/// The resource of which all jobs together need most for longest.
fn scarcest(problem: &Problem, capacity: &Needs) -> usize {
    let needed = |resource: &usize| {
        let of_job = |job: &Job| u128::from(job.needs[*resource]) * u128::from(job.seconds.cast_unsigned());
        (problem.jobs.iter().map(of_job).sum::<u128>() << 20) / u128::from(capacity[*resource].max(1))
    };
    (0..RESOURCES_MAX).max_by_key(|resource| (needed(resource), Reverse(*resource))).unwrap_or(0)
}

/// Step 4: at the factor at which it fills a host, if it can, else as it is.
pub(super) fn whole(job: &Job, capacity: &Needs) -> Sized {
    let most = |(need, capacity): (&u64, &u64)| (capacity * 1000).checked_div(*need).unwrap_or(u64::MAX);
    let factor = job.needs.iter().zip(capacity).map(most).min().and_then(|factor| u32::try_from(factor).ok());
    let factor = factor.filter(|factor| (job.scale.0..=job.scale.1).contains(factor));
    job.at(factor.unwrap_or(job.plain()))
}

/// What is left of `room` beside a job.
fn beside(room: &Needs, sized: &Sized) -> Option<Needs> {
    let mut left = *room;
    for (left, need) in left.iter_mut().zip(sized.needs) {
        *left = left.checked_sub(need)?;
    }
    Some(left)
}

fn fits(room: &Needs, sized: &Sized) -> bool {
    beside(room, sized).is_some()
}

/// Equation 4.10: the two jobs at the factors at which both have ended first, side by side on one host.
pub(super) fn scaled(one: &Job, other: &Job, capacity: &Needs) -> Option<(Sized, Sized)> {
    let within = |seconds: i64| {
        let pair = (one.at(one.within(seconds)?), other.at(other.within(seconds)?));
        let left = beside(capacity, &pair.0)?;
        fits(&left, &pair.1).then_some(pair)
    };
    let slowest = |job: &Job| job.seconds_at(job.scale.0);
    let (mut never, mut enough) = (0, slowest(one).max(slowest(other)));
    let mut best = within(enough)?;
    while never + 1 < enough {
        let middle = i64::midpoint(never, enough);
        match within(middle) {
            Some(pair) => (best, enough) = (pair, middle),
            None => never = middle,
        }
    }
    Some(best)
}

/// Equations 4.4 and 4.5.
fn are_alike(one: &Job, other: &Job, capacity: &Needs, size_percent: u64) -> bool {
    let size = |job: &Job| {
        let part = |(need, capacity): (&u64, &u64)| (u128::from(*need) << 20) / u128::from((*capacity).max(1));
        job.needs.iter().zip(capacity).map(part).max().unwrap_or(0) * u128::from(job.seconds.cast_unsigned())
    };
    let (one, other) = (size(one), size(other));
    one.max(other) * 100 < one.min(other) * u128::from(size_percent)
}

impl Pairing<'_> {
    /// Two jobs at the factors of equation 4.10, unless they are too unlike, or one after the other would be shorter.
    fn pair(&self, one: usize, other: usize) -> Option<(Sized, Sized)> {
        let (one, other) = (&self.problem.jobs[one], &self.problem.jobs[other]);
        if !are_alike(one, other, &self.capacity, self.thresholds.size_percent) {
            return None;
        }
        self.tried.update(|tried| tried + 1);
        let pair = scaled(one, other, &self.capacity)?;
        (pair.0.seconds.max(pair.1.seconds) <= one.seconds + other.seconds).then_some(pair)
    }

    /// Steps 2 and 3 for two complementary classes, each perhaps of several.
    fn merge(&mut self, one: &[Class], other: &[Class]) {
        let of = |classes: &[Class], is_first: bool| {
            let is_of = |job: &usize| self.classes[*job].is_some_and(|class| classes.contains(&class));
            let mut jobs: Vec<usize> = (0..self.classes.len()).filter(is_of).collect();
            jobs.sort_by_key(|job| {
                let need = i128::from(self.problem.jobs[*job].needs[self.scarcest]);
                (Reverse(self.problem.jobs[*job].seats), if is_first { -need } else { need })
            });
            jobs
        };
        let (first, second) = (of(one, true), of(other, false));
        for job in &first {
            if !self.merge_equal(*job, &second) {
                self.merge_unequal(*job, &second);
            }
        }
        for job in &second {
            self.merge_unequal(*job, &first);
        }
    }

    fn close(&mut self, jobs: Vec<(usize, Sized)>) -> bool {
        jobs.iter().for_each(|(job, _)| self.classes[*job] = None);
        self.groups.push(Group { jobs });
        true
    }

    fn is_left(&self, job: usize) -> bool {
        self.classes[job].is_some()
    }

    /// Merges a job with the first one of as many seats that suits it.
    fn merge_equal(&mut self, job: usize, partners: &[usize]) -> bool {
        let jobs = &self.problem.jobs;
        let suits = |other: &usize| {
            let is_equal = *other != job && self.is_left(*other) && jobs[*other].seats == jobs[job].seats;
            let (one, two) = is_equal.then(|| self.pair(job, *other))??;
            Some(vec![(job, one), (*other, two)])
        };
        let found = if self.is_left(job) { partners.iter().find_map(suits) } else { None };
        found.is_some_and(|group| self.close(group))
    }

    /// Merges a job with several that have as many seats together.
    fn merge_unequal(&mut self, job: usize, partners: &[usize]) -> bool {
        if !self.is_left(job) {
            return false;
        }
        let (capacity, jobs) = (&self.capacity, &self.problem.jobs);
        let seats = jobs[job].seats;
        let is_narrower = |other: &&usize| **other != job && self.is_left(**other) && jobs[**other].seats < seats;
        let narrower: Vec<usize> = partners.iter().filter(is_narrower).copied().collect();
        let group = narrower.iter().take(PARTNERS_MAX).enumerate().find_map(|(at, widest)| {
            let (own, first) = self.pair(job, *widest)?;
            let (left, seconds) = (beside(capacity, &own)?, own.seconds.max(first.seconds));
            let sized = |other: &usize| {
                let sized = jobs[*other].at(jobs[*other].within(seconds)?);
                fits(&left, &sized).then_some((*other, sized))
            };
            let fitting: Vec<(usize, Sized)> = narrower[at + 1..].iter().filter_map(sized).collect();
            let chosen = of_sum(&fitting, |(other, _)| jobs[*other].seats, seats - jobs[*widest].seats)?;
            Some([(job, own), (*widest, first)].into_iter().chain(chosen).collect())
        });
        group.is_some_and(|group| self.close(group))
    }
}

/// The first of these, in their order, whose sizes are `sum` together.
fn of_sum<T: Copy>(items: &[T], size: impl Fn(&T) -> usize, sum: usize) -> Option<Vec<T>> {
    // By sum: the item that reached it first, from the sum without it.
    let mut last: Vec<Option<usize>> = vec![None; sum + 1];
    for (at, item) in items.iter().enumerate() {
        let size = size(item);
        for reached in (size..=sum).rev() {
            let from = reached - size;
            if last[reached].is_none() && (from == 0 || last[from].is_some_and(|before| before < at)) {
                last[reached] = Some(at);
            }
        }
    }
    let (mut left, mut chosen) = (sum, Vec::new());
    while left > 0 {
        let item = &items[last[left]?];
        chosen.push(*item);
        left -= size(item);
    }
    chosen.reverse();
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROLES: Roles = Roles { cpu: 0, others: (1, 2) };
    const CAPACITY: (u64, u64, u64) = (1000, 1000, 1000);

    fn needs((cpu, memory, io): (u64, u64, u64)) -> Needs {
        let mut needs = [0; RESOURCES_MAX];
        needs[..3].copy_from_slice(&[cpu, memory, io]);
        needs
    }

    fn job(seats: usize, seconds: i64, asked: (u64, u64, u64), scale: (u32, u32)) -> Job {
        Job { seats, seconds, needs: needs(asked), scale, starts: (0, i64::MAX / 4), deadline: i64::MAX / 4 }
    }

    /// The jobs of each group with their factors.
    fn grouped(jobs: Vec<Job>) -> Vec<Vec<(usize, u32)>> {
        let problem = Problem { hosts: vec![needs(CAPACITY); 8], taken: vec![Vec::new(); 8], jobs };
        let groups = groups(&problem, ROLES, Thresholds::default());
        groups.into_iter().map(|group| group.jobs.iter().map(|(job, sized)| (*job, sized.factor)).collect()).collect()
    }

    #[test]
    fn a_demand_within_a_tenth_of_that_for_the_processor_is_alike() {
        let levels = [(359, Low), (360, Alike), (400, Alike), (440, Alike), (441, High)];
        for (memory, first) in levels {
            for (io, second) in levels {
                let of = class(&job(1, 1, (400, memory, io), (1000, 1000)), &needs(CAPACITY), ROLES, 10);
                assert_eq!(of, (first, second), "{memory} {io}");
            }
        }
        // Parts of a host count, not amounts.
        let half = needs((1000, 2000, 500));
        assert_eq!(class(&job(1, 1, (400, 800, 300), (1000, 1000)), &half, ROLES, 10), (Alike, High));
    }

    #[test]
    fn complementary_jobs_are_scaled_until_they_fill_a_host() {
        // At their own factors they need 1400 of memory; both end first at 1000 / 1400 of their sizes.
        let jobs = || vec![job(1, 1_000, (400, 1000, 1000), (100, 1000)), job(1, 1_000, (1000, 400, 400), (100, 1000))];
        assert_eq!(grouped(jobs()), [[(0, 714), (1, 714)]]);
        // Two that need little are made larger.
        let small = vec![job(1, 1_000, (100, 300, 300), (500, 4000)), job(1, 1_000, (300, 100, 100), (500, 4000))];
        assert_eq!(grouped(small), [[(0, 2500), (1, 2500)]]);
        // One that shares no class with another stays alone, as large as a host lets it.
        let alike = vec![job(1, 1_000, (400, 400, 400), (500, 3000)), job(1, 1_000, (600, 600, 600), (500, 1200))];
        assert_eq!(grouped(alike), [[(0, 2500)], [(1, 1000)]]);
    }

    #[test]
    fn only_what_is_scaled_counts_as_tried() {
        let high = || job(1, 1_000, (400, 1000, 1000), (100, 1000));
        let low = |seconds: i64| job(1, seconds, (1000, 400, 400), (100, 1000));
        // The second is too unlike in size, the third suits at once, and the last has nobody left.
        let jobs = vec![high(), low(9_000), low(1_000), low(1_000)];
        let problem = Problem { hosts: vec![needs(CAPACITY); 8], taken: vec![Vec::new(); 8], jobs };
        assert_eq!(pairings_tried(&problem, ROLES, Thresholds::default()), 1);
    }

    #[test]
    fn jobs_of_unlike_size_stay_alone_and_so_do_those_that_one_after_the_other_end_sooner() {
        let pair = |seconds: i64, scale: (u32, u32)| {
            grouped(vec![job(1, 1_000, (400, 800, 800), scale), job(1, seconds, (800, 400, 400), scale)]).len()
        };
        assert_eq!([1_749, 1_750].map(|seconds| pair(seconds, (100, 1000))), [1, 2]);
        // At half of their size at most they take as long as one after the other; below it longer.
        assert_eq!([500, 499].map(|most| pair(1_000, (100, most))), [1, 2]);
    }

    #[test]
    fn a_wide_job_shares_its_hosts_with_narrower_ones_only_if_they_are_as_wide_together() {
        let wide = || job(4, 1_000, (200, 800, 800), (100, 1000));
        let narrow = |seats: usize| job(seats, 1_000, (800, 200, 200), (100, 1000));
        let alone = |job: usize| vec![(job, 1000)];
        assert_eq!(
            grouped(vec![wide(), narrow(1), narrow(2), narrow(1)]),
            [vec![(0, 1000), (2, 1000), (1, 1000), (3, 1000)]]
        );
        // What fills no host is made as large as its range lets it: not at all.
        assert_eq!(grouped(vec![wide(), narrow(1), narrow(2)]), [alone(0), alone(1), alone(2)]);
    }

    #[test]
    fn what_is_left_is_paired_with_a_class_that_it_is_near_to() {
        // Alike in memory, high and low in io; the third is low in both, and comes too late for the first.
        let jobs = vec![
            job(1, 1_000, (400, 400, 600), (1000, 1000)),
            job(1, 1_000, (400, 400, 200), (1000, 1000)),
            job(1, 1_000, (600, 400, 200), (1000, 1000)),
        ];
        assert_eq!(grouped(jobs.clone()), [vec![(0, 1000), (1, 1000)], vec![(2, 1000)]]);
        assert_eq!(grouped(vec![jobs[0].clone(), jobs[2].clone()]), [vec![(0, 1000), (1, 1000)]]);
    }

    proptest! {
        #[test]
        fn pairs_end_as_soon_as_the_best_of_all_factors(
            one in (1_i64..40, (1_u64..20, 1_u64..20, 0_u64..20), 1_u32..4),
            other in (1_i64..40, (1_u64..20, 1_u64..20, 0_u64..20), 1_u32..4),
        ) {
            let of = |(seconds, asked, least): (i64, _, u32)| job(1, seconds, asked, (least * 100, least * 100 + 700));
            let (one, other, capacity) = (of(one), of(other), needs((20, 18, 16)));
            let all = |job: &Job| (job.scale.0..=job.scale.1).step_by(1).map(|factor| job.at(factor)).collect::<Vec<_>>();
            let mut least: Option<i64> = None;
            for own in all(&one) {
                let Some(left) = beside(&capacity, &own) else { break };
                // The largest factor that fits beside it ends first.
                let (mut fit, mut no) = (other.scale.0, other.scale.1 + 1);
                if !fits(&left, &other.at(fit)) {
                    continue;
                }
                while fit + 1 < no {
                    let middle = u32::midpoint(fit, no);
                    if fits(&left, &other.at(middle)) { fit = middle } else { no = middle }
                }
                let end = own.seconds.max(other.seconds_at(fit));
                least = Some(least.map_or(end, |least| least.min(end)));
            }
            let found = scaled(&one, &other, &capacity);
            prop_assert_eq!(found.map(|(one, other)| one.seconds.max(other.seconds)), least);
        }
    }
}
