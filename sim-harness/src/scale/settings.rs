//! What one run of the simulation is about.
//!
//! Invariant: limits, intervals, patience and time-outs are the defaults of a node, from the same code; only what a flag
//! names differs.

use broker::{ledger::LedgerLimits, negotiation::NegotiationSettings};
use discovery::{
    GridId, Intervals, Limits, SetUpError,
    costs::{self, GossipShape},
};

use super::geography::NetworkKind;

/// Virtual microseconds in a second.
pub const SECOND_US: u64 = 1_000_000;
/// When runs begin on every clock of the simulation: late enough that something can have been learnt before.
pub const BEGIN_US: u64 = 10_000 * SECOND_US;

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
    pub duration_us: u64,
    /// Everything random follows from it.
    pub seed: u64,
    /// How requests come.
    pub pace: Pace,
    /// Hosts that a request asks for.
    pub hosts_per_request: u32,
    /// With more reservations than this standing, the oldest is taken back.
    pub standing_max: usize,
    /// What lies between sites.
    pub network: NetworkKind,
    /// Of a million frames, how many are lost.
    pub loss_ppm: u64,
    /// How long a write takes until it is on disk.
    pub disk_us: u64,
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
            duration_us: 3_600 * SECOND_US,
            seed: 1,
            pace: Pace::Open { per_second: 1.0 },
            hosts_per_request: 5,
            standing_max: 2 * sites,
            network: NetworkKind::Wan,
            loss_ppm: 0,
            disk_us: 4_000,
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

    /// Sites whose schedules a node hears of.
    pub fn view_sites(&self) -> usize {
        let heard = (self.sites * self.subscriptions()).div_ceil(self.shards);
        heard.min(self.limits.sites_max)
    }
}
