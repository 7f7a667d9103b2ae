//! A node whose disk is full: what was acknowledged stays, it starts again, says what it cannot do, and room can be made without it.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use end_to_end::{Ended, Node, binary, hosts, run, skip::skip, small_disk::SmallDisk, wait_for, wait_until};

use super::run_on_seats::{detached, runner};

/// Size of the disk: some times what an idle node takes.
const DISK_MIB: u32 = 16;
/// More requests than the room of a full disk has a place for.
const REQUESTS_MAX: usize = 1_000;

fn submit(node: &Node) -> Ended {
    node.kolo(&["submit", "-N", "1", "--per-host", "cpu=0.01", "-t", "1h", "--output", "quiet"])
}

/// Submits requests until one is refused; what it is told.
fn submit_until_refused(node: &Node, acknowledged: &mut BTreeSet<String>) -> Ended {
    for _ in 0..REQUESTS_MAX {
        let ended = submit(node);
        if ended.code != Some(0) {
            return ended;
        }
        acknowledged.insert(ended.out.trim().to_owned());
    }
    panic!("the disk is full, and {REQUESTS_MAX} requests were taken");
}

fn booked(node: &Node) -> BTreeSet<String> {
    node.bookings().iter().map(|booking| booking["request"].as_str().unwrap().to_owned()).collect()
}

/// `kolo doctor --free` with these words, for a node that may not run.
fn free(node: &Node, words: &[&str]) -> Ended {
    run(Command::new(binary("kolo")).args(["doctor", "--free"]).args(words).arg("--data-dir").arg(node.data()))
}

fn has_ended_run(data: &Path) -> Result<(), String> {
    let runs = fs::read_dir(data.join("runs")).map_err(|error| error.to_string())?;
    let mut runs = runs.filter_map(|seat| fs::read_dir(seat.unwrap().path()).ok()).flatten();
    if runs.any(|run| run.unwrap().path().join("ended").exists()) { Ok(()) } else { Err("none".to_owned()) }
}

#[test]
fn a_node_on_a_full_disk_keeps_its_promises_starts_again_and_is_freed_without_it() {
    let mut disk = None;
    let mut node = Node::prepared_with("alpha", &hosts("a", 4), runner(), |data| disk = SmallDisk::at(data, DISK_MIB));
    let Some(disk) = disk else { return skip("no disk can be mounted here") };
    node.wait_until_it_knows(4);
    detached(&node, &["-N", "1", "--per-host", "cpu=1", "-t", "1h"], "head -c 3000000 /dev/zero");
    wait_for("the end of the run", || has_ended_run(&node.data()));
    let mut acknowledged = booked(&node);

    disk.fill();
    let refused = submit_until_refused(&node, &mut acknowledged);
    assert!(acknowledged.len() > 3 && refused.err.contains("disk of this node is full"), "{refused:?}");
    node.wait_until("it to say so", "/v1/status", |status| status["lacks_room"] == true);
    let plan = || node.kolo(&["plan", "-N", "1", "--per-host", "cpu=0.01", "-t", "1h"]);
    wait_until("the reason", plan, |said| format!("{}{}", said.out, said.err).contains("`disk` leaves out"));
    assert!(node.metrics().contains("kolo_disk_full 1"));
    assert!(node.log().contains("this site promises nothing new"));
    let doctor = node.kolo(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.out.contains("PROBLEM room: the disk is full"), "{doctor:?}");
    let beside = free(&node, &["--yes"]);
    assert!(beside.out.contains("stop the node"), "{beside:?}");
    // What is promised is served.
    let first = acknowledged.pop_first().unwrap();
    let cancelled = node.kolo(&["cancel", &first]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert_eq!(booked(&node), acknowledged);

    for _ in 0..3 {
        node.kill();
        disk.fill();
        // A second start in a row has no room of its own for `api.address`, by which this test finds the node.
        disk.leave(16 << 10);
        node.restart();
        assert_eq!(booked(&node), acknowledged);
        submit_until_refused(&node, &mut acknowledged);
    }

    node.kill();
    let listed = free(&node, &[]);
    assert!(listed.out.contains("1 ended command with") && listed.out.contains(" on seat 0 of "), "{listed:?}");
    has_ended_run(&node.data()).unwrap();
    let freed = free(&node, &["--yes"]);
    assert!(freed.out.contains("were freed"), "{freed:?}");
    assert!(has_ended_run(&node.data()).is_err());
    node.restart();
    node.wait_until("room for promises", "/v1/status", |status| status["lacks_room"] == false);
    assert_eq!(booked(&node), acknowledged);
    node.wait_until_it_knows(4);
    // A compaction after the start may find the disk full once more; then the site takes requests from the next look on, seconds later.
    wait_until("a request to be taken", || submit(&node), |taken| taken.code == Some(0));
}
