//! `kolo usage` shows the time that commands took beside the reserved time.

use std::time::Instant;

use end_to_end::{Node, hosts, run, wait_until};
use serde_json::Value;

use super::run_on_seats::{kolo_run, runner};

/// The line of `kolo usage` about a reservation.
fn used(node: &Node, request: &str) -> Option<Value> {
    let usage = node.kolo_json(&["usage"], 0);
    usage["used"].as_array().unwrap().iter().find(|line| line["part"]["request"] == request).cloned()
}

fn submit(node: &Node, duration: &str) -> String {
    let view = node.kolo_json(&["submit", "-N", "1", "--per-host", "cpu=1", "-t", duration], 0);
    view["id"].as_str().unwrap().to_owned()
}

#[test]
fn the_time_of_commands_stands_beside_what_was_reserved_whatever_becomes_of_the_node() {
    let mut node = Node::start("alpha", &hosts("a", 1), runner());
    let (idle, busy) = (submit(&node, "3s"), submit(&node, "1h"));
    let began = Instant::now();
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 2";
    let left = run(&mut kolo_run(&node, &["--in", &busy, "--detach"], &["sh", "-c", script]));
    assert_eq!(left.code, Some(0), "{left:?}");
    // Its keeper writes it down, whether or not there is a node.
    node.kill();
    node.restart();
    let is_over = |line: &Option<Value>| line.as_ref().is_some_and(|line| line["runs"] == 1);
    let line = wait_until("the end of the command", || used(&node, &busy), is_over).unwrap();
    let passed_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
    let [used_ms, cpu_ms] = ["used_ms", "cpu_ms"].map(|key| line[key].as_u64().unwrap());
    assert!((2_000..=passed_ms).contains(&used_ms) && (1..used_ms).contains(&cpu_ms), "{line} after {passed_ms} ms");
    assert!(line["reserved_s"].as_u64().unwrap() * 1_000 + 1_000 >= used_ms, "{line}");

    // What was never used is there too, and nothing is lost when it is over.
    let is_whole = |line: &Option<Value>| line.as_ref().is_some_and(|line| line["reserved_s"] == 3);
    let line = wait_until("the end of the other", || used(&node, &idle), is_whole).unwrap();
    assert_eq!((&line["runs"], &line["used_ms"], &line["part"]["seats"]), (&0.into(), &0.into(), &1.into()));
    let _ = node.kolo_json(&["cancel", &busy], 0);
    let line = used(&node, &busy).unwrap();
    node.kill();
    node.restart();
    let again = used(&node, &busy).unwrap();
    assert_eq!([&again["used_ms"], &again["reserved_s"]], [&line["used_ms"], &line["reserved_s"]]);
    let table = node.kolo(&["usage"]);
    assert!(table.code == Some(0) && table.out.contains("HOST-HOURS"), "{table:?}");
    let csv = node.kolo(&["usage", "--csv"]);
    assert!(csv.out.lines().filter(|line| line.starts_with("used,")).count() == 2, "{csv:?}");
}
