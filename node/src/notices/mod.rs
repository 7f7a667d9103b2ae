//! Notices: what people are told of requests, by the node for its operator and by `kolo watch` for a user.

pub mod notice;
mod receiver;
mod teller;

pub use self::teller::Teller;
