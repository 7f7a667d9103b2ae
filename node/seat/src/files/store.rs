//! Where a site keeps pieces of files: a directory with a file for each, named by its hash.
//!
//! Invariants: what is read is what its hash says; the store takes no more than its bound, and leaves the disk room.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
};

use data_encoding::HEXLOWER;
use kolo_runtime::lock::locked;
use kolo_trust::{TrustFileError, files, random_bytes};

use super::manifest::ChunkHash;
use crate::disk::bytes_beside_beginnings;

/// Most bytes of one store.
pub const STORE_BYTES_MAX: u64 = 16 << 30;

/// Bytes that a store may still take, for all that have it open.
type Room = Mutex<u64>;

/// The rooms of the stores that this process has open: streams that fill one together have one bound.
static ROOMS: Mutex<BTreeMap<PathBuf, Weak<Room>>> = Mutex::new(BTreeMap::new());

/// Pieces on disk.
#[derive(Debug)]
pub struct ChunkStore {
    directory: PathBuf,
    room: Arc<Room>,
}

/// Why a piece cannot be kept or given.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is something else.
    #[error("a piece is not what its hash says")]
    Other,
    /// The store has as much as it may.
    #[error("the site keeps at most {} MiB of the files of a reservation", STORE_BYTES_MAX >> 20)]
    Full,
    /// Users have no room on the disk.
    #[error("the disk of the site has no room for it: users leave a part of it free")]
    DiskFull,
    /// It is not there.
    #[error("a piece is not there any more; send the files again")]
    Missing,
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] TrustFileError),
    /// The disk refuses.
    #[error("the pieces of files: {0}")]
    Disk(#[from] io::Error),
}

impl ChunkStore {
    /// The store in this directory, which is made when it is not there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(directory: &Path) -> Result<ChunkStore, StoreError> {
        files::open_directory(directory)?;
        let mut rooms = locked(&ROOMS);
        if let Some(room) = rooms.get(directory).and_then(Weak::upgrade) {
            return Ok(ChunkStore { directory: directory.to_owned(), room });
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let mut taken = 0_u64;
        for entry in fs::read_dir(directory)? {
            // One that is gone again takes nothing.
            taken = taken.saturating_add(entry?.metadata().map_or(0, |found| found.len()));
        }
        let room = Arc::new(Mutex::new(STORE_BYTES_MAX.saturating_sub(taken)));
        rooms.insert(directory.to_owned(), Arc::downgrade(&room));
        Ok(ChunkStore { directory: directory.to_owned(), room })
    }

    /// Whether the piece is there.
    pub fn has(&self, hash: &ChunkHash) -> bool {
        self.file(hash).is_file()
    }

    /// Whether so many bytes more would be taken.
    ///
    /// # Errors
    /// [`StoreError::Full`] or [`StoreError::DiskFull`].
    pub fn has_room_for(&self, bytes: u64) -> Result<(), StoreError> {
        if bytes > *locked(&self.room) {
            return Err(StoreError::Full);
        }
        if bytes > bytes_beside_beginnings(fs::File::open(&self.directory)?)? {
            Err(StoreError::DiskFull)
        } else {
            Ok(())
        }
    }

    /// Keeps a piece.
    ///
    /// # Errors
    /// [`StoreError::Other`] when it is something else, and those of the disk.
    pub fn put(&mut self, hash: &ChunkHash, bytes: &[u8]) -> Result<(), StoreError> {
        if ChunkHash::of(bytes) != *hash {
            return Err(StoreError::Other);
        }
        let length = bytes.len() as u64;
        if self.has(hash) {
            return Ok(());
        }
        self.has_room_for(length)?;
        // Others may bring the same piece, or take the room, at the same time.
        let mut room = locked(&self.room);
        if self.has(hash) {
            return Ok(());
        }
        let left = room.checked_sub(length).ok_or(StoreError::Full)?;
        self.write(hash, bytes)?;
        *room = left;
        Ok(())
    }

    fn write(&self, hash: &ChunkHash, bytes: &[u8]) -> Result<(), StoreError> {
        let new = self.directory.join(format!("new-{}", HEXLOWER.encode(&random_bytes::<8>()?)));
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, self.file(hash)));
        if written.is_err() {
            // A disk that is full keeps no half of it. What cannot be removed goes with the store.
            let _ = fs::remove_file(&new);
        }
        Ok(written?)
    }

    /// A piece. One that is damaged is forgotten, so that it is sent again.
    ///
    /// # Errors
    /// [`StoreError::Missing`], and those of the disk.
    pub fn read(&self, hash: &ChunkHash) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        match fs::File::open(self.file(hash)) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(StoreError::Missing),
            Err(error) => return Err(error.into()),
        };
        if ChunkHash::of(&bytes) == *hash {
            return Ok(bytes);
        }
        self.forget_damaged(hash)?;
        Err(StoreError::Missing)
    }

    /// Removes a piece, unless it is gone, or was brought anew, since it was found damaged.
    fn forget_damaged(&self, hash: &ChunkHash) -> Result<(), StoreError> {
        let mut room = locked(&self.room);
        let bytes = match fs::read(self.file(hash)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if ChunkHash::of(&bytes) != *hash {
            fs::remove_file(self.file(hash))?;
            *room = (*room + bytes.len() as u64).min(STORE_BYTES_MAX);
        }
        Ok(())
    }

    fn file(&self, hash: &ChunkHash) -> PathBuf {
        self.directory.join(hash.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_what_its_hash_says_or_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = ChunkStore::open(&directory.path().join("s")).unwrap();
        let hash = ChunkHash::of(b"x");
        assert!(matches!(store.put(&hash, b"y"), Err(StoreError::Other)) && !store.has(&hash));
        assert!(matches!(store.read(&hash), Err(StoreError::Missing)));
        store.put(&hash, b"x").unwrap();
        let store = ChunkStore::open(&directory.path().join("s")).unwrap();
        assert_eq!((store.read(&hash).unwrap(), *locked(&store.room)), (b"x".to_vec(), STORE_BYTES_MAX - 1));
        fs::write(store.file(&hash), b"y").unwrap();
        assert!(matches!(store.read(&hash), Err(StoreError::Missing)) && !store.has(&hash));
        assert_eq!(*locked(&store.room), STORE_BYTES_MAX);
        fs::write(store.file(&hash), b"damaged").unwrap();
        assert!(matches!(store.read(&hash), Err(StoreError::Missing)) && !store.has(&hash));
        assert!(
            matches!(store.has_room_for(STORE_BYTES_MAX + 1), Err(StoreError::Full)),
            "no more than there ever was"
        );
    }

    #[test]
    fn those_who_fill_a_store_together_have_one_room() {
        let directory = tempfile::tempdir().unwrap();
        let open = || ChunkStore::open(&directory.path().join("s")).unwrap();
        let (mut first, mut second) = (open(), open());
        *locked(&first.room) = 3;
        first.put(&ChunkHash::of(b"ab"), b"ab").unwrap();
        assert!(matches!(second.put(&ChunkHash::of(b"cd"), b"cd"), Err(StoreError::Full)));
        second.put(&ChunkHash::of(b"e"), b"e").unwrap();
        second.put(&ChunkHash::of(b"ab"), b"ab").unwrap();
        assert!(matches!(first.has_room_for(1), Err(StoreError::Full)));
        drop((first, second));
        assert_eq!(*locked(&open().room), STORE_BYTES_MAX - 3, "counted anew when nobody has it open");
    }
}
