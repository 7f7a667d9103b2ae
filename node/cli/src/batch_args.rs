//! The raw arguments of `kolo batch`.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use std::{path::PathBuf, time::Duration};

use broker::{
    batch::{BatchObjective, Order},
    cost::Cost,
};
use clap::{Args, Subcommand};
use kolo_text::{credits::parse_credits, time::parse_duration};

use super::{grid_args::KeyArgs, request_args::one_of};

/// `kolo batch`
#[derive(Debug, Args)]
pub struct BatchCommandArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BatchCommand,
}

/// The commands of `kolo batch`.
#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Show where the requests of a file would be placed together; nothing is held
    Plan(LiveBatchArgs),
    /// Plan the requests of a file together and reserve each as planned; what cannot be had so is planned again alone
    Submit(BatchSubmitArgs),
    /// Leave the requests of a file with the node, which plans them together with all that has come since when a batch is run
    Add(BatchAddArgs),
    /// List the requests that wait for a batch, and what became of those that have waited lately
    List,
    /// Take a request off that list; one that is submitted goes on
    Drop(BatchDropArgs),
    /// Plan what waits now and reserve each as planned; with --every the node does so by itself from now on
    Run(BatchRunArgs),
}

/// A file of requests, and how they are planned.
#[derive(Debug, Args)]
pub struct LiveBatchArgs {
    /// The requests, 1 to 1,000, one JSON object a line as for kolo plan --requests; - is standard input
    #[arg(value_name = "REQUESTS.jsonl")]
    pub file: PathBuf,
    /// in-order (one after the other), slices:K (in K parts, of each part the best choice of alternatives), or one of those of kolo plan --batch
    #[arg(long, value_name = "POLICY", default_value = "slices:1")]
    pub policy: String,
    /// Whose turn is first: file (the order of the file), fcfs (by earliest), sjf, bjf (fewest, most hosts), fpfs (first that fits), spt, lpt (shortest, longest), hdf (highest demand), edf (by deadline)
    #[arg(long, value_name = "ORDER", value_parser = one_of(&Order::ALL), default_value = "file")]
    pub order: Order,
    /// What is least for all together: cost, host_time, finish (sum of the ends), makespan (last end) or run_time (sum of the hosts' last ends) [default: finish; run_time of colocate]
    #[arg(long, value_name = "OBJECTIVE", value_parser = one_of(&BatchObjective::ALL))]
    pub batch_objective: Option<BatchObjective>,
    /// All plans together cost at most this, such as 12.50 (credits)
    #[arg(long, value_name = "CREDITS", value_parser = parse_credits)]
    pub batch_budget: Option<Cost>,
    /// Most alternatives looked for of each request; fewer for a large batch [default: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub alternatives: Option<u32>,
    /// Alternatives of different requests may take the same hosts; what is chosen does not
    #[arg(long)]
    pub overlap: bool,
}

/// `kolo batch add`
#[derive(Debug, Args)]
pub struct BatchAddArgs {
    /// The requests, 1 to 1,000, one JSON object a line as for kolo plan --requests; - is standard input
    #[arg(value_name = "REQUESTS.jsonl")]
    pub file: PathBuf,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `kolo batch drop`
#[derive(Debug, Args)]
pub struct BatchDropArgs {
    /// Its id, the beginning of one, or its label
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `kolo batch run`
#[derive(Debug, Args)]
pub struct BatchRunArgs {
    /// The node does so by itself, so long after each run, until it restarts (its configuration: [batch] every), or never; for its operator
    #[arg(long, value_name = "DURATION|never", value_parser = parse_every)]
    pub every: Option<Every>,
    /// As for kolo batch plan [default: as the node is configured]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Whose turn is first, of those that were postponed and then of the others, as for kolo batch plan
    #[arg(long, value_name = "ORDER", value_parser = one_of(&Order::ALL), default_value = "file")]
    pub order: Order,
    /// What is least for all together, as for kolo batch plan
    #[arg(long, value_name = "OBJECTIVE", value_parser = one_of(&BatchObjective::ALL))]
    pub batch_objective: Option<BatchObjective>,
}

/// How often a node runs batches by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every(pub Option<Duration>);

fn parse_every(text: &str) -> Result<Every, String> {
    if text == "never" {
        return Ok(Every(None));
    }
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    let is_whole = every.subsec_nanos() == 0 && !every.is_zero();
    is_whole.then_some(Every(Some(every))).ok_or_else(|| "expected whole seconds, or never".to_owned())
}

/// `kolo batch submit`
#[derive(Debug, Args)]
pub struct BatchSubmitArgs {
    /// The batch.
    #[command(flatten)]
    pub batch: LiveBatchArgs,
    /// All of it is reserved as planned, or nothing; at most 100 requests
    #[arg(long)]
    pub together: bool,
    /// Begin with the requests of this file, and put there what this batch postpones, before anything is submitted
    #[arg(long, value_name = "REST.jsonl", conflicts_with = "together")]
    pub postponed: Option<PathBuf>,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}
