//! Requests whose seats talk to each other: all last as long as the slowest of their hosts makes them.
//!
//! For each length that some host gives by itself, the shortest first (by cost, the one that may cost least), the hosts that are fast enough are planned as if every seat lasted
//! that long; a set without the slowest of them is found again, no worse, at its own length. So the best of all lengths is the best.
//! Source: `formats.md`, version 2 (`traffic`). Invariant: the seats of a plan end together, and the links bear them until then.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    Job, Phase, PhaseObserver,
    as_good::cost_limit,
    best_solution,
    bounds::Judge,
    limits::Limits,
    linked,
    links::Overload,
    market::Market,
    miss::{self, Miss},
    optimize,
    problem::{Problem, Slot},
    rejected, reserve, spend,
    sweep::Sweep,
};
use crate::{
    cost::Cost,
    ids::ShapeNumber,
    objective::{self, Measures, Objective},
    plan::{ObjectiveValue, Plan, PlanOutcome},
    reason::{NearestMiss, Reason},
    request::ObjectiveKind,
    time::Time,
};

/// A set of hosts at a start, for the length that they were planned with.
struct Found {
    value: i64,
    start: Time,
    hosts: Vec<u32>,
}

/// A search over all lengths, and what is known after some of them.
struct Run<'r> {
    /// What phase II found.
    largest: &'r [i64],
    limits: Limits,
    random: Xoshiro256PlusPlus,
    judge: Judge,
    best: Option<Found>,
    unproven: Option<(i64, Time)>,
    cheapest: Option<Option<i64>>,
    overload: Option<Overload>,
    /// Where each length came nearest.
    misses: Vec<(i64, Miss)>,
}

/// The best plan over all lengths. `largest` is what phase II found.
pub(crate) fn plan<O: PhaseObserver>(
    problem: &mut Problem<'_>,
    job: &Job<'_>,
    limits: &Limits,
    largest: &[i64],
    (random, judge): (Xoshiro256PlusPlus, Judge),
    observer: &mut O,
) -> PlanOutcome {
    let (objective, own) = (objective::of(job.objective), problem.lengths.clone());
    let mut lengths = own.clone();
    lengths.sort_unstable();
    // For shorter ones there are too few hosts.
    lengths.drain(..problem.pick - 1);
    lengths.dedup();
    let mut run = Run {
        largest,
        limits: *limits,
        random,
        judge,
        best: None,
        unproven: None,
        cheapest: None,
        overload: None,
        misses: Vec::new(),
    };
    // What begins first of all shortens the search for whatever should begin or end early.
    let is_early = matches!(job.objective, ObjectiveKind::Start | ObjectiveKind::Finish) && job.earliest < job.latest;
    let firsts = lengths.iter().filter(|_| is_early).map(|length| (*length, job.earliest, 0));
    for (length, latest, least) in firsts.chain(by_least(problem, job, &own, &lengths)) {
        // The same cost is better at an earlier start.
        let is_no_better = |best: &Found| (best.value, best.start) <= (least, job.earliest);
        if job.objective == ObjectiveKind::Cost && run.best.as_ref().is_some_and(is_no_better) {
            continue;
        }
        let Some(last) = last_start(job, run.best.as_ref(), length) else { continue };
        let latest = latest.min(last);
        problem.set_length(job, &own, length);
        let job = Job { latest, ..*job };
        if let Some(best) = run.best.as_ref().filter(|_| job.objective == ObjectiveKind::Cost) {
            problem.budget = problem.budget.min(best.value);
        }
        run.plan_length(problem, &job, objective, observer);
    }
    observer.enter(Phase::Optimize);
    match run.best.take() {
        Some(best) => {
            let plan = planned(problem, job, objective, &own, best, observer);
            PlanOutcome::Allocated(with_proofs(plan, run.unproven))
        }
        None => {
            let reason = run.reason(problem, job, &own);
            rejected(reason, run.unproven.is_none())
        }
    }
}

/// The lengths with the latest start and what N seats cost at least; by cost the one where that is least first, which soon excludes others.
fn by_least(problem: &mut Problem<'_>, job: &Job<'_>, own: &[i64], lengths: &[i64]) -> Vec<(i64, Time, i64)> {
    let mut least = |length: &i64| {
        if job.objective != ObjectiveKind::Cost {
            return (*length, job.latest, 0);
        }
        problem.set_length(job, own, *length);
        let least = problem.costs.as_ref().map_or(0, |costs| spend::least(&Market::at_best(problem, costs)));
        (*length, job.latest, least)
    };
    let mut lengths: Vec<_> = lengths.iter().map(&mut least).collect();
    lengths.sort_by_key(|(.., least)| *least);
    lengths
}

impl Run<'_> {
    /// Plans all seats with the length that the problem has.
    fn plan_length<O: PhaseObserver>(
        &mut self,
        problem: &Problem<'_>,
        job: &Job<'_>,
        objective: &'static dyn Objective,
        observer: &mut O,
    ) {
        let judge = std::mem::take(&mut self.judge);
        let mut sweep = Sweep::new(problem, self.limits, self.random.clone(), judge, Miss::new(job.earliest), observer);
        let mut found = None;
        // Numbers by site do not tell sites that the request has anyway from others.
        let is_by_number =
            !problem.is_binding.contains(&true) && problem.sites.as_ref().is_none_or(|limit| limit.kept == 0);
        match &problem.links {
            Some(links) if is_by_number => {
                let nodes_max = sweep.limits.feasibility_nodes_in_all;
                let cost_most = self.best.as_ref().map_or(i64::MAX, |best| best.value);
                let search =
                    linked::Search::run(problem, links, objective, (job.earliest, job.latest), (nodes_max, cost_most));
                sweep.nodes_left = search.nodes_left();
                (sweep.unproven, sweep.overload) = (search.unproven, search.overload);
                sweep.too_dear = search.too_dear();
                sweep.miss.note(search.most.0, Miss::too_few(search.most.1, problem.pick));
                found = search.best.map(|best| Found { value: best.value, start: best.start, hosts: best.hosts });
            }
            _ => {
                if let Some(solution) = best_solution(problem, job, objective, self.largest, &mut sweep) {
                    let hosts = solution.chosen.iter().map(|at| solution.slot.hosts[*at as usize]).collect();
                    found = Some(Found { value: solution.value, start: solution.slot.start, hosts });
                }
                let together = problem.length_max * problem.pick.cast_signed() as i64;
                let least = Measures { longest: problem.length_max, together, cost: 0 };
                let open = sweep.first_unproven.map(|start| (objective.value(start.0, least), start));
                sweep.unproven = sweep.unproven.or(open);
            }
        }
        self.limits.feasibility_nodes_in_all = sweep.nodes_left;
        let Sweep { random, judge, unproven, too_dear, overload, miss, .. } = sweep;
        (self.random, self.judge) = (random, judge);
        self.unproven = self.unproven.into_iter().chain(unproven).min();
        // The least cost is known when it is known of every length at which hosts were too dear.
        self.cheapest = match (self.cheapest, too_dear) {
            (Some(one), Some(other)) => Some(one.zip(other).map(|(one, other)| one.min(other))),
            (one, other) => one.or(other),
        };
        self.overload = self.overload.or(overload);
        self.misses.push((problem.length_max, miss));
        let is_better =
            |found: &Found| self.best.as_ref().is_none_or(|best| (found.value, found.start) < (best.value, best.start));
        if let Some(found) = found.filter(is_better) {
            self.best = Some(found);
        }
    }

    /// Why there is no plan.
    fn reason(&mut self, problem: &mut Problem<'_>, job: &Job<'_>, own: &[i64]) -> Reason {
        let (asked, picker) = (problem.pick as u64, &mut self.judge.picker);
        match (self.unproven, self.cheapest, job.budget, self.overload) {
            (Some((_, start)), ..) => Reason::SearchLimit { asked, nearest: miss::look(problem, start, picker).1 },
            (None, Some(cheapest), Some(budget), _) => {
                Reason::Budget { budget, cheapest: cheapest.map(|cheapest| Cost(cheapest.unsigned_abs())) }
            }
            (None, _, _, Some(Overload { start, site, seats, load, room })) => {
                let host = problem.links.as_ref().and_then(|links| links.of.iter().position(|of| *of as usize == site));
                // A site is numbered by its hosts.
                let site = problem.hosts[host.unwrap_or_default()].site.clone();
                Reason::Uplink { site, start, seats: seats as u64, load, room }
            }
            _ => {
                let mut nearest: Option<NearestMiss> = None;
                for (length, miss) in &self.misses {
                    problem.set_length(job, own, *length);
                    let other = miss.describe(problem, picker);
                    if nearest.as_ref().is_none_or(|nearest| other.hosts_available > nearest.hosts_available) {
                        nearest = Some(other);
                    }
                }
                let none = NearestMiss { start: job.earliest, hosts_available: 0, short: Vec::new(), cuts: Vec::new() };
                Reason::NoWindow { asked, nearest: nearest.unwrap_or(none) }
            }
        }
    }
}

/// The last start at which seats of this length, longer than those before, may be better than the best so far.
fn last_start(job: &Job<'_>, best: Option<&Found>, length: i64) -> Option<Time> {
    let last = match (best, job.objective) {
        (None, _) | (_, ObjectiveKind::Cost) => job.latest,
        (Some(best), ObjectiveKind::Start) => Time(best.start.0 - 1),
        (Some(best), ObjectiveKind::Finish) => Time(best.value - length),
        (Some(_), ObjectiveKind::Runtime | ObjectiveKind::HostTime) => return None,
    };
    let last = job.latest.min(last);
    (last >= job.earliest).then_some(last)
}

/// The plan with its seats on these hosts, or on more efficient ones of the same sites.
fn planned<O: PhaseObserver>(
    problem: &mut Problem<'_>,
    job: &Job<'_>,
    objective: &'static dyn Objective,
    own: &[i64],
    found: Found,
    observer: &mut O,
) -> Plan {
    let Found { value, start, mut hosts } = found;
    let most = cost_limit(problem, objective, start, value);
    let mut slot = slot_of(problem, job, own, &hosts, start);
    let mut chosen: Vec<u32> = hosts.iter().map(|host| slot.position_of(*host)).collect();
    let busy = busiest(problem, &slot, &chosen);
    let factor = |chosen: &[u32]| optimize::factor(problem, &slot, chosen);
    if problem.accepts(&slot, &busy) && problem.cost_of(&slot, &busy) <= most && factor(&busy) > factor(&chosen) {
        hosts = busy.iter().map(|at| slot.hosts[*at as usize]).collect();
        slot = slot_of(problem, job, own, &hosts, start);
        chosen = hosts.iter().map(|host| slot.position_of(*host)).collect();
    }
    observer.enter(Phase::Reserve);
    let efficiency = optimize::factor(problem, &slot, &chosen);
    let seats = reserve::seats(problem, &slot, &mut chosen, most);
    let value = objective.value(start.0, Measures::of(&seats));
    Plan {
        shape: ShapeNumber::default(),
        start,
        seats,
        traffic: job.demand.traffic(),
        scale: job.demand.factor(),
        objective: ObjectiveValue { kind: job.objective, value, bound: Some(value) },
        efficiency,
        // Neither other sites nor other lengths were looked at; no factor is above 1.
        efficiency_bound: efficiency.max(1.0),
        start_proven: true,
    }
}

/// A plan with what was neither reached nor excluded.
fn with_proofs(mut plan: Plan, unproven: Option<(i64, Time)>) -> Plan {
    let value = plan.objective.value;
    plan.objective.bound = Some(unproven.map_or(value, |(least, _)| least.min(value)));
    plan.start_proven = unproven.is_none_or(|open| open > (value, plan.start));
    plan
}

/// The slot of a start when all seats last as long as these hosts make them.
fn slot_of(problem: &mut Problem<'_>, job: &Job<'_>, own: &[i64], hosts: &[u32], start: Time) -> Slot {
    let length = hosts.iter().map(|host| own[*host as usize]).max().unwrap_or(problem.length_max);
    problem.set_length(job, own, length);
    problem.slot_at(start)
}

/// As many positions of each site as are chosen there, of the hosts that are used most.
fn busiest(problem: &Problem<'_>, slot: &Slot, chosen: &[u32]) -> Vec<u32> {
    let Some(links) = &problem.links else { return chosen.to_vec() };
    let width = problem.width();
    let site = |at: u32| links.of[slot.hosts[at as usize] as usize] as usize;
    let mut left = vec![0_usize; links.sites()];
    chosen.iter().for_each(|at| left[site(*at)] += 1);
    let free_part = |at: u32| -> f64 {
        let host = slot.hosts[at as usize] as usize;
        let of = |column: usize| {
            slot.free[at as usize * width + column] as f64 / problem.capacity[host * width + column].max(1) as f64
        };
        (0..problem.resources.len()).map(of).sum()
    };
    let mut order: Vec<(f64, u32)> = (0..slot.len() as u32).map(|at| (free_part(at), at)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut take = |at: &u32| {
        let left = &mut left[site(*at)];
        let is_taken = *left > 0;
        *left -= usize::from(is_taken);
        is_taken
    };
    order.into_iter().map(|(_, at)| at).filter(|at| take(at)).collect()
}
