//! Gossip: sites tell their changes as a node does, in batches at its pace; what that costs, and when it arrives.
//!
//! Messages of a topic spread like one of a few that are worked out for each epoch (see [`super::mesh`]). Without shards
//! there is one topic; with shards each has its own, and a node takes part in those that it is subscribed to.
//! Invariant: every message that is published is counted in exactly one epoch of its topic.

use broker::{ledger::ScheduleUpdateParts, protocol::ScheduleUpdate};
use discovery::{costs, outbox::advance};

use super::{
    geography::mix,
    mesh::{Mesh, NEVER, Spread},
    settings::{BEGIN_US, SECOND_US},
    site::{Site, Told},
    world::{EPOCH_US, Event, World, millis},
};

/// Spreads worked out for each topic and epoch.
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

/// The gossip of one shard.
#[derive(Debug)]
pub struct Topic {
    /// The sites that take part while their nodes run, ascending.
    pub subscribers: Vec<usize>,
    mesh: Mesh,
    spreads: Vec<Spread>,
    batches: Vec<Batch>,
    arrivals: Vec<Arrivals>,
    /// Messages published in the last epoch, adverts included.
    last_messages: u64,
}

impl Topic {
    /// The topics of all shards.
    pub fn all(sites: &[Site], shards: usize) -> Vec<Topic> {
        let mut topics: Vec<Topic> = (0..shards)
            .map(|_| Topic {
                subscribers: Vec::new(),
                mesh: Mesh::default(),
                spreads: Vec::new(),
                batches: Vec::new(),
                arrivals: Vec::new(),
                last_messages: 0,
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
        self.last_messages * SECOND_US / EPOCH_US
    }

    fn note(&mut self, name: u64, bytes: u64) {
        let batch = &mut self.batches[(name % SPREADS) as usize];
        batch.messages += 1;
        batch.bytes += bytes;
    }
}

impl World {
    /// Draws the mesh of every topic and lets some messages spread in it.
    pub(super) fn draw_meshes(&mut self) {
        let shape = self.settings.gossip.clone();
        let kept = self.settings.limits.connections_kept;
        for shard in 0..self.topics.len() {
            let subscribers = &self.topics[shard].subscribers;
            let members: Vec<usize> = subscribers.iter().copied().filter(|site| self.sites[*site].is_up()).collect();
            // Of the connections that a node keeps, so many lead to others of the topic.
            let connected = kept * subscribers.len() / self.sites.len().max(1);
            let mesh = Mesh::draw(members, &shape, connected, &mut self.random);
            let share_ppm = self.believed_ppm(shard);
            let name = self.name();
            let count = mesh.members.len();
            let spreads: Vec<Spread> = (0..SPREADS)
                .map(|number| {
                    let seed = mix(name, number);
                    let believes = |own: usize| mix(seed, own as u64) % 1_000_000 < share_ppm;
                    mesh.spread(seed as usize % count.max(1), seed, (&shape, &self.earth), believes)
                })
                .collect();
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
            topic.spreads = spreads;
            topic.mesh = mesh;
        }
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
        let name_bytes = costs::gossip_name_bytes();
        for topic in &mut self.topics {
            let batches = std::mem::replace(&mut topic.batches, vec![Batch::default(); SPREADS as usize]);
            topic.last_messages = batches.iter().map(|batch| batch.messages).sum();
            self.counts.gossip_published += topic.last_messages;
            for (spread, batch) in topic.spreads.iter().zip(&batches) {
                for (member, share) in topic.mesh.members.iter().zip(&spread.shares) {
                    self.traffic.gossips(*member, share, (batch.messages, batch.bytes), name_bytes);
                }
                self.counts.repairs += batch.messages * spread.missed as u64;
            }
        }
        self.count_upkeep(passed_us);
    }

    /// Every node renews its advert; that is so regular that it needs no events.
    fn count_adverts(&mut self, passed_us: u64) {
        let refresh_us = u64::try_from(self.settings.intervals.advert_refresh.as_micros()).unwrap_or(u64::MAX);
        for position in 0..self.sites.len() {
            let site = &self.sites[position];
            let phase = mix(self.settings.seed ^ 0x6164, position as u64) % refresh_us;
            let until = self.now + refresh_us - phase;
            let adverts = until / refresh_us - (until - passed_us) / refresh_us;
            if site.is_up() {
                let bytes = costs::gossip_frame_bytes(&self.settings.grid, site.advert_bytes as usize);
                for number in 0..adverts {
                    self.topics[site.shard].note(mix(position as u64, self.now + number), bytes);
                }
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
        self.topics[shard].note(name, costs::gossip_frame_bytes(&self.settings.grid, bytes as usize));
        if is_first_of_run {
            self.everybody_fetches(site);
        }
    }
}
