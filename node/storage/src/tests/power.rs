//! One journal against a modelled disk: what a power cut, a flipped bit or a cut file may leave, and what is read.
//!
//! The oracle is the list of groups that were acknowledged, plus the one that was being written.

use std::{
    io,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;

use crate::{
    journal::{Journal, Medium},
    read::{GroupReader, ReadError, Tail},
    sector::{self, CONTENT_BYTES, Header, Home, Role, SECTOR_BYTES},
};

const HOME: Home = Home { ledger: 7, generation: 3, role: Role::Journal };
const SECTORS: u64 = 24;

/// A disk that tells what is safe from what a power cut may still take.
#[derive(Debug, Default)]
struct Disk {
    safe: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Disk>>);

impl Medium for Recorder {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.lock().unwrap().pending.push((usize::try_from(offset).unwrap(), bytes.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        for (offset, bytes) in std::mem::take(&mut disk.pending) {
            disk.safe[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

/// What one run of a journal leaves: the safe bytes before the last write, and the writes that were not synced.
struct Run {
    acknowledged: Vec<Vec<u8>>,
    safe: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
    last: Vec<u8>,
}

fn group(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| u8::try_from((seed * 31 + index) % 251).unwrap()).collect()
}

/// Acknowledges groups of these sizes (a seal behind those that say so), then begins one of `last` bytes.
fn run(acknowledged: &[(usize, bool)], last: usize) -> Run {
    let recorder = Recorder::default();
    let mut file = sector::header(Header { home: HOME, sectors: SECTORS }).to_vec();
    file.resize(usize::try_from(SECTORS).unwrap() * SECTOR_BYTES, 0);
    recorder.0.lock().unwrap().safe = file;
    let mut journal = Journal::new(Box::new(recorder.clone()), HOME, SECTORS);
    let mut groups = Vec::new();
    for (index, (bytes, is_sealed)) in acknowledged.iter().enumerate() {
        groups.push(group(index, *bytes));
        assert!(journal.has_room_for(*bytes));
        journal.append(&groups[index]).unwrap();
        if *is_sealed {
            journal.seal(false).unwrap();
        }
    }
    let content = group(acknowledged.len(), last);
    let disk = recorder.0.clone();
    let before = disk.lock().unwrap().safe.clone();
    // What `append` writes, without its sync.
    let mut sectors = Vec::new();
    let position = 1 + acknowledged.iter().map(|(bytes, _)| sector::sectors_of(*bytes)).sum::<u64>();
    sector::push_group(HOME, position, acknowledged.len() as u64 + 1, &content, &mut sectors);
    let mut pending = std::mem::take(&mut disk.lock().unwrap().pending);
    journal.append(&content).unwrap();
    assert_eq!(
        &disk.lock().unwrap().safe[usize::try_from(position).unwrap() * SECTOR_BYTES..][..sectors.len()],
        sectors
    );
    pending.push((usize::try_from(position).unwrap() * SECTOR_BYTES, sectors));
    Run { acknowledged: groups, safe: before, pending, last: content }
}

fn read(file: &[u8]) -> Result<(Vec<Vec<u8>>, Tail), ReadError> {
    let mut reader = GroupReader::open(file)?;
    let mut groups = Vec::new();
    while let Some(group) = reader.next_group()? {
        groups.push(group);
    }
    Ok((groups, reader.tail().unwrap()))
}

impl Run {
    /// The file when of the pending write number `number` only those bytes arrived that `arrives` names.
    fn cut(&self, arrives: impl Fn(usize, usize) -> bool) -> Vec<u8> {
        let mut file = self.safe.clone();
        for (number, (offset, bytes)) in self.pending.iter().enumerate() {
            for (index, byte) in bytes.iter().enumerate() {
                if arrives(number, index) {
                    file[offset + index] = *byte;
                }
            }
        }
        file
    }

    fn whole(&self) -> Vec<u8> {
        self.cut(|_, _| true)
    }

    fn check_power_cut(&self, file: &[u8], what: &str) {
        let (groups, _) = read(file).unwrap_or_else(|error| panic!("{what}: {error}"));
        let with_last: Vec<Vec<u8>> = self.acknowledged.iter().cloned().chain([self.last.clone()]).collect();
        assert!(groups == self.acknowledged || groups == with_last, "{what}: {} groups", groups.len());
    }
}

const SIZES: [(usize, bool); 3] = [(10, true), (CONTENT_BYTES * 2 + 5, false), (CONTENT_BYTES, true)];

#[test]
fn a_power_cut_at_every_byte_of_the_last_write_leaves_what_was_told() {
    for is_sealed in [false, true] {
        for last in [0, 3, CONTENT_BYTES, CONTENT_BYTES + 1, CONTENT_BYTES * 4] {
            let run = run(&[SIZES[0], SIZES[1], (SIZES[2].0, is_sealed)], last);
            let writes = run.pending.len();
            for cut in 0..=run.pending[writes - 1].1.len() {
                let is_there = |number: usize, index: usize| number + 1 < writes || index < cut;
                run.check_power_cut(&run.cut(is_there), &format!("cut at byte {cut} of {last}, seal {is_sealed}"));
            }
            assert_eq!(read(&run.whole()).unwrap().0.len(), 4);
        }
    }
}

#[test]
fn any_combination_of_sectors_of_the_last_write_leaves_what_was_told() {
    for is_sealed in [false, true] {
        let run = run(&[SIZES[0], (SIZES[1].0, is_sealed)], CONTENT_BYTES * 6);
        for there in 0..128_usize {
            // Bit 6 stands for the seal, which comes before the group and in its place.
            let is_there = |number: usize, index: usize| {
                let is_seal = number + 1 < run.pending.len();
                let bit = if is_seal { 6 } else { index / SECTOR_BYTES };
                there & (1 << bit) != 0
            };
            run.check_power_cut(&run.cut(is_there), &format!("sectors {there:07b}, seal {is_sealed}"));
        }
    }
}

#[test]
fn every_flipped_bit_of_what_was_told_is_noticed_or_changes_nothing() {
    let run = run(&SIZES, CONTENT_BYTES + 9);
    let file = run.whole();
    let acknowledged: Vec<Vec<u8>> = run.acknowledged.iter().cloned().chain([run.last.clone()]).collect();
    let mut refused = 0_usize;
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match read(&flipped) {
            Ok((groups, _)) => assert_eq!(groups, acknowledged, "bit {bit}"),
            Err(_) => refused += 1,
        }
    }
    // The header and the seven sectors of the four groups, all of their bits.
    assert!(refused >= 8 * SECTOR_BYTES * 8, "{refused}");
}

#[test]
fn a_file_that_is_shorter_than_it_was_made_is_refused() {
    let file = run(&SIZES, 5).whole();
    for length in 0..file.len() {
        assert!(read(&file[..length]).is_err(), "{length}");
    }
    assert!(read(&[file.as_slice(), &[0]].concat()).is_err());
    assert!(read(&[file.as_slice(), &[0; SECTOR_BYTES]].concat()).is_err());
}

#[test]
fn a_sector_that_is_lost_is_noticed_when_a_group_or_a_seal_stands_behind_it() {
    let run = run(&SIZES, 5);
    let last = run.pending[run.pending.len() - 1].0;
    for position in 1..last / SECTOR_BYTES {
        let mut file = run.whole();
        file[position * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
        assert!(matches!(read(&file), Err(ReadError::Damaged { .. })), "{position}");
        // The seal alone tells as well.
        let mut file = run.cut(|number, _| number == 0);
        assert!(read(&file).unwrap().1.is_sealed);
        file[position * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
        assert!(read(&file).is_err(), "{position} with a seal");
    }
}

#[test]
fn sectors_of_other_places_generations_and_ledgers_are_refused() {
    let file = run(&SIZES, 5).whole();
    let mut swapped = file.clone();
    let (first, second) = swapped.split_at_mut(3 * SECTOR_BYTES);
    first[2 * SECTOR_BYTES..].swap_with_slice(&mut second[..SECTOR_BYTES]);
    assert!(read(&swapped).is_err());
    for home in [Home { generation: 2, ..HOME }, Home { ledger: 8, ..HOME }] {
        let mut stray = file.clone();
        let mut sectors = Vec::new();
        sector::push_group(home, 1, 1, &group(0, 10), &mut sectors);
        stray[SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(&sectors);
        assert!(read(&stray).is_err());
    }
}

/// Layout 2 as bytes: when this fails, files that exist can no longer be read, and the layout needs a new number.
#[test]
fn the_bytes_of_layout_2_never_change() {
    let sum = crc::Crc::<u64>::new(&crc::CRC_64_XZ).checksum(&run(&SIZES, 5).whole());
    assert_eq!(sum, GOLDEN, "{sum:#x}");
}

const GOLDEN: u64 = 0xf806_d1a2_1e9f_8d8c;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn random_writes_survive_random_power_cuts(
        acknowledged in prop::collection::vec((0..CONTENT_BYTES * 3, any::<bool>()), 0..5),
        last in 0..CONTENT_BYTES * 5,
        // For each sector: how many of its bytes arrive.
        arrived in prop::collection::vec(prop_oneof![Just(0), Just(SECTOR_BYTES), 0..SECTOR_BYTES], 6),
        seal_arrives in any::<bool>(),
    ) {
        let run = run(&acknowledged, last);
        let is_there = |number: usize, index: usize| {
            if number + 1 < run.pending.len() { seal_arrives } else { index % SECTOR_BYTES < arrived[index / SECTOR_BYTES] }
        };
        run.check_power_cut(&run.cut(is_there), "random");
    }

    #[test]
    fn whatever_bytes_a_file_holds_it_is_read_or_refused(
        acknowledged in prop::collection::vec((0..CONTENT_BYTES * 2, any::<bool>()), 1..4),
        patches in prop::collection::vec((0..24 * SECTOR_BYTES, prop::collection::vec(any::<u8>(), 1..80)), 1..4),
        length in 0..=24 * SECTOR_BYTES,
    ) {
        let run = run(&acknowledged, 9);
        let mut file = run.whole();
        for (at, bytes) in patches {
            let end = (at + bytes.len()).min(file.len());
            file[at..end].copy_from_slice(&bytes[..end - at]);
        }
        // Changed contents may never pass for contents; fewer groups may only be missing at the end.
        let all: Vec<Vec<u8>> = run.acknowledged.iter().cloned().chain([run.last.clone()]).collect();
        if let Ok((groups, _)) = read(&file) {
            prop_assert!(groups.len() <= all.len() && groups == all[..groups.len()]);
        }
        let _ = read(&file[..length]);
    }
}
