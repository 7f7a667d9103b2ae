//! The raw arguments of `kolo run` and of the commands about what runs.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use kolo_seat::peers::order::PeerPort;
use kolo_text::time::parse_duration;

use super::{grid_args::KeyArgs, request_args::RequestArgs};

/// The key of a request that also says in what its command runs.
const IMAGE: &str = "image";

/// Which seats get the standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum StdinTo {
    /// The first seat
    #[default]
    First,
    /// Every seat gets all of it
    All,
    /// No seat
    None,
}

/// `kolo run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The request of a new reservation.
    #[command(flatten)]
    pub request: RequestArgs,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
    /// Run in this reservation (id, unique beginning of an id, label, or `last`) instead of making one
    #[arg(long = "in", value_name = "REQUEST")]
    pub within: Option<String>,
    /// Only on these seats, from 0 on, such as 0,2
    #[arg(long, value_name = "SEATS", value_delimiter = ',')]
    pub on: Vec<u32>,
    /// Run each line of this file as a command, each once, on whichever seat is free; - is the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "stdin")]
    pub each: Option<PathBuf>,
    /// Send the files below this directory first; the command finds them in the directory that it starts in
    #[arg(long, value_name = "DIR")]
    pub send: Option<PathBuf>,
    /// Fetch the files with such names when it has ended, such as 'out/*.csv'; may be repeated
    #[arg(long, value_name = "PATTERN", conflicts_with = "detach")]
    pub fetch: Vec<String>,
    /// Where fetched files go, into a directory seat-N for each seat
    #[arg(long, value_name = "DIR", default_value = ".", requires = "fetch")]
    pub into: PathBuf,
    /// Which seats get the standard input
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub stdin: StdinTo,
    /// Give the command a terminal, with all keys of this one; on one seat. Enter ~. leaves it running
    #[arg(long, conflicts_with_all = ["each", "detach", "stdin"])]
    pub pty: bool,
    /// A variable of the command's environment; without a value that of this one; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Let the seats reach each other at this port, or only the seat of this rank; KOLO_HOSTS names their addresses; may be repeated
    #[arg(long, value_name = "[RANK:]PORT")]
    pub port: Vec<PeerPort>,
    /// Directory that the command starts in, at the sites; relative to its own scratch directory
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// The first seat that fails ends all
    #[arg(short = 'K', long)]
    pub kill_on_failure: bool,
    /// So long after the first seat has ended, the others are ended
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub exit_timeout: Option<Duration>,
    /// Leave it running once it has started everywhere, and print the id of its reservation
    #[arg(long)]
    pub detach: bool,
    /// Keep the reservation for the rest of its time
    #[arg(long)]
    pub keep: bool,
    /// Wait no longer than this for the reservation
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// The command and its arguments, behind all flags, or behind --
    #[arg(trailing_var_arg = true, required_unless_present = "each", conflicts_with = "each", num_args = 1.., value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl RunArgs {
    /// Whether the flags or a file say something of a reservation that is to be made.
    pub fn describes_new(&self) -> bool {
        self.request.file.is_some() || self.request.words.iter().any(|(key, _)| key.name != IMAGE)
    }

    /// The image that the flags name, as it stands there.
    pub fn image(&self) -> Option<&str> {
        self.request.words.iter().find(|(key, _)| key.name == IMAGE)?.1.last().map(String::as_str)
    }
}

/// Which runs are meant.
#[derive(Debug, Args)]
pub struct SeatsArgs {
    /// Id of the reservation, unique beginning of an id, label, or `last`
    #[arg(value_name = "REQUEST")]
    pub selector: String,
    /// Only on these seats, from 0 on, such as 0,2
    #[arg(long, value_name = "SEATS", value_delimiter = ',')]
    pub on: Vec<u32>,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `kolo cp`
#[derive(Debug, Args)]
pub struct CpArgs {
    /// What is copied: a file or directory here, or REQUEST[/SEAT]:PATH
    #[arg(value_name = "FROM")]
    pub from: String,
    /// Where it goes: REQUEST[/SEAT]:PATH, or a directory here
    #[arg(value_name = "TO")]
    pub to: String,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// How SSH reaches a seat.
#[derive(Debug, Clone, Default, Args)]
pub struct SshKeyArgs {
    /// Your private key for SSH, of kind Ed25519, with its public one in FILE.pub [default: ssh.key beside user.key, made when it is not there]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `kolo ssh`
#[derive(Debug, Args)]
pub struct SshArgs {
    /// The seat: id of the reservation, unique beginning of an id, label, or `last`, and behind it the seat, from 0 on, where there are several
    #[arg(value_name = "REQUEST[/SEAT]")]
    pub seat: String,
    /// The keys.
    #[command(flatten)]
    pub keys: SshKeyArgs,
    /// What `ssh` gets as well: a command, or behind -- its own options
    #[arg(trailing_var_arg = true, value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
}

/// `kolo ssh-config`
#[derive(Debug, Args)]
pub struct SshConfigArgs {
    /// Id of the reservation, unique beginning of an id, label, or `last`
    #[arg(value_name = "REQUEST")]
    pub selector: String,
    /// The keys.
    #[command(flatten)]
    pub keys: SshKeyArgs,
}

/// `kolo ssh-proxy`
#[derive(Debug, Args)]
pub struct SshProxyArgs {
    /// The seat, as for `kolo ssh`
    #[arg(value_name = "REQUEST[/SEAT]")]
    pub seat: String,
    /// The keys.
    #[command(flatten)]
    pub keys: SshKeyArgs,
}

/// `kolo attach`
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Which.
    #[command(flatten)]
    pub seats: SeatsArgs,
    /// Which seats get the standard input
    #[arg(long, value_enum, default_value_t = StdinTo::None, value_name = "WHICH")]
    pub stdin: StdinTo,
    /// The command has a terminal: it gets all keys of this one; one seat. Enter ~. leaves it running
    #[arg(long, conflicts_with = "stdin")]
    pub pty: bool,
}

/// `kolo logs`
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Which.
    #[command(flatten)]
    pub seats: SeatsArgs,
    /// Go on until it has ended
    #[arg(short, long)]
    pub follow: bool,
}

/// `kolo ps`
#[derive(Debug, Args)]
pub struct PsArgs {
    /// Only of this reservation: id, unique beginning of an id, label, or `last`
    #[arg(value_name = "REQUEST")]
    pub selector: Option<String>,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}
