//! The ledger's own files: what a disk may give back after years, and after a power cut.

use std::io::Cursor;

use kolo_storage::{
    entry::{self, Entry, State, Table},
    read::GroupReader,
    sector::{self, Header, Home, Role, SECTOR_BYTES},
};

use crate::{Input, Target};

/// A group's bytes: whatever they are, they are entries or they are refused.
pub const ENTRIES: Target = Target { name: "entries", run: entries, golden: Vec::new };
/// A journal that was written, and then damaged in some places.
pub const JOURNAL: Target = Target { name: "journal", run: journal, golden: Vec::new };

const HOME: Home = Home { ledger: 7, generation: 3, role: Role::Journal };

fn entries(data: &[u8]) {
    let Some(entries) = entry::entries(data) else { return };
    let mut again = Vec::new();
    let mut state = State::new();
    for one in &entries {
        entry::push_entry(one, &mut again).expect("an entry that was read can be written");
        match one {
            Entry::Put(key, value) => drop(state.insert(key.clone(), value.clone())),
            Entry::Remove(key) => drop(state.remove(key)),
            Entry::Close | Entry::End(_) => {}
        }
    }
    assert_eq!(again, data, "entries have one form");
    let Ok(remembered) = entry::remembered(&state) else { return };
    let of_table = |table: Table| state.keys().filter(|key| key.0 == table).count();
    let of_reservations = remembered.reservations.len() + remembered.gone.len();
    assert_eq!(of_reservations, of_table(Table::Reservations));
    assert_eq!(remembered.requests.len(), of_table(Table::Requests));
    assert_eq!(remembered.activations.len(), of_table(Table::Activations));
    assert_eq!(remembered.waiting.len(), of_table(Table::Waiting));
    assert_eq!(remembered.queue.len(), of_table(Table::Queue));
}

/// Writes groups as choices say, changes the file as further choices say, and reads it.
fn journal(data: &[u8]) {
    let mut input = Input::new(data);
    let mut groups: Vec<Vec<u8>> = Vec::new();
    let mut file = Vec::new();
    for number in 0..u64::from(input.below(6)) {
        let group = vec![input.byte(); usize::from(input.short() % 2_000)];
        sector::push_group(HOME, 1 + sectors(&file), number + 1, &group, &mut file);
        groups.push(group);
    }
    let is_sealed = input.flag();
    let mut image = Vec::new();
    let blank = u64::from(input.below(4)) + u64::from(is_sealed);
    let header = Header { home: HOME, sectors: 1 + sectors(&file) + blank };
    image.extend_from_slice(&sector::header(header));
    image.extend_from_slice(&file);
    if is_sealed {
        image.extend_from_slice(&sector::seal(HOME, 1 + sectors(&file), groups.len() as u64 + 1));
    }
    image.resize(SECTOR_BYTES * usize::try_from(header.sectors).unwrap_or(0), 0);
    let written = image.clone();
    // At most three bits: as many as a checksum is sure to notice.
    for _ in 0..input.below(4) {
        let (at, bit) = (usize::from(input.short()) % image.len(), input.below(8));
        image[at] ^= 1 << bit;
    }
    check(&groups, is_sealed, &image, image == written);
}

fn sectors(bytes: &[u8]) -> u64 {
    (bytes.len() / SECTOR_BYTES) as u64
}

/// What is read is what was written, or, of the last write when it had no seal, nothing; or the file is refused.
fn check(groups: &[Vec<u8>], is_sealed: bool, image: &[u8], is_unchanged: bool) {
    let Ok(mut reader) = GroupReader::open(Cursor::new(image)) else {
        assert!(!is_unchanged, "an unchanged file opens");
        return;
    };
    let mut found = Vec::new();
    loop {
        match reader.next_group() {
            Ok(Some(group)) => found.push(group),
            Ok(None) => break,
            Err(_) => {
                assert!(!is_unchanged, "an unchanged file reads");
                return;
            }
        }
    }
    assert!(found.iter().zip(groups).all(|(found, written)| found == written), "silently wrong");
    let missing = groups.len().saturating_sub(found.len());
    assert!(found.len() <= groups.len(), "more than was written");
    assert!(missing == 0 || !is_unchanged, "an unchanged file is read to its end");
    // Three bits can undo one mark and a seal at most, never two writes.
    assert!(missing <= 1, "{missing} writes are missing and nothing is said");
    assert!(missing == 0 || !is_sealed, "a sealed write is missing and nothing is said");
}
