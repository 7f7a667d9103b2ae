//! Notices about requests, which the node sends for its operator.

mod receiver;
mod teller;

pub use self::teller::Teller;
