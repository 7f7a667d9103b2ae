//! The bytes on disk: two ledgers that an earlier program wrote, one left by a kill, one by a stop. What they hold is
//! written down here, and this program must find it. And the exact bytes of one entry of every kind.

use std::{fmt::Write as _, fs, path::Path};

use broker::{
    ids::{HostId, SiteId},
    ledger::{BookingRecord, Charge, QueuedJob},
    negotiation::{Decision, Outcome},
    plan::Place,
    time::{Span, Time},
};

use super::*;
use crate::{
    activation::ActivationRecord,
    entry::{self, Entry, State, Table},
    notice::NoticeRecord,
    sector::{self, SECTOR_BYTES},
    tied::TiedRecord,
    waiting::WaitingRecord,
};

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

const ENTRIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/fixtures/entries.txt");
const ADVICE: &str = "\
The bytes of an entry on disk have changed, or there is a new kind of entry.
A node that is updated must read what the one before wrote: give a new key a default, and never change what a key means.
When this program reads the old line as well, or lines were only added: KOLO_BLESS=1 cargo test -p kolo-storage golden, and read the diff.";

fn activation() -> ActivationRecord {
    let text = r#"{"attempt":{"entry_point":"e","request":"r","attempt":1},"user":"ada","user_key":null,"label":"l",
        "told":{"window":{"start":10,"end":20},"grants":[{"seat":0,"place":{"host":"h"},"window":{"start":10,"end":20},"amounts":{}}]},"stage":"started",
        "begun":{"event":"changed","runs":2,"failures":1},"given_up":{"event":"reserved","at":5,"why":"no"}}"#;
    serde_json::from_str(text).unwrap()
}

fn charge() -> Charge {
    let text = r#"{"attempt":{"entry_point":"e","request":"r","attempt":1},"user":"ada","user_key":null,"window":{"start":10,"end":20},
        "seats":2,"agreed":500,"charged":250,"reason":"cancellation","ended":5,"counts_until":90,"statement":SIGNED,"receipt":SIGNED}"#;
    let (key, signature) = ("ab".repeat(32), "cd".repeat(64));
    let signed = format!(r#"{{"text":"t","author":"{key}","signature":"{signature}"}}"#);
    serde_json::from_str(&text.replace("SIGNED", &signed)).unwrap()
}

/// A booking that was confirmed, and has lost a seat since.
fn confirmed() -> BookingRecord {
    BookingRecord { confirmed: Some(Time(5)), lost: reservation(1).grants, ..reservation(1) }
}

/// One in a closed grid.
fn of_member() -> BookingRecord {
    let keys = [1, 2].map(|byte| broker::trust::PublicKey::from_bytes([byte; 32]));
    BookingRecord { user_key: Some(keys[1]), lineage: Some(keys.to_vec().into()), ..confirmed() }
}

/// One that may yet wait, and one that has.
fn patient(slack: u64, wait: u64) -> BookingRecord {
    BookingRecord { slack: Span(slack), wait: Span(wait), ..reservation(1) }
}

fn with_receipt() -> RequestRecord {
    let (key, signature) = ("ab".repeat(32), "cd".repeat(64));
    let text = format!(
        r#"[{{"attempt":1,"site":"s","receipt":{{"text":"kolo-receipt/1\n{{}}","author":"{key}","signature":"{signature}"}}}}]"#
    );
    RequestRecord { receipts: serde_json::from_str(&text).unwrap(), ..request("q", 5_000) }
}

fn tied() -> TiedRecord {
    TiedRecord { id: request("r", 0).id, requests: ["r", "q"].map(|id| request(id, 0).id).to_vec() }
}

fn queued() -> QueuedJob {
    let text = r#"{"attempt":{"entry_point":"s","request":"j","attempt":0},"arrival":5,"length":60,"deadline":90,"hosts":2,
        "amounts":{"cpu":1000}}"#;
    serde_json::from_str(text).unwrap()
}

/// One that was stopped, and waits again.
fn stopped() -> QueuedJob {
    QueuedJob { preempt: true, first_begun: Some(Time(7)), ..queued() }
}

fn waiting() -> WaitingRecord {
    let key = "00".repeat(32);
    let text = format!(
        r#"{{"id":"r","number":7,"user":"ada","account":"{key}","submitted_for":"ben","request":{{"hosts":1,"duration":60}},
        "authorization":{{"request":{{"text":"t","author":"{key}","signature":"{key}{key}"}},"user":null,"entry_point":null}},
        "added_ms":5000,"latest":65,"postponed":2,"reason":"no room","end":{{"at":70,"how":"passed"}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn notice() -> NoticeRecord {
    let text = r#"{"request":"r","told":{"heard":"reserved","lost":[[2,"s","h"]]},"number":3,
        "begun":{"event":"start","tries":2,"told":{"heard":"started","lost":[]}}}"#;
    serde_json::from_str(text).unwrap()
}

/// Two whose seats float, and have floated.
fn floating() -> Vec<BookingRecord> {
    let [class, host] = ["n", "n-1"].map(|name| HostId::new(name).unwrap());
    let places = [Place::Floating { class: class.clone(), host: host.clone() }, Place::Bound { class, host }];
    let with = |place: Place| {
        let mut record = confirmed();
        record.grants.iter_mut().for_each(|grant| grant.place = place.clone());
        record
    };
    places.map(with).to_vec()
}

/// One entry of every kind, by name; the values of the facts as this program writes them.
fn one_of_each() -> Vec<(String, Entry)> {
    let changes = [
        ("put reservation", put(1)),
        ("put confirmed reservation", Change::Ledger(Record::Put(confirmed()))),
        ("put reservation that may wait", Change::Ledger(Record::Put(patient(600, 0)))),
        ("put reservation that has waited", Change::Ledger(Record::Put(patient(0, 60)))),
        ("put reservation of a member", Change::Ledger(Record::Put(of_member()))),
        ("put floating reservations", Change::Ledger(Record::PutAll(floating()))),
        ("remove reservation", remove(1)),
        ("put request", Change::Request(Box::new(request("r", 5_000)))),
        ("put request with a receipt", Change::Request(Box::new(with_receipt()))),
        ("forget request", Change::ForgetRequest(request("r", 0).id)),
        ("put activation", Change::Activation(Box::new(activation()))),
        ("forget activation", Change::ForgetActivation(activation().attempt)),
        ("put notice", Change::Notice(Box::new(notice()))),
        ("forget notice", Change::ForgetNotice(notice().request)),
        ("charge", Change::Ledger(Record::Charge(charge()))),
        ("put waiting", Change::Waiting(Box::new(waiting()))),
        ("forget waiting", Change::ForgetWaiting(waiting().id)),
        ("tied", Change::Tied(Box::new(tied()))),
        ("untie", Change::Untie(tied().id)),
        ("queue", Change::Ledger(Record::Queue(queued()))),
        ("queue stopped job", Change::Ledger(Record::Queue(stopped()))),
        ("dequeue", Change::Ledger(Record::Dequeue(queued().attempt))),
        ("known peers", Change::KnownPeers(vec!["/ip4/192.0.2.1/tcp/1".to_owned()])),
    ];
    let changes = changes.into_iter().flat_map(|(name, change)| {
        entry::of_change(&change).unwrap().into_iter().map(move |entry| (name.to_owned(), entry))
    });
    let mut facts = State::new();
    entry::set_incarnation(&mut facts, 300).unwrap();
    entry::set_site(&mut facts, &SiteId::new("s").unwrap()).unwrap();
    let facts =
        facts.into_iter().map(|(key, value)| (String::from_utf8(key.1.clone()).unwrap(), Entry::Put(key, value)));
    let ends = [("close".to_owned(), Entry::Close), ("end".to_owned(), Entry::End(300))];
    changes.chain(facts).chain(ends).collect()
}

#[test]
fn golden_bytes_of_every_entry() {
    let mut found = String::new();
    let mut tables = Vec::new();
    for (name, entry) in one_of_each() {
        let mut group = Vec::new();
        entry::push_entry(&entry, &mut group).unwrap();
        assert_eq!(entry::entries(&group), Some(vec![entry.clone()]), "{name}: read as it was written");
        if let Entry::Put((table, _), _) = entry {
            tables.push(table);
        }
        writeln!(found, "{name}: {}", group.escape_ascii()).unwrap();
    }
    assert!(Table::ALL.iter().all(|table| tables.contains(table)), "every table has a line");
    if std::env::var_os("KOLO_BLESS").is_some() {
        fs::write(Path::new(ENTRIES), &found).unwrap();
    }
    let kept = fs::read_to_string(ENTRIES).unwrap_or_default();
    for (found, kept) in found.lines().zip(kept.lines().chain(std::iter::repeat(""))) {
        assert_eq!(found, kept, "{ADVICE}");
    }
    assert_eq!(found.lines().count(), kept.lines().count(), "{ADVICE}\nsomething is gone");
}
