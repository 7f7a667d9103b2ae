//! The node's modules as a library, for fuzzing only: without the feature `fuzzing` it is empty, and nothing depends on it.
//!
//! Invariant: it has no code of its own; the binary is the program.
#![cfg(feature = "fuzzing")]
// Only the targets are called from outside.
#![allow(dead_code)]

mod api;
mod cli;
mod config;
mod contact;
mod daemon;
mod entry;
pub mod fuzzing;
mod net;
mod runtime;
mod site;
mod storage;
mod text;
mod trust;
