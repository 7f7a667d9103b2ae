//! `kolo`: the node of a site and the command line of its users.
//!
//! Invariant: `main` only hands over; what a run means for the shell is decided in [`cli`].

mod api;
mod cli;
mod config;
mod contact;
mod daemon;
mod entry;
#[cfg(test)]
mod fuzzing;
mod net;
mod runtime;
mod site;
mod storage;
mod text;
mod trust;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
