//! A trace on four clusters of 60 hosts, as the source runs hpc2n.
//!
//! Source: the dissertation on multi-clusters, 3.3.5.2. What it and the trace leave open is drawn as in `kolo-study replay --uplink-mbps`: the
//! share of computation and what a task sends; links bear 1 GB/s. Invariant: all policies run the same jobs.

use std::path::Path;

use anyhow::ensure;
use broker::batch::Order;
use serde::Serialize;
use sim_kit::{error::BadUsage, progress::Progress};

use super::experiments::{LEAST_SLOWDOWN, Studied};
use crate::{
    clusters::{
        policies::{ORDERS, Placement},
        usage::Usage,
        world::{Cluster, Figures},
    },
    replay::{
        args::{Overrun, Rules, Runtimes},
        spanning,
    },
    tables::parallel,
};

/// Hosts of each cluster, and their power.
const HOSTS: u32 = 60;
const POWER: [f64; 4] = [1.0, 1.5, 2.0, 1.0];
/// The most that a task sends, in Mbit/s.
const TRAFFIC_MBPS_MAX: u32 = 800;

/// What the source says of jobs that a link has slowed down and of those in more than one cluster, in per cent.
pub(super) const SOURCE: [(&str, f64, f64); 7] = [
    ("MESD-literal", 0.30, 15.55),
    ("FCFS", 1.95, 19.79),
    ("SJF", 1.85, 21.17),
    ("BJF", 0.70, 17.81),
    ("FPFS", 0.25, 20.39),
    ("SPT", 0.20, 19.33),
    ("LPT", 2.53, 18.85),
];

/// A policy on the trace.
#[derive(Debug, Serialize)]
pub(super) struct OnTrace {
    pub(super) policy: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// By cluster: its hosts in use, and what jobs would send over its link, of all.
    pub(super) hosts_in_use: Vec<f64>,
    pub(super) link_in_use: Vec<f64>,
}

/// All policies on the trace.
#[derive(Debug, Serialize)]
pub(super) struct Trace {
    pub(super) file: String,
    pub(super) jobs: usize,
    pub(super) rows: Vec<OnTrace>,
}

/// Runs the trace under all policies.
///
/// # Errors
/// Bad usage when the file is no trace.
pub(super) fn study(path: &Path, seed: u64) -> anyhow::Result<Trace> {
    let rules =
        Rules { runtimes: Runtimes::True, overrun: Overrun::Kill, teardown_s: 0, ignores_tags: true, jobs_max: None };
    let clusters = POWER.map(|power| Cluster { hosts: HOSTS, power, link: 1.0 });
    let trace = spanning::read(path, HOSTS * 4, u64::MAX, &rules)?;
    ensure!(!trace.jobs.is_empty(), BadUsage::new(format_args!("{}: no job that ran", path.display())));
    let jobs = spanning::jobs(&trace.jobs, TRAFFIC_MBPS_MAX, seed);
    let one_by_one = |order| Studied::OneByOne(order, Placement::Fastest);
    let mut studied = LEAST_SLOWDOWN.to_vec();
    studied.extend(ORDERS.map(one_by_one));
    studied.extend([
        Studied::OneByOne(Order::Fcfs, Placement::Chunk),
        Studied::Packages(Order::Fcfs),
        Studied::Packages(Order::Fpfs),
        Studied::Exact,
    ]);
    let progress = Progress::new("policies", studied.len() as u64);
    let run = |number: u64| {
        let of = studied[usize::try_from(number)?];
        let ended = of.run(&clusters, &jobs)?;
        ensure!(ended.len() == jobs.len(), "{}: {} jobs never started", of.name(), jobs.len() - ended.len());
        let usage = Usage::of(&clusters, &jobs, &ended, 1);
        Ok(OnTrace {
            policy: of.name(),
            figures: Figures::of(&clusters, &jobs, &ended),
            hosts_in_use: usage.hosts.concat(),
            link_in_use: usage.links.concat(),
        })
    };
    let rows = parallel::all(studied.len() as u64, &progress, run)?;
    progress.end();
    Ok(Trace { file: path.display().to_string(), jobs: jobs.len(), rows })
}
