//! How schedules and adverts spread: changes bundled and gossiped, gaps fetched, and what gossip missed exchanged after
//! a start or a cut of the network.

mod bundler;
pub mod exchange;
pub(crate) mod fetch_queue;
pub(crate) mod fetching;
mod gossip;
pub mod outbox;
mod reunion;

pub(crate) use self::{
    gossip::Gossip,
    reunion::{Favour, Reunion},
};
