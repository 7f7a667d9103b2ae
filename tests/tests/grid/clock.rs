//! A machine's clock that was set wrong: the node goes on with the time that has passed, until somebody else says what time it is.

use end_to_end::{Node, hosts, wait_until};
use serde_json::{Value, json};

const DAY_S: i64 = 86_400;

fn restarted_ahead(node: &mut Node) {
    node.stop();
    node.set_ahead(3);
    node.restart();
}

fn submission(node: &Node) -> (Option<i32>, String) {
    let ended = node.kolo(&["submit", "-N", "1", "-t", "10m"]);
    (ended.code, format!("{}{}", ended.out, ended.err))
}

#[test]
fn a_clock_that_is_days_ahead_grants_and_forgets_nothing_until_the_operator_says_that_it_is_right() {
    let mut node = Node::first("alpha", &hosts("a", 1));
    assert_eq!(submission(&node).0, Some(0));
    restarted_ahead(&mut node);
    let off_s = node.get("/v1/status")["clock_ahead_s"].as_i64().unwrap();
    assert!((off_s - 3 * DAY_S).abs() <= 60, "{off_s}");
    assert_eq!(node.bookings().len(), 1);

    // Over by the machine's clock, and still to come for the node.
    let work =
        json!({"host": "a1", "start": now(&node) + DAY_S, "end": now(&node) + 2 * DAY_S, "amounts": {"cpu": 500}});
    assert_eq!(node.post("/v1/local", &work.to_string()).0, 201, "{work}");
    assert_eq!(node.get("/v1/local")["local"].as_array().unwrap().len(), 1);
    let (code, said) = submission(&node);
    assert!(code != Some(0) && said.contains("`clock`"), "{code:?} {said}");
    let doctor = node.kolo(&["doctor"]);
    let said = doctor.out + &doctor.err;
    assert!(doctor.code == Some(1) && said.contains("3d ahead of what the node believes"), "{said}");
    assert!(said.contains("kolo doctor --clock-is-right"), "{said}");

    let doctor = node.kolo(&["doctor", "--clock-is-right"]);
    assert!(doctor.out.contains("the node believes this machine's clock, which was 3d ahead of"), "{doctor:?}");
    assert_eq!(node.get("/v1/status")["clock_ahead_s"], Value::Null);
    let (code, said) = submission(&node);
    assert_eq!(code, Some(0), "{said}");
}

/// The present, as the node sees it: the machine's less what it does not believe.
fn now(node: &Node) -> i64 {
    let machine = i64::try_from(end_to_end::seconds_from_now(0)).unwrap();
    machine - node.get("/v1/status")["clock_ahead_s"].as_i64().unwrap()
}

#[test]
fn other_sites_say_what_time_it_is() {
    let mut alpha = Node::first("alpha", &hosts("a", 1));
    let beta = Node::joining("beta", &hosts("b", 1), &alpha, &[]);
    [&alpha, &beta].iter().for_each(|node| node.wait_until_it_knows(2));
    let enter = |node: &Node, host: &str, hours: u64| {
        let start = end_to_end::seconds_from_now(hours * 3_600);
        let work = json!({"host": host, "start": start, "end": start + 60, "amounts": {"cpu": 500}});
        assert_eq!(node.post("/v1/local", &work.to_string()).0, 201, "{work}");
    };
    // Something that could be lost.
    enter(&alpha, "a1", 1);
    restarted_ahead(&mut alpha);
    // What changes at a site is told at once, with its time.
    let mut hours = 0_u64;
    let mut told = || {
        hours += 1;
        enter(&beta, "b1", hours);
        alpha.get("/v1/status")["clock_ahead_s"].clone()
    };
    wait_until("the clock to be believed", &mut told, Value::is_null);
    assert!(alpha.log().contains("this machine's clock is believed: other sites"), "{}", alpha.log());
}
