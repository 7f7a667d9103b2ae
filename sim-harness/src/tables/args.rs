//! What `kolo-sim tables` accepts.

use std::path::PathBuf;

use broker::request::Effort;
use clap::{Args, ValueEnum};

/// Plan a set of collective requests and the same requests made simple, and print the source's tables.
#[derive(Debug, Args)]
pub struct TablesArgs {
    /// The grid: a `kolo-grid/1` snapshot.
    #[arg(long, value_name = "FILE")]
    pub grid: PathBuf,
    /// Collective requests, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub collective: PathBuf,
    /// The same requests, simple: line for line the same N, duration and window.
    #[arg(long, value_name = "FILE")]
    pub simple: Option<PathBuf>,
    /// Proven earliest starts of the collective requests, to count late answers.
    #[arg(long, value_name = "FILE")]
    pub exact: Option<PathBuf>,
    /// Proven earliest starts of the simple requests.
    #[arg(long, value_name = "FILE")]
    pub exact_simple: Option<PathBuf>,
    /// Write the plan lines of the collective requests here.
    #[arg(long, value_name = "FILE")]
    pub plans: Option<PathBuf>,
    /// Write the plan lines of the simple requests here.
    #[arg(long, value_name = "FILE")]
    pub plans_simple: Option<PathBuf>,
    /// How much work the planner may spend on a request.
    #[arg(long, value_enum, default_value_t = EffortArg::Balanced)]
    pub effort: EffortArg,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Plan every request this often, in both versions, and take the least time of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Leave the textbook version out (it takes most of the time).
    #[arg(long)]
    pub no_textbook: bool,
    /// How the tables are printed.
    #[arg(long, value_enum, default_value_t = OutputArg::Table)]
    pub output: OutputArg,
}

/// An effort on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EffortArg {
    /// Least time.
    Fast,
    /// The default.
    Balanced,
    /// Best answers.
    Thorough,
}

impl From<EffortArg> for Effort {
    fn from(effort: EffortArg) -> Effort {
        match effort {
            EffortArg::Fast => Effort::Fast,
            EffortArg::Balanced => Effort::Balanced,
            EffortArg::Thorough => Effort::Thorough,
        }
    }
}

/// How the tables are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputArg {
    /// For people.
    Table,
    /// One JSON object.
    Json,
}
