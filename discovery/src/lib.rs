//! The peer-to-peer layer of Kolo: finding hosts of sites without anything in the middle.
//!
//! libp2p carries it: Kademlia holds signed adverts and a sharded index, gossipsub carries hints about changes, and
//! direct requests carry what must be right (holds, confirms, schedules). Wire types live only here. What the ledger of
//! a site grants is decided elsewhere; this crate only holds what other sites seem to have, and carries messages.
//!
//! Reading order, each importing only what stands before it: [`identity`], [`config`], [`wire`] (what is signed and what is
//! refused), [`view`] (what is believed), [`dht`] (the index, and finding hosts), [`dissemination`] (how news spread),
//! `direct` (requests), and the task that owns the swarm.
//!
//! Invariants: everything that travels beyond one hop is signed by its author; every queue, store and message is
//! bounded; the task that owns the swarm never waits for another one.

pub mod clock;
pub mod config;
pub mod counters;
pub mod dht;
pub mod dissemination;
pub mod identity;
pub mod membership;
pub mod view;
pub mod wire;

mod addresses;
mod admission;
mod command;
mod core;
mod direct;
mod handle;
mod health;
mod link;
mod refusals;
mod run;
mod shared;
mod start;
mod status;
mod streams;
mod swarm_task;
mod tasks;
mod transport;

pub use libp2p::{Multiaddr, PeerId};

pub use crate::{
    addresses::{AddressBlock, NoAddressBlock},
    admission::{Buckets, Rate, TokenBucket, prefix_of},
    command::AskError,
    config::{DhtUpkeep, DiscoveryConfig, GridId, Intervals, Limits, ScheduleSource, TransportKind},
    dht::{
        find::{Constraint, Found, Query},
        index,
    },
    direct::{Inbound, InboundRequest, Responder, reachability::Reachability},
    dissemination::outbox::{self, Offer},
    handle::{BannedPeer, Discovery, OfferError, Status},
    identity::Identity,
    link::{LinkError, LinkSpeed},
    membership::Members,
    run::{RunAsked, RunError, RunInbound, RunStream, STREAMS_PER_PEER_MAX, opening},
    shared::UPDATE_TIME_TO_LIVE,
    start::{StartError, start},
    status::ClockOffset,
    swarm_task::{DHT_PARALLEL, PING_EVERY, SetUpError, gossip_config},
    view::{HostView, SharedView, SiteSummary},
    wire::check,
};

#[cfg(test)]
mod tests;
