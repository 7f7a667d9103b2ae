//! The configuration as a whole.
//!
//! Invariant: a [`DiscoveryConfig`] that passed [`DiscoveryConfig::check`] has no limit of zero and its times stand in
//! the relations that the rest of the crate relies on.

use std::{sync::Arc, time::Duration};

use broker::{
    protocol::{LedgerVersion, ScheduleSnapshot},
    time::{Millis, Time},
};
use libp2p::Multiaddr;

use super::{grid_id::GridId, intervals::Intervals, limits::Limits};
use crate::{
    addresses::AddressBlock,
    clock::{Clock, process_time},
    membership::{Members, OpenGrid},
};

/// What carries the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportKind {
    /// TCP with Noise and Yamux, and QUIC.
    #[default]
    TcpAndQuic,
    /// Channels inside this process (`/memory/PORT`), for tests and grids in one process.
    Memory,
}

/// The ledger of this site, as others may see it.
///
/// Called from a task of its own, never from the one that owns the swarm, so it may take a lock and a few milliseconds.
pub trait ScheduleSource: Send + Sync + 'static {
    /// All schedules at the ledger's present version.
    fn snapshot(&self) -> ScheduleSnapshot;

    /// The ledger's present version. Worth implementing: most questions are answered with "unchanged".
    fn version(&self) -> LedgerVersion {
        self.snapshot().version
    }
}

/// Everything that [`crate::start`] needs besides the identity.
#[derive(Clone)]
pub struct DiscoveryConfig {
    /// The grid.
    pub grid: GridId,
    /// The present, before which nothing of a schedule is kept.
    pub present: fn() -> Time,
    /// Time since some fixed moment, by which ages and time-outs go; never goes back. The default leaves out the time that the machine is
    /// suspended, in which what is known of others gets older.
    pub since_start: fn() -> Duration,
    /// Where to listen.
    pub listen: Vec<Multiaddr>,
    /// Addresses to advertise instead of those listened on, such as that of a port forward; empty advertises the latter.
    pub announce: Vec<Multiaddr>,
    /// Nodes to find the grid through; with their peer ids at the end or without.
    pub bootstrap: Vec<Multiaddr>,
    /// Addresses of nodes met in an earlier run, with their peer ids at the end; tried like bootstrap nodes.
    pub known_peers: Vec<Multiaddr>,
    /// Addresses of loopback and private ranges that are dialled when others advertise them, beside the ranges in which this node
    /// tells an address itself.
    pub dial_ranges: Vec<AddressBlock>,
    /// What carries the connections.
    pub transport: TransportKind,
    /// Whether to gossip and to exchange adverts with neighbours. Without, other sites are found through the DHT alone.
    pub gossip: bool,
    /// Whether other sites may test how fast the link to this one is.
    pub link_tests: bool,
    /// Sizes.
    pub limits: Limits,
    /// Times.
    pub intervals: Intervals,
    /// The source of this site's schedules.
    pub schedules: Arc<dyn ScheduleSource>,
    /// The check of which sites belong to the grid.
    pub membership: Arc<dyn Members>,
}

/// A schedule confirmed longer ago than this is fetched again before a node plans on it. A younger one is held upon as it is: a fetch
/// would take a round trip of every request, and a refusal, which is rare, carries the present schedule.
pub const SCHEDULE_AGE_MAX: Millis = Millis(600_000);
/// The same for a request that has met a conflict: what it knew was too old, so it asks the sites for their present schedules rather
/// than running into the next change that it has not received.
pub const SCHEDULE_AGE_MAX_AFTER_CONFLICT: Millis = Millis(1_000);
/// How long looking for the hosts of a request may take.
pub const FIND_TIMEOUT: Millis = Millis(5_000);
/// How long a site that did not answer is planned with last. A site that is back is met again by the requests that need
/// it, and at the latest after this.
pub const SILENCE_REMEMBERED: Millis = Millis(15_000);

/// Most bootstrap and known addresses; more bring nothing new and would be a storm of dials.
const ADDRESSES_MAX: usize = 256;

impl DiscoveryConfig {
    /// The defaults for `grid`: no addresses, and every site belongs to it.
    #[must_use]
    pub fn new(grid: GridId, schedules: Arc<dyn ScheduleSource>) -> DiscoveryConfig {
        DiscoveryConfig {
            grid,
            present: || Clock::starting_now().utc(),
            since_start: process_time,
            listen: Vec::new(),
            announce: Vec::new(),
            bootstrap: Vec::new(),
            known_peers: Vec::new(),
            dial_ranges: Vec::new(),
            transport: TransportKind::default(),
            gossip: true,
            link_tests: false,
            limits: Limits::default(),
            intervals: Intervals::default(),
            schedules,
            membership: Arc::new(OpenGrid),
        }
    }

    /// Checks limits and the relations between times.
    ///
    /// # Errors
    /// [`ConfigError`] names the key and what is expected.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fail = |key, expected| Err(ConfigError { key, expected });
        for (key, addresses) in [
            ("listen", &self.listen),
            ("announce", &self.announce),
            ("bootstrap", &self.bootstrap),
            ("known_peers", &self.known_peers),
        ] {
            if addresses.len() > ADDRESSES_MAX {
                return fail(key, "at most 256 addresses");
            }
        }
        let (limits, times) = (&self.limits, &self.intervals);
        let sizes = [
            limits.sites_max,
            limits.sites_eager_max,
            limits.inbound_queue,
            limits.inbound_open_max,
            limits.asks_open_max,
            limits.asks_per_peer_max,
            limits.dht_lookups_max,
            limits.dht_puts_max,
            limits.commands,
            limits.changes_pending_max,
            limits.relay_bytes_max,
            limits.find_fan_out,
            limits.repair_fan_out,
            limits.bans_max,
        ];
        let rates = [
            limits.connections_max,
            limits.inbound_per_prefix_max,
            limits.inbound_per_prefix_per_s,
            limits.inbound_per_s,
            limits.streams_per_connection_per_s,
            limits.asks_per_peer_per_s,
            limits.answers_per_peer_kib_per_s,
            limits.newcomers_per_neighbour_in_10_s,
            limits.gossip_per_author_in_10_s,
            limits.gossip_in_10_s,
        ];
        if sizes.contains(&0) || rates.contains(&0) {
            return fail("limits", "every limit to be at least 1");
        }
        if limits.read_per_connection_per_s < 1 << 20 {
            return fail(
                "limits.read_per_connection_per_s",
                "at least 1 MiB, or schedules take longer than a request may",
            );
        }
        if times.ban_first.is_zero() || times.ban_first > times.ban_longest {
            return fail("intervals.ban_first", "more than zero and at most ban_longest");
        }
        if limits.streams_max < 4 * limits.asks_per_peer_max {
            return fail("limits.streams_max", "at least four times asks_per_peer_max");
        }
        if times.advert_refresh.is_zero() || times.advert_refresh * 2 > times.advert_time_to_live {
            return fail("intervals.advert_refresh", "more than zero and at most half of advert_time_to_live");
        }
        if times.advert_time_to_live_longest() > super::intervals::TIME_TO_LIVE_MAX {
            return fail("intervals.advert_time_to_live", "at most 80 minutes, which is a day in the largest grids");
        }
        if times.housekeeping.is_zero()
            || times.index_refresh.is_zero()
            || times.exchange.is_zero()
            || times.recheck.is_zero()
        {
            return fail("intervals", "every interval to be more than zero");
        }
        Ok(())
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: expected {expected}")]
pub struct ConfigError {
    /// The setting.
    pub key: &'static str,
    /// What was expected.
    pub expected: &'static str,
}
