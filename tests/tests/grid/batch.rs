//! Batches over real nodes: planned together, reserved as planned, and what a conflict does.

use std::path::Path;

use end_to_end::write;
use serde_json::{Value, json};

use super::three_sites;

/// A file with a line for each of these.
fn batch(directory: &Path, requests: &[Value]) -> String {
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let file = write(directory, "batch.jsonl", &lines);
    file.to_str().unwrap().to_owned()
}

/// Hosts of a plan or a reservation, with their sites.
fn hosts_of(plan: &Value, name: &str) -> Vec<(Value, Value)> {
    let mut hosts: Vec<_> =
        plan["hosts"].as_array().unwrap().iter().map(|host| (host["site"].clone(), host[name].clone())).collect();
    hosts.sort_by_key(|(site, host)| format!("{site} {host}"));
    hosts
}

#[test]
fn a_batch_is_planned_together_and_reserved_as_planned() {
    let nodes = three_sites();
    let directory = tempfile::tempdir().unwrap();
    // Six hosts of four cores: six of eight requests that take a host each find one at once, one waits, and one cannot.
    let one = |id: &str| json!({"id":id,"hosts":1,"duration":3600,"per_host":{"cpu":4000},"latest":4_102_444_800_i64});
    let mut requests: Vec<Value> = ["a", "b", "c", "d", "e", "f", "g"].map(one).to_vec();
    requests.push(json!({"id":"giant","hosts":1,"duration":3600,"per_host":{"cpu":400_000}}));
    let file = batch(directory.path(), &requests);
    let planned = nodes[0].kolo_json(&["batch", "plan", &file], 2);
    assert_eq!((&planned["batch"]["placed"], &planned["batch"]["postponed"]), (&7.into(), &1.into()), "{planned}");
    assert!(nodes.iter().all(|node| node.bookings().is_empty()), "nothing is held");

    let rest = write(directory.path(), "rest.jsonl", &format!("{}\n", json!({"hosts":1,"duration":60,"latest":1})));
    let done = nodes[0].kolo_json(&["batch", "submit", &file, "--postponed", rest.to_str().unwrap()], 2);
    let rest = std::fs::read_to_string(rest).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&rest).unwrap(), requests[7], "what was postponed, and not what is over");
    let rows = done["requests"].as_array().unwrap();
    assert!(rows[..7].iter().all(|row| row["is_as_planned"] == true && row["conflicts"] == 0), "{done}");
    assert_eq!((&rows[7]["outcome"], rows[7].get("id")), (&"postponed".into(), None), "{done}");
    let starts: Vec<i64> = rows[..7].iter().map(|row| row["start"].as_i64().unwrap()).collect();
    let (first, last) = (starts.iter().min().unwrap(), starts.iter().max().unwrap());
    assert!(starts.iter().filter(|start| *start == first).count() == 6 && last - first == 3600, "{starts:?}");
    assert_eq!(nodes.iter().map(|node| node.bookings().len()).sum::<usize>(), 7);

    let refused =
        nodes[0].kolo(&["batch", "submit", &batch(directory.path(), &[requests[0].clone(), json!({"hosts":0})])]);
    assert!(refused.code == Some(64) && refused.err.contains("batch.jsonl:2: "), "{refused:?}");
}

#[test]
fn a_conflict_replans_the_request_that_it_touched() {
    let nodes = three_sites();
    let request = json!({"hosts":2,"duration":3600,"per_host":{"cpu":4000}});
    let planned = nodes[0].post("/v1/batches/plan", &json!({"requests":[request]}).to_string()).1;
    let plan = &planned["plans"][0];
    let seat =
        |host: &Value| json!({"site":host["site"],"host":host["id"],"end":host["end"],"amounts":host["amounts"]});
    let seats: Vec<Value> = plan["hosts"].as_array().unwrap().iter().map(seat).collect();
    // Somebody else takes one of its sites meanwhile.
    let site = plan["hosts"][0]["site"].as_str().unwrap();
    let of_site = nodes[1].get("/v1/hosts");
    let of_site = of_site["hosts"].as_array().unwrap().iter().filter(|host| host["site"] == site);
    let names: Vec<String> = of_site.map(|host| format!("{site}/{}", host["host"].as_str().unwrap())).collect();
    let taken = [
        &["submit", "-N", "2", "-t", "2h", "--per-host", "cpu=4", "--candidate"][..],
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    ]
    .concat();
    let _ = nodes[1].kolo_json(&taken, 0);

    let handed = |replans: bool| {
        let body = json!({"request":request,"plan":{"start":plan["start"],"hosts":seats},"replans":replans});
        let (status, view) = nodes[0].post("/v1/requests", &body.to_string());
        assert_eq!(status, 201, "{view}");
        let path = format!("/v1/requests/{}?until=settled&wait_ms=60000", view["id"].as_str().unwrap());
        nodes[0].wait_until("the end of the request", &path, |view| {
            view["state"].is_string()
                && ![json!("planning"), json!("holding"), json!("confirming")].contains(&view["state"])
        })
    };
    let kept_to = handed(false);
    assert_eq!((&kept_to["state"], &kept_to["reason"]["code"]), (&"refused".into(), &"refused".into()), "{kept_to}");
    let replanned = handed(true);
    let hosts = hosts_of(&replanned["reservation"], "host");
    assert!(hosts != hosts_of(plan, "id") && hosts.iter().all(|(of, _)| of != site), "{replanned}");
    assert!(replanned["conflicts"].as_u64() >= Some(1), "{replanned}");
}
