//! Room on the disk that the ledger has before it needs it: a file for the next snapshot, and one for the next journal.
//!
//! A snapshot and a journal are written over these files, and files that are needed no more become such. So a generation that
//! follows another takes no block of the disk that the ledger does not have already, whoever else fills the disk. A file system
//! that never overwrites a block (Btrfs, ZFS) may still refuse.
//!
//! Invariant: what is in such a file is nothing that anybody reads; a file with a second name, as a salvaged or copied one has,
//! becomes none.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, fallocate},
};
use tracing::debug;

use super::{
    entry,
    error::{StoreError, is_full},
    files::{self, Generations},
    sector::{Role, SECTOR_BYTES},
};

/// Bytes that a file keeps behind its end, beside as many as it has.
const KEPT_BYTES: u64 = 1 << 20;
/// Between two looks whether a disk that was full has room again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

fn path_of(dir: &Path, role: Role) -> PathBuf {
    dir.join(match role {
        Role::Journal => "room.journal",
        Role::Snapshot => "room.snapshot",
    })
}

/// Bytes that a file has on the disk, also behind its end; none when it is not there.
fn bytes_on_disk(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.blocks() * 512)
}

/// Bytes that the file to write under the name `unfinished` has on the disk before it is written.
pub fn bytes_for(dir: &Path, role: Role, unfinished: &Path) -> u64 {
    bytes_on_disk(&path_of(dir, role)).max(bytes_on_disk(unfinished))
}

/// The file to write under the name `unfinished`, with the room for its kind where there is some. It holds anything, and its writer ends
/// it by [`end_at`].
pub fn taken_for(dir: &Path, role: Role, unfinished: &Path) -> io::Result<File> {
    let room = path_of(dir, role);
    // One that was begun before, and broken off, has the room that it took.
    if bytes_on_disk(&room) > bytes_on_disk(unfinished) {
        fs::rename(&room, unfinished)?;
    }
    File::options().read(true).write(true).create(true).truncate(false).open(unfinished)
}

/// Ends a file that was written in its room at `bytes` bytes. It keeps room behind its end, as it becomes the room for a later one.
pub fn end_at(file: &File, bytes: u64) -> io::Result<()> {
    let found = file.metadata()?;
    if found.len() > bytes {
        file.set_len(bytes)?;
        let kept = (found.blocks() * 512).min(bytes.saturating_mul(2) + KEPT_BYTES);
        // What cannot be had again is missed at the next look.
        let _ = reserve(file, kept);
    }
    Ok(())
}

/// Makes the file at `path` the room for its kind where that has less, and removes it elsewhere.
pub fn give(dir: &Path, role: Role, path: &Path) -> Result<(), StoreError> {
    let room = path_of(dir, role);
    let given = fs::metadata(path).and_then(|given| {
        let is_more = bytes_on_disk(&room) < given.blocks() * 512;
        if given.nlink() == 1 && is_more { fs::rename(path, &room) } else { fs::remove_file(path) }
    });
    given.map_err(StoreError::disk(path))
}

/// Gives what the room for a kind has beyond `bytes` bytes back to the disk.
pub fn cut(dir: &Path, role: Role, bytes: u64) -> Result<(), StoreError> {
    let path = path_of(dir, role);
    let has = bytes_on_disk(&path);
    if has <= bytes {
        return Ok(());
    }
    let room = File::options().write(true).open(&path);
    // Only what is in front of the end of a file goes when it becomes shorter.
    room.and_then(|room| room.set_len(has).and_then(|()| room.set_len(bytes))).map_err(StoreError::disk(&path))
}

/// Sees to it that the room for a kind has `bytes` bytes on the disk, and tells how many it has: fewer on a disk that is full.
pub fn lay_out(dir: &Path, role: Role, bytes: u64) -> io::Result<u64> {
    let path = path_of(dir, role);
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
    let has = lay_out_file(&file, bytes)?;
    files::sync_directory(dir)?;
    Ok(has)
}

/// Sees to it that `file` has `bytes` bytes on the disk, and tells how many it has: fewer on a disk that is full.
pub fn lay_out_file(file: &File, bytes: u64) -> io::Result<u64> {
    if file.metadata()?.blocks() * 512 >= bytes {
        return Ok(bytes);
    }
    let reserved = match reserve(file, bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => write_zeros(file, file.metadata()?.len(), bytes),
        reserved => reserved,
    };
    file.sync_all()?;
    match reserved {
        // Some file systems do not count what they have reserved.
        Ok(()) => Ok(bytes),
        Err(error) if is_full(&error) => Ok(file.metadata()?.blocks() * 512),
        Err(error) => Err(error),
    }
}

/// Takes blocks of the disk for the first `bytes` bytes of a file, whose length and content stay.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = i64::try_from(bytes).unwrap_or(i64::MAX);
    loop {
        match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
            Err(Errno::EINTR) => {}
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            taken => return taken.map_err(io::Error::from),
        }
    }
}

fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; 64 << 10];
    let mut at = from;
    while at < to {
        let count = (to - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..usize::try_from(count).unwrap_or(zeros.len())], at)?;
        at += count;
    }
    Ok(())
}

/// Lays out the room for the next snapshot, and behind the end of the present one, which becomes the room for the one after that.
fn lay_out_two(dir: &Path, bytes: u64) -> io::Result<u64> {
    let next = lay_out(dir, Role::Snapshot, bytes)?;
    let generations = Generations::of(dir).map_err(io::Error::other)?;
    let Some(present) = generations.snapshots.last() else { return Ok(next) };
    let file = File::options().write(true).open(files::path_of(dir, *present, Role::Snapshot))?;
    let found = file.metadata()?;
    if found.blocks() * 512 >= bytes {
        return Ok(next);
    }
    match reserve(&file, bytes) {
        Err(error) if is_full(&error) => Ok(next.min(found.blocks() * 512)),
        // Where nothing can be reserved behind the end of a file, each snapshot has what is laid out for it alone.
        _ => Ok(next),
    }
}

/// Bytes that the next snapshot may need, and those that are reserved.
pub struct Room {
    /// Sectors of the snapshot that the journal in use goes on from; while a compaction makes it, at most so many.
    snapshot_sectors: u64,
    /// Sectors that the values of the journal in use take in a snapshot.
    journal_sectors: u64,
    /// Bytes beyond what is needed now, and those of a journal.
    ahead_bytes: u64,
    /// Bytes that are laid out for a snapshot.
    has_bytes: u64,
    has_journal: bool,
    /// Whether the last look has found the room.
    was_there: bool,
    /// Time of a look that found the disk full.
    found_full: Option<Instant>,
}

impl Room {
    /// Lays out what the next snapshot needs in the directory of a ledger whose present one has so many sectors; `ahead_bytes` are those of
    /// its first journal. The next journal is being made, and leaves the rest to a later look.
    pub fn begin(dir: &Path, snapshot_sectors: u64, ahead_bytes: u64) -> Room {
        let mut room = Room {
            snapshot_sectors,
            journal_sectors: 0,
            ahead_bytes,
            has_bytes: 0,
            has_journal: true,
            was_there: false,
            found_full: None,
        };
        room.lay_out_for_snapshot(dir);
        room.was_there = room.is_there();
        room
    }

    /// Whether all that the next generation may need was there at the last look.
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    /// Takes note of a group in the journal in use.
    pub fn add_group(&mut self, content: &[u8]) {
        self.journal_sectors += entry::sectors_in_snapshot(content);
    }

    /// Another journal is in use, and the one before is being compacted.
    pub fn begin_journal(&mut self) {
        self.snapshot_sectors += self.journal_sectors;
        self.journal_sectors = 0;
    }

    /// The disk was too full for a compaction.
    pub fn note_full(&mut self) {
        self.was_there = false;
    }

    /// Room was used: for a snapshot of so many sectors, if a compaction has made one, and for a journal.
    pub fn use_up(&mut self, snapshot_sectors: Option<u64>) {
        self.snapshot_sectors = snapshot_sectors.unwrap_or(self.snapshot_sectors);
        (self.has_bytes, self.has_journal) = (0, false);
    }

    fn needed_bytes(&self) -> u64 {
        (self.snapshot_sectors + self.journal_sectors) * SECTOR_BYTES as u64 + self.ahead_bytes
    }

    fn is_there(&self) -> bool {
        self.has_journal && self.has_bytes >= self.needed_bytes()
    }

    /// Lays out what is missing. After a look that has found the disk full, the next one is [`LOOK_EVERY`] later.
    pub fn lay_out(&mut self, dir: &Path) -> bool {
        let is_due = self.found_full.is_none_or(|found| found.elapsed() >= LOOK_EVERY);
        if !self.is_there() && is_due {
            self.lay_out_for_snapshot(dir);
            let journal = lay_out(dir, Role::Journal, self.ahead_bytes);
            self.has_journal = journal.is_ok_and(|has| has >= self.ahead_bytes);
            self.found_full = (!self.is_there()).then(Instant::now);
        }
        self.was_there = self.is_there();
        self.was_there
    }

    fn lay_out_for_snapshot(&mut self, dir: &Path) {
        // More than is needed, so that it is not done at every write; as much as there is, when the disk is full.
        for bytes in [self.needed_bytes() + self.ahead_bytes, self.needed_bytes()] {
            match lay_out_two(dir, bytes) {
                Ok(has) => self.has_bytes = has,
                Err(error) => {
                    debug!(%error, "the room for the next snapshot cannot be laid out");
                    self.has_bytes = 0;
                }
            }
            if self.has_bytes >= bytes {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_in_its_room_and_becomes_room_again() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        assert_eq!(lay_out(dir, Role::Snapshot, 100_000).unwrap(), 100_000);
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let laid_out = inode(&path_of(dir, Role::Snapshot));
        let [unfinished, whole] = ["snapshot.1.new", "snapshot.1"].map(|name| dir.join(name));
        let file = taken_for(dir, Role::Snapshot, &unfinished).unwrap();
        assert_eq!(inode(&unfinished), laid_out);
        file.write_all_at(&[1; 4000], 0).unwrap();
        end_at(&file, 3000).unwrap();
        assert!(file.metadata().unwrap().len() == 3000 && bytes_on_disk(&unfinished) >= 100_000);
        fs::rename(&unfinished, &whole).unwrap();
        give(dir, Role::Snapshot, &whole).unwrap();
        assert_eq!(inode(&path_of(dir, Role::Snapshot)), laid_out);
    }

    #[test]
    fn what_is_cut_goes_back_to_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        lay_out(directory.path(), Role::Snapshot, 100_000).unwrap();
        cut(directory.path(), Role::Snapshot, 8192).unwrap();
        assert_eq!(bytes_on_disk(&path_of(directory.path(), Role::Snapshot)), 8192);
    }

    #[test]
    fn a_file_with_a_second_name_becomes_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let [path, kept] = ["journal.1", "kept"].map(|name| directory.path().join(name));
        fs::write(&path, "promises").unwrap();
        fs::hard_link(&path, &kept).unwrap();
        give(directory.path(), Role::Journal, &path).unwrap();
        assert!(!path.exists() && !path_of(directory.path(), Role::Journal).exists());
        assert_eq!(fs::read_to_string(&kept).unwrap(), "promises");
    }
}
