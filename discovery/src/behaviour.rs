//! The libp2p protocols of a node.
//!
//! Invariant: every protocol name carries the grid (`/kolo/<grid>/...`), so nodes of different grids have nothing to say
//! to each other even when they are connected; and every store, queue and message size is bounded here.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use libp2p::{
    StreamProtocol, Swarm, gossipsub, identify,
    identity::Keypair,
    kad, ping,
    request_response::{self, ProtocolSupport},
    swarm::{self, NetworkBehaviour},
};
use libp2p_connection_limits as connection_limits;

use crate::{
    codec::Codec,
    config::{DiscoveryConfig, GridId},
    counters::Counters,
    index::sha256,
    transport, wire,
};

/// The protocols of a node.
#[derive(NetworkBehaviour)]
pub(crate) struct Behaviour {
    // First, so that a connection above the limit is refused before any other protocol prepares for it.
    limits: connection_limits::Behaviour,
    pub(crate) identify: identify::Behaviour,
    ping: ping::Behaviour,
    pub(crate) kad: kad::Behaviour<kad::store::MemoryStore>,
    pub(crate) gossip: gossipsub::Behaviour,
    pub(crate) ask: request_response::Behaviour<Codec>,
}

/// Why the protocols could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up {part}: {why}")]
pub struct SetUpError {
    part: &'static str,
    why: String,
}

fn failed(part: &'static str) -> impl Fn(String) -> SetUpError {
    move |why| SetUpError { part, why }
}

/// What [`identify`] calls the protocols of this grid.
pub(crate) fn identify_protocol(grid: &GridId) -> String {
    format!("/kolo/{grid}/identify/1")
}

fn protocol(grid: &GridId, name: &str) -> Result<StreamProtocol, SetUpError> {
    StreamProtocol::try_from_owned(format!("/kolo/{grid}/{name}"))
        .map_err(|error| failed("protocol names")(error.to_string()))
}

/// The name of the DHT protocol, by which a peer of the same grid is told from others.
pub(crate) fn kad_protocol(grid: &GridId) -> Result<StreamProtocol, SetUpError> {
    protocol(grid, "kad/1")
}

/// The topic of adverts.
pub(crate) fn adverts_topic(grid: &GridId) -> gossipsub::IdentTopic {
    gossipsub::IdentTopic::new(format!("kolo/{grid}/adverts/1"))
}

/// The topic of schedule changes.
pub(crate) fn schedules_topic(grid: &GridId) -> gossipsub::IdentTopic {
    gossipsub::IdentTopic::new(format!("kolo/{grid}/schedules/1"))
}

/// Builds the swarm, not yet listening.
pub(crate) fn build_swarm(
    keypair: &Keypair,
    config: &DiscoveryConfig,
    counters: Arc<Counters>,
) -> Result<Swarm<Behaviour>, SetUpError> {
    let transport =
        transport::build(config.transport, keypair).map_err(|error| failed("the transport")(error.to_string()))?;
    let behaviour = behaviour(keypair, config, counters)?;
    let swarm_config = swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(config.intervals.idle_connection)
        // Both request-response and Kademlia open many short streams at once when a plan goes out to many sites.
        .with_max_negotiating_inbound_streams(config.limits.streams_max);
    Ok(Swarm::new(transport, behaviour, keypair.public().to_peer_id(), swarm_config))
}

fn behaviour(keypair: &Keypair, config: &DiscoveryConfig, counters: Arc<Counters>) -> Result<Behaviour, SetUpError> {
    let (grid, limits) = (&config.grid, &config.limits);
    let connection_limits = connection_limits::ConnectionLimits::default()
        .with_max_pending_incoming(Some(limits.connections_max))
        .with_max_pending_outgoing(Some(limits.connections_max))
        .with_max_established(Some(limits.connections_max))
        // One side may dial while the other does, and TCP and QUIC may both succeed.
        .with_max_established_per_peer(Some(4));
    let identify = identify::Config::new(identify_protocol(grid), keypair.public())
        .with_agent_version(format!("kolo/{}", env!("CARGO_PKG_VERSION")))
        .with_push_listen_addr_updates(true);
    let ask = request_response::Behaviour::with_codec(
        Codec::new(counters),
        [(protocol(grid, "ask/1")?, ProtocolSupport::Full)],
        request_response::Config::default()
            .with_request_timeout(config.intervals.request)
            .with_max_concurrent_streams(limits.streams_max),
    );
    Ok(Behaviour {
        limits: connection_limits::Behaviour::new(connection_limits),
        identify: identify::Behaviour::new(identify),
        ping: ping::Behaviour::new(ping::Config::new().with_interval(Duration::from_secs(30))),
        kad: kad(keypair, config)?,
        gossip: gossip(config)?,
        ask,
    })
}

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
        .set_record_ttl(Some(config.intervals.advert_time_to_live))
        .set_provider_record_ttl(Some(config.intervals.index_refresh * 3))
        // What is published changes with every refresh (a new sequence), so this crate publishes and nobody replicates:
        // a copy that a holder passes on would only be older.
        .set_replication_interval(None)
        .set_publication_interval(None)
        .set_provider_publication_interval(None)
        .set_caching(kad::Caching::Disabled)
        .set_parallelism(NonZeroUsize::new(3).unwrap_or(NonZeroUsize::MIN))
        .set_record_filtering(kad::StoreInserts::FilterBoth);
    let store = kad::store::MemoryStore::with_config(peer, store);
    let mut kad = kad::Behaviour::with_config(peer, store, kad_config);
    kad.set_mode(Some(kad::Mode::Server));
    Ok(kad)
}

/// Messages carry no libp2p signature: it would be checked again for each of the five to seven copies that a mesh
/// delivers, and our envelopes are signed by their author anyway. Copies are told by the hash of their content before
/// anything is checked, and a message is passed on only after its envelope was.
fn gossip(config: &DiscoveryConfig) -> Result<gossipsub::Behaviour, SetUpError> {
    let grid = &config.grid;
    let failed = failed("gossip");
    let topics = [adverts_topic(grid), schedules_topic(grid)];
    let gossip_config = gossipsub::ConfigBuilder::default()
        .protocol_id_prefix(format!("/kolo/{grid}/gossip"))
        .validation_mode(gossipsub::ValidationMode::Anonymous)
        .validate_messages()
        .message_id_fn(|message| gossipsub::MessageId::new(&sha256(message.data.clone())))
        .heartbeat_initial_delay(Duration::from_millis(200))
        .max_transmit_size(wire::ADVERT_BYTES_MAX + 1024)
        .max_transmit_size_for_topic(wire::ADVERT_BYTES_MAX + 1024, topics[0].hash())
        .max_transmit_size_for_topic(wire::UPDATE_BYTES_MAX + 1024, topics[1].hash())
        // Bounds what a slow neighbour can make this node keep for it.
        .connection_handler_queue_len(512)
        .max_publish_messages(512)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let mut gossip = gossipsub::Behaviour::new(gossipsub::MessageAuthenticity::Anonymous, gossip_config)
        .map_err(|error| failed(error.to_owned()))?;
    if config.gossip {
        for topic in &topics {
            gossip.subscribe(topic).map_err(|error| failed(error.to_string()))?;
        }
    }
    Ok(gossip)
}
