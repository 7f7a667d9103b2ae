//! A reservation that was taken over, or has lost hosts, as its coordinator keeps it on disk.
//!
//! Invariant: the parts name every host of the plan exactly once, the lost ones among them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    record::{Decision, Outcome},
    search::Problem,
};
use crate::{
    ids::{HostId, SiteId},
    plan::{Plan, Seat},
    request::Request,
    time::Time,
};

/// The hosts of a reservation that one attempt has reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The attempt.
    pub attempt: u32,
    /// Its hosts.
    pub hosts: BTreeSet<(SiteId, HostId)>,
}

impl Part {
    /// The sites, each once.
    pub fn sites(&self) -> impl Iterator<Item = &SiteId> {
        let mut last = None;
        self.hosts.iter().filter_map(move |(site, _)| {
            let is_new = last != Some(site);
            last = Some(site);
            is_new.then_some(site)
        })
    }
}

/// Why a host is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Its site has not answered for too long.
    #[error("its site does not answer")]
    SiteSilent,
    /// Its site does not keep the reservation any more.
    #[error("its site has taken it back")]
    TakenBack,
}

/// How lost hosts are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// By others at the same start; the hosts that are left stay.
    Replace,
    /// By a whole new reservation at another start, which the user allows.
    Move,
}

/// A reservation over all its sites, made by one attempt or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// All N hosts, the lost ones among them. Its efficiency is that of the plan that began it; 0 of 1 when the
    /// reservation was taken over, since it is not known then.
    #[serde(rename = "allocation")]
    pub plan: Plan,
    /// Which attempt reserved which hosts.
    pub parts: Vec<Part>,
    /// Hosts that are lost and not replaced yet.
    pub lost: BTreeMap<SiteId, BTreeMap<HostId, Loss>>,
    /// The repair that is under way.
    pub repair: Option<Repair>,
    /// Repairs that have succeeded.
    pub repairs: u32,
    /// Why the last repair failed.
    pub failure: Option<Outcome>,
}

impl Reservation {
    /// The reservation that one attempt has made.
    pub(super) fn of(attempt: u32, plan: &Plan) -> Reservation {
        let part = Part { attempt, hosts: hosts_of(&plan.seats) };
        Reservation {
            plan: plan.clone(),
            parts: vec![part],
            lost: BTreeMap::new(),
            repair: None,
            repairs: 0,
            failure: None,
        }
    }

    /// Whether this host is lost.
    #[must_use]
    pub fn is_lost(&self, site: &SiteId, host: &HostId) -> bool {
        self.lost.get(site).is_some_and(|hosts| hosts.contains_key(host))
    }

    /// How many of the hosts that `request` asks for are missing. These are more than `lost` names when the reservation was taken
    /// over and sites that held others did not answer.
    #[must_use]
    pub fn missing_hosts(&self, request: &Request) -> usize {
        let lost: usize = self.lost.values().map(BTreeMap::len).sum();
        request.demand().seats().saturating_sub(self.plan.seats.len().saturating_sub(lost))
    }

    /// Notes that a host is lost or found again; true when that changes the reservation.
    pub(super) fn note_host(&mut self, site: &SiteId, host: &HostId, loss: Option<Loss>) -> bool {
        match loss {
            Some(loss) => {
                let hosts = self.lost.entry(site.clone()).or_default();
                // What a site has reported is certain, also when it does not answer afterwards.
                let is_new = hosts.get(host).is_none_or(|known| *known == Loss::SiteSilent && loss == Loss::TakenBack);
                if is_new {
                    hosts.insert(host.clone(), loss);
                }
                is_new
            }
            None => {
                let Some(hosts) = self.lost.get_mut(site) else { return false };
                let was_lost = hosts.remove(host).is_some();
                if hosts.is_empty() {
                    self.lost.remove(site);
                }
                was_lost
            }
        }
    }

    /// The decision of a request that has this reservation.
    pub(super) fn decision(&self) -> Decision {
        let attempt = self.parts.first().map_or(0, |part| part.attempt);
        Decision::Reserved { attempt, plan: self.plan.clone() }
    }

    fn kept(&self) -> Vec<Seat> {
        self.plan.seats.iter().filter(|grant| !self.is_lost(&grant.site, &grant.host)).cloned().collect()
    }

    /// Adds the hosts that a repair has reserved. Returns the bookings to release: those that have no host of the reservation any
    /// more.
    pub(super) fn repaired(&mut self, repair: Repair, attempt: u32, new: &Plan) -> Vec<(u32, SiteId)> {
        let before: Vec<(u32, SiteId)> = self.bookings();
        match repair {
            Repair::Move => *self = Reservation { repairs: self.repairs, ..Reservation::of(attempt, new) },
            Repair::Replace => {
                let mut grants = self.kept();
                grants.extend(new.seats.iter().cloned());
                grants.sort_by(|a, b| (&a.site, &a.host).cmp(&(&b.site, &b.host)));
                for part in &mut self.parts {
                    part.hosts.retain(|(site, host)| !self.lost.get(site).is_some_and(|lost| lost.contains_key(host)));
                }
                self.parts.retain(|part| !part.hosts.is_empty());
                self.parts.push(Part { attempt, hosts: hosts_of(&new.seats) });
                self.plan.seats = grants;
                self.lost.clear();
            }
        }
        self.repair = None;
        self.failure = None;
        self.repairs += 1;
        let after = self.bookings();
        before.into_iter().filter(|booking| !after.contains(booking)).collect()
    }

    /// Its bookings: the number of the attempt, and the site.
    #[must_use]
    pub fn bookings(&self) -> Vec<(u32, SiteId)> {
        let of_part = |part: &Part| part.sites().map(|site| (part.attempt, site.clone())).collect::<Vec<_>>();
        self.parts.iter().flat_map(of_part).collect()
    }

    /// The bookings that still have a host of the reservation.
    pub(super) fn kept_bookings(&self) -> BTreeSet<(u32, SiteId)> {
        let of_part = |part: &Part| {
            let kept = part.hosts.iter().filter(|(site, host)| !self.is_lost(site, host));
            kept.map(|(site, _)| (part.attempt, site.clone())).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of_part).collect()
    }

    /// The problem whose solution makes the reservation of `request` whole again by `repair`. A move may start from `earliest` to
    /// `latest`. None when the request names its candidates and too few of them are left.
    pub(super) fn problem(
        &self,
        request: &Request,
        (earliest, latest): (Time, Time),
        repair: Repair,
    ) -> Option<Problem> {
        let lost: BTreeSet<(SiteId, HostId)> =
            self.lost.iter().flat_map(|(site, hosts)| hosts.keys().map(|host| (site.clone(), host.clone()))).collect();
        if repair == Repair::Move {
            return Some(Problem { avoid: lost, ..Problem::of(request, (earliest, latest)) });
        }
        let kept = self.kept();
        let mut avoid = lost;
        avoid.extend(hosts_of(&kept));
        let missing = u32::try_from(self.missing_hosts(request)).unwrap_or(u32::MAX);
        let demand = request.demand().rest(missing, kept.iter().map(|seat| &seat.amounts), &avoid)?;
        let kept_sites = kept.iter().map(|seat| seat.site.clone()).collect();
        let start = self.plan.start;
        Some(Problem { demand, kept_sites, avoid, ..Problem::of(request, (start, start)) })
    }
}

fn hosts_of(grants: &[Seat]) -> BTreeSet<(SiteId, HostId)> {
    grants.iter().map(|grant| (grant.site.clone(), grant.host.clone())).collect()
}
