//! Ledgers of both layouts, as earlier versions wrote them: one after a node was told to stop, one left by a kill. What
//! they hold is written down here; a later version must find it, or take it over.

use std::fs;

use broker::negotiation::{Decision, Outcome};

use super::*;
use crate::daemon::storage::{
    files, layout1,
    sector::{self, SECTOR_BYTES},
    start,
};

const STOPPED: &[u8] = include_bytes!("../fixtures/layout-1-stopped.redb");
const KILLED: &[u8] = include_bytes!("../fixtures/layout-1-killed.redb");

/// Files of a ledger of layout 2 by name, without the zeros that a journal is filled up with.
type Files = [(&'static str, &'static [u8]); 3];

/// Left by a kill, by the entry point of a closed grid of two sites.
const KILLED_2: Files = [
    ("snapshot.1", include_bytes!("../fixtures/layout-2-killed/snapshot.1")),
    ("journal.1", include_bytes!("../fixtures/layout-2-killed/journal.1")),
    ("journal.2", include_bytes!("../fixtures/layout-2-killed/journal.2")),
];
/// The other site, which was started again with one host less, and then told to stop.
const STOPPED_2: Files = [
    ("snapshot.3", include_bytes!("../fixtures/layout-2-stopped/snapshot.3")),
    ("journal.3", include_bytes!("../fixtures/layout-2-stopped/journal.3")),
    ("journal.4", include_bytes!("../fixtures/layout-2-stopped/journal.4")),
];

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

/// Writes the files as they were, and reads them.
fn of_layout_2(files: Files) -> Remembered {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.redb");
    let dir = start::directory_of(&path);
    fs::create_dir(&dir).unwrap();
    for (name, bytes) in files {
        // A journal says how many sectors it has; a snapshot ends where it ends, and says none.
        let header = sector::read_header(bytes[..SECTOR_BYTES].try_into().unwrap()).unwrap();
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().max(SECTOR_BYTES * usize::try_from(header.sectors).unwrap()), 0);
        fs::write(dir.join(name), whole).unwrap();
    }
    let (store, first) = reopen(&path, THEN_MS, &StoreSettings::default());
    drop(store);
    let (_store, second) = reopen(&path, THEN_MS, &StoreSettings::default());
    assert_eq!((&second.reservations, &second.requests), (&first.reservations, &first.requests));
    assert_eq!((second.known_peers, second.incarnation), (first.known_peers.clone(), first.incarnation + 1));
    first
}

/// Start, hosts, user, entry point's own number of the try and whether it is settled, of every reservation.
fn reservations(remembered: &Remembered) -> Vec<(i64, Vec<&str>, &str, u32, bool)> {
    let mut found: Vec<_> = remembered
        .reservations
        .iter()
        .map(|kept| {
            let hosts = kept.grants.iter().map(|grant| grant.host.as_str()).collect();
            assert!(kept.user_key.is_some() && kept.statement.is_some() && kept.steward.is_none());
            (kept.window.start.0, hosts, kept.user.as_str(), kept.attempt.attempt, kept.settled)
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn ledgers_of_layout_2_are_read_whole() {
    let killed = of_layout_2(KILLED_2);
    assert_eq!(labels(&killed), ["stands", "taken-back", "too-many"]);
    assert_eq!(
        reservations(&killed),
        [(1_795_251_676, vec!["a1", "a2"], "two", 1, true), (1_795_255_270, vec!["a1", "a2"], "ada", 1, true)]
    );
    for record in &killed.requests {
        let is_as_it_was = match record.request.id().map(|id| id.as_str()) {
            Some("stands") => {
                let standing = record.standing.as_ref().unwrap();
                let hosts: Vec<&str> = standing.allocation.grants.iter().map(|grant| grant.host.as_str()).collect();
                assert_eq!((hosts, standing.repairs, standing.lost.len()), (vec!["b1", "a1", "a2"], 1, 0));
                matches!(record.decision, Decision::Stands { attempt: 1, .. }) && record.owed.is_empty()
            }
            Some("taken-back") => matches!(record.decision, Decision::Closed(Outcome::Cancelled(Some(_)))),
            _ => matches!(record.decision, Decision::Closed(Outcome::Rejected { .. })),
        };
        assert!(is_as_it_was && record.authorization.is_some(), "{record:?}");
    }

    let stopped = of_layout_2(STOPPED_2);
    assert_eq!(labels(&stopped), ["second"]);
    assert_eq!(reservations(&stopped), [(1_795_255_270, vec!["b1"], "ada", 100_002, true)]);
    assert!(stopped.incarnation > 1_795_251_673_085, "the number of its last start");
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
