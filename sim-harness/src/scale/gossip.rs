//! The gossip of all shards: the members of each topic, how messages spread at present, and what has gone through it.
//!
//! Time goes in epochs, each with a mesh of its own. Invariant: every message that is published is counted in exactly one
//! epoch of its topic, and spreads like one of those that were worked out for it.

use std::{mem, time::Duration};

use discovery::wire::bundle::NAME_BYTES;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    chance::drawn,
    figures::Counts,
    geography::Geography,
    mesh::{Mesh, NEVER, Passing, Spread},
    options::{BEGIN, Settings},
    site::Site,
    sizes,
    traffic::{Flow, Kind, Traffic},
};
use crate::engine::Moment;

/// How long a mesh is taken to stay as it is, and one spread to stand for the messages of a topic.
pub const EPOCH: Duration = Duration::from_secs(60);
/// Spreads of updates worked out for each topic and epoch.
const SPREADS: u64 = 4;

/// When the messages of an epoch arrive: microseconds for each spread and member.
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
}

/// The gossip of one shard.
#[derive(Debug, Default)]
struct Topic {
    /// The sites that take part while their nodes run, ascending.
    subscribers: Vec<usize>,
    mesh: Mesh,
    /// How the messages of this epoch spread: updates like one of some, in turn by their names; adverts.
    spreads: Vec<Spread>,
    advert_spread: Spread,
    /// The messages of this epoch.
    updates: [Batch; SPREADS as usize],
    adverts: Batch,
    /// Of every epoch.
    arrivals: Vec<Arrivals>,
    /// Updates published in the last epoch, and adverts.
    last: (u64, u64),
}

impl Topic {
    fn messages_per_s(&self) -> u64 {
        (self.last.0 + self.last.1) / EPOCH.as_secs()
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

    fn begin_epoch(&mut self, shard: usize, mesh: Mesh, settings: &Settings, earth: &Geography, counts: &mut Counts) {
        let (bundled, _) = passing(settings, self.last.0, EPOCH);
        let (believed_ppm, count) = (self.believed_ppm(settings), mesh.members.len());
        let epoch = self.arrivals.len() as u64;
        let spread = |number: u64, passing: Passing| {
            let seed = drawn([settings.run.seed, epoch, shard as u64, number]);
            let believes = |own: usize| drawn([seed, own as u64]) % 1_000_000 < believed_ppm;
            mesh.spread(seed as usize % count.max(1), seed, (passing, earth), believes)
        };
        self.spreads = (0..SPREADS).map(|number| spread(number, bundled)).collect();
        self.advert_spread = spread(SPREADS, Passing::Each);
        for spread in &self.spreads {
            let arrived = spread.delay_us.iter().filter(|delay| **delay != NEVER);
            let last = arrived.clone().max().copied().unwrap_or(0);
            counts.gossip_delay_ms.extend(arrived.map(|delay| f64::from(*delay) / 1000.0).step_by(7));
            counts.gossip_ms.push(f64::from(last) / 1000.0);
            counts.gossip_missed_share.part += spread.missed as u64;
            counts.gossip_missed_share.whole += count as u64;
        }
        let delay_us = self.spreads.iter().map(|spread| spread.delay_us.clone()).collect();
        self.arrivals.push(Arrivals { members: mesh.members.clone(), delay_us });
        self.mesh = mesh;
    }

    fn end_epoch(&mut self, settings: &Settings, passed: Duration, counts: &mut Counts, traffic: &mut Traffic) {
        let frame_bytes = sizes::gossip_frame_bytes(&settings.grid, NAME_BYTES);
        let (updates, adverts) = (mem::take(&mut self.updates), mem::take(&mut self.adverts));
        let published = updates.iter().map(|batch| batch.messages).sum();
        self.last = (published, adverts.messages);
        counts.gossip_published += published + adverts.messages;
        let (_, in_bundle) = passing(settings, published, passed);
        let bundles = updates.iter().map(|batch| {
            let messages = (batch.messages as f64 / in_bundle).ceil() as u64;
            Batch { messages, bytes: batch.bytes + messages * frame_bytes }
        });
        for (spread, batch) in self.spreads.iter().zip(bundles).chain([(&self.advert_spread, adverts)]) {
            for (member, copies) in self.mesh.members.iter().zip(&spread.copies) {
                let [sent, received, lost] =
                    [copies.sent, copies.received, copies.lost].map(|count| count * batch.bytes);
                let messages = copies.received * batch.messages;
                traffic.add(Kind::Gossip, *member, Flow { sent, received, lost, messages });
            }
        }
        let missed = self.spreads.iter().zip(&updates).map(|(spread, batch)| batch.messages * spread.missed as u64);
        counts.repairs += missed.sum::<u64>();
    }
}

/// How nodes bundle when `updates` of their topic came in a time, and how many go with a bundle.
fn passing(settings: &Settings, updates: u64, passed: Duration) -> (Passing, f64) {
    Passing::bundled(updates as f64 / passed.as_secs_f64().max(1e-6), settings.intervals.relay)
}

/// The topics of all shards.
#[derive(Debug)]
pub struct Gossip(Vec<Topic>);

impl Gossip {
    /// Topics without a mesh.
    pub fn new(sites: &[Site], shards: usize) -> Gossip {
        let mut topics: Vec<Topic> = (0..shards).map(|_| Topic::default()).collect();
        for (position, site) in sites.iter().enumerate() {
            for shard in &site.subscribed {
                topics[*shard].subscribers.push(position);
            }
        }
        Gossip(topics)
    }

    /// The sites that take part in a shard while their nodes run, ascending.
    pub fn subscribers(&self, shard: usize) -> &[usize] {
        &self.0[shard].subscribers
    }

    /// Until the message called `name`, published in a shard at `at`, reaches a node; none when it never does.
    pub fn delay(&self, shard: usize, (name, at): (u64, Moment), node: usize) -> Option<Duration> {
        let all = &self.0[shard].arrivals;
        let epoch = ((at - BEGIN).as_secs() / EPOCH.as_secs()) as usize;
        let Arrivals { members, delay_us } = all.get(epoch).or(all.last())?;
        // A node that has come since the mesh was drawn fares like one of the others.
        let position =
            members.binary_search(&node).unwrap_or_else(|_| drawn([name, node as u64]) as usize % members.len().max(1));
        let delay = delay_us[(name % SPREADS) as usize].get(position).filter(|delay| **delay != NEVER)?;
        Some(Duration::from_micros(u64::from(*delay)))
    }

    /// Neighbours of a node in the present mesh of a topic, on average.
    pub fn degree(&self) -> f64 {
        self.0.iter().map(|topic| topic.mesh.degree()).sum::<f64>() / self.0.len().max(1) as f64
    }

    /// Messages a second of these shards in the last epoch.
    pub fn messages_per_s(&self, shards: &[usize]) -> u64 {
        shards.iter().map(|shard| self.0[*shard].messages_per_s()).sum()
    }

    /// The update called `name` is published.
    pub fn note_update(&mut self, shard: usize, name: u64, bytes: u64) {
        self.0[shard].updates[(name % SPREADS) as usize].add(bytes);
    }

    /// An advert is published.
    pub fn note_advert(&mut self, shard: usize, bytes: u64) {
        self.0[shard].adverts.add(bytes);
    }

    /// Draws the meshes of the nodes that run, for a new epoch, and lets some messages spread in them.
    pub fn begin_epoch(
        &mut self,
        sites: &[Site],
        (settings, earth): (&Settings, &Geography),
        random: &mut Xoshiro256PlusPlus,
        counts: &mut Counts,
    ) {
        for (shard, topic) in self.0.iter_mut().enumerate() {
            let members = topic.subscribers.iter().copied().filter(|site| sites[*site].is_up()).collect();
            let mesh = Mesh::draw(members, &settings.mesh, random);
            topic.begin_epoch(shard, mesh, settings, earth, counts);
        }
    }

    /// Counts the messages of an epoch that took so long.
    pub fn end_epoch(&mut self, settings: &Settings, passed: Duration, counts: &mut Counts, traffic: &mut Traffic) {
        self.0.iter_mut().for_each(|topic| topic.end_epoch(settings, passed, counts, traffic));
    }
}
