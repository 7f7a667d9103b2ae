//! Jobs that span clusters: every policy ends every job, and what no policy may change does not change.

use std::fs;

use super::{job, parse};
use crate::replay::spanning;

#[test]
fn every_policy_replays_a_trace_on_clusters_of_any_speed() {
    let folder = tempfile::tempdir().unwrap();
    let machines = folder.path().join("m");
    fs::write(&machines, "0\ta\t4\t1\t1\t5\n1\tb\t4\t1\t0.5\t5\n").unwrap();
    let trace = folder.path().join("t");
    let line = |id: i64| format!("{id} {} -1 {} {} -1 -1 -1 -1 -1 1 1 1 1 1 1 1 1\n", 10 * id, 40 + id, 1 + id % 7);
    fs::write(&trace, (0..30).map(line).collect::<String>()).unwrap();
    let flags = |policy: &str, more: &str| {
        format!("--trace {} --machines {} --policy {policy} {more}", trace.display(), machines.display())
    };
    let report = folder.path().join("page.html");
    for policy in crate::replay::args::SPANNING_POLICIES {
        for more in ["--uplink-mbps 1000", "--uplink-mbps 1000 --host-mtbf 600s --seed 3"] {
            let args = parse(&format!("{} --report {}", flags(policy, more), report.display())).unwrap();
            crate::replay::run(&args).unwrap_or_else(|error| panic!("{policy} {more}: {error:#}"));
            let page = fs::read_to_string(&report).unwrap();
            for shown in ["Hosts in use, by cluster", "What jobs would send over uplinks", ">b<"] {
                assert!(page.contains(shown), "{policy}: {shown}");
            }
        }
    }
    let failed = |flags: &str| format!("{:#}", crate::replay::run(&parse(flags).unwrap()).unwrap_err());
    assert!(failed(&flags("easy", "--uplink-mbps 1")).contains("with --uplink-mbps there are oas, oas:slots, mesd"));
    fs::write(&machines, "0\ta\t4\t1\t1\t5\n").unwrap();
    assert!(failed(&flags("mesd", "--uplink-mbps 1 --runtimes estimates")).contains("--runtimes estimates"));
    for (more, named) in [
        ("--uplink-mbps 1 --search 5", "--search"),
        ("--uplink-mbps 1 --slack 2", "--slack"),
        ("--uplink-mbps 1 --host-mtbf 0s", "--host-mtbf"),
    ] {
        assert!(parse(&flags("mesd", more)).unwrap_err().contains(named), "{more}");
    }
    assert!(failed(&flags("mesd", "")).contains("policy mesd: only with --uplink-mbps"));
    assert!(parse(&flags("mesd", "--host-mtbf 1h")).unwrap_err().contains("--uplink-mbps"));
}

#[test]
fn what_a_trace_does_not_say_depends_on_the_seed_alone() {
    let known = [job(0, 10, 1, 1), job(5, 20, 4, 1)];
    let (thin, wide, other) =
        (spanning::jobs(&known, 80, 1), spanning::jobs(&known, 800, 1), spanning::jobs(&known, 80, 2));
    assert_eq!((thin[0].bandwidth, thin[1].tasks, thin[1].base, thin[1].arrival), (0.0, 4, 20.0, 5.0));
    assert!((thin[1].bandwidth * 10.0 - wide[1].bandwidth).abs() < 1e-12 && wide[1].bandwidth <= 0.1);
    assert!(thin[1].compute == wide[1].compute && thin[1].compute != other[1].compute);
}
