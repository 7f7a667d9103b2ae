//! Phase I at a coordinator: draws hosts from the view, and names the sites whose schedules are too old to plan on.
//!
//! The same rules as a node's find: every fitting host that is known has the same chance; what is stale is asked for, in
//! parallel, for a second at most; hosts whose schedules cannot be had are replaced by others a few times. The search in
//! the DHT index that follows when the view is too small is not simulated: a view of thousands of hosts suffices here.
//! Invariant: a host is handed out with a schedule that its site has sent, never with what it has at this moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use broker::{
    demand::{Demand, HostNeeds},
    negotiation::FoundHost,
    protocol::{ClassesLeft, LedgerVersion, ScheduleSnapshot},
    time::Millis,
};
use discovery::{config::FIND_TIMEOUT, dht::find::ROUNDS_MAX};
use rand::{RngExt, seq::SliceRandom};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    site::Site,
    views::{Place, Views},
};
use crate::engine::Moment;

/// Blind draws for each host wanted before all hosts are gone through.
const DRAWS_EACH: usize = 12;

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
    /// Hosts drawn so far.
    drawn: BTreeSet<Place>,
    /// Hosts of the present round whose schedules are asked for, and their sites.
    sample: Vec<Place>,
    waiting: BTreeSet<usize>,
    /// By site.
    left: BTreeMap<usize, ClassesLeft>,
    found: Vec<FoundHost>,
    without_schedule: usize,
}

/// What a round of a search begins with.
#[derive(Debug, Default)]
pub struct Round {
    /// Sites to be asked for their schedules, with the version that is known.
    pub stale: Vec<(usize, Option<LedgerVersion>)>,
    /// How long ago the schedules were confirmed that need not be asked for, in milliseconds.
    pub ages_ms: Vec<f64>,
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
            drawn: BTreeSet::new(),
            sample: Vec::new(),
            waiting: BTreeSet::new(),
            left: BTreeMap::new(),
            found: Vec::new(),
            without_schedule: 0,
        }
    }

    /// Begins a round under a name of its own, from all `hosts` of the shards that the node takes part in: takes those that
    /// could serve `request` and have schedules no older than `age_max`, and waits for the schedules of others.
    pub fn begin_round(
        &mut self,
        name: u64,
        (views, hosts): (Views<'_>, &[&[Place]]),
        demand: &Demand,
        age_max: Millis,
    ) -> Round {
        self.name = name;
        self.rounds_left -= 1;
        let mut round = Round::default();
        for place in self.draw(views, hosts, &demand.host_needs()) {
            if !self.waiting.contains(&place.0) {
                let left = self.left.entry(place.0).or_default();
                match views.fresh_host(self.node, place, age_max, left) {
                    Ok((found, age)) => {
                        self.found.push(found);
                        round.ages_ms.extend(age.map(|age| age.0 as f64));
                        continue;
                    }
                    Err(known) => {
                        round.stale.push((place.0, known));
                        self.waiting.insert(place.0);
                    }
                }
            }
            self.sample.push(place);
        }
        round
    }

    /// Draws as many more hosts as are wanted.
    fn draw(&mut self, views: Views<'_>, hosts: &[&[Place]], needs: &HostNeeds<'_>) -> Vec<Place> {
        let missing = self.wanted.saturating_sub(self.found.len());
        let count: usize = hosts.iter().map(|of_shard| of_shard.len()).sum();
        let mut sample = Vec::with_capacity(missing);
        for _ in 0..missing * DRAWS_EACH {
            if sample.len() == missing || count == 0 {
                return sample;
            }
            let mut position = self.random.random_range(0..count);
            for of_shard in hosts {
                if let Some(drawn) = of_shard.get(position) {
                    if self.fits(views, needs, *drawn, false) && self.drawn.insert(*drawn) {
                        sample.push(*drawn);
                    }
                    break;
                }
                position -= of_shard.len();
            }
        }
        // Hardly any host is left that was not drawn: look at all of them, at last also at those of silent sites.
        for even_silent in [false, true] {
            let all = hosts.iter().copied().flatten().copied();
            let fits = |drawn: &Place| self.fits(views, needs, *drawn, even_silent) && !self.drawn.contains(drawn);
            let mut left: Vec<Place> = all.filter(fits).collect();
            left.shuffle(&mut self.random);
            left.truncate(missing - sample.len());
            self.drawn.extend(left.iter().copied());
            sample.extend(left);
        }
        sample
    }

    fn fits(&self, views: Views<'_>, needs: &HostNeeds<'_>, place: Place, even_silent: bool) -> bool {
        !self.exclude.contains(&place.0) && views.is_candidate(self.node, needs, place, even_silent)
    }

    /// Schedules of a site have arrived.
    pub fn receive(&mut self, position: usize, site: &Site, snapshot: &ScheduleSnapshot) {
        if self.waiting.remove(&position) {
            let places = self.sample.extract_if(.., |place| place.0 == position);
            let left = self.left.entry(position).or_default();
            self.found.extend(places.map(|(_, host)| site.found_host(host, snapshot, left)));
        }
    }

    /// Whether the schedules of some sites have not come yet.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The time of the round is over: hosts whose sites have not answered are left out. Returns those sites.
    pub fn give_up(&mut self) -> BTreeSet<usize> {
        self.without_schedule += self.waiting.len();
        self.sample.clear();
        mem::take(&mut self.waiting)
    }

    /// Whether another round may find the hosts that are missing.
    pub fn goes_on(&self, now: Moment) -> bool {
        let lacks = self.found.len() < self.wanted && self.without_schedule > 0;
        lacks && self.rounds_left > 0 && now < self.deadline
    }

    /// The hosts found, and how many were left out because their schedules did not come.
    pub fn finish(self) -> (Vec<FoundHost>, usize) {
        (self.found, self.without_schedule)
    }
}
