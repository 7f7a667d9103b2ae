//! Frees what ended runs have left on a site's disk, for an owner whose node does not run.
//!
//! Invariant: what has not ended, or may not have, keeps all that it has; a seat remembers the numbers of its runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    directory::RunDirectory,
    files::serve::Stores,
    keepers::{self, RunError, RunId, system},
    removal::remove_tree,
};

/// Most files of a run that are counted; a run with more is told smaller than it is.
const COUNTED_MAX: usize = 100_000;

/// A run that has ended.
#[derive(Debug)]
pub struct EndedRun {
    pub id: RunId,
    /// Bytes on the disk of its outputs and of its scratch directory.
    pub bytes: u64,
    directory: RunDirectory,
}

/// The files that a user has sent for a reservation no run of which goes on.
#[derive(Debug)]
pub struct SentFiles {
    pub id: RunId,
    pub bytes: u64,
    path: PathBuf,
}

/// Outputs and files of ended runs.
#[derive(Debug, Default)]
pub struct Leavings {
    pub runs: Vec<EndedRun>,
    pub files: Vec<SentFiles>,
}

/// Bytes that were freed, and paths that could not be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub bytes: u64,
    /// Directories that are still there.
    pub left: Vec<PathBuf>,
}

impl Leavings {
    /// Finds the outputs of ended runs in `runs`, and the files that their users have sent in `files`.
    ///
    /// # Errors
    /// When the runs cannot be listed.
    pub fn find(runs: &Path, files: &Path) -> Result<Leavings, RunError> {
        let stores = Stores::at(files);
        let (mut found, mut going_on, mut ended) = (Leavings::default(), BTreeSet::new(), BTreeMap::new());
        for directory in directories(runs)? {
            // What cannot be read may go on.
            let Ok(task) = directory.task() else { continue };
            let id = RunId::of(&task);
            let store = stores.of(&id.user, &id.request);
            if directory.is_over() {
                let bytes =
                    bytes_of(directory.path()) + directory.scratch().ok().flatten().map_or(0, |at| bytes_of(&at));
                ended.insert(store, id.clone());
                found.runs.push(EndedRun { id, bytes, directory });
            } else {
                going_on.insert(store);
            }
        }
        let files = ended.into_iter().filter(|(path, _)| !going_on.contains(path) && path.is_dir());
        found.files = files.map(|(path, id)| SentFiles { bytes: bytes_of(&path), id, path }).collect();
        found.runs.sort_by_key(|run| std::cmp::Reverse(run.bytes));
        Ok(found)
    }

    /// Bytes on the disk of all of it.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).chain(self.files.iter().map(|files| files.bytes)).sum()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.files.is_empty()
    }

    /// Removes it.
    pub fn free(self) -> Freed {
        let mut freed = Freed::default();
        let mut note = |is_gone: bool, bytes: u64, path: &Path| {
            if is_gone { freed.bytes += bytes } else { freed.left.push(path.to_owned()) }
        };
        for EndedRun { bytes, directory, .. } in self.runs {
            // One whose keeper was killed may have left processes.
            let is_gone = keepers::end_rest(&directory) && keepers::forget(&directory);
            note(is_gone, bytes, directory.path());
        }
        for SentFiles { bytes, path, .. } in self.files {
            note(remove_tree(&path).is_ok(), bytes, &path);
        }
        freed
    }
}

fn directories(runs: &Path) -> Result<Vec<RunDirectory>, RunError> {
    let seats = match fs::read_dir(runs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        seats => seats.map_err(system("the runs cannot be listed"))?,
    };
    let of_seat = |seat: io::Result<fs::DirEntry>| fs::read_dir(seat.ok()?.path()).ok();
    let found = seats.filter_map(of_seat).flatten().filter_map(|run| Some(RunDirectory::at(&run.ok()?.path())));
    Ok(found.filter(RunDirectory::is_there).collect())
}

/// Bytes on the disk of a directory with all that is in it; of links, not of what they lead to.
fn bytes_of(root: &Path) -> u64 {
    let (mut bytes, mut counted, mut open) = (0, 0, vec![root.to_owned()]);
    while let Some(entries) = open.pop().and_then(|directory| fs::read_dir(directory).ok()) {
        for entry in entries.flatten() {
            counted += 1;
            let Ok(found) = entry.metadata() else { continue };
            bytes += found.blocks() * 512;
            if found.is_dir() && counted < COUNTED_MAX {
                open.push(entry.path());
            }
        }
    }
    bytes
}
