//! The published traces: figures of an established simulator and of an independent one, and what is known of the files.
//!
//! They are looked for in the directory that `KOLO_TRACES` names, else in `shared/data/swf` beside the checkout or a directory
//! above it. Without them each test says so on standard error and in the list that `KOLO_SKIPPED` names, and passes; where `CI`
//! is set it fails.

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::replay;
use crate::replay::{
    args::{Overrun, Rules, Runtimes},
    cluster::ClusterSpec,
    engine, machines,
    metrics::{self, Metrics},
    policy::{self, Setup},
    trace::{self, Trace},
};

/// True run times, as on the command line when nothing else is asked for.
pub const RULES: Rules =
    Rules { runtimes: Runtimes::True, overrun: Overrun::Kill, teardown_s: 1, ignores_tags: false, jobs_max: None };

/// The directory that holds the traces; else reports that the test is skipped.
pub fn folder(test: &str) -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = checkout.ancestors().skip(3).map(|folder| folder.join("shared/data/swf"));
    let is_whole = |folder: &PathBuf| {
        ["hpc2n.swf", "wagap-2013.swf"]
            .iter()
            .all(|name| folder.join(name).is_file() && folder.join(format!("{name}.machines")).is_file())
    };
    // A directory that is named and is not the right one makes the test fail.
    let found = env::var_os("KOLO_TRACES").map(PathBuf::from).or_else(|| beside.take(3).find(is_whole));
    if found.is_none() {
        let line = format!("{test}: no published traces; KOLO_TRACES may name a directory with them");
        assert!(env::var_os("CI").is_none(), "{line}; where CI is set they must be there");
        // Unlike the macros, this is not caught by the test runner.
        writeln!(io::stderr(), "SKIPPED: {line}").unwrap();
        if let Some(list) = env::var_os("KOLO_SKIPPED") {
            writeln!(OpenOptions::new().append(true).create(true).open(list).unwrap(), "{line}").unwrap();
        }
    }
    found
}

pub fn clusters(folder: &Path, name: &str) -> Vec<ClusterSpec> {
    machines::read(&folder.join(format!("{name}.swf.machines"))).unwrap()
}

/// A trace and its clusters.
pub fn load(folder: &Path, name: &str, rules: &Rules) -> (Trace, Vec<ClusterSpec>) {
    let clusters = clusters(folder, name);
    (trace::read(&folder.join(format!("{name}.swf")), &clusters, rules).unwrap(), clusters)
}

fn metrics_of(folder: &Path, name: &str, policy: &str, rules: &Rules) -> Metrics {
    let (trace, clusters) = load(folder, name, rules);
    let mut policy = policy::named(policy, &Setup { clusters: &clusters, seed: 1, search: 0 }).unwrap();
    let runs = engine::replay(&trace.jobs, &clusters, policy.as_mut(), |_| ()).unwrap();
    metrics::measure(&trace, &runs, &clusters)
}

/// Figures that are met; docs/dev/replay.md has the others, with the reason for each difference.
#[test]
fn published_figures_are_met() {
    let Some(folder) = folder("published_figures_are_met") else { return };
    let estimates = Rules { runtimes: Runtimes::Estimates, ..RULES };
    let untagged = Rules { ignores_tags: true, ..RULES };
    for (name, policy, rules, jobs, wait_s, slowdown, part) in [
        ("hpc2n", "fcfs", RULES, 3145, 5694.0, 86.9, 0.001),
        ("hpc2n", "edf", RULES, 3145, 3602.0, 53.5, 0.001),
        ("hpc2n", "sjf", RULES, 3145, 2785.0, 9.9, 0.01),
        ("hpc2n", "sjf", estimates, 3145, 3432.0, 48.3, 0.01),
        ("hpc2n", "conservative", RULES, 3145, 3694.0, 24.9, 0.01),
        // An independent program with this order of events; one that handles a second at once has 3,469 s and 20.0.
        ("hpc2n", "easy", RULES, 3145, 3488.3, 23.02, 0.001),
        ("wagap-2013", "fcfs", RULES, 17_899, 162_008.0, 7323.9, 0.001),
        ("wagap-2013", "fcfs", untagged, 17_899, 158_851.0, 7441.0, 0.001),
    ] {
        let metrics = metrics_of(&folder, name, policy, &rules);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < part;
        let (found_wait_s, found_slowdown) = (metrics.wait_s.mean, metrics.slowdown.mean);
        assert_eq!(metrics.jobs, jobs, "{name}");
        assert!(near(found_wait_s, wait_s), "{name} {policy}: wait {found_wait_s} instead of {wait_s}");
        assert!(near(found_slowdown, slowdown), "{name} {policy}: slowdown {found_slowdown} instead of {slowdown}");
        let counts = (metrics.rejected, metrics.killed, metrics.findings.absurd_run_time.count);
        assert!(name == "hpc2n" || counts == (1, 702, 2), "{counts:?}");
        let counts = (metrics.rejected, metrics.findings.incomplete.count, metrics.findings.broken.count);
        assert!(name == "wagap-2013" || counts == (0, 25, 0), "{counts:?}");
    }
}

/// The checks of [`replay`] on a real prefix.
#[test]
fn a_real_prefix_over_commits_nothing() {
    let Some(folder) = folder("a_real_prefix_over_commits_nothing") else { return };
    let rules =
        Rules { runtimes: Runtimes::Estimates, overrun: Overrun::Extend, teardown_s: 0, jobs_max: Some(1500), ..RULES };
    let (trace, clusters) = load(&folder, "wagap-2013", &rules);
    for policy in policy::names() {
        replay(policy, &trace.jobs, &clusters);
    }
}
