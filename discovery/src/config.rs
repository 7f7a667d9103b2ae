//! What the peer-to-peer layer is told: the grid, addresses, limits and intervals.
//!
//! Invariant: a [`DiscoveryConfig`] that passed [`DiscoveryConfig::check`] has no limit of zero and its times stand in
//! the relations that the rest of the crate relies on.

use std::{fmt, sync::Arc, time::Duration};

use broker::time::Millis;
use libp2p::Multiaddr;

use crate::{
    inbound::ScheduleSource,
    membership::{Everybody, Membership},
};

/// The name of a grid: 1 to 64 of `a-z 0-9 -`. Nodes of different grids speak different protocols and never mix.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GridId(Arc<str>);

/// The text is not a grid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no grid id: expected 1 to 64 of a-z 0-9 -")]
pub struct GridIdError(String);

impl GridId {
    /// Checks `text` and makes a grid id of it.
    ///
    /// # Errors
    /// [`GridIdError`] when the text is empty, too long, or has other characters.
    pub fn new(text: &str) -> Result<GridId, GridIdError> {
        let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(GridId(Arc::from(text)))
        } else {
            Err(GridIdError(text.chars().take(80).collect()))
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GridId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GridId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What carries the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportKind {
    /// TCP with Noise and Yamux, and QUIC.
    #[default]
    TcpAndQuic,
    /// Channels inside this process (`/memory/PORT`), for tests and grids in one process.
    Memory,
}

/// Sizes that bound memory and work. Each is the point above which something is refused, dropped or evicted, and counted.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Sites in the view. An advert with its schedules takes some 2 to 50 KiB, so 4,096 sites stay below 200 MiB.
    pub sites_max: usize,
    /// While no more sites are known than this, each is asked for its schedules when it is met. In larger grids the others
    /// are asked one by one, at every recheck, and when a plan needs them: a thousand sites that start together would
    /// otherwise have a million questions.
    pub sites_eager_max: usize,
    /// Requests of others that wait for the node. Above it they are answered "busy" at once: a hold that waits longer
    /// than the asker's patience is worth nothing to anybody.
    pub inbound_queue: usize,
    /// Requests of others that are open, including those being worked on.
    pub inbound_open_max: usize,
    /// Direct requests of this node that are on the wire.
    pub asks_open_max: usize,
    /// Direct requests of this node to one peer on the wire; further ones to it wait. A connection refuses above
    /// [`Limits::streams_max`], which is therefore four times as large (both directions, and a second connection).
    pub asks_per_peer_max: usize,
    /// Direct requests of this node that wait for their peer's turn.
    pub asks_waiting_max: usize,
    /// Concurrent request streams of a connection, both directions.
    pub streams_max: usize,
    /// Look-ups in the DHT at the same time. Each asks some 20 peers.
    pub dht_lookups_max: usize,
    /// Puts into the DHT at the same time; they are background work.
    pub dht_puts_max: usize,
    /// Records of other sites in this node's part of the DHT.
    pub dht_records_max: usize,
    /// Index keys in this node's part of the DHT.
    pub dht_keys_max: usize,
    /// Commands that wait for the swarm task. Above it callers get "busy".
    pub commands: usize,
    /// Connections that a node keeps without a use of the moment; gossip needs about six. Idle ones above it are closed.
    pub connections_kept: usize,
    /// Connections at the same time, whatever for. A quarter of them is kept for those that this node opens itself.
    pub connections_max: u32,
    /// Inbound connections at the same time from one address (IPv4) or one /64 (IPv6).
    pub inbound_per_prefix_max: u32,
    /// Inbound connections a second from one such prefix; ten times as many may come at once.
    pub inbound_per_prefix_per_s: u32,
    /// Inbound connections a second from anywhere; ten times as many may come at once. A handshake costs about 1 ms.
    pub inbound_per_s: u32,
    /// Handshakes a second with others from a prefix where peers were banned lately; more wait for their turn.
    pub inbound_guarded_per_s: u32,
    /// Whether the limits on prefixes spare loopback, where the nodes of a test grid share one address.
    pub loopback_exempt: bool,
    /// Bytes a second that are read from one connection; twice as many may come at once. More waits at the sender.
    pub read_per_connection_per_s: u32,
    /// Streams a second that one connection may open; twice as many may come at once. More waits at the sender.
    pub streams_per_connection_per_s: u32,
    /// Direct requests a second that one peer may send; twice as many may come at once. More is answered "busy", and
    /// in the end with a ban. An answer with schedules or adverts counts for [`HEAVY_ANSWER`] requests.
    pub asks_per_peer_per_s: u32,
    /// Bans that are remembered; above it the one that ends soonest is lifted.
    pub bans_max: usize,
    /// Schedule changes that wait to be gossiped. Above it they are dropped; receivers see the gap and ask.
    pub changes_pending_max: usize,
    /// Bytes of updates that wait to be passed on. Above it the oldest are dropped; receivers see the gap and ask.
    pub relay_bytes_max: usize,
    /// Sites asked at the same time by one `find`.
    pub find_fan_out: usize,
    /// Keys of the index that one `find` looks at.
    pub find_keys_max: usize,
    /// Sites whose adverts one `find` fetches.
    pub find_sites_max: usize,
    /// Schedules fetched at the same time in the background.
    pub repair_fan_out: usize,
    /// Sites never heard of that one neighbour may introduce by gossip in ten seconds, and, four times as many, that all
    /// may. The others are learnt when adverts are exchanged.
    pub newcomers_per_neighbour_in_10_s: u32,
    /// Gossip messages accepted from one author in ten seconds.
    pub gossip_per_author_in_10_s: u32,
    /// Gossip messages accepted, and so passed on, in ten seconds. No honest neighbour brings more than twice as many
    /// (two of its windows may meet one of ours); who does is not listened to, and in the end banned.
    pub gossip_in_10_s: u32,
    /// Gossip messages a second above which this node publishes its own changes less often.
    pub gossip_budget_per_s: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sites_max: 4096,
            sites_eager_max: 64,
            inbound_queue: 256,
            inbound_open_max: 512,
            asks_open_max: 1024,
            asks_per_peer_max: 64,
            asks_waiting_max: 2048,
            streams_max: 256,
            dht_lookups_max: 16,
            dht_puts_max: 4,
            dht_records_max: 4096,
            dht_keys_max: 32_768,
            commands: 1024,
            connections_kept: 32,
            connections_max: 512,
            inbound_per_prefix_max: 64,
            inbound_per_prefix_per_s: 10,
            inbound_per_s: 200,
            inbound_guarded_per_s: 1,
            loopback_exempt: true,
            read_per_connection_per_s: 8 << 20,
            streams_per_connection_per_s: 1000,
            asks_per_peer_per_s: 500,
            bans_max: 1024,
            changes_pending_max: 512,
            relay_bytes_max: 1 << 20,
            find_fan_out: 32,
            find_keys_max: 96,
            find_sites_max: 1024,
            repair_fan_out: 8,
            newcomers_per_neighbour_in_10_s: 64,
            gossip_per_author_in_10_s: 100,
            gossip_in_10_s: 2000,
            gossip_budget_per_s: 50,
        }
    }
}

impl Limits {
    /// Inbound connections at the same time; the rest is kept for those that this node opens itself.
    #[must_use]
    pub fn inbound_max(&self) -> u32 {
        (self.connections_max / 4 * 3).max(1)
    }
}

/// How many requests one counts for whose answer carries schedules or adverts.
pub const HEAVY_ANSWER: u64 = 8;

/// Times between things that are done again and again, and how long to wait.
#[derive(Debug, Clone)]
pub struct Intervals {
    /// Least time between two updates with this site's schedule changes. Every other site checks the signature of each.
    pub gossip: Duration,
    /// Least time between two bundles of updates to the neighbours in gossip. Each costs all of them a message.
    pub relay: Duration,
    /// How long an advert is believed. A crashed site is forgotten after at most this; later in a large grid (`pace`).
    pub advert_time_to_live: Duration,
    /// After what time the advert is published again; later in a large grid.
    pub advert_refresh: Duration,
    /// After what time the keys of the index are published again, later in a large grid; they are believed three times as
    /// long. That is longer than for adverts, since there are more of them and a stale one only costs a look at an advert.
    pub index_refresh: Duration,
    /// Pause between two puts into the DHT, longer in a large grid. Each asks some 20 nodes, so a grid that starts at once
    /// would otherwise be busy with nothing else.
    pub dht_put_pause: Duration,
    /// How far in the future of this clock another site's clock may sign.
    pub skew_max: Duration,
    /// After what time without use a connection is closed.
    pub idle_connection: Duration,
    /// The longest that any direct request may take; callers give shorter ones.
    pub request: Duration,
    /// Between two exchanges of adverts with a neighbour, which find what gossip missed.
    pub exchange: Duration,
    /// Between two checks of the schedule that was confirmed longest ago, which find a lost last update.
    pub recheck: Duration,
    /// Schedules confirmed within this time are not checked again.
    pub recheck_age: Duration,
    /// A missed schedule is fetched after a random part of this, so that not all sites ask the same one at once.
    pub repair_jitter: Duration,
    /// How long changes that were missed may still come by gossip before they are fetched. A plan that needs them does not
    /// wait.
    pub repair_patience: Duration,
    /// Between two rounds of housekeeping: expiry, trimming, finding neighbours again.
    pub housekeeping: Duration,
    /// How long a stopping node waits until its departure is sent.
    pub farewell: Duration,
    /// How long a direct request may take to arrive once its stream is open.
    pub request_arrival: Duration,
    /// After what time a connection is closed whose other side has not said which grid it is of.
    pub introduction: Duration,
    /// How long a node takes everybody at once after its start, so that a grid forms quickly.
    pub settling: Duration,
    /// For how long a neighbour that comes later is on probation: others are not told of it, and what it says of sites that
    /// never answered waits. Somebody who does all the harm he can is banned within a third of a second, even on a
    /// machine that he shares.
    pub probation: Duration,
    /// For how long a prefix is guarded after the last trouble with it.
    pub guard: Duration,
    /// How long a first ban lasts; every further ban of the same peer lasts twice as long.
    pub ban_first: Duration,
    /// The longest ban; a ban is forgotten as long after its end.
    pub ban_longest: Duration,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            gossip: Duration::from_millis(500),
            relay: Duration::from_millis(100),
            advert_time_to_live: Duration::from_secs(600),
            advert_refresh: Duration::from_secs(200),
            index_refresh: Duration::from_secs(900),
            dht_put_pause: Duration::from_secs(1),
            skew_max: Duration::from_secs(120),
            idle_connection: Duration::from_secs(60),
            request: Duration::from_secs(10),
            exchange: Duration::from_secs(30),
            recheck: Duration::from_secs(2),
            recheck_age: Duration::from_secs(60),
            repair_jitter: Duration::from_millis(200),
            repair_patience: Duration::from_millis(1_500),
            housekeeping: Duration::from_secs(1),
            farewell: Duration::from_millis(300),
            request_arrival: Duration::from_secs(5),
            introduction: Duration::from_secs(10),
            settling: Duration::from_secs(10),
            probation: Duration::from_secs(1),
            guard: Duration::from_secs(30),
            ban_first: Duration::from_secs(600),
            ban_longest: Duration::from_secs(24 * 3600),
        }
    }
}

/// Everything that [`crate::start`] needs besides the identity.
#[derive(Clone)]
pub struct DiscoveryConfig {
    /// The grid.
    pub grid: GridId,
    /// Where to listen.
    pub listen: Vec<Multiaddr>,
    /// What others are told in the place of the addresses listened on, such as a port forward's; empty tells those.
    pub announce: Vec<Multiaddr>,
    /// Nodes to find the grid through; with their peer ids at the end or without.
    pub bootstrap: Vec<Multiaddr>,
    /// Addresses of nodes met in an earlier run, with their peer ids at the end; tried like bootstrap nodes.
    pub known_peers: Vec<Multiaddr>,
    /// What carries the connections.
    pub transport: TransportKind,
    /// Whether to gossip and to exchange adverts with neighbours. Without, other sites are found through the DHT alone.
    pub gossip: bool,
    /// Sizes.
    pub limits: Limits,
    /// Times.
    pub intervals: Intervals,
    /// Who knows this site's schedules.
    pub schedules: Arc<dyn ScheduleSource>,
    /// Who knows which sites belong to the grid.
    pub membership: Arc<dyn Membership>,
}

/// A schedule confirmed longer ago than this is fetched again before a node plans on it.
pub const SCHEDULE_AGE_MAX: Millis = Millis(120_000);
/// The same for a request that has met a conflict: what it knew was too old, so it asks the sites what is so now, rather
/// than running into the next change that it has not heard of.
pub const SCHEDULE_AGE_MAX_AFTER_CONFLICT: Millis = Millis(1_000);
/// How long looking for the hosts of a request may take.
pub const FIND_TIMEOUT: Millis = Millis(5_000);
/// How long a site that did not answer is planned with last. A site that is back is met again by the requests that need
/// it, and at the latest after this.
pub const SILENCE_REMEMBERED: Millis = Millis(15_000);

/// Most bootstrap and known addresses; more say nothing new and would be a storm of dials.
const ADDRESSES_MAX: usize = 256;

impl DiscoveryConfig {
    /// The defaults for `grid`: no addresses at all, and everybody belongs to it.
    #[must_use]
    pub fn new(grid: GridId, schedules: Arc<dyn ScheduleSource>) -> DiscoveryConfig {
        DiscoveryConfig {
            grid,
            listen: Vec::new(),
            announce: Vec::new(),
            bootstrap: Vec::new(),
            known_peers: Vec::new(),
            transport: TransportKind::default(),
            gossip: true,
            limits: Limits::default(),
            intervals: Intervals::default(),
            schedules,
            membership: Arc::new(Everybody),
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
            limits.inbound_guarded_per_s,
            limits.streams_per_connection_per_s,
            limits.asks_per_peer_per_s,
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
        if times.advert_time_to_live_longest() > crate::check::TIME_TO_LIVE_MAX {
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
