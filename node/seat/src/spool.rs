//! What a run has said on one output, kept in a file: the first [`HEAD_BYTES`] and the last of the rest.
//!
//! The file begins with how many bytes were said in all; the head follows, and a ring that the rest goes round in. Invariants: the file never
//! grows beyond its bound, nor where users have no room on the disk any more (beyond the head: none beside the beginnings of outputs), a byte that is read is the one that was said at that offset, and what is not kept is named. A keeper that is
//! killed leaves a spool that is read as well; after a loss of power only one that was put on disk ([`Spool::sync`]) is.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use super::{
    disk::{bytes_beside_beginnings, bytes_for_users, disk_full},
    frame::DATA_BYTES_MAX,
};

/// So much of the beginning is always kept.
pub const HEAD_BYTES: u64 = 64 * 1024;
/// The smallest ring, in bytes.
pub const RING_BYTES_MIN: u64 = 1024 * 1024;
/// Most bytes that are added at once.
pub const APPEND_BYTES_MAX: usize = DATA_BYTES_MAX;
/// Where the head begins.
const HEADER_BYTES: u64 = 8;

/// One output, on disk.
#[derive(Debug)]
pub struct Spool {
    file: File,
    ring_bytes: u64,
    end: u64,
}

/// What a spool has at an offset.
#[derive(Debug, PartialEq, Eq)]
pub enum Kept {
    /// These bytes; at least one.
    Data(Vec<u8>),
    /// Nothing up to this offset, where it goes on.
    GapTo(u64),
    /// It was not said yet.
    Nothing,
}

impl Spool {
    /// Makes the spool, or finds it again as it was left. `ring_bytes` must be the same each time.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open(path: &Path, ring_bytes: u64) -> io::Result<Spool> {
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut header = [0; HEADER_BYTES as usize];
        let is_new = file.metadata()?.len() < HEADER_BYTES;
        if !is_new {
            file.read_exact_at(&mut header, 0)?;
        }
        Ok(Spool { file, ring_bytes: ring_bytes.max(RING_BYTES_MIN), end: u64::from_le_bytes(header) })
    }

    /// How many bytes were said.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes may be added such that everything from `held` on stays.
    pub fn room(&self, held: u64) -> u64 {
        held.max(HEAD_BYTES).saturating_add(self.tail_bytes()).saturating_sub(self.end)
    }

    /// Adds what was said next, at most [`APPEND_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// Those of the disk; nothing counts as added then.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(bytes.len() <= APPEND_BYTES_MAX, "the ring gives up no more than this ahead");
        let grows = self.end < HEAD_BYTES + self.ring_bytes;
        if grows && self.bytes_free_for(bytes.len() as u64)? < bytes.len() as u64 {
            return Err(disk_full());
        }
        let (mut offset, mut rest) = (self.end, bytes);
        while !rest.is_empty() {
            let (position, length) = self.stretch(offset, rest.len());
            self.file.write_all_at(&rest[..length], position)?;
            rest = &rest[length..];
            offset += length as u64;
        }
        self.file.write_all_at(&offset.to_le_bytes(), 0)?;
        self.end = offset;
        Ok(())
    }

    /// Bytes of the disk that may be taken for so many bytes that are said next.
    fn bytes_free_for(&self, bytes: u64) -> io::Result<u64> {
        if self.end + bytes <= HEAD_BYTES { bytes_for_users(&self.file) } else { bytes_beside_beginnings(&self.file) }
    }

    /// What is kept at `offset`, at most so many bytes of it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn read(&self, offset: u64, bytes_max: usize) -> io::Result<Kept> {
        if offset >= self.end {
            return Ok(Kept::Nothing);
        }
        let tail_from = self.end.saturating_sub(self.tail_bytes());
        if offset >= HEAD_BYTES && offset < tail_from {
            return Ok(Kept::GapTo(tail_from));
        }
        let wanted = usize::try_from(self.end - offset).unwrap_or(usize::MAX).min(bytes_max);
        let (position, length) = self.stretch(offset, wanted);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, position)?;
        Ok(Kept::Data(bytes))
    }

    /// Puts on disk what is kept.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn sync(&self) -> io::Result<()> {
        if self.end > 0 { self.file.sync_data() } else { Ok(()) }
    }

    /// How much of the rest is told. The oldest part of the ring may be half overwritten when the keeper is killed.
    fn tail_bytes(&self) -> u64 {
        self.ring_bytes - APPEND_BYTES_MAX as u64
    }

    /// Where `offset` is in the file, and how many bytes of `wanted` follow each other there.
    fn stretch(&self, offset: u64, wanted: usize) -> (u64, usize) {
        let (position, left) = if offset < HEAD_BYTES {
            (HEADER_BYTES + offset, HEAD_BYTES - offset)
        } else {
            let in_ring = (offset - HEAD_BYTES) % self.ring_bytes;
            (HEADER_BYTES + HEAD_BYTES + in_ring, self.ring_bytes - in_ring)
        };
        (position, usize::try_from(left).unwrap_or(usize::MAX).min(wanted))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is kept, each piece at its offset, and the gaps from and to.
    type Told = (Vec<(u64, Vec<u8>)>, Vec<(u64, u64)>);

    /// Everything from `from` on as it is told: what is kept, and the gaps.
    fn told(spool: &Spool, from: u64, piece: usize) -> Told {
        let (mut offset, mut kept, mut gaps) = (from, Vec::new(), Vec::new());
        loop {
            match spool.read(offset, piece).unwrap() {
                Kept::Data(bytes) => {
                    let length = bytes.len() as u64;
                    assert!(length > 0 && bytes.len() <= piece);
                    kept.push((offset, bytes));
                    offset += length;
                }
                Kept::GapTo(to) => {
                    assert!(to > offset);
                    gaps.push((offset, to));
                    offset = to;
                }
                Kept::Nothing => return (kept, gaps),
            }
        }
    }

    fn byte_at(offset: u64) -> u8 {
        (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_byte_is_the_one_that_was_said_and_what_is_missing_is_named(
            pieces in proptest::collection::vec(1..=APPEND_BYTES_MAX, 1..80), from in 0..3_000_000_u64, reopened in 0..80_usize,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("stdout");
            let mut spool = Spool::open(&path, RING_BYTES_MIN).unwrap();
            let mut said = 0;
            for (index, piece) in pieces.iter().enumerate() {
                let bytes: Vec<u8> = (said..).take(*piece).map(byte_at).collect();
                spool.append(&bytes).unwrap();
                said += *piece as u64;
                if index == reopened {
                    spool = Spool::open(&path, RING_BYTES_MIN).unwrap();
                }
            }
            prop_assert_eq!(spool.end(), said);
            let (kept, gaps) = told(&spool, from, 50_000);
            for (offset, bytes) in &kept {
                prop_assert!(bytes.iter().zip(*offset..).all(|(byte, offset)| *byte == byte_at(offset)));
            }
            let kept_bytes: u64 = kept.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            let missing: u64 = gaps.iter().map(|(from, to)| to - from).sum();
            prop_assert_eq!(kept_bytes + missing, said.saturating_sub(from));
            let tail_from = said.saturating_sub(RING_BYTES_MIN - APPEND_BYTES_MAX as u64);
            prop_assert!(gaps.iter().all(|(from, to)| *from >= HEAD_BYTES && *to == tail_from));
            prop_assert!(std::fs::metadata(&path).unwrap().len() <= HEADER_BYTES + HEAD_BYTES + RING_BYTES_MIN);
        }
    }

    #[test]
    fn what_is_held_stays_while_no_more_than_the_room_is_added() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&directory.path().join("stdout"), RING_BYTES_MIN).unwrap();
        let held = 100_000;
        while spool.room(held) > 0 {
            let room = usize::try_from(spool.room(held)).unwrap().min(APPEND_BYTES_MAX);
            spool.append(&vec![1; room]).unwrap();
        }
        assert!(matches!(spool.read(held, 1), Ok(Kept::Data(_))));
        spool.append(&[1]).unwrap();
        assert_eq!(spool.read(held, 1).unwrap(), Kept::GapTo(held + 1));
        assert!(spool.room(held + 10) >= 9);
    }

    #[test]
    fn a_keeper_that_is_killed_while_it_adds_leaves_no_wrong_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stdout");
        let mut spool = Spool::open(&path, RING_BYTES_MIN).unwrap();
        let mut said = 0;
        while said < 3 * RING_BYTES_MIN {
            spool.append(&(said..).take(40_000).map(byte_at).collect::<Vec<_>>()).unwrap();
            said += 40_000;
        }
        // The largest piece is in the file, and the header does not count it.
        let before = spool.end();
        spool.append(&vec![0xAA; APPEND_BYTES_MAX]).unwrap();
        spool.file.write_all_at(&before.to_le_bytes(), 0).unwrap();
        let (kept, _) = told(&Spool::open(&path, RING_BYTES_MIN).unwrap(), HEAD_BYTES, 65_536);
        assert!(kept.iter().flat_map(|(offset, bytes)| bytes.iter().zip(*offset..)).all(|(b, at)| *b == byte_at(at)));
    }
}
