//! Replays on clusters whose hosts differ in speed and whose jobs span them, each task on a host of its own, behind limited uplinks.
//!
//! Source: the dissertation on multi-clusters, chapters 2 and 3. What traces do not say is drawn from the seed: the share of computation and
//! the bandwidth of a task. Invariant: the same trace, machines, flags and seed give the same figures; jobs and faults do not depend on
//! the policy.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, ensure};
use broker::batch::{Order, multicluster::Choice};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sim_kit::{
    error::BadUsage,
    print::counted,
    report::{Table, check_places},
};

use super::{
    args::{ReplayArgs, Rules, Runtimes, SPANNING_POLICIES, Spanning},
    cluster::ClusterSpec,
    job, machines, output,
    series::PIECES,
    spanning_page,
    trace::{self, Trace},
};
use crate::clusters::{
    mesd::LeastSlowdown,
    oas::Whole,
    policies::{ORDERS, OneByOne, Packages, Placement, order_name},
    usage::Usage,
    world::{Cluster, Fault, Figures, Job, Policy, simulate_with},
};

/// Mbit/s of a GB/s.
const MBPS: f64 = 8_000.0;
/// Most failures, so that jobs which lose a host sooner than they end do not begin anew for ever.
const FAULTS_MAX: usize = 100_000;
/// How long a failed host is away, in seconds.
const REPAIR_S: f64 = 4.0 * 3600.0;
/// The least share of computation that is drawn.
const COMPUTE_LEAST: f64 = 0.5;

fn named(name: &str, clusters: &[Cluster]) -> anyhow::Result<Option<Box<dyn Policy>>> {
    match ["oas", "oas:slots"].into_iter().find(|known| *known == name) {
        Some(form) => Ok(Some(Box::new(Whole::new(clusters, form)?))),
        None => Ok(literal_or_packages(name)),
    }
}

fn literal_or_packages(name: &str) -> Option<Box<dyn Policy>> {
    let order = |name: &str| ORDERS.into_iter().find(|order| order_name(*order).eq_ignore_ascii_case(name));
    let one_by_one = |order, placement| Box::new(OneByOne { order, placement });
    Some(match name {
        "mesd" => Box::new(LeastSlowdown::new(Choice::Carried)),
        "mesd:literal" => Box::new(LeastSlowdown::new(Choice::Literal)),
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
    check_places(&args.report)?;
    let path = args.trace.as_ref().context(BadUsage::new("--uplink-mbps: only with --trace"))?;
    if args.rules.runtimes == Runtimes::Estimates {
        return Err(BadUsage::new(
            "--runtimes estimates: with --uplink-mbps no policy looks at how long jobs will run",
        )
        .into());
    }
    let specs = machines::read_of_any_speed(&args.machines)?;
    let clusters: Vec<Cluster> = specs.iter().map(|spec| cluster(spec, uplink_mbps)).collect();
    let mut policy = named(&args.policy, &clusters)?.with_context(|| {
        BadUsage::new(format_args!(
            "policy {}: with --uplink-mbps there are {}",
            args.policy,
            SPANNING_POLICIES.join(", ")
        ))
    })?;
    let hosts = specs.iter().map(|spec| spec.hosts).sum();
    let trace = read(path, hosts, specs[0].memory_per_host_kib, &args.rules)?;
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
    if let Some(path) = &args.report {
        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let usage = Usage::of(&clusters, &jobs, &ended, PIECES);
        let page = spanning_page::page(&heading(&outcome), &table(&outcome), &names, &clusters, &usage);
        page.write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    let text = || format!("{}\n\n{}\n", heading(&outcome), table(&outcome).text());
    args.output.print(text, &outcome).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// A trace, each task of which has a host of its own; there are so many hosts, with so much memory.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read(path: &Path, hosts: u32, memory_per_host_kib: u64, rules: &Rules) -> anyhow::Result<Trace> {
    let name = String::new();
    let all = ClusterSpec { name, hosts, processors_per_host: 1, memory_per_host_kib, speed_thousandths: 1000 };
    trace::read(path, &[all], rules)
}

fn cluster(spec: &ClusterSpec, uplink_mbps: u32) -> Cluster {
    let power = f64::from(spec.speed_thousandths) / 1000.0;
    Cluster { hosts: spec.hosts, power, link: f64::from(uplink_mbps) / MBPS }
}

/// The jobs of a trace with what it does not say of them.
pub(crate) fn jobs(known: &[job::Job], traffic_mbps_max: u32, seed: u64) -> Vec<Job> {
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

fn heading(outcome: &Outcome<'_>) -> String {
    let jobs = counted(outcome.jobs as u64, "job");
    format!("{} on {}: {jobs}, {} rejected", outcome.policy, outcome.trace, outcome.rejected)
}

fn table(outcome: &Outcome<'_>) -> Table {
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
    table
}
