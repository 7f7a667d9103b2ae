//! What is worked out instead of simulated: connections, what nodes do at regular times, and memory.
//!
//! All nodes do the same rechecks, exchanges of adverts, pings and DHT traffic, so these are counted at once, and every node
//! sends as much as it receives. Of memory, what grows with the grid is worked out; a process and a connection were
//! measured. Invariant: intervals and sizes are those of a node; an estimate of memory errs on the large side.

use std::{mem::size_of, num::NonZeroUsize, time::Duration};

use broker::{
    classes::HostClass,
    protocol::{LedgerVersion, ScheduleSnapshot},
    schedule::Occupancy,
    time::Now,
    view::SiteView,
};
use discovery::{
    DHT_PARALLEL, DhtUpkeep, PING_EVERY, index,
    wire::{WireAnswer, WireRequest},
};
use libp2p::kad::K_VALUE;
use serde::Serialize;

use super::{
    options::Settings,
    site::{Site, addresses},
    sizes::{self, PING_BYTES, SOME_TIME_MS, answer_bytes, question_bytes},
    traffic::Kind,
};

const MIB: f64 = 1_048_576.0;
/// A process without neighbours, and one more connection: what fits real grids of 10 and 25 nodes on one machine (7.9 and
/// 8.9 MiB a node, shared pages counted once; `kolo-sim grid --nodes 10|25 --free`). Nodes that were short of processors
/// have more in their queues: 50 on two cores took 12.5 MiB.
const PROCESS_BYTES: f64 = 7.2 * MIB;
const CONNECTION_BYTES: f64 = 0.06 * MIB;
/// A step of a schedule after random changes, with its share of the block.
const STEP_BYTES: usize = 27;
/// A map whose only node is full, with its keys' text: of a host's capacities, its attributes, or its schedule.
const MAP_BYTES: usize = 460;
/// What an entry of a hash map or a store takes beside its key and value.
const ENTRY_BYTES: usize = 64;

/// What a node sends in a second, and as much it receives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    pub bytes_per_s: f64,
    pub messages_per_s: f64,
}

impl Load {
    /// So many bytes and messages, every so often.
    fn every(interval: Duration, bytes: f64, messages: f64) -> Load {
        let per_s = 1.0 / interval.as_secs_f64();
        Load { bytes_per_s: bytes * per_s, messages_per_s: messages * per_s }
    }

    fn plus(self, other: Load) -> Load {
        Load {
            bytes_per_s: self.bytes_per_s + other.bytes_per_s,
            messages_per_s: self.messages_per_s + other.messages_per_s,
        }
    }
}

/// Memory of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// Adverts and schedules of other sites.
    pub view_mib: f64,
    /// Messages and names of messages that gossip remembers.
    pub gossip_mib: f64,
    /// Records and providers that the node keeps for others.
    pub dht_mib: f64,
    /// A process and its connections.
    pub process_mib: f64,
    pub total_mib: f64,
}

/// What the estimates follow from.
#[derive(Debug, Clone, Copy)]
pub struct Estimate<'w> {
    pub settings: &'w Settings,
    pub sites: &'w [Site],
    /// Neighbours of a node in the mesh of a topic, on average.
    pub mesh_degree: f64,
}

impl Estimate<'_> {
    /// Connections that a node has: those that it keeps, and more if its meshes need more. A mesh takes neighbours from
    /// whatever connections lead to members of its topic, so in topics that most nodes are in, the same ones serve many.
    pub fn connections(&self) -> f64 {
        let (subscriptions, shards) = (self.settings.subscriptions() as f64, self.settings.shards as f64);
        let apart = self.mesh_degree * subscriptions;
        let shared = self.mesh_degree * shards / subscriptions;
        let others = (self.sites.len() - 1) as f64;
        apart.min(shared).max(self.settings.limits.connections_kept as f64).min(others)
    }

    /// What each node does at regular times.
    pub fn regular_loads(&self) -> [(Kind, Load); 2] {
        [(Kind::Upkeep, upkeep_load(self.settings, self.connections())), (Kind::Dht, self.dht_load())]
    }

    /// A node's part of the DHT: publishing its advert and its keys, and looking for its neighbours.
    fn dht_load(&self) -> Load {
        let (settings, count) = (self.settings, self.sites.len());
        let (copies, asked) = (K_VALUE.get(), asked(count));
        let kept = copies.min(count);
        let answer = sizes::dht_answer_bytes(kept, &addresses(0));
        let question = (sizes::dht_question_bytes() + answer) as f64;
        // `lookups` look-ups, with `stored` bytes put down at each of the nodes found.
        let every = |interval: Duration, lookups: f64, stored: f64| {
            let puts = if stored > 0.0 { kept as f64 } else { 0.0 };
            Load::every(interval, lookups * asked * question + puts * stored, lookups * 2.0 * asked + puts)
        };
        let record = sizes::dht_record_bytes(self.mean(|site| site.advert_bytes as f64) as usize) as f64;
        let provider = (sizes::dht_question_bytes() + answer / copies as u64) as f64;
        let known = settings.view_sites();
        let upkeep = DhtUpkeep::of(true, known, &settings.limits);
        let keys = self.mean(|site| self.index_keys(site));
        let key = every(settings.intervals.index_refresh_at(upkeep), 1.0, provider);
        let index = Load { bytes_per_s: key.bytes_per_s * keys, messages_per_s: key.messages_per_s * keys };
        // In a large grid only the nearest are looked for, in others each distance at which there is anybody.
        let distances = if upkeep == DhtUpkeep::Rare { 0.0 } else { (count.max(1) as f64).log2() };
        let neighbours = every(settings.intervals.neighbours_refresh_at(upkeep), 1.0 + distances, 0.0);
        every(settings.intervals.advert_refresh_among(known), 1.0, record).plus(index).plus(neighbours)
    }

    fn mean(&self, of: impl Fn(&Site) -> f64) -> f64 {
        self.sites.iter().map(of).sum::<f64>() / self.sites.len().max(1) as f64
    }

    /// Keys of the DHT index under which a site is found.
    fn index_keys(&self, site: &Site) -> f64 {
        index::keys_of_site(&self.settings.grid, &site.id, &site.advert.hosts).len() as f64
    }

    /// What a node keeps, on average, after `published` gossip messages of the whole run.
    pub fn memory(&self, published: u64, now: Now) -> Memory {
        let view = self.settings.view_sites() as f64 * self.mean(|site| view_bytes(site, now) as f64);
        let advert = self.mean(|site| site.advert_bytes as f64);
        let mesh = &self.settings.mesh;
        let seconds = self.settings.run.duration.as_secs_f64().max(1.0);
        let share = self.settings.subscriptions() as f64 / self.settings.shards as f64;
        let received_per_s = published as f64 / seconds * share;
        let name = sizes::gossip_name_bytes() as f64 + ENTRY_BYTES as f64;
        let kept_s = mesh.heartbeat_interval().as_secs_f64() * mesh.history_length() as f64;
        let gossip = received_per_s * (mesh.duplicate_cache_time().as_secs_f64() * name + kept_s * (advert + name));
        let copies = K_VALUE.get().min(self.sites.len()) as f64;
        let keys = self.sites.first().map_or(0.0, |site| self.index_keys(site));
        let provider = (3 * ENTRY_BYTES) as f64 + sizes::dht_question_bytes() as f64;
        let dht = copies * (advert + 4.0 * ENTRY_BYTES as f64 + keys * provider);
        let process = PROCESS_BYTES + self.connections() * CONNECTION_BYTES;
        let mib = |bytes: f64| (bytes / MIB * 1000.0).round() / 1000.0;
        Memory {
            view_mib: mib(view),
            gossip_mib: mib(gossip),
            dht_mib: mib(dht),
            process_mib: mib(process),
            total_mib: mib(view + gossip + dht + process),
        }
    }
}

/// Keeping the view and the connections.
fn upkeep_load(settings: &Settings, connections: f64) -> Load {
    let intervals = &settings.intervals;
    let version = LedgerVersion { incarnation: SOME_TIME_MS, change: 1_000 };
    let recheck =
        question_bytes(&WireRequest::Schedules(Some(version))) + answer_bytes(&WireAnswer::Unchanged(version));
    let nothing_new = answer_bytes(&WireAnswer::Adverts { envelopes: Vec::new(), is_complete: true });
    let exchange = sizes::exchange_bytes(settings.view_sites()) + nothing_new;
    Load::every(intervals.recheck, recheck as f64, 2.0)
        .plus(Load::every(intervals.exchange, exchange as f64, 2.0))
        .plus(Load::every(PING_EVERY, 2.0 * connections * PING_BYTES as f64, 2.0 * connections))
}

/// Nodes that a look-up in the DHT asks, in a grid of `sites` nodes: the closest ones, and on the way to them a third of a
/// node more for each doubling of the grid. Look-ups on drawn routing tables of 10 to 20,000 nodes gave the same within 5 %.
fn asked(sites: usize) -> f64 {
    let (copies, others) = (K_VALUE.get() as f64, sites.saturating_sub(1) as f64);
    let parallel = DHT_PARALLEL.map_or(1, NonZeroUsize::get) as f64;
    (copies + (sites as f64 / copies).log2().max(0.0) / parallel).min(others)
}

/// What a view keeps of a site: its advert as it is read and as it was signed, and its schedules.
fn view_bytes(site: &Site, now: Now) -> usize {
    let of_schedules = |snapshot: ScheduleSnapshot| {
        let (hosts, classes) = (snapshot.schedules.hosts(), snapshot.schedules.classes());
        let of_hosts = hosts.flat_map(|(_, schedule)| schedule.occupancies()).map(|(_, one)| one);
        let of_classes = classes.flat_map(|(_, class)| class.used.uses()).map(|(_, one)| one);
        let uses = snapshot.schedules.classes().map(|(_, class)| class.used.uses().count());
        let steps = of_hosts.chain(of_classes);
        let steps = steps.map(|one| size_of::<Occupancy>() + ENTRY_BYTES + one.len() * STEP_BYTES);
        let maps = snapshot.schedules.hosts().count() + snapshot.schedules.classes().count() + uses.sum::<usize>();
        maps * MAP_BYTES + steps.sum::<usize>()
    };
    let schedules = site.ledger().map_or(0, |ledger| of_schedules(ledger.snapshot(now)));
    let hosts = site.advert.hosts.classes().len() * (size_of::<HostClass>() + 2 * MAP_BYTES);
    size_of::<SiteView>() + ENTRY_BYTES + 2 * site.advert_bytes as usize + hosts + schedules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::options::{Pace, RunArgs};

    #[test]
    fn a_look_up_costs_little_more_in_a_large_grid() {
        assert!((asked(1), asked(10)) == (0.0, 9.0), "nobody is asked twice");
        let (small, large) = (asked(100), asked(10_000));
        assert!((19.9..22.5).contains(&small) && (22.5..24.0).contains(&large), "{small} {large}");
    }

    #[test]
    fn a_larger_view_costs_a_larger_exchange() {
        let load = |sites| {
            let pace = Pace::Open { per_second: 1.0 };
            upkeep_load(&Settings::new(sites, 4 * sites, pace, RunArgs::default()).unwrap(), 32.0)
        };
        let (small, large) = (load(100), load(1_000));
        let grown = large.bytes_per_s - small.bytes_per_s;
        assert!((400.0..800.0).contains(&grown), "900 sites of 18 bytes every 30 s are 540 bytes a second: {grown}");
        assert_eq!(large.messages_per_s, small.messages_per_s);
    }
}
