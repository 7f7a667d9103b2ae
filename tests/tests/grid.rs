//! A user's view: real nodes on loopback, and only the command line and the API to talk to them.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

#[path = "grid/activation.rs"]
mod activation;
#[path = "grid/api.rs"]
mod api;
#[path = "grid/api_drawn.rs"]
mod api_drawn;
#[path = "grid/authority.rs"]
mod authority;
#[path = "grid/backup.rs"]
mod backup;
#[path = "grid/batch.rs"]
mod batch;
#[path = "grid/capabilities.rs"]
mod capabilities;
#[path = "grid/classes.rs"]
mod classes;
#[path = "grid/clock.rs"]
mod clock;
#[path = "grid/documents.rs"]
mod documents;
#[path = "grid/each.rs"]
mod each;
#[path = "grid/earliest.rs"]
mod earliest;
#[path = "grid/files.rs"]
mod files;
#[path = "grid/full_disk.rs"]
mod full_disk;
#[path = "grid/kills.rs"]
mod kills;
#[path = "grid/lasting.rs"]
mod lasting;
#[path = "grid/links.rs"]
mod links;
#[path = "grid/local.rs"]
mod local;
#[path = "grid/logs.rs"]
mod logs;
#[path = "grid/losses.rs"]
mod losses;
#[path = "grid/membership.rs"]
mod membership;
#[path = "grid/molded.rs"]
mod molded;
#[path = "grid/money.rs"]
mod money;
#[path = "grid/notices.rs"]
mod notices;
#[path = "grid/offered.rs"]
mod offered;
#[path = "grid/oracle.rs"]
mod oracle;
#[path = "grid/own_key.rs"]
mod own_key;
#[path = "grid/page.rs"]
mod page;
#[path = "grid/peers.rs"]
mod peers;
#[path = "grid/pictures.rs"]
mod pictures;
#[path = "grid/proof.rs"]
mod proof;
#[path = "grid/reach.rs"]
mod reach;
#[path = "grid/revoked.rs"]
mod revoked;
#[path = "grid/rotated.rs"]
mod rotated;
#[path = "grid/run.rs"]
mod run_on_seats;
#[path = "grid/scenarios.rs"]
mod scenarios;
#[path = "grid/shares.rs"]
mod shares;
#[path = "grid/ssh.rs"]
mod ssh;
#[path = "grid/stopped.rs"]
mod stopped;
#[path = "grid/terminal.rs"]
mod terminal;
#[path = "grid/tls.rs"]
mod tls;
#[path = "grid/upkeep.rs"]
mod upkeep;
#[path = "grid/used.rs"]
mod used;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use end_to_end::{Node, binary, hosts, kolo_sim, run, write};
use serde_json::Value;

/// Three sites with two hosts each.
fn three_sites() -> [Node; 3] {
    let first = Node::first("alpha", &hosts("a", 2));
    let second = Node::joining("beta", &hosts("b", 2), &first, &[]);
    let third = Node::joining("gamma", &hosts("c", 2), &first, &[]);
    for node in [&first, &second, &third] {
        node.wait_until_it_knows(6);
    }
    [first, second, third]
}

#[test]
fn the_command_line_submits_lists_and_cancels() {
    let node = Node::first("alpha", &hosts("a", 2));
    node.wait_until_it_knows(2);
    let amounts = ["--total", "cpu=6", "--total", "memory=10GiB", "--per-host", "cpu=0.5"];
    let request = node.kolo_json(&[&["submit", "-N", "2", "-t", "2:00:00"], &amounts[..]].concat(), 0);
    assert_eq!(request["state"], "active", "free hosts start at once: {request}");
    let granted = request["reservation"]["hosts"].as_array().unwrap();
    let total = |resource: &str| granted.iter().map(|host| host["amounts"][resource].as_u64().unwrap()).sum::<u64>();
    assert_eq!((granted.len(), total("cpu"), total("memory")), (2, 6000, 10 * 1024), "{request}");
    let id = request["id"].as_str().unwrap();
    assert_eq!(node.kolo_json(&["list"], 0)["requests"][0]["id"], id);
    assert_eq!(node.kolo_json(&["cancel", id], 0)["state"], "cancelled");
    assert!(node.bookings().is_empty(), "{:?}", node.bookings());

    // A label may be given twice, and then does not say which is meant, until one of the two is over.
    let twin = ["submit", "-N", "1", "-t", "1h", "--id", "twin"];
    let twins = [(); 2].map(|()| node.kolo_json(&twin, 0)["id"].as_str().unwrap().to_owned());
    let refused = node.kolo(&["cancel", "twin"]);
    assert!(refused.code == Some(1) && twins.iter().all(|id| refused.err.contains(id)), "{refused:?}");
    assert_eq!(node.bookings().len(), 2);
    assert_eq!(node.kolo_json(&["cancel", &twins[1]], 0)["state"], "cancelled");
    assert_eq!(node.kolo_json(&["cancel", "twin"], 0)["id"], twins[0].as_str());
    let refused = node.kolo(&["local", "remove", "nosuch"]);
    assert!(refused.err.contains("kolo local list"), "{refused:?}");
}

#[test]
fn a_no_is_explained() {
    let nodes = three_sites();
    let rejected = nodes[2].kolo(&["submit", "-N", "7", "--per-host", "cpu=1", "-t", "1h"]);
    assert!(rejected.code == Some(2) && rejected.err.contains("6 of 7 hosts"), "{rejected:?}");

    let rejected = nodes[2].kolo(&["submit", "-N", "2", "--where", "arch=riscv", "--per-host", "cpu=1", "-t", "1h"]);
    assert_eq!(rejected.code, Some(2), "{rejected:?}");
    let text = nodes[2].kolo(&["explain", "last"]).out;
    assert!(text.contains("arch=riscv") && text.contains('6'), "{text}");
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let node = Node::first("alpha", &hosts("a", 1));
    let directory = tempfile::tempdir().unwrap();
    let broken = write(directory.path(), "request.toml", "hosts = 1\nduration = \"1h\"\ntotals = {}\n");
    let broken = broken.display().to_string();
    let cases: [(&[&str], &str); 10] = [
        (&["submit", "-N", "1", "-t", "60"], "60"),
        (&["submit", "-N", "0", "-t", "1h"], "hosts"),
        (&["submit", "-N", "1", "-t", "1h", "--total", "memory=4"], "memory=4"),
        (&["submit", "-N", "1", "-t", "1h", "--total", "cpu=99999999999999999999"], "cpu"),
        (&["submit", "-N", "1", "-t", "1h", "--earliest", "now+2h", "--latest", "now+1h"], "latest"),
        (&["submit", "--request", &broken], "totals"),
        (&["submit"], "-N"),
        (&["submit", "-N", "1", "-t", "1h", "--id", "last"], "newest"),
        (&["show", ""], "label"),
        (&["grid", "init", "--name", "BAD name"], "--name \"BAD name\""),
    ];
    for (arguments, expected) in cases {
        let refused = node.kolo(arguments);
        assert!(refused.code == Some(64) && refused.err.contains(expected), "{arguments:?}: {refused:?}");
    }
    let mut gone = Command::new(binary("kolo"));
    gone.args(["list", "--api", "127.0.0.1:1", "--token-file"]).arg(node.data().join("api.token"));
    let gone = run(&mut gone);
    assert_eq!(gone.code, Some(3), "{gone:?}");
}

#[test]
fn the_harness_runs_a_grid_and_finds_the_ledgers_in_order() {
    let size = ["--nodes", "5", "--hosts", "20", "--count", "12", "--seed", "2"];
    let ended = kolo_sim(&[&["grid"], &size[..], &["--output", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let figures = ended.json();
    let figure = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("{name} in {figures}"));
    assert_eq!((figure("nodes"), figure("hosts"), figure("requests")), (5, 20, 12), "{figures}");
    assert_eq!((figure("violations"), figure("failed")), (0, 0), "{ended:?}");
    assert_eq!(figure("reserved") + figure("rejected"), 12, "{figures}");
    assert!(figure("reserved") > 0 && figures["latency_ms"]["p50"].as_f64().unwrap() > 0.0, "{figures}");
}

/// Two hosts: one nearly full for ten minutes, one free.
fn two_hosts(directory: &Path) -> PathBuf {
    write(
        directory,
        "grid.json",
        r#"{"format":"kolo-grid/1","hosts":[
            {"id":"h1","site":"s1","resources":{"cpu":4000},"attributes":{},"occupancy":{"cpu":[[0,3000],[600,0]]}},
            {"id":"h2","site":"s2","resources":{"cpu":2000},"attributes":{},"occupancy":{}}]}"#,
    )
}

#[test]
fn the_offline_planner_answers_line_by_line() {
    let directory = tempfile::tempdir().unwrap();
    let grid = two_hosts(directory.path());
    let lines = [
        r#"{"id":"now","hosts":2,"duration":300,"earliest":0,"latest":900,"total":{"cpu":2000}}"#,
        r#"{"id":"later","hosts":2,"duration":300,"earliest":0,"latest":900,"total":{"cpu":5000}}"#,
        r#"{"id":"never","hosts":2,"duration":300,"earliest":0,"latest":900,"total":{"cpu":7000}}"#,
    ];
    let requests = write(directory.path(), "requests.jsonl", &lines.join("\n"));
    let kolo_plan = |requests: &Path, more: &[&str]| {
        let mut command = Command::new(binary("kolo"));
        run(command.arg("plan").arg("--grid").arg(&grid).arg("--requests").arg(requests).args(more))
    };
    let planned = |more: &[&str]| {
        let ended = kolo_plan(&requests, more);
        (ended.code, ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>())
    };
    let (code, plans) = planned(&[]);
    assert_eq!((code, plans.len()), (Some(0), 3));
    assert_eq!((&plans[0]["start"], &plans[1]["start"]), (&0.into(), &600.into()));
    assert_eq!(plans[2]["outcome"], "rejected");
    assert!(plans.iter().all(|plan| plan["start_proven"] == true), "{plans:?}");
    // The first plan is the same with commits; the second must now leave room for it.
    let (_, committed) = planned(&["--commit"]);
    assert_eq!((&committed[0]["hosts"], &committed[1]["start"]), (&plans[0]["hosts"], &600.into()));

    let broken = write(directory.path(), "broken.jsonl", &format!("{}\n{{\"hosts\":0,\"duration\":1}}\n", lines[0]));
    let refused = kolo_plan(&broken, &[]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(["broken.jsonl", "2", "hosts"].iter().all(|part| refused.err.contains(part)), "{refused:?}");
    assert_eq!(refused.out, "", "the whole file is checked first");
}
