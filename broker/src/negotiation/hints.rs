//! What refusals and quotes have shown of hosts and uplinks: newer schedules than discovery knew, newer tariffs and rules, smaller uplinks.
//!
//! Invariant: of a schedule the newest version that was shown counts, of a tariff the last one. Schedules are of hosts that attempts have
//! named, tariffs of these and of hosts that were found.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::found::{Found, FoundHost, Owners};
use crate::{
    amount::Amount,
    host::Host,
    ids::{HostId, SiteId},
    offered::Offered,
    protocol::{HostState, LedgerVersion, Refusal, RefusalReason},
    schedule::Schedule,
    tariff::Tariff,
    time::{Time, Window},
    uplinks::{Uplink, Uplinks},
};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Hints {
    states: BTreeMap<(SiteId, HostId), (LedgerVersion, HostState)>,
    tariffs: BTreeMap<(SiteId, HostId), Arc<Tariff>>,
    /// The rules of owners that were believed, and those that a refusal has shown in their place.
    offers: BTreeMap<SiteId, Newer>,
    /// What an uplink carries, where its advert may be older than that.
    links: BTreeMap<SiteId, (LedgerVersion, Amount)>,
}

/// Rules of an owner.
#[derive(Debug, Clone)]
struct Newer {
    believed: Option<Arc<Offered>>,
    shown: Arc<Offered>,
}

impl Hints {
    /// Remembers what a refusal shows, of at most `hosts_max` hosts and the uplink: no site was asked for more. Owners rarely change the price of one
    /// host, so `found` hosts of the site that had the same tariff count as changed alike. What is free of the uplink is meant of `window`.
    pub fn remember(
        &mut self,
        site: &SiteId,
        refusal: Refusal,
        hosts_max: usize,
        (found, window): (Option<&Found>, Option<Window>),
    ) {
        let version = refusal.version;
        if let (RefusalReason::UplinkFull { free, .. }, Some(window)) = (&refusal.reason, window)
            && let Some(state) = refusal.hosts.iter().find(|state| state.host.is_uplink())
        {
            let used = link_of(Amount::MAX, state, true).occupancy.peak(window);
            let carries = Amount(used.0.saturating_add(free.0));
            self.links.insert(site.clone(), (version, carries));
        }
        // The uplink too.
        self.remember_states(site, version, refusal.hosts, hosts_max.saturating_add(1));
        if let RefusalReason::NotOffered { offer, .. } = &refusal.reason {
            let believed = found.into_iter().flat_map(|found| &found.hosts).find(|found| found.site == *site);
            let newer = Newer { believed: believed.map(|found| found.offer.clone()), shown: offer.clone() };
            self.offers.insert(site.clone(), newer);
        }
        let RefusalReason::PriceChanged { host, tariff } = refusal.reason else { return };
        let here: Vec<&FoundHost> =
            found.into_iter().flat_map(|found| &found.hosts).filter(|found| found.site == *site).collect();
        let before = here.iter().find(|found| found.host.id == host).map(|found| self.tariff_of(found).clone());
        let alike: BTreeSet<HostId> = here
            .into_iter()
            .filter(|found| before.as_ref() == Some(self.tariff_of(found)))
            .map(|found| found.host.id.clone())
            .chain([host])
            .collect();
        self.tariffs.extend(alike.into_iter().map(|host| ((site.clone(), host), tariff.clone())));
    }

    /// Remembers the states of hosts at a version, of the first so many.
    pub fn remember_states(&mut self, site: &SiteId, version: LedgerVersion, states: Vec<HostState>, most: usize) {
        for state in states.into_iter().take(most) {
            let key = (site.clone(), state.host.clone());
            if self.states.get(&key).is_none_or(|(known, _)| *known <= version) {
                self.states.insert(key, (version, state));
            }
        }
    }

    /// Whether a host is known to have this tariff already.
    pub fn has_tariff(&self, site: &SiteId, (host, tariff): (&HostId, &Arc<Tariff>), found: Option<&Found>) -> bool {
        let is_it = |found: &&FoundHost| found.site == *site && found.host.id == *host;
        let known = found.into_iter().flat_map(|found| &found.hosts).find(is_it);
        known.is_some_and(|known| self.tariff_of(known) == tariff)
    }

    fn tariff_of<'h>(&'h self, found: &'h FoundHost) -> &'h Arc<Tariff> {
        self.tariffs.get(&(found.site.clone(), found.host.id.clone())).unwrap_or(&found.host.tariff)
    }

    /// The host with its present tariff.
    pub fn host<'h>(&'h self, found: &'h FoundHost) -> Cow<'h, Host> {
        let tariff = self.tariff_of(found);
        if Arc::ptr_eq(tariff, &found.host.tariff) {
            Cow::Borrowed(&found.host)
        } else {
            Cow::Owned(Host { tariff: tariff.clone(), ..found.host.clone() })
        }
    }

    /// Whether these are the rules of the site's owner that are known already.
    pub fn has_offer(&self, site: &SiteId, offer: &Arc<Offered>, found: Option<&Found>) -> bool {
        let found = found.into_iter().flat_map(|found| &found.hosts).find(|found| found.site == *site);
        found.is_some_and(|found| self.offer_of(found) == offer)
    }

    /// What was shown counts until others hear of newer rules.
    fn offer_of<'h>(&'h self, found: &'h FoundHost) -> &'h Arc<Offered> {
        let newer = self.offers.get(&found.site);
        let newer = newer.filter(|newer| newer.believed.as_ref().is_none_or(|believed| *believed == found.offer));
        newer.map_or(&found.offer, |newer| &newer.shown)
    }

    /// The schedules of hosts as they were shown last, perhaps with the holds of others, with what their owners do not promise to anybody
    /// who asks at `now`.
    pub fn offered<'h>(
        &'h self,
        hosts: impl Iterator<Item = &'h FoundHost>,
        with_holds: bool,
        now: Time,
    ) -> Vec<Cow<'h, Schedule>> {
        let mut owners = Owners::at(now);
        let one = |found: &'h FoundHost| {
            owners.restrict(
                self.schedule(found, with_holds),
                &self.host(found),
                (self.offer_of(found), found.standing.as_deref()),
            )
        };
        hosts.map(one).collect()
    }

    /// The links of the sites of the hosts found, perhaps with the holds of others.
    pub fn uplinks(&self, found: &Found, with_holds: bool) -> Uplinks {
        let shown_at: BTreeMap<&SiteId, LedgerVersion> =
            found.hosts.iter().map(|found| (&found.site, found.version)).collect();
        let link = |(site, link): (&SiteId, &Uplink)| {
            let known = self.states.get(&(site.clone(), HostId::uplink()));
            let newer = known.filter(|(version, _)| shown_at.get(site).is_none_or(|shown| version >= shown));
            let Some((version, state)) = newer else { return (site.clone(), link.clone()) };
            let carries = self.links.get(site).filter(|(shown, _)| shown == version).map(|(_, carries)| *carries);
            let mbps = carries.map_or(link.mbps, |carries| carries.min(link.mbps));
            (site.clone(), link_of(mbps, state, with_holds))
        };
        found.uplinks.iter().map(link).collect()
    }

    /// Its schedule as it was shown last, perhaps with the holds of others.
    fn schedule<'h>(&'h self, found: &'h FoundHost, with_holds: bool) -> Cow<'h, Schedule> {
        match self.states.get(&(found.site.clone(), found.host.id.clone())) {
            Some((version, state)) if *version >= found.version => {
                let mut schedule = Cow::Borrowed(&state.schedule);
                for (window, amounts) in state.held.iter().filter(|_| with_holds) {
                    schedule.to_mut().add(*window, amounts);
                }
                schedule
            }
            _ => Cow::Borrowed(&found.schedule),
        }
    }
}

/// An uplink as a refusal has shown it.
fn link_of(mbps: Amount, state: &HostState, with_holds: bool) -> Uplink {
    let mut schedule = Cow::Borrowed(&state.schedule);
    for (window, amounts) in state.held.iter().filter(|_| with_holds) {
        schedule.to_mut().add(*window, amounts);
    }
    Uplink::with_schedule(mbps, &schedule)
}
