//! The raw arguments.
//!
//! Invariant: this file says what can be typed and nothing about what it does; texts whose meaning depends on something else
//! (times on the present and the zone, amounts on their resource) stay texts here and are checked where that is known.

use std::{path::PathBuf, time::Duration};

use broker::time::Span;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use kolo_config::NodeArgs;
use kolo_text::time::{parse_duration, parse_span};

use super::{
    backup_args::{BackupArgs, RestoreArgs},
    batch_args::BatchCommandArgs,
    grid_args::{GridArgs, JoinArgs, KeyArgs},
    keeper_args::{AsUserArgs, InSandboxArgs, KeeperArgs, SshServerArgs},
    local_args::LocalArgs,
    output::OutputFormat,
    request_args::{ExtendArgs, PlanArgs, SlotsArgs, SubmitArgs},
    run_args::{AttachArgs, CpArgs, LogsArgs, PsArgs, RunArgs, SshArgs, SshConfigArgs, SshProxyArgs},
    token_args::TokenArgs,
};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failure, 2 no placement in the window, 3 grid or node not reachable, \
                          4 refused by policy, 64 bad usage.";

const SURROUNDINGS: &str =
    "Exit codes: 0 done, 1 failure, 2 no placement in the window, 3 grid or node not reachable, \
4 refused by policy, 64 bad usage.

Environment: KOLO_API, KOLO_TOKEN_FILE and KOLO_CA_FILE stand for --api, --token-file and --ca-file, KOLO_KEY for --key, KOLO_BUDGET for the \
--budget of requests without one, as does budget = \"CREDITS\" in user.toml; \
NO_COLOR switches colours off; TZ is the zone of times.

Files: api.sock in the data directory lets in the user of the node that runs here, and root, without a token; api.address and api.token tell where \
it listens and what opens it; user.key in \
$XDG_CONFIG_HOME/kolo or the data directory signs requests, and calls about them when there is no token; user.toml is beside it in the former.";

/// Pools machines of many sites: ask any node for N hosts together and get a reservation, or a clear no
#[derive(Debug, Parser)]
#[command(name = "kolo", version, after_help = EXIT_CODES, after_long_help = SURROUNDINGS, propagate_version = true)]
#[command(max_term_width = 110)]
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
    /// else the socket in the data directory, else the address that the node left there, else 127.0.0.1:7740]
    #[arg(long, global = true, value_name = "URL|ADDR")]
    pub api: Option<String>,
    /// File with the API token, which opens the API where the socket does not [default: KOLO_TOKEN_FILE, else api.token in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) of the authority that signed the certificate of an https address [default: KOLO_CA_FILE, else those of the system]
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
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
    /// Ask for hosts and wait for the reservation
    Submit(SubmitArgs),
    /// Run a command on every host of a reservation: a new one for just as long as it takes, or one that stands
    Run(Box<RunArgs>),
    /// Go on watching a run that was left, and send it signals
    Attach(AttachArgs),
    /// Show what a run has printed
    Logs(LogsArgs),
    /// List what runs on the seats of your reservations
    Ps(PsArgs),
    /// Log in to a seat by the `ssh` that is installed here, or run a command there
    Ssh(SshArgs),
    /// Print what `ssh`, `scp`, `rsync` and editors need to reach the seats of a reservation, for ~/.ssh/config
    SshConfig(SshConfigArgs),
    /// Carry SSH to a seat on the standard input and output, as a ProxyCommand
    SshProxy(SshProxyArgs),
    /// Copy files into the directory of what runs on a seat, or from there
    Cp(CpArgs),
    /// Show where a request would be placed; nothing is held
    Plan(PlanArgs),
    /// Plan many requests together, and reserve them
    Batch(BatchCommandArgs),
    /// Show when hosts are free, and how many
    Slots(SlotsArgs),
    /// List requests made through this node
    List(ListArgs),
    /// Show what hosts have cost, what this site has earned, and what commands have used of what was reserved here; Kolo moves no money
    Usage(UsageArgs),
    /// Show one request
    Show(SelectorArgs),
    /// Explain why a request was placed as it was, or why not
    Explain(SelectorArgs),
    /// Show and check what sites have signed for a reservation: hosts, times, price and refunds
    Receipt(ReceiptArgs),
    /// Wait until a request is settled, has begun or has ended
    Wait(WaitArgs),
    /// Say what becomes of a request until it is over, and run a command each time
    Watch(WatchArgs),
    /// Make a reservation longer: the same hosts for the time right behind it
    Extend(ExtendArgs),
    /// Cancel a request and free its hosts
    Cancel(SelectorArgs),
    /// Check a reservation and replace lost hosts
    Repair(RepairArgs),
    /// List the sites of the grid, as this node knows them
    Sites,
    /// List the hosts of the grid, as this node knows them
    Hosts,
    /// Draw reservations over time, host by host
    Gantt(GanttArgs),
    /// Show sites, requests and reservations, and keep the picture up to date
    Top(TopArgs),
    /// Print a link that opens the node's page in a browser, once
    Open(OpenArgs),
    /// Enter, list and remove the owner's own work on this site's hosts
    Local(LocalArgs),
    /// Make, list and revoke tokens that may do only a part of what the operator may
    Token(TokenArgs),
    /// Give no new promises of this site's hosts; those that stand are kept
    Drain(DrainArgs),
    /// Have the node read its configuration again
    Reload,
    /// Make a grid, invite to it, revoke, show it
    Grid(GridArgs),
    /// Make your key, or take a key of SSH or of the SSH agent as yours
    Login(LoginArgs),
    /// Show your key, and who you are in which grid and to the node that answers
    Whoami(WhoamiArgs),
    /// Join a grid with a token
    Join(JoinArgs),
    /// Check a data directory and its node, and say how to repair what is wrong
    Doctor(DoctorArgs),
    /// Save ledger, keys and configuration of a node, running or not, in one file
    Backup(BackupArgs),
    /// Check what `kolo backup` has saved, and put it into an empty data directory
    Restore(RestoreArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
    /// Keep the run of a seat (the node starts this)
    #[command(hide = true)]
    Keeper(KeeperArgs),
    /// Speak SSH with one client on the standard input and output (the node starts this in a sandbox)
    #[command(hide = true)]
    SshServer(SshServerArgs),
    /// Become a command in a sandbox (the node starts this there)
    #[command(hide = true)]
    InSandbox(InSandboxArgs),
    /// Start a command in a unit of systemd and tell how it ends (the node starts this there)
    #[command(hide = true)]
    InUnit,
    /// Become a user and then a command in a unit of systemd (the node starts this there)
    #[command(hide = true)]
    AsUser(AsUserArgs),
}

/// `kolo list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// How many, newest first
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

/// `kolo usage`
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// Add up by user, site or month of the start
    #[arg(long, value_enum, default_value_t = UsageBy::User)]
    pub by: UsageBy,
    /// Print every part of a reservation by itself, for a spreadsheet
    #[arg(long, conflicts_with = "by")]
    pub csv: bool,
}

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    User,
    Site,
    Month,
}

impl UsageBy {
    /// The heading of its column.
    pub fn heading(self) -> &'static str {
        match self {
            UsageBy::User => "USER",
            UsageBy::Site => "SITE",
            UsageBy::Month => "MONTH",
        }
    }
}

/// `kolo drain`
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Give promises again
    #[arg(long)]
    pub end: bool,
}

/// `kolo doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Make a new ledger from the readable part of a damaged one; the rest is lost, and the damaged files are kept
    #[arg(long)]
    pub salvage: bool,
    /// Say that this machine's clock is right, which the node does not believe since it has jumped: what is past by it is forgotten
    #[arg(long)]
    pub clock_is_right: bool,
    /// List what ended commands have left, outputs and files, and drop it when that is confirmed, without a running node
    #[arg(long, conflicts_with = "salvage")]
    pub free: bool,
    /// Drop it without being asked
    #[arg(long, requires = "free")]
    pub yes: bool,
    /// Measure the link to another site as well, whose owner allows it (uplink_tests); sends and receives up to 32 MiB
    #[arg(long, value_name = "SITE")]
    pub link_with: Option<String>,
}

/// A command about one request.
#[derive(Debug, Args)]
pub struct SelectorArgs {
    /// Id, unique beginning of an id, label, or `last`
    #[arg(value_name = "REQUEST")]
    pub selector: String,
}

/// `kolo receipt`
#[derive(Debug, Args)]
pub struct ReceiptArgs {
    /// The request.
    #[command(flatten)]
    pub request: SelectorArgs,
    /// What this site keeps of it instead, whatever node it was made through: the signed request and its own receipts; takes the whole id, for the operator
    #[arg(long)]
    pub site: bool,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Goal {
    /// It has a reservation, or is over without one
    #[default]
    Settled,
    /// Its reservation has begun
    Start,
    /// It has begun, and each seat has the host that it stays on
    Hosts,
    /// Its reservation has ended
    End,
}

/// `kolo wait`
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Id, unique beginning of an id, label, or `last`
    #[arg(value_name = "REQUEST")]
    pub selector: String,
    /// What is waited for
    #[arg(long = "for", value_enum, default_value_t, value_name = "WHAT")]
    pub goal: Goal,
    /// Wait no longer than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

/// `kolo watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The request.
    #[command(flatten)]
    pub request: SelectorArgs,
    /// A command to run at each event, and its arguments: it gets KOLO_* variables, and the notice on its standard input
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Reads how much time a picture shows.
fn parse_shown(text: &str) -> Result<Span, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    let is_shown = (Span(60)..=Span(366 * 86_400)).contains(&span);
    if is_shown { Ok(span) } else { Err("expected 1m to 366d".to_owned()) }
}

/// Reads how long a picture stays.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    let is_shown = (Duration::from_millis(200)..=Duration::from_secs(3600)).contains(&interval);
    if is_shown { Ok(interval) } else { Err("expected 200ms to 1h".to_owned()) }
}

/// `kolo gantt`
#[derive(Debug, Args)]
pub struct GanttArgs {
    /// Left edge, such as +3h or tomorrow 08:00 [default: now]
    #[arg(long, value_name = "TIME", num_args = 1..=2)]
    pub from: Vec<String>,
    /// How much time is shown, 1m to 366d
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_shown)]
    pub span: Span,
    /// Only sites whose name or id begins so
    #[arg(long, value_name = "SITE")]
    pub site: Option<String>,
    /// Columns to draw in [default: the terminal's, else 100]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub width: Option<u16>,
}

/// `kolo top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// How often the node is asked, 200ms to 1h
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_interval)]
    pub interval: Duration,
    /// How much time the bars show, 1m to 366d
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse_shown)]
    pub span: Span,
    /// Print one picture and end, as when the output is no terminal
    #[arg(long)]
    pub once: bool,
}

/// `kolo completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// `kolo man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where the pages go; must exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// `kolo open`
#[derive(Debug, Clone, Args)]
pub struct OpenArgs {
    /// Sign in by your key, to see and cancel your own requests, also where there is a token
    #[arg(long)]
    pub as_user: bool,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `kolo login`
#[derive(Debug, Clone, Args)]
pub struct LoginArgs {
    /// Take this private key of SSH, of kind Ed25519 and without a passphrase, instead of making one
    #[arg(long, value_name = "FILE")]
    pub ssh_key: Option<PathBuf>,
    /// Sign by a key of kind Ed25519 that the SSH agent holds (SSH_AUTH_SOCK), by its comment, fingerprint or public line where there are several
    #[arg(long, value_name = "WHICH", conflicts_with = "ssh_key")]
    pub agent: Option<Option<String>>,
}

/// `kolo whoami`
#[derive(Debug, Clone, Args)]
pub struct WhoamiArgs {
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
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

    use super::{super::request_args::RequestArgs, *};

    fn words_of<'a>(request: &'a RequestArgs, name: &str) -> &'a [String] {
        &request.words.iter().find(|(key, _)| key.name == name).unwrap().1
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_may_be_two_words_without_quotes() {
        let cli =
            Cli::try_parse_from(["kolo", "submit", "--latest", "tomorrow", "08:00", "-N", "5", "-t", "2h"]).unwrap();
        let Command::Submit(submit) = cli.command else { panic!("not submit") };
        assert_eq!(words_of(&submit.request, "latest"), ["tomorrow", "08:00"]);
        assert_eq!(words_of(&submit.request, "hosts"), ["5"]);
    }

    #[test]
    fn a_time_from_now_needs_no_quotes() {
        for line in [
            &["kolo", "submit", "--earliest", "+3h", "--latest", "+1d", "-N", "5", "-t", "2h"][..],
            &["kolo", "slots", "--mode", "at", "--at", "+3h", "-t", "2h"],
            &["kolo", "gantt", "--from", "+3h", "--span", "2h"],
            &["kolo", "local", "add", "--from", "+3h", "--until", "+5h"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            if let Command::Submit(submit) = cli.command {
                assert_eq!(words_of(&submit.request, "earliest"), ["+3h"]);
                assert_eq!(words_of(&submit.request, "latest"), ["+1d"]);
            }
        }
    }

    #[test]
    fn too_much_and_too_little_time_are_refused() {
        for text in ["1s", "400d", "24", "x"] {
            assert!(parse_shown(text).is_err(), "{text}");
        }
        assert_eq!(parse_shown("24h"), Ok(Span(86_400)));
        assert!(parse_shown("24").unwrap_err().contains("has no unit"));
        assert!(parse_interval("100ms").is_err() && parse_interval("2h").is_err() && parse_interval("1s").is_ok());
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
