//! The figures of one run: what `--output json` prints for it.
//!
//! Invariant: everything but the wall time follows from the settings.

use serde::Serialize;

use super::{
    counts::{Counts, Share, rounded},
    estimate::Memory,
    grid::Grid,
    options::{BEGIN, Settings},
    traffic::{Flow, KINDS},
};
use crate::stats::{Percentiles, percentiles};

/// Traffic of one kind: the middle, the tail and the worst of all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindFigures {
    /// What it is for.
    pub kind: &'static str,
    pub received_bytes_per_s: Option<Percentiles>,
    pub sent_bytes_per_s: Option<Percentiles>,
    /// Messages received.
    pub messages_per_s: Option<Percentiles>,
    /// Of the bytes sent by all nodes, those that were lost.
    pub lost_share: Share,
}

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub sites: usize,
    pub hosts: usize,
    pub shards: usize,
    /// Shards that a node takes part in.
    pub subscribed_shards: usize,
    /// Sites that a node knows.
    pub view_sites: usize,
    pub seed: u64,
    /// Virtual seconds.
    pub seconds: f64,
    #[serde(flatten)]
    pub counts: Counts,
    /// Requests not settled when the run ended.
    pub still_open: u64,
    /// Neighbours of a node in the mesh of a topic.
    pub mesh_degree: f64,
    /// Open connections of a node.
    pub connections: f64,
    /// What goes through a node.
    pub traffic: Vec<KindFigures>,
    /// Memory of a node.
    pub memory: Memory,
    /// Real time that the simulation took, in seconds.
    pub wall_s: f64,
}

impl Figures {
    /// The figures of a run that has ended.
    pub fn new(grid: &Grid, wall_s: f64) -> Figures {
        let Settings { sites, hosts, shards, .. } = grid.settings;
        let (counts, estimate) = (grid.counts.clone(), grid.estimate());
        let seconds = (grid.now() - BEGIN).as_secs_f64();
        let kinds = KINDS.iter().map(|(kind, name)| {
            let flows: Vec<Flow> = grid.traffic.of(*kind).collect();
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
            subscribed_shards: grid.settings.subscriptions(),
            view_sites: grid.settings.view_sites(),
            seed: grid.settings.run.seed,
            seconds: rounded(seconds),
            still_open: counts.still_open(),
            mesh_degree: rounded(estimate.mesh_degree),
            connections: rounded(estimate.connections()),
            traffic: kinds.collect(),
            memory: estimate.memory(counts.gossip_published, grid.clocks()),
            counts,
            wall_s,
        }
    }
}
