//! How long a reservation lasts, and what is seen of it: longer when it is extended, and still there when it is over.

use end_to_end::{Node, hosts, wait_until};
use serde_json::Value;

fn end_of(view: &Value) -> i64 {
    view["reservation"]["end"].as_i64().unwrap()
}

fn booked(nodes: &[&Node]) -> usize {
    nodes.iter().map(|node| node.bookings().len()).sum()
}

#[test]
fn an_extended_reservation_is_one_with_one_end_and_goes_as_a_whole() {
    let first = Node::first("alpha", &hosts("a", 1));
    let second = Node::joining("beta", &hosts("b", 1), &first, &[]);
    let nodes = [&first, &second];
    nodes.iter().for_each(|node| node.wait_until_it_knows(2));
    // Different amounts on the two hosts: one request holds both.
    let asked = ["submit", "-N", "2", "--total", "cpu=5", "-t", "1h", "--id", "long"];
    let before = first.kolo_json(&asked, 0);
    let id = before["id"].as_str().unwrap();

    let extended = first.kolo_json(&["extend", "long", "--by", "30min"], 0);
    assert_eq!((&extended["extends"], extended["end"].as_i64()), (&before["id"], Some(end_of(&before) + 1800)));
    let added = extended["added"].as_array().unwrap();
    assert_eq!(added.len(), 1, "{extended}");
    // What lengthens it may be named as well; the time goes on from the end of all.
    let _ = first.kolo_json(&["extend", added[0]["id"].as_str().unwrap(), "--by", "30min"], 0);
    let view = first.get(&format!("/v1/requests/{id}"));
    assert_eq!((end_of(&view), &view["state"]), (end_of(&before) + 3600, &"active".into()), "{view}");
    let parts = view["extensions"].as_array().unwrap();
    assert_eq!(parts.len(), 2 * added.len(), "{view}");
    assert_eq!(booked(&nodes), 2 + parts.iter().map(|part| part["hosts"].as_u64().unwrap() as usize).sum::<usize>());
    let part = first.get(&format!("/v1/requests/{}", parts[0]["id"].as_str().unwrap()));
    assert_eq!(part["extends"], before["id"]);

    let listed = first.kolo_json(&["list"], 0);
    assert_eq!(listed["requests"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(first.kolo_json(&["show", "last"], 0)["id"], before["id"]);
    let chart = || {
        let drawn = first.kolo(&["gantt", "--span", "4h", "--output", "quiet"]).out;
        (drawn, first.get("/v1/bookings")["bookings"].as_array().unwrap().len())
    };
    wait_until("the chart to have one reservation", chart, |(drawn, bookings)| {
        drawn.trim() == id && *bookings >= 2 + parts.len()
    });

    // The next hour of one host is the owner's: nothing is added, and nothing is lost.
    let own = format!(r#"{{"start":{},"end":{}}}"#, end_of(&view), end_of(&view) + 3600);
    assert_eq!(second.post("/v1/local", &own).0, 201);
    let rejected = first.kolo(&["extend", "long", "--by", "30min"]);
    assert_eq!(rejected.code, Some(2), "{rejected:?}");
    assert_eq!(end_of(&first.get(&format!("/v1/requests/{id}"))), end_of(&view));

    let cancelled = first.kolo_json(&["cancel", "long"], 0);
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    assert_eq!(booked(&[&first]), 0);
    assert_eq!(booked(&[&second]), 1, "the owner's own work stays");
}

#[test]
fn what_is_over_is_still_in_the_chart_after_a_restart() {
    let mut node = Node::first("alpha", &hosts("a", 1));
    node.wait_until_it_knows(1);
    let id = node.kolo_json(&["submit", "-N", "1", "-t", "1s"], 0)["id"].as_str().unwrap().to_owned();
    let over = node.kolo_json(&["wait", &id, "--for", "end"], 0);
    assert_eq!(over["state"], "ended");
    let shown = |node: &Node| {
        let told = node.get("/v1/bookings");
        let bookings = told["bookings"].as_array().unwrap();
        bookings.iter().filter(|one| one["request"] == id.as_str() && one["hosts"][0]["host"] == "a1").count()
    };
    assert_eq!(shown(&node), 1);
    node.kill();
    node.restart();
    node.wait_until_it_knows(1);
    assert_eq!(shown(&node), 1);
    // It was decided before the restart, and is not counted again.
    let figures = node.metrics();
    let decided = figures.lines().filter(|line| line.starts_with("kolo_requests_total{"));
    assert!(decided.clone().count() > 0 && decided.clone().all(|line| line.ends_with(" 0")), "{figures}");
    assert!(figures.contains("kolo_requests_active 0"), "{figures}");
    assert_eq!(node.log().matches("decided").count(), 1, "{}", node.log());
    let later = node.get(&format!("/v1/bookings?from={}", end_of(&over)));
    assert_eq!(later["bookings"].as_array().unwrap().len(), 0, "{later}");
}
