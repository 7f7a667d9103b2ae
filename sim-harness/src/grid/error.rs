//! What can end a run, and the exit code of each.
//!
//! Invariant: a text names the flag, file or node it is about.

use std::{io, path::PathBuf, time::Duration};

use broker::{request::RequestError, snapshot::SnapshotError};

use super::{
    client::ClientError,
    scenario::{RATE_MAX, RATE_MIN},
};

/// The command line or a file named on it is wrong (exit code 64).
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// A number is out of range.
    #[error("{flag}: expected {min} to {max}, got {value}")]
    Range {
        /// The flag.
        flag: &'static str,
        /// Least accepted.
        min: usize,
        /// Largest accepted.
        max: usize,
        /// What was given.
        value: usize,
    },
    /// There is no `kolo` binary.
    #[error("--kolo: {path} is no file: build it with `cargo build -p node`, or say where it is", path = .path.display())]
    NoKolo {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The directory of this binary is unknown.
    #[error("--kolo: the place of this binary is unknown ({source}): say where kolo is")]
    OwnPath {
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A result cannot be written where it is asked for.
    #[error("{path}: {source}", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The snapshot is malformed.
    #[error("{path}: {source}", path = .path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SnapshotError,
    },
    /// A request is malformed.
    #[error("{path}:{line}: {message}", path = .path.display())]
    RequestLine {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong, with the key.
        message: String,
    },
    /// A file holds no request.
    #[error("{path}: expected at least one request, found none", path = .path.display())]
    NoRequests {
        /// The file.
        path: PathBuf,
    },
    /// A generated request would be none.
    #[error("--hosts-per-request: {0}")]
    Generated(#[from] RequestError),
    /// Fewer sites than nodes.
    #[error("--nodes: {nodes} nodes, but {path} has only {sites} sites; a node needs one", path = .path.display())]
    FewerSitesThanNodes {
        /// The file.
        path: PathBuf,
        /// Nodes asked.
        nodes: usize,
        /// Sites found.
        sites: usize,
    },
    /// A duration cannot be read.
    #[error("{flag}: expected a number with a unit, such as 500ms, 60s, 5min or 1h, got {text:?}")]
    Duration {
        /// The flag.
        flag: &'static str,
        /// What was given.
        text: String,
    },
    /// A rate is out of range.
    #[error("--rate: expected {RATE_MIN} to {RATE_MAX} requests a second, got {per_second}")]
    Rate {
        /// What was given.
        per_second: f64,
    },
    /// A latency is too long.
    #[error("--latency: expected at most {} ms, got {} ms", .max.as_millis(), .latency.as_millis())]
    Latency {
        /// What was given.
        latency: Duration,
        /// The longest.
        max: Duration,
    },
    /// A share cannot be read.
    #[error("{flag}: expected 0% to 50%, got {text:?}")]
    Percent {
        /// The flag.
        flag: &'static str,
        /// What was given.
        text: String,
    },
    /// The machine has no memory for so many nodes.
    #[error(
        "--nodes: {nodes} nodes {how} need about {needed_mib} MiB, and {available_mib} MiB are available: take fewer{hint}"
    )]
    Memory {
        /// Nodes asked.
        nodes: usize,
        /// How they run.
        how: &'static str,
        /// What they need.
        needed_mib: u64,
        /// What there is.
        available_mib: u64,
        /// What else may help.
        hint: &'static str,
    },
    /// A flag needs another one.
    #[error("{flag} needs {missing}")]
    Missing {
        /// The flag.
        flag: &'static str,
        /// What is missing.
        missing: &'static str,
    },
    /// The system lets us make no network namespaces.
    #[error("a cut needs network namespaces that a user may make, and the programs unshare, nsenter and ip: {why}")]
    NoNamespaces {
        /// What the system said.
        why: String,
    },
    /// The directory for logs cannot be made.
    #[error("--keep-logs: {path}: {source}", path = .path.display())]
    LogDirectory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What ended a run early.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// Bad flags or files.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// A file of the run cannot be written, or a process not started.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A node process ended by itself.
    #[error("{node} ended by itself ({status}); its last log lines:\n{log_tail}")]
    Crashed {
        /// The node.
        node: String,
        /// How it ended.
        status: String,
        /// Last lines of its log.
        log_tail: String,
    },
    /// A wait reached its deadline.
    #[error("{what}: not within {limit_s} s; last state: {last}", limit_s = .limit.as_secs())]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// Last state seen.
        last: String,
    },
    /// A node did not answer as it should.
    #[error("{node}: {source}")]
    Client {
        /// The node.
        node: String,
        /// What went wrong.
        source: ClientError,
    },
}

impl GridError {
    /// Exit code of the command.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, GridError::Usage(_)) { 64 } else { 1 }
    }
}
