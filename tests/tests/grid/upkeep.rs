//! What an owner changes while the node runs: the site is emptied, and the configuration is read again.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use end_to_end::{Node, hosts, wait_until, write};
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
    let plan = ["plan", "-N", "2", "--per-host", "cpu=1", "-t", "1h"];
    let plans = |code| wait_until("the advert", || alpha.kolo(&plan).code, |now| *now == Some(code));
    plans(2);
    submit(&alpha, &["-N", "2"], 2);
    let why = "rules of owners: without them it could start at";
    for asked in [&plan[..], &[&["slots"], &plan[1..]].concat(), &["explain", "last"]] {
        let said = alpha.kolo(asked);
        let text = format!("{}{}", said.out, said.err);
        assert!(text.contains(why) && text.contains("`draining` leaves out 1 host"), "{asked:?}: {said:?}");
    }
    submit(&alpha, &["-N", "1"], 0);
    beta.stop();
    beta.restart();
    assert_eq!(beta.get("/v1/status")["is_draining"], true);
    assert!(beta.kolo(&["local", "list"]).out.starts_with("this site gives no new promises"));
    plans(2);
    assert_eq!(beta.bookings().len(), before.len(), "the promise stands");
    assert_eq!(beta.kolo_json(&["drain", "--end"], 0)["is_draining"], false);
    plans(0);
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

#[test]
fn hosts_come_and_go_without_a_restart() {
    let alpha =
        Node::start("alpha", &hosts("a", 1), &["--negotiation-check-min", "3s", "--negotiation-check-max", "3s"]);
    let beta = Node::joining("beta", &hosts("b", 2), &alpha, &[]);
    alpha.wait_until_it_knows(3);
    let with = |list: &str| {
        let text = fs::read_to_string(beta.config()).unwrap();
        let before = text.find("[[hosts]]").unwrap_or(text.len());
        fs::write(beta.config(), format!("{}{list}", &text[..before])).unwrap();
    };
    let asked =
        |count: &'static str| ["submit", "-N", count, "--per-host", "cpu=1", "-t", "1h", "--earliest", "now+1h"];
    let three = alpha.kolo_json(&asked("3"), 0);
    with(&hosts("b", 4));
    let view = beta.kolo_json(&["reload"], 0);
    assert_eq!((&view["changed"], &view["at_next_start"]), (&json!(["hosts"]), &json!([])));
    // Another node's user has the new ones as soon as that node has heard of them.
    wait_until("the new hosts", || alpha.kolo(&asked("5")).code, |code| *code == Some(0));
    assert_eq!(beta.bookings().len(), 2, "what was promised stays");
    with("[[hosts]]\nid = \"b1\"\nresources = { cpu = 1 }\n[[hosts]]\nid = \"b1\"\nresources = { cpu = 1 }\n");
    let ended = beta.kolo(&["reload"]);
    assert!(ended.code != Some(0) && ended.err.contains("b1"), "{ended:?}");
    assert_eq!(beta.bookings().len(), 2, "a wrong list changes nothing");
    // One host is left at beta: both reservations lose the others, and no site has some for them.
    with(&hosts("b", 1));
    assert_eq!(beta.kolo_json(&["reload"], 0)["changed"], json!(["hosts"]));
    let path = format!("/v1/requests/{}", three["id"].as_str().unwrap());
    alpha.wait_until("the loss", &path, |view| view["state"] == "degraded");
}

#[test]
fn prices_are_changed_by_a_reload_and_nobody_pays_without_having_agreed() {
    let node = Node::first("alpha", &hosts("a", 1));
    let with_price = |price: &str| {
        let text = format!("name = \"alpha\"\n{}[[price]]\nper_hour = {{ cpu = {price} }}\n", hosts("a", 1));
        fs::write(node.config(), text).unwrap();
    };
    submit(&node, &["-N", "1"], 0);
    with_price("\"6.00\"");
    assert_eq!(node.kolo_json(&["reload"], 0)["changed"], json!(["price"]));
    assert_eq!(node.get("/v1/hosts")["hosts"][0]["prices"], json!({"cpu": 6000}));
    wait_until(
        "the price in plans",
        || node.kolo(&["plan", "-N", "1", "-t", "1h", "--per-host", "cpu=0.5"]).out,
        |out| out.contains("costs 3.00 credits"),
    );
    let ended = node.kolo(&["submit", "-N", "1", "-t", "1h", "--per-host", "cpu=0.5"]);
    assert!(ended.code == Some(64) && ended.err.contains("--budget 3.00"), "{ended:?}");
    submit(&node, &["-N", "1", "--budget", "5.99"], 2);
    let view = node.kolo_json(&["submit", "-N", "1", "-t", "1h", "--per-host", "cpu=0.5", "--budget", "3"], 0);
    assert_eq!((&view["reservation"]["cost"], &view["request"]["budget"]), (&json!(3000), &json!(3000)));
    with_price("6.00");
    let ended = node.kolo(&["reload"]);
    assert!(ended.err.contains("price[0].per_hour.cpu: write \"6.00\", with quotes"), "{ended:?}");
}

#[test]
fn a_node_that_plans_a_long_batch_stops_within_seconds() {
    let mut node = Node::first("alpha", &hosts("a", 64));
    // They fill no hosts without a rest, so that the search for the least makespan has no bound to stop at.
    let one = |at: usize| {
        let (hosts, duration) = (13 + at * 7 % 19, 600 + at * 37 % 400);
        format!("{{\"hosts\":{hosts},\"duration\":{duration},\"per_host\":{{\"cpu\":3000}}}}\n")
    };
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "batch.jsonl", &(0..80).map(one).collect::<String>());
    let plan = |node: &Node| {
        let mut plan = node.command(&["batch", "plan", "--policy", "oas"]);
        plan.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // One of two is refused, since the other is being planned.
    let mut plans = [plan(&node), plan(&node)];
    let mut has_ended = || plans.iter_mut().any(|plan| plan.try_wait().unwrap().is_some());
    wait_until("one to be refused", &mut has_ended, |ended| *ended);
    // Hosts are looked for in less time than these calls take.
    let body = format!("{{\"requests\":[{}]}}", one(0));
    assert!((0..20).all(|_| node.post("/v1/batches/plan", &body).0 == 503), "{}", node.log());
    let asked = Instant::now();
    let status = node.stop();
    let took = asked.elapsed();
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}; {}", node.log());
    assert!(plans.iter_mut().all(|plan| !plan.wait().unwrap().success()), "it was cut off");
}
