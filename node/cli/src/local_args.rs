//! The raw arguments of `kolo local`.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use std::path::PathBuf;

use broker::time::Span;
use clap::{Args, Subcommand};
use kolo_text::time::parse_span;

/// `kolo local`
#[derive(Debug, Args)]
pub struct LocalArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LocalCommand,
}

/// The commands of `kolo local`.
#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Enter own work on a host of this site
    Add(LocalAddArgs),
    /// List own work that was entered, and what users of the grid have of this site
    List,
    /// Remove own work, and give the rest of its time to the grid
    Remove(LocalRemoveArgs),
    /// The own queue: jobs of the owner that the site may move until they begin
    Queue(QueueArgs),
    /// Take this site's hosts back from a request; its user gets others if there are any
    Evict(LocalEvictArgs),
    /// List what users run on this site's hosts
    Running(LocalRunningArgs),
    /// End what a request runs on this site's hosts, at once
    End(LocalEndArgs),
    /// End what all users run on this site's hosts, at once, and let nothing start until `kolo local resume`; what is reserved stays
    StopAll(LocalStopArgs),
    /// Let users run commands on this site's hosts again
    Resume,
}

/// `kolo local stop-all`
#[derive(Debug, Args)]
pub struct LocalStopArgs {
    /// Reason that users are told
    #[arg(long, value_name = "TEXT", default_value = "the owner needs the machine")]
    pub reason: String,
}

/// `kolo local running`
#[derive(Debug, Args)]
pub struct LocalRunningArgs {
    /// Show what each account takes of this site instead: runs, their output, streams, open files
    #[arg(long)]
    pub accounts: bool,
}

/// `kolo local add`
#[derive(Debug, Args)]
pub struct LocalAddArgs {
    /// The host [default: the only one of the site]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Start, such as +3h or tomorrow 08:00 [default: now]
    #[arg(long, value_name = "TIME", num_args = 1..=2)]
    pub from: Vec<String>,
    /// End, such as +5h or tomorrow 18:00
    #[arg(long, value_name = "TIME", num_args = 1..=2, required_unless_present = "duration")]
    pub until: Vec<String>,
    /// How long, in place of the end
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_span, conflicts_with = "until")]
    pub duration: Option<Span>,
    /// What it uses [default: all of the host]
    #[command(flatten)]
    pub amounts: AmountArgs,
}

/// `kolo local queue`
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: QueueCommand,
}

/// The commands of `kolo local queue`.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Add a job, or those of a file; each begins by itself when its hosts are free
    Add(JobArgs),
    /// List the jobs, with where and when each runs or is planned to run
    List,
    /// Take a job out, whether it waits or runs
    Remove(JobIdArgs),
    /// Say that a job that runs has ended early: what waits moves forward
    Done(JobIdArgs),
    /// Say that a job takes longer: what waits moves back
    Extend(JobLongerArgs),
}

/// `kolo local queue add`
#[derive(Debug, Args)]
pub struct JobArgs {
    /// File with [[job]] tables (TOML, or JSON with a list "job"), each with length, amounts, and perhaps id, hosts, deadline, preempt
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "length", "deadline", "hosts", "preempt", "cpu", "memory", "disk", "gpu", "uses"])]
    pub file: Option<PathBuf>,
    /// Its name [default: a new one]
    #[arg(long, value_name = "NAME")]
    pub id: Option<String>,
    /// How long it runs
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_span, required_unless_present = "file")]
    pub length: Option<Span>,
    /// When it should have ended, such as tomorrow 08:00
    #[arg(long, value_name = "TIME", num_args = 1..=2)]
    pub deadline: Vec<String>,
    /// How many hosts it runs on
    #[arg(short = 'N', long, value_name = "COUNT", default_value_t = 1)]
    pub hosts: u32,
    /// It may be stopped while it runs, and begin anew later, where a user's hold finds no room otherwise
    #[arg(long)]
    pub preempt: bool,
    /// What it uses of each host
    #[command(flatten)]
    pub amounts: AmountArgs,
}

/// A job of the own queue.
#[derive(Debug, Args)]
pub struct JobIdArgs {
    /// Id, or the unique beginning of one
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `kolo local queue extend`
#[derive(Debug, Args)]
pub struct JobLongerArgs {
    /// Id, or the unique beginning of one
    #[arg(value_name = "ID")]
    pub id: String,
    /// How much longer it takes
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_span)]
    pub longer: Span,
}

/// What own work uses of a host.
#[derive(Debug, Args)]
pub struct AmountArgs {
    /// Cores, such as 4 or 2.5
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory, such as 8GiB
    #[arg(long, value_name = "AMOUNT")]
    pub memory: Option<String>,
    /// Disk, such as 100GiB
    #[arg(long, value_name = "AMOUNT")]
    pub disk: Option<String>,
    /// GPUs
    #[arg(long, value_name = "COUNT")]
    pub gpu: Option<String>,
    /// Any other resource; may be repeated
    #[arg(long = "use", value_name = "RESOURCE=AMOUNT", value_delimiter = ',')]
    pub uses: Vec<String>,
}

/// `kolo local remove`
#[derive(Debug, Args)]
pub struct LocalRemoveArgs {
    /// Id, or the unique beginning of one
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `kolo local evict`
#[derive(Debug, Args)]
pub struct LocalEvictArgs {
    /// Id of the request, or the unique beginning of one
    #[arg(value_name = "REQUEST")]
    pub request: String,
}

/// `kolo local end`
#[derive(Debug, Args)]
pub struct LocalEndArgs {
    /// Id of the request, or the unique beginning of one
    #[arg(value_name = "REQUEST")]
    pub request: String,
    /// Only on this seat
    #[arg(long, value_name = "SEAT")]
    pub seat: Option<u32>,
    /// What its user is told
    #[arg(long, value_name = "TEXT", default_value = "the owner needs the machine")]
    pub reason: String,
}
