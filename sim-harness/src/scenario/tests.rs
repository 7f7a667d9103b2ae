//! Every scenario that is shipped comes true in the simulator, the same way each time; and one that is wrong does not.

use std::{cell::RefCell, fs, path::PathBuf};

use super::{
    file,
    play::{self, Outcomes},
    read,
    step::ScenarioFile,
};
use crate::faults::scripted::Scripted;

fn shipped() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 3, "{files:?}");
    files
}

fn played(file: &ScenarioFile) -> (Outcomes, String) {
    let mut world = Scripted::new(&file.grid);
    let seen = RefCell::new(0);
    let outcomes = play::play(file, &mut world, &|_| *seen.borrow_mut() += 1).unwrap();
    assert_eq!(*seen.borrow(), outcomes.played.len());
    (outcomes, world.history())
}

#[test]
fn what_is_shipped_comes_true_in_the_simulator_whatever_the_seed() {
    for path in shipped() {
        for seed in 0..20 {
            let file = read(&path, Some(seed)).unwrap();
            let (outcomes, history) = played(&file);
            assert!(outcomes.is_good(), "{} with seed {seed}: {outcomes:?}\n{history}", path.display());
            assert_eq!(outcomes.played.len(), file.steps.len());
        }
    }
}

#[test]
fn the_documented_file_comes_true() {
    let text = include_str!("../../../docs/dev/scenarios.md");
    let block = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (outcomes, history) = played(&file::read(block, None).unwrap());
    assert!(outcomes.is_good(), "{outcomes:?}\n{history}");
}

#[test]
fn the_same_seed_takes_the_same_way() {
    for path in shipped() {
        let file = read(&path, None).unwrap();
        assert_eq!(played(&file), played(&file), "{}", path.display());
        assert_ne!(played(&file).1, played(&read(&path, Some(99)).unwrap()).1, "{}", path.display());
    }
}

/// Two sites with a host each, and these steps.
fn two_sites(steps: &str) -> Outcomes {
    let head = "[grid]\nsites = 2\n[[step]]\nstart = [\"a\", \"b\"]\n[[step]]\nexpect = \"sites_known\"\n";
    played(&file::read(&format!("{head}{steps}"), None).unwrap()).0
}

const SUBMIT: &str = "[[step]]\nsubmit = \"job\"\nthrough = \"a\"\nhosts = 2\nduration = \"1h\"\nearliest = \"1h\"\n";

#[test]
fn what_does_not_come_true_is_reported_with_its_line_and_what_was_seen() {
    let steps = "[[step]]\nexpect = \"rejected\"\nrequest = \"job\"\nwithin = \"5s\"\n";
    let failed = two_sites(&format!("{SUBMIT}{steps}")).failed.unwrap();
    assert_eq!(
        (failed.line, failed.step.as_str()),
        (Some(13), "expect = \"rejected\", request = \"job\", within = \"5s\"")
    );
    assert_eq!(failed.seen, "not within 5000 ms; seen: job reserved");

    let steps = "[[step]]\nexpect = \"reserved\"\nrequest = \"job\"\n\
                 [[step]]\nexpect = \"booked\"\nrequest = \"job\"\nhosts = 1\nwithin = \"5s\"\n";
    let failed = two_sites(&format!("{SUBMIT}{steps}")).failed.unwrap();
    assert_eq!(failed.seen, "not within 5000 ms; seen: 2 hosts booked and 0 held");
}

#[test]
fn a_cut_keeps_sites_apart_until_it_is_healed() {
    for one_way in ["", "one_way = true\n"] {
        let cut = format!("[[step]]\ncut = \"a\"\n{one_way}");
        let submit = SUBMIT.replace("earliest = \"1h\"\n", "");
        let until = "[[step]]\nexpect = \"reserved\"\nrequest = \"job\"\nwithin = \"5s\"\n";
        let failed = two_sites(&format!("{cut}{submit}{until}")).failed.unwrap();
        assert!(failed.seen.contains("not within 5000 ms"), "{failed:?}");
        let healed = two_sites(&format!("{cut}{submit}[[step]]\nheal = true\n{until}"));
        assert!(healed.is_good(), "{healed:?}");
    }
}

#[test]
fn hosts_that_nobody_can_replace_make_a_reservation_degraded_until_they_come_back() {
    let steps = "[[step]]\nexpect = \"reserved\"\nrequest = \"job\"\n[[step]]\nkill = \"b\"\n\
                 [[step]]\nexpect = \"degraded\"\nrequest = \"job\"\nwithin = \"60s\"\n";
    let outcomes = two_sites(&format!("{SUBMIT}{steps}"));
    assert!(outcomes.is_good(), "{outcomes:?}");
    let back = "[[step]]\nstart = \"b\"\n[[step]]\nexpect = \"reserved\"\nrequest = \"job\"\nwithin = \"60s\"\n";
    let outcomes = two_sites(&format!("{SUBMIT}{steps}{back}"));
    assert!(outcomes.is_good(), "{outcomes:?}");
}
