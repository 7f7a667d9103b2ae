//! A batch as gangs over clusters, and placements as plans.
//!
//! Which hosts serve a request and when they are free is all that is left of its other demands: a host runs one seat at a time, and is
//! free when everything that may come to it fits. Invariant: [`Reduced::is_exact`] only if this leaves no plan out.

use std::collections::BTreeMap;

use super::{
    local::Placed,
    modes::Modes,
    problem::{Gang, Group, Link, Problem, Steps, Units},
    room::Room,
};
use crate::{
    amount::Amount,
    batch::run::Run,
    demand::Length,
    host::Speed,
    phases::Candidate,
    plan::Plan,
    request::Request,
    resources::{Amounts, amount_of},
    scale::Factor,
    time::{Time, Window},
    traffic::Traffic,
};

/// What is never reached, in seconds: a million years. Sums of ends, and what they are multiplied with, stay whole numbers of 64 bits.
const NEVER: i64 = 1 << 45;
/// The longest gang that is placed, in seconds: a hundred years. Of a thousand of them, shares of all that is there do so as well.
const SECONDS_MAX: u64 = 1 << 32;

/// See the module.
pub(in crate::batch) struct Reduced {
    /// The problem.
    pub problem: Problem,
    /// What is free before anything is placed.
    pub room: Room,
    /// By gang.
    pub modes: Vec<Modes>,
    /// By gang: its request in the batch.
    pub requests: Vec<usize>,
    /// Whether no plan of the requests was left out.
    pub is_exact: bool,
    /// By group: its hosts, as the planner counts them, each with the second from which on it is free.
    hosts: Vec<Vec<(i64, usize)>>,
    /// Seconds of what is a second in the problem.
    slot: i64,
}

/// A host as all requests see it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    site: usize,
    speed: u32,
    serves: Vec<bool>,
    /// When it is free; none when it stays free once it is, since of such hosts only the number counts: whichever a gang takes of those that
    /// are free at its start, it keeps.
    free: Option<Steps>,
}

impl Reduced {
    /// The requests of a run that have a mode, in the order of the file.
    pub fn of(run: &Run<'_>) -> Reduced {
        let served = |at: &usize| run.requests[*at].request().filter(|request| run.planner.starts(request).is_ok());
        let requests: Vec<usize> = (0..run.requests.len()).filter(|at| served(at).is_some()).collect();
        let asked: Vec<&Request> = requests.iter().filter_map(served).collect();
        let mut kinds: BTreeMap<Kind, Vec<(i64, usize)>> = BTreeMap::new();
        let mut sites = Vec::new();
        let mut is_exact = true;
        for (index, candidate) in run.planner.candidates().enumerate() {
            if sites.last() != Some(&candidate.site) {
                sites.push(candidate.site);
            }
            let needs = |request: &&Request| request.demand().host_needs().are_met_by(candidate.site, candidate.host);
            let is_given = |request: &&Request| {
                let least = request.demand().scale().map_or(Factor::ONE, |scale| *scale.range().start());
                let length = least.length(request.demand().length_on(candidate.host));
                // Of what may be scaled, or waits for slower hosts, another form might be short enough.
                candidate.schedule.excluding(length).is_none()
            };
            let serves: Vec<bool> = asked.iter().map(|request| needs(request) && is_given(request)).collect();
            is_exact &= asked.iter().all(|request| !needs(request) || is_given(request));
            let (free, is_plain) = calendar(&candidate, &asked, &serves, run.origin);
            is_exact &= is_plain;
            let free_from = stays_free_from(&free);
            let free = if free_from.is_some() { None } else { Some(free) };
            let kind = Kind { site: sites.len() - 1, speed: candidate.host.speed.thousandths(), serves, free };
            kinds.entry(kind).or_default().push((free_from.unwrap_or(0), index));
        }
        let links = sites.iter().enumerate().filter_map(|(site, id)| {
            let link = run.planner.uplinks().of(id)?;
            let free = |used: Amount| units(link.mbps.saturating_sub(used).0);
            let steps = link.occupancy.steps().into_iter().map(|(time, used)| (offset(time, run.origin), free(used)));
            Some(Link { site, free: before(free(Amount::ZERO)).chain(steps).collect() })
        });
        let mut problem = Problem { groups: Vec::new(), links: links.collect(), gangs: Vec::new() };
        problem.gangs = asked.iter().enumerate().map(|(at, request)| gang(run, request, at, &kinds)).collect();
        is_exact &= asked.iter().zip(&problem.gangs).all(|(request, gang)| lasts_equally(request, gang));
        let mut hosts = Vec::new();
        for (kind, mut members) in kinds {
            let count = units(members.len() as u64);
            // The first to be free, of equals the first by name, comes first.
            members.sort_unstable();
            let free = match kind.free {
                Some(steps) => steps.into_iter().map(|(time, is_free)| (time, is_free * count)).collect(),
                None => counted_up(&members),
            };
            problem.groups.push(Group { site: kind.site, speed: kind.speed, free });
            hosts.push(members);
        }
        Reduced { room: Room::of(&problem), problem, modes: Vec::new(), requests, is_exact, hosts, slot: 1 }
            .with_modes()
    }

    /// The same in slots of half the mean length at reference speed, as the source has it; nothing is proven by it.
    pub fn in_slots(self, run: &Run<'_>) -> Reduced {
        let length = |request: &usize| {
            let demand = run.requests[*request].request()?.demand();
            Some(demand.length_at(Speed::REFERENCE).0.min(SECONDS_MAX).cast_signed())
        };
        let lengths: Vec<i64> = self.requests.iter().filter_map(length).collect();
        let slot = (lengths.iter().sum::<i64>() / (2 * lengths.len().max(1).cast_signed() as i64)).max(1);
        let problem = self.problem.in_slots(slot);
        Reduced { room: Room::of(&problem), problem, is_exact: false, slot, ..self }.with_modes()
    }

    /// With the modes of all gangs; what fits nowhere is nothing to search for.
    fn with_modes(mut self) -> Reduced {
        let gangs = 0..self.problem.gangs.len();
        self.modes = gangs.map(|gang| Modes::of(&self.problem, &self.room, gang)).collect();
        self.is_exact &= self.modes.iter().all(|modes| !modes.is_cut);
        let fits: Vec<bool> = self.modes.iter().map(|of| !of.all.is_empty()).collect();
        keep(&mut self.requests, &fits);
        keep(&mut self.problem.gangs, &fits);
        keep(&mut self.modes, &fits);
        self
    }

    /// The plans of a placement, by request of the batch; they occupy the snapshot.
    pub fn plans(&self, run: &mut Run<'_>, placed: &Placed) -> Vec<Option<Plan>> {
        let mut plans = vec![None; run.requests.len()];
        let in_slots = |(free_from, _): &(i64, usize)| -(-free_from).div_euclid(self.slot);
        let mut busy_until: Vec<Vec<i64>> =
            self.hosts.iter().map(|hosts| hosts.iter().map(in_slots).collect()).collect();
        let mut turns: Vec<_> = placed.iter().enumerate().filter_map(|(gang, at)| Some((at.as_ref()?, gang))).collect();
        turns.sort_by_key(|(placement, gang)| (placement.start, *gang));
        for (placement, gang) in turns {
            let mode = &self.modes[gang].all[placement.mode];
            let mut chosen = Vec::new();
            for (group, busy_until) in busy_until.iter_mut().enumerate() {
                let mut left = mode.needs[group];
                for ((_, host), until) in self.hosts[group].iter().zip(busy_until) {
                    if left > 0 && *until <= placement.start {
                        *until = placement.start + mode.seconds;
                        chosen.push(*host);
                        left -= 1;
                    }
                }
            }
            chosen.sort_unstable();
            let at = self.requests[gang];
            let start = Time(run.origin.0 + placement.start * self.slot);
            let plan = run.requests[at].request().and_then(|request| run.planner.plan_at(request, start, &chosen));
            debug_assert!(plan.as_ref().is_some_and(|plan| run.planner.admits(plan)), "{placement:?} {chosen:?}");
            let Some(plan) = plan.filter(|plan| run.planner.admits(plan)) else { continue };
            run.planner.occupy(&plan);
            run.note(at, 0, &plan, true);
            plans[at] = Some(plan);
        }
        plans
    }
}

fn gang(run: &Run<'_>, request: &Request, at: usize, kinds: &BTreeMap<Kind, Vec<(i64, usize)>>) -> Gang {
    let demand = request.demand();
    let (earliest, latest) = run.planner.starts(request).unwrap_or((Time::MAX, Time::ZERO));
    let seconds = |kind: &Kind| {
        let speed = kind.speed.try_into().ok().filter(|_| kind.serves[at])?;
        let seconds = demand.length_at(speed).0;
        (seconds <= SECONDS_MAX && earliest < Time(run.origin.0.saturating_add(NEVER))).then_some(seconds.cast_signed())
    };
    let load =
        |traffic: &Traffic| (0..=demand.seats()).map(|here| units(traffic.load(here, demand.seats()).0)).collect();
    Gang {
        seats: units(demand.seats() as u64),
        earliest: offset(earliest, run.origin),
        latest: offset(latest, run.origin),
        deadline: request.window().deadline.map_or(NEVER, |deadline| offset(deadline, run.origin)),
        seconds: kinds.keys().map(seconds).collect(),
        loads: demand.traffic().as_ref().map(load).unwrap_or_default(),
        sites_max: demand.sites_max().unwrap_or(usize::MAX),
    }
}

/// When a host is free (1) for all that it serves, and whether it is so exactly when it is free for any, of which it never runs two.
fn calendar(candidate: &Candidate<'_>, asked: &[&Request], serves: &[bool], origin: Time) -> (Steps, bool) {
    let capacity = &candidate.host.capacity;
    let seats = asked.iter().zip(serves).filter(|(_, serves)| **serves).map(|(request, _)| request.demand());
    let seats: Vec<Amounts> =
        seats.map(|demand| if demand.is_exclusive() { capacity.clone() } else { demand.minima() }).collect();
    let of = |pick: fn(Amount, Amount) -> Amount| -> Amounts {
        let amount = |name| seats.iter().map(|seat| amount_of(seat, name)).reduce(pick).unwrap_or(Amount::ZERO);
        capacity.keys().map(|name| (name.clone(), amount(name))).collect()
    };
    let (most, least) = (of(Amount::max), of(Amount::min));
    let times = candidate.schedule.changes();
    let steps = |amounts: &Amounts| -> Steps {
        let is_free = |time: &Time| {
            let window = Window { start: *time, end: Time(time.0.saturating_add(1)) };
            (offset(*time, origin), Units::from(candidate.schedule.offers(capacity, window, amounts)))
        };
        let mut steps: Steps = before(1).chain(times.iter().map(is_free)).collect();
        steps.dedup_by_key(|step| step.1);
        steps
    };
    let is_alone = least.iter().any(|(name, amount)| amount.0.saturating_mul(2) > amount_of(capacity, name).0);
    let free = steps(&most);
    let is_plain = seats.is_empty() || (is_alone && (most == least || free == steps(&least)));
    (free, is_plain)
}

/// From when on a host is free for ever, if it is not free before.
fn stays_free_from(free: &Steps) -> Option<i64> {
    let ((from, level), earlier) = free.split_last()?;
    // Levels take turns: before the last one is what it is not.
    (*level == 1 && earlier.last().is_none_or(|(taken, _)| *taken <= 0)).then_some((*from).max(0))
}

/// How many hosts are free, where each stays so; those that are free first come first.
fn counted_up(members: &[(i64, usize)]) -> Steps {
    let mut steps: Steps = before(0).collect();
    for same in members.chunk_by(|a, b| a.0 == b.0) {
        let level = steps.last().map_or(0, |step| step.1) + units(same.len() as u64);
        steps.push((same[0].0, level));
    }
    steps
}

/// Whether all seats of a gang last as long as its slowest one.
fn lasts_equally(request: &Request, gang: &Gang) -> bool {
    let demand = request.demand();
    let mut seconds = gang.seconds.iter().flatten();
    demand.traffic().is_some()
        || demand.seats() == 1
        || matches!(demand.length(), Length::Duration(_))
        || seconds.next().is_none_or(|first| seconds.all(|other| other == first))
}

/// Keeps those that are marked.
fn keep<T>(all: &mut Vec<T>, marks: &[bool]) {
    let mut marks = marks.iter();
    all.retain(|_| marks.next().is_some_and(|mark| *mark));
}

/// The level before all steps.
fn before(level: Units) -> impl Iterator<Item = (i64, Units)> {
    std::iter::once((-NEVER, level))
}

fn offset(time: Time, origin: Time) -> i64 {
    time.0.saturating_sub(origin.0).clamp(-NEVER, NEVER)
}

fn units(amount: u64) -> Units {
    Units::try_from(amount).unwrap_or(Units::MAX)
}
