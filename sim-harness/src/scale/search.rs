//! Phase I at a coordinator: draws hosts from the view, and fetches the schedules that are too old to plan on.
//!
//! The same rules as a node's find: every fitting host that is known has the same chance; what is stale is asked for, in
//! parallel, for a second at most; hosts whose schedules cannot be had are replaced by others a few times. The search in
//! the DHT index that follows when the view is too small is not simulated: a view of thousands of hosts suffices here.
//! Invariant: a host is handed out with a schedule that its site has sent, never with what it has at this moment.

use std::collections::BTreeSet;

use broker::{
    ids::{HostId, SiteId},
    negotiation::{Event as Input, Found, FoundHost, Negotiation},
    protocol::{LedgerVersion, ScheduleSnapshot},
    request::HostNeeds,
    schedule::Schedule,
    time::Millis,
    view::{Schedules, SiteView},
};
use discovery::config::{FIND_TIMEOUT, SCHEDULE_AGE_MAX, SCHEDULE_AGE_MAX_AFTER_CONFLICT};
use rand::{RngExt, seq::SliceRandom};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    belief,
    costs::{self, FETCH_TIMEOUT, FIND_ROUNDS_MAX, SILENT_FOR},
    site::Touch,
    traffic::Kind,
    world::{Body, Event, Wish, World},
};
use crate::engine::{Medium, Moment};

/// Blind draws for each host wanted before all hosts are gone through.
const DRAWS_EACH: usize = 12;

/// A host: its site, and its position there.
type Place = (usize, usize);

/// A search under way.
#[derive(Debug)]
pub struct Search {
    /// Its name.
    pub name: u64,
    wanted: usize,
    rounds_left: usize,
    deadline: Moment,
    random: Xoshiro256PlusPlus,
    exclude: BTreeSet<usize>,
    /// Hosts drawn so far.
    drawn: BTreeSet<Place>,
    /// Hosts of the present round whose schedules are asked for.
    sample: Vec<Place>,
    waiting: BTreeSet<usize>,
    found: Vec<FoundHost>,
    without_schedule: usize,
}

impl World {
    /// Begins to look for `count` hosts.
    pub(super) fn search(&mut self, request: usize, count: usize, seed: u64, exclude: &BTreeSet<SiteId>) {
        let search = Search {
            name: self.name(),
            wanted: count,
            rounds_left: FIND_ROUNDS_MAX,
            deadline: self.now().plus_ms(FIND_TIMEOUT.0),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            exclude: exclude.iter().filter_map(|site| self.index.get(site).copied()).collect(),
            drawn: BTreeSet::new(),
            sample: Vec::new(),
            waiting: BTreeSet::new(),
            found: Vec::new(),
            without_schedule: 0,
        };
        self.search_round(request, search);
    }

    fn search_round(&mut self, request: usize, mut search: Search) {
        let node = self.requests[request].entry;
        search.rounds_left -= 1;
        let has_met_conflict = self.negotiation(request).is_some_and(|own| own.record().history.conflicts > 0);
        let age_max = if has_met_conflict { SCHEDULE_AGE_MAX_AFTER_CONFLICT } else { SCHEDULE_AGE_MAX };
        let mut stale = Vec::new();
        for place in self.sample(request, &mut search) {
            let site = place.0;
            if !search.waiting.contains(&site) {
                match self.fresh_host(node, place, age_max) {
                    Ok(found) => {
                        search.found.push(found);
                        continue;
                    }
                    Err(known) => {
                        stale.push((site, known));
                        search.waiting.insert(site);
                    }
                }
            }
            search.sample.push(place);
        }
        let name = search.name;
        self.requests[request].search = Some(search);
        if stale.is_empty() {
            return self.finish_search_round(request);
        }
        for (site, known) in stale {
            self.counts.fetches += 1;
            self.fetch(node, site, Wish::Search { request, search: name }, known);
        }
        self.at(self.now().plus_ms(FETCH_TIMEOUT.0), Event::SearchOver { request, search: name });
    }

    /// A host with the schedule that the node believes, or the version that it knows of a schedule that is too old.
    fn fresh_host(&mut self, node: usize, place: Place, age_max: Millis) -> Result<FoundHost, Option<LedgerVersion>> {
        let now = self.now().millis();
        if node == place.0 {
            let own = self.sites[node].ledger().map(|ledger| ledger.snapshot(self.clocks())).ok_or(None)?;
            return Ok(self.found_host(place, &own));
        }
        let view = self.belief(node, place.0).ok_or(None)?;
        let Some(known) = view.fresh_schedules(now, age_max) else {
            return Err(match view.schedules() {
                Schedules::Known(known) if !known.has_gap => Some(known.version),
                _ => None,
            });
        };
        if let Some(at) = belief::learnt(&view) {
            self.counts.view_age_ms.push((now - at).0 as f64);
        }
        let schedule = known.by_host.get(self.host_id(place)).cloned().unwrap_or_default();
        Ok(self.with_schedule(place, schedule, known.version))
    }

    fn host_id(&self, (site, host): Place) -> &HostId {
        &self.sites[site].hosts[host].0.id
    }

    fn found_host(&self, place: Place, snapshot: &ScheduleSnapshot) -> FoundHost {
        let id = self.host_id(place);
        let schedule = snapshot.hosts.iter().find(|(of, _)| of == id).map(|(_, schedule)| schedule.clone());
        self.with_schedule(place, schedule.unwrap_or_default(), snapshot.version)
    }

    fn with_schedule(&self, (site, host): Place, schedule: Schedule, version: LedgerVersion) -> FoundHost {
        let own = &self.sites[site];
        FoundHost { site: own.id.clone(), host: own.hosts[host].0.clone(), schedule, version }
    }

    /// Draws as many more hosts as are wanted.
    fn sample(&self, request: usize, search: &mut Search) -> Vec<Place> {
        let missing = search.wanted.saturating_sub(search.found.len());
        let node = self.requests[request].entry;
        let Some(wanted) = self.negotiation(request).map(Negotiation::wanted) else { return Vec::new() };
        let needs = wanted.host_needs();
        let subscribed = &self.sites[node].subscribed;
        let hosts: usize = subscribed.iter().map(|shard| self.hosts_by_shard[*shard].len()).sum();
        let mut sample = Vec::with_capacity(missing);
        for _ in 0..missing * DRAWS_EACH {
            if sample.len() == missing || hosts == 0 {
                return sample;
            }
            let mut position = search.random.random_range(0..hosts);
            for shard in subscribed {
                let of_shard = &self.hosts_by_shard[*shard];
                if let Some(drawn) = of_shard.get(position) {
                    if self.is_candidate(node, &needs, search, *drawn, false) && search.drawn.insert(*drawn) {
                        sample.push(*drawn);
                    }
                    break;
                }
                position -= of_shard.len();
            }
        }
        // Hardly any host is left that was not drawn: look at all of them, at last also at those of silent sites.
        for even_silent in [false, true] {
            let all = subscribed.iter().flat_map(|shard| &self.hosts_by_shard[*shard]).copied();
            let fits = |drawn: &Place| {
                self.is_candidate(node, &needs, search, *drawn, even_silent) && !search.drawn.contains(drawn)
            };
            let mut left: Vec<Place> = all.filter(fits).collect();
            left.shuffle(&mut search.random);
            left.truncate(missing - sample.len());
            search.drawn.extend(left.iter().copied());
            sample.extend(left);
        }
        sample
    }

    fn is_candidate(
        &self,
        node: usize,
        needs: &HostNeeds<'_>,
        search: &Search,
        (site, host): Place,
        even_silent: bool,
    ) -> bool {
        let is_silent = || !even_silent && self.sites[node].silent.get(&site).is_some_and(|until| *until > self.now());
        let is_known = || node == site || (!self.sites[site].has_left && self.knows(node, site));
        let own = &self.sites[site];
        !search.exclude.contains(&site) && !is_silent() && is_known() && needs.are_met_by(&own.id, &own.hosts[host].0)
    }

    /// Asks a site for its schedules.
    pub(super) fn fetch(&mut self, node: usize, site: usize, wish: Wish, known: Option<LedgerVersion>) {
        let sizes = (kind_of(wish), costs::fetch_bytes(known));
        self.send(self.now(), node, site, sizes, Body::Fetch { wish, known });
    }

    /// Fetches the schedules of a site of which something was missed, unless it has come meanwhile.
    pub(super) fn repair(&mut self, node: usize, site: usize) {
        let patience = self.settings.intervals.repair_patience;
        let patience = Millis(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        let has_come = |view: SiteView| view.fresh_schedules(self.now().millis(), patience).is_some();
        if self.belief(node, site).is_some_and(has_come) {
            self.sites[node].wanted.remove(&site);
        } else {
            self.counts.totals.repairs += 1;
            self.fetch(node, site, Wish::Repair, None);
        }
    }

    pub(super) fn answer_fetch(&mut self, site: usize, to: usize, wish: Wish, known: Option<LedgerVersion>) {
        let Some(snapshot) = self.sites[site].ledger().map(|ledger| ledger.snapshot(self.clocks())) else { return };
        let bytes = if known == Some(snapshot.version) {
            costs::unchanged_bytes(snapshot.version)
        } else {
            costs::schedules_bytes(snapshot.clone())
        };
        let as_of = self.now();
        let body = Body::Schedules { wish, as_of, snapshot: Box::new(snapshot) };
        self.send(as_of, site, to, (kind_of(wish), bytes), body);
    }

    pub(super) fn arrive_schedules(
        &mut self,
        node: usize,
        site: usize,
        wish: Wish,
        as_of: Moment,
        snapshot: &ScheduleSnapshot,
    ) {
        let at = self.now();
        let own = &mut self.sites[node];
        own.wanted.remove(&site);
        own.touched.insert(site, Touch { at, as_of });
        let Wish::Search { request, search: name } = wish else { return };
        let Some(search) = self.search_named(request, name) else { return };
        if search.waiting.remove(&site) {
            let places: Vec<Place> = search.sample.extract_if(.., |place| place.0 == site).collect();
            let found: Vec<FoundHost> = places.into_iter().map(|place| self.found_host(place, snapshot)).collect();
            if let Some(search) = self.search_named(request, name) {
                search.found.extend(found);
            }
        }
        if self.search_named(request, name).is_some_and(|search| search.waiting.is_empty()) {
            self.finish_search_round(request);
        }
    }

    fn search_named(&mut self, request: usize, name: u64) -> Option<&mut Search> {
        self.requests[request].search.as_mut().filter(|search| search.name == name)
    }

    /// Sites that have not answered a search by now are left out for a while.
    pub(super) fn end_search_round(&mut self, request: usize, name: u64) {
        let until = self.now().plus_ms(SILENT_FOR.0);
        let node = self.requests[request].entry;
        let Some(search) = self.search_named(request, name) else { return };
        let waiting = std::mem::take(&mut search.waiting);
        if waiting.is_empty() {
            return;
        }
        search.without_schedule += waiting.len();
        search.sample.clear();
        self.sites[node].silent.extend(waiting.into_iter().map(|site| (site, until)));
        self.finish_search_round(request);
    }

    fn finish_search_round(&mut self, request: usize) {
        let Some(mut search) = self.requests[request].search.take() else { return };
        let goes_on = search.found.len() < search.wanted && search.without_schedule > 0;
        if goes_on && search.rounds_left > 0 && self.now() < search.deadline {
            search.name = self.name();
            return self.search_round(request, search);
        }
        let entry = self.requests[request].entry;
        let known_hosts = self.sites[entry].subscribed.iter().map(|shard| self.hosts_by_shard[*shard].len()).sum();
        let Search { found: hosts, without_schedule, .. } = search;
        self.note_planned(request, &hosts);
        let found = Found { hosts, known_hosts, without_schedule, ..Found::default() };
        let id = self.requests[request].id.clone();
        self.feed_request(entry, &id, Input::Found(found));
    }

    /// Notes on what a plan will rest, and how much of it is not true any more.
    fn note_planned(&mut self, request: usize, hosts: &[FoundHost]) {
        self.requests[request].planned.clear();
        for host in hosts {
            let Some(site) = self.index.get(&host.site).copied() else { continue };
            self.counts.planned_hosts += 1;
            self.counts.stale_hosts += u64::from(self.sites[site].went_beyond(host.version).is_some());
            let planned = self.requests[request].planned.entry(site).or_insert(host.version);
            *planned = host.version.min(*planned);
        }
    }
}

fn kind_of(wish: Wish) -> Kind {
    if wish == Wish::Repair { Kind::Upkeep } else { Kind::Direct }
}
