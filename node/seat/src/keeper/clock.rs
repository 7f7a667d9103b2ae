//! The time that a keeper goes by: what its node believes, as long as that runs.
//!
//! Invariant: a keeper that has begun beside a wrong clock, or lives through a jump of it, believes what its node has written down last.

use std::{fs, path::PathBuf};

use kolo_runtime::clock::{CLOCK_FILE, clock_doubt, resume_clock, unix_ms};

use super::super::directory::RunDirectory;

/// The node's last reading of the clocks: the directory of a run is `runs/SEAT/RUN` in the data directory.
fn file(directory: &RunDirectory) -> Option<PathBuf> {
    Some(directory.path().ancestors().nth(3)?.join(CLOCK_FILE))
}

/// Goes on from what the node has written down; from what this process has read where that is not to be had.
pub fn follow_node(directory: &RunDirectory) {
    let last = file(directory).and_then(|file| fs::read(file).ok());
    if let Some(last) = last.and_then(|text| serde_json::from_slice(&text).ok()) {
        resume_clock(&last);
    }
}

/// The present in Unix milliseconds. One that is doubted is asked for at the node's again: it may have been confirmed there.
pub fn present_ms(directory: &RunDirectory) -> u64 {
    if clock_doubt().is_some() {
        follow_node(directory);
    }
    unix_ms()
}
