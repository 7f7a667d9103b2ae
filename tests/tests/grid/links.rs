//! Requests with traffic over real nodes: no uplink carries more than it can, and a no names the one that is short.

use end_to_end::{Node, hosts, kolo_sim, write};
use serde_json::json;

#[test]
fn what_an_uplink_does_not_carry_is_refused_by_its_name_until_it_is_free_again() {
    let uplink = ["--uplink", "100Mbit/s"];
    let first = Node::start("alpha", &hosts("a", 2), &[&uplink[..], &["--uplink-tests", "true"]].concat());
    let second = Node::joining("beta", &hosts("b", 2), &first, &uplink);
    [&first, &second].iter().for_each(|node| node.wait_until_it_knows(4));
    let asked = |rate| {
        let size = ["submit", "-N", "3", "--work", "1h", "--per-host", "cpu=1", "--latest", "+10min"];
        [&size[..], &["--traffic", rate, "--compute", "0.7"]].concat()
    };
    // Two of three hosts at one site, the third at the other: 60 Mbit/s on both links.
    let talking = first.kolo_json(&asked("60Mbit/s"), 0);
    assert_eq!(talking["reservation"]["hosts"].as_array().map(Vec::len), Some(3), "{talking}");
    let id = talking["id"].as_str().unwrap();
    let promised = first.kolo(&["local", "list"]).out;
    assert!(promised.lines().any(|line| line.contains(id) && line.contains("uplink  mbps=60")), "{promised}");
    second.wait_until("the links to be known as used", "/v1/usage?points=1", |_| {
        second.kolo(&[&["plan"], &asked("60Mbit/s")[1..]].concat()).code == Some(2)
    });
    let refused = second.kolo(&asked("60Mbit/s"));
    assert!(refused.code == Some(2) && refused.err.contains("has 40 Mbit/s free"), "{refused:?}");
    let why = second.kolo(&["explain", "last"]).out;
    assert!(why.contains("uplink") && why.contains("60 Mbit/s"), "{why}");

    let slower = second.kolo_json(&asked("40Mbit/s"), 0);
    let longer = first.kolo_json(&["extend", id, "--by", "1h"], 0);
    assert_eq!(longer["added"][0]["request"]["traffic"]["mbps"], 60, "{longer}");
    let _ = second.kolo_json(&["cancel", slower["id"].as_str().unwrap()], 0);
    let _ = first.kolo_json(&["cancel", id], 0);
    // Its owner allows the first to be measured; the second's does not.
    let measured = second.kolo(&["doctor", "--link-with", "alpha", "--output", "json"]).json();
    let link = measured["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "link");
    let what = link.unwrap()["what"].as_str().unwrap();
    assert!(what.contains("Mbit/s to alpha") && what.contains("uplink configured here 100Mbit/s"), "{measured}");
    let refused = first.kolo(&["doctor", "--link-with", "beta"]);
    assert!(refused.code == Some(1) && refused.out.contains("does not allow tests of links"), "{refused:?}");

    let fast = second.wait_until("the links to be known as free", "/v1/usage?points=1", |_| {
        second.kolo(&[&["plan"], &asked("100Mbit/s")[1..]].concat()).code == Some(0)
    });
    assert!(fast.is_object());
    assert_eq!(second.kolo(&asked("100Mbit/s")).code, Some(0));
}

#[test]
fn a_batch_with_traffic_is_reserved_as_its_policy_planned() {
    let uplink = ["--uplink", "100Mbit/s"];
    let first = Node::start("alpha", &hosts("a", 2), &uplink);
    let second = Node::joining("beta", &hosts("b", 2), &first, &uplink);
    [&first, &second].iter().for_each(|node| node.wait_until_it_knows(4));
    // Two at a time, each at one site: both over the links would be more than these carry.
    let one = |id| {
        let traffic = json!({"mbps":80,"compute":500});
        let latest = 4_102_444_800_i64;
        json!({"id":id,"hosts":2,"work":600,"per_host":{"cpu":1000},"latest":latest,"traffic":traffic})
    };
    let directory = tempfile::tempdir().unwrap();
    let lines: String = ["r1", "r2", "r3"].iter().map(|id| format!("{}\n", one(id))).collect();
    let file = write(directory.path(), "talking.jsonl", &lines);
    let file = file.to_str().unwrap();
    for policy in ["mesd", "oas", "pas"] {
        let planned = first.kolo_json(&["batch", "plan", file, "--policy", policy], 0);
        let batch = &planned["batch"];
        assert_eq!((&batch["policy"], &batch["placed"]), (&policy.into(), &3.into()), "{planned}");
    }
    let done = second.kolo_json(&["batch", "submit", file, "--policy", "mesd"], 0);
    let rows = done["requests"].as_array().unwrap();
    assert!(rows.len() == 3 && rows.iter().all(|row| row["is_as_planned"] == true), "{done}");
    let mut starts: Vec<i64> = rows.iter().map(|row| row["start"].as_i64().unwrap()).collect();
    starts.sort_unstable();
    assert!(starts[0] == starts[1] && starts[2] == starts[0] + 600, "{done}");
}

#[test]
fn many_users_at_once_overload_neither_hosts_nor_links() {
    let size = ["grid", "--nodes", "5", "--hosts", "20", "--count", "40", "--hosts-per-request", "4", "--free"];
    let links = ["--entry-points", "5", "--traffic", "30", "--uplink", "100", "--seed", "3", "--output", "json"];
    let ended = kolo_sim(&[&size[..], &links].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let figures = ended.json();
    assert_eq!((&figures["violations"], &figures["failed_checks"]), (&0.into(), &0.into()), "{figures}");
    let links = &figures["links"];
    assert!(links["over_links"].as_u64() >= Some(3), "{figures}");
    assert_eq!((&links["with_traffic"]["requests"], &links["with_traffic"]["failed"]), (&20.into(), &0.into()));
}
