//! Takes over a ledger of layout 1: one redb database with three tables.
//!
//! Its reservations are bincode, whose meaning is the order of the fields; so the fields of that time are written down
//! here once more and do not change with the program. Its requests and facts are JSON.
//!
//! redb keeps its last two commits and opens the older one when the newer does not check out, whether that was never
//! told or is damaged. The choice is taken from it: in the copy that is opened, the older commit is made unusable. A database
//! whose newest commit is not whole is then refused; the program that wrote it can still open it, and decide.
//!
//! Invariant: the old file is only read. What is changed in order to open it is a copy, which stays in the new ledger's
//! directory.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::Path};

use broker::ledger::Reservation;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use serde::{Deserialize, Serialize};

use super::{
    StoreError,
    entry::{self, Entry, State, Table, VALUE_BYTES_MAX},
};

const RESERVATIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("reservations");
const REQUESTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("requests");
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");

/// How a redb database begins.
pub const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// Where redb keeps which of its two commit slots is in force: the lowest bit.
const PRIMARY_AT: u64 = 9;
const SLOTS_AT: [u64; 2] = [64, 192];
const SLOT_BYTES: usize = 128;
/// In a slot: the checksums of the two roots, the number of the commit, and the checksum of the slot.
const ROOT_SUMS_AT: [usize; 2] = [16, 48];
const NUMBER_AT: usize = 104;
const SLOT_SUM_AT: usize = 112;
const SUM_BYTES: usize = 16;

/// Makes the older of the two commits unusable, so that the newest is opened or none.
///
/// # Errors
/// [`StoreError::Damaged`] when the one in force is not the newest.
fn pin_newest_commit(path: &Path) -> Result<(), StoreError> {
    let file = File::options().read(true).write(true).open(path).map_err(StoreError::disk(path))?;
    let read = || -> io::Result<(usize, [[u8; SLOT_BYTES]; 2])> {
        let (mut primary, mut slots) = ([0], [[0; SLOT_BYTES]; 2]);
        file.read_exact_at(&mut primary, PRIMARY_AT)?;
        for (slot, at) in slots.iter_mut().zip(SLOTS_AT) {
            file.read_exact_at(slot, at)?;
        }
        Ok((usize::from(primary[0] & 1), slots))
    };
    let (primary, slots) = read().map_err(|_| StoreError::damaged(path, "it ends inside of its header"))?;
    let number = |slot: usize| slots[slot][NUMBER_AT..SLOT_SUM_AT].iter().rev().copied().collect::<Vec<u8>>();
    if number(primary) < number(1 - primary) {
        return Err(StoreError::damaged(path, "its newest commit is not the one in force"));
    }
    let mut older = slots[1 - primary];
    for at in ROOT_SUMS_AT.into_iter().chain([SLOT_SUM_AT]) {
        older[at..at + SUM_BYTES].iter_mut().for_each(|byte| *byte = !*byte);
    }
    file.write_all_at(&older, SLOTS_AT[1 - primary]).map_err(StoreError::disk(path))
}

#[derive(Deserialize, Serialize)]
struct Attempt1 {
    entry_point: String,
    request: String,
    attempt: u32,
}

#[derive(Deserialize, Serialize)]
struct Window1 {
    start: i64,
    end: i64,
}

#[derive(Deserialize, Serialize)]
struct Grant1 {
    host: String,
    amounts: BTreeMap<String, u64>,
}

#[derive(Deserialize, Serialize)]
struct Reservation1 {
    attempt: Attempt1,
    window: Window1,
    grants: Vec<Grant1>,
    participants: Vec<String>,
    user: String,
    settled: bool,
}

/// Reads the copy of a database at `path`, and changes it while doing so.
///
/// # Errors
/// [`StoreError`].
pub fn read(path: &Path) -> Result<State, StoreError> {
    read_newest(path).map_err(|error| match error {
        StoreError::Damaged { file, detail } => {
            let advice = "the program that wrote it may still open it: start and stop that one, then try again";
            StoreError::Damaged { file, detail: format!("{detail} ({advice})") }
        }
        other => other,
    })
}

fn read_newest(path: &Path) -> Result<State, StoreError> {
    let damaged = |detail: String| StoreError::damaged(path, detail);
    let database = |error: &dyn std::fmt::Display| StoreError::damaged(path, error.to_string());
    pin_newest_commit(path)?;
    let mut opened = Database::open(path).map_err(|error| database(&error))?;
    if !opened.check_integrity().map_err(|error| database(&error))? {
        return Err(damaged("its pages do not check out".to_owned()));
    }
    let transaction = opened.begin_read().map_err(|error| database(&error))?;
    let mut state = State::new();
    let facts = match transaction.open_table(FACTS) {
        Ok(facts) => facts,
        // The first start ended before anything was written.
        Err(TableError::TableDoesNotExist(_)) => return Ok(state),
        Err(error) => return Err(database(&error)),
    };
    let layout = facts.get("layout").map_err(|error| database(&error))?;
    match layout.as_ref().map(redb::AccessGuard::value) {
        Some(b"1") => {}
        other => {
            let found = other.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            return Err(damaged(format!("it says layout {}, not 1", found.as_deref().unwrap_or("nothing"))));
        }
    }
    let reservations = transaction.open_table(RESERVATIONS).map_err(|error| database(&error))?;
    for entry in reservations.iter().map_err(|error| database(&error))? {
        let (key, value) = entry.map_err(|error| database(&error))?;
        let (key, value): (Attempt1, Reservation1) = (decode(path, key.value())?, decode(path, value.value())?);
        if (&key.entry_point, &key.request, key.attempt)
            != (&value.attempt.entry_point, &value.attempt.request, value.attempt.attempt)
        {
            return Err(damaged("key and value of a reservation name different attempts".to_owned()));
        }
        if let Entry::Put(key, value) = entry::put_reservation(&present(path, &value)?)? {
            state.insert(key, value);
        }
    }
    let requests = transaction.open_table(REQUESTS).map_err(|error| database(&error))?;
    for (table, source) in [(Table::Requests, requests), (Table::Facts, facts)] {
        for entry in source.iter().map_err(|error| database(&error))? {
            let (key, value) = entry.map_err(|error| database(&error))?;
            if key.value() != "layout" {
                state.insert((table, key.value().as_bytes().to_vec()), value.value().to_vec());
            }
        }
    }
    Ok(state)
}

fn decode<T: for<'de> Deserialize<'de>>(path: &Path, bytes: &[u8]) -> Result<T, StoreError> {
    let limits = bincode::config::standard().with_limit::<VALUE_BYTES_MAX>();
    match bincode::serde::decode_from_slice(bytes, limits) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(StoreError::damaged(path, "bytes are left over in a reservation")),
        Err(error) => Err(StoreError::damaged(path, error.to_string())),
    }
}

/// The reservation as this program knows it; fields that came later have their defaults.
fn present(path: &Path, old: &Reservation1) -> Result<Reservation, StoreError> {
    let named = serde_json::to_value(old).and_then(serde_json::from_value);
    named.map_err(|error| StoreError::damaged(path, format!("a reservation is none: {error}")))
}
