//! Phase I at an entry point: draws hosts from the view, and fetches the schedules that are too old to plan on.
//!
//! The same rules as a node's find: every fitting host that is known has the same chance; what is stale is asked for, in
//! parallel, for a second at most; hosts whose schedules cannot be had are replaced by others a few times. The search in
//! the DHT index that follows when the view is too small is not simulated: a view of thousands of hosts suffices here.
//! Invariant: a host is handed out with a schedule that its site has told, never with what it has at this moment.

use std::collections::BTreeSet;

use broker::{
    host::Host,
    ids::SiteId,
    negotiation::{Event as Heard, Found, FoundHost, Negotiation},
    protocol::{LedgerVersion, ScheduleSnapshot},
    schedule::Schedule,
    time::Millis,
    view::{Schedules, SiteView},
};
use discovery::{
    config::{FIND_TIMEOUT, SCHEDULE_AGE_MAX, SCHEDULE_AGE_MAX_AFTER_CONFLICT},
    costs::{self, FETCH_TIMEOUT, FIND_ROUNDS_MAX, SILENT_FOR},
};
use rand::{RngExt, seq::SliceRandom};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    belief,
    site::Touch,
    traffic::Kind,
    world::{Body, Event, Wish, World, millis},
};

/// Blind draws for each host wanted before all hosts are gone through.
const DRAWS_EACH: usize = 12;

/// A search under way.
#[derive(Debug)]
pub struct Search {
    /// Its name.
    pub name: u64,
    wanted: usize,
    rounds_left: usize,
    deadline: u64,
    random: Xoshiro256PlusPlus,
    exclude: BTreeSet<usize>,
    /// Hosts drawn so far: site, and position among its hosts.
    drawn: BTreeSet<(usize, usize)>,
    /// Hosts of the present round whose schedules are asked for.
    sample: Vec<(usize, usize)>,
    waiting: BTreeSet<usize>,
    found: Vec<FoundHost>,
    without_schedule: usize,
}

impl World {
    /// Begins to look for `count` hosts.
    pub(super) fn search(&mut self, request: usize, count: usize, seed: u64, exclude: &BTreeSet<SiteId>) {
        let exclude = exclude.iter().filter_map(|site| self.index.get(site).copied()).collect();
        let name = self.name();
        self.carried[request].search = Some(Search {
            name,
            wanted: count,
            rounds_left: FIND_ROUNDS_MAX,
            deadline: self.now + FIND_TIMEOUT.0 * 1000,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            exclude,
            drawn: BTreeSet::new(),
            sample: Vec::new(),
            waiting: BTreeSet::new(),
            found: Vec::new(),
            without_schedule: 0,
        });
        self.search_round(request);
    }

    fn search_round(&mut self, request: usize) {
        let Some(mut search) = self.carried[request].search.take() else { return };
        let node = self.carried[request].entry;
        search.rounds_left -= 1;
        let record = self.carried[request].negotiation.as_ref().map(Negotiation::record);
        let has_met_conflict = record.is_some_and(|record| record.history.conflicts > 0);
        let age_max = if has_met_conflict { SCHEDULE_AGE_MAX_AFTER_CONFLICT } else { SCHEDULE_AGE_MAX };
        let sample = self.sample(request, &mut search);
        let mut stale: BTreeSet<(usize, Option<LedgerVersion>)> = BTreeSet::new();
        for (site, host) in sample {
            if search.waiting.contains(&site) {
                search.sample.push((site, host));
                continue;
            }
            match self.fresh_host(node, site, host, age_max) {
                Ok(found) => search.found.push(found),
                Err(known) => {
                    stale.insert((site, known));
                    search.waiting.insert(site);
                    search.sample.push((site, host));
                }
            }
        }
        let name = search.name;
        let is_waiting = !search.waiting.is_empty();
        self.carried[request].search = Some(search);
        for (site, known) in stale {
            self.counts.fetches += 1;
            self.fetch(node, site, Wish::Search { request, search: name }, known);
        }
        if is_waiting {
            self.at(self.now + FETCH_TIMEOUT.0 * 1000, Event::SearchOver { request, search: name });
        } else {
            self.finish_search_round(request);
        }
    }

    /// A host with the schedule that the node believes, or the version that it knows of a schedule that is too old.
    fn fresh_host(
        &mut self,
        node: usize,
        site: usize,
        host: usize,
        age_max: Millis,
    ) -> Result<FoundHost, Option<LedgerVersion>> {
        if node == site {
            let Some(own) = self.sites[site].ledger.as_ref().map(|ledger| ledger.snapshot(self.clock())) else {
                return Err(None);
            };
            return Ok(self.found_host(site, host, &own.hosts, own.version));
        }
        let Some(view) = self.belief(node, site) else { return Err(None) };
        let Some(known) = view.fresh_schedules(millis(self.now), age_max) else {
            let version = match view.schedules() {
                Schedules::Known(known) if !known.has_gap => Some(known.version),
                _ => None,
            };
            return Err(version);
        };
        if let Some(at) = belief::learnt(&view) {
            self.counts.view_age_ms.push((millis(self.now) - at).0 as f64);
        }
        let id = &self.sites[site].hosts[host].0.id;
        let schedule = known.by_host.get(id).cloned().unwrap_or_default();
        Ok(self.with_schedule(site, host, schedule, known.version))
    }

    fn found_host(
        &self,
        site: usize,
        host: usize,
        schedules: &[(broker::ids::HostId, Schedule)],
        version: LedgerVersion,
    ) -> FoundHost {
        let id = &self.sites[site].hosts[host].0.id;
        let schedule = schedules.iter().find(|(of, _)| of == id).map(|(_, schedule)| schedule.clone());
        self.with_schedule(site, host, schedule.unwrap_or_default(), version)
    }

    fn with_schedule(&self, site: usize, host: usize, schedule: Schedule, version: LedgerVersion) -> FoundHost {
        let own = &self.sites[site];
        FoundHost { site: own.id.clone(), host: own.hosts[host].0.clone(), schedule, version }
    }

    /// Draws as many more hosts as are wanted.
    fn sample(&self, request: usize, search: &mut Search) -> Vec<(usize, usize)> {
        let missing = search.wanted.saturating_sub(search.found.len());
        let node = self.carried[request].entry;
        let subscribed = &self.sites[node].subscribed;
        let hosts: usize = subscribed.iter().map(|shard| self.hosts_by_shard[*shard].len()).sum();
        let mut sample = Vec::with_capacity(missing);
        for _ in 0..missing * DRAWS_EACH {
            if sample.len() == missing || hosts == 0 {
                return sample;
            }
            let mut place = search.random.random_range(0..hosts);
            for shard in subscribed {
                let of_shard = &self.hosts_by_shard[*shard];
                if let Some(drawn) = of_shard.get(place) {
                    if self.is_candidate(request, search, *drawn, false) && search.drawn.insert(*drawn) {
                        sample.push(*drawn);
                    }
                    break;
                }
                place -= of_shard.len();
            }
        }
        // Hardly any host is left that was not drawn: look at all of them, at last also those that were silent.
        for even_silent in [false, true] {
            let all = subscribed.iter().flat_map(|shard| &self.hosts_by_shard[*shard]).copied();
            let mut left: Vec<(usize, usize)> =
                all.filter(|drawn| self.is_candidate(request, search, *drawn, even_silent)).collect();
            left.retain(|drawn| !search.drawn.contains(drawn));
            left.shuffle(&mut search.random);
            left.truncate(missing - sample.len());
            search.drawn.extend(left.iter().copied());
            sample.extend(left);
        }
        sample
    }

    fn is_candidate(&self, request: usize, search: &Search, (site, host): (usize, usize), even_silent: bool) -> bool {
        let node = self.carried[request].entry;
        let own = &self.sites[node];
        let is_silent = || !even_silent && own.silent.get(&site).is_some_and(|until| *until > self.now);
        let is_known = || node == site || (!self.sites[site].has_left && self.knows(node, site));
        !search.exclude.contains(&site) && !is_silent() && is_known() && {
            let host: &Host = &self.sites[site].hosts[host].0;
            let wanted = self.carried[request].wanted();
            host.could_ever_satisfy(wanted.per_host(), wanted.attributes())
        }
    }

    /// Asks a site for its schedules.
    pub(super) fn fetch(&mut self, node: usize, site: usize, wish: Wish, known: Option<LedgerVersion>) {
        let kind = if wish == Wish::Repair { Kind::Upkeep } else { Kind::Direct };
        self.send(self.now, node, site, (kind, costs::fetch_bytes(known)), Body::Fetch { wish, known });
    }

    /// Fetches the schedules of a site of which something was missed, unless it has come meanwhile.
    pub(super) fn repair(&mut self, node: usize, site: usize) {
        let patience = Millis(u64::try_from(self.settings.intervals.repair_patience.as_millis()).unwrap_or(u64::MAX));
        let has_come = |view: SiteView| view.fresh_schedules(millis(self.now), patience).is_some();
        if self.belief(node, site).is_some_and(has_come) {
            self.sites[node].wanted.remove(&site);
        } else {
            self.counts.repairs += 1;
            self.fetch(node, site, Wish::Repair, None);
        }
    }

    pub(super) fn answer_fetch(&mut self, site: usize, asker: usize, wish: Wish, known: Option<LedgerVersion>) {
        let now = self.clock();
        let Some(snapshot) = self.sites[site].ledger.as_ref().map(|ledger| ledger.snapshot(now)) else { return };
        let bytes = if known == Some(snapshot.version) {
            costs::unchanged_bytes(snapshot.version)
        } else {
            costs::schedules_bytes(snapshot.clone())
        };
        let kind = if wish == Wish::Repair { Kind::Upkeep } else { Kind::Direct };
        let body = Body::Schedules { wish, as_of: self.now, snapshot: Box::new(snapshot) };
        self.send(self.now, site, asker, (kind, bytes), body);
    }

    pub(super) fn arrive_schedules(
        &mut self,
        node: usize,
        site: usize,
        wish: Wish,
        as_of: u64,
        snapshot: &ScheduleSnapshot,
    ) {
        let now = self.now;
        let own = &mut self.sites[node];
        own.wanted.remove(&site);
        own.touched.insert(site, Touch { at: now, as_of });
        let Wish::Search { request, search: name } = wish else { return };
        let mut found = Vec::new();
        if let Some(search) = self.carried[request].search.as_mut().filter(|search| search.name == name)
            && search.waiting.remove(&site)
        {
            let of_site = |(own, _): &mut (usize, usize)| *own == site;
            let hosts: Vec<(usize, usize)> = search.sample.extract_if(.., of_site).collect();
            found.extend(
                hosts.into_iter().map(|(site, host)| self.found_host(site, host, &snapshot.hosts, snapshot.version)),
            );
        }
        if let Some(search) = self.carried[request].search.as_mut().filter(|search| search.name == name) {
            search.found.extend(found);
            if search.waiting.is_empty() {
                self.finish_search_round(request);
            }
        }
    }

    /// Sites that have not answered a search by now are left out for a while.
    pub(super) fn end_search_round(&mut self, request: usize, name: u64) {
        let now = self.now;
        let node = self.carried[request].entry;
        let Some(search) = self.carried[request].search.as_mut().filter(|search| search.name == name) else { return };
        let waiting = std::mem::take(&mut search.waiting);
        if waiting.is_empty() {
            return;
        }
        search.without_schedule += waiting.len();
        search.sample.clear();
        self.sites[node].silent.extend(waiting.into_iter().map(|site| (site, now + SILENT_FOR.0 * 1000)));
        self.finish_search_round(request);
    }

    fn finish_search_round(&mut self, request: usize) {
        let Some(search) = &mut self.carried[request].search else { return };
        let goes_on = search.found.len() < search.wanted && search.without_schedule > 0;
        if goes_on && search.rounds_left > 0 && self.now < search.deadline {
            search.name += 1 << 40;
            return self.search_round(request);
        }
        let Some(search) = self.carried[request].search.take() else { return };
        let node = self.carried[request].entry;
        let known_hosts = self.sites[node].subscribed.iter().map(|shard| self.hosts_by_shard[*shard].len()).sum();
        let Search { found: hosts, without_schedule, .. } = search;
        self.note_planned(request, &hosts);
        let found = Found { hosts, known_hosts, without_schedule, ..Found::default() };
        self.feed_request(request, Heard::Found(found));
    }

    /// Notes on what a plan will rest, and how much of it is not true any more.
    fn note_planned(&mut self, request: usize, hosts: &[FoundHost]) {
        self.carried[request].planned.clear();
        for host in hosts {
            let Some(site) = self.index.get(&host.site).copied() else { continue };
            self.counts.planned_hosts += 1;
            self.counts.stale_hosts += u64::from(self.sites[site].went_beyond(host.version).is_some());
            let planned = self.carried[request].planned.entry(site).or_insert(host.version);
            *planned = host.version.min(*planned);
        }
    }
}
