//! What the other tasks of a node ask of the task that owns the swarm.

use std::collections::BTreeSet;

use broker::ids::SiteId;
use libp2p::{Multiaddr, PeerId, kad::RecordKey};
use tokio::sync::oneshot;

use crate::{
    admission::Offence,
    streams::Reply,
    wire::{WireAnswer, WireRequest},
};

/// Why a direct request brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The site's name is not a peer id, so it cannot be asked.
    #[error("{0} is not a site of a live grid")]
    NotASite(SiteId),
    /// No connection could be made: the request did not arrive.
    #[error("the site cannot be reached")]
    Unreachable,
    /// No answer in time; whether the request arrived is not known.
    #[error("the site did not answer in time")]
    TimedOut,
    /// The connection broke; whether the request arrived is not known.
    #[error("the connection broke before the answer")]
    Interrupted,
    /// The schedules of a large site are on their way: so many of so many parts are there.
    #[error("its schedules are on their way: {have} of {parts} parts are here")]
    OnTheirWay {
        /// Parts that are there.
        have: u32,
        /// All parts.
        parts: u32,
    },
    /// The schedules of a site are more than this node keeps, or have changed faster than they could be fetched.
    #[error("{0}")]
    NotKept(&'static str),
    /// Too much is going on, here or there: the request was not worked on.
    #[error("too many requests are open")]
    Busy,
    /// One of the two sites does not know what the other says: they speak different versions.
    #[error("not understood: {0}")]
    NotUnderstood(String),
    /// The site answered, but not what was asked.
    #[error("the site does not keep to the protocol: {0}")]
    Protocol(String),
    /// Discovery has been shut down.
    #[error("discovery has stopped")]
    Stopped,
}

impl AskError {
    /// Whether the site failed, and not this node.
    pub(crate) fn is_sites_fault(&self) -> bool {
        match self {
            AskError::Unreachable | AskError::TimedOut | AskError::Interrupted | AskError::Protocol(_) => true,
            AskError::NotASite(_)
            | AskError::OnTheirWay { .. }
            | AskError::NotKept(_)
            | AskError::Busy
            | AskError::Stopped
            | AskError::NotUnderstood(_) => false,
        }
    }
}

/// A request to send, and where its answer goes.
#[derive(Debug)]
pub(crate) struct AskCommand {
    pub(crate) peer: PeerId,
    /// Where the peer is said to be, in case it must be dialled.
    pub(crate) addresses: Vec<Multiaddr>,
    pub(crate) request: WireRequest,
    pub(crate) reply: oneshot::Sender<Result<WireAnswer, AskError>>,
}

/// What the handle and the background tasks want from the swarm.
#[derive(Debug)]
pub(crate) enum Command {
    Ask(Box<AskCommand>),
    Providers {
        key: RecordKey,
        reply: oneshot::Sender<BTreeSet<PeerId>>,
    },
    Record {
        key: RecordKey,
        reply: oneshot::Sender<Option<Vec<u8>>>,
    },
    /// Opens a stream to test the link to a connected peer.
    OpenLink {
        peer: PeerId,
        reply: Reply,
    },
    /// Opens a stream to what runs at a connected peer.
    OpenRun {
        peer: PeerId,
        reply: Reply,
    },
    Blame(PeerId, Offence),
    Renew,
    CheckMembers,
    Leave(oneshot::Sender<()>),
}
