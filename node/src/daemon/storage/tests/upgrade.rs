//! Files of layout 1, as the first version wrote them: one after a node was told to stop, one
//! left by a kill.

use std::fs;

use super::*;
use crate::daemon::storage::{files, layout1, start};

const STOPPED: &[u8] = include_bytes!("../fixtures/layout-1-stopped.redb");
const KILLED: &[u8] = include_bytes!("../fixtures/layout-1-killed.redb");

/// A day on which nothing of the fixtures is old.
const THEN_MS: u64 = 1_795_239_060_000;

fn labels(remembered: &Remembered) -> Vec<String> {
    let mut labels: Vec<String> =
        remembered.requests.iter().filter_map(|record| record.request.id()).map(ToString::to_string).collect();
    labels.sort();
    labels
}

#[test]
fn ledgers_of_the_first_version_are_taken_over_whole() {
    for old in [STOPPED, KILLED] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.redb");
        fs::write(&path, old).unwrap();
        let (store, first) = reopen(&path, THEN_MS, &StoreSettings::default());
        assert_eq!(labels(&first), ["first", "fourth", "second", "third"]);
        let mut windows: Vec<_> = first
            .reservations
            .iter()
            .map(|found| (found.window.start.0, found.window.end.0, found.grants.len(), found.user.as_str()))
            .collect();
        windows.sort_unstable();
        assert_eq!(
            windows,
            [(1_795_239_055, 1_795_246_255, 2, "site:one"), (1_795_242_655, 1_795_246_255, 2, "site:one")]
        );
        assert!(first.incarnation >= THEN_MS);
        assert!(directory.path().join("ledger/layout-1.redb").exists(), "the copy stays");
        drop(store);
        let (_store, second) = reopen(&path, THEN_MS, &StoreSettings::default());
        assert_eq!((second.reservations, second.requests), (first.reservations, first.requests));
        assert!(redb::Database::open(&path).is_err(), "the first version does not start with an empty ledger");
    }
}

#[test]
fn a_takeover_that_was_cut_off_is_done_again_and_one_over_a_live_ledger_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.redb");
    fs::write(&path, STOPPED).unwrap();
    let (writer, first) = start::start(&path, THEN_MS, small()).unwrap();
    writer.stop().unwrap();
    // As if the note had not been written.
    fs::write(&path, STOPPED).unwrap();
    fs::remove_file(files::journal_path(&start::directory_of(&path), 2)).unwrap();
    let (mut writer, second) = start::start(&path, THEN_MS, small()).unwrap();
    assert_eq!(first.reservations, second.reservations);
    let mut content = Vec::new();
    crate::daemon::storage::writer::push_changes(&[put(1)], &mut content).unwrap();
    writer.write(&content).unwrap();
    writer.stop().unwrap();
    fs::write(&path, STOPPED).unwrap();
    assert!(matches!(start::start(&path, THEN_MS, small()).err(), Some(StoreError::TwoLedgers { .. })));
}

#[test]
fn a_ledger_of_the_first_version_that_another_process_has_open_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.redb");
    fs::write(&path, STOPPED).unwrap();
    let _open = redb::Database::open(&path).unwrap();
    assert!(matches!(start::start(&path, THEN_MS, small()).err(), Some(StoreError::InUse(_))));
}

#[test]
fn damage_in_a_ledger_of_the_first_version_never_passes_for_an_earlier_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy.redb");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        layout1::read(&path)
    };
    let expected = read(STOPPED).unwrap();
    let mut refused = 0;
    let written = (0..STOPPED.len()).filter(|at| *at < 320 || (STOPPED[*at] != 0 && at % 29 == 0));
    for at in written {
        let mut flipped = STOPPED.to_vec();
        flipped[at] ^= 1 << (at / 29 % 8);
        match read(&flipped) {
            Ok(found) => assert!(found == expected, "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100, "{refused}");
    for length in (0..STOPPED.len()).step_by(4001) {
        assert!(read(&STOPPED[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_damaged_ledger_of_the_first_version_is_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.redb");
    let mut damaged = STOPPED.to_vec();
    damaged[210] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert!(matches!(start::start(&path, THEN_MS, small()).err(), Some(StoreError::Damaged { .. })));
    assert!(fs::read(&path).unwrap() == damaged);
}
