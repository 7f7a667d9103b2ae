//! The bytes on disk: two ledgers that an earlier program wrote, one left by a kill, one by a stop. What they hold is
//! written down here, and this program must find it.

use std::fs;

use broker::negotiation::{Decision, Outcome};

use super::*;
use crate::storage::sector::{self, SECTOR_BYTES};

/// Files of a ledger by name, without the zeros that a journal is filled up with.
type Files = [(&'static str, &'static [u8]); 3];

/// Left by a kill, by the entry point of a closed grid of two sites.
const KILLED: Files = [
    ("snapshot.1", include_bytes!("../fixtures/killed/snapshot.1")),
    ("journal.1", include_bytes!("../fixtures/killed/journal.1")),
    ("journal.2", include_bytes!("../fixtures/killed/journal.2")),
];
/// The other site, which was started again with one host less, and then told to stop.
const STOPPED: Files = [
    ("snapshot.3", include_bytes!("../fixtures/stopped/snapshot.3")),
    ("journal.3", include_bytes!("../fixtures/stopped/journal.3")),
    ("journal.4", include_bytes!("../fixtures/stopped/journal.4")),
];

/// A day on which nothing of the fixtures is old.
const THEN_MS: u64 = 1_795_239_060_000;

fn labels(remembered: &Remembered) -> Vec<String> {
    let mut labels: Vec<String> =
        remembered.requests.iter().filter_map(|record| record.request.id()).map(ToString::to_string).collect();
    labels.sort();
    labels
}

/// Writes the files as they were, and reads them.
fn read_files(files: Files) -> Remembered {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    fs::create_dir(&path).unwrap();
    for (name, bytes) in files {
        // A journal says how many sectors it has; a snapshot ends where it ends, and says none.
        let header = sector::read_header(bytes[..SECTOR_BYTES].try_into().unwrap()).unwrap();
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().max(SECTOR_BYTES * usize::try_from(header.sectors).unwrap()), 0);
        fs::write(path.join(name), whole).unwrap();
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
            let hosts = kept.grants.iter().map(|grant| grant.host().as_str()).collect();
            assert!(kept.user_key.is_some() && kept.statement.is_some() && kept.coordinator.is_none());
            (kept.window.start.0, hosts, kept.user.as_str(), kept.attempt.attempt, kept.settled)
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn ledgers_of_earlier_programs_are_read_whole() {
    let killed = read_files(KILLED);
    assert_eq!(labels(&killed), ["stands", "taken-back", "too-many"]);
    assert_eq!(
        reservations(&killed),
        [(1_795_251_676, vec!["a1", "a2"], "two", 1, true), (1_795_255_270, vec!["a1", "a2"], "ada", 1, true)]
    );
    for record in &killed.requests {
        let is_as_it_was = match record.request.id().map(|id| id.as_str()) {
            Some("stands") => {
                let reservation = record.reservation.as_ref().unwrap();
                let hosts: Vec<&str> = reservation.plan.seats.iter().map(|grant| grant.host().as_str()).collect();
                assert_eq!((hosts, reservation.repairs, reservation.lost.len()), (vec!["b1", "a1", "a2"], 1, 0));
                matches!(record.decision, Decision::Reserved { attempt: 1, .. }) && record.owed.is_empty()
            }
            Some("taken-back") => matches!(record.decision, Decision::Closed(Outcome::Cancelled(Some(_)))),
            _ => matches!(record.decision, Decision::Closed(Outcome::Rejected { .. })),
        };
        assert!(is_as_it_was && record.authorization.is_some(), "{record:?}");
    }

    let stopped = read_files(STOPPED);
    assert_eq!(labels(&stopped), ["second"]);
    assert_eq!(reservations(&stopped), [(1_795_255_270, vec!["b1"], "ada", 100_002, true)]);
    assert!(stopped.incarnation > 1_795_251_673_085, "the number of its last start");
}
