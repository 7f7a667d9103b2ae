//! Streams to what runs on a seat: from the node of its user to the node of its site.
//!
//! The opener says what it wants ([`opening`]); the site's node says yes, or no and why. From then on both sides
//! carry bytes that this crate does not read, with the flow control of the connection: a side that does not read makes the other
//! wait, and no more than the window of its stream waits here. Invariants: only members open streams; each peer has at most
//! [`STREAMS_PER_PEER_MAX`], all together 512; an opening has its time; a connection with an open stream is not trimmed.

mod inbound;
mod open;
pub mod opening;
mod service;
mod stream;

pub use self::{
    inbound::{RunAsked, RunInbound},
    open::STREAMS_PER_PEER_MAX,
    service::RunError,
    stream::RunStream,
};
pub(crate) use self::{open::OpenStreams, service::Runs};
