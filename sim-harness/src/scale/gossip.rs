//! Gossip: sites tell their changes as a node does, in batches at its pace; what that costs, and when it arrives.
//!
//! Updates of a topic spread like one of a few that are worked out for each epoch (see [`super::mesh`]), adverts like
//! another one. Without shards there is one topic; with shards each has its own, and a node takes part in those that it
//! is subscribed to. Invariant: every message that is published is counted in exactly one epoch of its topic.

use broker::{ledger::ScheduleUpdateParts, protocol::ScheduleUpdate};
use discovery::{costs, outbox::advance};

use super::{
    geography::mix,
    mesh::{Mesh, NEVER, Passing, Spread},
    settings::{BEGIN_US, SECOND_US},
    site::{Site, Told},
    world::{EPOCH_US, Event, World, millis},
};

/// Spreads of updates worked out for each topic and epoch.
const SPREADS: u64 = 4;

/// When the messages of an epoch arrive.
#[derive(Debug)]
struct Arrivals {
    members: Vec<usize>,
    delay_us: Vec<Vec<u32>>,
}

/// Messages that spread alike.
#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    messages: u64,
    bytes: u64,
}

impl Batch {
    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// As many bundles as `in_bundle` of these updates go with, each in a frame of its own.
    fn bundled(self, in_bundle: f64, frame_bytes: u64) -> (u64, u64) {
        let bundles = (self.messages as f64 / in_bundle).ceil() as u64;
        (bundles, self.bytes + bundles * frame_bytes)
    }
}

/// The gossip of one shard.
#[derive(Debug)]
pub struct Topic {
    /// The sites that take part while their nodes run, ascending.
    pub subscribers: Vec<usize>,
    mesh: Mesh,
    advert_spread: Spread,
    adverts: Batch,
    spreads: Vec<Spread>,
    batches: Vec<Batch>,
    arrivals: Vec<Arrivals>,
    /// Updates published in the last epoch, and adverts.
    last: (u64, u64),
}

impl Topic {
    /// The topics of all shards.
    pub fn all(sites: &[Site], shards: usize) -> Vec<Topic> {
        let mut topics: Vec<Topic> = (0..shards)
            .map(|_| Topic {
                subscribers: Vec::new(),
                mesh: Mesh::default(),
                advert_spread: Spread::default(),
                adverts: Batch::default(),
                spreads: Vec::new(),
                batches: Vec::new(),
                arrivals: Vec::new(),
                last: (0, 0),
            })
            .collect();
        for (position, site) in sites.iter().enumerate() {
            for shard in &site.subscribed {
                topics[*shard].subscribers.push(position);
            }
        }
        topics
    }

    /// Until the message called `name`, told at `at`, reaches a node; none when it never does.
    pub fn delay_us(&self, name: u64, at: u64, node: usize) -> Option<u64> {
        let epoch = usize::try_from((at - BEGIN_US) / EPOCH_US).ok()?;
        let arrivals = self.arrivals.get(epoch).or(self.arrivals.last())?;
        let delays = &arrivals.delay_us[(name % SPREADS) as usize];
        // A node that has come since the mesh was drawn fares like one of the others.
        let position = arrivals
            .members
            .binary_search(&node)
            .unwrap_or_else(|_| mix(name, node as u64) as usize % arrivals.members.len().max(1));
        delays.get(position).copied().filter(|delay| *delay != NEVER).map(u64::from)
    }

    /// The mesh of the present epoch, and how many neighbours a node has in it.
    pub fn degree(&self) -> f64 {
        self.mesh.degree()
    }

    fn messages_per_s(&self) -> u64 {
        (self.last.0 + self.last.1) * SECOND_US / EPOCH_US
    }

    fn note_update(&mut self, name: u64, bytes: u64) {
        self.batches[(name % SPREADS) as usize].add(bytes);
    }
}

impl World {
    /// Draws the mesh of every topic and lets some messages spread in it.
    pub(super) fn draw_meshes(&mut self) {
        let shape = self.settings.gossip.clone();
        for shard in 0..self.topics.len() {
            let subscribers = &self.topics[shard].subscribers;
            let members: Vec<usize> = subscribers.iter().copied().filter(|site| self.sites[*site].is_up()).collect();
            let mesh = Mesh::draw(members, &shape, &mut self.random);
            let (passing, _) = self.passing(self.topics[shard].last.0, EPOCH_US);
            let share_ppm = self.believed_ppm(shard);
            let name = self.name();
            let count = mesh.members.len();
            let spread = |number: u64, passing: Passing| {
                let seed = mix(name, number);
                let believes = |own: usize| mix(seed, own as u64) % 1_000_000 < share_ppm;
                mesh.spread(seed as usize % count.max(1), seed, (passing, &self.earth), believes)
            };
            let spreads: Vec<Spread> = (0..SPREADS).map(|number| spread(number, passing)).collect();
            let advert_spread = spread(SPREADS, Passing::Each);
            for spread in &spreads {
                let arrived = spread.delay_us.iter().filter(|delay| **delay != NEVER);
                self.counts.gossip_delay_ms.extend(arrived.map(|delay| f64::from(*delay) / 1000.0).step_by(7));
                let last = spread.delay_us.iter().copied().filter(|delay| *delay != NEVER).max().unwrap_or(0);
                self.counts.gossip_last_ms.push(f64::from(last) / 1000.0);
                self.counts.gossip_missed += spread.missed as u64;
                self.counts.gossip_expected += count as u64;
            }
            let topic = &mut self.topics[shard];
            let delay_us = spreads.iter().map(|spread| spread.delay_us.clone()).collect();
            topic.arrivals.push(Arrivals { members: mesh.members.clone(), delay_us });
            topic.batches = vec![Batch::default(); SPREADS as usize];
            topic.adverts = Batch::default();
            (topic.spreads, topic.advert_spread) = (spreads, advert_spread);
            topic.mesh = mesh;
        }
    }

    /// How nodes bundle when `updates` of their topic came in a time, and how many go with a bundle.
    fn passing(&self, updates: u64, passed_us: u64) -> (Passing, f64) {
        let interval_us = u64::try_from(self.settings.intervals.relay.as_micros()).unwrap_or(u64::MAX);
        Passing::bundled(updates as f64 * 1e6 / passed_us.max(1) as f64, interval_us)
    }

    /// Of a million messages of a topic, how many a node believes and passes on: those of sites that it knows, as far as
    /// they are not more than it accepts.
    fn believed_ppm(&self, shard: usize) -> u64 {
        let limits = &self.settings.limits;
        let in_reach = (self.sites.len() * self.settings.subscriptions() / self.settings.shards).max(1);
        let known_ppm = (limits.sites_max as u64 * 1_000_000 / in_reach as u64).min(1_000_000);
        let heard_per_s = (self.topics[shard].messages_per_s() * self.settings.subscriptions() as u64).max(1);
        let accepted_ppm = (u64::from(limits.gossip_in_10_s) * 100_000 / heard_per_s).min(1_000_000);
        known_ppm * accepted_ppm / 1_000_000
    }

    /// Counts what went through the meshes, and what nodes do at regular times, since the last epoch.
    pub(super) fn count_epoch(&mut self) {
        let passed_us = self.now - self.counted_until;
        self.counted_until = self.now;
        self.count_adverts(passed_us);
        let frame_bytes = costs::gossip_frame_bytes(&self.settings.grid, costs::BUNDLE_NAME_BYTES);
        for shard in 0..self.topics.len() {
            let topic = &mut self.topics[shard];
            let batches = std::mem::replace(&mut topic.batches, vec![Batch::default(); SPREADS as usize]);
            let adverts = std::mem::take(&mut topic.adverts);
            let updates = batches.iter().map(|batch| batch.messages).sum();
            topic.last = (updates, adverts.messages);
            self.counts.gossip_published += updates + adverts.messages;
            let (_, in_bundle) = self.passing(updates, passed_us);
            let topic = &self.topics[shard];
            let spreads = topic.spreads.iter().zip(batches.iter().map(|batch| batch.bundled(in_bundle, frame_bytes)));
            let advert_spread = (&topic.advert_spread, (adverts.messages, adverts.bytes));
            for (spread, sizes) in spreads.chain([advert_spread]) {
                for (member, share) in topic.mesh.members.iter().zip(&spread.shares) {
                    self.traffic.gossips(*member, share, sizes);
                }
            }
            let missed =
                topic.spreads.iter().zip(&batches).map(|(spread, batch)| batch.messages * spread.missed as u64);
            self.counts.repairs += missed.sum::<u64>();
        }
        self.count_upkeep(passed_us);
    }

    /// Every node renews its advert; that is so regular that it needs no events.
    fn count_adverts(&mut self, passed_us: u64) {
        let refresh = self.settings.intervals.advert_refresh_among(self.settings.view_sites());
        let refresh_us = u64::try_from(refresh.as_micros()).unwrap_or(u64::MAX);
        for position in 0..self.sites.len() {
            let site = &self.sites[position];
            let phase = mix(self.settings.seed ^ 0x6164, position as u64) % refresh_us;
            let until = self.now + refresh_us - phase;
            let adverts = until / refresh_us - (until - passed_us) / refresh_us;
            if site.is_up() {
                let bytes = costs::gossip_frame_bytes(&self.settings.grid, site.advert_bytes as usize);
                (0..adverts).for_each(|_| self.topics[site.shard].adverts.add(bytes));
            }
        }
    }

    /// The ledger of a site has changed: it will be told as soon as the pace allows.
    pub(super) fn changed(&mut self, site: usize, parts: ScheduleUpdateParts) {
        let (now, id) = (self.now, self.sites[site].id.clone());
        let from = parts.from;
        let own = &mut self.sites[site];
        own.pending.push(ScheduleUpdate { site: id, from, changes: parts.changes.clone() });
        if let Some(life) = own.lives.last_mut() {
            life.changes.push((now, parts));
        }
        if !own.is_telling {
            own.is_telling = true;
            let heard_per_s: u64 = own.subscribed.iter().map(|shard| self.topics[*shard].messages_per_s()).sum();
            let (due, run) = (own.pacer.due_when(heard_per_s).0 * 1000, own.run);
            self.at(due, Event::Tell { site, run });
        }
    }

    /// A site tells what has changed, in one message.
    pub(super) fn tell(&mut self, site: usize) {
        let (now, name, clock) = (self.now, self.name(), self.clock());
        let own = &mut self.sites[site];
        own.is_telling = false;
        let Some((from, changes)) = own.pending.take() else { return };
        own.pacer.sent(millis(now));
        if let Some(ledger) = &own.ledger {
            own.schedules_bytes = costs::schedules_bytes(ledger.snapshot(clock));
        }
        let count = changes.len();
        let update = ScheduleUpdate { site: own.id.clone(), from, changes };
        let mut bytes = costs::update_bytes(&self.settings.grid, update.clone());
        let update = if bytes > 0 {
            update
        } else {
            // Too large for a message: told by its absence.
            let empty = ScheduleUpdate { from: advance(from, count), changes: Vec::new(), ..update };
            bytes = costs::update_bytes(&self.settings.grid, empty.clone());
            empty
        };
        let is_first_of_run = own.lives.len() > 1 && own.told.last().is_none_or(|told| told.at < own.started());
        own.told.push(Told { at: now, name, update });
        let shard = own.shard;
        self.topics[shard].note_update(name, costs::bundled_bytes(bytes as usize) as u64);
        if is_first_of_run {
            self.everybody_fetches(site);
        }
    }
}
