//! The store as the node uses it: restarts, full journals, history, failing disks.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, atomic::AtomicBool},
};

use broker::{
    ids::SiteId,
    ledger::GoneRecord,
    negotiation::{Decision, Failure, Outcome},
};
use kolo_runtime::metrics::WriteFigures;
use proptest::prelude::*;

use super::*;
use crate::{
    Inspection,
    activation::ActivationRecord,
    inspect,
    journal::{Journal, Medium},
    sector::{Home, Role},
    start, write_until_closed, writer,
};

#[tokio::test]
async fn what_was_committed_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let (store, first) = Store::open(&path, 5, StoreSettings::default()).unwrap();
    assert!(first.reservations.is_empty());
    store.commit(vec![put(1), put(2)]).await.unwrap();
    store.commit(vec![remove(1)]).await.unwrap();
    store.commit(vec![Change::KnownPeers(vec!["/ip4/127.0.0.1".to_owned()])]).await.unwrap();
    assert!(matches!(Store::open(&path, 5, StoreSettings::default()), Err(StoreError::InUse(_))));
    drop(store);
    let (_store, second) = reopen(&path, 3, &StoreSettings::default());
    assert_eq!(second.reservations, vec![reservation(2)]);
    assert_eq!(second.known_peers, vec!["/ip4/127.0.0.1".to_owned()]);
    assert!(second.incarnation > first.incarnation, "also when the clock went back");
}

#[tokio::test]
async fn that_a_reservation_was_given_back_has_its_place_until_it_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let record = |attempt| GoneRecord {
        attempt: reservation(attempt).attempt,
        until: reservation(attempt).window.end,
        ended: Some(Box::new(reservation(attempt))).filter(|_| attempt == 2),
    };
    let give_back = |attempt| Change::Ledger(Record::Gone(record(attempt)));
    let (store, _) = Store::open(&path, 5, StoreSettings::default()).unwrap();
    store.commit(vec![put(1), put(2), put(3)]).await.unwrap();
    store.commit(vec![give_back(1), give_back(2)]).await.unwrap();
    store.commit(vec![remove(1)]).await.unwrap();
    drop(store);
    for start in [6, 7] {
        let (_store, remembered) = reopen(&path, start, &StoreSettings::default());
        assert_eq!((remembered.reservations, remembered.gone), (vec![reservation(3)], vec![record(2)]));
    }
}

#[tokio::test]
async fn what_the_hook_was_told_is_there_after_a_restart_until_it_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let record = |attempt: u32| -> ActivationRecord {
        let text = format!(
            r#"{{"attempt":{{"entry_point":"e","request":"r","attempt":{attempt}}},"user":"ada","user_key":null,"label":"job",
            "told":{{"window":{{"start":10,"end":20}},"grants":[]}},"stage":"reserved",
            "begun":{{"event":"start","runs":2,"failures":1}},"given_up":null}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    let (store, _) = Store::open(&path, 5, StoreSettings::default()).unwrap();
    // The reservation of the same attempt has a key of its own.
    store
        .commit(vec![put(1), Change::Activation(Box::new(record(1))), Change::Activation(Box::new(record(2)))])
        .await
        .unwrap();
    store.commit(vec![remove(1)]).await.unwrap();
    drop(store);
    let (store, second) = reopen(&path, 6, &StoreSettings::default());
    assert_eq!((second.activations, second.reservations.len()), (vec![record(1), record(2)], 0));
    store.commit(vec![Change::ForgetActivation(record(1).attempt)]).await.unwrap();
    drop(store);
    let (_store, third) = reopen(&path, 7, &StoreSettings::default());
    assert_eq!(third.activations, vec![record(2)]);
}

#[test]
fn a_ledger_without_a_site_is_taken_and_that_of_another_site_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let of = |site: &str| StoreSettings { site: Some(SiteId::new(site).unwrap()), ..StoreSettings::default() };
    drop(reopen(&path, 1, &StoreSettings::default()));
    drop(reopen(&path, 2, &of("12D3one")));
    drop(reopen(&path, 3, &of("12D3one")));
    let open = || loop {
        match Store::open(&path, 4, of("12D3two")) {
            // The writer of the one before is still stopping.
            Err(StoreError::InUse(_)) => std::thread::yield_now(),
            opened => return opened.map(|_| ()),
        }
    };
    let error = open().unwrap_err().to_string();
    assert!(error.contains("that of site 12D3one, but identity.key is that of site 12D3two"), "{error}");
    let Inspection::Good(summary) = inspect(&path) else { panic!("the ledger was changed") };
    assert_eq!(summary.site.unwrap().as_str(), "12D3one");
}

#[test]
fn a_file_that_is_no_ledger_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    std::fs::write(&path, "hello").unwrap();
    assert!(matches!(Store::open(&path, 1, StoreSettings::default()), Err(StoreError::Disk { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"hello");
}

#[tokio::test]
async fn history_is_dropped_when_it_is_older_than_the_setting_and_nothing_can_happen_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let day_ms = 86_400_000;
    let closed = |id, day| {
        let outcome = Outcome::Failed(Failure::PatienceOver { attempts: 1 });
        Change::Request(Box::new(RequestRecord { decision: Decision::Closed(outcome), ..request(id, day * day_ms) }))
    };
    let (store, _) = Store::open(&path, 10 * day_ms, StoreSettings::default()).unwrap();
    let open = Change::Request(Box::new(request("open", day_ms)));
    store.commit(vec![closed("old", 8), closed("new", 10), open, put(1)]).await.unwrap();
    drop(store);
    let ids = |remembered: &Remembered| remembered.requests.iter().map(|r| r.id.to_string()).collect::<Vec<_>>();
    let (store, second) = reopen(&path, 98 * day_ms, &StoreSettings::default());
    assert_eq!(ids(&second), ["new", "old", "open"], "day 8 and an hour is 90 days old on day 98 and an hour");
    drop(store);
    let (_store, third) = reopen(&path, 98 * day_ms + 3_600_001, &StoreSettings::default());
    assert_eq!(ids(&third), ["new", "open"]);
    assert_eq!(third.reservations.len(), 1);
}

/// A disk that fails at one operation, after having done a part of it.
struct Failing {
    inner: Box<dyn Medium>,
    operations_left: u32,
    bytes_before_failure: usize,
}

impl Medium for Failing {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.operations_left == 0 {
            self.inner.write_at(&bytes[..self.bytes_before_failure.min(bytes.len())], offset)?;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.operations_left -= 1;
        self.inner.write_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.operations_left == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.operations_left -= 1;
        self.inner.sync()
    }
}

#[tokio::test]
async fn a_write_or_sync_that_fails_stops_the_writer_and_loses_nothing_that_was_told() {
    for operations in 0..12 {
        for bytes_before_failure in [0, 1, 300, 512, 5000] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("ledger");
            let (mut writer, _) = start::start(&path, 1, StoreSettings::default()).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(directory.path().join("ledger/journal.1")).unwrap();
            let home = Home { ledger: 1, generation: 1, role: Role::Journal };
            let medium = Failing { inner: Box::new(file), operations_left: operations, bytes_before_failure };
            writer.journal = Journal::new(Box::new(medium), home, 512);
            let (batches, queue) = tokio::sync::mpsc::channel(8);
            let thread = std::thread::spawn(move || {
                write_until_closed(writer, queue, (&WriteFigures::default(), &AtomicBool::default()));
            });
            let store = Store { batches, figures: WriteFigures::default(), has_room: Arc::default() };
            let mut acknowledged = Vec::new();
            for attempt in 1.. {
                if store.commit(vec![put(attempt)]).await.is_err() {
                    break;
                }
                acknowledged.push(reservation(attempt));
            }
            assert!(store.commit(vec![put(99)]).await.is_err(), "nothing is written after a failure");
            thread.join().unwrap();
            let (_store, found) = reopen(&path, 2, &StoreSettings::default());
            let next = reservation(u32::try_from(acknowledged.len()).unwrap() + 1);
            let with_next: Vec<BookingRecord> = acknowledged.iter().cloned().chain([next]).collect();
            assert!(found.reservations == acknowledged || found.reservations == with_next, "{operations} operations");
        }
    }
}

#[tokio::test]
async fn a_compaction_that_fails_stops_the_writer_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let (store, _) = Store::open(&path, 1, small()).unwrap();
    let snapshot = directory.path().join("ledger/snapshot.1");
    let kept = std::fs::read(&snapshot).unwrap();
    std::fs::remove_file(&snapshot).unwrap();
    let mut acknowledged = 0;
    while store.commit(vec![put(acknowledged + 1)]).await.is_ok() {
        acknowledged += 1;
        assert!(acknowledged < 1000, "the failure is noticed at the latest when the next journal is full");
    }
    drop(store);
    std::fs::write(&snapshot, kept).unwrap();
    let (_store, found) = reopen(&path, 1, &small());
    assert_eq!(found.reservations.len(), usize::try_from(acknowledged).unwrap());
}

#[tokio::test]
async fn a_group_larger_than_a_journal_gets_a_journal_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let (store, _) = Store::open(&path, 1, small()).unwrap();
    let many: Vec<Change> = (1..500).map(put).collect();
    store.commit(vec![put(500)]).await.unwrap();
    store.commit(many).await.unwrap();
    store.commit(vec![remove(7)]).await.unwrap();
    drop(store);
    let (_store, found) = reopen(&path, 1, &small());
    assert_eq!(found.reservations.len(), 499);
}

#[test]
fn a_group_that_is_too_large_is_refused_by_its_size() {
    let peers = vec!["x".repeat(1 << 20); 17];
    let mut content = Vec::new();
    let result = writer::push_changes(&[Change::KnownPeers(peers)], &mut content);
    assert!(matches!(result, Err(StoreError::TooLarge { .. })));
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<(u32, bool)>),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec((0..30_u32, prop::bool::weighted(0.7)), 1..6).prop_map(Step::Commit),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    /// Against a map, with journals so small that most commits change them and compactions go on all the time.
    #[test]
    fn any_sequence_of_commits_and_restarts_leaves_what_a_map_would(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let mut model = BTreeMap::new();
        let (mut store, mut last) = Store::open(&path, 1, small()).unwrap();
        for step in steps.into_iter().chain([Step::Restart]) {
            match step {
                Step::Commit(changes) => {
                    for (attempt, is_put) in &changes {
                        if *is_put { model.insert(*attempt, reservation(*attempt)); } else { model.remove(attempt); }
                    }
                    let change = |(attempt, is_put)| if is_put { put(attempt) } else { remove(attempt) };
                    runtime.block_on(store.commit(changes.into_iter().map(change).collect())).unwrap();
                }
                Step::Restart => {
                    drop(store);
                    let found;
                    (store, found) = reopen(&path, 1, &small());
                    let mut reservations = found.reservations.clone();
                    reservations.sort_by_key(|reservation| reservation.attempt.attempt);
                    prop_assert_eq!(reservations, model.values().cloned().collect::<Vec<_>>());
                    prop_assert!(found.incarnation > last.incarnation);
                    last = found;
                }
            }
        }
        drop(store);
        let files = std::fs::read_dir(directory.path().join("ledger")).unwrap().count();
        prop_assert!(files <= 7, "{} files", files);
    }
}
