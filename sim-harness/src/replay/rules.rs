//! How the records of a trace become jobs.

use clap::ValueEnum;
use serde::Serialize;

/// Most jobs in one replay; about 200 bytes each.
pub const JOBS_MAX: u32 = 4_000_000;

/// What the scheduler knows of run times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtimes {
    /// How long the job will run.
    True,
    /// The user's limit.
    Estimates,
}

/// What happens at the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Overrun {
    /// The job ends there.
    Kill,
    /// The job runs on.
    Extend,
}

/// All rules.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rules {
    /// What the scheduler knows.
    pub runtimes: Runtimes,
    /// What happens at the limit.
    pub overrun: Overrun,
    /// How long a job holds its hosts after it has ended, in seconds.
    pub teardown_s: i64,
    /// Whether the tags `cl_X`, `^cl_X` and `excl` are ignored.
    pub ignores_tags: bool,
    /// Read no more jobs than this.
    #[serde(skip)]
    pub jobs_max: Option<usize>,
}

/// The name of a value on the command line.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
