//! The raw arguments.
//!
//! Invariant: this file says what can be typed and nothing about what it does; texts with a meaning of their own (times,
//! amounts) stay texts here and are checked where all that they depend on is known.

use std::path::PathBuf;

use broker::request::Effort;
use clap::{Args, Parser, Subcommand};

use super::{
    grid_args::{GridArgs, JoinArgs, KeyArgs},
    output::OutputFormat,
};
use crate::config::{NodeArgs, parse_effort};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failure, 2 no placement in the window, 3 grid or node not reachable, \
                          4 refused by policy, 64 bad usage.";

/// Pools machines of many sites: ask any node for N hosts together and get a reservation, or a clear no
#[derive(Debug, Parser)]
#[command(name = "kolo", version, after_help = EXIT_CODES, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct GlobalArgs {
    /// Local API: where `kolo node` listens [default: 127.0.0.1:7740], and where other commands ask [default: KOLO_API,
    /// else the address that the node left in the data directory, else 127.0.0.1:7740]
    #[arg(long, global = true, value_name = "URL|ADDR")]
    pub api: Option<String>,
    /// File with the API token [default: KOLO_TOKEN_FILE, else api.token in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Where a node keeps its data [default: $XDG_DATA_HOME/kolo or ~/.local/share/kolo]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: OutputFormat,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the node of a site
    Node(Box<NodeArgs>),
    /// Run many nodes in one process, to test large grids
    #[command(hide = true)]
    NodeGroup(NodeGroupArgs),
    /// Ask for hosts and wait for the reservation
    Submit(SubmitArgs),
    /// Say where a request would be placed, and hold nothing
    Plan(PlanArgs),
    /// List requests made through this node
    List(ListArgs),
    /// Show one request
    Show(SelectorArgs),
    /// Say why a request was placed as it was, or why it was not
    Explain(SelectorArgs),
    /// Cancel a request and free its hosts
    Cancel(SelectorArgs),
    /// See whether a reservation is still whole, and look for others in the place of lost hosts
    Repair(RepairArgs),
    /// List the sites of the grid, as this node knows them
    Sites,
    /// List the hosts of the grid, as this node knows them
    Hosts,
    /// Make a grid, invite to it, revoke, show it
    Grid(GridArgs),
    /// Join a grid with a token
    Join(JoinArgs),
    /// Look for what is wrong with a data directory, and say what to do about it
    Doctor(DoctorArgs),
}

/// `kolo node-group`
#[derive(Debug, Args)]
pub struct NodeGroupArgs {
    /// Configuration files, one a node
    #[arg(required = true, value_name = "FILE")]
    pub configs: Vec<PathBuf>,
}

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
    /// Earliest start, such as now+1h or 2026-11-21T08:00+01:00 [default: now]
    #[arg(long, value_name = "TIME", num_args = 1..=2)]
    pub earliest: Vec<String>,
    /// Latest start, such as tomorrow 08:00 [default: the node's reach behind the earliest]
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
    /// When hosts of the reservation are lost and cannot be replaced at its start, take all hosts anew at another start
    /// inside the window
    #[arg(long)]
    pub move_on_loss: bool,
    /// Label of your own, by which the request can be named later
    #[arg(long, value_name = "LABEL")]
    pub id: Option<String>,
}

/// `kolo submit`
#[derive(Debug, Args)]
pub struct SubmitArgs {
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
    #[arg(long, value_name = "DURATION", conflicts_with = "no_wait")]
    pub timeout: Option<String>,
}

/// The flags that write a single request; offline, requests come from a file.
const REQUEST_FLAGS: [&str; 10] =
    ["request", "hosts", "duration", "total", "per_host", "earliest", "latest", "attributes", "candidates", "id"];

/// `kolo plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
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

/// `kolo list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// How many, newest first
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

/// `kolo doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Make a new ledger of what can be read of a damaged one; the rest is forgotten, and the damaged files are kept
    #[arg(long)]
    pub salvage: bool,
}

/// A command about one request.
#[derive(Debug, Args)]
pub struct SelectorArgs {
    /// Id, unique beginning of an id, label, or `last`
    #[arg(value_name = "REQUEST")]
    pub selector: String,
}

/// `kolo repair`.
#[derive(Debug, Clone, Args)]
pub struct RepairArgs {
    /// Id, unique beginning of an id, label, or `last`; the whole id when the request was made through another node, which
    /// is gone
    #[arg(value_name = "REQUEST")]
    pub selector: String,
    /// The user's key.
    #[command(flatten)]
    pub key: KeyArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_may_be_two_words_without_quotes() {
        let cli =
            Cli::try_parse_from(["kolo", "submit", "--latest", "tomorrow", "08:00", "-N", "5", "-t", "2h"]).unwrap();
        let Command::Submit(submit) = cli.command else { panic!("not submit") };
        assert_eq!(submit.request.latest, ["tomorrow", "08:00"]);
        assert_eq!(submit.request.hosts, Some(5));
    }

    #[test]
    fn offline_flags_need_each_other() {
        for line in [
            &["kolo", "plan", "--grid", "g.json"][..],
            &["kolo", "plan", "--requests", "r.jsonl"],
            &["kolo", "plan", "--commit", "-N", "1"],
            &["kolo", "plan", "--grid", "g.json", "--requests", "r.jsonl", "-N", "1"],
            &["kolo", "submit", "--no-wait", "--timeout", "1h"],
            &["kolo", "list", "--limit", "0"],
            &["kolo", "show"],
            &["kolo", "frobnicate"],
        ] {
            assert!(Cli::try_parse_from(line).is_err(), "{line:?}");
        }
    }
}
