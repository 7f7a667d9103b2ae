//! What travels between nodes: signed envelopes, bundles of them, direct requests and answers, and their limits.

pub mod bundle;
pub mod check;
mod codec;
mod encoding;
mod envelope;
mod message;
pub mod names;

pub use self::{
    codec::{Asked, Codec},
    encoding::{
        ADVERT_BYTES_MAX, ANSWER_BYTES_MAX, DecodeError, REQUEST_BYTES_MAX, SCHEDULES_BYTES_MAX, UPDATE_BYTES_MAX,
        decode, encode,
    },
    envelope::{
        Dropped, Opened, Payload, Stamp, Terms, badge_of, open, peek, peek_in, seal, seal_with_badge, sealed_bytes,
        sent_of,
    },
    message::{WireAnswer, WireRequest, WireSchedules},
};
