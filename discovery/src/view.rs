//! What this node believes of all sites, shared between the swarm task, the background tasks and the planner.
//!
//! Hints only: the pure rules for one site are [`broker::view::SiteView`]; this adds the bound on the number of sites,
//! expiry, departures, the signed adverts for passing on, and the list of sites whose schedules must be asked for.
//! Invariants: at most `sites_max` sites are kept and this node's own is never evicted; when there are more, [`places`] says who goes, so
//! that made-up names push no real site out, and made-up sites that answer no site of another network; a departed site comes back only with a later advert; no guard of the map is held across a call
//! into anything else, so readers cannot block the swarm.

mod places;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use broker::{
    classes::HostClass,
    features::Images,
    host::Host,
    ids::{HostId, Network, SiteId},
    needs::ImageName,
    offered::Offered,
    protocol::{Advert, ClassesLeft, LedgerVersion, ScheduleChange, ScheduleSnapshot, ScheduleUpdate},
    schedule::Schedule,
    time::{Millis, Time},
    uplinks::Uplinks,
    view::{KnownSchedules, Received, Schedules, SiteView},
};
use dashmap::{DashMap, Entry as MapEntry, mapref::multiple::RefMulti};

use self::places::{Placed, Worth, first_to_go};
use crate::{
    counters::{Counter, Counters},
    dht::index::sha256,
    dissemination::fetch_queue::FetchQueue,
    wire::check::{LARGE_SITE_STEPS, STEPS_KEPT_MAX, STEPS_OF_LARGE_SITES_MAX},
};

/// The view of all sites.
#[derive(Debug)]
pub struct SharedView {
    sites: DashMap<SiteId, Entry>,
    own: SiteId,
    sites_max: usize,
    sites_eager_max: usize,
    departed: Mutex<BTreeMap<SiteId, Departure>>,
    /// Sites at which this node has reservations.
    booked: Mutex<BTreeSet<SiteId>>,
    fetches: FetchQueue,
    counters: Arc<Counters>,
    /// Before this, on the monotonic clock, no advert expires.
    expires_from: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    view: SiteView,
    /// The head of the hash of its name.
    hash: u64,
    /// The advert as its author signed it.
    envelope: Arc<[u8]>,
    /// At most this many steps are in the schedules; an upper bound, made exact when it comes near the limit.
    steps_bound: usize,
    /// From when on the schedules show more than is used.
    coarse_from: Option<Time>,
    /// Why the schedules were not got when they were last asked for; none when they were.
    trouble: Option<String>,
    /// Network from which it has answered.
    network: Option<Network>,
}

#[derive(Debug, Clone, Copy)]
struct Departure {
    sequence: u64,
    forget_at: Millis,
}

/// How long a departure is remembered: longer than any advert of default life that still travels, in the largest grid too.
const DEPARTURE_REMEMBERED: Millis = Millis(4 * 3_600_000);

/// A site as status output shows it.
#[derive(Debug, Clone)]
pub struct SiteSummary {
    /// The advert.
    pub advert: Advert,
    /// What is left of its time to live.
    pub expires_in: Millis,
    /// The ledger version that is known, `None` when the schedules are not.
    pub version: Option<LedgerVersion>,
    /// How long ago the schedules were last confirmed.
    pub schedule_age: Option<Millis>,
    /// Whether a later version than the known one exists.
    pub has_gap: bool,
    /// From when on the schedules show more than is used, since the site has more than it may tell.
    pub coarse_from: Option<Time>,
    /// Why the schedules were not got when they were last asked for; none when they were.
    pub trouble: Option<String>,
}

/// A host with the schedule that is believed of it.
#[derive(Debug, Clone)]
pub struct HostView {
    /// The host.
    pub host: Host,
    /// Its schedule.
    pub schedule: Arc<Schedule>,
    /// The site's ledger version that the schedule shows.
    pub version: LedgerVersion,
    /// How long ago it was last confirmed.
    pub age: Millis,
    /// When, how long and how far ahead the site offers it.
    pub offer: Arc<Offered>,
}

impl SharedView {
    pub(crate) fn new(
        own: SiteId,
        (sites_max, sites_eager_max): (usize, usize),
        fetches: FetchQueue,
        counters: Arc<Counters>,
    ) -> SharedView {
        SharedView {
            sites: DashMap::new(),
            own,
            sites_max,
            sites_eager_max,
            departed: Mutex::default(),
            booked: Mutex::default(),
            fetches,
            counters,
            expires_from: AtomicU64::new(u64::MAX),
        }
    }

    /// How many sites are known, this node's own included.
    #[must_use]
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// How many hosts are known.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.sites.iter().map(|entry| entry.view.advert().hosts.count()).sum()
    }

    /// Whether the site is known.
    #[must_use]
    pub fn knows(&self, site: &SiteId) -> bool {
        self.sites.contains_key(site)
    }

    /// Looks at one site. Keep `look` short: it holds up writers of the same part of the map.
    pub fn with_site<R>(&self, site: &SiteId, look: impl FnOnce(&SiteView) -> R) -> Option<R> {
        self.sites.get(site).map(|entry| look(&entry.view))
    }

    /// From when on a site's schedules show more than is used; none where they are exact.
    #[must_use]
    pub fn coarse_from(&self, site: &SiteId) -> Option<Time> {
        self.sites.get(site)?.coarse_from
    }

    /// The names of all sites, in order.
    #[must_use]
    pub fn site_ids(&self) -> Vec<SiteId> {
        let mut ids: Vec<SiteId> = self.sites.iter().map(|entry| entry.key().clone()).collect();
        ids.sort_unstable();
        ids
    }

    /// All sites in the order of their names.
    #[must_use]
    pub fn sites(&self, now: Millis) -> Vec<SiteSummary> {
        let summary = |site: SiteId| self.sites.get(&site).map(|entry| summarise(&entry, now));
        self.site_ids().into_iter().filter_map(summary).collect()
    }

    /// The first names of images, at most so many, of sites that tell them.
    #[must_use]
    pub fn image_names(&self, most: usize) -> BTreeSet<ImageName> {
        let mut names = BTreeSet::new();
        if most == 0 {
            return names;
        }
        for entry in &self.sites {
            if let Images::Named(of_site) = entry.view.advert().features.images() {
                names.extend(of_site.iter().take(most).cloned());
                while names.len() > most {
                    names.pop_last();
                }
            }
        }
        names
    }

    /// Looks at all classes of hosts, site by site, in no particular order. The flag tells whether the site's schedules
    /// are known.
    pub(crate) fn for_each_class(&self, mut look: impl FnMut(&Advert, &HostClass, bool)) {
        for entry in &self.sites {
            let has_answered = matches!(entry.view.schedules(), Schedules::Known(_));
            let advert = entry.view.advert();
            for class in advert.hosts.classes() {
                look(advert, class, has_answered);
            }
        }
    }

    /// A host and its schedule, when the site's schedules were confirmed within `age_max` and have no gap. Hosts of one class that are
    /// looked at one after the other have one `left`.
    #[must_use]
    pub fn fresh_host(
        &self,
        (site, host): (&SiteId, &HostId),
        now: Millis,
        age_max: Millis,
        left: &mut ClassesLeft,
    ) -> Option<HostView> {
        self.host_with((site, host), now, |view| view.fresh_schedules(now, age_max), left)
    }

    /// A host and its schedule as it was at some moment since `since`. A busy site may have changed again meanwhile.
    #[must_use]
    pub fn host_since(
        &self,
        (site, host): (&SiteId, &HostId),
        now: Millis,
        since: Millis,
        left: &mut ClassesLeft,
    ) -> Option<HostView> {
        self.host_with((site, host), now, |view| view.schedules_since(since), left)
    }

    /// The uplinks of these sites that have a limit, with what is believed to be used of them, however old that is.
    #[must_use]
    pub fn uplinks<'s>(&self, sites: impl IntoIterator<Item = &'s SiteId>) -> Uplinks {
        let link = |site: &SiteId| Some((site.clone(), self.with_site(site, SiteView::uplink)??));
        sites.into_iter().filter_map(link).collect()
    }

    /// Those of these sites that give quotes.
    #[must_use]
    pub fn quoting<'s>(&self, sites: impl IntoIterator<Item = &'s SiteId>) -> BTreeSet<SiteId> {
        let sites: BTreeSet<&SiteId> = sites.into_iter().collect();
        sites
            .into_iter()
            .filter(|site| self.with_site(site, |view| view.advert().quotes) == Some(true))
            .cloned()
            .collect()
    }

    /// What the hosts of the site's classes have, without hosts that are known to be in use.
    pub(crate) fn without(&self, site: &SiteId, hosts: &BTreeSet<(SiteId, HostId)>) -> ClassesLeft {
        let mut left = ClassesLeft::default();
        let of_site = hosts.iter().filter(|(of, _)| of == site);
        self.with_site(site, |view| {
            let Schedules::Known(known) = view.schedules() else { return };
            for host in of_site.filter_map(|(_, host)| view.advert().hosts.get(host)) {
                known.schedules.pass_over(&host, &mut left);
            }
        });
        left
    }

    fn host_with(
        &self,
        (site, host): (&SiteId, &HostId),
        now: Millis,
        schedules: impl FnOnce(&SiteView) -> Option<&KnownSchedules>,
        left: &mut ClassesLeft,
    ) -> Option<HostView> {
        let entry = self.sites.get(site)?;
        let known = schedules(&entry.view)?;
        let host = entry.view.advert().hosts.get(host)?;
        let schedule = known.schedules.next_of(&host, left);
        let offer = entry.view.advert().offer.clone();
        Some(HostView { host, schedule, version: known.version, age: now - known.learnt, offer })
    }

    /// Whether the site's schedules were confirmed within `age_max` and have no gap.
    #[must_use]
    pub fn is_fresh(&self, site: &SiteId, now: Millis, age_max: Millis) -> bool {
        self.with_site(site, |view| view.fresh_schedules(now, age_max).is_some()).unwrap_or(false)
    }

    /// The version known of a site's schedules.
    #[must_use]
    pub fn version(&self, site: &SiteId) -> Option<LedgerVersion> {
        self.with_site(site, |view| match view.schedules() {
            Schedules::Known(known) => Some(known.version),
            Schedules::Unknown => None,
        })
        .flatten()
    }

    /// Addresses that the site advertises.
    #[must_use]
    pub fn addresses(&self, site: &SiteId) -> Vec<String> {
        self.with_site(site, |view| view.advert().addresses.clone()).unwrap_or_default()
    }

    /// The sequence of the latest advert or departure received of a site.
    #[must_use]
    pub fn sequence(&self, site: &SiteId) -> Option<u64> {
        let present = self.with_site(site, |view| view.advert().sequence);
        present.or_else(|| self.departures().get(site).map(|departure| departure.sequence))
    }

    /// The site's advert as it signed it.
    #[must_use]
    pub fn envelope(&self, site: &SiteId) -> Option<Arc<[u8]>> {
        self.sites.get(site).map(|entry| Arc::clone(&entry.envelope))
    }

    /// For every site known the hash of its name and the sequence of its advert.
    #[must_use]
    pub fn known_sequences(&self) -> Vec<(u64, u64)> {
        self.sites.iter().map(|entry| (entry.hash, entry.view.advert().sequence)).collect()
    }

    /// The signed adverts that are later than those in `known`, up to `bytes_max` in all, and whether that is all.
    #[must_use]
    pub fn envelopes_later_than(&self, known: &BTreeMap<u64, u64>, bytes_max: usize) -> (Vec<Vec<u8>>, bool) {
        let mut envelopes = Vec::new();
        let mut bytes = 0;
        for entry in &self.sites {
            if known.get(&entry.hash).is_some_and(|known| *known >= entry.view.advert().sequence) {
                continue;
            }
            bytes += entry.envelope.len();
            if bytes > bytes_max && !envelopes.is_empty() {
                return (envelopes, false);
            }
            envelopes.push(entry.envelope.to_vec());
        }
        (envelopes, true)
    }

    /// True when an advert of the site finds a place, if need be that of a site that gives way.
    pub(crate) fn make_room_for(&self, site: &SiteId, now: Millis) -> bool {
        if self.sites.len() < self.sites_max || self.knows(site) {
            return true;
        }
        let Some((_, gone)) = self.least_worth(now).filter(|(worth, _)| worth.gives_way()) else { return false };
        self.sites.remove(&gone);
        self.counters.count(Counter::SitesEvicted);
        true
    }

    /// The site to give up first.
    fn least_worth(&self, now: Millis) -> Option<(Worth, SiteId)> {
        let booked = self.booked();
        let others = self.sites.iter().filter(|entry| *entry.key() != self.own);
        let placed = others.map(|entry| Placed {
            site: entry.key().clone(),
            is_booked: booked.contains(entry.key()),
            has_failed: entry.trouble.is_some(),
            confirmed: match entry.view.schedules() {
                Schedules::Known(known) => Some(known.learnt),
                Schedules::Unknown => None,
            },
            network: entry.network.clone(),
            expires: entry.view.expires(),
        });
        let placed: Vec<Placed> = placed.collect();
        first_to_go(&placed, self.sites_max, now).map(|(worth, site)| (worth, site.clone()))
    }

    /// Sets the sites at which this node has reservations: they keep their places.
    pub(crate) fn keep_booked(&self, sites: BTreeSet<SiteId>) {
        *self.booked() = sites;
    }

    /// Notes the network from which a site has answered; the one before stays where none is known.
    pub(crate) fn note_network(&self, site: &SiteId, network: Option<Network>) {
        if let (Some(mut entry), Some(network)) = (self.sites.get_mut(site), network) {
            entry.network = Some(network);
        }
    }

    /// Takes in an advert that was checked. One without time to live is a departure: the site goes.
    pub(crate) fn receive_advert(&self, advert: Advert, envelope: &[u8], now: Millis, remaining: Millis) -> Received {
        let site = advert.site.clone();
        if self.sequence(&site).is_some_and(|known| advert.sequence <= known) {
            return Received::Old;
        }
        if advert.time_to_live_s == 0 {
            self.depart(&site, advert.sequence, now);
            return Received::Applied;
        }
        self.departures().remove(&site);
        let (heard, is_new) = match self.sites.entry(site.clone()) {
            MapEntry::Occupied(mut entry) => {
                let heard = entry.get_mut().view.receive_advert(advert, now, remaining);
                if heard == Received::Applied {
                    entry.get_mut().envelope = Arc::from(envelope);
                }
                (heard, false)
            }
            MapEntry::Vacant(entry) => {
                let view = SiteView::new(advert, now, remaining);
                let (hash, envelope) = (short_hash(&site), Arc::from(envelope));
                let (steps_bound, coarse_from, trouble, network) = (0, None, None, None);
                entry.insert(Entry { view, hash, envelope, steps_bound, coarse_from, trouble, network });
                (Received::Applied, true)
            }
        };
        // When it is in the map: whoever has looked at that before sees this.
        self.expires_from.fetch_min((now + remaining).0, Ordering::Relaxed);
        if heard == Received::Applied {
            self.counters.count(Counter::AdvertsApplied);
            self.evict_above_limit(now);
        }
        if is_new && (site == self.own || self.is_small()) {
            self.fetches.want(&site, now);
        } else {
            self.fetches.sign_of_life(&site, now);
        }
        heard
    }

    /// Takes in changes that were checked.
    pub(crate) fn receive_update(&self, update: &ScheduleUpdate, now: Millis) -> Received {
        let heard = match self.sites.get_mut(&update.site) {
            Some(mut entry) => {
                let heard = entry.view.receive_update(update, now);
                if update.site != self.own {
                    entry.note_steps(update);
                }
                heard
            }
            // Nothing is kept of a site without an advert.
            None => return Received::Gap,
        };
        self.follow_up(&update.site, heard, now);
        if heard == Received::Applied {
            self.counters.count(Counter::UpdatesApplied);
        }
        heard
    }

    /// Whether the schedules of one more large site are kept, if it is one.
    pub(crate) fn has_room_for(&self, snapshot: &ScheduleSnapshot) -> bool {
        let steps = snapshot.schedules.len();
        let others = || self.sites.iter().filter(|entry| *entry.key() != snapshot.site && *entry.key() != self.own);
        let of_large = |steps: usize| Some(steps).filter(|steps| *steps > LARGE_SITE_STEPS);
        let of_others = || others().filter_map(|entry| of_large(entry.steps_bound)).sum::<usize>();
        steps <= LARGE_SITE_STEPS || steps + of_others() <= STEPS_OF_LARGE_SITES_MAX
    }

    /// Notes why the schedules of a site were not got.
    pub(crate) fn note_trouble(&self, site: &SiteId, why: String) {
        if let Some(mut entry) = self.sites.get_mut(site) {
            entry.trouble = Some(why);
        }
    }

    /// Takes in fetched schedules that were checked; `coarse_from` says from when on they show more than is used.
    pub(crate) fn receive_snapshot(
        &self,
        mut snapshot: ScheduleSnapshot,
        coarse_from: Option<Time>,
        now: Millis,
    ) -> Received {
        let site = snapshot.site.clone();
        let steps = snapshot.schedules.len();
        let Some(mut entry) = self.sites.get_mut(&site) else { return Received::Old };
        if let Some(from) = coarse_from {
            snapshot.schedules.mark_coarse(from);
        }
        let heard = entry.view.receive_snapshot(snapshot, now);
        if heard != Received::Old {
            (entry.steps_bound, entry.coarse_from, entry.trouble) = (steps, coarse_from, None);
        }
        drop(entry);
        self.follow_up(&site, heard, now);
        heard
    }

    /// Takes in the ledger version that a direct answer carried.
    pub(crate) fn receive_version(&self, site: &SiteId, version: LedgerVersion, now: Millis) {
        let Some(heard) = self.sites.get_mut(site).map(|mut entry| entry.view.receive_version(version, now)) else {
            return;
        };
        self.follow_up(site, heard, now);
    }

    /// Takes note of a connection with a site; `was_lost` if an earlier one was given up because the site did not answer.
    pub(crate) fn receive_connected(&self, site: &SiteId, was_lost: bool, now: Millis) {
        self.fetches.connected(site, now);
        if was_lost && self.version(site).is_some() {
            self.fetches.want(site, now);
        }
    }

    #[cfg(test)]
    pub(crate) fn network(&self, site: &SiteId) -> Option<Network> {
        self.sites.get(site)?.network.clone()
    }

    fn follow_up(&self, site: &SiteId, heard: Received, now: Millis) {
        if heard == Received::Gap {
            self.counters.count(Counter::Gaps);
            if self.version(site).is_some() {
                self.fetches.want_missed(site, now);
            } else if self.is_small() {
                self.fetches.want(site, now);
            }
        }
    }

    /// Whether so few sites are known that each is asked for its schedules when it is met.
    fn is_small(&self) -> bool {
        self.sites.len() <= self.sites_eager_max
    }

    /// Drops what has expired.
    pub(crate) fn drop_expired(&self, now: Millis) {
        self.departures().retain(|_, departure| departure.forget_at > now);
        if now.0 < self.expires_from.load(Ordering::Relaxed) {
            return;
        }
        // Adverts that come while it looks lower this again.
        self.expires_from.store(u64::MAX, Ordering::Relaxed);
        let before = self.sites.len();
        self.sites.retain(|site, entry| {
            let is_kept = *site == self.own || entry.view.expires() > now;
            if is_kept {
                // This node's own may be over, and is looked at again when anything else is.
                let expires = entry.view.expires().0.max(now.0 + 1);
                self.expires_from.fetch_min(expires, Ordering::Relaxed);
            }
            is_kept
        });
        self.counters.add(Counter::SitesExpired, before.saturating_sub(self.sites.len()) as u64);
    }

    /// Drops the sites, this node's own excepted, that `keep` does not want, going by their signed adverts.
    pub(crate) fn drop_unless(&self, keep: impl Fn(&SiteId, &[u8]) -> bool) {
        let others = self.sites.iter().filter(|entry| *entry.key() != self.own);
        let others: Vec<_> = others.map(|entry| (entry.key().clone(), Arc::clone(&entry.envelope))).collect();
        for (site, envelope) in others {
            if !keep(&site, &envelope) && self.sites.remove(&site).is_some() {
                self.counters.count(Counter::SitesExpelled);
            }
        }
    }

    /// Forgets the past of all schedules.
    pub(crate) fn forget_before(&self, utc: Time) {
        for mut entry in self.sites.iter_mut() {
            entry.view.forget_before(utc);
        }
    }

    /// The site whose schedules were confirmed longest ago, longer than `age_min`.
    pub(crate) fn longest_unconfirmed(&self, now: Millis, age_min: Millis) -> Option<SiteId> {
        let learnt = |view: &SiteView| match view.schedules() {
            Schedules::Known(known) => Some(known.learnt),
            Schedules::Unknown => None,
        };
        self.sites
            .iter()
            .filter_map(|entry| Some((learnt(&entry.view)?, entry.key().clone())))
            .filter(|(learnt, site)| now - *learnt > age_min && !self.fetches.wants(site))
            .min()
            .map(|(_, site)| site)
    }

    /// Any site whose schedules are neither known nor about to be fetched.
    pub(crate) fn any_unknown(&self) -> Option<SiteId> {
        // Whoever comes next behind a random place, since looking at all of a large grid's takes a while.
        let place = rand::random_range(0..self.sites.len().max(1));
        let behind = self.first_unknown(self.sites.iter().skip(place));
        behind.or_else(|| self.first_unknown(self.sites.iter().take(place)))
    }

    fn first_unknown<'a>(&self, mut sites: impl Iterator<Item = RefMulti<'a, SiteId, Entry>>) -> Option<SiteId> {
        let is_unknown = |view: &SiteView| matches!(view.schedules(), Schedules::Unknown);
        let unknown = sites.find(|entry| is_unknown(&entry.view) && !self.fetches.wants(entry.key()));
        unknown.map(|entry| entry.key().clone())
    }

    fn depart(&self, site: &SiteId, sequence: u64, now: Millis) {
        self.sites.remove(site);
        let mut departed = self.departures();
        if departed.len() >= self.sites_max {
            let soonest = departed.iter().min_by_key(|(_, departure)| departure.forget_at);
            if let Some(site) = soonest.map(|(site, _)| site.clone()) {
                departed.remove(&site);
            }
        }
        departed.insert(site.clone(), Departure { sequence, forget_at: now + DEPARTURE_REMEMBERED });
        self.counters.count(Counter::Departures);
    }

    fn evict_above_limit(&self, now: Millis) {
        while self.sites.len() > self.sites_max {
            let Some((_, site)) = self.least_worth(now) else { return };
            self.sites.remove(&site);
            self.counters.count(Counter::SitesEvicted);
        }
    }

    fn departures(&self) -> MutexGuard<'_, BTreeMap<SiteId, Departure>> {
        // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
        self.departed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn booked(&self) -> MutexGuard<'_, BTreeSet<SiteId>> {
        // As above.
        self.booked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Keeps a hostile site from growing its schedules without end, one small update at a time.
    fn note_steps(&mut self, update: &ScheduleUpdate) {
        self.steps_bound += update.changes.iter().map(ScheduleChange::len_max).sum::<usize>();
        if self.steps_bound <= STEPS_KEPT_MAX {
            return;
        }
        if let Schedules::Known(known) = self.view.schedules() {
            self.steps_bound = known.schedules.len();
        }
        if self.steps_bound > STEPS_KEPT_MAX {
            self.view.forget_schedules();
            self.steps_bound = 0;
        }
    }
}

/// Eight bytes are enough to tell a few thousand sites apart; should two collide, one waits for gossip.
fn short_hash(site: &SiteId) -> u64 {
    let digest = sha256(site.as_str().as_bytes().to_vec());
    digest[..8].iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

fn summarise(Entry { view, coarse_from, trouble, .. }: &Entry, now: Millis) -> SiteSummary {
    let (version, schedule_age, has_gap) = match view.schedules() {
        Schedules::Known(known) => (Some(known.version), Some(now - known.learnt), known.has_gap),
        Schedules::Unknown => (None, None, false),
    };
    SiteSummary {
        advert: view.advert().clone(),
        expires_in: view.expires() - now,
        version,
        schedule_age,
        has_gap,
        coarse_from: *coarse_from,
        trouble: trouble.clone(),
    }
}

#[cfg(test)]
mod tests;
