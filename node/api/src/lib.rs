//! What travels over the HTTP API of a node: questions, answers and problems, with the JSON that they are and the schema that describes it.
//!
//! The node makes these documents and the command line reads them, and neither knows the other. Invariant: pure, and nothing of what a node
//! keeps is here, only what it says; a key that a newer node adds is no error to whoever reads an answer.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

pub mod accounts;
pub mod batch;
pub mod batch_run;
pub mod bookings;
pub mod explanation;
pub mod grid;
pub mod ledger;
pub mod local;
pub mod members;
pub mod notice;
pub mod plan;
pub mod prices;
pub mod problem;
pub mod queue;
pub mod receipts;
pub mod request_view;
pub mod running;
pub mod samples;
pub mod schema;
pub mod session;
pub mod signed_call;
pub mod slots;
pub mod takeover;
pub mod together;
pub mod token_call;
pub mod tokens;
pub mod upkeep;
pub mod usage;
pub mod waiting;

/// What the connection of `GET /v1/run` is upgraded to.
pub const RUN_PROTOCOL: &str = "kolo-run/1";
