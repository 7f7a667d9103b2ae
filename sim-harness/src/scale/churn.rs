//! Nodes that stop and come back, and what their return costs the others.
//!
//! Half of them crash and are back soon, half leave in order and come back later. Invariant: a node that comes back has
//! what was on its disk, and nothing else.

use std::collections::BTreeMap;

use broker::{ledger::Ledger, negotiation::Negotiation, trust::testing};
use discovery::{
    costs,
    outbox::{Pacer, PendingChanges},
};
use rand::RngExt;

use super::{
    geography::mix,
    settings::{SECOND_US, Settings},
    site::{Life, Site},
    traffic::Kind,
    world::{Event, World, millis},
};

/// How long a crashed node is away, in seconds.
const CRASHED_S: std::ops::Range<u64> = 5..180;
/// How long a site that has left is away, in seconds.
const LEFT_S: std::ops::Range<u64> = 60..1_200;

impl World {
    /// Plans the next end of a node.
    pub(super) fn plan_stop(&mut self) {
        let stops_per_hour = self.sites.len() as f64 * self.settings.churn_percent as f64 / 100.0;
        if stops_per_hour <= 0.0 {
            return;
        }
        let share: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
        let gap_us = (-share.ln() * 3_600.0 / stops_per_hour * SECOND_US as f64) as u64;
        self.at(self.now + gap_us, Event::Stop);
    }

    /// A node ends, if the one that is drawn runs.
    pub(super) fn stop_some_site(&mut self) {
        self.plan_stop();
        let site = self.random.random_range(0..self.sites.len());
        let leaves = self.random.random_bool(0.5);
        let away_s = self.random.random_range(if leaves { LEFT_S } else { CRASHED_S });
        if !self.sites[site].is_up() {
            return;
        }
        let now = self.now;
        let own = &mut self.sites[site];
        own.ledger = None;
        own.run += 1;
        own.has_left = leaves;
        if let Some(life) = own.lives.last_mut() {
            life.stopped = Some(now);
        }
        own.askers.clear();
        (own.silent, own.touched, own.contacted) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        own.wanted.clear();
        (own.is_telling, own.timer_at) = (false, None);
        own.pending = pending(&self.settings);
        for carried in self.carried.iter_mut().filter(|carried| carried.entry == site) {
            (carried.negotiation, carried.search) = (None, None);
        }
        if leaves {
            self.counts.leaves += 1;
        } else {
            self.counts.crashes += 1;
        }
        self.at(now + away_s * SECOND_US, Event::Start { site });
    }

    /// A node starts with what is on its disk.
    pub(super) fn start(&mut self, site: usize) {
        let now = self.clock();
        let was_away = self.sites[site].has_left;
        open(&mut self.sites[site], &self.settings, self.now, was_away);
        self.sites[site].disk_free_at = self.now;
        self.perform_ledger(site);
        let numbers: Vec<usize> =
            (0..self.carried.len()).filter(|number| self.carried[*number].entry == site).collect();
        for number in numbers {
            let carried = &mut self.carried[number];
            let seed = mix(self.settings.seed ^ self.now, number as u64);
            let (id, settings) = (self.sites[site].id.clone(), self.settings.negotiation.clone());
            carried.negotiation = Some(Negotiation::new(id, settings, (*carried.record).clone(), true, seed, now));
            carried.restart();
            self.perform_request(number);
        }
        self.rebuild_view(site);
    }

    /// A node that starts gets all adverts from a neighbour, and the schedules from their sites.
    fn rebuild_view(&mut self, node: usize) {
        let known: Vec<usize> = (0..self.sites.len())
            .filter(|site| *site != node && !self.sites[*site].has_left && self.knows(node, *site))
            .collect();
        let Some(neighbour) = known.get(mix(self.now, node as u64) as usize % known.len().max(1)).copied() else {
            return;
        };
        let adverts: u64 = known.iter().map(|site| self.sites[*site].advert_bytes).sum();
        self.traffic.passes(Kind::Upkeep, (node, neighbour), costs::exchange_bytes(0), 0);
        self.traffic.passes(Kind::Upkeep, (neighbour, node), adverts, 0);
        for site in known {
            self.count_fetch(node, site);
        }
    }

    /// After the first change that a restarted site tells, everybody who knows it sees that something was missed.
    pub(super) fn everybody_fetches(&mut self, site: usize) {
        let nodes: Vec<usize> = self.topics[self.sites[site].shard].subscribers.clone();
        for node in nodes {
            if node != site && self.sites[node].is_up() && self.knows(node, site) {
                self.count_fetch(node, site);
                self.counts.repairs += 1;
            }
        }
    }

    /// What fetching the schedules of a site costs both.
    fn count_fetch(&mut self, node: usize, site: usize) {
        if !self.sites[site].is_up() {
            return;
        }
        let bytes = self.sites[site].schedules_bytes;
        self.traffic.passes(Kind::Upkeep, (node, site), costs::fetch_bytes(None), 0);
        self.traffic.passes(Kind::Upkeep, (site, node), bytes, 0);
    }
}

/// Opens the ledger of a site at `now`; the others must be told of the site when it `is_introduced`.
pub fn open(site: &mut Site, settings: &Settings, now: u64, is_introduced: bool) {
    let clock = broker::time::Now { monotonic: millis(now), utc: super::world::utc(now) };
    let (incarnation, gate) = (now / 1000, testing::open_gate());
    let reservations = site.reservations.values().cloned().collect();
    let (ledger, misfits) = Ledger::open(
        site.id.clone(),
        settings.ledger.clone(),
        incarnation,
        gate,
        site.hosts.clone(),
        reservations,
        clock,
    );
    debug_assert!(misfits.is_empty(), "the hosts of a site stay as they are");
    let base = ledger.snapshot(clock);
    site.schedules_bytes = costs::schedules_bytes(base.clone());
    site.lives.push(Life { started: now, stopped: None, is_introduced, base, changes: Vec::new() });
    site.ledger = Some(ledger);
    site.has_left = false;
}

/// Room for changes that wait.
pub fn pending(settings: &Settings) -> PendingChanges {
    PendingChanges::new(settings.limits.changes_pending_max)
}

/// The pace of a site's gossip.
pub fn pacer(settings: &Settings) -> Pacer {
    let interval = broker::time::Millis(u64::try_from(settings.intervals.gossip.as_millis()).unwrap_or(u64::MAX));
    Pacer::new(interval, settings.limits.gossip_budget_per_s)
}
