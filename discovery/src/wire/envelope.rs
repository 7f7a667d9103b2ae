//! Envelopes: signed by their author, passed on by any node.
//!
//! An envelope is `version (1) | kind (1) | author's public key (32) | sequence (8, big endian) | signature (64) | body`; the
//! signature covers a fixed prefix and everything else, so whoever passes it on cannot change it, and the author proves itself
//! without being connected. A body ends with a map of [`Extra`] entries: what a later version adds for those that know it.
//! Invariants: the header is the same in every version, and a body begins with the grid, so that a node tells an
//! envelope that it does not understand from garbage; nothing of a body is decoded before its size and its signature were checked, and
//! nothing is handed out before its payload passed [`check`].

use std::collections::BTreeMap;

use broker::{
    ids::SiteId,
    protocol::{Advert, ScheduleUpdate},
    time::Millis,
};
use ed25519_dalek::{Signature, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::{
    check,
    encoding::{ADVERT_BYTES_MAX, UPDATE_BYTES_MAX, decode, encode},
    images, offered, tariffs,
    version::DIALECT,
};
use crate::{
    config::GridId,
    counters::Counter,
    identity::{Identity, peer_of_key, site_of_peer},
    membership::{Badge, CREDENTIAL_BYTES_MAX},
};

/// The one version that is written and read.
const VERSION: u8 = DIALECT as u8;
/// Version, kind, author, sequence.
const CLAIM_BYTES: usize = 1 + 1 + 32 + 8;
const HEADER_BYTES: usize = CLAIM_BYTES + 64;
/// Keeps these signatures apart from any other use of the key.
const SIGNED_PREFIX: &[u8] = b"kolo-envelope";

const ADVERT: u8 = 1;
const UPDATE: u8 = 2;

/// Entries that a reader need not know, by key: bounded, signed, and otherwise ignored by who does not know them.
pub type Extra = BTreeMap<String, Vec<u8>>;
/// Most extra entries.
const EXTRA_MAX: usize = 16;
/// Longest key of an extra entry, in bytes.
const EXTRA_KEY_BYTES_MAX: usize = 64;
/// Largest value of an extra entry, in bytes.
pub const EXTRA_VALUE_BYTES_MAX: usize = 32 * 1024;

/// What an envelope carries.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// A site's advert, or its departure (no hosts, time to live 0).
    Advert(Advert),
    /// Changes of a site's schedules.
    Update(ScheduleUpdate),
}

#[derive(Debug, Serialize, Deserialize)]
struct Body<T> {
    grid: String,
    sent_ms: u64,
    time_to_live_ms: u64,
    badge: Badge,
    payload: T,
    extra: Extra,
}

impl<T> Body<T> {
    fn map<U>(self, into: impl FnOnce(T) -> U) -> Body<U> {
        let Body { grid, sent_ms, time_to_live_ms, badge, payload, extra } = self;
        Body { grid, sent_ms, time_to_live_ms, badge, payload: into(payload), extra }
    }
}

/// What was inside an envelope that passed all checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// The site that signed it; the payload is about this site only.
    pub author: SiteId,
    /// When it was signed, by the author's clock (Unix milliseconds).
    pub sent_ms: u64,
    /// What is left of its time to live.
    pub remaining: Millis,
    /// What the author shows of its membership.
    pub badge: Badge,
    /// The content.
    pub payload: Payload,
}

/// Why a message of another site was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// Larger than its kind may be.
    #[error("too large")]
    Oversized,
    /// Does not decode.
    #[error("malformed")]
    Malformed,
    /// Of a version that this node does not know.
    #[error("of version {0}, which is not understood here")]
    UnknownVersion(u8),
    /// Of a kind that this node does not know.
    #[error("of kind {0}, which is not understood here")]
    UnknownKind(u8),
    /// Not signed by the author it names.
    #[error("not signed by its author")]
    Unsigned,
    /// Of another grid.
    #[error("of another grid")]
    ForeignGrid,
    /// Its time to live is over.
    #[error("expired")]
    Expired,
    /// Signed further in the future than clocks may differ.
    #[error("from the future")]
    FromFuture,
    /// Is about another site.
    #[error("is about another site than its author's")]
    WrongAuthor,
    /// Breaks a limit of `check`.
    #[error("breaks a limit")]
    Invalid,
    /// Not newer than what is known.
    #[error("old")]
    Stale,
    /// Received already, from another neighbour.
    #[error("a copy")]
    Copy,
    /// Its author sends more than its share.
    #[error("more than its author's share")]
    Flood,
    /// Its neighbour brings more than any honest one, or all of them more than is passed on.
    #[error("more than is passed on")]
    Overload,
    /// Introduces a site when too many were introduced already.
    #[error("too many new sites")]
    Newcomer,
    /// Its author is banned.
    #[error("its author is banned")]
    Banned,
    /// Its author shows no credential of the grid, or one that has expired or was revoked.
    #[error("its author does not belong to the grid")]
    NotMember,
    /// Introduces a site when the view is full of others that answer.
    #[error("the view is full")]
    ViewFull,
}

impl Dropped {
    /// Where it is counted.
    #[must_use]
    pub fn counter(self) -> Counter {
        match self {
            Dropped::Oversized => Counter::DroppedOversized,
            Dropped::Malformed => Counter::DroppedMalformed,
            Dropped::UnknownVersion(_) | Dropped::UnknownKind(_) => Counter::DroppedNotUnderstood,
            Dropped::Unsigned => Counter::DroppedUnsigned,
            Dropped::ForeignGrid => Counter::DroppedForeignGrid,
            Dropped::Expired => Counter::DroppedExpired,
            Dropped::FromFuture => Counter::DroppedFromFuture,
            Dropped::WrongAuthor => Counter::DroppedWrongAuthor,
            Dropped::Invalid => Counter::DroppedInvalid,
            Dropped::Stale => Counter::DroppedStale,
            Dropped::Copy => Counter::UpdateCopies,
            Dropped::Flood => Counter::DroppedFlood,
            Dropped::Overload => Counter::DroppedOverload,
            Dropped::Newcomer => Counter::DroppedNewcomers,
            Dropped::Banned => Counter::DroppedBanned,
            Dropped::NotMember => Counter::DroppedNotMember,
            Dropped::ViewFull => Counter::DroppedViewFull,
        }
    }

    /// Whether an honest neighbour can have passed it on. What is merely old or late proves nothing against its forwarder.
    #[must_use]
    pub fn is_forwarders_fault(self) -> bool {
        match self {
            Dropped::Oversized
            | Dropped::Malformed
            | Dropped::Unsigned
            | Dropped::ForeignGrid
            | Dropped::WrongAuthor
            | Dropped::Invalid => true,
            Dropped::UnknownVersion(_)
            | Dropped::UnknownKind(_)
            | Dropped::Expired
            | Dropped::FromFuture
            | Dropped::Stale
            | Dropped::Copy
            | Dropped::Flood
            | Dropped::Overload
            | Dropped::Newcomer
            | Dropped::Banned
            // A neighbour may not know yet that a credential was revoked.
            | Dropped::NotMember
            | Dropped::ViewFull => false,
        }
    }
}

/// When an envelope is signed, and how long it lives.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Grows with every envelope of the author.
    pub sequence: u64,
    /// The author's clock, Unix milliseconds.
    pub sent_ms: u64,
    /// For how long it may be believed and passed on.
    pub time_to_live: Millis,
}

/// Makes an envelope without a badge. `None` when the payload does not encode into the size of its kind.
#[must_use]
pub fn seal(identity: &Identity, grid: &GridId, stamp: Stamp, payload: Payload) -> Option<Vec<u8>> {
    seal_with_badge(identity, grid, stamp, payload, (Badge::default(), &Extra::new()))
}

/// Makes an envelope that shows a badge and extra entries. `None` when it does not encode into the size of its kind.
#[must_use]
pub fn seal_with_badge(
    identity: &Identity,
    grid: &GridId,
    stamp: Stamp,
    payload: Payload,
    (badge, extra): (Badge, &Extra),
) -> Option<Vec<u8>> {
    let (kind, bytes_max) = (kind_of(&payload), bytes_max_of(&payload));
    let body = body_of(grid, stamp, payload, (badge, extra))?;
    let envelope = signed_envelope(identity, (VERSION, kind), stamp.sequence, &body);
    (envelope.len() <= bytes_max).then_some(envelope)
}

/// Signs a body of any version and kind.
fn signed_envelope(identity: &Identity, (version, kind): (u8, u8), sequence: u64, body: &[u8]) -> Vec<u8> {
    let claim = [&[version, kind], &identity.public_key()[..], &sequence.to_be_bytes()].concat();
    let signature = identity.sign(&signed_bytes(&claim, body));
    [&claim, &signature[..], body].concat()
}

/// How large the envelope of [`seal_with_badge`] would be, without signing anything.
#[must_use]
pub fn sealed_bytes(grid: &GridId, stamp: Stamp, payload: Payload, badge: Badge) -> Option<usize> {
    let bytes_max = bytes_max_of(&payload);
    let bytes = HEADER_BYTES + body_of(grid, stamp, payload, (badge, &Extra::new()))?.len();
    (bytes <= bytes_max).then_some(bytes)
}

fn body_of(grid: &GridId, stamp: Stamp, payload: Payload, (badge, extra): (Badge, &Extra)) -> Option<Vec<u8>> {
    let grid = grid.as_str().to_owned();
    let time_to_live_ms = stamp.time_to_live.0;
    let mut body = Body { grid, sent_ms: stamp.sent_ms, time_to_live_ms, badge, payload: (), extra: extra.clone() };
    match payload {
        Payload::Advert(advert) => {
            body.extra.extend(tariffs::entry(&advert.hosts).ok()?);
            body.extra.extend(images::entry(advert.features.images()));
            body.extra.extend(offered::entries(&advert.offer).ok()?);
            encode(&body.map(|()| advert)).ok()
        }
        Payload::Update(update) => encode(&body.map(|()| update)).ok(),
    }
}

fn kind_of(payload: &Payload) -> u8 {
    match payload {
        Payload::Advert(_) => ADVERT,
        Payload::Update(_) => UPDATE,
    }
}

/// Reads the body of an envelope whose signature was checked.
fn read_body(envelope: &[u8]) -> Result<Body<Payload>, Dropped> {
    let (header, body) = envelope.split_first_chunk::<HEADER_BYTES>().ok_or(Dropped::Malformed)?;
    if header[0] != VERSION {
        return Err(Dropped::UnknownVersion(header[0]));
    }
    let read = match header[1] {
        ADVERT => decode::<Body<Advert>, ADVERT_BYTES_MAX>(body).and_then(|mut body| {
            tariffs::put_into(&mut body.payload.hosts, &body.extra)?;
            images::put_into(&mut body.payload.features, &body.extra)?;
            body.payload.offer = offered::of(&body.extra)?;
            Ok(body.map(Payload::Advert))
        }),
        UPDATE => decode::<Body<ScheduleUpdate>, ADVERT_BYTES_MAX>(body).map(|body| body.map(Payload::Update)),
        unknown => return Err(Dropped::UnknownKind(unknown)),
    };
    read.map_err(|_| Dropped::Malformed)
}

fn bytes_max_of(payload: &Payload) -> usize {
    match payload {
        Payload::Advert(_) => ADVERT_BYTES_MAX,
        Payload::Update(_) => UPDATE_BYTES_MAX,
    }
}

fn signed_bytes(claim: &[u8], body: &[u8]) -> Vec<u8> {
    [SIGNED_PREFIX, claim, body].concat()
}

/// Author and sequence of an envelope as it claims, unchecked: enough to see that it is known already.
#[must_use]
pub fn peek(envelope: &[u8]) -> Option<(SiteId, u64)> {
    let author = envelope.get(2..34)?.try_into().ok()?;
    let sequence = u64::from_be_bytes(envelope.get(34..CLAIM_BYTES)?.try_into().ok()?);
    Some((site_of_peer(&peer_of_key(author)?)?, sequence))
}

/// Author and sequence as they are claimed, after the cheap checks: that the size and the grid are right.
///
/// # Errors
/// [`Dropped`] when one of them is not, or the author's key is none.
pub fn peek_in(envelope: &[u8], grid: &GridId) -> Result<(SiteId, u64), Dropped> {
    if envelope.len() > ADVERT_BYTES_MAX {
        return Err(Dropped::Oversized);
    }
    let body = envelope.get(HEADER_BYTES..).ok_or(Dropped::Malformed)?;
    let claimed = peek(envelope).ok_or(Dropped::Malformed)?;
    // A body begins with the grid: its length, below 251 in one byte, and its text.
    let name = grid.as_str().as_bytes();
    let is_ours = body.first().is_some_and(|length| usize::from(*length) == name.len()) && body[1..].starts_with(name);
    if is_ours { Ok(claimed) } else { Err(Dropped::ForeignGrid) }
}

/// The badge in an envelope that was opened before.
#[must_use]
pub fn badge_of(envelope: &[u8]) -> Option<Badge> {
    Some(read_body(envelope).ok()?.badge)
}

/// When an envelope was signed (Unix milliseconds), and its content, of one whose signature was checked before.
#[must_use]
pub fn sent_of(envelope: &[u8]) -> Option<(u64, Payload)> {
    let body = read_body(envelope).ok()?;
    Some((body.sent_ms, body.payload))
}

/// What an envelope is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The grid.
    pub grid: &'a GridId,
    /// The present, Unix milliseconds.
    pub utc_ms: u64,
    /// How far ahead the author's clock may be.
    pub skew_max: Millis,
}

/// Checks an envelope from outside and returns its content.
///
/// # Errors
/// [`Dropped`] is the reason why it must not be believed.
pub fn open(envelope: &[u8], terms: Terms<'_>) -> Result<Opened, Dropped> {
    if envelope.len() > ADVERT_BYTES_MAX {
        return Err(Dropped::Oversized);
    }
    let (claim, rest) = envelope.split_first_chunk::<CLAIM_BYTES>().ok_or(Dropped::Malformed)?;
    let (signature, body) = rest.split_first_chunk::<64>().ok_or(Dropped::Malformed)?;
    let author_key: [u8; 32] = claim[2..34].try_into().map_err(|_| Dropped::Malformed)?;
    let sequence = u64::from_be_bytes(claim[34..].try_into().map_err(|_| Dropped::Malformed)?);
    let key = VerifyingKey::from_bytes(&author_key).map_err(|_| Dropped::Unsigned)?;
    let signature = Signature::from_bytes(signature);
    key.verify_strict(&signed_bytes(claim, body), &signature).map_err(|_| Dropped::Unsigned)?;
    let author = peer_of_key(&author_key).and_then(|peer| site_of_peer(&peer)).ok_or(Dropped::Malformed)?;

    let body = read_body(envelope)?;
    if envelope.len() > bytes_max_of(&body.payload) {
        return Err(Dropped::Oversized);
    }
    if body.grid != terms.grid.as_str() {
        return Err(Dropped::ForeignGrid);
    }
    if body.sent_ms > terms.utc_ms.saturating_add(terms.skew_max.0) {
        return Err(Dropped::FromFuture);
    }
    let time_to_live = body.time_to_live_ms.min(u64::try_from(check::TIME_TO_LIVE_MAX.as_millis()).unwrap_or(u64::MAX));
    let age = terms.utc_ms.saturating_sub(body.sent_ms);
    if age >= time_to_live {
        return Err(Dropped::Expired);
    }
    if body.badge.credential.len() > CREDENTIAL_BYTES_MAX || !is_bounded(&body.extra) {
        return Err(Dropped::Invalid);
    }
    check_payload(&body.payload, &author, sequence)?;
    let (sent_ms, remaining) = (body.sent_ms, Millis(time_to_live - age));
    Ok(Opened { author, sent_ms, remaining, badge: body.badge, payload: body.payload })
}

fn is_bounded(extra: &Extra) -> bool {
    let is_small =
        |(key, value): (&String, &Vec<u8>)| key.len() <= EXTRA_KEY_BYTES_MAX && value.len() <= EXTRA_VALUE_BYTES_MAX;
    extra.len() <= EXTRA_MAX && extra.iter().all(is_small)
}

fn check_payload(payload: &Payload, author: &SiteId, sequence: u64) -> Result<(), Dropped> {
    match payload {
        Payload::Advert(advert) => {
            if advert.site != *author {
                return Err(Dropped::WrongAuthor);
            }
            if advert.sequence != sequence {
                return Err(Dropped::Invalid);
            }
            check::check_advert(advert).map_err(|_| Dropped::Invalid)
        }
        Payload::Update(update) => {
            if update.site != *author {
                return Err(Dropped::WrongAuthor);
            }
            check::check_update(update).map_err(|_| Dropped::Invalid)
        }
    }
}

#[cfg(test)]
mod tests;
