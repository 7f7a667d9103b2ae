//! The gossip of one shard: who takes part, how messages spread at present, and what has gone through it.
//!
//! Invariant: all messages of an epoch spread like one of those that were worked out for it.

use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    chance::drawn,
    costs,
    counts::Counts,
    geography::Geography,
    mesh::{Mesh, NEVER, Passing, Spread},
    settings::{BEGIN, Settings},
    site::Site,
    traffic::Traffic,
};
use crate::engine::Moment;

/// How long a mesh is taken to stay as it is, and one spread to stand for the messages of a topic.
pub const EPOCH: Duration = Duration::from_secs(60);
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
    fn bundled(self, in_bundle: f64, frame_bytes: u64) -> Batch {
        let bundles = (self.messages as f64 / in_bundle).ceil() as u64;
        Batch { messages: bundles, bytes: self.bytes + bundles * frame_bytes }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Topic {
    /// Its shard.
    shard: usize,
    /// The sites that take part while their nodes run, ascending.
    subscribers: Vec<usize>,
    mesh: Mesh,
    /// How the messages of this epoch spread: updates like one of some, in turn by their names, and adverts.
    spreads: Vec<Spread>,
    advert_spread: Spread,
    /// The messages of this epoch.
    updates: [Batch; SPREADS as usize],
    adverts: Batch,
    arrivals: Vec<Arrivals>,
    /// Updates published in the last epoch, and adverts.
    last: (u64, u64),
}

impl Topic {
    /// The topics of all shards.
    pub fn all(sites: &[Site], shards: usize) -> Vec<Topic> {
        let mut topics: Vec<Topic> = (0..shards).map(|shard| Topic { shard, ..Topic::default() }).collect();
        for (position, site) in sites.iter().enumerate() {
            for shard in &site.subscribed {
                topics[*shard].subscribers.push(position);
            }
        }
        topics
    }

    /// The sites that take part while their nodes run, ascending.
    pub fn subscribers(&self) -> &[usize] {
        &self.subscribers
    }

    /// Until the message called `name`, published at `at`, reaches a node; none when it never does.
    pub fn delay(&self, name: u64, at: Moment, node: usize) -> Option<Duration> {
        let epoch = ((at - BEGIN).as_secs() / EPOCH.as_secs()) as usize;
        let arrivals = self.arrivals.get(epoch).or(self.arrivals.last())?;
        let delays = &arrivals.delay_us[(name % SPREADS) as usize];
        // A node that has come since the mesh was drawn fares like one of the others.
        let position = arrivals
            .members
            .binary_search(&node)
            .unwrap_or_else(|_| drawn([name, node as u64]) as usize % arrivals.members.len().max(1));
        delays.get(position).copied().filter(|delay| *delay != NEVER).map(|delay| Duration::from_micros(delay.into()))
    }

    /// Neighbours that a node has in the present mesh, on average.
    pub fn degree(&self) -> f64 {
        self.mesh.degree()
    }

    /// Messages in the last epoch.
    pub fn messages_per_s(&self) -> u64 {
        (self.last.0 + self.last.1) / EPOCH.as_secs()
    }

    /// The update called `name` is published.
    pub fn note_update(&mut self, name: u64, bytes: u64) {
        self.updates[(name % SPREADS) as usize].add(bytes);
    }

    /// An advert is published.
    pub fn note_advert(&mut self, bytes: u64) {
        self.adverts.add(bytes);
    }

    /// Draws the mesh of the nodes that run, for a new epoch, and lets some messages spread in it.
    pub fn begin_epoch(
        &mut self,
        members: Vec<usize>,
        (settings, earth): (&Settings, &Geography),
        random: &mut Xoshiro256PlusPlus,
        counts: &mut Counts,
    ) {
        let mesh = Mesh::draw(members, &settings.gossip, random);
        let (bundled, _) = Topic::passing(settings, self.last.0, EPOCH);
        let (believed_ppm, count) = (self.believed_ppm(settings), mesh.members.len());
        let epoch = self.arrivals.len() as u64;
        let spread = |number: u64, passing: Passing| {
            let seed = drawn([settings.seed, epoch, self.shard as u64, number]);
            let believes = |own: usize| drawn([seed, own as u64]) % 1_000_000 < believed_ppm;
            mesh.spread(seed as usize % count.max(1), seed, (passing, earth), believes)
        };
        self.spreads = (0..SPREADS).map(|number| spread(number, bundled)).collect();
        self.advert_spread = spread(SPREADS, Passing::Each);
        for spread in &self.spreads {
            let arrived = spread.delay_us.iter().filter(|delay| **delay != NEVER);
            let last = arrived.clone().max().copied().unwrap_or(0);
            counts.gossip_delay_ms.extend(arrived.map(|delay| f64::from(*delay) / 1000.0).step_by(7));
            counts.gossip_last_ms.push(f64::from(last) / 1000.0);
            counts.gossip_missed += spread.missed as u64;
            counts.gossip_expected += count as u64;
        }
        let delay_us = self.spreads.iter().map(|spread| spread.delay_us.clone()).collect();
        self.arrivals.push(Arrivals { members: mesh.members.clone(), delay_us });
        self.mesh = mesh;
    }

    /// Counts the messages of an epoch that took so long.
    pub fn end_epoch(&mut self, settings: &Settings, passed: Duration, counts: &mut Counts, traffic: &mut Traffic) {
        let frame_bytes = costs::gossip_frame_bytes(&settings.grid, costs::BUNDLE_NAME_BYTES);
        let (updates, adverts) = (std::mem::take(&mut self.updates), std::mem::take(&mut self.adverts));
        let published = updates.iter().map(|batch| batch.messages).sum();
        self.last = (published, adverts.messages);
        counts.gossip_published += published + adverts.messages;
        let (_, in_bundle) = Topic::passing(settings, published, passed);
        let bundles = updates.iter().map(|batch| batch.bundled(in_bundle, frame_bytes));
        for (spread, batch) in self.spreads.iter().zip(bundles).chain([(&self.advert_spread, adverts)]) {
            for (member, share) in self.mesh.members.iter().zip(&spread.shares) {
                traffic.gossips(*member, share, (batch.messages, batch.bytes));
            }
        }
        let missed = self.spreads.iter().zip(&updates).map(|(spread, batch)| batch.messages * spread.missed as u64);
        counts.totals.repairs += missed.sum::<u64>();
    }

    /// How nodes bundle when `updates` of their topic came in a time, and how many go with a bundle.
    fn passing(settings: &Settings, updates: u64, passed: Duration) -> (Passing, f64) {
        Passing::bundled(updates as f64 / passed.as_secs_f64().max(1e-6), settings.intervals.relay)
    }

    /// Of a million messages, how many a node believes and passes on: those of sites that it knows, as far as they are not
    /// more than it accepts.
    fn believed_ppm(&self, settings: &Settings) -> u64 {
        let limits = &settings.limits;
        let known_ppm = (limits.sites_max as u64 * 1_000_000 / settings.sites_in_reach() as u64).min(1_000_000);
        let received_per_s = (self.messages_per_s() * settings.subscriptions() as u64).max(1);
        let accepted_ppm = (u64::from(limits.gossip_in_10_s) * 100_000 / received_per_s).min(1_000_000);
        known_ppm * accepted_ppm / 1_000_000
    }
}
