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
