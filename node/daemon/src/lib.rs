//! The node of a site: its ledger, the entry point for requests, and the API with its page.
//!
//! Invariant: nothing that only speaks to a node, or looks at one that is stopped, needs this crate: the API's documents, settings and
//! storage are crates below it. No feature changes the code, so that tests run what is shipped.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

pub mod api;
pub mod daemon;
mod entry;
pub mod net;
pub mod notices;
mod seats;
pub mod site;
