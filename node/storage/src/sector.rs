//! The sectors that the ledger's files are made of, and how a group of changes becomes sectors.
//!
//! A sector has 512 bytes. A disk is assumed to write these whole or not at all, as SQLite and etcd assume as well. On a
//! disk with physical sectors of 4 KiB a power cut inside of one can also damage groups that were written before: the
//! next start then refuses the ledger, and loses nothing silently.
//!
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | number of the sector inside its group |
//! | 4..12 | number of the group inside its file, 1 for the first |
//! | 12..14 | bytes of content |
//! | 14 | 1 for the last sector of a group |
//! | 15 | 0 |
//! | 16..503 | content, filled up with zeros |
//! | 503..511 | CRC-64/XZ of all the other bytes and of the place where the sector belongs |
//! | 511 | mark: 0xA5 for a sector of a group, 0x5A for a seal |
//!
//! Invariant: the mark is the last byte and never zero, and journals are filled with zeros before they are used. So a
//! sector that was not written to its end is distinguished from one that was and has changed since: the first ends in zero.
//! The marks differ in all eight bits from each other and in four from zero.

use crc::{CRC_64_XZ, Crc};

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;
/// Bytes of content in a sector.
pub const CONTENT_BYTES: usize = CHECKSUM_AT - CONTENT_AT;
/// The layout that this program reads and writes.
pub const LAYOUT: u32 = 2;

/// It finds every change of up to three bits, and every burst of up to 64, in a sector; it is not meant against forgers.
const CHECKSUM: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
const CONTENT_AT: usize = 16;
const CHECKSUM_AT: usize = 503;
const MARK_AT: usize = SECTOR_BYTES - 1;
const MARK_GROUP: u8 = 0xA5;
const MARK_SEAL: u8 = 0x5A;
const MAGIC: &[u8; 12] = b"kolo ledger\n";

/// A sector's bytes.
pub type Sector = [u8; SECTOR_BYTES];

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Groups of changes, one after the other, in a file of fixed size.
    Journal,
    /// Everything at one moment.
    Snapshot,
}

/// Where a sector belongs, beside its position: part of its checksum, so that one that went astray is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Number of the ledger, made at its first start.
    pub ledger: u64,
    /// The generation of the file.
    pub generation: u64,
    /// The kind of the file.
    pub role: Role,
}

/// The first sector of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Of all sectors behind it.
    pub home: Home,
    /// Sectors of a journal, this one included; 0 in a snapshot.
    pub sectors: u64,
}

/// What a sector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Written to its end, and unchanged since.
    Group {
        /// The number of the group.
        group: u64,
        /// The number inside the group.
        index: u32,
        /// Whether it is the group's last one.
        is_last: bool,
    },
    /// Says that the groups before this number were on disk.
    Seal(u64),
    /// Never written.
    Blank,
    /// Begun, and not written to its end.
    Unfinished,
    /// A seal that is no longer whole: it was being replaced, or has changed.
    BrokenSeal,
    /// Written to its end, and changed since, or not from here.
    Damaged,
}

fn number<const N: usize>(sector: &Sector, at: usize) -> [u8; N] {
    std::array::from_fn(|index| sector[at + index])
}

fn checksum(home: Option<Home>, position: u64, sector: &Sector) -> u64 {
    let mut digest = CHECKSUM.digest();
    if let Some(home) = home {
        digest.update(&home.ledger.to_le_bytes());
        digest.update(&home.generation.to_le_bytes());
        digest.update(match home.role {
            Role::Journal => &[1],
            Role::Snapshot => &[2],
        });
    }
    digest.update(&position.to_le_bytes());
    digest.update(&sector[..CHECKSUM_AT]);
    digest.update(&sector[MARK_AT..]);
    digest.finalize()
}

fn finish(home: Option<Home>, position: u64, mark: u8, sector: &mut Sector) {
    sector[MARK_AT] = mark;
    let sum = checksum(home, position, sector);
    sector[CHECKSUM_AT..MARK_AT].copy_from_slice(&sum.to_le_bytes());
}

/// The sectors a group of this many bytes needs.
pub fn sectors_of(content_bytes: usize) -> u64 {
    // At least one, so that an empty group has a place too.
    content_bytes.div_ceil(CONTENT_BYTES).max(1) as u64
}

/// Appends the sectors of a group, the first of which is for `position`.
pub fn push_group(home: Home, position: u64, group: u64, content: &[u8], sectors: &mut Vec<u8>) {
    let count = sectors_of(content.len());
    for index in 0..count {
        let from = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(CONTENT_BYTES).min(content.len());
        let part = &content[from..content.len().min(from + CONTENT_BYTES)];
        let mut sector = [0; SECTOR_BYTES];
        sector[..4].copy_from_slice(&u32::try_from(index).unwrap_or(u32::MAX).to_le_bytes());
        sector[4..12].copy_from_slice(&group.to_le_bytes());
        sector[12..14].copy_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_le_bytes());
        sector[14] = u8::from(index + 1 == count);
        sector[CONTENT_AT..CONTENT_AT + part.len()].copy_from_slice(part);
        finish(Some(home), position + index, MARK_GROUP, &mut sector);
        sectors.extend_from_slice(&sector);
    }
}

/// A seal for `position`: the groups before `group` are on disk.
pub fn seal(home: Home, position: u64, group: u64) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    sector[4..12].copy_from_slice(&group.to_le_bytes());
    finish(Some(home), position, MARK_SEAL, &mut sector);
    sector
}

/// What `sector`, found at `position`, is.
pub fn classify(home: Home, position: u64, sector: &Sector) -> Kind {
    let is_intact = || number(sector, CHECKSUM_AT) == checksum(Some(home), position, sector).to_le_bytes();
    match sector[MARK_AT] {
        0 if sector.iter().all(|byte| *byte == 0) => Kind::Blank,
        0 => Kind::Unfinished,
        MARK_SEAL if is_intact() => Kind::Seal(u64::from_le_bytes(number(sector, 4))),
        MARK_SEAL => Kind::BrokenSeal,
        MARK_GROUP if is_intact() && content_len(sector) <= CONTENT_BYTES => Kind::Group {
            group: u64::from_le_bytes(number(sector, 4)),
            index: u32::from_le_bytes(number(sector, 0)),
            is_last: sector[14] == 1,
        },
        _ => Kind::Damaged,
    }
}

fn content_len(sector: &Sector) -> usize {
    usize::from(u16::from_le_bytes(number(sector, 12)))
}

/// The content of a sector of a group.
pub fn content(sector: &Sector) -> &[u8] {
    &sector[CONTENT_AT..CONTENT_AT + content_len(sector).min(CONTENT_BYTES)]
}

/// The first sector of a file. Its place and checksum are the same in every layout.
pub fn header(header: Header) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    let mut content = Vec::with_capacity(64);
    content.extend_from_slice(MAGIC);
    content.extend_from_slice(&LAYOUT.to_le_bytes());
    content.push(u8::from(header.home.role == Role::Snapshot));
    for value in [header.home.ledger, header.home.generation, header.sectors] {
        content.extend_from_slice(&value.to_le_bytes());
    }
    sector[CONTENT_AT..CONTENT_AT + content.len()].copy_from_slice(&content);
    finish(None, 0, MARK_GROUP, &mut sector);
    sector
}

/// Why a first sector is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// It is damaged, or none.
    Damaged,
    /// It is of another layout.
    Layout(u32),
}

/// Reads the first sector of a file.
pub fn read_header(sector: &Sector) -> Result<Header, HeaderError> {
    let sum = checksum(None, 0, sector).to_le_bytes();
    if sector[CONTENT_AT..CONTENT_AT + MAGIC.len()] != MAGIC[..] || number(sector, CHECKSUM_AT) != sum {
        return Err(HeaderError::Damaged);
    }
    let at = CONTENT_AT + MAGIC.len();
    let layout = u32::from_le_bytes(number(sector, at));
    if layout != LAYOUT {
        return Err(HeaderError::Layout(layout));
    }
    let role = match sector[at + 4] {
        0 => Role::Journal,
        1 => Role::Snapshot,
        _ => return Err(HeaderError::Damaged),
    };
    let value = |index: usize| u64::from_le_bytes(number(sector, at + 5 + 8 * index));
    Ok(Header { home: Home { ledger: value(0), generation: value(1), role }, sectors: value(2) })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The header of a file that a later version has written.
    pub fn header_of_layout(layout: u32) -> Sector {
        let home = Home { ledger: 1, generation: 1, role: Role::Snapshot };
        let mut sector = header(Header { home, sectors: 0 });
        sector[CONTENT_AT + MAGIC.len()..][..4].copy_from_slice(&layout.to_le_bytes());
        finish(None, 0, MARK_GROUP, &mut sector);
        sector
    }
}
