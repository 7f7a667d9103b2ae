//! What travels between nodes: signed envelopes, bundles of them, direct requests and answers, and their limits.

mod ask;
mod ask_7;
mod ask_version;
pub mod bundle;
pub mod check;
mod codec;
mod dialect;
mod encoding;
mod envelope;
pub mod frame;
mod images;
mod message;
pub mod names;
mod of_before;
mod offered;
mod parts;
mod tariffs;
mod verdict;
mod version;

pub(crate) use self::message::site_is_busy;
pub use self::{
    ask::{ASK_VERSIONS, answer_bytes, answer_in, request_bytes},
    ask_version::{AskVersion, Written},
    codec::{Asked, Codec},
    dialect::Dialect,
    encoding::{
        ADVERT_BYTES_MAX, ANSWER_BYTES_MAX, DecodeError, EncodeError, REQUEST_BYTES_MAX, UPDATE_BYTES_MAX, decode,
        encode,
    },
    envelope::{
        Dropped, Extra, Opened, Payload, Stamp, Terms, badge_of, open, peek, peek_in, seal, seal_with_badge,
        sealed_bytes, sent_of,
    },
    message::{MANY_MAX, SinceThen, WireAnswer, WireRequest},
    parts::{Assembly, PARTS_MAX, Whole, WireSchedules},
    verdict::{REASONS_MAX, VERDICT_BYTES_MAX, Verdict},
    version::{DIALECT, apart_words},
};
