//! Appends groups to a journal: a file of fixed size, filled with zeros before its first group.
//!
//! A group costs one write and one `fdatasync`; since the file neither grows nor moves, the file system has nothing of
//! its own to write. After a failure nothing is written any more: what a failed sync has left on disk is unknown, and a second
//! sync that succeeds proves nothing.
//!
//! Invariant: sectors of a group that was synced are never written again. The place behind the last group may hold a
//! seal, which the next group replaces.

use std::{fs::File, io, os::unix::fs::FileExt};

use super::sector::{self, Home, SECTOR_BYTES};

/// What a journal is written to.
pub trait Medium: Send {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all that was written is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Medium for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

pub struct Journal {
    medium: Box<dyn Medium>,
    home: Home,
    sectors: u64,
    position: u64,
    group: u64,
    is_failed: bool,
    buffer: Vec<u8>,
}

impl Journal {
    /// A journal whose header and zeros are on `medium` already; `sectors` with the header.
    pub fn new(medium: Box<dyn Medium>, home: Home, sectors: u64) -> Journal {
        Journal { medium, home, sectors, position: 1, group: 1, is_failed: false, buffer: Vec::new() }
    }

    /// Whether a group of this size has a place, with one left for the group that closes the journal.
    pub fn has_room_for(&self, content_bytes: usize) -> bool {
        self.position + sector::sectors_of(content_bytes) < self.sectors
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES as u64
    }

    /// Writes a group; it is on disk when this returns. The caller has asked [`Journal::has_room_for`].
    ///
    /// # Errors
    /// What the system says; nothing can be written afterwards.
    pub fn append(&mut self, content: &[u8]) -> io::Result<()> {
        let count = sector::sectors_of(content.len());
        self.buffer.clear();
        sector::push_group(self.home, self.position, self.group, content, &mut self.buffer);
        self.write(true)?;
        self.position += count;
        self.group += 1;
        Ok(())
    }

    /// Says behind the last group that it is on disk. Whether this is on disk as well, only `now` makes sure of.
    ///
    /// # Errors
    /// What the system says; nothing can be written afterwards.
    pub fn seal(&mut self, now: bool) -> io::Result<()> {
        if self.position >= self.sectors {
            return Ok(());
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&sector::seal(self.home, self.position, self.group));
        self.write(now)
    }

    fn write(&mut self, sync: bool) -> io::Result<()> {
        if self.is_failed || self.position + (self.buffer.len() / SECTOR_BYTES) as u64 > self.sectors {
            return Err(io::Error::other("the journal is full, or failed before"));
        }
        let written = self.medium.write_at(&self.buffer, self.position * SECTOR_BYTES as u64);
        let result = written.and_then(|()| if sync { self.medium.sync() } else { Ok(()) });
        self.is_failed = result.is_err();
        result
    }
}
