//! Plans within what owners' rules about users leave over all seats of a site together, and the rules that are to blame for none.
//!
//! What a rule leaves of each host is in its schedule already ([`Found::offered`]); a share of a site, host-hours and credits bind several
//! seats together. Where the earliest plan has too many seats at a site, the same start is tried with as many of its hosts as the user may
//! have, and then the next start at which anything changes.
//!
//! Invariant: a plan has no seat that the standings known forbid. Its start is called proven only where each start that was passed over is
//! excluded whichever hosts of a site are taken, which is so where all seats are alike and cost nothing, and by exact schedules.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Found, FoundHost, found::Owners};
use crate::{
    cost::Cost,
    demand::Demand,
    ids::{HostId, ShapeNumber, SiteId},
    offered::Offered,
    phases::{self, Candidate, Job, PhaseObserver},
    plan::{Plan, PlanOutcome, Rejection, Seat},
    protocol::{Standing, WantedSeat},
    reason::{NearestMiss, Reason},
    request::{Effort, ObjectiveKind},
    schedule::Schedule,
    strategy::{plan_best, plan_best_by},
    time::Time,
    trust::Rule,
};

/// So many starts are tried at which the earliest plan has too many seats at a site.
const STARTS_MAX: usize = 128;

/// How hard to plan, and when the owners are asked.
#[derive(Debug, Clone, Copy)]
pub struct HowToPlan {
    /// How much work is allowed.
    pub effort: Effort,
    /// Start of the planner's random draws.
    pub seed: u64,
    /// When the owners are asked.
    pub now: Time,
}

impl Found {
    /// The best plan of the jobs on these candidates, which are of its hosts, within the standings known.
    #[must_use]
    pub fn plan_allowed<'a>(
        &self,
        jobs: impl Iterator<Item = (ShapeNumber, Job<'a>)>,
        candidates: &[Candidate<'_>],
        how: HowToPlan,
        mut observer: &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        let standings: BTreeMap<&SiteId, &Standing> =
            self.hosts.iter().filter_map(|found| Some((&found.site, found.standing.as_deref()?))).collect();
        plan_best_by(jobs, candidates, |job, candidates| {
            Allowed { job: *job, candidates, standings: &standings, how }.plan(&mut observer)
        })
    }

    /// Adds to the reason of a rejection the owners' rules without which there would be a plan; unchanged where no rule is to blame.
    #[must_use]
    pub fn ruled<'a>(
        &self,
        reason: Reason,
        jobs: impl Iterator<Item = (ShapeNumber, Job<'a>)>,
        how: HowToPlan,
    ) -> Reason {
        let too_long = match &reason {
            // It names them, or they have nothing to do with it.
            Reason::TooFewHosts { .. } | Reason::WindowPassed { .. } => 0,
            _ => self.cut.length,
        };
        let mut rules: BTreeMap<Rule, u64> = BTreeMap::new();
        let start = self.start_without_rules(jobs, how, &mut rules);
        if too_long > 0 {
            *rules.entry(Rule::OwnerMaxDuration).or_default() += too_long;
        }
        if rules.is_empty() {
            return reason;
        }
        let rules = rules.into_iter().map(|(rule, hosts)| (rule.to_string(), hosts)).collect();
        Reason::Ruled { reason: Box::new(reason), start, rules }
    }

    /// The start that a request would have on these hosts if no owner had rules, if there is one; and how many hosts each rule leaves out
    /// then.
    fn start_without_rules<'a>(
        &self,
        jobs: impl Iterator<Item = (ShapeNumber, Job<'a>)>,
        how: HowToPlan,
        rules: &mut BTreeMap<Rule, u64>,
    ) -> Option<Time> {
        let mut hosts: Vec<&FoundHost> = self.hosts.iter().chain(&self.denied).collect();
        if hosts.iter().all(|found| found.offer.is_everything() && found.standing.is_none()) {
            return None;
        }
        hosts.sort_by(|one, other| (&one.site, &one.host.id).cmp(&(&other.site, &other.host.id)));
        let (mut owners, everything) = (Owners::at(how.now), Arc::new(Offered::default()));
        let mut without_rules = |found: &FoundHost| -> Schedule {
            let schedule = Cow::Borrowed(&*found.schedule);
            owners.restrict(schedule, &found.host, (&everything, None)).into_owned()
        };
        let schedules: Vec<Schedule> = hosts.iter().map(|found| without_rules(found)).collect();
        let both = hosts.iter().zip(&schedules);
        let candidates: Vec<Candidate<'_>> =
            both.map(|(found, schedule)| Candidate { site: &found.site, host: &found.host, schedule }).collect();
        let jobs: Vec<(ShapeNumber, Job<'a>)> = jobs.collect();
        let PlanOutcome::Allocated(plan) = plan_best(jobs.iter().copied(), &candidates, how.effort, how.seed, &mut ())
        else {
            return None;
        };
        let (_, job) = jobs.iter().find(|(shape, _)| *shape == plan.shape)?;
        *rules = rules_against(&plan, job.demand, (&hosts, &schedules), how.now);
        if rules.is_empty() {
            *rules = rules_against_seats(&plan, &hosts, how.now);
        }
        (!rules.is_empty()).then_some(plan.start)
    }
}

/// How many hosts each rule leaves out of those that would be there at the start of a plan, or of too many seats at a site.
fn rules_against(
    plan: &Plan,
    demand: &Demand,
    (hosts, schedules): (&[&FoundHost], &[Schedule]),
    now: Time,
) -> BTreeMap<Rule, u64> {
    let mut rules: BTreeMap<Rule, u64> = BTreeMap::new();
    let mut allowed: BTreeMap<&SiteId, (&Standing, Vec<WantedSeat<'_>>)> = BTreeMap::new();
    let (minima, needs) = (demand.minima(), demand.host_needs());
    for (found, schedule) in hosts.iter().zip(schedules) {
        let of_site = plan.seats.iter().find(|seat| seat.site == found.site);
        let Some(Seat { window, .. }) = of_site.or(plan.seats.first()) else { continue };
        let is_there = needs.first_unmet(&found.site, &found.host).is_none()
            && schedule.admits(&found.host.capacity, *window, &minima).is_ok();
        if !is_there {
            continue;
        }
        let wanted = WantedSeat { host: &found.host, window: *window, amounts: &minima, cost: Cost::ZERO };
        let standing = found.standing.as_deref();
        let of_user = || standing?.rules_against(&[wanted], now).pop().flatten();
        match found.offer.check(*window, now).map_err(Rule::from).err().or_else(of_user) {
            Some(rule) => *rules.entry(rule).or_default() += 1,
            None => {
                let Some(standing) = standing else { continue };
                allowed.entry(&found.site).or_insert((standing, Vec::new())).1.push(wanted);
            }
        }
    }
    for (standing, seats) in allowed.into_values() {
        for rule in standing.rules_against(&seats, now).into_iter().flatten() {
            *rules.entry(rule).or_default() += 1;
        }
    }
    rules
}

/// How many seats of a plan each rule is against as they are: of what is asked together a host may have less than its part.
fn rules_against_seats(plan: &Plan, hosts: &[&FoundHost], now: Time) -> BTreeMap<Rule, u64> {
    let mut by_site: BTreeMap<&SiteId, (&Standing, Vec<WantedSeat<'_>>)> = BTreeMap::new();
    for seat in &plan.seats {
        let found = hosts.iter().find(|found| found.site == seat.site && found.host.id == *seat.host());
        let Some((found, standing)) = found.and_then(|found| Some((found, found.standing.as_deref()?))) else {
            continue;
        };
        let (window, amounts, cost) = (seat.window, &seat.amounts, seat.agreed.cost);
        let wanted = WantedSeat { host: &found.host, window, amounts, cost };
        by_site.entry(&found.site).or_insert((standing, Vec::new())).1.push(wanted);
    }
    let mut rules: BTreeMap<Rule, u64> = BTreeMap::new();
    for (standing, seats) in by_site.into_values() {
        standing.rules_against(&seats, now).into_iter().flatten().for_each(|rule| *rules.entry(rule).or_default() += 1);
    }
    rules
}

/// By site with too many seats: the hosts there that the user may have together.
type Kept = BTreeMap<SiteId, BTreeSet<HostId>>;

/// The planning of one job within standings.
struct Allowed<'p, 'a, 'c> {
    job: Job<'a>,
    candidates: &'p [Candidate<'c>],
    standings: &'p BTreeMap<&'p SiteId, &'p Standing>,
    how: HowToPlan,
}

impl Allowed<'_, '_, '_> {
    fn plan(&self, observer: &mut &mut dyn PhaseObserver) -> PlanOutcome {
        let is_by_start = self.job.objective == ObjectiveKind::Start;
        let (mut earliest, mut are_excluded, mut nearest) = (self.job.earliest, true, None);
        let doubtful = phases::first_doubtful(&self.job, self.candidates);
        for _ in 0..STARTS_MAX {
            let plan = match self.plan_on(&Job { earliest, ..self.job }, self.candidates, observer) {
                PlanOutcome::Allocated(plan) => plan,
                PlanOutcome::Rejected(Rejection { reason, start_proven }) => {
                    return no_plan(nearest.unwrap_or(reason), start_proven && are_excluded);
                }
            };
            let kept = self.kept(&plan);
            if kept.is_empty() {
                return PlanOutcome::Allocated(proven(plan, are_excluded));
            }
            let (start, start_proven, is_like) = (plan.start, plan.start_proven, is_of_like_seats(&plan));
            // By another objective a later start may be better, so all of them are looked at with fewer hosts.
            let window = if is_by_start { (start, start) } else { (earliest, self.job.latest) };
            match self.with_fewer(window, &plan, kept, observer) {
                Ok(plan) => {
                    let is_proven = is_by_start && start_proven && are_excluded;
                    return PlanOutcome::Allocated(proven(plan, is_proven));
                }
                Err(reason) => nearest = nearest.or(Some(reason)),
            }
            are_excluded &= is_by_start && start_proven && is_like && doubtful.is_none_or(|first| start < first);
            match self.next_change(start).filter(|next| is_by_start && *next <= self.job.latest) {
                Some(next) => earliest = next,
                None => return no_plan(nearest.unwrap_or_else(|| self.no_window(start, 0)), are_excluded),
            }
        }
        no_plan(nearest.unwrap_or_else(|| self.no_window(earliest, 0)), false)
    }

    fn plan_on(
        &self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        observer: &mut &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        phases::plan(job, candidates, self.how.effort, self.how.seed, observer)
    }

    /// A plan in this window with no more hosts of a site than are kept there.
    fn with_fewer(
        &self,
        window: (Time, Time),
        plan: &Plan,
        mut kept: Kept,
        observer: &mut &mut dyn PhaseObserver,
    ) -> Result<Plan, Reason> {
        let is_kept = |kept: &Kept, site, host| kept.get(site).is_none_or(|hosts| hosts.contains(host));
        let there = plan.seats.iter().filter(|seat| is_kept(&kept, &seat.site, seat.host())).count();
        let job = Job { earliest: window.0, latest: window.1, ..self.job };
        // Each round has a site more, or fewer hosts of one.
        for _ in 0..=self.candidates.len() {
            let candidates = self.candidates.iter().filter(|one| is_kept(&kept, one.site, &one.host.id));
            let candidates: Vec<Candidate<'_>> = candidates.copied().collect();
            let plan = match self.plan_on(&job, &candidates, observer) {
                PlanOutcome::Allocated(plan) => plan,
                PlanOutcome::Rejected(Rejection { reason: reason @ Reason::NoWindow { .. }, .. }) => {
                    return Err(reason);
                }
                // The hosts that were left out have the capacity.
                PlanOutcome::Rejected(_) => break,
            };
            let more = self.kept(&plan);
            if more.is_empty() {
                return Ok(plan);
            }
            kept.extend(more);
        }
        Err(self.no_window(window.0, there as u64))
    }

    fn no_window(&self, start: Time, hosts_available: u64) -> Reason {
        let nearest = NearestMiss { start, hosts_available, short: Vec::new(), cuts: Vec::new() };
        Reason::NoWindow { asked: self.job.demand.seats() as u64, nearest }
    }

    /// The sites with too many seats.
    fn kept(&self, plan: &Plan) -> Kept {
        let mut by_site: BTreeMap<&SiteId, Vec<&Seat>> = BTreeMap::new();
        plan.seats.iter().for_each(|seat| by_site.entry(&seat.site).or_default().push(seat));
        let mut kept = Kept::new();
        for (site, seats) in by_site {
            let Some(standing) = self.standings.get(site) else { continue };
            let host = |seat: &Seat| {
                let is_it = |one: &&Candidate<'_>| one.site == site && one.host.id == *seat.host();
                self.candidates.iter().find(is_it).map(|one| one.host)
            };
            let hosts = seats.iter().map(|seat| host(seat)).zip(&seats);
            let wanted = hosts.filter_map(|(host, seat)| {
                let Seat { window, ref amounts, ref agreed, .. } = **seat;
                Some(WantedSeat { host: host?, window, amounts, cost: agreed.cost })
            });
            let wanted: Vec<WantedSeat<'_>> = wanted.collect();
            let rules = standing.rules_against(&wanted, self.how.now);
            if rules.iter().any(Option::is_some) {
                let fitting = wanted.iter().zip(rules).filter(|(_, rule)| rule.is_none());
                kept.insert(site.clone(), fitting.map(|(seat, _)| seat.host.id.clone()).collect());
            }
        }
        kept
    }

    /// The first time after `start` at which more may be free or allowed.
    fn next_change(&self, start: Time) -> Option<Time> {
        let of_hosts = self.candidates.iter().flat_map(|one| one.schedule.changes());
        let of_rules = self.standings.values().flat_map(|standing| standing.changes());
        of_hosts.chain(of_rules).filter(|time| *time > start).min()
    }
}

/// Takes the proof of its start and its bound from a plan, unless `is_proven`.
fn proven(mut plan: Plan, is_proven: bool) -> Plan {
    plan.start_proven &= is_proven;
    plan.objective.bound = plan.objective.bound.filter(|_| is_proven);
    plan
}

fn no_plan(reason: Reason, start_proven: bool) -> PlanOutcome {
    PlanOutcome::Rejected(Rejection { reason, start_proven })
}

/// Whether all seats of a plan are alike and cost nothing, so that any hosts of a site would count the same against its rules.
fn is_of_like_seats(plan: &Plan) -> bool {
    let alike = |two: &[Seat]| two[0].amounts == two[1].amounts && two[0].window == two[1].window;
    plan.seats.windows(2).all(alike) && plan.seats.iter().all(|seat| seat.agreed.cost == Cost::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        amount::Amount,
        host::Host,
        protocol::ShareLeft,
        resources::{Amounts, ResourceName},
        time::Span,
    };

    const HOW: HowToPlan = HowToPlan { effort: Effort::Balanced, seed: 1, now: Time(0) };

    fn cores(amount: u64) -> Amounts {
        Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
    }

    /// A host of four cores, of which all are used until this time.
    fn found(site: &str, host: &str, used_until: i64, standing: Option<&Arc<Standing>>) -> FoundHost {
        let mut schedule = Schedule::default();
        if used_until > 0 {
            schedule.add(crate::time::Window { start: Time(0), end: Time(used_until) }, &cores(4));
        }
        FoundHost {
            site: SiteId::new(site).unwrap(),
            host: Host {
                id: HostId::new(host).unwrap(),
                capacity: cores(4),
                attributes: Default::default(),
                speed: Default::default(),
                tariff: Default::default(),
            },
            schedule: schedule.into(),
            version: Default::default(),
            offer: Arc::new(Offered { asks: true, ..Offered::default() }),
            standing: standing.cloned(),
        }
    }

    /// Outcome of a request for two hosts for ten seconds; a rejection names the rules.
    fn planned(hosts: Vec<FoundHost>, latest: i64) -> PlanOutcome {
        planned_as(r#"{"hosts":2,"duration":10,"per_host":{"cpu":2}}"#, hosts, latest)
    }

    fn planned_as(text: &str, hosts: Vec<FoundHost>, latest: i64) -> PlanOutcome {
        let found = Found { hosts, ..Found::default() };
        let request: crate::request::Request = serde_json::from_str(text).unwrap();
        let jobs = || Job::of_shapes(&request, (Time(0), Time(latest)));
        let schedules = found.offered(HOW.now);
        let both = found.hosts.iter().zip(&schedules);
        let candidates: Vec<Candidate<'_>> =
            both.map(|(found, schedule)| Candidate { site: &found.site, host: &found.host, schedule }).collect();
        match found.plan_allowed(jobs(), &candidates, HOW, &mut ()) {
            PlanOutcome::Rejected(Rejection { reason, start_proven }) => {
                no_plan(found.ruled(reason, jobs(), HOW), start_proven)
            }
            allocated @ PlanOutcome::Allocated(_) => allocated,
        }
    }

    #[test]
    fn a_share_of_a_site_is_foreseen_over_all_seats() {
        let share = ShareLeft { most: cores(3), ..ShareLeft::default() };
        let standing = Arc::new(Standing { of_site: vec![share], ..Standing::default() });
        let here = || vec![found("a", "a1", 0, Some(&standing)), found("a", "a2", 0, Some(&standing))];
        let with_other = [here(), vec![found("b", "b1", 50, None)]].concat();
        let PlanOutcome::Allocated(plan) = planned(with_other, 100) else { panic!("b1 is free from 50 on") };
        let sites: BTreeSet<&str> = plan.seats.iter().map(|seat| seat.site.as_str()).collect();
        assert_eq!((plan.start, plan.start_proven, sites), (Time(50), true, BTreeSet::from(["a", "b"])));
        let PlanOutcome::Rejected(Rejection { reason, start_proven }) = planned(here(), 100) else {
            panic!("one seat of the site is all that the user may have")
        };
        let detail = reason.detail();
        let rules = "without them it could start at 0 s; `site-share` leaves out 1 host";
        assert!(start_proven && detail.ends_with(rules), "{detail}");
    }

    #[test]
    fn host_hours_and_lengths_are_named_too() {
        let standing = Arc::new(Standing { longest: Some(Span(15)), ..Standing::default() });
        let PlanOutcome::Rejected(Rejection { reason, .. }) =
            planned(vec![found("a", "a1", 0, Some(&standing)), found("a", "a2", 0, Some(&standing))], 0)
        else {
            panic!("20 s in all are more than 15 s")
        };
        assert!(reason.detail().contains("`max-host-hours` leaves out 1 host"), "{}", reason.detail());
        let standing = Arc::new(Standing { longest: Some(Span(9)), ..Standing::default() });
        let PlanOutcome::Rejected(Rejection { reason, .. }) =
            planned(vec![found("a", "a1", 0, Some(&standing)), found("b", "b1", 0, None)], 0)
        else {
            panic!("9 s are left at a")
        };
        let detail = reason.detail();
        let cut = "1 of 2 hosts satisfy the minima and attributes; \
                   hosts cut by what is left of the user's host-hours (`max-host-hours`) 1";
        assert!(detail.starts_with(cut) && !detail.contains("owner-max-duration"), "{detail}");
        let short = Arc::new(Offered { longest: Some(Span(9)), ..Offered::default() });
        let host = |id| FoundHost { offer: short.clone(), ..found("a", id, 0, None) };
        let PlanOutcome::Rejected(Rejection { reason, .. }) = planned(vec![host("a1"), host("a2")], 0) else {
            panic!("no seat may be so long")
        };
        assert!(reason.detail().contains("`owner-max-duration` leaves out 2 hosts"), "{}", reason.detail());
    }

    #[test]
    fn a_share_of_a_host_that_leaves_too_little_together_is_named() {
        let half = BTreeMap::from([(ResourceName::new("cpu").unwrap(), 50)]);
        let standing = Arc::new(Standing { host_percent: half, ..Standing::default() });
        let hosts = vec![found("a", "a1", 0, Some(&standing)), found("a", "a2", 0, Some(&standing))];
        let text = r#"{"hosts":2,"duration":10,"total":{"cpu":8}}"#;
        let PlanOutcome::Rejected(Rejection { reason, .. }) = planned_as(text, hosts, 100) else {
            panic!("the user may have two cores of each host")
        };
        let rules = "without them it could start at 0 s; `user-share` leaves out 2 hosts";
        assert!(reason.detail().ends_with(rules), "{}", reason.detail());
    }

    #[test]
    fn a_site_that_is_emptied_or_full_is_named_as_such() {
        let draining = Arc::new(Offered { is_draining: true, ..Offered::default() });
        let emptied = FoundHost { offer: draining, ..found("a", "a1", 0, None) };
        let PlanOutcome::Rejected(Rejection { reason, start_proven }) =
            planned(vec![emptied.clone(), found("b", "b1", 30, None)], 100)
        else {
            panic!("nothing is offered at a")
        };
        let rules = "without them it could start at 30 s; `draining` leaves out 1 host";
        assert!(start_proven && reason.detail().ends_with(rules), "{}", reason.detail());
        let full = Arc::new(Offered { is_disk_full: true, ..Offered::default() });
        let full = FoundHost { offer: full, ..found("a", "a1", 0, None) };
        let PlanOutcome::Rejected(Rejection { reason, .. }) = planned(vec![full, found("b", "b1", 30, None)], 100)
        else {
            panic!("nothing is offered at a")
        };
        assert!(reason.detail().ends_with("`disk` leaves out 1 host"), "{}", reason.detail());
        let others = vec![emptied, found("b", "b1", 30, None), found("c", "c1", 0, None)];
        assert_eq!(planned(others, 100).plan().map(|plan| plan.start), Some(Time(30)));
    }
}
