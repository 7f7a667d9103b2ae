//! The published traces, where they are at hand: figures of an established simulator, and what is known of the files.
//!
//! They are looked for in the directory that `KOLO_TRACES` names, else in `shared/data/swf` beside the checkout or a directory
//! above it. Where they are not, each test says so and passes.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::{oracle, replay};
use crate::replay::{
    args::{Overrun, Runtimes},
    engine, machines,
    metrics::{self, Metrics},
    policy::{self, Setup},
    trace::{self, Rules},
};

/// The directory that holds the traces; else says that the test is skipped.
fn folder(test: &str) -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = checkout.ancestors().skip(2).map(|folder| folder.join("shared/data/swf"));
    let named = env::var_os("KOLO_TRACES").map(PathBuf::from);
    let is_whole = |folder: &PathBuf| {
        ["hpc2n.swf", "wagap-2013.swf"]
            .iter()
            .all(|name| folder.join(name).is_file() && folder.join(format!("{name}.machines")).is_file())
    };
    // Who names a directory wants to hear that it is not the right one.
    let found = named.or_else(|| beside.take(3).find(is_whole));
    if found.is_none() {
        eprintln!(
            "SKIPPED: {test}: no published traces; KOLO_TRACES may name a directory with hpc2n.swf and wagap-2013.swf"
        );
    }
    found
}

fn metrics_of(folder: &Path, name: &str, policy: &str, runtimes: Runtimes) -> Metrics {
    let clusters = machines::read(&folder.join(format!("{name}.swf.machines"))).unwrap();
    let rules = Rules { runtimes, overrun: Overrun::Kill, teardown_s: 1, jobs_max: None };
    let trace = trace::read(&folder.join(format!("{name}.swf")), &clusters, &rules).unwrap();
    let mut policy = policy::named(policy, &Setup { jobs: &trace.jobs, clusters: &clusters, seed: 1 }).unwrap();
    let runs = engine::replay(&trace.jobs, &clusters, policy.as_mut(), |_| ()).unwrap();
    metrics::measure(&trace, &runs, &clusters)
}

/// Figures that are met; the others are in docs/dev/replay.md, with the reason.
#[test]
fn figures_of_an_established_simulator_are_met() {
    let Some(folder) = folder("figures_of_an_established_simulator_are_met") else { return };
    for (name, policy, runtimes, jobs, wait_s, slowdown) in [
        ("hpc2n", "fcfs", Runtimes::True, 3145, 5694.0, 86.9),
        ("hpc2n", "edf", Runtimes::True, 3145, 3602.0, 53.5),
        ("hpc2n", "sjf", Runtimes::True, 3145, 2785.0, 9.9),
        ("hpc2n", "sjf", Runtimes::Estimates, 3145, 3432.0, 48.3),
        ("hpc2n", "conservative", Runtimes::True, 3145, 3694.0, 24.9),
        ("wagap-2013", "fcfs", Runtimes::True, 17_899, 161_999.0, 7323.5),
    ] {
        let metrics = metrics_of(&folder, name, policy, runtimes);
        assert_eq!(metrics.jobs, jobs);
        assert_near(&metrics, wait_s, slowdown, &format!("{name} {policy}"));
    }
    let wagap = metrics_of(&folder, "wagap-2013", "fcfs", Runtimes::True);
    assert_eq!((wagap.rejected, wagap.killed, wagap.findings.absurd_run_time.count), (1, 702, 2));
    let hpc2n = metrics_of(&folder, "hpc2n", "fcfs", Runtimes::True);
    assert_eq!((hpc2n.rejected, hpc2n.findings.incomplete.count, hpc2n.findings.broken.count), (0, 25, 0));
}

/// By the book EASY differs from those figures; with their bookkeeping it does not.
#[test]
fn the_figures_of_easy_follow_from_lists_of_processors_that_are_made_up() {
    let Some(folder) = folder("the_figures_of_easy_follow_from_lists_of_processors_that_are_made_up") else { return };
    for (runtimes, wait_s, slowdown) in [(Runtimes::True, 3257.0, 20.9), (Runtimes::Estimates, 3359.0, 22.9)] {
        let metrics = metrics_of(&folder, "hpc2n", "easy-lists", runtimes);
        assert_near(&metrics, wait_s, slowdown, &format!("{runtimes:?}"));
    }
}

fn assert_near(metrics: &Metrics, wait_s: f64, slowdown: f64, what: &str) {
    let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.05;
    assert!(near(metrics.wait_s.mean, wait_s), "{what}: wait {}", metrics.wait_s.mean);
    assert!(near(metrics.slowdown.mean, slowdown), "{what}: slowdown {}", metrics.slowdown.mean);
}

/// The checks of [`replay`] on a real prefix.
#[test]
fn a_real_prefix_over_commits_nothing() {
    let Some(folder) = folder("a_real_prefix_over_commits_nothing") else { return };
    let clusters = machines::read(&folder.join("wagap-2013.swf.machines")).unwrap();
    let rules = Rules { runtimes: Runtimes::Estimates, overrun: Overrun::Extend, teardown_s: 0, jobs_max: Some(1500) };
    let trace = trace::read(&folder.join("wagap-2013.swf"), &clusters, &rules).unwrap();
    for policy in policy::names() {
        replay(policy, &trace.jobs, &clusters);
    }
}

/// The beginning of a real log, by a slow method.
#[test]
fn fcfs_and_easy_are_what_a_slow_method_finds_on_a_real_prefix() {
    let Some(folder) = folder("fcfs_and_easy_are_what_a_slow_method_finds_on_a_real_prefix") else { return };
    oracle::check_file(&folder.join("hpc2n.swf"), 240, 400);
}
