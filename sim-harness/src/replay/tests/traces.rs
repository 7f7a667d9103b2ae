//! The published traces, when `KOLO_TRACES` names the directory that holds them: figures of an established simulator,
//! and what is known of the files.

use std::path::Path;

use super::replay;
use crate::replay::{
    args::{Overrun, Runtimes},
    machines,
    metrics::{self, Metrics},
    trace::{self, Rules},
};

fn metrics_of(folder: &Path, name: &str, policy: &str, runtimes: Runtimes) -> Metrics {
    let clusters = machines::read(&folder.join(format!("{name}.swf.machines"))).unwrap();
    let rules = Rules { runtimes, overrun: Overrun::Kill, teardown_s: 1, jobs_max: None };
    let trace = trace::read(&folder.join(format!("{name}.swf")), &clusters, &rules).unwrap();
    let make = crate::replay::policy::named(policy).unwrap();
    let mut policy = make(&crate::replay::policy::Setup { jobs: &trace.jobs, clusters: &clusters, seed: 1 });
    let runs = crate::replay::engine::replay(&trace.jobs, &clusters, policy.as_mut(), &mut ()).unwrap();
    metrics::measure(&trace, &runs, &clusters)
}

/// Figures that are met; the others are in docs/replay.md, with the reason.
#[test]
fn figures_of_an_established_simulator_are_met() {
    let Some(folder) = std::env::var_os("KOLO_TRACES") else { return };
    let folder = Path::new(&folder);
    for (name, policy, runtimes, jobs, wait_s, slowdown) in [
        ("hpc2n", "fcfs", Runtimes::True, 3145, 5694.0, 86.9),
        ("hpc2n", "edf", Runtimes::True, 3145, 3602.0, 53.5),
        ("hpc2n", "sjf", Runtimes::True, 3145, 2785.0, 9.9),
        ("hpc2n", "sjf", Runtimes::Estimates, 3145, 3432.0, 48.3),
        ("wagap-2013", "fcfs", Runtimes::True, 17_899, 161_999.0, 7323.5),
    ] {
        let metrics = metrics_of(folder, name, policy, runtimes);
        assert_eq!(metrics.jobs, jobs);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.05;
        assert!(near(metrics.wait_s.mean, wait_s), "{name} {policy}: wait {}", metrics.wait_s.mean);
        assert!(near(metrics.slowdown.mean, slowdown), "{name} {policy}: slowdown {}", metrics.slowdown.mean);
    }
    let wagap = metrics_of(folder, "wagap-2013", "fcfs", Runtimes::True);
    assert_eq!((wagap.rejected, wagap.killed, wagap.findings.absurd_run_time.count), (1, 702, 2));
    let hpc2n = metrics_of(folder, "hpc2n", "fcfs", Runtimes::True);
    assert_eq!((hpc2n.rejected, hpc2n.findings.incomplete.count, hpc2n.findings.broken.count), (0, 25, 0));
}

/// The checks of [`replay`] on a real prefix.
#[test]
fn a_real_prefix_over_commits_nothing() {
    let Some(folder) = std::env::var_os("KOLO_TRACES") else { return };
    let folder = Path::new(&folder);
    let clusters = machines::read(&folder.join("wagap-2013.swf.machines")).unwrap();
    let rules = Rules { runtimes: Runtimes::Estimates, overrun: Overrun::Extend, teardown_s: 0, jobs_max: Some(1500) };
    let trace = trace::read(&folder.join("wagap-2013.swf"), &clusters, &rules).unwrap();
    for (policy, _) in crate::replay::policy::POLICIES {
        replay(policy, &trace.jobs, &clusters);
    }
}
