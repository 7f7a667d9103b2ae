//! Requests whose commands need something of owners get hosts where they may have it, or read who lets them have it and how.

use std::fs;

use end_to_end::{
    Node, has_namespaces, hosts, run,
    skip::{missing, skip},
    wait_until,
};
use nix::unistd::geteuid;

use super::run_on_seats::{detached, kolo_run, runner, sorted};

/// A runner that gives commands no network.
fn without_network() -> &'static [&'static str] {
    match geteuid().is_root() {
        true => &["--runner", "bubblewrap", "--runner-user", "nobody"],
        false => &["--runner", "bubblewrap"],
    }
}

/// The sites of a reservation, by name.
fn sites_of(node: &Node, id: &str) -> Vec<String> {
    let view = node.get(&format!("/v1/requests/{id}"));
    let hosts = view["reservation"]["hosts"].as_array().unwrap().clone();
    let mut sites: Vec<String> = hosts.iter().map(|host| host["site_name"].as_str().unwrap().to_owned()).collect();
    sites.sort();
    sites
}

const CLOSED: &str =
    "their owner lets no commands run (runner = \"bubblewrap\" in site.toml opens it, see docs/run.md)";

#[test]
fn out_of_the_box_nothing_is_reserved_for_a_command_and_its_user_reads_which_key_lets_it_run() {
    let node = Node::start("alpha", &hosts("a", 2), &[]);
    node.wait_until_it_knows(2);
    let expected = format!("0 of 1 hosts satisfy the minima and attributes; 2 hosts: {CLOSED}");
    let ended = run(&mut kolo_run(&node, &["-N", "1", "--per-host", "cpu=1", "-t", "1h"], &["true"]));
    assert_eq!(ended.code, Some(120), "{ended:?}");
    assert!(ended.err.contains(&expected), "{ended:?}");
    let explained = node.kolo(&["explain", "last"]);
    assert!(explained.out.contains(&format!("{CLOSED} cut 2 hosts")), "{explained:?}");
    for command in ["plan", "slots", "submit"] {
        let ended = node.kolo(&[command, "-N", "1", "--per-host", "cpu=1", "-t", "1h", "--needs", "run"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(&expected), "{ended:?}");
    }
    assert!(node.bookings().is_empty());
    let file = node.data().join("job.sh");
    fs::write(&file, "#KOLO -N 1 -t 1h --per-host cpu=1\n#KOLO --needs network,run --image a:1\ntrue\n").unwrap();
    let ended = node.kolo(&["plan", file.to_str().unwrap()]);
    assert!(ended.code == Some(2) && ended.err.contains(&expected), "{ended:?}");
    fs::write(node.data().join("r.toml"), "hosts = 1\nduration = \"1h\"\nimage = \"a:1\"\n").unwrap();
    let ended = node.kolo(&["plan", "--request", node.data().join("r.toml").to_str().unwrap()]);
    assert!(ended.err.contains("2 hosts: their owner has no image a:1 (runner_images in site.toml"), "{ended:?}");
    let ended = node.kolo(&["plan", "-N", "1", "-t", "1h", "--needs", "gpu"]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    let plain = node.kolo(&["plan", "-N", "2", "--per-host", "cpu=1", "-t", "1h"]);
    assert_eq!(plain.code, Some(0), "who runs nothing is served: {plain:?}");
}

#[test]
fn a_command_gets_hosts_where_it_may_have_what_it_needs() {
    if !missing(&["bwrap"]).is_empty() {
        return skip("not installed: bwrap");
    }
    if !has_namespaces() {
        return;
    }
    let closed = Node::start("alpha", &hosts("a", 1), &[]);
    let alone = Node::joining("beta", &hosts("b", 1), &closed, without_network());
    let open = Node::joining("gamma", &hosts("c", 1), &closed, &[runner(), &["--runner-network", "true"]].concat());
    [&closed, &alone, &open].iter().for_each(|node| node.wait_until_it_knows(3));
    let request = ["-N", "1", "--per-host", "cpu=1", "-t", "1h"];
    for node in [&closed, &alone, &open, &closed, &alone, &open] {
        let id = detached(node, &[&request[..], &["--port", "4000"]].concat(), "sleep 100");
        assert_eq!(sites_of(node, &id), ["gamma"]);
        let _ = node.kolo_json(&["cancel", &id], 0);
        let id = detached(node, &request, "sleep 100");
        assert!(["beta", "gamma"].contains(&&*sites_of(node, &id)[0]));
        let _ = node.kolo_json(&["cancel", &id], 0);
    }
    wait_until("the hosts to be free", || alone.bookings().len() + open.bookings().len(), |count| *count == 0);
    let both = ["-N", "2", "--per-host", "cpu=1", "-t", "1h"];
    let ended = run(&mut kolo_run(&closed, &both, &["sh", "-c", "echo $KOLO_RANK"]));
    assert_eq!((ended.code, sorted(&ended.out)), (Some(0), vec!["[0] 0", "[1] 1"]), "{ended:?}");
    let ended = run(&mut kolo_run(&closed, &[&both[..], &["--port", "4000"]].concat(), &["true"]));
    assert_eq!(ended.code, Some(120), "{ended:?}");
    let network = "1 host: their owner gives commands no network (runner_network = true in site.toml";
    assert!(ended.err.contains(&format!("1 host: {CLOSED}; {network}")), "{ended:?}");
    let ended = run(&mut kolo_run(&closed, &[&request[..], &["--image", "a:1"]].concat(), &["true"]));
    assert!(ended.code == Some(120) && ended.err.contains("2 hosts: their owner has no image a:1"), "{ended:?}");
    let id = closed.kolo_json(&[&["submit"], &both[..], &["--needs", "run"]].concat(), 0)["id"].clone();
    assert_eq!(sites_of(&closed, id.as_str().unwrap()), ["beta", "gamma"]);
    let request = closed.get(&format!("/v1/requests/{}", id.as_str().unwrap()))["request"].clone();
    assert_eq!(request["needs"], serde_json::json!(["run"]));
}

#[test]
fn commands_are_given_the_network_by_a_reload_and_the_grid_hears_of_it() {
    if !missing(&["bwrap"]).is_empty() {
        return skip("not installed: bwrap");
    }
    let entry = Node::start("alpha", &hosts("a", 1), &[]);
    let site = Node::joining("beta", &hosts("b", 1), &entry, without_network());
    [&entry, &site].iter().for_each(|node| node.wait_until_it_knows(2));
    let plan = ["plan", "-N", "1", "--per-host", "cpu=1", "-t", "1h", "--needs", "network,run"];
    assert_eq!(entry.kolo(&plan).code, Some(2));
    let before = fs::read_to_string(site.config()).unwrap();
    fs::write(site.config(), format!("runner_network = true\n{before}")).unwrap();
    let reloaded = site.kolo_json(&["reload"], 0);
    assert_eq!(reloaded["changed"], serde_json::json!(["runner_network"]), "{reloaded}");
    wait_until("the advert", || entry.kolo(&plan).code, |code| *code == Some(0));
    let script = "test $(ls /sys/class/net | wc -l) -ge 1 && echo there";
    let flags = ["-N", "1", "--per-host", "cpu=1", "-t", "1h", "--port", "4000"];
    let ended = run(&mut kolo_run(&entry, &flags, &["sh", "-c", script]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "there\n"), "{ended:?}");
    fs::write(site.config(), before).unwrap();
    let _ = site.kolo_json(&["reload"], 0);
    wait_until("the advert", || entry.kolo(&plan).code, |code| *code == Some(2));
}
