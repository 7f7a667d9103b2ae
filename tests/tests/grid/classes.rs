//! Seats on one of a class: they move out of the way, survive hosts that go and crashes, and have a host from their start on.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use end_to_end::{Node, binary, run, wait_until};
use serde_json::{Value, json};

use super::{
    membership::recording_proxy,
    run_on_seats::{kolo_run, runner, shared},
};

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

#[test]
fn a_reservation_whose_seat_has_moved_is_extended_where_it_is() {
    let node = Node::start("alpha", &class(2), &[]);
    let asked = ["submit", "-N", "1", "--per-host", "cpu=3", "-t", "1h", "--earliest", "now+2h"];
    let view = node.kolo_json(&asked, 0);
    let (id, first) = (view["id"].as_str().unwrap(), booked(&node).into_iter().next().unwrap());
    let own = ["local", "add", "--host", &first, "--from", "now+2h", "--for", "2h", "--cpu", "4"];
    let _ = node.kolo_json(&own, 0);
    // The coordinator asks seldom where the seat is, and names the host that it has left.
    let known = node.get(&format!("/v1/requests/{id}"));
    assert_eq!(seats(&known)[0].0, *first, "{known}");
    let extended = node.kolo_json(&["extend", id, "--by", "30min"], 0);
    assert_ne!(seats(&extended["added"][0])[0].0, *first, "{extended}");
}

/// A hook that writes down what it is told, and fails to start what the file `bad` names; the first host is named by itself.
fn picky_hook(directory: &Path) -> String {
    let hook = directory.join("hook");
    let script = format!(
        "#!/bin/sh\ncd {}\necho \"$KOLO_EVENT $KOLO_HOSTS\" >> told\n[ \"$KOLO_EVENT\" = start ] || exit 0\n\
         [ -e bad ] || echo \"$KOLO_HOSTS\" > bad\nif grep -qx -e all -e \"$KOLO_HOSTS\" bad; then\n\
         echo \"failed host $KOLO_HOSTS\"; exit 1\nfi\n",
        directory.display()
    );
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    hook.display().to_string()
}

/// A hook that waits as long as the file is there.
fn held_hook(directory: &Path) -> (String, PathBuf) {
    let (hook, held) = (directory.join("hook"), directory.join("held"));
    fs::write(&held, "").unwrap();
    fs::write(&hook, format!("#!/bin/sh\nwhile [ -e {} ]; do sleep 0.05; done\n", held.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    (hook.display().to_string(), held)
}

#[test]
fn a_command_on_some_seats_waits_for_no_hook_of_the_others() {
    let directory = shared();
    let (hook, held) = held_hook(directory.path());
    let first = Node::start("alpha", &class(1), runner());
    let second = Node::joining("beta", &class(1), &first, &[runner(), &["--activation-hook", &hook]].concat());
    [&first, &second].iter().for_each(|node| node.wait_until_it_knows(2));
    let view = first.kolo_json(&["submit", "-N", "2", "--per-host", "cpu=3", "-t", "1h", "--earliest", "now+3s"], 0);
    let id = view["id"].as_str().unwrap();
    let of_first = |view: &Value| {
        let hosts = view["reservation"]["hosts"].as_array().unwrap();
        hosts.iter().find(|host| host["site_name"] == "alpha").unwrap().clone()
    };
    let has_host = |view: &Value| view["state"] == "active" && of_first(view)["class"].is_null();
    let begun = first.wait_until("the first host", &format!("/v1/requests/{id}"), has_host);
    let seat = of_first(&begun)["seat"].to_string();
    let is_open = |view: &Value| seats(view).iter().any(|(_, class)| class.is_string());
    assert!(is_open(&begun), "the other one waits for its hook: {begun}");
    let ended = run(&mut kolo_run(&first, &["--in", id, "--on", &seat], &["echo", "up"]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "up\n"), "{ended:?}");
    fs::remove_file(held).unwrap();
}

#[test]
fn a_command_waits_for_the_hook_of_its_host_however_long_it_takes() {
    let directory = shared();
    let (hook, held) = held_hook(directory.path());
    let arguments = [runner(), &["--activation-hook", &hook]].concat();
    let node = Node::start("alpha", &class(2), &arguments);
    let (proxy, sent) = recording_proxy(node.address());
    // By a user's own key, as a token counts at the node's own address only.
    let kolo = |arguments: &[&str]| {
        let mut command = Command::new(binary("kolo"));
        command.args(arguments).env("XDG_CONFIG_HOME", directory.path()).env_remove("KOLO_KEY").stdin(Stdio::null());
        command
    };
    let mine = directory.path().join("no-node").display().to_string();
    let login = run(&mut kolo(&["login", "--api", &proxy, "--data-dir", &mine]));
    assert_eq!(login.code, Some(0), "{login:?}");
    let of_node = ["--api", &proxy, "--data-dir", &mine, "--", "echo", "up"];
    // What begins at once has its host when it is reserved.
    let wanted = ["run", "-N", "1", "--per-host", "cpu=3", "-t", "1h", "--earliest", "now+3s"];
    let mut command = kolo(&[&wanted[..], &of_node].concat());
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    node.wait_until("it to begin", "/v1/requests", |list| list["requests"][0]["state"] == "active");
    // A seat that is asked for is asked for again until the hook is done, if that is soon: so it must not be asked for.
    let asked = || {
        let sent = String::from_utf8_lossy(&sent.lock().unwrap()).into_owned();
        let asked = sent.split("GET /v1/r").skip(1).filter_map(|rest| rest.lines().next());
        asked.map(str::to_owned).collect::<Vec<_>>()
    };
    let is_of_seat = |line: &String| line.starts_with("un ");
    // What was reserved is looked at anew, and then waited for.
    let waits = |asked: &Vec<String>| {
        let is_view = |line: &&String| !line.contains('?');
        asked.iter().filter(is_view).count() >= 2 && asked.last().is_some_and(|line| line.contains("?wait_ms="))
    };
    let asked = wait_until("it to ask", asked, |asked| asked.iter().any(is_of_seat) || waits(asked));
    assert!(!asked.iter().any(is_of_seat), "{asked:?}");
    fs::remove_file(held).unwrap();
    let ended = running.wait_with_output().unwrap();
    let [out, err] = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((ended.status.code(), out.as_str()), (Some(0), "up\n"), "{err}");
}

#[test]
fn a_seat_whose_hook_fails_begins_on_another_host_and_is_lost_when_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let hook = picky_hook(directory.path());
    let arguments = ["--activation-hook", &hook, "--activation-tries", "0"];
    let mut node = Node::start("alpha", &class(2), &arguments);
    let told = || fs::read_to_string(directory.path().join("told")).unwrap_or_default();
    let starts =
        || told().lines().filter_map(|line| line.strip_prefix("start ").map(str::to_owned)).collect::<Vec<_>>();
    let asked = ["submit", "-N", "1", "--per-host", "cpu=3", "-t", "1h", "--earliest", "now+3s"];
    let view = node.kolo_json(&asked, 0);
    let path = format!("/v1/requests/{}", view["id"].as_str().unwrap());
    let begun = node.wait_until("the host", &path, |view| seats(view)[0].1.is_null());
    let host = seats(&begun)[0].0.as_str().unwrap().to_owned();
    let bad = fs::read_to_string(directory.path().join("bad")).unwrap();
    assert!(starts() == [bad.trim().to_owned(), host.clone()] && host != bad.trim(), "{}", told());
    assert_eq!((begun["state"].as_str(), booked(&node)), (Some("active"), [host.clone()].into()));
    let failed = &node.get("/v1/status")["failed_activations"][0];
    assert_eq!(failed["event"], "start", "the owner learns of the host");
    node.kill();
    node.restart();
    assert_eq!(seats(&node.get(&path))[0].0, *host);

    fs::write(directory.path().join("bad"), "all\n").unwrap();
    let view = node.kolo_json(&asked, 0);
    let path = format!("/v1/requests/{}", view["id"].as_str().unwrap());
    let lost = node.wait_until("the loss", &path, |view| view["state"] == "degraded");
    assert!(lost["reservation"]["hosts"][0]["lost"].is_string(), "{lost}");
    assert_eq!(booked(&node), [host].into(), "{}", told());
}

#[test]
fn a_reservation_with_slack_waits_until_an_own_job_of_its_site_has_ended_whole() {
    let alpha = Node::start("alpha", "[[hosts]]\nid = \"a\"\nresources = { cpu = \"1\" }\n", &[]);
    let mut beta = Node::joining("beta", &class(2), &alpha, &["--policy-quality-loss", "100%"]);
    alpha.wait_until_it_knows(3);
    let own = "local queue add --id own --for 30s -N 2 --cpu 4 --preempt";
    let _ = beta.kolo_json(&own.split(' ').collect::<Vec<_>>(), 0);
    let job = |node: &Node| node.get("/v1/local")["queue"].as_array().unwrap().first().cloned();
    let begun = job(&beta).unwrap()["start"].as_i64().unwrap();

    let asked = "submit -N 2 --per-host cpu=4 -t 4s --earliest now+10s --slack 5min";
    let view = alpha.kolo_json(&asked.split(' ').collect::<Vec<_>>(), 0);
    let (id, start) = (view["id"].as_str().unwrap(), view["reservation"]["start"].as_i64().unwrap());
    assert!(start < begun + 30, "before the job ends: {view}");
    assert_eq!(job(&beta).unwrap()["end"], start, "the job is to end early");
    let path = format!("/v1/requests/{id}");
    let told = alpha.wait_until("a later start", &path, |view| view["reservation"]["wait"].is_i64());
    let wait = told["reservation"]["wait"].as_i64().unwrap();
    assert_eq!((start + wait, &told["state"]), (begun + 30, &json!("confirmed")), "{told}");
    assert_eq!(told["reservation"]["end"], begun + 34);
    let shown = alpha.kolo(&["show", id]);
    assert!(shown.out.contains(&format!("{wait}s later than reserved")), "{shown:?}");

    // It is on disk at both.
    beta.kill();
    beta.restart();
    let is_whole = |job: &Value| job["state"] == "runs" && job["end"] == begun + 30;
    assert!(is_whole(&job(&beta).unwrap()), "{:?}", job(&beta));
    let _ = alpha.wait_until("it to begin", &path, |view| view["state"] == "active" || view["state"] == "ended");
    assert!(job(&beta).is_none_or(|job| is_whole(&job)), "it does not begin anew");
    let charged = alpha.wait_until("its end", &path, |view| view["state"] == "ended");
    assert_eq!(charged["reservation"]["start"], begun + 30, "{charged}");
}
