//! What becomes of a reservation whose sites or whose entry point go away before it begins.

use std::collections::BTreeSet;

use end_to_end::{Node, hosts, wait_until};
use serde_json::Value;

/// Losses are noticed within seconds.
const QUICK: [&str; 6] =
    ["--negotiation-check-min", "3s", "--negotiation-check-max", "3s", "--negotiation-lost-after", "1s"];

fn hosts_of(view: &Value) -> BTreeSet<String> {
    let hosts = view["reservation"]["hosts"].as_array().unwrap();
    hosts.iter().map(|host| host["host"].as_str().unwrap().to_owned()).collect()
}

fn site_of(nodes: &[Node], host: &str) -> usize {
    nodes.iter().position(|node| node.get("/v1/ledger")["hosts"][0]["id"] == host).unwrap()
}

#[test]
fn a_lost_host_is_replaced_and_any_node_goes_on_when_the_entry_point_is_gone() {
    let first = Node::start("alpha", &hosts("a", 1), &QUICK);
    let others = ["beta", "gamma", "delta"].map(|name| Node::joining(name, &hosts(&name[..1], 1), &first, &QUICK));
    let mut nodes: Vec<Node> = [first].into_iter().chain(others).collect();
    nodes.iter().for_each(|node| node.wait_until_it_knows(4));

    // There are no five hosts, so it is the second shape that is reserved, and stays so.
    let either = ["-N", "5", "-t", "30min", "--or", "hosts=2,duration=1h"];
    let asked = [&["submit", "--per-host", "cpu=3", "--earliest", "+2h"][..], &either].concat();
    let told = nodes[0].kolo_json(&asked, 0);
    assert_eq!(told["reservation"]["shape"], 1, "{told}");
    let id = told["id"].as_str().unwrap().to_owned();
    let start = told["reservation"]["start"].clone();

    // A site with a host of it goes away: the other host stays, at the same start.
    let lost = hosts_of(&told).into_iter().find(|host| host != "a1").unwrap();
    let gone = site_of(&nodes, &lost);
    nodes[gone].kill();
    let whole = nodes[0].wait_until("the lost host to be replaced", &format!("/v1/requests/{id}"), |view| {
        view["state"] == "confirmed" && !hosts_of(view).contains(&lost)
    });
    assert_eq!((&whole["reservation"]["start"], &whole["reservation"]["shape"]), (&start, &1.into()));
    assert_eq!(hosts_of(&whole).len(), 2);
    assert_eq!(hosts_of(&whole).intersection(&hosts_of(&told)).count(), 1, "only what was lost is replaced");

    // The entry point goes away too: the user turns to any other node, with the key that signed the request.
    let key = nodes[0].data().join("user.key").display().to_string();
    nodes[0].kill();
    let other = (1..4).find(|index| *index != gone).unwrap();
    let stranger = nodes[other].kolo(&["repair", &id]);
    assert!(stranger.code != Some(0), "without the user's key nobody takes it over");
    let taken = nodes[other].kolo_json(&["repair", &id, "--key", &key], 0);
    assert_eq!(taken["state"], "confirmed", "{taken}");
    assert_eq!((&taken["reservation"]["start"], &taken["reservation"]["shape"]), (&start, &1.into()));
    assert_eq!(taken["reservation"]["end"].as_i64(), start.as_i64().map(|start| start + 3600));
    let (now, dead) = (hosts_of(&taken), BTreeSet::from(["a1".to_owned(), lost]));
    assert!(now.len() == 2 && now.is_disjoint(&dead), "{taken}");

    let cancelled = nodes[other].kolo_json(&["cancel", &id], 0);
    assert_eq!(cancelled["state"], "cancelling", "the dead sites are still to be told: {cancelled}");
    for index in (1..4).filter(|index| *index != gone) {
        assert!(nodes[index].bookings().is_empty(), "{:?}", nodes[index].bookings());
    }
}

#[test]
fn sites_that_come_back_elsewhere_one_after_the_other_find_each_other() {
    let mut first = Node::first("alpha", &hosts("a", 1));
    let mut second = Node::joining("beta", &hosts("b", 1), &first, &[]);
    let books = |node: &Node| {
        node.wait_until_it_knows(2);
        let asked = ["submit", "-N", "2", "--per-host", "cpu=1", "-t", "1h", "--latest", "now+10h", "--timeout", "20s"];
        wait_until("both sites to be booked", || node.kolo(&asked), |ended| ended.code == Some(0));
    };
    books(&first);
    let addresses = |node: &Node| node.get("/v1/status")["listen"].clone();
    // Each listens at another port with every start, and knows only where the other was when it began.
    for moves in 0..4 {
        let (moved, other) = if moves % 2 == 0 { (&mut second, &first) } else { (&mut first, &second) };
        let before = addresses(moved);
        if moves == 0 {
            moved.kill();
        } else {
            moved.stop();
        }
        moved.restart();
        assert_ne!(addresses(moved), before);
        books(other);
        books(moved);
    }
}

#[test]
fn a_seat_that_its_site_has_taken_back_is_missed_at_once() {
    // With the usual settings, by which what begins in hours is asked about once in many minutes.
    let first = Node::start("alpha", &hosts("a", 1), &[]);
    let beta = Node::joining("beta", &hosts("b", 1), &first, &[]);
    [&first, &beta].iter().for_each(|node| node.wait_until_it_knows(2));
    let submit = |more: &[&str]| {
        let asked = ["submit", "-N", "2", "-t", "6h", "--per-host", "cpu=1"];
        first.kolo_json(&[&asked[..], more].concat(), 0)["id"].as_str().unwrap().to_owned()
    };
    let (begun, later) = (submit(&[]), submit(&["--earliest", "+9h"]));
    let is_settled = |bookings: &Vec<Value>| bookings.iter().all(|booking| booking["settled"] == true);
    let _ = wait_until("the outcomes to be known", || beta.bookings(), is_settled);
    for id in [&begun, &later] {
        let _ = beta.kolo_json(&["local", "evict", id], 0);
        let path = format!("/v1/requests/{id}");
        let view = first.wait_until("the loss to show", &path, |view| view["state"] == "degraded");
        let lost = view["reservation"]["hosts"].as_array().unwrap().iter().filter(|host| host["lost"] == "taken_back");
        assert_eq!(lost.map(|host| &host["host"]).collect::<Vec<_>>(), ["b1"], "{view}");
    }
    let list = first.kolo(&["list"]).out;
    assert_eq!(list.matches("degraded").count(), 2, "{list}");
    // A host comes that can take its place.
    let gamma = Node::joining("gamma", &hosts("c", 1), &first, &[]);
    gamma.wait_until_it_knows(3);
    first.wait_until_it_knows(3);
    assert_eq!(first.kolo_json(&["repair", &later], 0)["state"], "confirmed");
}

#[test]
fn a_smaller_uplink_keeps_what_has_begun_and_the_rest_moves() {
    // A site that is gone for less than a minute has lost nothing.
    let patient = ["--negotiation-check-min", "3s", "--negotiation-check-max", "3s", "--negotiation-lost-after", "60s"];
    let more = [&patient[..], &["--uplink", "100Mbit/s"]].concat();
    let first = Node::start("alpha", &hosts("a", 1), &more);
    let others = ["beta", "gamma"].map(|name| Node::joining(name, &hosts(&name[..1], 1), &first, &more));
    let mut nodes: Vec<Node> = [first].into_iter().chain(others).collect();
    nodes.iter().for_each(|node| node.wait_until_it_knows(3));
    let submit = |nodes: &[Node], more: &[&str]| {
        let asked = ["submit", "--work", "1h", "--per-host", "cpu=1", "--compute", "0.7"];
        nodes[0].kolo_json(&[&asked[..], more].concat(), 0)
    };

    // From now on 30 Mbit/s on all three links, later 60 Mbit/s on two of them.
    let begun = submit(&nodes, &["-N", "3", "--traffic", "30Mbit/s"]);
    let later = submit(&nodes, &["-N", "2", "--traffic", "60Mbit/s", "--earliest", "+3h"]);
    let [begun_at, later_at] = [&begun, &later].map(|view| format!("/v1/requests/{}", view["id"].as_str().unwrap()));
    nodes[0].wait_until("the first to begin", &begun_at, |view| view["state"] == "active");

    let moved = hosts_of(&later).into_iter().find(|host| host != "a1").unwrap();
    let small = site_of(&nodes, &moved);
    nodes[small].kill();
    nodes[small].change("--uplink", "20Mbit/s");
    nodes[small].restart();
    let whole = nodes[0].wait_until("the later one to move", &later_at, |view| {
        view["state"] == "confirmed" && !hosts_of(view).contains(&moved)
    });
    assert_eq!(whole["reservation"]["start"], later["reservation"]["start"]);
    assert_eq!((hosts_of(&whole).len(), hosts_of(&whole).intersection(&hosts_of(&later)).count()), (2, 1));
    let still = nodes[0].get(&begun_at);
    assert_eq!((&still["state"], hosts_of(&still)), (&"active".into(), hosts_of(&begun)), "{still}");
    // What is left of the later one is released once it has moved.
    let kept = wait_until("only the first to be booked", || nodes[small].bookings(), |kept| kept.len() == 1);
    assert_eq!(kept[0]["uplink_mbps"], 30, "it has begun, and stays above the new limit: {kept:?}");
}
