//! Owners' rules over real nodes: what is not offered is not planned, and what is planned is had.

use std::{fs, time::SystemTime};

use end_to_end::{Node, hosts};

const HOUR: i64 = 3_600;

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// A table that offers the hosts every day from one hour after `now` for so many hours, in UTC.
fn offered(from_h: i64, hours: i64) -> String {
    let clock = |hour: i64| format!("{:02}:00", hour.rem_euclid(24));
    let first = now() / HOUR + from_h;
    format!("[[offered]]\nhours = \"{}-{}\"\n", clock(first), clock(first + hours))
}

fn at(text: &serde_json::Value) -> i64 {
    text.as_i64().unwrap_or_else(|| panic!("{text}"))
}

/// The start that plan, slots and submit give, which is the same; what begins at once begins later for who asks later.
fn start(node: &Node, asked: &[&str]) -> i64 {
    let plan = node.kolo_json(&[&["plan"], asked].concat(), 0);
    let slots = node.kolo_json(&[&["slots"], asked].concat(), 0);
    let request = node.kolo_json(&[&["submit"], asked].concat(), 0);
    let starts = [&plan["start"], &slots["start"], &request["reservation"]["start"]].map(at);
    assert!(plan["start_proven"] == true && slots["is_proven"] == true, "{plan} {slots}");
    let is_same = |start: &i64| *start == starts[0] || (starts[0]..=now()).contains(start);
    assert!(starts.iter().all(is_same), "{starts:?}: {plan} {slots} {request}");
    assert_eq!(node.kolo_json(&["cancel", request["id"].as_str().unwrap()], 0)["state"], "cancelled");
    starts[0]
}

#[test]
fn plan_slots_and_submit_agree_on_what_the_owner_offers() {
    // Open from three hours ahead on, for fourteen hours, as from 17:00 to 07:00.
    let opens = (now() / HOUR + 3) * HOUR;
    let alpha = Node::first("alpha", &format!("{}[[offered]]\ndates = \"1970-01-01\"\n", hosts("a", 1)));
    let beta = Node::joining("beta", &format!("{}{}", hosts("b", 2), offered(3, 14)), &alpha, &[]);
    // The host of the first site is never offered, and known all the same.
    [&alpha, &beta].iter().for_each(|node| node.wait_until_it_knows(3));
    for node in [&alpha, &beta] {
        assert_eq!(start(node, &["-N", "2", "--per-host", "cpu=1", "-t", "2h", "--latest", "+12h"]), opens);
        // It asks for nothing of the hosts, and has to be in time all the same.
        assert_eq!(start(node, &["-N", "1", "-t", "13h", "--latest", "+12h"]), opens);
        assert_eq!(start(node, &["-N", "1", "--exclusive", "-t", "2h", "--latest", "+12h"]), opens);
    }
    // Nothing before, and not across the end: rejected with proof, and nothing was asked of the site.
    for asked in [["-t", "1h", "--latest", "+1h"], ["-t", "15h", "--latest", "+12h"]] {
        let arguments = [&["submit", "-N", "2", "--per-host", "cpu=1"], &asked[..]].concat();
        let request = alpha.kolo_json(&arguments, 2);
        let reason = request["reason"].to_string();
        assert!(reason.contains("offers its hosts only at its owner's times, next from"), "{request}");
        assert_eq!(request["attempts"], 0, "{request}");
    }
}

#[test]
fn a_request_goes_on_when_a_rule_has_just_changed() {
    let alpha = Node::first("alpha", &format!("{}[[offered]]\ndates = \"1970-01-01\"\n", hosts("a", 1)));
    let beta = Node::joining("beta", &hosts("b", 1), &alpha, &[]);
    alpha.wait_until_it_knows(2);
    let asked = ["-N", "1", "--per-host", "cpu=1", "-t", "2h", "--latest", "+12h"];
    assert!(start(&alpha, &asked) < now() + HOUR);
    let opens = (now() / HOUR + 3) * HOUR;
    let text = fs::read_to_string(beta.config()).unwrap();
    fs::write(beta.config(), format!("{text}{}", offered(3, 14))).unwrap();
    let changed = beta.kolo_json(&["reload"], 0);
    assert_eq!(changed["changed"], serde_json::json!(["offered"]), "{changed}");
    // It may meet the rule before it has heard of it.
    let request = alpha.kolo_json(&[&["submit"], &asked[..]].concat(), 0);
    assert_eq!(at(&request["reservation"]["start"]), opens, "{request}");
    let wrong = format!("{text}[[offered]]\nhours = \"8:00-8:00\"\n");
    fs::write(beta.config(), wrong).unwrap();
    let ended = beta.kolo(&["reload"]);
    assert!(
        ended.code == Some(64) && ended.err.contains("offered[0].hours: \"8:00-8:00\": expected hours"),
        "{ended:?}"
    );
}

#[test]
fn owners_are_asked_for_the_key_that_would_sign() {
    let alpha = Node::first("alpha", &hosts("a", 1));
    let beta = Node::joining("beta", &hosts("b", 1), &alpha, &[]);
    [&alpha, &beta].iter().for_each(|node| node.wait_until_it_knows(2));
    let home = tempfile::tempdir().unwrap();
    let kolo = |arguments: &[&str]| {
        let mut command = alpha.command(arguments);
        let command = command.arg("--data-dir").arg(home.path()).env("XDG_CONFIG_HOME", home.path());
        end_to_end::run(command)
    };
    let made = kolo(&["login", "--output", "json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned();
    let text = fs::read_to_string(beta.config()).unwrap();
    fs::write(beta.config(), format!("{text}[policy]\ndeny = [\"{key}\"]\n")).unwrap();
    let _ = beta.kolo_json(&["reload"], 0);
    let asked = ["-N", "2", "--per-host", "cpu=1", "-t", "1h"];
    for command in ["plan", "slots", "submit"] {
        let refused = end_to_end::wait_until(
            "the rule to be heard of",
            || kolo(&[&[command], &asked[..]].concat()),
            |ended| ended.code != Some(0),
        );
        assert!(
            [&refused.err, &refused.out].iter().any(|said| said.contains("`owner-deny`")),
            "{command}: {refused:?}"
        );
    }
    // The operator has another key.
    assert_eq!(alpha.kolo_json(&[&["plan"], &asked[..]].concat(), 0)["outcome"], "allocated");
}
