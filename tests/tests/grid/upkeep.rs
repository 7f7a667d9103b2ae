//! What an owner changes while the node runs: the site is emptied, and the configuration is read again.

use std::fs;

use end_to_end::{Node, hosts, wait_until};
use serde_json::json;

fn submit(node: &Node, user_wants: &[&str], exit: i32) {
    let ended = node.kolo(&[&["submit", "--per-host", "cpu=1", "-t", "1h"], user_wants].concat());
    assert_eq!(ended.code, Some(exit), "{ended:?}");
}

#[test]
fn a_site_that_is_emptied_keeps_its_promises_and_gives_none_until_its_owner_says_so() {
    let alpha = Node::first("alpha", &hosts("a", 1));
    let mut beta = Node::joining("beta", &hosts("b", 1), &alpha, &[]);
    alpha.wait_until_it_knows(2);
    submit(&alpha, &["-N", "2"], 0);
    let before = beta.bookings();
    let view = beta.kolo_json(&["drain"], 0);
    assert_eq!((&view["is_draining"], &view["bookings"]), (&json!(true), &json!(1)));
    let plans_without = |node: &Node| node.wait_until_it_knows(1);
    plans_without(&alpha);
    submit(&alpha, &["-N", "2"], 2);
    submit(&alpha, &["-N", "1"], 0);
    beta.stop();
    beta.restart();
    assert_eq!(beta.get("/v1/status")["is_draining"], true);
    assert!(beta.kolo(&["local", "list"]).out.starts_with("this site gives no new promises"));
    plans_without(&alpha);
    assert_eq!(beta.bookings().len(), before.len(), "the promise stands");
    assert_eq!(beta.kolo_json(&["drain", "--end"], 0)["is_draining"], false);
    alpha.wait_until_it_knows(2);
    submit(&alpha, &["-N", "2"], 0);
}

#[test]
fn a_configuration_is_put_into_force_without_a_restart_and_a_wrong_one_is_not() {
    let node = Node::first("alpha", &hosts("a", 1));
    let with = |policy: &str, more: &str| {
        let text = format!("name = \"alpha\"\n{more}[gossip]\ninterval = \"100ms\"\n{policy}{}", hosts("a", 1));
        fs::write(node.config(), text).unwrap();
    };
    submit(&node, &["-N", "1"], 0);
    with("[policy]\nmax_reservations = 1\n", "contact = \"ssh {host}\"\nbootstrap = [\"/ip4/127.0.0.1/tcp/9\"]\n");
    let view = node.kolo_json(&["reload"], 0);
    assert_eq!(view["changed"], json!(["contact", "policy.max_reservations"]));
    assert_eq!(view["at_next_start"], json!(["bootstrap"]));
    submit(&node, &["-N", "1"], 4);
    with("[policy]\nmax_reservations = 0\n", "");
    let ended = node.kolo(&["reload"]);
    assert!(ended.code != Some(0) && ended.err.contains("site.toml: policy.max_reservations: expected"), "{ended:?}");
    submit(&node, &["-N", "1"], 4);
    with("", "");
    node.hang_up();
    wait_until("the signal", || node.kolo(&["submit", "-N", "1", "-t", "1h"]).code, |code| *code == Some(0));
}
