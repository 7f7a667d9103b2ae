//! Seats on one of a class: they move out of the way, survive hosts that go and crashes, and have a host from their start on.

use std::{collections::BTreeSet, fs};

use end_to_end::{Node, wait_until};
use serde_json::{Value, json};

/// A class of so many hosts with 4 cores.
fn class(count: usize) -> String {
    format!("[[hosts]]\nid = \"n\"\ncount = {count}\nresources = {{ cpu = \"4\", memory = \"8GiB\" }}\n")
}

fn reload(node: &Node, count: usize) -> Value {
    let text = fs::read_to_string(node.config()).unwrap();
    let before = text.find("[[hosts]]").unwrap();
    fs::write(node.config(), format!("{}{}", &text[..before], class(count))).unwrap();
    node.kolo_json(&["reload"], 0)
}

fn seats(view: &Value) -> Vec<(Value, Value)> {
    let hosts = view["reservation"]["hosts"].as_array().unwrap().iter();
    hosts.map(|host| (host["host"].clone(), host["class"].clone())).collect()
}

/// The hosts in the site's ledger.
fn booked(node: &Node) -> BTreeSet<String> {
    let ledger = node.get("/v1/ledger");
    let grants = ledger["bookings"].as_array().unwrap().iter().flat_map(|one| one["grants"].as_array().unwrap());
    grants.map(|grant| grant["host"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn seats_float_until_they_begin_and_hosts_that_go_cost_nothing_while_others_are_left() {
    // Alpha only coordinates; the class is at beta.
    let small = "[[hosts]]\nid = \"a\"\nresources = { cpu = \"1\" }\n";
    let quick = ["--negotiation-check-min", "3s", "--negotiation-check-max", "3s"];
    let alpha = Node::start("alpha", small, &quick);
    let mut beta = Node::joining("beta", &class(3), &alpha, &[]);
    alpha.wait_until_it_knows(4);
    let asked = ["submit", "-N", "2", "--per-host", "cpu=3", "-t", "1h"];
    let later = alpha.kolo_json(&[&asked[..], &["--earliest", "now+2h"]].concat(), 0);
    assert!(seats(&later).iter().all(|(_, class)| class == "n"), "{later}");
    let path = format!("/v1/requests/{}", later["id"].as_str().unwrap());
    let shown = alpha.kolo(&["show", later["id"].as_str().unwrap()]);
    assert!(shown.out.contains("one of n"), "{shown:?}");

    // Own work on one of its hosts, then the loss of a host: neither costs it a seat, and no other site is asked for one.
    let first = booked(&beta).into_iter().next().unwrap();
    let own = ["local", "add", "--host", &first, "--from", "now+2h", "--for", "1h", "--cpu", "4"];
    let own = beta.kolo_json(&own, 0);
    let moved = booked(&beta);
    assert_eq!(moved.len(), 3, "the seats and own work have a host each: {moved:?}");
    let _ = beta.kolo_json(&["local", "remove", own["id"].as_str().unwrap()], 0);
    assert_eq!(reload(&beta, 2)["changed"], json!(["hosts"]));
    wait_until("two hosts", || booked(&beta), |hosts| *hosts == ["n-1", "n-2"].map(str::to_owned).into());
    beta.kill();
    beta.restart();
    assert_eq!(booked(&beta).len(), 2, "all of it is on disk");
    let still = alpha.get(&path);
    assert_eq!(
        (&still["state"], still["attempts"].as_u64()),
        (&json!("confirmed"), later["attempts"].as_u64()),
        "{still}"
    );
    assert!(seats(&still).iter().all(|(_, class)| class == "n"), "{still}");

    // What begins has a host, which its coordinator learns and its site keeps.
    let soon = alpha.kolo_json(&["submit", "-N", "1", "--per-host", "cpu=2", "-t", "1h", "--earliest", "now+4s"], 0);
    assert_eq!(seats(&soon)[0].1, "n", "{soon}");
    let path = format!("/v1/requests/{}", soon["id"].as_str().unwrap());
    let begun = alpha.wait_until("the host", &path, |view| seats(view)[0].1.is_null());
    assert_eq!(begun["state"], "active", "{begun}");
    let host = seats(&begun)[0].0.clone();
    beta.kill();
    beta.restart();
    assert!(booked(&beta).contains(host.as_str().unwrap()));
    assert_eq!(seats(&alpha.get(&path)), [(host, Value::Null)]);
}

#[test]
fn classes_are_bound_at_once_where_their_owner_says_so() {
    let node = Node::start("alpha", &class(2), &["--ledger-binding", "early"]);
    let asked = ["submit", "-N", "1", "--per-host", "cpu=3", "-t", "1h", "--earliest", "now+2h"];
    let view = node.kolo_json(&asked, 0);
    assert!(seats(&view)[0].1.is_null(), "{view}");
    let wrong = node.kolo(&["node", "--ledger-binding", "sometimes"]);
    assert!(wrong.code == Some(64) && wrong.err.contains("late"), "{wrong:?}");
}
