//! The raw arguments of the commands that describe a request.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use std::{path::PathBuf, time::Duration};

use broker::{
    batch::{BatchObjective, Order},
    cost::Cost,
    time::Span,
};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, parser::ValueSource};
use kolo_api::slots::Mode;
use kolo_text::{
    credits::parse_credits,
    request_keys::{COMPUTE, KEYS, Key, Kind, SAME_SITE, word_of},
    time::{parse_duration, parse_span},
};

use super::grid_args::KeyArgs;

/// A request, as typed: a file, and words by key of the request.
#[derive(Debug, Clone, Default)]
pub struct RequestArgs {
    /// Read the request from a file (TOML, or JSON as *.json); flags win over it
    pub file: Option<PathBuf>,
    /// What stands behind the flags that are there.
    pub words: Vec<(&'static Key, Vec<String>)>,
}

/// Whatever may have a flag.
fn flags() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain([COMPUTE, SAME_SITE])
}

/// The flag of a key.
fn flag_of(key: &'static Key) -> Option<Arg> {
    let name = key.flag?;
    let flag = Arg::new(name).long(name).help(format!("{}{}", key.help, key.hint));
    let flag = key.short.into_iter().fold(flag, Arg::short);
    Some(match key.kind {
        Kind::Label => flag.value_name("LABEL"),
        Kind::Count(_) => flag.value_name("COUNT").value_parser(clap::value_parser!(u32)),
        Kind::Span(_) => flag.value_name("DURATION"),
        Kind::Time => flag.value_name("TIME").num_args(1..=2).action(ArgAction::Append),
        Kind::Amounts => flag.value_name("RESOURCE=AMOUNT").value_delimiter(',').action(ArgAction::Append),
        Kind::Attributes => flag.value_name("KEY=VALUE").action(ArgAction::Append),
        Kind::Hosts => flag.value_name("HOST").num_args(1..).action(ArgAction::Append),
        Kind::Choice(name, words) => {
            let word = move |text: &str| {
                let word = word_of(words.iter().copied(), text);
                word.map(str::to_owned).ok_or_else(|| format!("expected {}", words.join(", ")))
            };
            flag.value_name(name).value_parser(word)
        }
        Kind::Speed => flag.value_name("SPEED"),
        Kind::Traffic => flag.value_name("RATE"),
        Kind::Compute => flag.value_name("PART"),
        Kind::Credits => flag.value_name("CREDITS"),
        Kind::Flag => flag.action(ArgAction::SetTrue),
        Kind::One => flag.action(ArgAction::SetTrue).conflicts_with("sites-max"),
        Kind::Shapes => flag.value_name("SHAPE").action(ArgAction::Append),
        Kind::Scale => flag.value_name("LEAST..LARGEST"),
        Kind::Words(name, words) => flag
            .value_name(name)
            .value_parser(words.to_vec())
            .hide_possible_values(true)
            .value_delimiter(',')
            .action(ArgAction::Append),
        Kind::Image => flag.value_name("IMAGE"),
    })
}

impl Args for RequestArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new("request").long("request").value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        let help = "Read the request from a file (TOML, or JSON as *.json); flags win over it";
        command.arg(file.help(help)).args(flags().filter_map(flag_of))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        RequestArgs::augment_args(command)
    }
}

impl FromArgMatches for RequestArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RequestArgs, clap::Error> {
        let words = |key: &'static Key| {
            let name = key.flag.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine))?;
            let words = matches.get_raw(name).into_iter().flatten();
            Some((key, words.map(|word| word.to_string_lossy().into_owned()).collect()))
        };
        Ok(RequestArgs { file: matches.get_one("request").cloned(), words: flags().filter_map(words).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = RequestArgs::from_arg_matches(matches)?;
        Ok(())
    }
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
    /// Reserve this plan or nothing: what `kolo plan --output json` has printed for the same request
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    /// Print the id and do not wait
    #[arg(long)]
    pub no_wait: bool,
    /// Wait no longer than this; the request goes on
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "no_wait")]
    pub timeout: Option<Duration>,
}

/// What writes a single request; offline, requests come from a file.
fn of_one_request() -> impl Iterator<Item = &'static str> {
    let keys = flags().filter_map(|key| key.flag).filter(|flag| *flag != "effort");
    ["script", "request"].into_iter().chain(keys)
}

/// `kolo plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Script whose #KOLO lines hold flags of the request, as for kolo submit
    #[arg(value_name = "SCRIPT")]
    pub script: Option<PathBuf>,
    /// The request; asks the node for its present view.
    #[command(flatten)]
    pub request: RequestArgs,
    /// Plan offline on this snapshot (kolo-grid/1 to /3) instead
    #[arg(long, value_name = "GRID.json", requires = "requests")]
    pub grid: Option<PathBuf>,
    /// Requests to plan offline, one JSON object a line; - is standard input
    #[arg(long, value_name = "REQUESTS.jsonl", requires = "grid", conflicts_with_all = of_one_request())]
    pub requests: Option<PathBuf>,
    /// Offline: what is allocated occupies the snapshot for the requests after it
    #[arg(long, requires = "grid")]
    pub commit: bool,
    /// Offline: seed of the random choices
    #[arg(long, requires = "grid", value_name = "SEED")]
    pub seed: Option<u64>,
    /// The requests as a batch.
    #[command(flatten)]
    pub batch: BatchArgs,
}

/// `kolo plan --batch`
#[derive(Debug, Args)]
pub struct BatchArgs {
    /// Offline: plan all requests together: in-order (one after the other), slices:K (in K parts, of each part the best choice of alternatives); for the least makespan with traffic: oas[:slots] (best known; as in its source, in slots of time), mesd[:literal] (fast), pas (in packages), cbs (least traffic), jpr (fastest hosts); for the least run time of scalable requests on equally fast hosts: colocate:set, colocate:partition, colocate:best
    #[arg(long = "batch", value_name = "POLICY", requires = "grid", conflicts_with = "commit")]
    pub policy: Option<String>,
    /// Batch: whose turn is first: file (the order of the file), fcfs (by earliest), sjf, bjf (fewest, most hosts), fpfs (first that fits), spt, lpt (shortest, longest), hdf (highest demand), edf (by deadline) [default: file]
    #[arg(long, value_name = "ORDER", requires = "policy", value_parser = one_of(&Order::ALL))]
    pub order: Option<Order>,
    /// Batch: what is least for all together: cost, host_time, finish (sum of the ends), makespan (last end) or run_time (sum of the hosts' last ends) [default: finish, or that of the policy]
    #[arg(long, value_name = "OBJECTIVE", requires = "policy", value_parser = one_of(&BatchObjective::ALL))]
    pub batch_objective: Option<BatchObjective>,
    /// Batch: all plans together cost at most this, such as 12.50 (credits)
    #[arg(long, value_name = "CREDITS", requires = "policy", value_parser = parse_credits)]
    pub batch_budget: Option<Cost>,
    /// Batch: most alternatives looked for of each request [default: 10]
    #[arg(long, value_name = "COUNT", requires = "policy", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub alternatives: Option<u32>,
    /// Batch: alternatives of different requests may take the same hosts; what is chosen does not
    #[arg(long, requires = "policy")]
    pub overlap: bool,
    /// Batch: write every alternative here, one JSON object a line
    #[arg(long, value_name = "FILE", requires = "policy")]
    pub explain_alternatives: Option<PathBuf>,
}

/// Reads one of these by its name.
pub(super) fn one_of<T: Copy + Send + Sync>(
    all: &'static [(&'static str, T)],
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let names = || all.iter().map(|(name, _)| *name);
        let word = word_of(names(), text);
        let found = all.iter().find(|(name, _)| word == Some(*name));
        found.map(|(_, value)| *value).ok_or_else(|| format!("expected {}", names().collect::<Vec<_>>().join(", ")))
    }
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
    /// What the added time may cost, such as 12.50 (credits)
    #[arg(long, value_name = "CREDITS", value_parser = parse_credits)]
    pub budget: Option<Cost>,
    /// The user's key.
    #[command(flatten)]
    pub key: KeyArgs,
}
