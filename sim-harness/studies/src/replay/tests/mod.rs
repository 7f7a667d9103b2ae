//! Replays of small traces, worked out by hand or by a slow, obvious method, and files that are wrong.

mod files;
mod flags;
mod golden;
mod oracle;
mod plans;
pub mod random;
mod spanning;
pub mod traces;

use clap::Parser;

use super::{
    args::ReplayArgs,
    cluster::ClusterSpec,
    engine::{self, Run},
    job::{Job, Known, Shape},
    policy::{self, Setup},
};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: ReplayArgs,
}

/// The arguments of `kolo-study replay` with these flags, or what is said of them.
fn parse(flags: &str) -> Result<ReplayArgs, String> {
    let line = Line::try_parse_from(["replay"].into_iter().chain(flags.split_whitespace()));
    line.map(|line| line.args).map_err(|error| error.to_string())
}

/// A job that is planned as long as it runs.
pub fn job(submit_s: i64, run_s: i64, hosts: u32, processors_per_host: u32) -> Job {
    let known = Known {
        submit_s,
        planned_s: run_s,
        teardown_s: 0,
        length_s: run_s,
        limit_s: run_s,
        deadline_s: submit_s + 2 * run_s,
        shape: Shape { hosts, processors_per_host, memory_per_host_kib: 0, is_exclusive: false },
        excluded: Box::default(),
    };
    Job { id: submit_s, line: 1, known, held_s: run_s, is_killed: false }
}

/// The same job, planned with this time.
pub fn planned(planned_s: i64, mut job: Job) -> Job {
    job.known.planned_s = planned_s;
    job
}

/// The same job, with so much memory on each host.
pub fn with_memory(memory_per_host_kib: u64, mut job: Job) -> Job {
    job.known.shape.memory_per_host_kib = memory_per_host_kib;
    job
}

/// A cluster.
pub fn cluster(hosts: u32, processors_per_host: u32, memory_per_host_kib: u64) -> ClusterSpec {
    let name = format!("{hosts}x{processors_per_host}");
    ClusterSpec { name, hosts, processors_per_host, memory_per_host_kib, speed_thousandths: 1000 }
}

/// Replays and checks what must hold under every policy: no job starts too early, on a cluster that its tags exclude, or where
/// too few processors are free in sum.
pub fn replay(policy: &str, jobs: &[Job], clusters: &[ClusterSpec]) -> Vec<Run> {
    let mut policy = policy::named(policy, &Setup { clusters, seed: 1, search: 0 }).unwrap();
    let runs = engine::replay(jobs, clusters, policy.as_mut(), |_| ()).unwrap();
    for (job, run) in jobs.iter().zip(&runs) {
        assert!(run.start.second() >= job.known.submit_s && run.end.second() == run.start.second() + job.held_s);
        assert!(job.known.may_run_on(run.cluster));
    }
    for (number, spec) in clusters.iter().enumerate() {
        let here = || jobs.iter().zip(&runs).filter(|(_, run)| run.cluster.at() == number);
        // Ends before starts, which come at least a microsecond later.
        let starts = here().map(|(job, run)| (run.start, true, job.known.shape.processors()));
        let mut changes: Vec<_> =
            here().map(|(job, run)| (run.end, false, job.known.shape.processors())).chain(starts).collect();
        changes.sort_unstable();
        let mut held = 0;
        for (at, is_start, processors) in changes {
            held = if is_start { held + processors } else { held - processors };
            assert!(held <= spec.processors(), "{held} processors held at {at:?}");
        }
    }
    runs
}

/// The seconds in which the jobs start.
pub fn starts(policy: &str, jobs: &[Job], clusters: &[ClusterSpec]) -> Vec<i64> {
    replay(policy, jobs, clusters).iter().map(|run| run.start.second()).collect()
}
