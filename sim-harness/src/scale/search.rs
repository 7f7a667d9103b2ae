//! Phase I at a coordinator: all hosts of the view that have a current schedule, and a sample of others, whose sites are asked.
//!
//! The same rules as a node's find: of the hosts whose schedules are too old every one has the same chance to be asked for, in
//! parallel, for a second at most; those whose sites do not answer are replaced by others a few times. The search in
//! the DHT index that follows when the view is too small is not simulated: a view of thousands of hosts suffices here.
//! Invariant: a host is handed out with a schedule that its site has sent, never with what it has at this moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use broker::{
    demand::{Demand, HostNeeds},
    negotiation::{Found, FoundHost},
    protocol::{ClassesLeft, LedgerVersion, ScheduleSnapshot},
    time::Millis,
};
use discovery::{
    config::{FIND_TIMEOUT, SCHEDULE_AGE_MAX},
    dht::find::{HOSTS_MAX, ROUNDS_MAX},
};
use rand::seq::SliceRandom;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    site::Site,
    views::{Place, Views},
};
use crate::engine::Moment;

/// A search under way.
#[derive(Debug)]
pub struct Search {
    /// The name of its present round.
    pub name: u64,
    node: usize,
    wanted: usize,
    rounds_left: usize,
    deadline: Moment,
    random: Xoshiro256PlusPlus,
    exclude: BTreeSet<usize>,
    /// Sites that were asked so far.
    asked: BTreeSet<usize>,
    /// Hosts of the present round whose schedules are asked for, and their sites.
    sample: Vec<Place>,
    waiting: BTreeSet<usize>,
    found: Vec<FoundHost>,
    without_schedule: usize,
}

/// What a round of a search begins with.
#[derive(Debug, Default)]
pub struct Round {
    /// Sites to be asked for their schedules, with the version that is known.
    pub stale: Vec<(usize, Option<LedgerVersion>)>,
}

impl Search {
    /// A search at `node` for so many hosts, on no site of `exclude`.
    pub fn new(node: usize, wanted: usize, seed: u64, exclude: BTreeSet<usize>, now: Moment) -> Search {
        Search {
            name: 0,
            node,
            wanted,
            rounds_left: ROUNDS_MAX,
            deadline: now.plus_ms(FIND_TIMEOUT.0),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            exclude,
            asked: BTreeSet::new(),
            sample: Vec::new(),
            waiting: BTreeSet::new(),
            found: Vec::new(),
            without_schedule: 0,
        }
    }

    /// Begins a round under a name of its own, among all `hosts` of the shards that the node takes part in: draws as many as are wanted of
    /// those that could serve `demand` and whose schedules are older than `ask_after`, and waits for their schedules.
    pub fn begin_round(
        &mut self,
        name: u64,
        (views, hosts): (Views<'_>, &[&[Place]]),
        demand: &Demand,
        ask_after: Millis,
    ) -> Round {
        let is_first = self.rounds_left == ROUNDS_MAX;
        self.name = name;
        self.rounds_left -= 1;
        let needs = demand.host_needs();
        let by_site = self.fitting(views, hosts, &needs);
        let mut versions: BTreeMap<usize, Option<LedgerVersion>> = BTreeMap::new();
        let (mut old, mut silent, mut current) = (Vec::new(), Vec::new(), 0);
        for (site, places) in &by_site {
            match views.known_since(self.node, *site, ask_after) {
                Ok(()) => current += places.len(),
                Err(known) => {
                    versions.insert(*site, known);
                    let is_silent = views.is_silent(self.node, *site);
                    if is_silent { &mut silent } else { &mut old }.extend(places.iter().map(|_| *site));
                }
            }
        }
        let missing = if is_first { self.wanted } else { self.wanted.saturating_sub(current + self.found.len()) };
        let mut round = Round::default();
        for sites in [&mut old, &mut silent] {
            sites.shuffle(&mut self.random);
        }
        old.append(&mut silent);
        for site in old.into_iter().filter(|site| !self.asked.contains(site)).take(missing).collect::<BTreeSet<_>>() {
            self.asked.insert(site);
            self.waiting.insert(site);
            self.sample.extend(by_site.get(&site).into_iter().flatten());
            round.stale.push((site, versions.get(&site).copied().flatten()));
        }
        round
    }

    /// The known hosts that could serve a demand with these needs, by site.
    fn fitting(&self, views: Views<'_>, hosts: &[&[Place]], needs: &HostNeeds<'_>) -> BTreeMap<usize, Vec<Place>> {
        let mut by_site: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
        for place in hosts.iter().copied().flatten() {
            if !self.exclude.contains(&place.0) && views.is_candidate(self.node, needs, *place) {
                by_site.entry(place.0).or_default().push(*place);
            }
        }
        by_site
    }

    /// Schedules of a site have arrived.
    pub fn receive(&mut self, position: usize, site: &Site, snapshot: &ScheduleSnapshot) {
        if self.waiting.remove(&position) {
            let places = self.sample.extract_if(.., |place| place.0 == position);
            let mut left = ClassesLeft::default();
            self.found.extend(places.map(|(_, host)| site.found_host(host, snapshot, &mut left)));
        }
    }

    /// Whether the schedules of some sites have not come yet.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The time of the round is over: hosts whose sites have not answered are left out. Returns those sites.
    pub fn give_up(&mut self) -> BTreeSet<usize> {
        self.without_schedule += self.sample.len();
        self.sample.clear();
        mem::take(&mut self.waiting)
    }

    /// Whether another round may find the hosts that are missing.
    pub fn goes_on(&self, now: Moment) -> bool {
        let lacks = self.found.len() < self.wanted && self.without_schedule > 0;
        lacks && self.rounds_left > 0 && now < self.deadline
    }

    /// All hosts with a schedule that may be planned on, and how long ago those of each site were confirmed that was not asked,
    /// in milliseconds.
    pub fn finish(mut self, (views, hosts): (Views<'_>, &[&[Place]]), demand: &Demand) -> (Found, Vec<f64>) {
        let mut ages_ms = Vec::new();
        let by_site = self.fitting(views, hosts, &demand.host_needs());
        let fitting: usize = by_site.values().map(Vec::len).sum();
        for (site, places) in by_site.into_iter().filter(|(site, _)| !self.asked.contains(site)) {
            if self.found.len() >= HOSTS_MAX {
                break;
            }
            if let Some((found, age)) = views.fresh_hosts(self.node, site, &places, SCHEDULE_AGE_MAX) {
                ages_ms.extend(age.map(|age| age.0 as f64));
                self.found.extend(found);
            }
        }
        let known_hosts = hosts.iter().map(|of_shard| of_shard.len()).sum();
        let (hosts, without_schedule) = (self.found, self.without_schedule);
        let left_out = fitting.saturating_sub(hosts.len() + without_schedule);
        (Found { hosts, known_hosts, without_schedule, left_out, ..Found::default() }, ages_ms)
    }
}
