//! `colocate:set`, `colocate:partition` and `colocate:best`: moldable requests that share equally fast hosts, for the least
//! run time.
//!
//! Source: chapter 4 of the thesis on co-location. Invariant: no schedule has a run time below the bound; `best` is never worse
//! than the two forms of the source and the order without them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::PolicyError;
use crate::{
    amount::{Amount, format_amount},
    batch::{
        BatchError, BatchObjective, Order,
        colocation::{
            self, Block, Job, Placed, Placement, Problem, RESOURCES_MAX, Roles, Thresholds, Turns, Worth, matched,
            partition, plain, search, set,
        },
        policy::{Options, Policy},
        run::Run,
        watch::Watch,
    },
    demand::{Demand, Unmet},
    host::Speed,
    offline::{Asked, OfflinePlanner},
    phases::Candidate,
    plan::Plan,
    reason::Absence,
    request::Request,
    resources::{ResourceName, amount_of},
    scale::Factor,
    time::{Time, Window},
};

/// What is never reached.
const NEVER: i64 = i64::MAX / 4;

/// What becomes of the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColocationForm {
    /// Each pair is placed as one.
    Set,
    /// The requests of a pair are placed one after the other.
    Partition,
    /// The best of these and of the order without pairs, improved by search.
    Best,
}
use ColocationForm as Form;

struct Colocation {
    form: Form,
    thresholds: Thresholds,
}

/// The policy with other thresholds than the source's, to find out what they do.
#[must_use]
pub fn colocation(form: ColocationForm, thresholds: Thresholds) -> Box<dyn Policy> {
    Box::new(Colocation { form, thresholds })
}

/// How many pairs of requests the source's pairing scales to each other in a batch; none where its three resources are not told apart.
#[must_use]
pub fn pairings_tried(planner: &OfflinePlanner, requests: &[Asked], thresholds: Thresholds) -> Option<u64> {
    let options = Options::default();
    let run = Run::new(planner, requests, &options, Watch::NOBODY);
    let (names, all) = (resources(&run), (0..requests.len()).collect::<Vec<_>>());
    Some(colocation::pairings_tried(&problem(&run, &names, &all), roles(&names)?, thresholds))
}

/// Makes the policy.
///
/// # Errors
/// It takes one of the three forms.
pub(super) fn make(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    let form = match parameter {
        Some("set") => Form::Set,
        Some("partition") => Form::Partition,
        Some("best") => Form::Best,
        got => {
            let (expected, got) = ("colocate:set, colocate:partition or colocate:best", got.unwrap_or_default());
            return Err(PolicyError::Parameter { policy: "colocate", expected, got: got.to_owned() });
        }
    };
    Ok(colocation(form, Thresholds::default()))
}

impl Policy for Colocation {
    fn name(&self) -> String {
        let form = match self.form {
            Form::Set => "set",
            Form::Partition => "partition",
            Form::Best => "best",
        };
        format!("colocate:{form}")
    }

    fn objective(&self) -> Option<BatchObjective> {
        Some(BatchObjective::RunTime)
    }

    fn ignores(&self) -> &'static [&'static str] {
        &["alternatives", "overlap", "shapes"]
    }

    fn check(&self, run: &Run<'_>) -> Result<(), BatchError> {
        let refused = |what: String| Err(BatchError::Refused { policy: self.name(), what });
        if !matches!(run.options.order, Order::File | Order::Lpt | Order::Hdf) {
            return refused("the order is lpt (the default) or hdf".to_owned());
        }
        // Where nothing costs anything, every budget is kept.
        if run.options.budget.is_some() && run.planner.has_prices() {
            return refused("a budget of the batch cannot be kept".to_owned());
        }
        Ok(())
    }

    fn untreated(&self, run: &Run<'_>, requests: &[usize]) -> BTreeMap<usize, String> {
        let mut left = BTreeMap::new();
        let kept = self.with_few_resources(run, requests, &mut left);
        with_equal_hosts(run, kept, &mut left);
        left
    }

    fn plan(&self, run: &mut Run<'_>) -> Vec<Option<Plan>> {
        let (names, is_served) = (resources(run), |at: &usize| run.requests[*at].request().is_some());
        let requests: Vec<usize> = (0..run.requests.len()).filter(is_served).collect();
        let hosts: Vec<usize> = usable(run, &requests).into_iter().map(|(host, _)| host).collect();
        let problem = problem(run, &names, &requests);
        let turns = if run.options.order == Order::Hdf { Turns::Highest } else { Turns::Longest };
        let placed = match (self.form, roles(&names)) {
            (Form::Set, Some(roles)) => set(&problem, roles, self.thresholds, turns),
            (Form::Partition, Some(roles)) => partition(&problem, roles, self.thresholds, turns),
            (_, roles) => best(&problem, roles.map(|roles| (roles, self.thresholds)), turns, run.watch),
        };
        run.proven = Some(problem.least_run_time());
        plans(run, &requests, &hosts, &placed)
    }
}

impl Colocation {
    /// Those of the requests, in their order, whose demands it looks at and that name few enough resources together; why not, of the `left`.
    fn with_few_resources(&self, run: &Run<'_>, requests: &[usize], left: &mut BTreeMap<usize, String>) -> Vec<usize> {
        let cpu = ResourceName::cpu();
        let is_paired = self.form != Form::Best;
        let most = if is_paired { 3 } else { RESOURCES_MAX };
        let mut names: BTreeSet<ResourceName> = is_paired.then(|| cpu.clone()).into_iter().collect();
        let mut kept = Vec::new();
        for at in requests {
            let Some(request) = run.requests[*at].request() else { continue };
            let with: BTreeSet<ResourceName> = names.iter().cloned().chain(request.demand().resources()).collect();
            let why = untreated(request).map(str::to_owned);
            let why = why.or_else(|| (with.len() > most).then(|| self.too_many(most)));
            match why {
                Some(why) => drop(left.insert(*at, why)),
                None => {
                    names = with;
                    kept.push(*at);
                }
            }
        }
        let names_cpu =
            |at: &usize| run.requests[*at].request().is_some_and(|one| one.demand().resources().contains(&cpu));
        if is_paired && !kept.iter().any(names_cpu) {
            left.extend(kept.drain(..).map(|at| (at, self.too_many(most))));
        }
        kept
    }

    fn too_many(&self, most: usize) -> String {
        match self.form {
            Form::Best => format!("per_host: at most {most} resources in all requests"),
            Form::Set | Form::Partition => {
                "per_host: expected cpu and at most two other resources in all requests".to_owned()
            }
        }
    }
}

/// Puts those to the `left` that are not served by the same equally fast hosts as most of the requests; why, with their names.
fn with_equal_hosts(run: &Run<'_>, requests: Vec<usize>, left: &mut BTreeMap<usize, String>) {
    let hosts = usable(run, &requests);
    let is_limited = hosts.iter().any(|(_, host)| host.schedule.closed().is_some());
    let asks_nothing = |at: &usize| {
        run.requests[*at]
            .request()
            .is_some_and(|one| one.demand().per_host().values().all(|amount| *amount == Amount::ZERO))
    };
    let (without, requests): (Vec<usize>, Vec<usize>) =
        requests.into_iter().partition(|at| is_limited && asks_nothing(at));
    let why = "per_host: it asks for nothing, and owners do not offer their hosts at all times";
    left.extend(without.into_iter().map(|at| (at, why.to_owned())));
    // One that is too large for every host is postponed.
    let serves = |at: usize, host: &Candidate<'_>| {
        let Some(demand) = run.requests[at].request().map(Request::demand) else { return true };
        let (slowest, _) = range(demand);
        let length = slowest.length(demand.length_on(host.host));
        host.schedule.excluding(length).is_none()
            && demand
                .host_needs()
                .first_unmet(host.site, host.host)
                .is_none_or(|unmet| matches!(unmet, Unmet::Minimum(..)))
    };
    let mut groups: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for at in requests {
        let of_request = hosts.iter().filter(|(_, host)| serves(at, host)).map(|(index, _)| *index).collect();
        groups.entry(of_request).or_default().push(at);
    }
    let differ = |group: &[usize]| {
        let hosts = usable(run, group);
        let first = hosts.first()?.1.host;
        let other = hosts.iter().map(|(_, host)| host.host).find(|host| host.speed != first.speed)?;
        Some(format!("hosts {} and {} differ in speed; name those of one speed as candidates", first.id, other.id))
    };
    groups.retain(|_, group| match differ(group) {
        Some(why) => {
            left.extend(group.iter().map(|at| (*at, why.clone())));
            false
        }
        None => true,
    });
    // Those that nothing serves stay: they wait, whichever hosts the others have.
    groups.remove(&Vec::new());
    let most = groups.iter().max_by_key(|(_, group)| (group.len(), Reverse(group.first().copied())));
    let Some(most) = most.map(|(hosts, _)| hosts.clone()) else { return };
    for (of_group, group) in groups.into_iter().filter(|(hosts, _)| *hosts != most) {
        let name =
            |index: usize| hosts.iter().find(|(at, _)| *at == index).map_or("", |(_, host)| host.host.id.as_str());
        let why = match most.iter().find(|host| !of_group.contains(host)) {
            Some(host) => format!("host {} cannot serve it, and serves most of the others", name(*host)),
            None => {
                let host = of_group.iter().find(|host| !most.contains(host)).copied().unwrap_or_default();
                format!("host {} serves it, and cannot serve most of the others", name(host))
            }
        };
        left.extend(group.into_iter().map(|at| (at, why.clone())));
    }
}

/// The best that is found from the forms on; it ends no later than the latest of those that place all that can run, if any does.
fn best(problem: &Problem, paired: Option<(Roles, Thresholds)>, turns: Turns, watch: Watch<'_>) -> Placed {
    let forms = paired.map(|(roles, thresholds)| {
        [set(problem, roles, thresholds, turns), partition(problem, roles, thresholds, turns)]
    });
    let valued = |placed: Placed| (problem.worth(&placed), placed);
    let begun = forms.into_iter().flatten().chain([plain(problem, turns), plain(problem, Turns::Longest)]);
    let mut begun: Vec<(Worth, Placed)> = begun.map(valued).collect();
    let unable = problem.jobs.iter().filter(|job| !problem.could_run(job)).count();
    let whole = begun.iter().filter(|(worth, _)| worth.postponed == unable);
    let limit = whole.map(|(worth, _)| worth.makespan).max().unwrap_or(NEVER);
    begun.extend(matched(problem, watch).map(valued));
    let best = begun.into_iter().filter(|(worth, _)| worth.makespan <= limit).min_by_key(|(worth, _)| *worth);
    best.map(|(_, placed)| search(problem, &placed, limit, watch)).unwrap_or_default()
}

/// The hosts that serve some of these requests at its smallest factor, each with its place among all hosts.
fn usable<'r>(run: &'r Run<'_>, requests: &[usize]) -> Vec<(usize, Candidate<'r>)> {
    let requests = requests.iter().filter_map(|at| run.requests[*at].request());
    let least: Vec<Request> = requests.map(|request| request.at_factor(range(request.demand()).0)).collect();
    let needs: Vec<_> = least.iter().map(|request| request.demand().host_needs()).collect();
    let serves = |host: &Candidate<'_>| needs.iter().any(|needs| needs.are_met_by(host.site, host.host));
    run.planner.candidates().enumerate().filter(|(_, host)| serves(host)).collect()
}

/// The smallest and the largest factor.
fn range(demand: &Demand) -> (Factor, Factor) {
    demand.scale().map_or((Factor::ONE, Factor::ONE), |scale| scale.range().into_inner())
}

/// What of a request the policy does not look at.
fn untreated(request: &Request) -> Option<&'static str> {
    let demand = request.demand();
    if !demand.total().is_empty() {
        Some("total: only amounts per host can be placed")
    } else if demand.is_exclusive() {
        Some("exclusive: seats share hosts")
    } else if demand.traffic().is_some() {
        Some("traffic: links are not looked at")
    } else if demand.sites_max().is_some() {
        Some("sites_max: sites are not looked at")
    } else {
        None
    }
}

/// The resources that the batch names, in order.
fn resources(run: &Run<'_>) -> Vec<ResourceName> {
    let demands = run.requests.iter().filter_map(|asked| asked.request()).map(Request::demand);
    let mut names: Vec<ResourceName> = demands.flat_map(Demand::resources).collect();
    names.sort();
    names.dedup();
    names
}

/// What the source calls its three resources, if the batch has no others.
fn roles(names: &[ResourceName]) -> Option<Roles> {
    let cpu = names.iter().position(|name| name.as_str() == "cpu")?;
    let mut others = (0..names.len()).filter(|at| *at != cpu);
    // One that nothing is needed of is as good as none.
    let mut other = || others.next().unwrap_or(RESOURCES_MAX - 1);
    let roles = Roles { cpu, others: (other(), other()) };
    (names.len() <= 3).then_some(roles)
}

fn problem(run: &Run<'_>, names: &[ResourceName], requests: &[usize]) -> Problem {
    let vector = |amount: &dyn Fn(&ResourceName) -> Amount| {
        let mut needs = [0; RESOURCES_MAX];
        needs.iter_mut().zip(names).for_each(|(need, name)| *need = amount(name).0);
        needs
    };
    let offset = |time: Time| time.0.saturating_sub(run.origin.0).clamp(-NEVER, NEVER);
    let usable = usable(run, requests);
    let speed = usable.first().map_or(Speed::REFERENCE, |(_, host)| host.host.speed);
    let capacity = |(_, candidate): &(usize, Candidate<'_>)| vector(&|name| amount_of(&candidate.host.capacity, name));
    let taken = |(_, candidate): &(usize, Candidate<'_>)| {
        let times = candidate.schedule.changes();
        let ends = times.iter().skip(1).copied().chain([Time(NEVER)]);
        let block = |(start, end): (&Time, Time)| {
            let moment = Window { start: *start, end: Time(start.0.saturating_add(1)) };
            // What is used in full keeps out all that asks for anything.
            let needs = match candidate.schedule.is_open(moment) {
                true => vector(&|name| candidate.schedule.peak(name, moment)),
                false => vector(&|_| Amount::MAX),
            };
            Block { start: offset(*start), end: offset(end), needs }
        };
        times.iter().zip(ends).map(block).filter(|block| block.needs.iter().any(|need| *need > 0)).collect()
    };
    let job = |at: &usize| {
        let request = run.requests[*at].request()?;
        let demand = request.demand();
        let (first, last) = run.planner.starts(request).unwrap_or((Time::MAX, Time::ZERO));
        let (least, largest) = range(demand);
        Some(Job {
            seats: demand.seats(),
            seconds: demand.length_at(speed).0.min(NEVER.cast_unsigned() >> 20).cast_signed(),
            needs: vector(&|name| amount_of(demand.per_host(), name)),
            scale: (least.thousandths(), largest.thousandths()),
            starts: (offset(first), offset(last)),
            deadline: request.window().deadline.map_or(NEVER, offset),
        })
    };
    Problem {
        hosts: usable.iter().map(capacity).collect(),
        taken: usable.iter().map(taken).collect(),
        jobs: requests.iter().filter_map(job).collect(),
    }
}

/// That too few hosts have enough of something for a request, however small it is made.
fn too_large(run: &Run<'_>, request: usize) -> Option<String> {
    let demand = run.requests[request].request()?.demand();
    let least = range(demand).0;
    let even = demand.scale().map_or_else(String::new, |_| format!(" even at factor {least}"));
    let short = |(name, amount): (&ResourceName, &Amount)| {
        let needed = least.amount(*amount);
        let mut has: Vec<Amount> = run.planner.candidates().map(|host| amount_of(&host.host.capacity, name)).collect();
        has.sort_unstable();
        let enough = has.iter().filter(|has| **has >= needed).count();
        let show = |amount| format_amount(name, amount);
        (enough < demand.seats()).then(|| {
            format!(
                "per_host.{name}: {}{even}; {enough} of {} hosts have that much, the largest has {}",
                show(needed),
                demand.seats(),
                show(has.last().copied().unwrap_or(Amount::ZERO))
            )
        })
    };
    demand.per_host().iter().find_map(short)
}

/// The plans of a placement on these hosts, by request of the batch; they occupy the snapshot.
fn plans(run: &mut Run<'_>, requests: &[usize], usable: &[usize], placed: &Placed) -> Vec<Option<Plan>> {
    let mut plans = vec![None; run.requests.len()];
    for (at, placement) in requests.iter().zip(placed) {
        run.reasons[*at] = Some(Absence::Crowded);
        let Some(Placement { start, factor, hosts }) = placement else {
            // The planner of single requests knows of more than this reason.
            let _ = run.plan(*at, false);
            too_large(run, *at).into_iter().for_each(|why| run.reasons[*at] = Some(Absence::TooLarge(why)));
            continue;
        };
        let mut hosts: Vec<usize> = hosts.iter().map(|host| usable[*host]).collect();
        hosts.sort_unstable();
        let start = Time(run.origin.0.saturating_add(*start));
        let asked = run.requests[*at].request().map(|asked| asked.at_factor(Factor::of_thousandths(*factor)));
        let plan = asked.and_then(|asked| run.planner.plan_at(&asked, start, &hosts));
        debug_assert!(plan.as_ref().is_some_and(|plan| run.planner.admits(plan)), "{placement:?}");
        let Some(plan) = plan.filter(|plan| run.planner.admits(plan)) else { continue };
        run.planner.occupy(&plan);
        run.note(*at, 0, &plan, true);
        plans[*at] = Some(plan);
    }
    plans
}
