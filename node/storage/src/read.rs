//! Reads a file of the ledger from beginning to end, and judges its last write.
//!
//! A group is acknowledged only after it was synced, and the next one is written only then. So every group with a later one
//! or a seal behind it was acknowledged and must be whole. Only the last write may be incomplete, and only in the ways of a power
//! cut: each of its sectors is there, or not written, or not written to its end. Such a write was never acknowledged and is
//! dropped. Everything else is damage.
//!
//! What cannot be distinguished: a last group that was acknowledged, of which the disk later loses a whole sector to zeros before
//! its seal has reached it, looks like one that was never written. Seals make that gap short: they are written
//! directly behind every group that nothing follows, and reach the disk with the next sync or the kernel's next write-back.
//!
//! Invariant: what [`GroupReader::next_group`] returned until it ended with `Ok(None)` is everything that was acknowledged.

use std::io::{self, Read};

use super::sector::{self, Header, HeaderError, Home, Kind, Role, SECTOR_BYTES, Sector};

/// Largest group that is read; a larger one cannot have been written.
pub const GROUP_BYTES_MAX: usize = 64 << 20;

/// Why a file does not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Written by another version.
    #[error("it has layout {0}")]
    Layout(u32),
    /// It is not what was written.
    #[error("sector {sector}: {detail}")]
    Damaged { sector: u64, detail: &'static str },
}

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tail {
    /// A seal says that the last group was acknowledged.
    pub is_sealed: bool,
    /// The last write was cut off, and dropped.
    pub is_torn: bool,
}

#[derive(Debug)]
/// A file of groups that is read one group after the other.
pub struct GroupReader<R> {
    source: R,
    header: Header,
    position: u64,
    group: u64,
    tail: Option<Tail>,
}

impl<R: Read> GroupReader<R> {
    /// Reads the first sector.
    ///
    /// # Errors
    /// [`ReadError`] when it is not that of a ledger's file in this layout.
    pub fn open(mut source: R) -> Result<GroupReader<R>, ReadError> {
        let damaged = |detail| ReadError::Damaged { sector: 0, detail };
        let first = read_sector(&mut source, 0)?.ok_or(damaged("the file is empty"))?;
        let header = sector::read_header(&first).map_err(|error| match error {
            HeaderError::Damaged => damaged("the header does not check out"),
            HeaderError::Layout(layout) => ReadError::Layout(layout),
        })?;
        Ok(GroupReader { source, header, position: 1, group: 1, tail: None })
    }

    /// Where the file says it belongs.
    pub fn home(&self) -> Home {
        self.header.home
    }

    /// How the file ended; none before [`GroupReader::next_group`] has returned `Ok(None)`.
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// Groups read.
    pub fn groups(&self) -> u64 {
        self.group - 1
    }

    /// The content of the next group; none behind the last one.
    pub fn next_group(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let mut content = Vec::new();
        for expected in 0..=u32::MAX {
            let Some(sector) = self.next_sector()? else {
                if expected == 0 {
                    self.tail = Some(Tail::default());
                    return Ok(None);
                }
                return Err(self.damaged("the file ends inside of a write"));
            };
            match sector::classify(self.header.home, self.position, &sector) {
                Kind::Group { group, index, is_last } if group == self.group && index == expected => {
                    content.extend_from_slice(sector::content(&sector));
                    if content.len() > GROUP_BYTES_MAX {
                        return Err(self.damaged("a write is larger than any can be"));
                    }
                    self.position += 1;
                    if is_last {
                        self.group += 1;
                        return Ok(Some(content));
                    }
                }
                kind => {
                    self.tail = Some(self.judge_tail(expected, kind)?);
                    return Ok(None);
                }
            }
        }
        Err(self.damaged("a write has more sectors than any can have"))
    }

    fn damaged(&self, detail: &'static str) -> ReadError {
        ReadError::Damaged { sector: self.position, detail }
    }

    /// The sector at the present position; none where the file ends as it must.
    fn next_sector(&mut self) -> Result<Option<Sector>, ReadError> {
        let found = read_sector(&mut self.source, self.position)?;
        let is_journal = self.header.home.role == Role::Journal;
        if is_journal && found.is_none() != (self.position >= self.header.sectors) {
            return Err(self.damaged("the file is shorter or longer than when it was made"));
        }
        Ok(found)
    }

    /// Reads on to the end of the file, from the first sector (of number `index` in its group) that does not belong to a
    /// whole group, and checks that a power cut during one write explains everything.
    fn judge_tail(&mut self, index: u32, first: Kind) -> Result<Tail, ReadError> {
        if self.header.home.role == Role::Snapshot {
            return Err(self.damaged("it is not what was written"));
        }
        let mut tail = Tail { is_sealed: false, is_torn: index > 0 };
        let (mut index, mut kind, mut ended) = (index, first, false);
        loop {
            match kind {
                Kind::Blank => {}
                Kind::Unfinished if !ended => tail.is_torn = true,
                Kind::Seal(group) if index == 0 && group == self.group => tail.is_sealed = true,
                // A seal is not acknowledged, and is only where the next group goes.
                Kind::BrokenSeal if index == 0 => tail.is_torn = true,
                Kind::Group { group, index: found, is_last } if !ended && group == self.group && found == index => {
                    tail.is_torn = true;
                    ended = is_last;
                }
                Kind::Group { .. } | Kind::Seal(_) => {
                    return Err(self.damaged("a later write is there, but an earlier one is not whole"));
                }
                Kind::Unfinished | Kind::BrokenSeal | Kind::Damaged => {
                    return Err(self.damaged("it is not what was written"));
                }
            }
            self.position += 1;
            index = index.saturating_add(1);
            let Some(sector) = self.next_sector()? else { return Ok(tail) };
            kind = sector::classify(self.header.home, self.position, &sector);
        }
    }
}

/// Every group of a file that is whole, whatever the rest of the file looks like, and the number of sectors that were
/// written and are in none of them.
pub fn whole_groups(home: Home, bytes: &[u8]) -> (Vec<Vec<u8>>, u64) {
    let (mut groups, mut lost) = (Vec::new(), 0);
    // Of the group that is being put together: its number, the next index, its content.
    let mut begun: Option<(u64, u32, Vec<u8>)> = None;
    let (sectors, rest) = bytes.as_chunks::<SECTOR_BYTES>();
    for (position, sector) in (0_u64..).zip(sectors).skip(1) {
        let kind = sector::classify(home, position, sector);
        let expected = begun.as_ref().map(|(group, next, _)| (*group, *next));
        match kind {
            Kind::Group { group, index, is_last } if index == 0 || expected == Some((group, index)) => {
                if index == 0 {
                    lost += begun.take().map_or(0, |(_, sectors, _)| u64::from(sectors));
                }
                let (_, next, mut content) = begun.take().unwrap_or((group, 0, Vec::new()));
                content.extend_from_slice(sector::content(sector));
                if is_last {
                    groups.push(content);
                } else {
                    begun = Some((group, next.saturating_add(1), content));
                }
            }
            Kind::Blank | Kind::Seal(_) => {}
            Kind::Group { .. } | Kind::Unfinished | Kind::BrokenSeal | Kind::Damaged => {
                lost += 1 + begun.take().map_or(0, |(_, sectors, _)| u64::from(sectors));
            }
        }
    }
    (groups, lost + u64::from(!rest.is_empty()) + begun.map_or(0, |(_, sectors, _)| u64::from(sectors)))
}

/// The next sector; none at the end.
fn read_sector(source: &mut impl Read, position: u64) -> Result<Option<Sector>, ReadError> {
    let mut sector = [0; SECTOR_BYTES];
    let mut filled = 0;
    while filled < SECTOR_BYTES {
        match source.read(&mut sector[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(ReadError::Damaged { sector: position, detail: "the file ends inside of a sector" }),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(sector))
}
