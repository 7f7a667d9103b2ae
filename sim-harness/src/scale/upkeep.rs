//! What nodes do at regular times whether anybody asks for anything: rechecks, exchanges of adverts, pings, and the DHT.
//!
//! All nodes do it alike, so it is counted once for each epoch, and every node sends as much as it receives.
//! Invariant: intervals and sizes are those of a node.

use std::time::Duration;

use broker::protocol::LedgerVersion;
use discovery::{DhtUpkeep, Multiaddr};

use super::{costs, settings::Settings, site::Site, topic::Topic, traffic::Kind, world::World};

/// What a node sends in a second, and as much it receives.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Bytes.
    pub bytes_per_s: f64,
    /// Messages.
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

/// Addresses that a node listens on: TCP and QUIC.
pub fn addresses(position: usize) -> Vec<String> {
    let (high, low) = (position / 250 % 250, position % 250 + 1);
    let host = format!("/ip4/198.18.{high}.{low}");
    vec![format!("{host}/tcp/7420"), format!("{host}/udp/7420/quic-v1")]
}

/// Nodes that a look-up in the DHT asks, in a grid of `sites` nodes: the closest ones, and on the way to them a third of a
/// node more for each doubling of the grid. Look-ups on drawn routing tables of 10 to 20,000 nodes gave the same within 5 %.
fn asked(sites: usize) -> f64 {
    let shape = costs::dht_shape();
    let (copies, others) = (shape.copies as f64, sites.saturating_sub(1) as f64);
    (copies + (sites as f64 / copies).log2().max(0.0) / shape.parallel as f64).min(others)
}

/// Keeping the view and the connections.
pub fn of_view(settings: &Settings, connections: f64) -> Load {
    let intervals = &settings.intervals;
    let version = LedgerVersion { incarnation: 1_800_000_000_000, change: 1_000 };
    let recheck = costs::fetch_bytes(Some(version)) + costs::unchanged_bytes(version);
    let exchange = costs::exchange_bytes(settings.view_sites()) + costs::nothing_new_bytes();
    Load::every(intervals.recheck, recheck as f64, 2.0)
        .plus(Load::every(intervals.exchange, exchange as f64, 2.0))
        .plus(Load::every(costs::PING_EVERY, 2.0 * connections * costs::PING_BYTES as f64, 2.0 * connections))
}

impl World {
    /// A node's part of the DHT: publishing its advert and its keys, and looking for its neighbours.
    fn dht_load(&self) -> Load {
        let (settings, sites) = (&self.settings, &self.sites);
        let (copies, asked) = (costs::dht_shape().copies, asked(sites.len()));
        let kept = copies.min(sites.len());
        let addresses: Vec<Multiaddr> = addresses(0).iter().filter_map(|address| address.parse().ok()).collect();
        let answer = costs::dht_answer_bytes(kept, &addresses);
        let question = (costs::dht_question_bytes() + answer) as f64;
        // `lookups` look-ups, with `stored` bytes put down at each of the nodes found.
        let every = |interval: Duration, lookups: f64, stored: f64| {
            let puts = if stored > 0.0 { kept as f64 } else { 0.0 };
            Load::every(interval, lookups * asked * question + puts * stored, lookups * 2.0 * asked + puts)
        };
        let mean = |of: &dyn Fn(&Site) -> f64| sites.iter().map(of).sum::<f64>() / sites.len().max(1) as f64;
        let record = costs::dht_record_bytes(mean(&|site| site.advert_bytes as f64) as u64) as f64;
        let provider = (costs::dht_question_bytes() + answer / copies.max(1) as u64) as f64;
        let known = settings.view_sites();
        let upkeep = DhtUpkeep::of(true, known, &settings.limits);
        let keys = mean(&|site| self.index_keys(site) as f64);
        let key = every(settings.intervals.index_refresh_at(upkeep), 1.0, provider);
        let index = Load { bytes_per_s: key.bytes_per_s * keys, messages_per_s: key.messages_per_s * keys };
        // In a large grid only the nearest are looked for, in others each distance at which there is anybody.
        let distances = if upkeep == DhtUpkeep::Rare { 0.0 } else { (sites.len().max(1) as f64).log2() };
        every(settings.intervals.advert_refresh_among(known), 1.0, record).plus(index).plus(every(
            settings.intervals.neighbours_refresh_at(upkeep),
            1.0 + distances,
            0.0,
        ))
    }

    /// Keys of the DHT index under which a site is found.
    pub(super) fn index_keys(&self, site: &Site) -> usize {
        let hosts: Vec<_> = site.hosts.iter().map(|(host, _)| host.clone()).collect();
        costs::index_keys(&self.settings.grid, &site.id, &hosts)
    }

    /// Connections that a node has: those that it keeps, and more if its meshes need more. A mesh takes neighbours from
    /// whatever connections lead to members of its topic, so in topics that most nodes are in, the same ones serve many.
    pub(super) fn connections(&self) -> f64 {
        let (subscriptions, shards) = (self.settings.subscriptions() as f64, self.topics.len().max(1) as f64);
        let degree = self.mesh_degree();
        let apart = degree * subscriptions;
        let shared = degree * shards / subscriptions;
        let others = (self.sites.len() - 1) as f64;
        apart.min(shared).max(self.settings.limits.connections_kept as f64).min(others)
    }

    /// Neighbours of a node in the mesh of a topic, on average.
    pub(super) fn mesh_degree(&self) -> f64 {
        self.topics.iter().map(Topic::degree).sum::<f64>() / self.topics.len().max(1) as f64
    }

    /// Counts what nodes have done at regular times for so long.
    pub(super) fn count_upkeep(&mut self, passed: Duration) {
        let seconds = passed.as_secs_f64();
        for (kind, load) in [(Kind::Upkeep, of_view(&self.settings, self.connections())), (Kind::Dht, self.dht_load())]
        {
            let (bytes, messages) = (load.bytes_per_s * seconds, load.messages_per_s * seconds);
            for (node, _) in self.sites.iter().enumerate().filter(|(_, site)| site.is_up()) {
                self.traffic.evenly(kind, node, bytes as u64, messages as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_real_ones() {
        assert!(addresses(9_999).iter().all(|address| address.parse::<Multiaddr>().is_ok()));
    }

    #[test]
    fn a_look_up_costs_little_more_in_a_large_grid() {
        assert!((asked(1), asked(10)) == (0.0, 9.0), "nobody is asked twice");
        let (small, large) = (asked(100), asked(10_000));
        assert!((19.9..22.5).contains(&small) && (22.5..24.0).contains(&large), "{small} {large}");
    }

    #[test]
    fn a_larger_view_costs_a_larger_exchange() {
        let small = of_view(&Settings::new(100, 400).unwrap(), 32.0);
        let large = of_view(&Settings::new(1_000, 4_000).unwrap(), 32.0);
        let grown = large.bytes_per_s - small.bytes_per_s;
        assert!((400.0..800.0).contains(&grown), "900 sites of 18 bytes every 30 s are 540 bytes a second: {grown}");
        assert_eq!(large.messages_per_s, small.messages_per_s);
    }
}
