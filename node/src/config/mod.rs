//! The configuration of a node in two layers: what is written ([`file::ConfigFile`], the same struct for the file and
//! for the flags) and what is in force ([`NodeConfig`]).
//!
//! Invariant: a [`NodeConfig`] is complete and checked, relations between values included; the daemon never meets a
//! missing or a contradicting one. Flags win over the file, the file over the defaults.

mod activation;
mod args;
pub mod disk;
mod file;
mod hosts;
mod load;
mod local;
mod machine;
mod places;
mod policy;
mod print;
mod program;
mod remote;
mod resolve;

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use broker::{
    host::Host, ledger::LedgerLimits, negotiation::NegotiationSettings, resources::Attributes, schedule::Schedule,
    trust::OwnerPolicy,
};
use clap::ValueEnum;
use serde::Deserialize;

use crate::{
    text::document::DocumentError,
    trust::{GridFile, TrustFileError},
};

pub use activation::ActivationConfig;
pub use args::{NodeArgs, parse_effort};
pub use hosts::HostTable;
pub use load::load;
pub use local::LocalConfig;
pub use places::Surroundings;
pub use print::print_config;
pub use remote::RemoteConfig;

/// The file in the data directory that holds the real address of the local API, as `address:port`.
pub const API_ADDRESS_FILE: &str = "api.address";
/// The file in the data directory that holds the token of the local API (mode 0600).
pub const API_TOKEN_FILE: &str = "api.token";
/// Where the local API listens unless told otherwise.
pub const DEFAULT_API: &str = "127.0.0.1:7740";

/// The configuration in force.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// Where identity, ledger and tokens are kept; absolute.
    pub data_dir: PathBuf,
    /// What people call the site; not unique.
    pub name: String,
    /// The grid to belong to: kept in the data directory, or configured, and open then. Absent at the first start of a
    /// node that makes a grid of its own.
    pub grid: Option<GridFile>,
    /// Multiaddrs to listen on; at least one.
    pub listen: Vec<String>,
    /// Multiaddrs that others are told in the place of those; none tells those.
    pub announce: Vec<String>,
    /// Multiaddrs of nodes of the grid, where the first peers are found.
    pub bootstrap: Vec<String>,
    /// How users reach the hosts, with places for host, user and request; none tells nothing.
    pub contact: Option<String>,
    /// Where the local API listens; loopback. Port 0 lets the system choose.
    pub api: SocketAddr,
    /// Where and how browsers of other machines are served, if they are (`[remote]`).
    pub remote: Option<RemoteConfig>,
    /// Where the hosts come from.
    pub host_source: HostSource,
    /// The site's hosts, from that source.
    pub hosts: Vec<OwnHost>,
    /// How requests are planned and negotiated when this node is their entry point (`[planner]`, `[negotiation]`).
    pub negotiation: NegotiationSettings,
    /// What this site grants (`[ledger]`).
    pub ledger: LedgerLimits,
    /// Whom this site grants what (`[policy]`).
    pub policy: OwnerPolicy,
    /// The owner's hook (`[activation]`).
    pub activation: ActivationConfig,
    /// The program that tells what the owner's own work takes (`[local]`).
    pub local: LocalConfig,
    /// How schedule changes are told.
    pub gossip: GossipConfig,
    /// How long requests that are over are remembered.
    pub history_keep: Duration,
    /// What is logged.
    pub log: LogConfig,
}

/// Where the hosts of the site come from.
#[derive(Debug, Clone, PartialEq)]
pub enum HostSource {
    /// A `kolo-grid/1` snapshot.
    File(PathBuf),
    /// `[[hosts]]` tables.
    Listed(Vec<HostTable>),
    /// The machine that the node runs on.
    Machine {
        /// How much of it is offered.
        share: Percent,
        /// Attributes beside `arch` and `os`.
        attributes: Attributes,
    },
}

/// One host of the site.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnHost {
    /// Its description.
    pub host: Host,
    /// The owner's own work, which Kolo plans around.
    pub own_work: Schedule,
}

/// `[gossip]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GossipConfig {
    /// Least time between two messages with schedule changes.
    pub interval: Duration,
    /// Between two checks of schedules that were heard of longest ago.
    pub recheck: Duration,
    /// Sites that are asked for their schedules when they are met; of a larger grid the others are asked one by one.
    pub asked_when_met: usize,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// How lines look.
    pub format: LogFormat,
    /// Which lines are written, in the syntax of `tracing_subscriber::EnvFilter`.
    pub filter: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// A share of 1 to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// What of the machine is offered unless told otherwise: the owner keeps half.
    pub const HALF: Percent = Percent(50);

    /// Reads `50%`.
    ///
    /// # Errors
    /// What was expected, when the text is not a whole number from 1 to 100 with its sign.
    pub fn parse(text: &str) -> Result<Percent, String> {
        text.trim()
            .strip_suffix('%')
            .and_then(|number| number.trim_end().parse::<u8>().ok())
            .filter(|percent| (1..=100).contains(percent))
            .map(Percent)
            .ok_or_else(|| format!("{text:?}: expected 1% to 100%"))
    }

    /// The number before the sign.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// This share of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.0) / 100;
        u64::try_from(part).unwrap_or(whole)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// Why a configuration is not in force.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read, or its text is wrong.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A value is wrong, or contradicts another. `place` names file and key, or the flag.
    #[error("{place}: {message}")]
    Value {
        /// Where the value comes from.
        place: String,
        /// What is wrong and what was expected.
        message: String,
    },
    /// What the data directory says of the grid is wrong.
    #[error(transparent)]
    Grid(#[from] TrustFileError),
    /// The machine could not be looked at.
    #[error("cannot detect this machine: {0}; list it under [[hosts]] instead")]
    Machine(String),
    /// No home to keep data in.
    #[error("no data directory: neither XDG_DATA_HOME nor HOME is set; name one with --data-dir")]
    NoDataDir,
    /// Bootstrap addresses without a grid.
    #[error(
        "{place}: bootstrap addresses are given, but no grid: say which with --grid ID; the other node prints it in its \
         join line when it starts"
    )]
    BootstrapWithoutGrid {
        /// Where the addresses come from.
        place: String,
    },
}

#[cfg(test)]
mod tests;
