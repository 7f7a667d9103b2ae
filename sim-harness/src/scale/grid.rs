//! The simulated grid: its sites, the messages between them, gossip, and all that is going to happen, in virtual time.
//!
//! The network and libp2p are models. Invariant: the same settings give the same run, event for event; no clock is read.

use std::{collections::BTreeMap, time::Duration};

use broker::{ids::SiteId, ledger::ScheduleUpdateParts, protocol::LedgerVersion, time::Now};
use discovery::wire::{WireAnswer, WireRequest};
use rand::RngExt;
use rand_distr::{Distribution, Exp};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use sim_kit::stats::percentiles;

use super::{
    chance::{chance, drawn, pair},
    estimate::Estimate,
    figures::{Counts, Figures, KindFigures, Share, rounded},
    geography::{DIAL_ROUND_TRIPS, Geography},
    gossip::{EPOCH, Gossip},
    options::{BEGIN, HOUR, Settings, clocks},
    site::{Site, Touch},
    sizes::{self, answer_bytes, question_bytes},
    traffic::{Flow, KINDS, Kind, Traffic},
    views::{Place, Views},
    world::World,
};
use crate::engine::{EventQueue, Moment};

/// Names the draws of connections that are kept.
const NEIGHBOURS: u64 = 0x6e65;
/// Names the draws of when adverts are renewed.
const ADVERTS: u64 = 0x6164;
/// Draws of a site until one runs.
const DRAWS_MAX: u32 = 20;

/// Something that is going to happen, unless the run of a node is over by then.
struct Event {
    of: Option<(usize, u64)>,
    happens: Box<dyn FnOnce(&mut World)>,
}

/// A message between two nodes.
#[derive(Debug, Clone, Copy)]
pub struct Mail {
    pub from: usize,
    pub to: usize,
    pub kind: Kind,
    pub bytes: u64,
    /// It is a question, for which a stream is opened.
    pub is_question: bool,
}

/// A change that is to become known everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    pub site: usize,
    pub version: LedgerVersion,
    /// When the request was submitted that made it.
    pub since: Moment,
}

/// A grid in virtual time.
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
    queue: EventQueue<Event>,
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
    pub fn at(&mut self, at: Moment, happens: impl FnOnce(&mut World) + 'static) {
        self.queue.plan(at, Event { of: None, happens: Box::new(happens) });
    }

    /// Plans an event for some time from now.
    pub fn after(&mut self, length: Duration, happens: impl FnOnce(&mut World) + 'static) {
        self.at(self.now() + length, happens);
    }

    /// Plans an event that does not happen if the node stops before.
    pub fn at_node(&mut self, at: Moment, node: usize, happens: impl FnOnce(&mut World) + 'static) {
        self.queue.plan(at, Event { of: Some((node, self.sites[node].run)), happens: Box::new(happens) });
    }

    /// Plans an event that comes by chance, so many in an hour.
    pub fn by_chance(&mut self, per_hour: f64, happens: impl FnOnce(&mut World) + 'static) {
        if let Some(gaps) = Exp::new(per_hour).ok().filter(|_| per_hour > 0.0) {
            let gap_h: f64 = gaps.sample(&mut self.random);
            self.after(HOUR.mul_f64(gap_h), happens);
        }
    }

    /// The next event; none when the time of the run is over.
    pub fn next(&mut self) -> Option<impl FnOnce(&mut World) + use<>> {
        loop {
            let Event { of, happens } = self.queue.next_until(BEGIN + self.settings.run.duration)?;
            self.counts.events += 1;
            if of.is_none_or(|(site, run)| self.sites[site].run == run) {
                return Some(happens);
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

    /// Sends a message that leaves at `at`: it is `received`, or `lost` if one of the nodes has stopped by then. A node's
    /// message to itself needs no network.
    pub fn send(
        &mut self,
        at: Moment,
        mail: Mail,
        received: impl FnOnce(&mut World) + 'static,
        lost: impl FnOnce(&mut World) + 'static,
    ) {
        let Mail { from, to, kind, bytes, is_question } = mail;
        let mut arrives = at.max(self.now());
        if from != to {
            let name = self.name();
            let passage = self.earth.passage(from, to, name);
            arrives = arrives + passage.delay;
            if is_question {
                arrives = arrives + self.preparation(from, to);
            }
            self.traffic.loses(kind, from, bytes * u64::from(passage.losses));
        }
        let run = self.sites[from].run;
        self.at(arrives, move |world| {
            let grid = &mut world.grid;
            let is_received = grid.sites[from].run == run && grid.sites[to].is_up();
            if from != to && is_received {
                grid.traffic.passes(kind, (from, to), bytes);
            } else if from != to {
                grid.traffic.loses(kind, from, bytes);
            }
            if is_received { received(world) } else { lost(world) }
        });
    }

    /// What passes before a request leaves: a new connection is made if there is none.
    fn preparation(&mut self, from: usize, to: usize) -> Duration {
        let now = self.now();
        let last = self.sites[from].contacts.contacted.insert(to, now);
        let was_contacted = last.is_some_and(|at| at + self.settings.intervals.idle_connection > now);
        self.sites[to].contacts.contacted.insert(from, now);
        let chance = drawn([self.settings.run.seed, NEIGHBOURS, pair(from.min(to), from.max(to))]);
        let is_neighbour = chance % (self.sites.len() as u64) < self.settings.limits.connections_kept as u64;
        let dials = if was_contacted || is_neighbour { 0 } else { DIAL_ROUND_TRIPS };
        self.earth.round_trip(from, to) * dials
    }

    /// Fetches the schedules of a site, for a search of a request with this name, or to repair the view.
    pub fn fetch(&mut self, node: usize, site: usize, search: Option<(usize, u64)>, known: Option<LedgerVersion>) {
        let kind = if search.is_some() { Kind::Direct } else { Kind::Upkeep };
        let bytes = question_bytes(&WireRequest::Schedules(known));
        let mail = Mail { from: node, to: site, kind, bytes, is_question: true };
        self.send(self.now(), mail, move |world| world.grid.answer_fetch(mail, search, known), |_| ());
    }

    /// Answers with the schedules of a site; on the wire only with their version where the asker has it.
    fn answer_fetch(&mut self, question: Mail, search: Option<(usize, u64)>, known: Option<LedgerVersion>) {
        let (site, node) = (question.to, question.from);
        let Some(snapshot) = self.sites[site].ledger().map(|ledger| ledger.snapshot(self.clocks())) else { return };
        let answer = if known == Some(snapshot.version) {
            WireAnswer::Unchanged(snapshot.version)
        } else {
            sizes::first_part(&snapshot)
        };
        let as_of = self.now();
        let mail = Mail { from: site, to: node, bytes: answer_bytes(&answer), is_question: false, ..question };
        let received = move |world: &mut World| {
            world.grid.sites[node].contacts.wanted.remove(&site);
            world.grid.touch(node, site, as_of);
            if let Some(search) = search {
                world.arrive_schedules(site, search, &snapshot);
            }
        };
        self.send(as_of, mail, received, |_| ());
    }

    /// Notes at a node that a site has confirmed its schedules as they were `as_of`.
    fn touch(&mut self, node: usize, site: usize, as_of: Moment) {
        let touch = Touch { at: self.now(), as_of };
        self.sites[node].contacts.touched.insert(site, touch);
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
        } else if self.sites[node].contacts.wanted.insert(site) {
            let wait = self.settings.missed_wait(drawn([self.settings.run.seed, now.0 as u64, site as u64]));
            self.at_node(now + wait, node, move |world| world.grid.repair(node, site));
        }
    }

    /// Fetches the schedules of a site of which something was missed, unless it has come meanwhile.
    fn repair(&mut self, node: usize, site: usize) {
        let patience = (Moment::default() + self.settings.intervals.repair_patience).millis();
        let view = self.views().of(node, site);
        if view.is_some_and(|view| view.fresh_schedules(self.now().millis(), patience).is_some()) {
            self.sites[node].contacts.wanted.remove(&site);
        } else {
            self.counts.repairs += 1;
            self.fetch(node, site, None, None);
        }
    }

    /// The ledger of a site has changed: it publishes that as soon as the pace allows.
    pub fn change(&mut self, site: usize, parts: ScheduleUpdateParts) {
        let now = self.now();
        let received_per_s = self.gossip.messages_per_s(&self.sites[site].subscribed);
        if let Some(due) = self.sites[site].change(now, parts, received_per_s) {
            self.at_node(due, site, move |world| world.grid.publish(site));
        }
    }

    /// A site publishes what has changed. After the first change that a restarted site publishes, every node that knows it sees
    /// that something was missed.
    fn publish(&mut self, site: usize) {
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
            let question = question_bytes(&WireRequest::Schedules(None));
            self.traffic.passes(Kind::Upkeep, (node, site), question);
            self.traffic.passes(Kind::Upkeep, (site, node), self.sites[site].schedules_bytes);
        }
    }

    /// Draws new meshes.
    fn begin_epoch(&mut self) {
        self.gossip.begin_epoch(&self.sites, (&self.settings, &self.earth), &mut self.random, &mut self.counts);
        self.after(EPOCH, |world| {
            world.grid.end_epoch();
            world.grid.begin_epoch();
        });
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
    fn estimate(&self) -> Estimate<'_> {
        Estimate { settings: &self.settings, sites: &self.sites, mesh_degree: self.gossip.degree() }
    }

    /// The figures of a run that has ended.
    pub fn figures(&self, wall_s: f64) -> Figures {
        let Settings { sites, hosts, shards, .. } = self.settings;
        let (counts, estimate) = (self.counts.clone(), self.estimate());
        let seconds = (self.now() - BEGIN).as_secs_f64();
        let kinds = KINDS.iter().map(|(kind, name)| {
            let flows: Vec<Flow> = self.traffic.of(*kind).collect();
            let column = |of: fn(&Flow) -> u64| {
                percentiles(&flows.iter().map(|flow| rounded(of(flow) as f64 / seconds.max(1.0))).collect::<Vec<_>>())
            };
            let sum: Flow = flows.iter().copied().sum();
            KindFigures {
                kind: name,
                received_bytes_per_s: column(|flow| flow.received),
                sent_bytes_per_s: column(|flow| flow.sent),
                messages_per_s: column(|flow| flow.messages),
                lost_share: Share { part: sum.lost, whole: sum.sent },
            }
        });
        Figures {
            sites,
            hosts,
            shards,
            subscribed_shards: self.settings.subscriptions(),
            view_sites: self.settings.view_sites(),
            seed: self.settings.run.seed,
            seconds: rounded(seconds),
            still_open: counts.still_open(),
            mesh_degree: rounded(estimate.mesh_degree),
            connections: rounded(estimate.connections()),
            traffic: kinds.collect(),
            memory: estimate.memory(counts.gossip_published, self.clocks()),
            counts,
            wall_s,
        }
    }
}
