//! Phases II to V on the hosts found, and once more on those of a few sites that are drawn for the request.
//!
//! Coordinators that plan at one moment on the same schedules all find the same hosts best, and all but one would be refused. So where the
//! hosts of some sites start as early as those of all, they are taken: the coordinator's own first, of which it knows at once what is
//! free there, then others in an order that is the request's own. It also needs fewer sites to agree.
//!
//! Invariant: the plan on drawn sites has the start, the shape and the factor of the plan on all hosts, and costs no more; what is
//! proven of the start is proven on all hosts. The sites depend on the request's order and their names alone.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    cost::Cost,
    host::Host,
    ids::{ShapeNumber, SiteId},
    negotiation::{
        HowToPlan,
        found::{Found, FoundHost},
        hints::Hints,
    },
    phases::{Candidate, Job, PhaseObserver, site_rank},
    plan::{Plan, PlanOutcome},
    request::ObjectiveKind,
    time::Time,
};

/// The request, the hosts found and what refusals have shown of them: input of every plan of one round.
pub(super) struct Run<'a> {
    /// The site of the coordinator.
    pub(super) home: &'a SiteId,
    pub(super) hints: &'a Hints,
    pub(super) found: &'a Found,
    /// Each shape, with the order in which the request prefers hosts; at least one.
    pub(super) jobs: Vec<(ShapeNumber, Job<'a>)>,
    pub(super) how: HowToPlan,
}

/// The hosts and the starts that a plan is made of.
#[derive(Clone, Copy)]
pub(super) struct Among<'s> {
    /// Sites whose hosts may be chosen; none stands for all sites found.
    pub(super) sites: Option<&'s BTreeSet<&'s SiteId>>,
    pub(super) latest: Time,
    /// Whether holds of other requests count as used.
    pub(super) with_holds: bool,
}

impl Run<'_> {
    /// The best plan of the request's shapes within this budget.
    pub(super) fn outcome(
        &self,
        among: &Among<'_>,
        budget: Option<Cost>,
        observer: &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        let is_among = |host: &&FoundHost| among.sites.is_none_or(|sites| sites.contains(&host.site));
        let found: Vec<&FoundHost> = self.found.hosts.iter().filter(is_among).collect();
        let hosts: Vec<Cow<'_, Host>> = found.iter().map(|host| self.hints.host(host)).collect();
        let schedules = self.hints.offered(found.iter().copied(), among.with_holds, self.how.now);
        let candidates: Vec<Candidate<'_>> = (found.iter().zip(&hosts).zip(&schedules))
            .map(|((found, host), schedule)| Candidate { site: &found.site, host, schedule })
            .collect();
        let uplinks = self.hints.uplinks(self.found, among.with_holds);
        let jobs = self.jobs.iter();
        let jobs = jobs.map(|(shape, job)| (*shape, Job { uplinks: &uplinks, budget, latest: among.latest, ..*job }));
        self.found.plan_allowed(jobs, &candidates, self.how, observer)
    }

    /// A plan that is as good as `best`, the one on all hosts, on those of as few sites as have `multiplier` times the hosts that are needed,
    /// or twice as many and so on. None where these would be all, and where something else than the start is wanted.
    pub(super) fn on_drawn_sites(&self, best: &Plan, among: &Among<'_>, multiplier: u32) -> Option<Plan> {
        let (_, job) = self.jobs.first()?;
        let is_named = self.jobs.iter().any(|(_, job)| job.demand.candidates().is_some());
        let order = job.order.filter(|_| !job.spreads && !is_named && best.objective.kind == ObjectiveKind::Start)?;
        let hosts = &self.found.hosts;
        let mut sites: BTreeMap<&SiteId, usize> = BTreeMap::new();
        hosts.iter().for_each(|host| *sites.entry(&host.site).or_default() += 1);
        let mut sites: Vec<(&SiteId, usize)> = sites.into_iter().collect();
        sites.sort_by_cached_key(|(site, _)| (*site != self.home, site_rank(order, site)));
        let mut wanted = best.seats.len().saturating_mul(multiplier as usize);
        let (mut drawn, mut count) = (BTreeSet::new(), 0);
        for (site, hosts_there) in sites {
            drawn.insert(site);
            count += hosts_there;
            if count >= hosts.len() {
                return None;
            }
            if count < wanted {
                continue;
            }
            wanted = wanted.saturating_mul(2);
            let few = Among { sites: Some(&drawn), latest: best.start, ..*among };
            if let PlanOutcome::Allocated(plan) = self.outcome(&few, job.budget, &mut ())
                && is_as_good(&plan, best)
            {
                let efficiency_bound = best.efficiency_bound.max(plan.efficiency);
                let (objective, start_proven) = (best.objective, best.start_proven);
                return Some(Plan { objective, start_proven, efficiency_bound, ..plan });
            }
        }
        None
    }
}

fn is_as_good(plan: &Plan, best: &Plan) -> bool {
    let what = |plan: &Plan| (plan.start, plan.objective.value, plan.shape, plan.scale);
    what(plan) == what(best) && plan.cost() <= best.cost()
}
