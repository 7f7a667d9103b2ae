//! Moldable requests over real nodes: the factor stays what it was, whoever loses a host or coordinates; and batches of them share hosts.

use std::collections::BTreeSet;

use end_to_end::{Node, hosts, seconds_from_now, wait_until, write};
use serde_json::{Value, json};

/// Losses are noticed within seconds.
const QUICK: [&str; 6] =
    ["--negotiation-check-min", "3s", "--negotiation-check-max", "3s", "--negotiation-lost-after", "1s"];

fn hosts_of(view: &Value) -> BTreeSet<String> {
    let hosts = view["reservation"]["hosts"].as_array().unwrap();
    hosts.iter().map(|host| host["host"].as_str().unwrap().to_owned()).collect()
}

/// Two hosts, each whole, for half as long as asked.
fn check_scaled(view: &Value) {
    let reservation = &view["reservation"];
    assert_eq!((&view["state"], &reservation["scale"]), (&"confirmed".into(), &2000.into()), "{view}");
    let seats = reservation["hosts"].as_array().unwrap();
    assert_eq!(seats.len(), 2, "{view}");
    for seat in seats {
        assert_eq!(seat["amounts"]["cpu"], 4000, "{view}");
        assert_eq!(seat["end"].as_i64().unwrap() - reservation["start"].as_i64().unwrap(), 1800, "{view}");
    }
}

#[test]
fn a_scaled_reservation_keeps_its_factor_when_it_is_repaired_extended_and_taken_over() {
    let first = Node::start("alpha", &hosts("a", 1), &QUICK);
    let others = ["beta", "gamma", "delta"].map(|name| Node::joining(name, &hosts(&name[..1], 1), &first, &QUICK));
    let mut nodes: Vec<Node> = [first].into_iter().chain(others).collect();
    nodes.iter().for_each(|node| node.wait_until_it_knows(4));

    let asked = ["-N", "2", "-t", "1h", "--per-host", "cpu=2", "--scale", "0.5..2", "--objective", "finish"];
    let planned = nodes[1].kolo_json(&[&["plan"][..], &asked].concat(), 0);
    assert_eq!((&planned["scale"], &planned["start_proven"]), (&2000.into(), &true.into()), "{planned}");
    let told = nodes[0].kolo_json(&[&["submit", "--earliest", "+2h"][..], &asked].concat(), 0);
    check_scaled(&told);
    let id = told["id"].as_str().unwrap().to_owned();
    let shown = nodes[0].kolo(&["show", &id]);
    assert!(shown.out.contains("factor 2 of 0.5..2: 2 hosts for 30m"), "{shown:?}");
    let refused = nodes[0].kolo(&["plan", "-N", "1", "-t", "1h", "--per-host", "cpu=1", "--scale", "2..0.5"]);
    assert!(refused.code == Some(64) && refused.err.contains("--scale: "), "{refused:?}");

    let longer = nodes[0].kolo_json(&["extend", &id, "--by", "30min"], 0);
    let added = &longer["added"][0]["reservation"];
    assert_eq!(added["hosts"][0]["amounts"]["cpu"], 4000, "{longer}");
    let _ = nodes[0].kolo_json(&["cancel", longer["added"][0]["id"].as_str().unwrap()], 0);

    // A site with a host of it goes away: another host gives as much for as long.
    let lost = hosts_of(&told).into_iter().find(|host| host != "a1").unwrap();
    let gone = nodes.iter().position(|node| node.get("/v1/ledger")["hosts"][0]["id"] == *lost).unwrap();
    nodes[gone].kill();
    let whole = nodes[0].wait_until("the lost host to be replaced", &format!("/v1/requests/{id}"), |view| {
        view["state"] == "confirmed" && !hosts_of(view).contains(&lost)
    });
    check_scaled(&whole);

    // The entry point goes away too: the user turns to any other node.
    let key = nodes[0].data().join("user.key").display().to_string();
    nodes[0].kill();
    let other = (1..4).find(|index| *index != gone).unwrap();
    let taken = nodes[other].kolo_json(&["repair", &id, "--key", &key], 0);
    check_scaled(&taken);
    assert_eq!(taken["reservation"]["start"], told["reservation"]["start"]);
    let _ = nodes[other].kolo_json(&["cancel", &id], 0);
    for index in (1..4).filter(|index| *index != gone) {
        assert!(nodes[index].bookings().is_empty(), "{:?}", nodes[index].bookings());
    }
}

#[test]
fn requests_of_a_batch_share_hosts_and_each_goes_on_without_the_other() {
    let first = Node::start("alpha", &hosts("a", 1), &[]);
    let other = Node::joining("beta", &hosts("b", 1), &first, &[]);
    [&first, &other].iter().for_each(|node| node.wait_until_it_knows(2));
    // One wants much memory and few cores, the other few memory and many cores, on both hosts: together they fill them.
    let one = |id: &str, cpu: u64, memory: u64| json!({"id":id,"hosts":2,"duration":3600,"per_host":{"cpu":cpu,"memory":memory},"scale":[500,2000],"latest":4_102_444_800_i64});
    let lines = format!("{}\n{}\n", one("wide", 2500, 1024), one("deep", 500, 4096));
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "pair.jsonl", &lines);
    let file = file.to_str().unwrap();
    for policy in ["colocate:set", "colocate:partition", "colocate:best"] {
        let planned = first.kolo_json(&["batch", "plan", file, "--policy", policy], 0);
        assert_eq!(
            (&planned["batch"]["policy"], &planned["batch"]["placed"]),
            (&policy.into(), &2.into()),
            "{planned}"
        );
    }
    let done = first.kolo_json(&["batch", "submit", file, "--policy", "colocate:set"], 0);
    let rows = done["requests"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["is_as_planned"] == true && row["start"] == rows[0]["start"]), "{done}");
    let of = |node: &Node| node.bookings().len();
    assert_eq!((of(&first), of(&other)), (2, 2), "both hosts have a seat of each");
    let path = |row: usize| format!("/v1/requests/{}", rows[row]["id"].as_str().unwrap());
    let (wide, deep) = (first.get(&path(0)), first.get(&path(1)));
    for view in [&wide, &deep] {
        let (reservation, request) = (&view["reservation"], &view["request"]);
        let factor = reservation["scale"].as_u64().unwrap();
        let scaled = |amount: &Value| (amount.as_u64().unwrap() * factor).div_ceil(1000);
        for seat in reservation["hosts"].as_array().unwrap() {
            assert_eq!(seat["amounts"]["cpu"], scaled(&request["per_host"]["cpu"]), "{view}");
            assert_eq!(seat["amounts"]["memory"], scaled(&request["per_host"]["memory"]), "{view}");
        }
    }
    let together = |name: &str| -> u64 {
        [&wide, &deep].iter().map(|view| view["reservation"]["hosts"][0]["amounts"][name].as_u64().unwrap()).sum()
    };
    assert!(together("cpu") > 3000, "they were squeezed: {wide} {deep}");

    let name = |row: usize| rows[row]["id"].as_str().unwrap();
    let _ = first.kolo_json(&["extend", name(1), "--by", "30min"], 0);
    assert_eq!(first.get(&path(0))["reservation"], wide["reservation"], "the other is as long as before");
    let _ = first.kolo_json(&["cancel", name(0)], 0);
    let kept = first.get(&path(1));
    assert_eq!(
        (&kept["state"], &kept["reservation"]["hosts"][0]["amounts"]),
        (&"active".into(), &deep["reservation"]["hosts"][0]["amounts"]),
        "{kept}"
    );

    let other_hosts = write(
        directory.path(),
        "whole.jsonl",
        &format!("{}\n", json!({"hosts":1,"duration":60,"per_host":{"cpu":1},"exclusive":true})),
    );
    let planned = first.kolo_json(&["batch", "plan", other_hosts.to_str().unwrap(), "--policy", "colocate:set"], 0);
    assert_eq!(planned["batch"]["by_itself"][0]["why"], "exclusive: seats share hosts", "{planned}");
}

#[test]
fn requests_that_share_a_host_are_repaired_extended_and_cancelled_each_by_itself() {
    let small = hosts("s", 1).replace("cpu = \"4\"", "cpu = \"2\"");
    let first = Node::start("alpha", &hosts("a", 1), &QUICK);
    let beta = Node::joining("beta", &hosts("b", 1), &first, &QUICK);
    let gamma = Node::joining("gamma", &small, &first, &QUICK);
    [&first, &beta, &gamma].iter().for_each(|node| node.wait_until_it_knows(3));
    // Together they fill the two large hosts; the small one has room for the second alone.
    let one = |id: &str, cpu: u64, memory: u64| json!({"id":id,"hosts":2,"duration":3600,"per_host":{"cpu":cpu,"memory":memory},"scale":[500,2000],"earliest":seconds_from_now(7200),"latest":seconds_from_now(70_000)});
    let lines = format!("{}\n{}\n", one("wide", 2500, 1024), one("deep", 500, 4096));
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "pair.jsonl", &lines);
    let done = first.kolo_json(&["batch", "submit", file.to_str().unwrap(), "--policy", "colocate:best"], 0);
    let rows = done["requests"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["is_as_planned"] == true), "{done}");
    let [wide, deep] = [0, 1].map(|row| rows[row]["id"].as_str().unwrap());
    let view = |id: &str| first.get(&format!("/v1/requests/{id}"));
    let (of_wide, of_deep) = (view(wide), view(deep));
    let shared = BTreeSet::from(["a1", "b1"].map(str::to_owned));
    assert_eq!((&hosts_of(&of_wide), &hosts_of(&of_deep)), (&shared, &shared), "{of_wide} {of_deep}");

    // The owner of a host takes it back from one of them.
    let is_settled = |bookings: &Vec<Value>| bookings.iter().all(|booking| booking["settled"] == true);
    let _ = wait_until("the outcomes to be known", || beta.bookings(), is_settled);
    let _ = beta.kolo_json(&["local", "evict", deep], 0);
    let repaired = first.wait_until("the seat to move", &format!("/v1/requests/{deep}"), |view| {
        view["state"] == "confirmed" && !hosts_of(view).contains("b1")
    });
    assert_eq!(hosts_of(&repaired), BTreeSet::from(["a1", "s1"].map(str::to_owned)));
    let seats = |view: &Value| view["reservation"]["hosts"].as_array().unwrap().clone();
    assert_eq!(seats(&repaired)[0]["amounts"], seats(&of_deep)[0]["amounts"]);
    assert_eq!(view(wide)["reservation"], of_wide["reservation"]);
    assert_eq!((first.bookings().len(), beta.bookings().len(), gamma.bookings().len()), (2, 1, 1));

    let _ = first.kolo_json(&["extend", wide, "--by", "30min"], 0);
    assert_eq!(view(deep)["reservation"], repaired["reservation"]);
    let of_wide = view(wide);
    let _ = first.kolo_json(&["cancel", deep], 0);
    assert_eq!((&view(wide)["state"], &view(wide)["reservation"]), (&"confirmed".into(), &of_wide["reservation"]));
    let left = || [&first, &beta, &gamma].map(|node| node.bookings().len());
    let _ = wait_until("only the other one to be booked", left, |left| *left == [2, 2, 0]);
}
