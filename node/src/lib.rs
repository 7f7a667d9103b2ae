//! The node of a site and the command line of its users.
//!
//! Invariant: what other programs may use is named here: the command line, which is all of `kolo`, and what runs a node inside
//! a process that has more to do. What a run means for the shell is decided in [`cli`].

mod api;
mod cli;
mod config;
mod contact;
mod daemon;
mod entry;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod net;
mod runtime;
mod site;
mod storage;
mod text;
mod trust;

pub use self::{
    cli::run as run_command_line,
    config::{ConfigError, NodeConfig, load_in_process},
    daemon::{DaemonError, run_until, start_log, stop_signal},
    runtime::open_files::raise as raise_open_files,
};
