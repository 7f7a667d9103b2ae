//! How many hosts could be had at which start, and how much they have free together: what a person asks before a request
//! is written.
//!
//! The sums over hosts change only where some host changes, so one pass over the changes gives every start. Invariant:
//! the steps are exact for the schedules that were given, and a host counts where the planner would take it: both read
//! the same [`Problem`]. Source: section 3.2 of the dissertation, for each start instead of the earliest one.

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    Candidate, Job, Limits, bounds::Judge, check, first_doubtful, miss::Miss, problem::Problem, start_times::OpenRange,
    sweep::Sweep, timeline::Timeline,
};
use crate::{
    amount::Amount,
    request::Effort,
    resources::{Amounts, amount_of},
    time::{Span, Time},
};

/// From `start` on, until the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailabilityStep {
    /// First start for which this holds.
    pub start: Time,
    /// Hosts that have the minima free from there on for the duration.
    pub hosts: usize,
    /// What these hosts have free together all through the duration, of each resource that the request names.
    pub free: Amounts,
}

/// The start at which most hosts could be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// The start.
    pub start: Time,
    /// No start with more hosts at which the request is possible exists.
    pub is_proven: bool,
}

/// What could be had, over all starts of a window; never empty.
pub struct Availability<'a> {
    problem: Problem<'a>,
    steps: Vec<AvailabilityStep>,
    earliest: Time,
    latest: Time,
    /// Whether schedules are exact for all of these starts.
    is_exact: bool,
}

impl<'a> Availability<'a> {
    /// Looks at every start of the job's window. Every candidate has the attributes and the speed that are asked for.
    #[must_use]
    pub fn new(job: &Job<'a>, candidates: &'a [Candidate<'a>]) -> Availability<'a> {
        let (earliest, latest) = (job.earliest, job.latest.max(job.earliest));
        let problem = Problem::new(job, candidates);
        let steps = steps(&problem, earliest, latest);
        let is_exact = first_doubtful(&Job { latest, ..*job }, candidates).is_none();
        Availability { problem, steps, earliest, latest, is_exact }
    }

    /// All steps in order; the last one holds until the latest start.
    #[must_use]
    pub fn steps(&self) -> &[AvailabilityStep] {
        &self.steps
    }

    /// What could be had at `start`; at the earliest start when it is before that.
    #[must_use]
    pub fn at(&self, start: Time) -> &AvailabilityStep {
        let after = self.steps.partition_point(|step| step.start <= start);
        &self.steps[after.saturating_sub(1)]
    }

    /// Where most hosts could be had, the earliest of such starts, among the starts at which the request is possible: some
    /// N of the hosts reach all totals at once. `None` when no such start was found within the limits of `effort`.
    #[must_use]
    pub fn most(&self, effort: Effort, seed: u64) -> Option<Most> {
        let mut judge = Judge::default();
        check::check(&self.problem, &mut judge.picker).ok()?;
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (limits, miss) = (Limits::of(effort), Miss::new(self.earliest));
        let all = OpenRange { first: self.earliest, last: self.latest, hosts: self.problem.every_host() };
        let most = Sweep::new(&self.problem, limits, random, judge, miss, &mut ()).most(&all);
        most.map(|(start, is_proven)| Most { start, is_proven: is_proven && self.is_exact })
    }

    /// At most `count` steps (at least one) that promise no more than there is: neighbours are taken together, with the
    /// least of what any of them has.
    #[must_use]
    pub fn thinned(&self, count: usize) -> Vec<AvailabilityStep> {
        let Some(first) = self.steps.first().filter(|_| self.steps.len() > count) else { return self.steps.clone() };
        let count = count.max(1) as u64;
        let width = (self.latest.since(first.start).0 / count).saturating_add(1);
        let mut thinned: Vec<AvailabilityStep> = Vec::new();
        for piece in 0..count {
            let start = first.start + Span(piece * width);
            if start > self.latest {
                break;
            }
            let end = start + Span(width);
            let position = |time: Time| self.steps.partition_point(|step| step.start < time);
            let mut least = AvailabilityStep { start, ..self.at(start).clone() };
            for step in &self.steps[position(start)..position(end)] {
                least.hosts = least.hosts.min(step.hosts);
                for (name, free) in &mut least.free {
                    *free = (*free).min(amount_of(&step.free, name));
                }
            }
            thinned.push(least);
        }
        thinned
    }
}

fn steps(problem: &Problem<'_>, earliest: Time, latest: Time) -> Vec<AvailabilityStep> {
    let hosts = problem.every_host();
    let mut timeline = Timeline::new(problem);
    let mut steps: Vec<AvailabilityStep> = Vec::new();
    let mut first = earliest;
    while first <= latest {
        let last = timeline.begin(&hosts, first, latest);
        let mut sums = vec![0_i128; problem.width()];
        let add = |sums: &mut [i128], free: Option<&[i64]>, sign: i128| {
            sums.iter_mut().zip(free.into_iter().flatten()).for_each(|(sum, free)| *sum += sign * i128::from(*free));
        };
        (0..hosts.len()).for_each(|host| add(&mut sums, timeline.free(host), 1));
        note(problem, &mut steps, first, timeline.available(), &sums);
        let changes = timeline.take_changes();
        for same_time in changes.chunk_by(|a, b| a.time == b.time) {
            for (host, changes) in timeline.by_host(same_time) {
                add(&mut sums, timeline.free(host), -1);
                timeline.apply(host, changes);
                add(&mut sums, timeline.free(host), 1);
            }
            note(problem, &mut steps, Time(same_time[0].time), timeline.available(), &sums);
        }
        timeline.keep(changes);
        first = Time(last.0 + 1);
    }
    steps
}

/// Adds a step unless it says what the one before it says.
fn note(problem: &Problem<'_>, steps: &mut Vec<AvailabilityStep>, start: Time, hosts: usize, sums: &[i128]) {
    let amounts = sums.iter().map(|sum| Amount(u64::try_from(*sum).unwrap_or(u64::MAX)));
    let free = problem.resources.iter().cloned().zip(amounts).collect();
    if steps.last().is_none_or(|last| (last.hosts, &last.free) != (hosts, &free)) {
        steps.push(AvailabilityStep { start, hosts, free });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        phases::{
            plan,
            tests::{Grid, RawHost, RawRequest, free_on, host, plain_request, request},
        },
        plan::PlanOutcome,
        reason::Reason,
    };

    /// What a look at one start alone tells: hosts, and what they have free of what is asked.
    fn slowly(raw: &RawRequest, start: i64, grid: &Grid) -> (usize, Vec<u64>) {
        let fitting: Vec<_> =
            grid.hosts.iter().filter_map(|(_, host, schedule)| free_on(raw, start, host, schedule)).collect();
        let asked = (0..3).filter(|resource| raw.is_asked(*resource));
        (fitting.len(), asked.map(|resource| fitting.iter().map(|free| free[resource]).sum()).collect())
    }

    proptest! {
        #[test]
        fn every_start_tells_what_the_planner_and_a_look_at_it_alone_tell(
            raw_hosts in prop::collection::vec(host(), 0..7), raw in plain_request(),
            (earliest, reach) in (0_i64..20, 0_i64..50), count in 1_usize..9,
        ) {
            let (grid, request) = (Grid::new(&raw_hosts), request(&raw, "start"));
            let candidates = grid.all();
            let latest = earliest + reach;
            let availability = Availability::new(&Job::of(&request, (Time(earliest), Time(latest))), &candidates);
            let thinned = availability.thinned(count);
            prop_assert!(thinned.len() <= count || thinned == availability.steps());
            let mut best: Option<(usize, i64)> = None;
            for start in earliest..=latest {
                let step = availability.at(Time(start));
                let free: Vec<u64> = step.free.values().map(|free| free.0).collect();
                prop_assert_eq!((step.hosts, free), slowly(&raw, start, &grid), "start {}", start);
                let thin = thinned.iter().rev().find(|thin| thin.start <= Time(start)).unwrap();
                prop_assert!(thin.hosts <= step.hosts && thin.free <= step.free);
                match plan(&Job::of(&request, (Time(start), Time(start))), &candidates, Effort::Thorough, 1, &mut ()) {
                    PlanOutcome::Allocated(_) => {
                        prop_assert!(step.hosts >= request.demand().seats());
                        if best.is_none_or(|(most, _)| step.hosts > most) {
                            best = Some((step.hosts, start));
                        }
                    }
                    PlanOutcome::Rejected(rejection) => {
                        if let Reason::NoWindow { nearest, .. } = rejection.reason {
                            prop_assert_eq!(nearest.hosts_available, step.hosts as u64);
                        }
                    }
                }
            }
            let most = availability.most(Effort::Balanced, 1);
            prop_assert_eq!(most, best.map(|(_, start)| Most { start: Time(start), is_proven: true }));
            if let Some((most, _)) = best {
                prop_assert_eq!(availability.at(Time(best.unwrap().1)).hosts, most);
            }
        }
    }

    /// What there is for these hosts, each with a capacity of the first resource and a use of it from a start for a time.
    fn of_hosts(hosts: [(i64, i64, u64); 3], raw: &RawRequest, check: impl Fn(&Availability<'_>)) {
        let raw_host = |(start, length, used)| -> RawHost { (0, 1000, [4, 0, 0], vec![(start, length, [used, 0, 0])]) };
        let (grid, request) = (Grid::new(&hosts.map(raw_host)), request(raw, "start"));
        check(&Availability::new(&Job::of(&request, (Time(0), Time(50))), &grid.all()));
    }

    #[test]
    fn most_is_where_some_n_hosts_reach_the_totals() {
        let raw = RawRequest {
            seats: 2,
            length: 5,
            per_host: [Some(1), None, None],
            total: [Some(8), None, None],
            ..RawRequest::default()
        };
        of_hosts([(0, 10, 3), (0, 10, 3), (10, 90, 4)], &raw, |availability| {
            assert_eq!(availability.at(Time(0)).hosts, 3);
            assert_eq!(availability.most(Effort::Fast, 1), Some(Most { start: Time(10), is_proven: true }));
            assert_eq!(availability.at(Time(10)).hosts, 2);
        });
    }

    #[test]
    fn full_hosts_do_not_count_when_only_a_total_is_asked() {
        let raw = RawRequest { seats: 3, length: 10, total: [Some(4), None, None], ..RawRequest::default() };
        of_hosts([(0, 0, 0), (0, 100, 4), (0, 100, 4)], &raw, |availability| {
            assert_eq!((availability.at(Time(0)).hosts, availability.most(Effort::Balanced, 1)), (1, None));
        });
    }
}
