//! How much of everything there may be.

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
    /// than the asker's time-out is worthless. Each site may have at most as many as are left for all.
    pub inbound_queue: usize,
    /// Messages of others that are open, including those being worked on. Each peer may have at most as many as are left for all, and
    /// no more than [`Limits::asks_per_peer_max`].
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
    /// Whether the limits on prefixes spare this machine (127.0.0.0/16, ::1), where the nodes of a test grid share one address.
    pub loopback_exempt: bool,
    /// Bytes a second that are read from one connection; twice as many may come at once. More waits at the sender.
    pub read_per_connection_per_s: u32,
    /// Streams a second that one connection may open; twice as many may come at once. More waits at the sender.
    pub streams_per_connection_per_s: u32,
    /// Direct requests a second that one peer may send; twice as many may come at once. More is answered "busy", and
    /// in the end with a ban. An answer with schedules or adverts counts for [`HEAVY_ANSWER`] requests, a hold for one more with every
    /// sixteen seats.
    pub asks_per_peer_per_s: u32,
    /// KiB a second of answers with schedules, adverts, revocations or bookings that one peer may have; sixteen times as many, and
    /// all that was asked before the first answer, may come at once. A peer that has had more is answered "busy", and refusals show it
    /// nothing.
    pub answers_per_peer_kib_per_s: u32,
    /// Bans that are remembered; above it the one that ends soonest is lifted.
    pub bans_max: usize,
    /// Schedule changes that wait to be gossiped. Above it they are dropped; receivers see the gap and ask.
    pub changes_pending_max: usize,
    /// Bytes of updates that wait to be passed on. Above it the oldest are dropped; receivers see the gap and ask.
    pub relay_bytes_max: usize,
    /// Sites asked at the same time by one `find`.
    pub find_fan_out: usize,
    /// Keys of the index that one `find` looks at; for hosts by name so many of their classes, and so many of their names.
    pub find_keys_max: usize,
    /// Sites whose adverts one `find` fetches.
    pub find_sites_max: usize,
    /// Schedules fetched at the same time in the background.
    pub repair_fan_out: usize,
    /// New sites that one neighbour may introduce by gossip in ten seconds, and, four times as many, that all
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
            inbound_queue: 512,
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
            loopback_exempt: true,
            read_per_connection_per_s: 8 << 20,
            streams_per_connection_per_s: 1000,
            asks_per_peer_per_s: 500,
            answers_per_peer_kib_per_s: 2 << 10,
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
