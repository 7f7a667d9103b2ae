//! Batches over real nodes: planned together, reserved as planned, and what a conflict does.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use end_to_end::{Node, binary, hosts, seconds_from_now, wait_until, write};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    membership::{Person, founded, invite, joined},
    three_sites,
};

/// A file with a line for each of these.
fn batch(directory: &Path, requests: &[Value]) -> String {
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let file = write(directory, "batch.jsonl", &lines);
    file.to_str().unwrap().to_owned()
}

#[test]
fn ctrl_c_gives_the_best_that_a_search_has_found_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let site = |at: usize| json!({"id": format!("s{at}"), "uplink": {"mbps": 300}});
    let host = |at: usize| json!({"id": format!("h{at}"), "site": format!("s{}", at / 8), "resources": {"cpu": 1000}});
    let grid = json!({"format": "kolo-grid/2", "sites": (0..3).map(site).collect::<Vec<_>>(),
        "hosts": (0..24).map(host).collect::<Vec<_>>()});
    let grid = write(directory.path(), "grid.json", &grid.to_string());
    // No bound is reached by these, so the search goes on for minutes.
    let one = |at: usize| {
        let traffic = json!({"mbps": 20 + at % 7 * 10, "compute": 600});
        json!({"id": format!("r{at}"), "hosts": 3 + at % 9, "work": 500 + at * 37 % 400, "per_host": {"cpu": 1000}, "traffic": traffic})
    };
    let requests = batch(directory.path(), &(0..80).map(one).collect::<Vec<_>>());
    let mut search = Command::new(binary("kolo"));
    search.args(["plan", "--grid", grid.to_str().unwrap(), "--requests", &requests]);
    search.args(["--batch", "oas", "--effort", "thorough"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let search = search.spawn().unwrap();
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", search.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::SIGINT as u32 - 1)) != 0
    };
    wait_until("the search to listen", listens, |listens| *listens);
    kill(Pid::from_raw(search.id().cast_signed()), Signal::SIGINT).unwrap();
    let ended = search.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && err.contains("the search was ended"), "{:?} {err}", ended.status);
    let out = String::from_utf8(ended.stdout).unwrap();
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let (placed, objective) = (&last["batch"]["placed"], &last["batch"]["objective"]);
    assert_eq!((out.lines().count(), placed), (81, &80.into()), "{last}");
    assert!(
        objective["bound"].as_i64() > Some(0) && objective["bound"].as_i64() <= objective["value"].as_i64(),
        "{last}"
    );
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

#[test]
fn a_batch_is_reserved_as_a_whole_or_not_at_all() {
    let nodes = three_sites();
    let directory = tempfile::tempdir().unwrap();
    let latest = seconds_from_now(1_800);
    let one = |id: &str| json!({"id":id,"hosts":1,"duration":3600,"per_host":{"cpu":4000},"latest":latest});
    let booked = || nodes.iter().map(|node| node.bookings().len()).sum::<usize>();
    let giant = json!({"id":"giant","hosts":1,"duration":3600,"per_host":{"cpu":400_000}});
    let too_much = batch(directory.path(), &[one("a"), giant]);
    let refused = nodes[0].kolo_json(&["batch", "submit", &too_much, "--together"], 2);
    assert_eq!(refused["requests"][0]["outcome"], "not submitted", "{refused}");
    assert!(booked() == 0 && nodes[0].kolo_json(&["list"], 0)["requests"].as_array().unwrap().is_empty());

    let file = batch(directory.path(), &["a", "b", "c", "d"].map(one));
    let done = nodes[0].kolo_json(&["batch", "submit", &file, "--together"], 0);
    assert!(done["requests"].as_array().unwrap().iter().all(|row| row["is_as_planned"] == true), "{done}");
    assert_eq!(booked(), 4);

    // Two hosts are left. Somebody else takes one of them before the next batch comes with its plan for both.
    let requests = ["e", "f"].map(one);
    let planned = nodes[0].post("/v1/batches/plan", &json!({"requests":requests}).to_string()).1;
    assert_eq!(planned["batch"]["placed"], 2, "{planned}");
    let taken = planned["plans"][1]["hosts"][0].clone();
    let taken = format!("{}/{}", taken["site"].as_str().unwrap(), taken["id"].as_str().unwrap());
    let _ = nodes[1].kolo_json(&["submit", "-N", "1", "-t", "2h", "--per-host", "cpu=4", "--candidate", &taken], 0);
    let seat =
        |host: &Value| json!({"site":host["site"],"host":host["id"],"end":host["end"],"amounts":host["amounts"]});
    let submission = |(request, plan): (&Value, &Value)| {
        let seats: Vec<Value> = plan["hosts"].as_array().unwrap().iter().map(seat).collect();
        json!({"request":request,"plan":{"start":plan["start"],"hosts":seats}})
    };
    let all: Vec<Value> = requests.iter().zip(planned["plans"].as_array().unwrap()).map(submission).collect();
    let (status, tied) = nodes[0].post("/v1/batches/submit", &json!({"requests":all}).to_string());
    assert_eq!(status, 201, "{tied}");
    for request in tied["requests"].as_array().unwrap() {
        let path = format!("/v1/requests/{}?until=settled&wait_ms=60000", request["id"].as_str().unwrap());
        let ended = nodes[0].wait_until("its end", &path, |view| view["reason"].is_object());
        assert!(ended["reservation"].is_null() || ended["state"] == "failed", "{ended}");
    }
    wait_until("the release of what was held", booked, |booked| *booked == 5);

    for (body, key) in [
        (json!({"requests":[]}), "requests"),
        (json!({"requests":[requests[0]]}), "requests[0].plan"),
        (json!({"requests":[all[0], requests[1]]}), "requests[1].plan"),
    ] {
        let (status, problem) = nodes[0].post("/v1/batches/submit", &body.to_string());
        assert_eq!((status, &problem["key"]), (400, &key.into()), "{problem}");
    }
}

#[test]
fn a_node_that_is_killed_goes_on_with_the_whole_of_a_batch() {
    let mut node = Node::first("alpha", &hosts("a", 4));
    node.wait_until_it_knows(4);
    let requests: Vec<Value> = (0..4).map(|_| json!({"hosts":1,"duration":3600,"per_host":{"cpu":4000}})).collect();
    let planned = node.post("/v1/batches/plan", &json!({"requests":requests}).to_string()).1;
    let seat =
        |host: &Value| json!({"site":host["site"],"host":host["id"],"end":host["end"],"amounts":host["amounts"]});
    let submission = |(request, plan): (&Value, &Value)| {
        let seats: Vec<Value> = plan["hosts"].as_array().unwrap().iter().map(seat).collect();
        json!({"request":request,"plan":{"start":plan["start"],"hosts":seats}})
    };
    let all: Vec<Value> = requests.iter().zip(planned["plans"].as_array().unwrap()).map(submission).collect();
    let (status, tied) = node.post("/v1/batches/submit", &json!({"requests":all}).to_string());
    assert_eq!(status, 201, "{tied}");
    node.kill();
    node.restart();
    let states: Vec<Value> = tied["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|request| {
            let path = format!("/v1/requests/{}?until=settled&wait_ms=60000", request["id"].as_str().unwrap());
            let is_settled =
                |view: &Value| ["confirmed", "active", "failed", "refused"].iter().any(|state| view["state"] == *state);
            node.wait_until("its end", &path, is_settled)["state"].clone()
        })
        .collect();
    let reserved = states.iter().filter(|state| *state == "confirmed" || *state == "active").count();
    assert!(reserved == 0 || reserved == 4, "{states:?}");
    wait_until("what is booked to be that", || node.bookings().len(), |booked| *booked == reserved);
}

/// What waits at a node: label, state, state of the request, and how often it was postponed.
fn waiting(node: &Node) -> Vec<(String, String, Option<String>, u64)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = node.kolo_json(&["batch", "list"], 0);
    let row = |view: &Value| {
        let of_request = view.get("request_state").map(text);
        (text(&view["label"]), text(&view["state"]), of_request, view["postponed"].as_u64().unwrap())
    };
    list["requests"].as_array().unwrap().iter().map(row).collect()
}

fn row(label: &str, state: &str, of_request: Option<&str>, postponed: u64) -> (String, String, Option<String>, u64) {
    (label.to_owned(), state.to_owned(), of_request.map(str::to_owned), postponed)
}

#[test]
fn what_waits_outlives_the_node_and_what_was_postponed_comes_first() {
    let mut node = Node::first("alpha", &hosts("a", 2));
    node.wait_until_it_knows(2);
    let directory = tempfile::tempdir().unwrap();
    // Two hosts of four cores, for an hour each: the third finds no place before its window has passed.
    let soon = seconds_from_now(1_800);
    let one = |id: &str| json!({"id":id,"hosts":1,"duration":3600,"per_host":{"cpu":4000},"latest":soon});
    let every = |every: &str| node.kolo_json(&["batch", "run", "--every", every], 0)["every_s"].clone();
    assert_eq!((every("10min"), every("never")), (600.into(), Value::Null));
    let refused = node.kolo(&["batch", "run", "--every", "500ms"]);
    assert!(refused.code == Some(64) && refused.err.contains("whole seconds"), "{refused:?}");
    let add = |node: &Node, requests: &[Value], exit| {
        let ended = node.kolo(&["batch", "add", &batch(directory.path(), requests)]);
        assert_eq!(ended.code, Some(exit), "{ended:?}");
        ended.err
    };
    add(&node, &["a", "b", "d", "e"].map(one), 0);
    let refused = add(&node, &["f", "b"].map(one), 1);
    assert!(refused.contains("b is known here already"), "{refused}");
    let lines: Vec<Value> = (0..999).map(|_| json!({"hosts":1,"duration":60})).chain([json!({"hosts":0})]).collect();
    assert!(add(&node, &lines, 64).contains("batch.jsonl:1000: "));
    let refused = add(&node, &lines[..250], 1);
    assert!(refused.contains("at most 250 requests of one user"), "{refused}");
    let refused = node.post("/v1/batches/waiting", &json!({"requests":[one("f")]}).to_string());
    assert_eq!((refused.0, &refused.1["key"]), (400, &"requests[0].budget".into()), "{}", refused.1);
    assert!(node.bookings().is_empty(), "nothing is held");
    node.kill();
    node.restart();
    assert_eq!(waiting(&node), ["a", "b", "d", "e"].map(|label| row(label, "waiting", None, 0)));
    assert_eq!(node.kolo_json(&["batch", "drop", "e"], 0)["label"], "e");
    assert_eq!(node.kolo(&["batch", "drop", "e"]).code, Some(1));
    node.wait_until_it_knows(2);

    let run = node.kolo_json(&["batch", "run"], 2);
    assert_eq!((&run["batch"]["placed"], &run["batch"]["postponed"]), (&2.into(), &1.into()), "{run}");
    let submitted = |label: &str, state: &str, postponed| row(label, "submitted", Some(state), postponed);
    assert_eq!(
        waiting(&node),
        [row("d", "postponed", None, 1), submitted("a", "active", 0), submitted("b", "active", 0)]
    );
    // A host is free again: it goes to the one that came first, and not to a shorter one that is new, also when the shortest is first.
    assert_eq!(node.kolo_json(&["cancel", "a"], 0)["state"], "cancelled");
    add(&node, &[json!({"id":"g","hosts":1,"duration":1800,"per_host":{"cpu":4000},"latest":soon})], 0);
    node.kill();
    node.restart();
    node.wait_until_it_knows(2);
    let run = node.kolo_json(&["batch", "run", "--policy", "in-order", "--order", "spt"], 2);
    assert_eq!((&run["batch"]["placed"], &run["batch"]["postponed"]), (&1.into(), &1.into()), "{run}");
    let (first, all) = (waiting(&node)[0].clone(), waiting(&node));
    assert!(first == row("g", "postponed", None, 1) && all.contains(&submitted("d", "active", 1)), "{all:?}");
    assert_eq!(node.kolo_json(&["list"], 0)["requests"].as_array().unwrap().len(), 3, "none is submitted twice");
}

#[test]
fn what_waits_is_planned_by_every_policy_and_what_one_cannot_treat_by_itself() {
    let node = Node::first("alpha", &hosts("a", 2));
    node.wait_until_it_knows(2);
    let directory = tempfile::tempdir().unwrap();
    let one = |id: String| json!({"id":id,"hosts":1,"duration":600,"per_host":{"cpu":1000},"latest":seconds_from_now(80_000)});
    for (at, policy) in ["mesd", "oas", "pas", "cbs", "jpr", "colocate:best"].into_iter().enumerate() {
        let mut with_total = one(format!("total-{at}"));
        with_total["total"] = json!({"cpu": 1000});
        let _ =
            node.kolo_json(&["batch", "add", &batch(directory.path(), &[one(format!("plain-{at}")), with_total])], 0);
        let run = node.kolo_json(&["batch", "run", "--policy", policy], 0);
        let apart = run["batch"]["by_itself"].as_array().unwrap();
        assert_eq!((&run["batch"]["placed"], apart.len()), (&2.into(), 1), "{policy}: {run}");
        assert_eq!(apart[0]["why"], "total: only amounts per host can be placed", "{policy}: {run}");
    }
}

#[test]
fn a_batch_is_not_planned_on_hosts_that_its_user_does_not_get() {
    let node = founded("alpha", &hosts("a", 1));
    let closed = joined(&node, "beta", &format!("[policy]\ndeny = [\"eve\"]\n{}", hosts("b", 2)));
    [&node, &closed].iter().for_each(|site| site.wait_until_it_knows(3));
    let [bob, eve] = ["bob", "eve"].map(|name| {
        let person = Person::new();
        person.join(&invite(&node, &["--role", "user", "--name", name]));
        person
    });
    let directory = tempfile::tempdir().unwrap();
    let told = |person: &Person, arguments: &[&str], exit: i32| person.told(arguments, &node.data(), exit);
    let of = |id: &str, count: u32| json!({"id":id,"hosts":count,"duration":3600,"per_host":{"cpu":1000},"latest":seconds_from_now(60)});
    let file = batch(directory.path(), &[of("two", 2), of("one", 1)]);
    let planned = told(&eve, &["batch", "plan", &file], 2);
    assert!(planned.contains("1 of 2 hosts") && planned.contains("rules of owners about users 2"), "{planned}");
    assert!(told(&bob, &["batch", "plan", &file], 0).contains("2 of 2 requests planned"));

    told(&eve, &["batch", "add", &file], 0);
    let run: Value = serde_json::from_str(&told(&eve, &["batch", "run", "--output", "json"], 2)).unwrap();
    assert_eq!((&run["batch"]["placed"], &run["batch"]["postponed"]), (&1.into(), &1.into()), "{run}");
    let text = run.to_string();
    assert!(text.contains("rules of owners about users 2"), "{text}");
    assert_eq!((node.bookings().len(), closed.bookings().len()), (1, 0));
    let asked = closed.log();
    assert!(!asked.contains("owner-deny"), "no hold was tried: {asked}");
}

#[test]
fn a_node_runs_batches_by_itself_for_users_who_see_their_own_only() {
    let node = founded("alpha", &format!("[batch]\nevery = \"1s\"\npolicy = \"mesd\"\n{}", hosts("a", 2)));
    node.wait_until_it_knows(2);
    let [ada, eve] = ["ada", "eve"].map(|name| {
        let person = Person::new();
        person.join(&invite(&node, &["--role", "user", "--name", name]));
        person
    });
    let directory = tempfile::tempdir().unwrap();
    let address = node.address();
    let told = |person: &Person, arguments: &[&str], exit: i32| {
        person.told(&[arguments, &["--api", &address]].concat(), directory.path(), exit)
    };
    let big = json!({"id":"big","hosts":1,"duration":60,"per_host":{"cpu":400_000}});
    let brief = json!({"id":"brief","hosts":1,"duration":60,"per_host":{"cpu":400_000},"latest":seconds_from_now(2)});
    let file = batch(directory.path(), &[big, brief, json!({"id":"small","hosts":2,"duration":3600})]);
    let id = told(&ada, &["batch", "add", &file, "--output", "quiet"], 0).lines().next().unwrap().to_owned();
    let list = wait_until(
        "the end of what can end",
        || told(&ada, &["batch", "list"], 0),
        |list| {
            let is_postponed_again = list.contains("postponed (") && !list.contains("postponed (1)");
            list.contains("passed") && list.contains("active") && is_postponed_again
        },
    );
    assert!(list.contains("minima"), "why it was postponed: {list}");
    assert!(told(&eve, &["batch", "list"], 0).contains("no request waits"));
    assert!(told(&eve, &["batch", "drop", &id], 1).contains("of yours"));
    assert!(told(&eve, &["batch", "run"], 0).contains("no request waits"));
    assert!(told(&ada, &["batch", "drop", &id], 0).starts_with("dropped "));
    // A right that was taken away ends the wait.
    let far = batch(directory.path(), &[json!({"hosts":2,"duration":60,"per_host":{"cpu":400_000}})]);
    told(&eve, &["batch", "add", &far], 0);
    let _ = node.kolo(&["grid", "revoke", "eve", "--data-dir", node.data().to_str().unwrap()]);
    let revoked = || node.kolo(&["batch", "list"]).out;
    let _ =
        wait_until("the revocation to count", revoked, |list| list.contains("not taken") && list.contains("revoked"));
}
