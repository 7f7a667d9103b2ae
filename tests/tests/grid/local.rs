//! The owner's own work as another program tells it: a feed of any kind, and Slurm's.

use std::{fs, path::Path, process::Command};

use end_to_end::{Node, binary, hosts, run, wait_until};
use serde_json::Value;

/// What stands of own work, as `host cpu` in the order of the hosts; and the rest of the answer.
fn own_work(node: &Node) -> (Vec<String>, Value) {
    let told = node.get("/v1/local");
    let work = told["local"].as_array().expect("own work is a list").iter();
    let mut work: Vec<String> =
        work.map(|work| format!("{} {}", work["host"].as_str().unwrap(), work["amounts"]["cpu"])).collect();
    work.sort();
    (work, told["feed"].clone())
}

fn wait_for_own_work(node: &Node, expected: &[&str]) {
    wait_until(&format!("own work {expected:?}"), || own_work(node), |(work, _)| work == expected);
}

fn submit(node: &Node, cpu: &str, exit: i32) {
    let asked = ["submit", "-N", "2", "--per-host", cpu, "-t", "1h", "--latest", "now+1min"];
    let ended = node.kolo(&asked);
    assert_eq!(ended.code, Some(exit), "{ended:?}");
}

#[test]
fn what_a_feed_tells_is_not_given_to_the_grid_and_what_it_tells_no_more_is() {
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("said");
    // Whole at any moment: the node may read it while it is written.
    let say = |work: &str| {
        let new = directory.path().join("new");
        fs::write(&new, work).unwrap();
        fs::rename(&new, &said).unwrap();
    };
    say(r#"{"schema":"kolo-local/1","work":[{"id":"7","host":"a1","amounts":{"cpu":3000}}]}"#);
    let feed = [&["--local-every", "1s", "--local-feed", "/bin/cat", "--local-feed"], &[said.to_str().unwrap()][..]];
    let mut node = Node::start("alpha", &hosts("a", 2), &feed.concat());
    let by_hand = ["local", "add", "--host", "a2", "--from", "now+2h", "--for", "1h", "--cpu", "4"];
    let _ = node.kolo_json(&by_hand, 0);
    wait_for_own_work(&node, &["a1 3000", "a2 4000"]);
    submit(&node, "cpu=2", 2);

    // What a feed that fails has told stands, also when the node is killed; the doctor says what is wrong.
    say("{\"schema\":\"kolo-local/1\",\"work\":[");
    let (_, feed) = wait_until("the feed to fail", || own_work(&node), |(_, feed)| feed["failure"].is_string());
    assert!(feed["failure"].as_str().unwrap().contains("EOF"), "{feed}");
    node.kill();
    node.restart();
    wait_for_own_work(&node, &["a1 3000", "a2 4000"]);
    wait_until(
        "the doctor's finding",
        || node.kolo(&["doctor"]),
        |doctor| doctor.code == Some(1) && doctor.out.contains("the feed of own work fails"),
    );
    // What it told may be long over, and what runs now is not known: until it has worked once, there is nothing to be had.
    let doctor = node.kolo(&["doctor"]);
    assert!(doctor.out.contains("this node gives the grid nothing until it works"), "{doctor:?}");
    submit(&node, "cpu=1", 2);

    // A job that waits at the batch system is in the own queue until it is work, or told no more.
    say(r#"{"schema":"kolo-local/1","work":[],"queue":[{"id":"9","length":60,"hosts":2,"amounts":{"cpu":1000}}]}"#);
    wait_until("the job that waits", || own_jobs(&node).0, |jobs| *jobs == ["feed-9 waits a1+a2"]);
    say(r#"{"schema":"kolo-local/1","work":[{"id":"8","host":"elsewhere"}]}"#);
    wait_for_own_work(&node, &["a2 4000"]);
    submit(&node, "cpu=2", 0);
}

/// Takes about a minute where Slurm is installed, and nothing where it is not.
#[test]
fn a_real_slurm_keeps_what_the_grid_was_promised_and_the_grid_what_slurm_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the workspace");
    let ended = run(Command::new(root.join("scripts/test-slurm")).arg("--as-is").arg(binary("kolo")));
    // Where Slurm is not, or the user is not root, the last line says that the test was skipped.
    eprintln!("{}", ended.out);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// The jobs of the own queue: name, state and hosts, in the order in which they begin; and when each begins.
fn own_jobs(node: &Node) -> (Vec<String>, Vec<i64>) {
    let told = node.get("/v1/local");
    let jobs = told["queue"].as_array().expect("the queue is a list");
    let hosts = |job: &Value| {
        job["on"].as_array().unwrap().iter().map(|host| host.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let text = |job: &Value| {
        format!("{} {} {}", job["id"].as_str().unwrap(), job["state"].as_str().unwrap(), hosts(job).join("+"))
    };
    (jobs.iter().map(text).collect(), jobs.iter().map(|job| job["start"].as_i64().unwrap()).collect())
}

#[test]
fn own_jobs_move_until_they_begin_and_a_hold_that_costs_them_too_much_is_refused() {
    let mut node = Node::start("alpha", &hosts("a", 2), &["--policy-quality-loss", "0%"]);
    let queue = |node: &Node, words: &str, exit: i32| {
        let ended = node.kolo(&[&["local", "queue"][..], &words.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!(ended.code, Some(exit), "{words}: {ended:?}");
        ended
    };
    let _ = queue(&node, "add --id first --for 2h -N 2 --cpu 4", 0);
    let _ = queue(&node, "add --id second --for 1h -N 2 --cpu 4", 0);
    let _ = queue(&node, "add --id third --for 1h --cpu 2", 0);
    let both = |name: &str, state: &str| format!("{name} {state} a1+a2");
    let (jobs, starts) = own_jobs(&node);
    assert_eq!(jobs[..2], [both("first", "runs"), both("second", "waits")]);
    assert_eq!(starts[1], starts[0] + 7_200);
    for (words, exit, expected) in [
        ("add --id x --for 1h -N 3 --cpu 1", 64, "does not have 3 hosts"),
        ("add --id first --for 1h --cpu 1", 1, "there is an own job first already"),
        ("done second", 1, "has not begun"),
        ("remove nosuch", 1, "there is no own job"),
    ] {
        let refused = queue(&node, words, exit);
        assert!(refused.err.contains(expected), "{words}: {refused:?}");
    }

    // Where the second job is planned it would have to wait; behind it there is room.
    let asked = ["submit", "-N", "1", "--per-host", "cpu=4", "-t", "1h", "--earliest", "now+2h"];
    let refused = node.kolo(&[&asked[..], &["--latest", "now+125min"]].concat());
    assert!(refused.code.is_some_and(|code| code != 0), "{refused:?}");
    let explained = node.kolo(&["explain", "last"]);
    assert!(explained.out.contains("would refuse: refused by rule `own-queue`"), "{explained:?}");
    assert!(!explained.out.contains("attempt 1"), "a quote has spared the hold: {explained:?}");
    assert_eq!(own_jobs(&node).0, jobs, "nothing has moved");
    let reserved = node.kolo_json(&[&asked[..], &["--latest", "now+9h"]].concat(), 0);
    assert!(reserved["reservation"]["start"].as_i64().unwrap() >= starts[1] + 3_600, "{reserved}");

    node.kill();
    node.restart();
    assert_eq!(own_jobs(&node).0, jobs, "what was acknowledged is there again");
    let _ = queue(&node, "done first", 0);
    assert_eq!(own_jobs(&node).0[0], both("second", "runs"), "it has moved forward, and begun");
    let _ = queue(&node, "remove second", 0);
    let (jobs, _) = own_jobs(&node);
    assert!(jobs.len() == 1 && jobs[0].starts_with("third runs"), "{jobs:?}");
    assert_eq!(node.get("/v1/local")["promised"].as_array().map(Vec::len), Some(1), "the promise stands");
}
