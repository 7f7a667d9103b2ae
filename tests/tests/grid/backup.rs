//! A node's directory is saved while it runs, lost, and restored.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use end_to_end::{Ended, Node, binary, hosts, run};
use serde_json::Value;

fn kolo(words: &[&str], data: &Path) -> Ended {
    run(Command::new(binary("kolo")).args(words).args(["--output", "json", "--data-dir"]).arg(data))
}

fn bookings(node: &Node) -> Vec<Value> {
    let mut bookings = node.bookings();
    bookings.sort_by_key(ToString::to_string);
    bookings
}

#[test]
fn what_was_booked_is_there_after_its_directory_was_lost_and_restored() {
    let mut node = Node::first("alpha", &hosts("a", 2));
    node.wait_until_it_knows(2);
    let submit = || node.kolo_json(&["submit", "-N", "2", "--per-host", "cpu=0.5", "-t", "1h"], 0);
    let ids: Vec<_> = (0..3).map(|_| submit()["id"].as_str().unwrap().to_owned()).collect();
    let before = bookings(&node);
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("backup");
    let (name, config) = (file.to_str().unwrap(), node.config());
    let saved = kolo(&["backup", name, "--config", config.to_str().unwrap()], &node.data());
    assert_eq!((saved.code, saved.json()["reservations"].as_u64()), (Some(0), Some(3)), "{saved:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // This one is not in it.
    let later = submit()["id"].as_str().unwrap().to_owned();

    node.kill();
    let full = kolo(&["restore", name], &node.data());
    assert!(full.code == Some(1) && full.err.contains("it is not empty"), "{full:?}");
    fs::remove_dir_all(node.data()).unwrap();
    let good = fs::read(&file).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(&file, &bad).unwrap();
    let refused = kolo(&["restore", name], &node.data());
    assert!(refused.code == Some(1) && refused.err.contains("nothing was restored"), "{refused:?}");
    assert!(!node.data().exists());

    fs::write(&file, &good).unwrap();
    let restored = kolo(&["restore", name], &node.data());
    assert_eq!((restored.code, restored.json()["reservations"].as_u64()), (Some(0), Some(3)), "{restored:?}");
    assert!(node.data().join("restored-configuration/site.toml").exists());
    node.restart();
    assert_eq!(bookings(&node), before);
    for id in &ids {
        assert_eq!(node.get(&format!("/v1/requests/{id}"))["state"], "active");
    }
    assert_eq!(node.kolo(&["show", &later]).code, Some(1), "it was promised after the backup");
}
