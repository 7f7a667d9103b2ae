//! Replays on clusters whose hosts differ in speed and whose jobs span them, each task on a host of its own, behind limited uplinks.
//!
//! Source: the dissertation on multi-clusters, chapters 2 and 3. What traces do not say is drawn from the seed: the share of computation and
//! the bandwidth of a task. Invariant: the same trace, machines, flags and seed give the same figures; jobs and faults do not depend on
//! the policy.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::{
    args::{ReplayArgs, Spanning},
    cluster::ClusterSpec,
    job, machines, output, trace,
};
use crate::{
    clusters::{
        policies::{LeastSlowdown, OneByOne, Order, Packages, Placement},
        world::{Cluster, Fault, Figures, Job, Policy, simulate_with},
    },
    error::BadUsage,
    print::counted,
    report::Table,
};

/// Mbit/s of a GB/s.
const MBPS: f64 = 8_000.0;
/// Most failures, so that jobs which lose a host sooner than they end do not begin anew for ever.
const FAULTS_MAX: usize = 100_000;
/// How long a failed host is away, in seconds.
const REPAIR_S: f64 = 4.0 * 3600.0;
/// The least share of computation that is drawn.
const COMPUTE_LEAST: f64 = 0.5;

/// The names of the policies: orders alone take the fastest hosts, whatever the uplinks.
pub const NAMES: [&str; 15] = [
    "mesd", "cbs", "jpr", "pas-fcfs", "pas-sjf", "pas-bjf", "pas-fpfs", "pas-spt", "pas-lpt", "fcfs", "sjf", "bjf",
    "fpfs", "spt", "lpt",
];

fn named(name: &str) -> Option<Box<dyn Policy>> {
    let order = |name: &str| Order::ALL.into_iter().find(|order| order.name().eq_ignore_ascii_case(name));
    let one_by_one = |order, placement| Box::new(OneByOne { order, placement });
    Some(match name {
        "mesd" => Box::new(LeastSlowdown::default()),
        "cbs" => one_by_one(Order::Fcfs, Placement::Chunk),
        "jpr" => one_by_one(Order::Fcfs, Placement::Fastest),
        _ => match name.strip_prefix("pas-") {
            Some(rest) => Box::new(Packages::new(order(rest)?)),
            None => one_by_one(order(name)?, Placement::Fastest),
        },
    })
}

#[derive(Debug, Serialize)]
struct Outcome<'a> {
    policy: &'a str,
    trace: String,
    machines: String,
    seed: u64,
    jobs: usize,
    /// Jobs with more tasks than there are hosts.
    rejected: u64,
    #[serde(flatten)]
    figures: Figures,
    response: f64,
}

/// Runs the command.
///
/// # Errors
/// Bad usage when a file cannot be used or the policy is another one; else when the result cannot be printed.
pub fn run(args: &ReplayArgs, spanning: &Spanning, uplink_mbps: u32) -> anyhow::Result<ExitCode> {
    let mut policy = named(&args.policy).with_context(|| {
        BadUsage::new(format_args!("policy {}: with --uplink-mbps there are {}", args.policy, NAMES.join(", ")))
    })?;
    let path = args.trace.as_ref().context(BadUsage::new("--uplink-mbps: only with --trace"))?;
    let specs = machines::read_of_any_speed(&args.machines)?;
    let clusters: Vec<Cluster> = specs.iter().map(|spec| cluster(spec, uplink_mbps)).collect();
    // A task is as large as a host, and they may be anywhere.
    let hosts = specs.iter().map(|spec| spec.hosts).sum();
    let all = ClusterSpec { name: String::new(), hosts, processors_per_host: 1, ..specs[0].clone() };
    let trace = trace::read(path, &[all], &args.rules)?;
    eprint!("{}", output::findings(&trace.findings));
    let jobs = jobs(&trace.jobs, spanning.traffic_mbps_max, args.seed);
    let faults = spanning.host_mtbf_s.map(|mean_s| faults(&clusters, mean_s as f64, args.seed));
    let ended = simulate_with(&clusters, &jobs, faults.into_iter().flatten(), policy.as_mut());
    ensure!(ended.len() == jobs.len(), "{} jobs never started", jobs.len() - ended.len());
    let figures = Figures::of(&clusters, &jobs, &ended);
    let outcome = Outcome {
        policy: &args.policy,
        trace: path.display().to_string(),
        machines: args.machines.display().to_string(),
        seed: args.seed,
        jobs: jobs.len(),
        rejected: trace.findings.rejected.count,
        response: figures.response(),
        figures,
    };
    args.output.print(|| table(&outcome), &outcome).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn cluster(spec: &ClusterSpec, uplink_mbps: u32) -> Cluster {
    let power = f64::from(spec.speed_thousandths) / 1000.0;
    Cluster { hosts: spec.hosts, power, link: f64::from(uplink_mbps) / MBPS }
}

/// The jobs of a trace with what it does not say of them.
pub(super) fn jobs(known: &[job::Job], traffic_mbps_max: u32, seed: u64) -> Vec<Job> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let job = |job: &job::Job| {
        let (compute, part): (f64, f64) = (random.random_range(COMPUTE_LEAST..1.0), random.random());
        let tasks = job.known.shape.hosts;
        let bandwidth = if tasks > 1 { part * f64::from(traffic_mbps_max) / MBPS } else { 0.0 };
        Job { tasks, compute, base: job.held_s as f64, bandwidth, arrival: job.known.submit_s as f64 }
    };
    known.iter().map(job).collect()
}

/// Hosts fail one after the other, as often as hosts of this mean time between failures do together.
fn faults(clusters: &[Cluster], mean_s: f64, seed: u64) -> impl Iterator<Item = Fault> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let sizes: Vec<u32> = clusters.iter().map(|cluster| cluster.hosts).collect();
    let all: u32 = sizes.iter().sum();
    let mut now = 0.0;
    std::iter::repeat_with(move || {
        let gap: f64 = Exp1.sample(&mut random);
        now += gap * mean_s / f64::from(all);
        let (mut host, mut cluster) = (random.random_range(0..all), 0);
        while host >= sizes[cluster] {
            host -= sizes[cluster];
            cluster += 1;
        }
        Fault { cluster, host, at: now, until: now + REPAIR_S }
    })
    .take(FAULTS_MAX)
}

fn table(outcome: &Outcome<'_>) -> String {
    let Figures { makespan, wait, execution, slowdown, compaction, spread, saturated, restarted } = outcome.figures;
    let mut table = Table::new(["", "mean"]);
    for (name, value) in [
        ("makespan, s", makespan),
        ("wait, s", wait),
        ("execution, s", execution),
        ("response, s", outcome.response),
        ("execution slowdown", slowdown),
        ("host time in use, %", 100.0 * compaction),
        ("in several clusters, %", 100.0 * spread),
        ("slowed down by an uplink, %", 100.0 * saturated),
        ("begun anew, %", 100.0 * restarted),
    ] {
        table.row(name, [format!("{value:.3}")]);
    }
    let jobs = counted(outcome.jobs as u64, "job");
    format!("{} on {}: {jobs}, {} rejected\n\n{}\n", outcome.policy, outcome.trace, outcome.rejected, table.text())
}
