//! `kolo-sim grid`: a grid of real node processes on loopback, driven with requests, measured, and checked.
//!
//! Not deterministic, unlike the simulation: the seed decides hosts, requests and entry points; processes, network and clocks do
//! the rest. Invariants: every wait has a deadline and looks for crashes; no process is left behind; what was acknowledged to users
//! is compared with all ledgers by code that shares nothing with the nodes' own.
//!
//! Rooms, each of which imports only those before it: `nodes` (processes, their APIs, networks between them), `load` (requests and
//! users), `faults` (crashes, newcomers, cuts, attackers), `checks` (reservations and ledgers), `report`. `args` and `experiment`
//! are the flags; `run` is the way through an experiment. [`crate::scenario`] plays files with steps on the same nodes.

pub mod args;
pub mod checks;
mod experiment;
pub mod faults;
pub mod load;
pub mod nodes;
mod report;
mod run;

use std::process::ExitCode;

use broker::{request::Request, time::Span};

use self::{
    args::{GridArgs, find_kolo},
    experiment::Experiment,
    load::workload::Workload,
    nodes::{
        cluster::Cluster,
        launch::{Launch, NodeTiming},
        network::{self, Network, side_of},
        place::Place,
        process::Crashed,
        run_files::{Files, allow_open_files, seconds_since_epoch},
        wait::{Interrupt, Interrupted},
        wan::Wan,
    },
    report::findings::Findings,
    run::Run,
};
use crate::{progress::Progress, report::check_places, shift::shifted_request};

/// Runs the command. The exit code is 0 when all checks hold, otherwise 1.
pub fn run(args: &GridArgs) -> anyhow::Result<ExitCode> {
    let experiment = args.check()?;
    check_places(args.json.iter().chain(&args.html))?;
    if matches!(experiment, Experiment::Partition { .. }) {
        network::enter()?;
    }
    allow_open_files();
    let nodes = (args.nodes, args.newcomers(&experiment));
    let limit = args.limit.unwrap_or(usize::MAX);
    let workload = Workload::prepare(args.seed, nodes, args.host_source(), args.request_source(), limit)?;
    let files = Files::make(args.keep_logs.as_deref())?;
    let interrupt = Interrupt::install()?;
    let result = run_in(&files, args, &experiment, &workload, &interrupt);
    let is_clean = match &result {
        Ok(is_good) => *is_good,
        Err(error) => error.is::<Interrupted>(),
    };
    if !is_clean {
        eprintln!("the nodes' data and logs are kept: {}", files.keep().join(", "));
    }
    result.map(|is_good| if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether all checks held.
fn run_in(
    files: &Files,
    args: &GridArgs,
    experiment: &Experiment,
    workload: &Workload,
    interrupt: &Interrupt,
) -> anyhow::Result<bool> {
    let kolo = find_kolo(args.kolo.as_deref())?;
    let progress = Progress::new("starting nodes", args.nodes as u64);
    let epoch = seconds_since_epoch();
    let network = matches!(experiment, Experiment::Partition { .. }).then(|| Network::make(2)).transpose()?;
    let wan = args.distance().map(|distance| Wan::start(distance, args.seed)).transpose()?;
    let all = 0..workload.nodes.len();
    let places = match (&network, &wan) {
        (Some(network), _) => {
            let halves: Vec<usize> = all.map(|index| side_of(index, args.nodes)).collect();
            network.places(&halves)?
        }
        (None, Some(wan)) => all.map(|index| wan.place(index)).collect::<Result<_, _>>()?,
        (None, None) if args.in_process => all.map(Place::in_process).collect(),
        (None, None) => all.map(Place::loopback).collect(),
    };
    let grid = format!("kolo-sim-{epoch}-{}", std::process::id());
    let names: Vec<String> = (1..=workload.nodes.len()).map(|number| format!("node-{number:03}")).collect();
    let launch = Launch {
        kolo: &kolo,
        places: &places,
        in_process: args.in_process,
        timing: NodeTiming { gossip: args.gossip, losses: None, asking: args.asking() },
        run_dir: files.run_dir.path(),
        log_dir: files.log_dir(),
        nodes: &workload.nodes,
        names: &names,
        epoch: Span(epoch),
        grid: &grid,
        is_closed: args.closed,
    };
    let cluster = Cluster::start(&launch, args.nodes, interrupt, |started| progress.at(started as u64))?;
    let mut findings = Findings {
        nodes: args.nodes,
        hosts: workload.hosts(args.nodes),
        conditions: args.conditions(experiment),
        seed: args.seed,
        ..Findings::default()
    };
    let requests: Vec<Request> =
        workload.requests.iter().map(|request| shifted_request(request, Span(epoch))).collect();
    let run = Run {
        cluster: &cluster,
        launch: &launch,
        args,
        experiment,
        requests: &requests,
        network: network.as_ref(),
        grid: &grid,
        progress: &progress,
    };
    let ended = run.drive_and_check(&mut findings);
    findings.crashes = cluster.crashes();
    progress.begin("stopping nodes", args.nodes as u64);
    findings.failed_checks.extend(cluster.stop());
    progress.end();
    match ended {
        Err(error) if error.is::<Interrupted>() => return Err(error),
        // Stopping has reported it already, with every other process that did not end well.
        Err(error) if error.is::<Crashed>() => {}
        Err(error) => findings.failed_checks.push(format!("{error:#}")),
        Ok(()) => {}
    }
    findings.check_answers();
    report::publish(&findings, args)?;
    Ok(findings.is_good())
}
