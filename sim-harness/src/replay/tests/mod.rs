//! Replays of small traces, worked out by hand or by a slow, obvious method, and files that are wrong.

mod files;
mod flags;
mod golden;
mod oracle;
mod plans;
mod traces;

use super::{
    cluster::ClusterSpec,
    engine::{self, Run},
    job::{Job, Shape},
    policy::{self, Setup},
};

/// A job that is planned as long as it runs.
pub fn job(submit_s: i64, run_s: i64, hosts: u32, processors_per_host: u32) -> Job {
    Job {
        id: submit_s,
        line: 1,
        submit_s,
        held_s: run_s,
        planned_s: run_s,
        teardown_s: 0,
        length_s: run_s,
        limit_s: run_s,
        shape: Shape { hosts, processors_per_host, memory_per_host_kib: 0 },
        is_killed: false,
    }
}

/// A cluster.
pub fn cluster(hosts: u32, processors_per_host: u32, memory_per_host_kib: u64) -> ClusterSpec {
    ClusterSpec { name: format!("{hosts}x{processors_per_host}"), hosts, processors_per_host, memory_per_host_kib }
}

/// Replays and checks what must hold under every policy: nobody starts too early, and no host is over-committed in sum.
pub fn replay(policy: &str, jobs: &[Job], clusters: &[ClusterSpec]) -> Vec<Run> {
    let mut policy = policy::named(policy, &Setup { jobs, clusters, seed: 1 }).unwrap();
    let runs = engine::replay(jobs, clusters, policy.as_mut(), |_| ()).unwrap();
    for (job, run) in jobs.iter().zip(&runs) {
        assert!(run.start.second() >= job.submit_s && run.end.second() == run.start.second() + job.held_s);
        for (number, spec) in clusters.iter().enumerate() {
            let is_held = |(_, other): &(&Job, &Run)| {
                other.cluster.at() == number && other.start <= run.start && run.start < other.end
            };
            let held: u64 = jobs.iter().zip(&runs).filter(is_held).map(|(job, _)| job.shape.processors()).sum();
            assert!(held <= spec.processors(), "{held} processors held at {:?}", run.start);
        }
    }
    runs
}

/// The seconds in which the jobs start.
pub fn starts(policy: &str, jobs: &[Job], clusters: &[ClusterSpec]) -> Vec<i64> {
    replay(policy, jobs, clusters).iter().map(|run| run.start.second()).collect()
}
