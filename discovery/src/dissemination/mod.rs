//! Dissemination of adverts and schedules.
//!
//! - A change of this site's ledger waits in the `outbox`, is signed, and goes with the changes of other sites through the `bundler`
//!   to the neighbours (`gossip`), which check it (signatures in `checks`), apply it to the view, and bundle it for theirs.
//! - A gap in a site's schedules, and a site without any, goes into the `fetch_queue`; `fetching` asks the site itself.
//! - Adverts that gossip missed come by `exchange` with a neighbour, after a start and now and then.
//! - After a cut of the network, `reunion` joins the two meshes of gossip.

mod bundler;
mod checks;
pub mod exchange;
pub(crate) mod fetch_queue;
pub(crate) mod fetching;
mod gossip;
pub mod outbox;
mod pace;
mod reunion;

#[cfg(test)]
pub(crate) use self::checks::Checker;
pub(crate) use self::{
    checks::{Checked, Checks},
    gossip::{Gossip, Verdict},
    reunion::{Favour, Reunion},
};
