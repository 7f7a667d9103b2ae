//! The ledger under power cuts, flipped bits, failing disks and restarts.

mod directory;
mod figures;
mod format;
mod full;
mod power;
mod restart;

use std::path::Path;

use broker::{
    ledger::{BookingRecord, Record},
    negotiation::RequestRecord,
};

use super::{Change, Remembered, Store, StoreError, StoreSettings};

/// Written as JSON, as on disk.
fn reservation(attempt: u32) -> BookingRecord {
    let text = format!(
        r#"{{"attempt":{{"entry_point":"e","request":"r","attempt":{attempt}}},"window":{{"start":10,"end":20}},
        "grants":[{{"seat":0,"place":{{"host":"h"}},"window":{{"start":10,"end":20}},"amounts":{{}}}}],"participants":["e"],"user":"ada","settled":false}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn put(attempt: u32) -> Change {
    Change::Ledger(Record::Put(reservation(attempt)))
}

fn remove(attempt: u32) -> Change {
    Change::Ledger(Record::Remove(reservation(attempt).attempt))
}

/// A request of an hour that arrived at `submitted_ms` and could start at once only.
fn request(id: &str, submitted_ms: u64) -> RequestRecord {
    let now = submitted_ms / 1000;
    let text = format!(
        r#"{{"id":"{id}","user":"ada","request":{{"hosts":1,"duration":3600}},"submitted_ms":{submitted_ms},"elapsed_ms":0,
        "earliest":{now},"latest":{now},"last_attempt":0,"decision":"Open","owed":[],
        "history":{{"rounds":[],"tries":[],"conflicts":0}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

/// Journals that are full after a few groups.
fn small() -> StoreSettings {
    StoreSettings { journal_bytes_first: 4096, journal_bytes_max: 8192, ..StoreSettings::default() }
}

/// The writer thread closes the files a moment after its last handle is gone.
fn reopen(path: &Path, unix_ms: u64, settings: &StoreSettings) -> (Store, Remembered) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        match Store::open(path, unix_ms, settings.clone()) {
            Ok(opened) => return opened,
            Err(StoreError::InUse(_)) if std::time::Instant::now() < deadline => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}
