//! Nodes that stop and come back, and what their return costs the others.
//!
//! Half of them crash and are back soon, half leave in order and come back later. Invariant: a node that comes back has
//! what was on its disk, and nothing else.

use std::{collections::BTreeMap, time::Duration};

use broker::{time::Millis, trust::testing};
use discovery::outbox::{Pacer, PendingChanges};
use rand::RngExt;

use super::{
    chance::drawn,
    costs,
    settings::Settings,
    site::{Life, Site},
    traffic::Kind,
    world::{Event, World, clocks},
};
use crate::engine::{Machines, Medium, Moment, Setup};

/// How long a crashed node is away, in seconds.
const CRASHED_S: std::ops::Range<u64> = 5..180;
/// How long a site that has left is away, in seconds.
const LEFT_S: std::ops::Range<u64> = 60..1_200;

impl World {
    /// Plans the next end of a node.
    pub(super) fn plan_stop(&mut self) {
        let stops_per_hour = self.sites.len() as f64 * self.settings.churn_percent as f64 / 100.0;
        if let Some(gap) = self.gap(stops_per_hour) {
            self.after(gap, Event::Stop);
        }
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
        let now = self.now();
        let own = &mut self.sites[site];
        own.machines = None;
        own.run += 1;
        own.has_left = leaves;
        if let Some(life) = own.lives.last_mut() {
            life.stopped = Some(now);
        }
        (own.silent, own.touched, own.contacted) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        own.wanted.clear();
        own.is_publishing = false;
        own.pending = pending(&self.settings);
        for submitted in self.requests.iter_mut().filter(|submitted| submitted.entry == site) {
            submitted.search = None;
        }
        if leaves {
            self.counts.totals.leaves += 1;
        } else {
            self.counts.totals.crashes += 1;
        }
        self.after(Duration::from_secs(away_s), Event::Start { site });
    }

    /// A node starts with what is on its disk.
    pub(super) fn start(&mut self, site: usize) {
        let was_away = self.sites[site].has_left;
        let now = self.now();
        open(&mut self.sites[site], &self.settings, now, was_away);
        self.sites[site].disk_free_at = now;
        self.perform_ledger(site);
        let ids: Vec<_> = self.sites[site].disk.requests.keys().cloned().collect();
        for id in ids {
            self.perform_request(site, &id);
        }
        self.rebuild_view(site);
    }

    /// A node that starts gets all adverts from a neighbour, and the schedules from their sites.
    fn rebuild_view(&mut self, node: usize) {
        let known: Vec<usize> = (0..self.sites.len())
            .filter(|site| *site != node && !self.sites[*site].has_left && self.knows(node, *site))
            .collect();
        let neighbour = drawn([self.settings.seed, self.now().0 as u64, node as u64]) as usize % known.len().max(1);
        let Some(neighbour) = known.get(neighbour).copied() else {
            return;
        };
        let adverts: u64 = known.iter().map(|site| self.sites[*site].advert_bytes).sum();
        self.traffic.passes(Kind::Upkeep, (node, neighbour), costs::exchange_bytes(0), 0);
        self.traffic.passes(Kind::Upkeep, (neighbour, node), adverts, 0);
        for site in known {
            self.count_fetch(node, site);
        }
    }

    /// After the first change that a restarted site publishes, everybody who knows it sees that something was missed.
    pub(super) fn everybody_fetches(&mut self, site: usize) {
        let nodes = self.topics[self.sites[site].shard].subscribers().to_vec();
        for node in nodes {
            if node != site && self.sites[node].is_up() && self.knows(node, site) {
                self.count_fetch(node, site);
                self.counts.totals.repairs += 1;
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

/// Starts the node of a site with what is on its disk; the site is new to the others when it `is_introduced`.
pub fn open(site: &mut Site, settings: &Settings, at: Moment, is_introduced: bool) {
    let now = clocks(at);
    site.disk.incarnation = at.ms();
    let setup = Setup {
        site: site.id.clone(),
        hosts: site.hosts.clone(),
        gate: testing::open_gate(),
        limits: settings.ledger.clone(),
        negotiation: settings.negotiation.clone(),
        book_fault: None,
    };
    let reservations = site.disk.reservations.values().cloned().collect();
    let seed_of = |place| drawn([settings.seed, at.0 as u64, place]);
    let (machines, misfits) = Machines::open(setup, &site.disk, reservations, true, seed_of, now);
    debug_assert!(misfits.is_empty(), "the hosts of a site stay as they are");
    let base = machines.ledger.snapshot(now);
    site.schedules_bytes = costs::schedules_bytes(base.clone());
    site.lives.push(Life { started: at, stopped: None, is_introduced, base, changes: Vec::new() });
    site.machines = Some(machines);
    site.has_left = false;
}

/// Room for changes that wait.
pub fn pending(settings: &Settings) -> PendingChanges {
    PendingChanges::new(settings.limits.changes_pending_max)
}

/// The pace of a site's gossip.
pub fn pacer(settings: &Settings) -> Pacer {
    let interval = Millis(u64::try_from(settings.intervals.gossip.as_millis()).unwrap_or(u64::MAX));
    Pacer::new(interval, settings.limits.gossip_budget_per_s)
}
