//! Bytes of messages on the wire.
//!
//! Invariant: nothing here is a second opinion. Sizes come from encoding with the codec that nodes use; the two protocols
//! whose encoders libp2p keeps to itself (gossip's frames and Kademlia's messages) are counted field by field from their
//! published schemas.

use broker::{
    protocol::{ScheduleSnapshot, ScheduleUpdate},
    time::Millis,
};
use discovery::{
    GridId, Multiaddr, UPDATE_TIME_TO_LIVE,
    dissemination::exchange::KNOWN_MAX,
    membership::Badge,
    wire::{self, Payload, Stamp, WireAnswer, WireRequest, WireSchedules, names},
};

/// A peer id: two bytes of hash code and length, and an Ed25519 key with its four bytes of framing.
const PEER_ID_BYTES: usize = 38;
/// A gossip message is known by the SHA-256 of its content.
const MESSAGE_ID_BYTES: usize = 32;
/// A ping, and its answer.
pub const PING_BYTES: u64 = 32;
/// A Unix time in milliseconds of these years, for sizes that depend on it.
pub const SOME_TIME_MS: u64 = 1_800_000_000_000;

/// A field of a protobuf message: its key, its length, its bytes.
fn field(bytes: usize) -> usize {
    1 + varint(bytes) + bytes
}

fn varint(value: usize) -> usize {
    (value.max(1).ilog2() as usize) / 7 + 1
}

/// A message behind its length.
fn framed(bytes: usize) -> u64 {
    (varint(bytes) + bytes) as u64
}

/// A gossip message with `data_bytes` of content, in a frame of its own.
pub fn gossip_frame_bytes(grid: &GridId, data_bytes: usize) -> u64 {
    let topic = names::schedules_topic(grid).hash().as_str().len();
    framed(field(field(data_bytes) + field(topic)))
}

/// The name of one gossip message, as it is remembered.
pub fn gossip_name_bytes() -> u64 {
    field(MESSAGE_ID_BYTES) as u64
}

/// Schedule changes in their envelope.
pub fn update_bytes(grid: &GridId, update: ScheduleUpdate) -> u64 {
    envelope_bytes(grid, Payload::Update(update), UPDATE_TIME_TO_LIVE)
}

/// A payload in its envelope, without a credential: an open grid. What does not encode weighs nothing, since it is not sent.
pub fn envelope_bytes(grid: &GridId, payload: Payload, time_to_live: Millis) -> u64 {
    let stamp = Stamp { sequence: SOME_TIME_MS, sent_ms: SOME_TIME_MS, time_to_live };
    wire::sealed_bytes(grid, stamp, payload, Badge::default()).unwrap_or(0) as u64
}

/// The answer to who asks for all schedules of a site, whose schedules have room in one part.
pub fn first_part(snapshot: &ScheduleSnapshot) -> WireAnswer {
    let first = WireSchedules::parts_of(snapshot, None).into_iter().next();
    first.map_or(WireAnswer::PartsGone, |first| WireAnswer::Schedules(first.into()))
}

/// A direct request.
pub fn question_bytes(question: &WireRequest) -> u64 {
    wire::request_bytes(question).len() as u64
}

/// The answer to a direct request.
pub fn answer_bytes(answer: &WireAnswer) -> u64 {
    wire::answer_bytes(answer).len() as u64
}

/// The question of an exchange of adverts, from a node that knows so many sites.
pub fn exchange_bytes(known: usize) -> u64 {
    question_bytes(&WireRequest::Adverts(vec![(u64::MAX, SOME_TIME_MS); known.min(KNOWN_MAX)]))
}

/// A Kademlia question: its kind and a key.
pub fn dht_question_bytes() -> u64 {
    framed(2 + field(MESSAGE_ID_BYTES))
}

/// A Kademlia answer that names `peers` peers with the addresses that nodes listen on.
pub fn dht_answer_bytes(peers: usize, addresses: &[Multiaddr]) -> u64 {
    let listed: usize = addresses.iter().map(|address| field(address.len())).sum();
    framed(2 + field(MESSAGE_ID_BYTES) + peers * field(field(PEER_ID_BYTES) + listed + 2))
}

/// A record of `value_bytes` on its way to a node that is to keep it.
pub fn dht_record_bytes(value_bytes: usize) -> u64 {
    let record = field(MESSAGE_ID_BYTES) + field(value_bytes) + field(PEER_ID_BYTES) + 5;
    framed(2 + field(MESSAGE_ID_BYTES) + field(record))
}

#[cfg(test)]
mod tests {
    use broker::protocol::LedgerVersion;
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
    }

    #[test]
    fn varints_grow_by_a_byte_every_seven_bits() {
        let lengths: Vec<usize> = [0, 1, 127, 128, 16_383, 16_384].iter().map(|value| varint(*value)).collect();
        assert_eq!(lengths, [1, 1, 1, 2, 2, 3]);
    }
}
