//! What one run of the simulation is about.
//!
//! Invariant: limits, intervals, patience and time-outs are the defaults of a node, from the same code; only what a flag
//! names differs.

use std::time::Duration;

use broker::{ledger::LedgerLimits, negotiation::NegotiationSettings};
use discovery::{GridId, Intervals, Limits, SetUpError};

use super::{
    costs::{self, GossipShape},
    geography::NetworkKind,
};
use crate::engine::{Moment, SECOND_US};

/// When runs begin on every clock of the simulation: late enough that nodes can have learnt something before.
pub const BEGIN: Moment = Moment(10_000 * SECOND_US);
pub const HOUR: Duration = Duration::from_secs(3_600);

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At random moments through random entry points, until the run ends.
    Open {
        /// Requests a second of the whole grid, on average.
        per_second: f64,
    },
    /// One alone, then so many at the same moment through different entry points, in turn; when all are settled, the next.
    Rounds {
        /// How many at once.
        at_once: usize,
        /// How many in all.
        requests: usize,
    },
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Sites.
    pub sites: usize,
    /// Hosts of all sites together, at least one each.
    pub hosts: usize,
    /// Shards that gossip is split into; 1 is no split.
    pub shards: usize,
    /// Hosts that a node wants to know: it takes part in as many shards as give it so many.
    pub view_hosts: usize,
    /// Virtual time that passes.
    pub duration: Duration,
    /// Everything random follows from it.
    pub seed: u64,
    /// How requests come.
    pub pace: Pace,
    /// Hosts that a request asks for.
    pub hosts_per_request: u32,
    /// With more reservations than this, the oldest is cancelled.
    pub reservations_max: usize,
    /// What lies between sites.
    pub network: NetworkKind,
    /// Of a million frames, how many are lost.
    pub loss_ppm: u64,
    /// How long a write takes until it is on disk.
    pub disk: Duration,
    /// Of a hundred sites, how many stop within an hour (and come back).
    pub churn_percent: u64,
    /// The grid's name.
    pub grid: GridId,
    /// Sizes of a node.
    pub limits: Limits,
    /// Times of a node.
    pub intervals: Intervals,
    /// Limits of a ledger.
    pub ledger: LedgerLimits,
    /// Settings of an entry point.
    pub negotiation: NegotiationSettings,
    /// How gossip is set up.
    pub gossip: GossipShape,
}

impl Settings {
    /// A quiet grid of `sites` sites and `hosts` hosts with the defaults of a node.
    ///
    /// # Errors
    /// [`SetUpError`] when no node could start.
    pub fn new(sites: usize, hosts: usize) -> Result<Settings, SetUpError> {
        let grid = GridId::new("kolo").expect("four lower-case letters are a grid id");
        Ok(Settings {
            sites,
            hosts,
            shards: 1,
            view_hosts: 2_500,
            duration: HOUR,
            seed: 1,
            pace: Pace::Open { per_second: 1.0 },
            hosts_per_request: 5,
            reservations_max: 2 * sites,
            network: NetworkKind::Wan,
            loss_ppm: 0,
            disk: Duration::from_millis(4),
            churn_percent: 0,
            gossip: costs::gossip_shape(&grid)?,
            grid,
            limits: Limits::default(),
            intervals: Intervals::default(),
            ledger: LedgerLimits::default(),
            negotiation: NegotiationSettings::default(),
        })
    }

    /// In how many shards a node takes part: enough for the hosts that it wants to know.
    pub fn subscriptions(&self) -> usize {
        (self.view_hosts * self.shards).div_ceil(self.hosts.max(1)).clamp(1, self.shards)
    }

    /// Sites of the shards that a node takes part in.
    pub fn sites_in_reach(&self) -> usize {
        (self.sites * self.subscriptions() / self.shards).max(1)
    }

    /// Sites whose schedules a node knows.
    pub fn view_sites(&self) -> usize {
        let in_reach = (self.sites * self.subscriptions()).div_ceil(self.shards);
        in_reach.min(self.limits.sites_max)
    }
}
