//! The DHT: the index of hosts, this node's use of it and its part of it, and finding hosts for a request.

pub mod find;
pub mod index;
mod records;

pub(crate) use self::records::Dht;
