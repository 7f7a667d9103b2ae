//! `kolo-sim grid`: a grid of real node processes on loopback, driven with requests, measured, and checked.
//!
//! Not deterministic, unlike the simulation: the seed decides hosts, requests and entry points; processes, network and
//! clocks do the rest. Invariants: every wait has a deadline and looks for crashes; no process is left behind; what
//! users were told is checked against all ledgers by code that shares nothing with the nodes' own.
//!
//! Reading order: `args` and `scenario`, `workload`, `cluster` and `process` (the nodes), `knowledge` and `drive` (a run
//! without faults), `load`, `crashes` and `newcomers` (one with them), `invariants`, `aftermath` and `findings` (what is checked),
//! `report`. `scripted` plays scenario files on the same processes.

mod aftermath;
pub mod args;
pub mod attacker;
mod client;
mod cluster;
mod crashes;
pub mod drive;
pub mod error;
mod findings;
mod hostile;
mod interrupt;
mod invariants;
mod knowledge;
mod live;
mod load;
mod load_figures;
pub mod measure;
mod members;
pub mod memory;
mod network;
mod newcomers;
mod nodes;
mod page;
mod partition;
mod place;
mod poll;
mod process;
mod progress;
mod report;
mod rest;
mod run;
pub mod scenario;
pub mod scripted;
mod search;
mod settle;
mod wait;
mod wan;
mod wire;
pub mod workload;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use broker::{request::Request, time::Span};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

use args::{Checked, GridArgs};
use cluster::{Cluster, Launch};
use error::{GridError, UsageError};
use findings::Findings;
use interrupt::Interrupt;
use network::{Network, side_of};
use place::Place;
use process::{NodeTiming, system};
use progress::Progress;
use run::Run;
use scenario::Scenario;
use wan::Wan;
use workload::{Workload, shifted_request};

use crate::report::{PlaceError, check_places};

/// Runs the command. The exit code is 0 when all checks hold, 64 for bad flags or files, otherwise 1.
pub fn run(args: &GridArgs) -> ExitCode {
    match execute(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Whether all checks held.
fn execute(args: &GridArgs) -> Result<bool, GridError> {
    let checked = args.check()?;
    let places = checked.json.iter().chain(&checked.html);
    check_places(places).map_err(|PlaceError { path, source }| UsageError::Write { path, source })?;
    if matches!(checked.scenario, Scenario::Partition { .. }) {
        network::enter()?;
    }
    allow_open_files();
    let workload = Workload::prepare(&checked)?;
    let files = Files::make(checked.keep_logs.as_deref())?;
    let interrupt = Interrupt::install()?;
    let result = run_in(&files, &checked, &workload, &interrupt);
    if !matches!(result, Ok(true) | Err(GridError::Interrupted)) {
        eprintln!("the nodes' data and logs are kept: {}", files.keep().join(", "));
    }
    result
}

fn run_in(files: &Files, checked: &Checked, workload: &Workload, interrupt: &Interrupt) -> Result<bool, GridError> {
    let progress = Progress::new();
    let epoch = seconds_since_epoch();
    let network = match checked.scenario {
        Scenario::Partition { .. } => Some(Network::make(2)?),
        Scenario::Rounds
        | Scenario::Crashes { .. }
        | Scenario::Hostile { .. }
        | Scenario::Open { .. }
        | Scenario::FindRate { .. } => None,
    };
    let wan = checked.distance.map(|distance| Wan::start(distance, checked.seed)).transpose()?;
    let places = match (&network, &wan) {
        (Some(network), _) => {
            let halves: Vec<usize> = (0..checked.nodes).map(|index| side_of(index, checked.nodes)).collect();
            network.places(&halves)?
        }
        (None, Some(wan)) => (0..workload.nodes.len()).map(|index| wan.place(index)).collect::<Result<_, _>>()?,
        (None, None) if checked.in_process => (0..checked.nodes).map(Place::in_process).collect(),
        (None, None) => (0..workload.nodes.len()).map(Place::loopback).collect(),
    };
    let grid = format!("kolo-sim-{epoch}-{}", std::process::id());
    let names: Vec<String> = (1..=workload.nodes.len()).map(|number| format!("node-{number:03}")).collect();
    let launch = Launch {
        kolo: &checked.kolo,
        places: &places,
        in_process: checked.in_process,
        timing: NodeTiming { gossip: checked.gossip, losses: None, asking: checked.asking() },
        run_dir: files.run_dir.path(),
        log_dir: files.log_dir(),
        nodes: &workload.nodes,
        names: &names,
        epoch: Span(epoch),
        grid: &grid,
        is_closed: checked.is_closed,
    };
    progress.stage("starting nodes", checked.nodes);
    let cluster = Cluster::start(&launch, checked.nodes, interrupt, |started| progress.at(started))?;
    let mut findings = Findings {
        nodes: checked.nodes,
        hosts: workload.hosts(checked.nodes),
        conditions: checked.conditions(),
        seed: checked.seed,
        ..Findings::default()
    };
    let requests: Vec<Request> =
        workload.requests.iter().map(|request| shifted_request(request, Span(epoch))).collect();
    let ended = Run {
        cluster: &cluster,
        launch: &launch,
        checked,
        requests: &requests,
        network: network.as_ref(),
        grid: &grid,
        progress: &progress,
    }
    .drive_and_check(&mut findings);
    findings.crashes = cluster.crashes();
    progress.stage("stopping nodes", checked.nodes);
    findings.failed_checks.extend(cluster.stop());
    progress.end();
    match ended {
        Err(GridError::Interrupted) => return Err(GridError::Interrupted),
        // Stopping has told it already, with every other process that did not end well.
        Err(GridError::Crashed { .. }) | Ok(()) => {}
        Err(error) => findings.failed_checks.push(error.to_string()),
    }
    findings.check_answers();
    report::tell(&findings, checked)?;
    Ok(findings.is_good())
}

/// Raises the soft limit on open files, for this process and those that it starts, as far as the system lets it: large grids
/// have thousands of connections. Where that is not enough, whatever cannot be opened says so.
fn allow_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // A refusal changes nothing.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Now, in whole seconds since the Unix epoch.
fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Where a run keeps its files.
struct Files {
    run_dir: TempDir,
    keep_logs: Option<PathBuf>,
}

impl Files {
    fn make(keep_logs: Option<&Path>) -> Result<Files, GridError> {
        if let Some(path) = keep_logs {
            fs::create_dir_all(path).map_err(|source| UsageError::LogDirectory { path: path.to_owned(), source })?;
        }
        let made = tempfile::Builder::new().prefix("kolo-sim-grid-").tempdir();
        Ok(Files {
            run_dir: made.map_err(system("cannot make a temporary directory"))?,
            keep_logs: keep_logs.map(Path::to_owned),
        })
    }

    fn log_dir(&self) -> &Path {
        self.keep_logs.as_deref().unwrap_or(self.run_dir.path())
    }

    /// Keeps everything, and says where it is.
    fn keep(self) -> Vec<String> {
        let kept = [Some(self.run_dir.keep()), self.keep_logs];
        kept.into_iter().flatten().map(|path| path.display().to_string()).collect()
    }
}
