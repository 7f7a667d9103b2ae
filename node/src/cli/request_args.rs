//! The raw arguments of the commands that describe a request.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use std::{path::PathBuf, time::Duration};

use broker::{request::Effort, time::Span};
use clap::Args;

use super::grid_args::KeyArgs;
use crate::{
    api::slots::Mode,
    config::parse_effort,
    text::time::{parse_duration, parse_span},
};

/// A request, as typed.
#[derive(Debug, Clone, Default, Args)]
pub struct RequestArgs {
    /// Read the request from a file (TOML, or JSON as *.json); flags win over it
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// How many hosts
    #[arg(short = 'N', long, value_name = "COUNT")]
    pub hosts: Option<u32>,
    /// How long, such as 2:00:00, 2h30m or 90min
    #[arg(short = 't', long, value_name = "DURATION")]
    pub duration: Option<String>,
    /// What all hosts together must give, such as memory=40GiB; may be repeated
    #[arg(long, value_name = "RESOURCE=AMOUNT", value_delimiter = ',')]
    pub total: Vec<String>,
    /// What every single host must give, such as cpu=1; may be repeated
    #[arg(long, value_name = "RESOURCE=AMOUNT", value_delimiter = ',')]
    pub per_host: Vec<String>,
    /// Earliest start, such as +3h, tomorrow 08:00 or 2026-11-21T08:00+01:00 [default: now]
    #[arg(long, value_name = "TIME", num_args = 1..=2)]
    pub earliest: Vec<String>,
    /// Latest start, such as +1d or tomorrow 08:00 [default: the node's reach behind the earliest]
    #[arg(long, value_name = "TIME", num_args = 1..=2)]
    pub latest: Vec<String>,
    /// Attribute that every host must have, such as arch=x86_64; may be repeated
    #[arg(long = "where", value_name = "KEY=VALUE")]
    pub attributes: Vec<String>,
    /// Choose among these hosts only; may be repeated
    #[arg(long = "candidate", value_name = "HOST", num_args = 1..)]
    pub candidates: Vec<String>,
    /// How hard to look: fast, balanced, thorough [default: the node's]
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    pub effort: Option<Effort>,
    /// If lost hosts cannot be replaced at the reservation's start, choose all hosts again at another start inside the window
    #[arg(long)]
    pub move_on_loss: bool,
    /// Label of your own, by which the request can be named later
    #[arg(long, value_name = "LABEL")]
    pub id: Option<String>,
}

/// `kolo submit`
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Script whose #KOLO lines hold flags of the request, as in `#KOLO --hosts 5`; it is not run
    #[arg(value_name = "SCRIPT")]
    pub script: Option<PathBuf>,
    /// The request.
    #[command(flatten)]
    pub request: RequestArgs,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
    /// Print the id and do not wait
    #[arg(long)]
    pub no_wait: bool,
    /// Wait no longer than this; the request goes on
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "no_wait")]
    pub timeout: Option<Duration>,
}

/// The flags that write a single request; offline, requests come from a file.
const REQUEST_FLAGS: [&str; 11] = [
    "script",
    "request",
    "hosts",
    "duration",
    "total",
    "per_host",
    "earliest",
    "latest",
    "attributes",
    "candidates",
    "id",
];

/// `kolo plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Script whose #KOLO lines hold flags of the request, as for kolo submit
    #[arg(value_name = "SCRIPT")]
    pub script: Option<PathBuf>,
    /// The request; asks the node for its present view.
    #[command(flatten)]
    pub request: RequestArgs,
    /// Plan offline on this snapshot (kolo-grid/1) instead
    #[arg(long, value_name = "GRID.json", requires = "requests")]
    pub grid: Option<PathBuf>,
    /// Requests to plan offline, one JSON object a line; - is standard input
    #[arg(long, value_name = "REQUESTS.jsonl", requires = "grid", conflicts_with_all = REQUEST_FLAGS)]
    pub requests: Option<PathBuf>,
    /// Offline: what is allocated occupies the snapshot for the requests after it
    #[arg(long, requires = "grid")]
    pub commit: bool,
    /// Offline: seed of the random choices
    #[arg(long, requires = "grid", value_name = "SEED")]
    pub seed: Option<u64>,
}

/// `kolo slots`
#[derive(Debug, Args)]
pub struct SlotsArgs {
    /// Script whose #KOLO lines hold flags of the request, as for kolo submit
    #[arg(value_name = "SCRIPT")]
    pub script: Option<PathBuf>,
    /// What to look for; --hosts may be left out for most and at
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub mode: Mode,
    /// The request.
    #[command(flatten)]
    pub request: RequestArgs,
    /// The start that --mode at asks about, such as +3h [default: now]
    #[arg(long, value_name = "TIME", num_args = 1..=2)]
    pub at: Vec<String>,
}

/// `kolo extend`
#[derive(Debug, Args)]
pub struct ExtendArgs {
    /// Id, unique beginning of an id, label, or `last`
    #[arg(value_name = "REQUEST")]
    pub selector: String,
    /// How much longer, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub by: Span,
    /// The user's key.
    #[command(flatten)]
    pub key: KeyArgs,
}
