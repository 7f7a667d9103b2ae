//! What nodes do at regular times whether anybody asks for anything: rechecks, exchanges of adverts, pings, and the DHT.
//!
//! All nodes do it alike, so it is counted once for each epoch, and every node sends as much as it receives.
//! Invariant: intervals and sizes are those of a node.

use std::time::Duration;

use broker::protocol::LedgerVersion;
use discovery::{Leisure, Multiaddr, costs};

use super::{
    settings::Settings,
    site::Site,
    traffic::{Kind, Traffic},
    world::World,
};

/// What a node does in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Bytes that it sends, and that it receives.
    pub bytes_per_s: f64,
    /// Messages that it sends, and that it receives.
    pub messages_per_s: f64,
}

impl Load {
    /// Something of so many bytes and messages, every so often.
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
    pub(super) fn dht_load(&self) -> Load {
        let (shape, lookup) = self.dht;
        let (settings, sites) = (&self.settings, &self.sites);
        let addresses: Vec<Multiaddr> = addresses(0).iter().filter_map(|address| address.parse().ok()).collect();
        let answer = costs::dht_answer_bytes(shape.copies.min(sites.len()), &addresses);
        let question = (costs::dht_question_bytes() + answer) as f64;
        let search = |count: f64| Load {
            bytes_per_s: count * lookup.asked * question,
            messages_per_s: count * 2.0 * lookup.asked,
        };
        let kept = shape.copies.min(sites.len()) as f64;
        let mean = |of: &dyn Fn(&Site) -> f64| sites.iter().map(of).sum::<f64>() / sites.len().max(1) as f64;
        let advert = mean(&|site| site.advert_bytes as f64);
        let keys = mean(&|site| {
            let hosts: Vec<_> = site.hosts.iter().map(|(host, _)| host.clone()).collect();
            costs::index_keys(&settings.grid, &site.id, &hosts) as f64
        });
        let per = |interval: Duration, load: Load, stored: f64| {
            Load::every(interval, load.bytes_per_s + kept * stored, load.messages_per_s + kept)
        };
        let record = costs::dht_record_bytes(advert as u64) as f64;
        let provider = (costs::dht_question_bytes() + answer / shape.copies.max(1) as u64) as f64;
        let known = settings.view_sites();
        let put = per(settings.intervals.advert_refresh_among(known), search(1.0), record);
        let leisure = Leisure::of(true, known, &settings.limits);
        let key = per(settings.intervals.index_refresh_at(leisure), search(1.0), provider);
        let index = Load { bytes_per_s: key.bytes_per_s * keys, messages_per_s: key.messages_per_s * keys };
        // In a large grid only the nearest are looked for.
        let distances = if leisure == Leisure::Index { 0.0 } else { lookup.buckets };
        let neighbours = search(1.0 + distances);
        let neighbours = Load::every(
            settings.intervals.neighbours_refresh_at(leisure),
            neighbours.bytes_per_s,
            neighbours.messages_per_s,
        );
        put.plus(index).plus(neighbours)
    }

    /// Connections that a node has: those that it keeps, and more if its meshes need more. A mesh takes neighbours from
    /// whatever connections lead to members of its topic, so in topics that most nodes are in, the same ones serve many.
    pub(super) fn connections(&self) -> f64 {
        let (subscriptions, shards) = (self.settings.subscriptions() as f64, self.topics.len().max(1) as f64);
        let degree = self.topics.iter().map(super::gossip::Topic::degree).sum::<f64>() / shards;
        let apart = degree * subscriptions;
        let shared = degree * shards / subscriptions;
        let others = (self.sites.len() - 1) as f64;
        apart.min(shared).max(self.settings.limits.connections_kept as f64).min(others)
    }

    pub(super) fn count_upkeep(&mut self, passed_us: u64) {
        let (view, dht) = (of_view(&self.settings, self.connections()), self.dht_load());
        let seconds = passed_us as f64 / 1e6;
        let add = |traffic: &mut Traffic, kind, node, load: Load| {
            traffic.evenly(kind, node, (load.bytes_per_s * seconds) as u64, (load.messages_per_s * seconds) as u64);
        };
        for node in 0..self.sites.len() {
            if self.sites[node].is_up() {
                add(&mut self.traffic, Kind::Upkeep, node, view);
                add(&mut self.traffic, Kind::Dht, node, dht);
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
    fn a_larger_view_costs_a_larger_exchange() {
        let small = of_view(&Settings::new(100, 400).unwrap(), 32.0);
        let large = of_view(&Settings::new(1_000, 4_000).unwrap(), 32.0);
        let grown = large.bytes_per_s - small.bytes_per_s;
        assert!((400.0..800.0).contains(&grown), "900 sites of 18 bytes every 30 s are 540 bytes a second: {grown}");
        assert_eq!(large.messages_per_s, small.messages_per_s);
    }
}
