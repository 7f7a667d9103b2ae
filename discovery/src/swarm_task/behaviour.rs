//! The libp2p protocols of a node.
//!
//! Invariant: every store, queue and message size is bounded here.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use libp2p::{
    PeerId, Swarm, allow_block_list, connection_limits,
    core::upgrade,
    gossipsub, identify,
    identity::Keypair,
    kad, ping,
    request_response::{self, ProtocolSupport},
    swarm::{self, NetworkBehaviour, behaviour::toggle::Toggle},
};

use crate::{
    addresses::DialFilter,
    admission::{ConnectionGate, Gated, Proof},
    config::{DhtUpkeep, DiscoveryConfig, GridId},
    counters::Counters,
    dht::index::sha256,
    run,
    streams::Streams,
    transport::{self, Throttle},
    wire::{
        self, AskVersion, Codec,
        bundle::BUNDLE_BYTES_MAX,
        names::{
            NameError, adverts_topic, agent, ask_protocols, gossip_prefix, identify_protocol, kad_protocol,
            link_protocol, proof_protocol, run_protocol, schedules_topic,
        },
    },
};

/// The protocols of a node.
#[derive(NetworkBehaviour)]
pub(crate) struct Behaviour {
    // These three first, so that a connection is refused before any other protocol prepares for it.
    gate: ConnectionGate,
    pub(crate) banned: allow_block_list::Behaviour<allow_block_list::BlockedPeers>,
    limits: connection_limits::Behaviour,
    pub(crate) identify: identify::Behaviour,
    ping: ping::Behaviour,
    /// Only in a closed grid.
    proof: Toggle<Proof>,
    pub(crate) kad: Gated<kad::Behaviour<kad::store::MemoryStore>>,
    pub(crate) gossip: Gated<gossipsub::Behaviour>,
    pub(crate) ask: Gated<request_response::Behaviour<Codec>>,
    pub(crate) link: Gated<Streams>,
    pub(crate) run: Gated<Streams>,
}

impl Behaviour {
    /// Serves a peer from now on.
    pub(crate) fn open(&mut self, peer: PeerId) {
        self.kad.open(peer);
        self.gossip.open(peer);
        self.ask.open(peer);
        self.link.open(peer);
        self.run.open(peer);
    }

    /// Serves a peer no longer, once its connections are closed.
    pub(crate) fn shut(&mut self, peer: &PeerId) {
        self.kad.shut(peer);
        self.kad.remove_peer(peer);
        self.gossip.shut(peer);
        self.ask.shut(peer);
        self.link.shut(peer);
        self.run.shut(peer);
    }
}

/// Why the protocols could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// The grid's name makes no name of a protocol.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A protocol does not take its settings.
    #[error("cannot set up {part}: {why}")]
    Part {
        /// The protocol.
        part: &'static str,
        /// What went wrong.
        why: String,
    },
}

fn failed(part: &'static str) -> impl Fn(String) -> SetUpError {
    move |why| SetUpError::Part { part, why }
}

/// Builds the swarm, not yet listening.
pub(crate) fn build_swarm(
    keypair: &Keypair,
    config: &DiscoveryConfig,
    (asks, dials): (&'static [&'static dyn AskVersion], &Arc<DialFilter>),
    counters: Arc<Counters>,
) -> Result<Swarm<Behaviour>, SetUpError> {
    let throttle = Throttle {
        bytes_per_s: config.limits.read_per_connection_per_s,
        streams_per_s: config.limits.streams_per_connection_per_s,
    };
    let transport = transport::build(config.transport, keypair, throttle, dials)
        .map_err(|error| failed("the transport")(error.to_string()))?;
    let behaviour = behaviour(keypair, config, asks, counters)?;
    let swarm_config = swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(config.intervals.idle_connection)
        // A request goes out with the name of its protocol instead of waiting until the other side has agreed to it: one that
        // does not speak it refuses in place of its answer. With two versions, only the older one goes out like this.
        .with_substream_upgrade_protocol_override(upgrade::Version::V1Lazy)
        // Both request-response and Kademlia open many short streams at once when a plan goes out to many sites.
        .with_max_negotiating_inbound_streams(config.limits.streams_max);
    Ok(Swarm::new(transport, behaviour, keypair.public().to_peer_id(), swarm_config))
}

fn behaviour(
    keypair: &Keypair,
    config: &DiscoveryConfig,
    asks: &'static [&'static dyn AskVersion],
    counters: Arc<Counters>,
) -> Result<Behaviour, SetUpError> {
    let (grid, limits) = (&config.grid, &config.limits);
    let connection_limits = connection_limits::ConnectionLimits::default()
        .with_max_pending_incoming(Some(limits.connections_max))
        .with_max_pending_outgoing(Some(limits.connections_max))
        .with_max_established(Some(limits.connections_max))
        .with_max_established_incoming(Some(limits.inbound_max()))
        // One side may dial while the other does, and TCP and QUIC may both succeed.
        .with_max_established_per_peer(Some(4));
    let identify = identify::Config::new(identify_protocol(grid), keypair.public())
        .with_agent_version(agent(
            &asks.iter().filter(|version| version.is_spoken()).map(|version| version.number()).collect::<Vec<_>>(),
        ))
        // What it tells is set by the task, as its external addresses.
        .with_hide_listen_addrs(true);
    let ask = request_response::Behaviour::with_codec(
        Codec::new(asks, Arc::clone(&counters), config.intervals.request_arrival),
        ask_protocols(grid, asks)?.into_iter().zip(asks).map(|(protocol, version)| {
            (protocol, if version.is_spoken() { ProtocolSupport::Full } else { ProtocolSupport::Inbound })
        }),
        request_response::Config::default()
            .with_request_timeout(config.intervals.request)
            .with_max_concurrent_streams(limits.streams_max),
    );
    let is_closed = config.membership.is_closed();
    let proof = if is_closed { Some(Proof::new(proof_protocol(grid)?, Arc::clone(&config.membership))) } else { None };
    Ok(Behaviour {
        gate: ConnectionGate::new(limits.clone(), counters),
        banned: allow_block_list::Behaviour::default(),
        limits: connection_limits::Behaviour::new(connection_limits),
        identify: identify::Behaviour::new(identify),
        ping: ping::Behaviour::new(ping::Config::new().with_interval(PING_EVERY).with_timeout(PING_TIMEOUT)),
        proof: proof.into(),
        kad: Gated::new(kad(keypair, config)?, is_closed),
        gossip: Gated::new(gossip(config)?, is_closed),
        ask: Gated::new(ask, is_closed),
        // One test a peer at a time.
        link: Gated::new(Streams::new(link_protocol(grid)?, 1), is_closed),
        run: Gated::new(Streams::new(run_protocol(grid)?, run::STREAMS_PER_PEER_MAX), is_closed),
    })
}

/// Questions of one look-up at the same time.
pub const DHT_PARALLEL: Option<NonZeroUsize> = NonZeroUsize::new(3);

fn kad(keypair: &Keypair, config: &DiscoveryConfig) -> Result<kad::Behaviour<kad::store::MemoryStore>, SetUpError> {
    let peer = keypair.public().to_peer_id();
    let store = kad::store::MemoryStoreConfig {
        max_records: config.limits.dht_records_max,
        max_value_bytes: wire::ADVERT_BYTES_MAX + 1,
        max_providers_per_key: kad::K_VALUE.get(),
        max_provided_keys: config.limits.dht_keys_max,
    };
    let mut kad_config = kad::Config::new(kad_protocol(&config.grid)?);
    kad_config
        .set_max_packet_size(wire::ADVERT_BYTES_MAX + 4096)
        .set_query_timeout(config.intervals.request)
        // A record carries its own time to live; this only bounds it.
        .set_record_ttl(Some(config.intervals.advert_time_to_live_longest()))
        .set_provider_record_ttl(Some(config.intervals.index_time_to_live_at(DhtUpkeep::Rare)))
        // What is published changes with every refresh (a new sequence), so this crate publishes and no holder replicates:
        // a copy that a holder passes on would only be older.
        .set_replication_interval(None)
        .set_publication_interval(None)
        .set_provider_publication_interval(None)
        .set_caching(kad::Caching::Disabled)
        .set_parallelism(DHT_PARALLEL.unwrap_or(NonZeroUsize::MIN))
        .set_periodic_bootstrap_interval(None)
        .set_record_filtering(kad::StoreInserts::FilterBoth)
        // Whoever has named its grid, and proven that it belongs to it if that is closed, is put in by the task.
        .set_kbucket_inserts(kad::BucketInserts::Manual);
    let store = kad::store::MemoryStore::with_config(peer, store);
    let mut kad = kad::Behaviour::with_config(peer, store, kad_config);
    kad.set_mode(Some(kad::Mode::Server));
    Ok(kad)
}

/// Largest frame of gossip that is read: an advert with what gossipsub adds. A larger one ends its stream.
const FRAME_BYTES_MAX: usize = wire::ADVERT_BYTES_MAX + 32 * 1024;
/// Lists of ids that are read. This node sends none.
const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// How the gossip of a node is set up.
///
/// Messages carry no libp2p signature: it would be checked again for each of the five to seven copies that a mesh
/// delivers, and our envelopes are signed by their author anyway. Copies are recognised by the hash of their content before
/// anything is checked, and a message is passed on only after its envelope was.
///
/// # Errors
/// [`SetUpError`] when gossipsub refuses the settings.
pub fn gossip_config(grid: &GridId) -> Result<gossipsub::Config, SetUpError> {
    gossipsub::ConfigBuilder::default()
        .protocol_id_prefix(gossip_prefix(grid))
        .validation_mode(gossipsub::ValidationMode::Anonymous)
        .validate_messages()
        .message_id_fn(|message| gossipsub::MessageId::new(&sha256(message.data.clone())))
        .heartbeat_initial_delay(Duration::from_millis(200))
        // The limit of each topic is checked with the other cheap checks, where it costs the peer that breaks it.
        .max_transmit_size(FRAME_BYTES_MAX)
        .max_control_message_size(CONTROL_BYTES_MAX)
        // What the mesh has lost is asked for when its gap is seen, or found by the exchange of adverts: neighbours need no
        // list of it every second, least of all of bundles, which are each node's own.
        .gossip_lazy(0)
        .gossip_factor(0.0)
        .history_gossip(0)
        .idontwant_message_size_threshold(BUNDLE_BYTES_MAX)
        // Bounds what a slow neighbour can make this node keep for it.
        .connection_handler_queue_len(512)
        .max_publish_messages(512)
        .mesh_outbound_min(MESH / 2)
        .mesh_n_low(MESH - 1)
        .mesh_n(MESH)
        .mesh_n_high(2 * MESH)
        .opportunistic_graft_ticks(TAKEN_EVERY_HEARTBEATS)
        // An author's copies to all neighbours would come on top of the mesh's.
        .flood_publish(false)
        .build()
        .map_err(|error| failed("gossip")(error.to_string()))
}

fn gossip(config: &DiscoveryConfig) -> Result<gossipsub::Behaviour, SetUpError> {
    let failed = failed("gossip");
    let topics = [adverts_topic(&config.grid), schedules_topic(&config.grid)];
    let gossip_config = gossip_config(&config.grid)?;
    let mut gossip = gossipsub::Behaviour::new(gossipsub::MessageAuthenticity::Anonymous, gossip_config)
        .map_err(|error| failed(error.to_owned()))?;
    let (params, thresholds) = score(&topics, config.intervals.ban_first);
    gossip.with_peer_score(params, thresholds).map_err(&failed)?;
    if config.gossip {
        for topic in &topics {
            gossip.subscribe(topic).map_err(|error| failed(error.to_string()))?;
        }
    }
    Ok(gossip)
}

/// Neighbours that gossip is passed on to. A node gets about as many copies of every message, and each costs nearly as much
/// as a direct request, so this is most of what gossip costs. What a sparse mesh loses is asked for: by the repair of
/// gaps and by the exchange of adverts.
pub(crate) const MESH: usize = 4;
/// The score of a peer that is to get into the mesh, where all others have none. Too little to make up for an offence.
pub(crate) const FAVOUR: f64 = 0.1;
/// After so many heartbeats, of a second each, it is taken.
const TAKEN_EVERY_HEARTBEATS: u64 = 3;

/// The score of gossip itself at which a neighbour is ignored, and then banned.
pub(crate) const GOSSIP_SCORE_MIN: f64 = -400.0;

/// Between two pings on a connection. One that gets no answer ends the connection: after a cut of the network TCP would
/// go on waiting for up to a minute once the other side can be reached again, a new connection does not.
pub const PING_EVERY: Duration = Duration::from_secs(10);
/// How long an answer may take. A node that is busy for longer is met again a moment later.
const PING_TIMEOUT: Duration = Duration::from_secs(8);
/// Promised messages that need not come, within a minute: as many as a neighbour owes when the network is cut for as long
/// as it takes to notice.
const BROKEN_PROMISES_FORGIVEN: f64 = 50.0;

/// What lowers the score of a neighbour: invalid messages (also those that are refused before this crate sees them;
/// squared, so 20 within a minute reach [`GOSSIP_SCORE_MIN`]) and broken rules of the mesh, such as grafting again and
/// again; some of the latter are forgiven, since a busy node breaks promises too. Nothing but [`FAVOUR`] raises a score,
/// so that no credit can be saved up, and addresses are the gate's business.
fn score(
    topics: &[gossipsub::IdentTopic],
    ban_first: Duration,
) -> (gossipsub::PeerScoreParams, gossipsub::PeerScoreThresholds) {
    let topic = gossipsub::TopicScoreParams {
        topic_weight: 1.0,
        time_in_mesh_weight: 0.0,
        first_message_deliveries_weight: 0.0,
        mesh_message_deliveries_weight: 0.0,
        mesh_failure_penalty_weight: 0.0,
        invalid_message_deliveries_weight: -1.0,
        invalid_message_deliveries_decay: gossipsub::score_parameter_decay(Duration::from_secs(60)),
        ..gossipsub::TopicScoreParams::default()
    };
    let params = gossipsub::PeerScoreParams {
        topics: topics.iter().map(|name| (name.hash(), topic.clone())).collect(),
        app_specific_weight: 1.0,
        ip_colocation_factor_weight: 0.0,
        behaviour_penalty_weight: -1.0,
        behaviour_penalty_threshold: BROKEN_PROMISES_FORGIVEN,
        behaviour_penalty_decay: gossipsub::score_parameter_decay(Duration::from_secs(60)),
        slow_peer_weight: 0.0,
        // It does not decay while the peer is away, and must not outlast its ban.
        retain_score: (ban_first / 4).min(Duration::from_secs(60)),
        ..gossipsub::PeerScoreParams::default()
    };
    let thresholds = gossipsub::PeerScoreThresholds {
        gossip_threshold: GOSSIP_SCORE_MIN / 2.0,
        publish_threshold: GOSSIP_SCORE_MIN / 2.0,
        graylist_threshold: GOSSIP_SCORE_MIN,
        ..gossipsub::PeerScoreThresholds::default()
    };
    (params, thresholds)
}
