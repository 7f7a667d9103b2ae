//! The raw arguments of `kolo local`.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use broker::time::Span;
use clap::{Args, Subcommand};

use crate::text::time::parse_span;

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
    /// Take this site's hosts back from a request; its user gets others if there are any
    Evict(LocalEvictArgs),
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
    /// Cores, such as 4 or 2.5 [default, when nothing is said to be used: all of the host]
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
