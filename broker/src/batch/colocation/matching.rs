//! Which jobs save most host time beside each other: a matching that is as good as exchanges of two or three pairs make it.
//!
//! Beyond the source, whose pairs are the first that suit. Invariant: every job is in exactly one group, and the jobs of a pair fit
//! together on hosts as most are. A search that is ended gives the pairs of its last whole round.

use std::cmp::Reverse;

use super::{
    super::watch::{Patience, Progress, Watch},
    pairing::{Group, scaled},
    problem::{Job, Needs, Problem, RESOURCES_MAX, Sized},
};

/// Most partners that are looked at for a job at a time, those with which it saves most beside what they save now.
const PARTNERS_MAX: usize = 16;
/// How often partners are chosen anew.
const ROUNDS: usize = 4;
/// Most times that all jobs are looked at with the same partners.
const PASSES_MAX: usize = 16;
/// After so many pairs whoever waits is asked whether it goes on.
const ASK_EVERY: u64 = 200_000;
/// A whole host.
const WHOLE: u64 = 1 << 20;
/// No job is longer in what is worked out of it, in seconds: 272 years.
const SECONDS_MAX: u64 = 1 << 33;

/// What is worked out once of a job, with amounts as parts of a host.
struct Sketch {
    seats: i64,
    /// When it may start, first and last.
    starts: (i64, i64),
    /// By itself, at the factor at which that is shortest.
    alone: Sized,
    /// How long it lasts at its largest and at its smallest factor.
    seconds: (u64, u64),
    /// By resource: for how long it would fill a host.
    areas: Needs,
    /// By resource: what it takes at its smallest factor.
    least: Needs,
}

impl Sketch {
    fn of(job: &Job, capacity: &Needs) -> Sketch {
        let part = |need: u64, of: u128, capacity: u64, most: u64| {
            (u128::from(need) * of).div_ceil(u128::from(capacity.max(1))).min(u128::from(most)) as u64
        };
        let (seconds, least) = (u128::from(job.seconds.cast_unsigned()), job.at(job.scale.0).needs);
        let seconds_at = |factor: u32| job.seconds_at(factor).cast_unsigned().min(SECONDS_MAX);
        Sketch {
            seats: (job.seats as u64).cast_signed(),
            starts: job.starts,
            alone: job.at(job.inside(capacity).unwrap_or(job.plain())),
            seconds: (seconds_at(job.scale.1), seconds_at(job.scale.0)),
            areas: std::array::from_fn(|at| part(job.needs[at], seconds, capacity[at], SECONDS_MAX)),
            least: std::array::from_fn(|at| part(least[at], u128::from(WHOLE), capacity[at], WHOLE + 1)),
        }
    }

    /// When both have ended first on one host, but for what rounding takes; none where they never fit.
    fn beside(&self, other: &Sketch, resources: usize) -> Option<u64> {
        if self.starts.0.max(other.starts.0) > self.starts.1.min(other.starts.1) {
            return None;
        }
        let (first, last) = if self.seconds.1 <= other.seconds.1 { (self, other) } else { (other, self) };
        let mut seconds = first.seconds.0.max(last.seconds.0);
        for resource in 0..resources {
            let left = WHOLE.checked_sub(first.least[resource] + last.least[resource])? + last.least[resource];
            let both = first.areas[resource] + last.areas[resource];
            // Later than its end at its smallest factor, a job takes no less.
            let needed = if both <= first.seconds.1 {
                both
            } else {
                (last.areas[resource] * WHOLE / left.max(1)).clamp(first.seconds.1, last.seconds.1)
            };
            seconds = seconds.max(needed);
        }
        Some(seconds)
    }
}

struct Matching {
    sketches: Vec<Sketch>,
    /// Resources behind these are needed by no job.
    resources: usize,
    /// By job: those with which it saves something, most first.
    partners: Vec<Vec<(i64, usize)>>,
    mates: Vec<Option<usize>>,
}

/// The groups, of one job or two.
pub(super) fn groups(problem: &Problem, watch: Watch<'_>) -> Vec<Group> {
    let capacity = problem.usual();
    let is_needed = |resource: &usize| problem.jobs.iter().any(|job| job.needs[*resource] > 0);
    let mut matching = Matching {
        sketches: problem.jobs.iter().map(|job| Sketch::of(job, &capacity)).collect(),
        resources: (0..RESOURCES_MAX).rev().find(is_needed).map_or(0, |last| last + 1),
        partners: Vec::new(),
        mates: vec![None; problem.jobs.len()],
    };
    let (mut patience, mut looked) = (Patience::new(watch, ASK_EVERY), 0);
    for _ in 0..ROUNDS {
        let is_over = || {
            looked += problem.jobs.len() as u64;
            patience.is_over(looked, || Progress { placed: 0, value: None })
        };
        if !matching.round(is_over) {
            break;
        }
    }
    matching.into_groups(problem, &capacity)
}

impl Matching {
    /// The host time that two jobs save beside each other against each by itself, but for what rounding takes.
    fn saved(&self, one: usize, other: usize) -> i64 {
        let (one, other) = (&self.sketches[one], &self.sketches[other]);
        let Some(both) = one.beside(other, self.resources) else { return 0 };
        let apart =
            one.seats.saturating_mul(one.alone.seconds).saturating_add(other.seats.saturating_mul(other.alone.seconds));
        // Where the narrower one is not, the hosts wait for the wider one.
        apart.saturating_sub(one.seats.max(other.seats).saturating_mul(both.cast_signed()))
    }

    /// Chooses partners, and exchanges pairs as long as that saves more; false, and nothing done, when it is over before all have partners.
    fn round(&mut self, mut is_over: impl FnMut() -> bool) -> bool {
        let jobs = 0..self.sketches.len();
        // What a job saves now is the price of taking it; half of it is that of its mate.
        let prices: Vec<i64> = jobs.clone().map(|job| self.saves(job) / 2).collect();
        let partners = jobs.clone().map(|job| (!is_over()).then(|| self.partners_of(job, &prices)));
        let Some(partners) = partners.collect() else { return false };
        self.partners = partners;
        self.take_best_first();
        for _ in 0..PASSES_MAX {
            if !jobs.clone().fold(false, |is_better, job| self.improve(job) | is_better) {
                break;
            }
        }
        true
    }

    fn partners_of(&self, job: usize, prices: &[i64]) -> Vec<(i64, usize)> {
        let others = (0..self.sketches.len()).filter(|other| *other != job);
        let mut partners: Vec<(i64, usize)> = others.map(|other| (self.saved(job, other), other)).collect();
        partners.retain(|(saved, _)| *saved > 0);
        if partners.len() > PARTNERS_MAX {
            partners
                .select_nth_unstable_by_key(PARTNERS_MAX, |(saved, other)| (Reverse(saved - prices[*other]), *other));
            partners.truncate(PARTNERS_MAX);
        }
        partners.sort_unstable_by_key(|(saved, other)| (Reverse(*saved), *other));
        partners
    }

    fn take_best_first(&mut self) {
        let of = |(one, partners): (usize, &Vec<(i64, usize)>)| {
            partners.iter().map(move |(saved, other)| (Reverse(*saved), one, *other)).collect::<Vec<_>>()
        };
        let mut pairs: Vec<(Reverse<i64>, usize, usize)> = self.partners.iter().enumerate().flat_map(of).collect();
        pairs.sort_unstable();
        for (_, one, other) in pairs {
            if self.mates[one].is_none() && self.mates[other].is_none() {
                self.join(one, other);
            }
        }
    }

    fn join(&mut self, one: usize, other: usize) {
        (self.mates[one], self.mates[other]) = (Some(other), Some(one));
    }

    fn part(&mut self, job: usize) -> Option<usize> {
        let mate = self.mates[job].take()?;
        self.mates[mate] = None;
        Some(mate)
    }

    /// What a job saves now.
    fn saves(&self, job: usize) -> i64 {
        self.mates[job].map_or(0, |mate| self.saved(job, mate))
    }

    /// The best partner for one that has none, of those that have none or whose mates find another; what it adds, and who they are.
    fn best_for(&self, job: usize, other: Option<usize>) -> (i64, Option<usize>) {
        let mut best = (0, None);
        let with_other = other.and_then(|other| self.partners[other].first()).map_or(0, |(most, _)| *most);
        for (saved, partner) in &self.partners[job] {
            // Those that follow save no more by themselves; of what another partner adds this is the most that is known.
            if *saved + with_other <= best.0 {
                break;
            }
            let kept = match (self.mates[*partner], other) {
                (Some(mate), Some(other)) if mate != other && *partner != other => self.saved(mate, other).max(0),
                _ => 0,
            };
            let added = *saved - self.saves(*partner) + kept;
            if Some(*partner) != other && added > best.0 {
                best = (added, Some(*partner));
            }
        }
        best
    }

    /// Gives a job another partner, where that saves more after all that are left alone by it have found what is best for them.
    fn improve(&mut self, job: usize) -> bool {
        let now = self.saves(job);
        for at in 0..self.partners[job].len() {
            let (saved, partner) = self.partners[job][at];
            if self.mates[job] == Some(partner) {
                continue;
            }
            let before = now + self.saves(partner);
            let (own, others) = (self.part(job), self.part(partner));
            self.join(job, partner);
            if let (Some(own), Some(others)) = (own, others)
                && let together = self.saved(own, others)
                && together > 0
                && saved + together > before
            {
                self.join(own, others);
                return true;
            }
            let adds = |one: Option<usize>, other| one.map_or((0, None), |one| self.best_for(one, other));
            let (first, second) = (adds(own, others), adds(others, own));
            let (added, one, with, rest) =
                if first.0 >= second.0 { (first.0, own, first.1, others) } else { (second.0, others, second.1, own) };
            if saved + added > before {
                if let (Some(one), Some(with)) = (one, with) {
                    let mate = self.part(with);
                    self.join(one, with);
                    if let (Some(mate), Some(rest)) = (mate, rest)
                        && self.saved(mate, rest) > 0
                    {
                        self.join(mate, rest);
                    }
                }
                return true;
            }
            self.part(job);
            own.iter().for_each(|own| self.join(job, *own));
            others.iter().for_each(|others| self.join(partner, *others));
        }
        false
    }

    /// The pairs at their factors, unless rounding leaves no room for both.
    fn into_groups(self, problem: &Problem, capacity: &Needs) -> Vec<Group> {
        let mut groups = Vec::new();
        let alone = |job: usize| Group { jobs: vec![(job, self.sketches[job].alone)] };
        for (one, mate) in self.mates.iter().enumerate() {
            let Some(other) = *mate else {
                groups.push(alone(one));
                continue;
            };
            // The wider of the two comes first, and each pair once.
            let key = |job: usize| (Reverse(problem.jobs[job].seats), job);
            if key(one) > key(other) {
                continue;
            }
            match scaled(&problem.jobs[one], &problem.jobs[other], capacity) {
                Some((own, others)) => groups.push(Group { jobs: vec![(one, own), (other, others)] }),
                None => groups.extend([one, other].map(alone)),
            }
        }
        groups
    }
}
