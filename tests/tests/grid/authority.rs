//! Authority in small pieces, over a real node: tokens with a scope, and users who sign instead of showing one.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use end_to_end::{Ended, Node, binary, hosts, run, wait_until, write_private};
use serde_json::Value;

use super::membership::{Person, founded, invite};

const SUBMIT: [&str; 7] = ["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h"];

/// A token made by the operator, in a file.
fn token(node: &Node, directory: &Path, arguments: &[&str]) -> String {
    let made = node.kolo(&[&["token", "create", "--output", "quiet"], arguments].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    write_private(directory, made.out.trim(), &made.out)
}

fn kolo(node: &Node, token_file: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(binary("kolo"));
    command.args(arguments).args(["--api", &node.address(), "--token-file", token_file]);
    run(command.env_remove("KOLO_KEY").env("XDG_CONFIG_HOME", "/nonexistent").env("XDG_DATA_HOME", "/nonexistent"))
}

#[derive(Debug)]
struct Answer {
    status: u16,
    body: Value,
}

fn call(node: &Node, method: &str, path: &str, authorization: Option<&str>, body: &str) -> Answer {
    let mut request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", node.address()));
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut answer = agent.run(request.body(body.to_owned()).unwrap()).unwrap();
    let is_stream = answer.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
    let text = if is_stream { String::new() } else { answer.body_mut().read_to_string().unwrap() };
    Answer { status: answer.status().as_u16(), body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}

#[test]
fn every_call_is_for_the_scope_that_it_names_and_for_no_smaller_one() {
    let node = Node::first("alpha", &hosts("a", 1));
    let made = |arguments: &[&str]| {
        let made = node.kolo(&[&["token", "create", "--output", "quiet"], arguments].concat());
        format!("Bearer {}", made.out.trim())
    };
    let tokens = [
        ("metrics", made(&["--scope", "metrics"])),
        ("submit", made(&["--scope", "submit", "--user", "ada"])),
        ("read", made(&["--scope", "read"])),
        ("operator", format!("Bearer {}", node.token())),
    ];
    let document = call(&node, "GET", "/openapi.json", None, "").body;
    let mut checked = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        let path = template.replace("{id}", "nosuch").replace("{name}", "nosuch");
        let path = path.replace("challenge", "challenge?method=GET&path=x");
        for (method, operation) in item.as_object().unwrap() {
            let method = method.to_uppercase();
            let ways = operation["security"].as_array().cloned().unwrap_or_default();
            let needed = ways.iter().find_map(|way| way["token"][0].as_str());
            let takes_anybody = ways.iter().any(|way| way.as_object().is_some_and(serde_json::Map::is_empty));
            let takes_own = ways.iter().any(|way| way["signature"].is_array());
            // What this call upgrades to starts commands; a link opens the page for no more than its maker may.
            let looks = method == "GET" && path != "/v1/run" || path == "/v1/links";
            for (scope, bearer) in &tokens {
                let is_enough = match (needed, *scope) {
                    (None, _) | (_, "operator") => true,
                    // A request that is signed needs no scope; what is handed over here is none, and not allowed to be plain.
                    (Some("submit"), _) if takes_anybody => method == "GET" || *scope == "submit",
                    (Some("submit"), "read") => takes_own && looks,
                    (Some(needed), scope) => needed == scope,
                };
                let Answer { status, body } = call(&node, &method, &path, Some(bearer), "{}");
                let shown = format!("{method} {path} with {scope}: {status} {body}");
                assert_ne!(status, 401, "{shown}");
                assert_eq!(status == 403 && body["rule"] == "scope", !is_enough, "{shown}");
                if !is_enough {
                    assert!(body["detail"].as_str().unwrap().contains(needed.unwrap()), "{shown}");
                }
                checked += 1;
            }
            let Answer { status, body } = call(&node, &method, &path, None, "{}");
            let is_open = needed.is_none() || takes_anybody && method == "GET";
            assert_eq!(status == 401, !is_open && path != "/v1/session", "{method} {path}: {status} {body}");
        }
    }
    assert!(checked > 100, "{checked} calls");
    for path in ["/v1/tokens", "/v1/local", "/v1/grid/revocations"] {
        assert_eq!(call(&node, "POST", path, Some(&tokens[2].1), "{}").status, 403, "{path}");
    }
    let metrics = call(&node, "GET", "/metrics", Some(&tokens[0].1), "").body.to_string();
    let denied = metrics.split("\\n").find_map(|line| line.strip_prefix("kolo_api_denied_total{why=\\\"scope\\\"} "));
    assert!(denied.is_some_and(|denied| denied != "0"), "{metrics}");
}

#[test]
fn a_submit_token_sees_and_ends_the_requests_of_its_user_only() {
    let node = Node::first("alpha", &hosts("a", 2));
    node.wait_until_it_knows(2);
    let directory = tempfile::tempdir().unwrap();
    let [ada, bob] = ["ada", "bob"].map(|user| token(&node, directory.path(), &["--scope", "submit", "--user", user]));
    let read = token(&node, directory.path(), &["--scope", "read"]);
    let submitted = kolo(&node, &ada, &[&SUBMIT[..], &["--output", "quiet"]].concat());
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    let id = submitted.out.trim();
    let extended = kolo(&node, &ada, &["extend", id, "--by", "1h"]);
    assert_eq!(extended.code, Some(0), "{extended:?}");

    for arguments in [&["show", id][..], &["cancel", id], &["extend", id, "--by", "1h"], &["cancel", &id[..6]]] {
        let refused = kolo(&node, &bob, arguments);
        assert!(refused.code == Some(1) && refused.err.contains("of yours"), "{arguments:?}: {refused:?}");
    }
    assert_eq!(kolo(&node, &bob, &["list", "--output", "quiet"]).out, "");
    assert_eq!(kolo(&node, &ada, &["list", "--output", "quiet"]).out.trim(), id);
    let listed = kolo(&node, &read, &["list", "--output", "quiet"]);
    assert_eq!(listed.out.trim(), id, "{listed:?}");
    for (file, arguments, needed) in
        [(&read, &["cancel", id][..], "submit"), (&ada, &["sites"], "read"), (&read, &SUBMIT, "submit")]
    {
        let refused = kolo(&node, file, arguments);
        assert!(refused.code == Some(4) && refused.err.contains(needed), "{arguments:?}: {refused:?}");
    }

    // The page's session has the scope of its token, and ends with it.
    let link = kolo(&node, &read, &["open", "--output", "quiet"]);
    let code = link.out.trim().rsplit_once("#link=").unwrap().1.to_owned();
    let opened = call(&node, "POST", "/v1/session", None, &format!(r#"{{"link":"{code}"}}"#));
    assert_eq!((opened.status, &opened.body["scope"]), (201, &"read".into()));
    assert_eq!(kolo(&node, &ada, &["cancel", id]).code, Some(0));
    assert_eq!(node.kolo(&["token", "revoke", "ada"]).code, Some(0));
    assert!(kolo(&node, &ada, &["list"]).err.contains("does not know the token"));

    let read = |file: &str| fs::read_to_string(node.data().join(file)).unwrap();
    let audit = read("audit-users.jsonl");
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cancelled = lines.iter().find(|line| line["what"] == "DELETE /v1/requests/{id}" && line["status"] == 200);
    assert_eq!((&cancelled.unwrap()["who"], &cancelled.unwrap()["id"]), (&"token ada".into(), &id.into()), "{audit}");
    assert!(lines.iter().any(|line| line["who"] == "token bob" && line["status"] == 404), "{audit}");
    let audit = read("audit.jsonl");
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["who"] == "operator" && line["id"] == "bob"), "{audit}");
    assert!(lines.iter().all(|line| line["who"] == "operator"), "{audit}");
    let doctor = || node.kolo(&["doctor", "--data-dir", node.data().to_str().unwrap()]).out;
    let told = doctor();
    assert_eq!(told.matches("each behind the one before it").count(), 2, "{told}");
    assert!(audit.lines().count() > 2, "{audit}");
    let first = audit.split_inclusive('\n').next().unwrap();
    fs::write(node.data().join("audit.jsonl"), audit.replace(first, "")).unwrap();
    let told = doctor();
    let place = "a line was changed, put in or taken out (audit.jsonl line 1: the lines before it are missing)";
    assert!(told.contains("PROBLEM audit: ") && told.contains(place), "{told}");
}

#[test]
fn another_token_of_the_operator_ends_the_old_one_and_all_that_it_has_opened() {
    let mut node = Node::first("alpha", &hosts("a", 1));
    let old = node.token();
    let bearer = |token: &str| format!("Bearer {token}");
    let status = |node: &Node, token: &str| call(node, "GET", "/v1/status", Some(&bearer(token)), "").status;
    let started = node.get("/v1/status")["started"].clone();
    let link = node.kolo(&["open", "--output", "quiet"]);
    let code = link.out.trim().rsplit_once("#link=").unwrap().1.to_owned();
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let base = format!("http://{}", node.address());
    let mut opened = agent.post(format!("{base}/v1/session")).send(format!(r#"{{"token":"{old}"}}"#)).unwrap();
    let cookie = opened.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let page = opened.body_mut().read_json::<Value>().unwrap()["page"].as_str().unwrap().to_owned();
    let by_session = || {
        let asked = agent.get(format!("{base}/v1/status")).header("cookie", &cookie).header("kolo-page", &page);
        asked.call().unwrap().status().as_u16()
    };
    let mut events = agent.get(format!("{base}/v1/events")).header("authorization", bearer(&old)).call().unwrap();
    assert_eq!((by_session(), events.status().as_u16(), status(&node, &old)), (200, 200, 200));

    // By the old token itself, as somebody who manages the node from elsewhere.
    let made = node.kolo(&["token", "rotate", "--output", "quiet"]);
    let new = node.token();
    assert_eq!((made.code, made.out.trim()), (Some(0), new.as_str()), "{made:?}");
    let mode = fs::metadata(node.data().join("api.token")).unwrap().permissions().mode();
    assert!(new != old && mode & 0o777 == 0o600, "{mode:o}");
    assert_eq!((status(&node, &old), status(&node, &new), by_session()), (401, 200, 401));
    let used = call(&node, "POST", "/v1/session", None, &format!(r#"{{"link":"{code}"}}"#));
    assert_eq!(used.status, 401, "{used:?}");
    // The stream has ended: otherwise this waits for its hour.
    let _ = events.body_mut().read_to_string();
    assert_eq!(node.get("/v1/status")["started"], started, "the same run of the node");
    let audit = fs::read_to_string(node.data().join("audit.jsonl")).unwrap();
    assert!(audit.contains("POST /v1/api-token") && !audit.contains(&new), "{audit}");
    assert!(node.stop().success());
    node.restart();
    assert_eq!((status(&node, &old), status(&node, &new)), (401, 200));
}

#[test]
fn an_owner_sees_who_uses_the_machine_and_takes_it_back() {
    let node = Node::first("alpha", &hosts("a", 1));
    node.wait_until_it_knows(1);
    let id = node.kolo_json(&SUBMIT, 0)["id"].as_str().unwrap().to_owned();
    let listed = node.kolo_json(&["local", "list"], 0);
    assert_eq!(
        (&listed["promised"][0]["request"], &listed["promised"][0]["host"]),
        (&id.as_str().into(), &"a1".into())
    );
    let _ = wait_until("the outcome to be known", || node.bookings(), |bookings| bookings[0]["settled"] == true);
    assert_eq!(node.kolo(&["local", "evict", "nosuch"]).code, Some(1));
    let taken = node.kolo_json(&["local", "evict", &id[..8]], 0);
    assert_eq!(taken["promised"][0]["request"], id.as_str());
    assert!(node.bookings().is_empty());
    // The line is written beside the answer.
    let line = |what: &str| format!("hosts of this site are {what}");
    let is_told = |log: &String| log.contains(&line("reserved")) && log.contains(&line("given back"));
    let log = wait_until("the log to say so", || node.log(), is_told);
    assert!(log.contains("hosts=\"a1\"") || log.contains("hosts=a1"), "{log}");
    let repaired = node.kolo(&["repair", &id]);
    assert!(node.bookings().is_empty(), "the site holds nothing more for this request: {repaired:?}");
}

#[test]
fn a_user_with_a_key_needs_no_token_for_requests_of_their_own() {
    let node = founded("alpha", &hosts("a", 2));
    node.wait_until_it_knows(2);
    let [bob, eve] = ["bob", "eve"].map(|name| {
        let person = Person::new();
        person.join(&invite(&node, &["--role", "user", "--name", name]));
        person
    });
    let elsewhere = tempfile::tempdir().unwrap();
    let address = node.address();
    let told = |person: &Person, arguments: &[&str], exit: i32| {
        person.told(&[arguments, &["--api", &address]].concat(), elsewhere.path(), exit)
    };
    let id = told(&bob, &[&SUBMIT[..], &["--output", "quiet"]].concat(), 0);
    let id = id.trim();
    assert!(told(&bob, &["show", id], 0).contains("user: bob"));
    assert!(told(&bob, &["extend", "last", "--by", "1h"], 0).starts_with("extended "));
    assert!(told(&bob, &["wait", id], 0).contains(id));
    assert_eq!(told(&bob, &["list", "--output", "quiet"], 0).trim(), id);

    assert_eq!(told(&eve, &["list", "--output", "quiet"], 0), "");
    for arguments in [&["show", id][..], &["cancel", id]] {
        assert!(told(&eve, arguments, 1).contains("of yours"), "{arguments:?}");
    }
    assert!(told(&eve, &["sites"], 1).contains("the scope read"));
    let nobody = Person::new();
    assert!(told(&nobody, &["list"], 3).contains("no API token"));
    // Calls without a token are limited for all of this machine together; the command line waits, this does not.
    let ask = || call(&node, "POST", "/v1/requests", None, r#"{"hosts":1,"duration":60}"#);
    let plain = wait_until("a turn to call", ask, |answer| answer.status != 429);
    assert!(plain.status == 401 && plain.body["detail"].as_str().unwrap().contains("submit"), "{}", plain.body);

    assert!(told(&bob, &["cancel", id], 0).starts_with("cancelled "));
    assert!(node.bookings().is_empty());
    let audit = fs::read_to_string(node.data().join("audit-users.jsonl")).unwrap();
    assert!(audit.lines().any(|line| line.contains("\"who\":\"user ") && line.contains(id)), "{audit}");
    let _ = node.kolo(&["grid", "revoke", "eve", "--data-dir", node.data().to_str().unwrap()]);
    assert!(told(&eve, &SUBMIT, 4).contains("revoked"));
}
