//! The peer-to-peer layer of Kolo: finding hosts of sites that trust nobody in the middle.
//!
//! libp2p carries it: Kademlia holds signed adverts and a sharded index, gossipsub carries hints about changes, and
//! direct requests carry what must be right (holds, confirms, schedules). Wire types live only here. What the ledger of
//! a site grants is decided elsewhere; this crate only says what others seem to have, and passes messages on.
//!
//! Reading order: [`identity`], [`config`], [`wire`] (what is signed), [`check`] (what is refused), [`view`] (what is
//! believed), [`index`] (what is looked up), [`find`](Query), then the tasks: the swarm task, repair, and the exchange of
//! adverts.
//!
//! Invariants: everything that travels beyond one hop is signed by its author; every queue, store and message is
//! bounded; the task that owns the swarm never waits for another one.

pub mod check;
pub mod clock;
pub mod conduct;
pub mod config;
pub mod costs;
pub mod counters;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
pub mod identity;
pub mod index;
pub mod membership;
pub mod outbox;
pub mod relay;
pub mod view;
pub mod wire;

mod behaviour;
mod codec;
mod doorkeeper;
mod exchange;
mod find;
mod frames;
mod gate;
mod handle;
mod inbound;
mod offsets;
mod pace;
mod prefix;
mod probation;
mod rate;
mod reach;
mod repair;
mod revocations;
mod seen;
mod shared;
mod start;
mod swarm_task;
mod throttle;
mod transport;
mod waiting_room;

pub use libp2p::{Multiaddr, PeerId};

pub use crate::{
    behaviour::SetUpError,
    config::{DiscoveryConfig, GridId, Intervals, Limits, TransportKind},
    find::{Constraint, Found, Query},
    handle::{AskError, BannedPeer, Discovery, OfferError, Status},
    identity::Identity,
    inbound::{Inbound, InboundRequest, Responder, ScheduleSource},
    membership::Membership,
    offsets::ClockOffset,
    pace::Leisure,
    prefix::prefix_of,
    reach::Reach,
    start::{StartError, start},
    view::{HostView, SharedView, SiteSummary},
};

#[cfg(test)]
mod tests;
