//! The figures of one run: what `--output json` prints for it.
//!
//! Invariant: everything but the wall time follows from the settings.

use serde::Serialize;

use super::{
    counts::{Counts, Holds, LAG_MS, Totals},
    memory::Memory,
    settings::{BEGIN, Settings},
    traffic::{Flow, KINDS, Kind},
    world::World,
};
use crate::stats::{Percentiles, percentiles};

/// Traffic of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindFigures {
    /// What it is for.
    pub kind: &'static str,
    /// Bytes that a node receives in a second: the nodes' middle, tail and worst.
    pub received_bytes_per_s: Option<Percentiles>,
    /// Bytes that a node sends in a second.
    pub sent_bytes_per_s: Option<Percentiles>,
    /// Messages that a node receives in a second.
    pub messages_per_s: Option<Percentiles>,
    /// Of the bytes sent by all nodes, those that were lost.
    pub lost_share: f64,
}

/// Holds by how long a change had been unseen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LagFigures {
    /// For how long, in words.
    pub unseen_for: String,
    /// Holds that were answered.
    pub holds: u64,
    /// Of these, refused because the amounts were reserved.
    pub taken_by_reservations: u64,
    /// Of these, refused because the amounts were held for another request.
    pub taken_by_holds: u64,
    /// Share that was refused.
    pub conflict_rate: f64,
}

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Sites.
    pub sites: usize,
    /// Hosts.
    pub hosts: usize,
    /// Shards.
    pub shards: usize,
    /// Shards that a node takes part in.
    pub subscribed_shards: usize,
    /// Sites that a node knows.
    pub view_sites: usize,
    /// Seed.
    pub seed: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// Counts of the whole run.
    #[serde(flatten)]
    pub totals: Totals,
    /// Not settled when the run ended.
    pub still_open: u64,
    /// Of the requests that were settled, those reserved at the first attempt.
    pub first_try_share: f64,
    /// Share of holds refused because the amounts were taken.
    pub conflict_rate: f64,
    /// Holds by how old the schedules were that they were planned on.
    pub staleness: Vec<LagFigures>,
    /// Of the hosts that plans could choose from, those whose site had changed since.
    pub stale_hosts_share: f64,
    /// How long ago schedules were confirmed that were planned on without asking.
    pub view_age_ms: Option<Percentiles>,
    /// Schedules fetched for a plan, a request.
    pub fetches_per_request: f64,
    /// From submission to the confirmation.
    pub latency_ms: Option<Percentiles>,
    /// The same in round trips to the farthest site of the reservation.
    pub latency_round_trips: Option<Percentiles>,
    /// In rounds: from the submission of a request that is alone until every node knew of its change.
    pub spread_ms: Option<Percentiles>,
    /// Until a gossip message reaches a node.
    pub gossip_delay_ms: Option<Percentiles>,
    /// Until it has reached the last node.
    pub gossip_ms: Option<Percentiles>,
    /// Of the nodes that a message should reach, those that it does not.
    pub gossip_missed_share: f64,
    /// Neighbours in the mesh of a topic.
    pub mesh_degree: f64,
    /// Open connections of a node.
    pub connections: f64,
    /// What goes through a node.
    pub traffic: Vec<KindFigures>,
    /// Memory of a node.
    pub memory: Memory,
    /// Real time that the simulation took.
    pub wall_s: f64,
}

fn share(part: u64, whole: u64) -> f64 {
    rounded(part as f64 / whole.max(1) as f64)
}

fn rounded(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Gossip => "gossip",
        Kind::Direct => "direct requests",
        Kind::Upkeep => "upkeep of the view",
        Kind::Dht => "DHT",
    }
}

fn lag_names() -> Vec<String> {
    let words = |ms: u64| if ms < 1000 { format!("{ms} ms") } else { format!("{} s", ms / 1000) };
    let mut names = vec!["nothing unseen".to_owned()];
    names.extend(LAG_MS.iter().map(|end| format!("up to {}", words(*end))));
    names.push(format!("over {}", words(LAG_MS[LAG_MS.len() - 1])));
    names
}

impl World {
    /// The figures of the run.
    pub fn figures(&self, wall_s: f64) -> Figures {
        let Settings { sites, hosts, shards, seed, .. } = self.settings;
        let counts = &self.counts;
        let totals = counts.totals;
        let settled = totals.reserved + totals.rejected + totals.failed;
        let taken = counts.holds.iter().map(|holds| holds.taken).sum();
        let asked = counts.holds.iter().map(|holds| holds.asked).sum();
        let seconds = (self.now() - BEGIN).as_secs_f64();
        Figures {
            sites,
            hosts,
            shards,
            subscribed_shards: self.settings.subscriptions(),
            view_sites: self.settings.view_sites(),
            seed,
            seconds: rounded(seconds),
            totals,
            still_open: totals.requests - settled,
            first_try_share: share(counts.first_attempt, settled),
            conflict_rate: share(taken, asked),
            staleness: staleness(counts),
            stale_hosts_share: share(counts.stale_hosts, counts.planned_hosts),
            view_age_ms: percentiles(&counts.view_age_ms),
            fetches_per_request: share(counts.fetches, totals.requests),
            latency_ms: percentiles(&counts.latency_ms),
            latency_round_trips: percentiles(&counts.round_trips),
            spread_ms: percentiles(&counts.spread_ms),
            gossip_delay_ms: percentiles(&counts.gossip_delay_ms),
            gossip_ms: percentiles(&counts.gossip_last_ms),
            gossip_missed_share: share(counts.gossip_missed, counts.gossip_expected),
            mesh_degree: rounded(self.mesh_degree()),
            connections: rounded(self.connections()),
            traffic: KINDS.iter().map(|kind| self.kind_figures(*kind, seconds.max(1.0))).collect(),
            memory: self.memory(),
            wall_s,
        }
    }

    fn kind_figures(&self, kind: Kind, seconds: f64) -> KindFigures {
        let column = |of: fn(&Flow) -> u64| {
            let values: Vec<f64> =
                (0..self.sites.len()).map(|node| rounded(of(&self.traffic.of(node, kind)) as f64 / seconds)).collect();
            percentiles(&values)
        };
        let sum = self.traffic.sum(kind);
        KindFigures {
            kind: kind_name(kind),
            received_bytes_per_s: column(|flow| flow.received),
            sent_bytes_per_s: column(|flow| flow.sent),
            messages_per_s: column(|flow| flow.messages),
            lost_share: share(sum.lost, sum.sent),
        }
    }
}

fn staleness(counts: &Counts) -> Vec<LagFigures> {
    let of_class = |(unseen_for, holds): (String, &Holds)| LagFigures {
        unseen_for,
        holds: holds.asked,
        taken_by_reservations: holds.taken - holds.by_holds,
        taken_by_holds: holds.by_holds,
        conflict_rate: share(holds.taken, holds.asked),
    };
    lag_names().into_iter().zip(&counts.holds).map(of_class).collect()
}
