//! What messages weigh on the wire, and the numbers that decide how often they travel.
//!
//! Invariant: nothing here is a second opinion. Sizes come from encoding with the codec that nodes use, numbers from the
//! configuration that nodes build; the two protocols whose encoders libp2p keeps to itself (gossip's frames and
//! Kademlia's messages) are counted field by field from their published schemas.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use broker::{
    host::Host,
    ids::SiteId,
    protocol::{Advert, LedgerVersion, ScheduleSnapshot, ScheduleUpdate, SiteAnswer, SiteRequest},
    time::Millis,
};
use discovery::{
    DHT_PARALLEL, GridId, Multiaddr, SetUpError, UPDATE_TIME_TO_LIVE,
    dissemination::exchange::KNOWN_MAX,
    gossip_config, index,
    membership::Badge,
    wire::{self, Payload, Stamp, WireAnswer, WireRequest, WireSchedules, names},
};
pub use discovery::{
    PING_EVERY,
    dht::find::{FETCH_TIMEOUT, ROUNDS_MAX as FIND_ROUNDS_MAX, SILENT_FOR},
    wire::bundle::{NAME_BYTES as BUNDLE_NAME_BYTES, bundled_bytes},
};
use libp2p::kad;
use serde::Serialize;

/// A peer id: two bytes of hash code and length, and an Ed25519 key with its four bytes of framing.
const PEER_ID_BYTES: usize = 38;
/// A gossip message is known by the SHA-256 of its content.
const MESSAGE_ID_BYTES: usize = 32;
/// Round trips that libp2p spends on a new stream before a request leaves: it waits until the other side has accepted the
/// protocol. Every direct request has a stream of its own.
pub(super) const STREAM_ROUND_TRIPS: u64 = 1;
/// Round trips until a new connection can be used: QUIC's, which is dialled beside TCP and is there first.
pub(super) const DIAL_ROUND_TRIPS: u64 = 1;
/// What a ping sends, and gets back.
pub(super) const PING_BYTES: u64 = 32;
/// A Unix time in milliseconds of these years, for sizes that depend on it.
const SOME_TIME_MS: u64 = 1_800_000_000_000;

/// How the gossip of a node is set up. Nothing is sent or announced to neighbours outside the mesh.
#[derive(Debug, Clone, PartialEq)]
pub struct GossipShape {
    /// Neighbours in the mesh of a topic that a node looks for.
    pub mesh: usize,
    /// With more than these it lets some go.
    pub mesh_max: usize,
    /// For how many heartbeats a message is kept.
    pub kept_heartbeats: usize,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// How long the name of a message is remembered.
    pub names_kept: Duration,
}

/// How the gossip of a node of `grid` is set up.
///
/// # Errors
/// [`SetUpError`] when no node of the grid could start.
pub(super) fn gossip_shape(grid: &GridId) -> Result<GossipShape, SetUpError> {
    let config = gossip_config(grid)?;
    Ok(GossipShape {
        mesh: config.mesh_n(),
        mesh_max: config.mesh_n_high(),
        kept_heartbeats: config.history_length(),
        heartbeat: config.heartbeat_interval(),
        names_kept: config.duplicate_cache_time(),
    })
}

/// How the DHT of a node is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DhtShape {
    /// Nodes that keep a record, peers of a bucket, and peers in an answer (Kademlia's k).
    pub copies: usize,
    /// Questions of one look-up at the same time (Kademlia's alpha).
    pub parallel: usize,
}

/// How the DHT of a node is set up.
#[must_use]
pub(super) fn dht_shape() -> DhtShape {
    DhtShape { copies: kad::K_VALUE.get(), parallel: DHT_PARALLEL.map_or(1, NonZeroUsize::get) }
}

/// A field of a protobuf message: its key, its length, its bytes.
fn field(bytes: usize) -> usize {
    1 + varint(bytes) + bytes
}

fn varint(value: usize) -> usize {
    (value.max(1).ilog2() as usize) / 7 + 1
}

/// A gossip message with `data_bytes` of content on the wire, in a frame of its own.
#[must_use]
pub(super) fn gossip_frame_bytes(grid: &GridId, data_bytes: usize) -> u64 {
    let topic = names::schedules_topic(grid).hash().as_str().len();
    let frame = field(field(data_bytes) + field(topic));
    (varint(frame) + frame) as u64
}

/// The name of one gossip message, as it is remembered.
#[must_use]
pub(super) fn gossip_name_bytes() -> u64 {
    field(MESSAGE_ID_BYTES) as u64
}

/// An advert in its envelope.
#[must_use]
pub(super) fn advert_bytes(grid: &GridId, advert: Advert, time_to_live: Millis) -> u64 {
    envelope_bytes(grid, Payload::Advert(advert), time_to_live)
}

/// Schedule changes in their envelope; in a bundle it takes [`bundled_bytes`].
#[must_use]
pub(super) fn update_bytes(grid: &GridId, update: ScheduleUpdate) -> u64 {
    envelope_bytes(grid, Payload::Update(update), UPDATE_TIME_TO_LIVE)
}

/// Nobody shows a credential: an open grid. What does not encode weighs nothing, since it is not sent.
fn envelope_bytes(grid: &GridId, payload: Payload, time_to_live: Millis) -> u64 {
    let stamp = Stamp { sequence: SOME_TIME_MS, sent_ms: SOME_TIME_MS, time_to_live };
    wire::sealed_bytes(grid, stamp, payload, Badge::default()).unwrap_or(0) as u64
}

fn encoded(value: &impl Serialize) -> u64 {
    wire::encode(value).map_or(0, |bytes| bytes.len() as u64)
}

/// A direct request about an attempt.
#[must_use]
pub(super) fn request_bytes(request: &SiteRequest) -> u64 {
    encoded(&WireRequest::Site(request.clone()))
}

/// Its answer.
#[must_use]
pub(super) fn answer_bytes(answer: &SiteAnswer) -> u64 {
    encoded(&WireAnswer::Site(answer.clone()))
}

/// The question for a site's schedules.
#[must_use]
pub(super) fn fetch_bytes(known: Option<LedgerVersion>) -> u64 {
    encoded(&WireRequest::Schedules(known))
}

/// The schedules of a site.
#[must_use]
pub(super) fn schedules_bytes(snapshot: ScheduleSnapshot) -> u64 {
    encoded(&WireAnswer::Schedules(Arc::new(WireSchedules::from_snapshot(snapshot))))
}

/// The answer that nothing has changed.
#[must_use]
pub(super) fn unchanged_bytes(version: LedgerVersion) -> u64 {
    encoded(&WireAnswer::Unchanged(version))
}

/// The question of an exchange of adverts, from a node that knows so many sites.
#[must_use]
pub(super) fn exchange_bytes(known: usize) -> u64 {
    encoded(&WireRequest::Adverts(vec![(u64::MAX, SOME_TIME_MS); known.min(KNOWN_MAX)]))
}

/// The answer to it that tells nothing new.
#[must_use]
pub(super) fn nothing_new_bytes() -> u64 {
    encoded(&WireAnswer::Adverts { envelopes: Vec::new(), is_complete: true })
}

/// How many keys of the index a site with these hosts provides.
#[must_use]
pub(super) fn index_keys(grid: &GridId, site: &SiteId, hosts: &[Host]) -> usize {
    index::keys_of_site(grid, site, hosts).len()
}

/// A Kademlia question: its kind and a key.
#[must_use]
pub(super) fn dht_question_bytes() -> u64 {
    let frame = 2 + field(MESSAGE_ID_BYTES);
    (varint(frame) + frame) as u64
}

/// A Kademlia answer that names `peers` peers with the addresses that nodes listen on.
#[must_use]
pub(super) fn dht_answer_bytes(peers: usize, addresses: &[Multiaddr]) -> u64 {
    let listed: usize = addresses.iter().map(|address| field(address.len())).sum();
    let frame = 2 + field(MESSAGE_ID_BYTES) + peers * field(field(PEER_ID_BYTES) + listed + 2);
    (varint(frame) + frame) as u64
}

/// A record of `value_bytes` on its way to a node that is to keep it.
#[must_use]
pub(super) fn dht_record_bytes(value_bytes: u64) -> u64 {
    let value = usize::try_from(value_bytes).unwrap_or(usize::MAX / 4);
    let record = field(MESSAGE_ID_BYTES) + field(value) + field(PEER_ID_BYTES) + 5;
    let frame = 2 + field(MESSAGE_ID_BYTES) + field(record);
    (varint(frame) + frame) as u64
}

#[cfg(test)]
mod tests {
    use discovery::{Identity, wire::seal};

    use super::*;

    #[test]
    fn sizes_are_those_of_what_is_really_sent() {
        let grid = GridId::new("test").unwrap();
        let identity = Identity::generate().unwrap();
        let update =
            ScheduleUpdate { site: identity.site_id().clone(), from: LedgerVersion::default(), changes: Vec::new() };
        let stamp = Stamp { sequence: SOME_TIME_MS, sent_ms: SOME_TIME_MS, time_to_live: UPDATE_TIME_TO_LIVE };
        let sealed = seal(&identity, &grid, stamp, Payload::Update(update.clone())).unwrap();
        assert_eq!(update_bytes(&grid, update), sealed.len() as u64);
        assert!(gossip_frame_bytes(&grid, sealed.len()) > sealed.len() as u64);
        assert!(exchange_bytes(100) > exchange_bytes(10) + 90 * 16);
        assert_eq!(exchange_bytes(usize::MAX), exchange_bytes(KNOWN_MAX));
        assert_eq!(index_keys(&grid, &SiteId::new("s").unwrap(), &[]), 0);
    }

    #[test]
    fn varints_grow_by_a_byte_every_seven_bits() {
        let lengths: Vec<usize> = [0, 1, 127, 128, 16_383, 16_384].iter().map(|value| varint(*value)).collect();
        assert_eq!(lengths, [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn the_shape_of_gossip_is_that_of_a_node() {
        let shape = gossip_shape(&GridId::new("test").unwrap()).unwrap();
        assert!(shape.mesh < shape.mesh_max);
        let config = gossip_config(&GridId::new("test").unwrap()).unwrap();
        assert_eq!((config.gossip_lazy(), config.gossip_factor(), config.history_gossip()), (0, 0.0, 0));
        assert!(!config.flood_publish());
        assert_eq!(dht_shape(), DhtShape { copies: 20, parallel: 3 });
    }
}
