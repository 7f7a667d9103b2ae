//! The simulated grid: its sites, the messages between them, gossip, and all that is going to happen, in virtual time.
//!
//! The network and libp2p are models. Invariant: the same settings give the same run, event for event; no clock is read.

use std::{collections::BTreeMap, time::Duration};

use broker::{ids::SiteId, ledger::ScheduleUpdateParts, protocol::LedgerVersion, time::Now};
use discovery::wire::WireRequest;
use rand::RngExt;
use rand_distr::{Distribution, Exp};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    chance::{chance, drawn, pair},
    counts::Counts,
    estimate::Estimate,
    event::{Body, Change, Event, Message, Wish},
    geography::{DIAL_ROUND_TRIPS, Geography, STREAM_ROUND_TRIPS},
    gossip::{EPOCH, Gossip},
    options::{BEGIN, HOUR, Settings, clocks},
    site::{Site, Touch},
    sizes,
    traffic::{Flow, Kind, Traffic},
    views::{Place, Views},
};
use crate::engine::{EventQueue, Moment};

/// Names the draws of connections that are kept.
const NEIGHBOURS: u64 = 0x6e65;
/// Names the draws of when adverts are renewed.
const ADVERTS: u64 = 0x6164;
/// Draws of a site until one runs.
const DRAWS_MAX: u32 = 20;

/// An event, and the run of a site's node that it ends with.
#[derive(Debug)]
struct Planned {
    of: Option<(usize, u64)>,
    event: Event,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Grid {
    pub settings: Settings,
    pub sites: Vec<Site>,
    pub index: BTreeMap<SiteId, usize>,
    hosts_by_shard: Vec<Vec<Place>>,
    pub earth: Geography,
    pub gossip: Gossip,
    pub traffic: Traffic,
    pub counts: Counts,
    pub random: Xoshiro256PlusPlus,
    queue: EventQueue<Planned>,
    last_name: u64,
    /// Until when regular traffic has been counted.
    counted_until: Moment,
}

impl Grid {
    /// A grid at rest: all nodes run and know each other.
    pub fn new(settings: Settings, sites: Vec<Site>) -> Grid {
        let mut hosts_by_shard = vec![Vec::new(); settings.shards];
        for (position, site) in sites.iter().enumerate() {
            hosts_by_shard[site.shard].extend((0..site.hosts.len()).map(|host| (position, host)));
        }
        let mut grid = Grid {
            index: sites.iter().enumerate().map(|(position, site)| (site.id.clone(), position)).collect(),
            hosts_by_shard,
            earth: Geography::new(settings.run.network, settings.run.seed, sites.len(), settings.run.loss),
            gossip: Gossip::new(&sites, settings.shards),
            traffic: Traffic::new(sites.len()),
            counts: Counts::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(settings.run.seed),
            queue: EventQueue::new(BEGIN),
            last_name: 0,
            counted_until: BEGIN,
            sites,
            settings,
        };
        grid.begin_epoch();
        grid
    }

    /// Virtual time.
    pub fn now(&self) -> Moment {
        self.queue.now()
    }

    /// What all clocks show.
    pub fn clocks(&self) -> Now {
        clocks(self.now())
    }

    /// A name that nothing else has.
    pub fn name(&mut self) -> u64 {
        self.last_name += 1;
        self.last_name
    }

    /// Plans an event.
    pub fn at(&mut self, at: Moment, event: Event) {
        self.queue.plan(at, Planned { of: None, event });
    }

    /// Plans an event for some time from now.
    pub fn after(&mut self, length: Duration, event: Event) {
        self.at(self.now() + length, event);
    }

    /// Plans an event that does not happen if the node stops before.
    pub fn at_node(&mut self, at: Moment, node: usize, event: Event) {
        self.queue.plan(at, Planned { of: Some((node, self.sites[node].run)), event });
    }

    /// Plans an event that comes by chance, so many in an hour.
    pub fn by_chance(&mut self, per_hour: f64, event: Event) {
        if let Some(gaps) = Exp::new(per_hour).ok().filter(|_| per_hour > 0.0) {
            let gap_h: f64 = gaps.sample(&mut self.random);
            self.after(HOUR.mul_f64(gap_h), event);
        }
    }

    /// The next event; none when the time of the run is over.
    pub fn next(&mut self) -> Option<Event> {
        loop {
            let Planned { of, event } = self.queue.next_until(BEGIN + self.settings.run.duration)?;
            self.counts.events += 1;
            if of.is_none_or(|(site, run)| self.sites[site].run == run) {
                return Some(event);
            }
        }
    }

    /// What nodes believe at this moment.
    pub fn views(&self) -> Views<'_> {
        let Grid { settings, earth, sites, gossip, .. } = self;
        Views { settings, earth, sites, gossip, now: self.now() }
    }

    /// The hosts of each shard that a node takes part in.
    pub fn hosts_near(&self, node: usize) -> Vec<&[Place]> {
        self.sites[node].subscribed.iter().map(|shard| &*self.hosts_by_shard[*shard]).collect()
    }

    /// A site that runs, by chance; none when several draws find none.
    pub fn draw_running_site(&mut self) -> Option<usize> {
        let sites = self.sites.len();
        let mut drawn = (0..DRAWS_MAX).map(|_| self.random.random_range(0..sites));
        drawn.find(|site| self.sites[*site].is_up())
    }

    /// Sends a message that leaves at `at`. A node's message to itself needs no network.
    pub fn send(&mut self, at: Moment, from: usize, to: usize, body: Body) {
        let mut arrives = at.max(self.now());
        let bytes = body.bytes();
        if from != to {
            let name = self.name();
            let passage = self.earth.passage(from, to, name);
            arrives = arrives + passage.delay;
            if matches!(body, Body::Ask { .. } | Body::Fetch { .. }) {
                arrives = arrives + self.preparation(from, to);
            }
            self.traffic.loses(body.kind(), from, bytes * u64::from(passage.losses));
        }
        let message = Message { from: (from, self.sites[from].run), to, bytes, body };
        self.at(arrives, Event::Arrival(Box::new(message)));
    }

    /// What passes before a request leaves: a new stream is agreed on, on a new connection if there is none.
    fn preparation(&mut self, from: usize, to: usize) -> Duration {
        let now = self.now();
        let last = self.sites[from].memory.contacted.insert(to, now);
        let was_contacted = last.is_some_and(|at| at + self.settings.intervals.idle_connection > now);
        self.sites[to].memory.contacted.insert(from, now);
        let chance = drawn([self.settings.run.seed, NEIGHBOURS, pair(from.min(to), from.max(to))]);
        let is_neighbour = chance % (self.sites.len() as u64) < self.settings.limits.connections_kept as u64;
        let dials = if was_contacted || is_neighbour { 0 } else { DIAL_ROUND_TRIPS };
        self.earth.round_trip(from, to) * (STREAM_ROUND_TRIPS + dials)
    }

    /// Counts a message that arrives; returns whether it finds its receiver, and was sent by a node that has not stopped since.
    pub fn deliver(&mut self, message: &Message) -> bool {
        let Message { from: (from, run), to, bytes, ref body } = *message;
        let is_received = self.sites[from].run == run && self.sites[to].is_up();
        if from != to {
            if is_received {
                self.traffic.passes(body.kind(), (from, to), bytes);
            } else {
                self.traffic.loses(body.kind(), from, bytes);
            }
        }
        is_received
    }

    /// Asks a site for its schedules.
    pub fn fetch(&mut self, node: usize, site: usize, wish: Wish, known: Option<LedgerVersion>) {
        self.send(self.now(), node, site, Body::Fetch { wish, known });
    }

    /// Answers with the schedules of a site.
    pub fn answer_fetch(&mut self, site: usize, to: usize, wish: Wish, known: Option<LedgerVersion>) {
        let Some(snapshot) = self.sites[site].ledger().map(|ledger| ledger.snapshot(self.clocks())) else { return };
        let as_of = self.now();
        let is_known = known == Some(snapshot.version);
        self.send(as_of, site, to, Body::Schedules { wish, as_of, snapshot: Box::new(snapshot), is_known });
    }

    /// Notes at a node that a site has confirmed its schedules as they were `as_of`.
    pub fn touch(&mut self, node: usize, site: usize, as_of: Moment) {
        let touch = Touch { at: self.now(), as_of };
        self.sites[node].memory.touched.insert(site, touch);
    }

    /// A direct answer carries the version of its site's ledger: it confirms the schedules that were `planned` on, or shows that a
    /// change was missed.
    pub fn note_version(&mut self, node: usize, site: usize, version: LedgerVersion, planned: Option<LedgerVersion>) {
        if node == site || !self.views().knows(node, site) {
            return;
        }
        let now = self.now();
        if planned == Some(version) {
            self.touch(node, site, now.before(self.earth.one_way(node, site)));
        } else if self.sites[node].memory.wanted.insert(site) {
            let wait = self.settings.missed_wait(drawn([self.settings.run.seed, now.0 as u64, site as u64]));
            self.at_node(now + wait, node, Event::Repair { node, site });
        }
    }

    /// Fetches the schedules of a site of which something was missed, unless it has come meanwhile.
    pub fn repair(&mut self, node: usize, site: usize) {
        let patience = (Moment::default() + self.settings.intervals.repair_patience).millis();
        let view = self.views().of(node, site);
        if view.is_some_and(|view| view.fresh_schedules(self.now().millis(), patience).is_some()) {
            self.sites[node].memory.wanted.remove(&site);
        } else {
            self.counts.repairs += 1;
            self.fetch(node, site, Wish::Repair, None);
        }
    }

    /// The ledger of a site has changed: it publishes that as soon as the pace allows.
    pub fn change(&mut self, site: usize, parts: ScheduleUpdateParts) {
        let now = self.now();
        let received_per_s = self.gossip.messages_per_s(&self.sites[site].subscribed);
        if let Some(due) = self.sites[site].change(now, parts, received_per_s) {
            self.at_node(due, site, Event::Publish { site });
        }
    }

    /// A site publishes what has changed. After the first change that a restarted site publishes, everybody who knows it sees
    /// that something was missed.
    pub fn publish(&mut self, site: usize) {
        let (at, name) = (self.now(), self.name());
        let own = &mut self.sites[site];
        let Some((bytes, is_first)) = own.publish(&self.settings.grid, at, name) else { return };
        let shard = own.shard;
        self.gossip.note_update(shard, name, bytes);
        if is_first {
            let nodes = self.gossip.subscribers(shard).iter().copied();
            let nodes =
                nodes.filter(|node| *node != site && self.sites[*node].is_up() && self.views().knows(*node, site));
            for node in nodes.collect::<Vec<_>>() {
                self.count_fetch(node, site);
                self.counts.repairs += 1;
            }
        }
    }

    /// When every node knows of a change that its site has published.
    pub fn known_everywhere(&self, change: Change) -> Option<Moment> {
        let own = &self.sites[change.site];
        let published = own.history.publication_of(change.version)?;
        let others = (0..self.sites.len()).filter(|node| *node != change.site);
        let delays = others.filter_map(|node| self.gossip.delay(own.shard, (published.name, published.at), node));
        Some(published.at + delays.max().unwrap_or_default())
    }

    /// A node that starts gets all adverts from a neighbour, and the schedules from their sites.
    pub fn rebuild_view(&mut self, node: usize) {
        let views = self.views();
        let is_known = |site: &usize| *site != node && !self.sites[*site].has_left && views.knows(node, *site);
        let known: Vec<usize> = (0..self.sites.len()).filter(is_known).collect();
        let chance = drawn([self.settings.run.seed, self.now().0 as u64, node as u64]);
        let Some(neighbour) = known.get(chance as usize % known.len().max(1)).copied() else { return };
        let adverts: u64 = known.iter().map(|site| self.sites[*site].advert_bytes).sum();
        self.traffic.passes(Kind::Upkeep, (node, neighbour), sizes::exchange_bytes(0));
        self.traffic.passes(Kind::Upkeep, (neighbour, node), adverts);
        for site in known {
            self.count_fetch(node, site);
        }
    }

    /// What fetching the schedules of a site costs both.
    fn count_fetch(&mut self, node: usize, site: usize) {
        if self.sites[site].is_up() {
            let question = sizes::direct_bytes(&WireRequest::Schedules(None));
            self.traffic.passes(Kind::Upkeep, (node, site), question);
            self.traffic.passes(Kind::Upkeep, (site, node), self.sites[site].schedules_bytes);
        }
    }

    /// Draws new meshes.
    pub fn begin_epoch(&mut self) {
        self.gossip.begin_epoch(&self.sites, (&self.settings, &self.earth), &mut self.random, &mut self.counts);
        self.after(EPOCH, Event::Epoch);
    }

    /// Counts what went through the meshes, and what nodes do at regular times, since the last epoch.
    pub fn end_epoch(&mut self) {
        let passed = self.now() - self.counted_until;
        self.counted_until = self.now();
        self.count_adverts(passed);
        self.gossip.end_epoch(&self.settings, passed, &mut self.counts, &mut self.traffic);
        for (kind, load) in self.estimate().regular_loads() {
            let (bytes, messages) =
                ((load.bytes_per_s * passed.as_secs_f64()) as u64, (load.messages_per_s * passed.as_secs_f64()) as u64);
            let flow = Flow { sent: bytes, received: bytes, lost: 0, messages };
            for node in (0..self.sites.len()).filter(|node| self.sites[*node].is_up()) {
                self.traffic.add(kind, node, flow);
            }
        }
    }

    /// Every node renews its advert; that is so regular that it needs no events.
    fn count_adverts(&mut self, passed: Duration) {
        let refresh = self.settings.intervals.advert_refresh_among(self.settings.view_sites());
        let (refresh_us, passed_us) = (refresh.as_micros() as i64, passed.as_micros() as i64);
        for (position, site) in self.sites.iter().enumerate().filter(|(_, site)| site.is_up()) {
            let phase = chance([self.settings.run.seed, ADVERTS, position as u64]).random_range(0..refresh_us);
            let until = self.queue.now().0 + refresh_us - phase;
            let adverts = until / refresh_us - (until - passed_us) / refresh_us;
            let bytes = sizes::gossip_frame_bytes(&self.settings.grid, site.advert_bytes as usize);
            (0..adverts).for_each(|_| self.gossip.note_advert(site.shard, bytes));
        }
    }

    /// What is worked out of the grid as it is.
    pub fn estimate(&self) -> Estimate<'_> {
        Estimate { settings: &self.settings, sites: &self.sites, mesh_degree: self.gossip.degree() }
    }
}
