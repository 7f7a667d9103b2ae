//! `kolo-sim grid`: a grid of real node processes on loopback, driven with requests, measured, and checked.
//!
//! Not deterministic, unlike the simulation: the seed decides hosts, requests and entry points; processes, network and clocks do
//! the rest. Invariants: every wait has a deadline and looks for crashes; no process is left behind; what was acknowledged to users
//! is compared with all ledgers by code that shares nothing with the nodes' own.
//!
//! Rooms, each of which imports only those before it: `nodes` (processes, their APIs, networks between them), `load` (requests and
//! users), `faults` (crashes, new sites, cuts, attackers), `checks` (reservations and ledgers), `report`. `args` are the flags; `run`
//! is the way through an experiment. [`crate::scenario`] plays files with steps on the same nodes.

pub mod args;
pub mod checks;
pub mod faults;
pub mod load;
pub mod nodes;
mod report;
mod run;

use std::{path::Path, process::ExitCode};

use broker::time::Span;
use sim_kit::{progress::Progress, report::check_places};

use self::{
    args::{Experiment, GridArgs, find_kolo},
    load::workload::Workload,
    nodes::{
        cluster::Cluster,
        launch::{Launch, NodeSetup, NodeTiming},
        machine::{allow_open_files, make_run_dir, seconds_since_epoch},
        network::{self, Network, side_of},
        place::Place,
        process::Crashed,
        wait::{Interrupt, Interrupted},
        wan::Wan,
    },
    report::findings::{Figures, Findings},
    run::Run,
};
use crate::shift::shifted_request;

/// Runs the command. The exit code is 0 when all checks hold, otherwise 1.
pub fn run(args: &GridArgs) -> anyhow::Result<ExitCode> {
    let experiment = args.check()?;
    check_places(args.json.iter().chain(&args.html))?;
    if matches!(experiment, Experiment::Partition { .. }) {
        network::enter()?;
    }
    allow_open_files();
    let nodes = (args.nodes, args.newcomers());
    let limit = args.limit.unwrap_or(usize::MAX);
    let workload = Workload::prepare(args.seed, nodes, args.host_source(), args.request_source(), limit)?;
    let workload = match args.traffic {
        Some(mbps) => workload.with_traffic(mbps)?,
        None => workload,
    };
    let run_dir = make_run_dir()?;
    let result = run_in(run_dir.path(), args, experiment, workload);
    let is_clean = match &result {
        Ok(is_good) => *is_good,
        Err(error) => error.is::<Interrupted>(),
    };
    if !is_clean {
        eprintln!("the nodes' data and logs are kept: {}", run_dir.keep().display());
    }
    result.map(|is_good| if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether all checks held.
fn run_in(run_dir: &Path, args: &GridArgs, experiment: Experiment, workload: Workload) -> anyhow::Result<bool> {
    let kolo = find_kolo(args.kolo.as_deref())?;
    let interrupt = Interrupt::install()?;
    let progress = Progress::new("starting nodes", args.nodes as u64);
    let epoch = Span(seconds_since_epoch());
    let network = matches!(experiment, Experiment::Partition { .. }).then(|| Network::make(2)).transpose()?;
    let wan = args.distance().map(|distance| Wan::start(distance, args.seed)).transpose()?;
    let all = 0..workload.nodes.len();
    let places: Vec<Place> = match (&network, &wan) {
        (Some(network), _) => network.places(&all.map(|index| side_of(index, args.nodes)).collect::<Vec<_>>())?,
        (None, Some(wan)) => all.map(|index| wan.place(index)).collect::<Result<_, _>>()?,
        (None, None) if args.in_process => all.map(Place::in_process).collect(),
        (None, None) => all.map(Place::loopback).collect(),
    };
    let figures = Figures {
        nodes: args.nodes,
        hosts: workload.hosts(args.nodes),
        conditions: args.conditions(),
        seed: args.seed,
        ..Figures::default()
    };
    let mut findings = Findings { figures, ..Findings::default() };
    let nodes = (1..).zip(workload.nodes).zip(places);
    let launch = Launch {
        kolo,
        run_dir: run_dir.to_owned(),
        nodes: nodes
            .map(|((number, hosts), place)| NodeSetup { name: format!("node-{number:03}"), place, hosts })
            .collect(),
        in_process: args.in_process,
        timing: NodeTiming { gossip: args.gossip, losses: None, asking: args.asking() },
        epoch,
        grid: format!("kolo-sim-{}-{}", epoch.0, std::process::id()),
        is_closed: args.closed,
        limits_strangers: matches!(experiment, Experiment::Hostile { .. }),
        uplink_mbps: args.uplink,
    };
    let cluster = Cluster::new(launch, interrupt);
    cluster.start(args.nodes, |started| progress.at(started as u64))?;
    let requests = workload.requests.iter().map(|request| shifted_request(request, epoch)).collect();
    let run = Run { cluster: &cluster, args, requests, network: network.as_ref(), progress: &progress };
    let ended = run.drive_and_check(experiment, &mut findings);
    findings.figures.crashes = cluster.crashes();
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
    findings.finish();
    report::publish(&findings, (args.json.as_deref(), args.html.as_deref()), args.output, args.reasons)?;
    Ok(findings.is_good())
}
