//! The site's end of a stream of files.
//!
//! Invariant: what a site keeps of the files of a reservation goes with the reservation.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use broker::{ids::RequestId, trust::PublicKey};
use data_encoding::HEXLOWER;
use nix::unistd::{Gid, Uid};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task,
};

use super::{
    manifest::{ChunkHash, Manifest},
    order::Patterns,
    store::{ChunkStore, StoreError},
    transfer::{Transfer, TransferError},
    tree::{Others, Tree, TreeError},
};
use crate::removal::remove_tree;

/// The directory of a seat, and whom its files belong to when that is not this process's user.
#[derive(Debug)]
pub struct SeatFiles {
    /// Where it is.
    pub scratch: PathBuf,
    /// Whose its files are.
    pub owner: Option<(Uid, Gid)>,
}

impl SeatFiles {
    fn tree(&self) -> io::Result<Tree> {
        Tree::of_seat(&self.scratch, self.owner)
    }
}

/// What is to be done with files, once it is known that the user may.
#[derive(Debug)]
pub enum Work {
    /// The site keeps them.
    Keep {
        /// In this store.
        store: PathBuf,
        /// What they must be.
        manifest: ChunkHash,
    },
    /// They are put into the directory of a seat.
    Put {
        /// By way of this store.
        store: PathBuf,
        /// What they must be.
        manifest: ChunkHash,
        /// Into which one.
        seat: SeatFiles,
        /// Below this one of its directories.
        directory: String,
    },
    /// They are given to the user.
    Get {
        /// From here.
        seat: SeatFiles,
        /// Those with such names.
        patterns: Patterns,
    },
}

/// Does it over `stream`.
///
/// # Errors
/// [`TransferError`]; the user was told.
pub async fn serve(stream: impl AsyncRead + AsyncWrite, work: &Work) -> Result<(), TransferError> {
    let mut transfer = Transfer::over(stream);
    let done = match work {
        Work::Keep { store, manifest } => keep(&mut transfer, store, manifest).await.map(drop),
        Work::Put { store, manifest, seat, directory } => put(&mut transfer, (store, manifest), seat, directory).await,
        Work::Get { seat, patterns } => get(&mut transfer, seat, patterns).await,
    };
    let done = match (done, work) {
        (Ok(()), Work::Keep { .. } | Work::Put { .. }) => transfer.done().await,
        (done, _) => done,
    };
    transfer.settle(done).await
}

fn here(error: impl std::fmt::Display) -> TransferError {
    TransferError::Here(error.to_string())
}

async fn keep<S: AsyncRead + AsyncWrite>(
    transfer: &mut Transfer<S>,
    store: &Path,
    wanted: &ChunkHash,
) -> Result<(Manifest, ChunkStore), TransferError> {
    let manifest = transfer.manifest().await?;
    let bytes = manifest.encode()?;
    if ChunkHash::of(&bytes) != *wanted {
        return Err(TransferError::Order("gives other files than were ordered"));
    }
    let mut store = task::block_in_place(|| ChunkStore::open(store)).map_err(here)?;
    transfer.take(&manifest, &mut store).await?;
    task::block_in_place(|| store.put(wanted, &bytes)).map_err(here)?;
    Ok((manifest, store))
}

async fn put<S: AsyncRead + AsyncWrite>(
    transfer: &mut Transfer<S>,
    (store, wanted): (&Path, &ChunkHash),
    seat: &SeatFiles,
    directory: &str,
) -> Result<(), TransferError> {
    let (manifest, store) = keep(transfer, store, wanted).await?;
    task::block_in_place(|| seat.tree().map_err(here)?.write(directory, &manifest, &store).map_err(here))
}

async fn get<S: AsyncRead + AsyncWrite>(
    transfer: &mut Transfer<S>,
    seat: &SeatFiles,
    patterns: &Patterns,
) -> Result<(), TransferError> {
    let tree = Arc::new(seat.tree().map_err(here)?);
    // Whoever reads sees that it is gone when this is left, however that comes about.
    let waits = Arc::new(());
    let (read, patterns, waiting) = (Arc::clone(&tree), patterns.clone(), Arc::downgrade(&waits));
    let read = task::spawn_blocking(move || {
        let is_wanted = |path: &str| super::manifest::check_path(path).is_ok() && patterns.match_path(path);
        read.manifest(is_wanted, Others::LeftOut, || waiting.strong_count() == 0)
    });
    let manifest = tokio::select! {
        read = read => read.map_err(here)?.map_err(here)?,
        gone = transfer.gone() => return Err(gone),
    };
    transfer
        .give(&manifest, |entry, chunk| {
            tree.piece(&entry.path, chunk.offset, chunk.bytes).map_err(|error| error.to_string())
        })
        .await
}

/// Puts the files that a run was ordered with into its new directory; how long another site may take for them.
///
/// # Errors
/// When they are not at the site, or cannot be written.
pub fn place(store: &Path, manifest: &ChunkHash, tree: &Tree) -> Result<Duration, TreeError> {
    let store = ChunkStore::open(store)?;
    let manifest = Manifest::read(&store.read(manifest)?)?;
    tree.write("", &manifest, &store)?;
    Ok(manifest.placing())
}

/// The stores of all reservations.
#[derive(Debug, Clone)]
pub struct Stores(PathBuf);

impl Stores {
    /// Those in this directory.
    pub fn at(root: &Path) -> Stores {
        Stores(root.to_owned())
    }

    /// That of a reservation.
    pub fn of(&self, user: &PublicKey, request: &RequestId) -> PathBuf {
        let name = Sha256::new().chain_update(user.as_bytes()).chain_update(request.as_str()).finalize();
        self.0.join(HEXLOWER.encode(&name[..16]))
    }

    /// Whether the files with this manifest are all there.
    pub fn has(&self, user: &PublicKey, request: &RequestId, manifest: &ChunkHash) -> bool {
        let found = || -> Result<bool, StoreError> {
            let store = ChunkStore::open(&self.of(user, request))?;
            let manifest = Manifest::read(&store.read(manifest)?).map_err(|_| StoreError::Missing)?;
            Ok(manifest.chunks().iter().all(|chunk| store.has(&chunk.hash)))
        };
        found().unwrap_or(false)
    }

    /// Removes all stores but these.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn keep_only(&self, these: &BTreeSet<PathBuf>) -> io::Result<()> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if !these.contains(&path) {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use broker::trust::testing;
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn files_go_to_a_seat_and_come_back_and_the_store_goes_with_the_reservation() {
        let directory = tempfile::tempdir().unwrap();
        let [from, scratch] = ["from", "scratch"].map(|name| directory.path().join(name));
        [&from, &scratch].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        fs::write(from.join("a"), "x").unwrap();
        let tree = Tree::of_user(&from).unwrap();
        let manifest = tree.manifest(|_| true, Others::Refused, || false).unwrap();
        let hash = ChunkHash::of(&manifest.encode().unwrap());
        let stores = Stores::at(&directory.path().join("stores"));
        let (user, request) = (testing::public(1), RequestId::new("r").unwrap());
        let store = stores.of(&user, &request);
        assert!(!stores.has(&user, &request, &hash));
        let piece = |entry: &super::super::manifest::FileEntry, chunk: &super::super::manifest::Chunk| {
            tree.piece(&entry.path, chunk.offset, chunk.bytes).map_err(|error| error.to_string())
        };
        let seat = || SeatFiles { scratch: scratch.clone(), owner: None };
        let other = Work::Keep { store: store.clone(), manifest: ChunkHash::of(b"other") };
        let put = Work::Put { store, manifest: hash, seat: seat(), directory: "d".to_owned() };
        for (work, is_good) in [(other, false), (put, true)] {
            let (mine, site) = duplex(1 << 16);
            let mut giver = Transfer::over(mine);
            let (given, served) = tokio::join!(giver.give(&manifest, piece), serve(site, &work));
            assert_eq!((given.is_ok(), served.is_ok()), (is_good, is_good), "{given:?} {served:?}");
        }
        assert_eq!(fs::read_to_string(scratch.join("d/a")).unwrap(), "x");
        assert!(stores.has(&user, &request, &hash));

        let get = Work::Get { seat: seat(), patterns: Patterns::of(&["d".to_owned()]).unwrap() };
        let (mine, site) = duplex(1 << 16);
        let taking = async {
            let mut taker = Transfer::over(mine);
            let manifest = taker.manifest().await?;
            taker.take(&manifest, &mut ChunkStore::open(&directory.path().join("back")).unwrap()).await?;
            taker.done().await?;
            Ok::<_, TransferError>(manifest)
        };
        let (taken, served) = tokio::join!(taking, serve(site, &get));
        served.unwrap();
        assert_eq!(taken.unwrap().files[0].path, "d/a");

        stores.keep_only(&BTreeSet::from([stores.of(&user, &request)])).unwrap();
        assert!(stores.has(&user, &request, &hash));
        stores.keep_only(&BTreeSet::new()).unwrap();
        assert!(!stores.has(&user, &request, &hash));
        assert!(!stores.of(&testing::public(2), &request).exists());
    }
}
