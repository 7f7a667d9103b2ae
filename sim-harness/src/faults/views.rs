//! The views that one node has of other sites, and phase I on them. All nodes know from the start which sites there are (in
//! a live grid, through the index).
//!
//! Invariant: what the node plans on comes out of its own [`SiteView`]s (and its own ledger) only.

use std::collections::BTreeMap;

use broker::{
    demand::Demand,
    host::Host,
    ids::{RequestId, SiteId},
    ledger::Books,
    negotiation::{Excluded, Found, FoundHost},
    protocol::{Advert, ClassesLeft, LedgerVersion, ScheduleSnapshot, ScheduleUpdate},
    resources::{ResourceName, amount_of},
    time::{Millis, Now},
    uplinks::Uplink,
    view::{Received, Schedules, SiteView},
};

use super::message::Gossip;
use crate::engine::{Moment, SiteLedger};

/// How long an advert is believed.
const TIME_TO_LIVE: Millis = Millis(30_000);
/// A schedule that was learnt longer ago is asked for again before it is planned on.
const MAX_SCHEDULE_AGE: Millis = Millis(20_000);
/// A site is not asked for its schedules more often.
const FETCH_EVERY_MS: u64 = 300;

/// Phase I under way.
#[derive(Debug)]
pub struct Search {
    pub request: RequestId,
    /// Hosts wanted.
    pub count: usize,
    /// Governs the sample.
    pub seed: u64,
    /// What is left out.
    pub exclude: Excluded,
}

/// A view that has changed or may have.
pub struct Change {
    /// The version that it showed before.
    pub before: Option<LedgerVersion>,
    /// It shows something else than before.
    pub is_news: bool,
    /// Something was missed: the site has to be asked.
    pub has_gap: bool,
}

/// The views of a node by site, and what it has published and asked for in this run.
#[derive(Debug, Default)]
pub struct Views {
    by_site: BTreeMap<usize, SiteView>,
    /// When each site was last asked for its schedules.
    fetched: BTreeMap<usize, Moment>,
    adverts: u64,
}

impl Views {
    /// Counts one more advert of the node itself.
    pub fn next_advert(&mut self) -> u64 {
        self.adverts += 1;
        self.adverts
    }

    /// The view of a site.
    pub fn get(&self, site: usize) -> Option<&SiteView> {
        self.by_site.get(&site)
    }

    /// A site has left.
    pub fn forget(&mut self, site: usize) {
        self.by_site.remove(&site);
    }

    /// Gossip of a site has arrived.
    pub fn receive_gossip(&mut self, site: usize, gossip: &Gossip, now: Millis) -> Change {
        let view = self.view(site, &gossip.advert, now);
        let before = known_version(view);
        if gossip.advert.sequence > view.advert().sequence {
            view.receive_advert(gossip.advert.clone(), now, TIME_TO_LIVE);
        }
        let (from, changes) = (gossip.update.from, gossip.update.changes.clone());
        let is_sign_of_life = changes.is_empty();
        let received = view.receive_update(&ScheduleUpdate { site: gossip.advert.site.clone(), from, changes }, now);
        Change {
            before,
            is_news: received == Received::Applied && !is_sign_of_life,
            has_gap: received == Received::Gap,
        }
    }

    /// All schedules of a site have arrived. With the fault of doing so, older ones than known are believed as well.
    pub fn receive_schedules(
        &mut self,
        site: usize,
        (advert, snapshot): &(Advert, ScheduleSnapshot),
        now: Millis,
        accepts_old: bool,
    ) -> Change {
        let view = self.view(site, advert, now);
        let before = known_version(view);
        if accepts_old {
            let remaining = view.expires() - now;
            *view = SiteView::new(view.advert().clone(), now, remaining);
        }
        view.receive_snapshot(snapshot.clone(), now);
        Change { before, is_news: true, has_gap: false }
    }

    /// A direct answer has named the version of its site's ledger. Returns whether the site has to be asked for more.
    pub fn receive_version(&mut self, site: usize, version: LedgerVersion, now: Millis) -> bool {
        self.by_site.get_mut(&site).is_some_and(|view| view.receive_version(version, now) == Received::Gap)
    }

    /// Whether a site may be asked for its schedules now; it then is.
    pub fn fetch(&mut self, site: usize, now: Moment) -> bool {
        let is_due = self.fetched.get(&site).is_none_or(|at| now.ms_since(*at) >= FETCH_EVERY_MS);
        if is_due {
            self.fetched.insert(site, now);
        }
        is_due
    }

    /// Whether the view of a site is believed, and shows this version of its ledger.
    pub fn shows(&self, site: usize, version: Option<LedgerVersion>, now: Millis) -> bool {
        self.by_site.get(&site).is_some_and(|view| {
            let known = view.fresh_schedules(now, MAX_SCHEDULE_AGE);
            view.expires() > now && known.is_some_and(|known| Some(known.version) == version)
        })
    }

    /// The hosts that could serve a request as far as the node knows, its own among them, and the sites whose schedules it
    /// lacks.
    pub fn find(&self, own: &SiteLedger, wanted: &Demand, exclude: &Excluded, now: Now) -> (Found, Vec<usize>) {
        let is_left_out = |site: &SiteId, host: &Host| exclude.hosts.contains(&(site.clone(), host.id.clone()));
        let (mut found, mut missing, mut uplinks) = (Found::default(), Vec::new(), Vec::new());
        let needs = wanted.host_needs();
        if !exclude.sites.contains(own.site()) {
            let (snapshot, offer) = (own.snapshot(now), own.offered());
            uplinks.extend(own_uplink(own));
            found.quoting.extend(own.has_jobs_to_move().then(|| snapshot.site.clone()));
            let mut left = ClassesLeft::default();
            let left_out = own.hosts().map(Books::host).filter(|host| is_left_out(own.site(), host));
            left_out.for_each(|host| snapshot.schedules.pass_over(host, &mut left));
            for host in own.hosts().filter(|host| !is_left_out(own.site(), host.host())) {
                found.known_hosts += 1;
                let schedule = snapshot.schedules.next_of(host.host(), &mut left);
                let (site, host, version) = (snapshot.site.clone(), host.host().clone(), snapshot.version);
                match needs.first_unmet(&site, &host) {
                    Some(unmet) => found.cut.add(unmet, 1),
                    None => found.hosts.push(FoundHost {
                        site,
                        host,
                        schedule,
                        version,
                        offer: offer.clone(),
                        standing: None,
                    }),
                }
            }
        }
        for (index, view) in &self.by_site {
            let site = &view.advert().site;
            if exclude.sites.contains(site) || view.expires() <= now.monotonic {
                continue;
            }
            let fresh = view.fresh_schedules(now.monotonic, MAX_SCHEDULE_AGE);
            uplinks.extend(view.uplink().map(|uplink| (site.clone(), uplink)));
            if view.advert().quotes {
                found.quoting.insert(site.clone());
            }
            if fresh.is_none() {
                missing.push(*index);
            }
            let mut left = ClassesLeft::default();
            if let Some(known) = fresh {
                let left_out = view.advert().hosts.iter().filter(|host| is_left_out(site, host));
                left_out.for_each(|host| known.schedules.pass_over(&host, &mut left));
            }
            for host in view.advert().hosts.iter().filter(|host| !is_left_out(site, host)) {
                found.known_hosts += 1;
                if let Some(unmet) = needs.first_unmet(site, &host) {
                    found.cut.add(unmet, 1);
                } else if let Some(known) = fresh {
                    let schedule = known.schedules.next_of(&host, &mut left);
                    let site = site.clone();
                    let offer = view.advert().offer.clone();
                    found.hosts.push(FoundHost { site, host, schedule, version: known.version, offer, standing: None });
                } else {
                    found.without_schedule += 1;
                }
            }
        }
        found.uplinks = uplinks.into_iter().collect();
        (found, missing)
    }

    fn view(&mut self, site: usize, advert: &Advert, now: Millis) -> &mut SiteView {
        self.by_site.entry(site).or_insert_with(|| SiteView::new(advert.clone(), now, TIME_TO_LIVE))
    }
}

/// The uplink of the node's own site, if it has a limit.
fn own_uplink(own: &SiteLedger) -> Option<(SiteId, Uplink)> {
    let books = own.uplink()?;
    let mbps = amount_of(&books.host().capacity, &ResourceName::mbps());
    Some((own.site().clone(), Uplink::with_schedule(mbps, books.reserved())))
}

/// The version that a view shows.
pub fn known_version(view: &SiteView) -> Option<LedgerVersion> {
    match view.schedules() {
        Schedules::Unknown => None,
        Schedules::Known(known) => Some(known.version),
    }
}
