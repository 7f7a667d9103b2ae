//! Notices about requests: the node sends them for its operator, `kolo watch` prints them for a user.

pub mod notice;
mod receiver;
mod teller;

pub use self::teller::Teller;
