//! Direct requests: those of this node to others, and those of others to this node.

mod asks;
mod dial_backs;
mod fetch;
pub(crate) mod inbound;
pub(crate) mod reachability;
mod recent;
pub(crate) mod schedules;
mod serving;
pub(crate) mod under_way;

pub use self::inbound::{Inbound, InboundRequest, Responder};
pub(crate) use self::{
    asks::{Asks, Wire, ask_error},
    dial_backs::dial_outcome,
    serving::Serving,
};
