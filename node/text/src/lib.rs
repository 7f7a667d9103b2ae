//! Text that people write and read: times, durations, files, requests, and words for what is shown.
//!
//! Invariant: nothing here knows of the daemon, the API or the command line; all of them use it.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

pub mod credits;
pub mod document;
pub mod needs;
pub mod price;
pub mod request_file;
pub mod request_keys;
pub mod resource;
pub mod safe;
pub mod scale;
pub mod speed;
pub mod time;
pub mod traffic;
pub mod words;
