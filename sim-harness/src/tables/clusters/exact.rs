//! OAS by Kolo's own planner: a batch as requests with traffic on a snapshot, for the least makespan.
//!
//! Invariant: its plans saturate no link, so that a job lasts as long as its slowest host makes it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use broker::{
    batch::{self, Options, policy_named},
    offline::{Asked, OfflinePlanner},
    phases::Settings,
    snapshot::GridSnapshot,
};
use serde_json::json;

use crate::clusters::world::{Cluster, Ended, Job};

/// Mbit/s of a GB/s.
const MBPS: f64 = 8_000.0;
/// The latest start, in seconds: behind any batch, and a time that requests may have.
const LATEST_S: u64 = 100_000_000_000;

/// What becomes of the jobs, all there at once, when order and hosts are chosen together.
///
/// # Errors
/// Never for jobs that fit the clusters.
pub(super) fn ordered_and_assigned(clusters: &[Cluster], jobs: &[Job]) -> anyhow::Result<Vec<Ended>> {
    let planner = OfflinePlanner::new(snapshot(clusters)?, Settings::default(), 1, false);
    let asked: Vec<Asked> = (1..)
        .zip(jobs.iter().enumerate())
        .map(|(number, (at, job))| planner.read_line(number, &request(at, job)).context("a job as a request"))
        .collect::<anyhow::Result<_>>()?;
    let policy = policy_named("oas")?;
    let answer = batch::plan(&*policy, &planner, &asked, &Options::default(), &|| Duration::ZERO)?;
    let ended = |(job, line): (usize, &broker::offline::PlanLine)| {
        let plan = line.outcome.plan().with_context(|| format!("job {job} has no place"))?;
        let sites: BTreeSet<_> = plan.seats.iter().map(|seat| &seat.site).collect();
        let (start, end) = (plan.start.0 as f64, plan.end().0 as f64);
        Ok(Ended { job, start, end, is_spread: sites.len() > 1, was_saturated: false, restarts: 0 })
    };
    answer.lines.iter().enumerate().map(ended).collect()
}

fn snapshot(clusters: &[Cluster]) -> anyhow::Result<GridSnapshot> {
    let name = |at: usize| format!("c{at}");
    let site = |(at, cluster): (usize, &Cluster)| json!({"id": name(at), "uplink": {"mbps": (cluster.link * MBPS) as u64, "occupancy": []}});
    let host = |at: usize, speed: u64, number: u32| {
        json!({"id": format!("c{at}-{number:03}"), "site": name(at), "resources": {"cpu": 1000}, "attributes": {},
            "speed": speed, "occupancy": {}})
    };
    let hosts = clusters.iter().enumerate().flat_map(|(at, cluster)| {
        let speed = (cluster.power * 1000.0).round() as u64;
        (0..cluster.hosts).map(move |number| host(at, speed, number))
    });
    let hosts: Vec<_> = hosts.collect();
    let sites: Vec<_> = clusters.iter().enumerate().map(site).collect();
    let text = json!({"format": "kolo-grid/2", "sites": sites, "hosts": hosts}).to_string();
    GridSnapshot::read(&text).context("clusters as a snapshot")
}

fn request(at: usize, job: &Job) -> String {
    json!({"id": format!("j{at:03}"), "hosts": job.tasks, "work": job.base.ceil() as u64, "per_host": {"cpu": 1000},
        "earliest": 0, "latest": LATEST_S, "objective": "finish",
        "traffic": {"mbps": (job.bandwidth * MBPS).round() as u64, "compute": (job.compute * 1000.0).round() as u64}})
    .to_string()
}
