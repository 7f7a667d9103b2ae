//! Puts a backup into an empty data directory.
//!
//! Invariant: every file is what was saved, by its hash, and the ledger is one that a start accepts and that of the key beside it; else the
//! directory is as it was before.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt as _,
    path::{Component, Path, PathBuf},
};

use discovery::Identity;

use super::{
    backup::{
        BackupError, FILE_BYTES_MAX, FILES_MAX, MAGIC, MANIFEST_BYTES_MAX, Manifest, SavedFile, disk, make_directory,
    },
    data_dir::{IDENTITY_FILE, LEDGER_DIR},
    files::{parent_of, sync_directory},
    inspect::{Inspection, Summary, look_unlocked},
};

/// Result of a restoration.
#[derive(Debug)]
pub struct Restored {
    pub manifest: Manifest,
    /// Counts of the ledger's contents.
    pub ledger: Summary,
}

/// Restores a backup into `data_dir`, which is empty or not there.
///
/// # Errors
/// [`BackupError`]; nothing was restored then.
pub fn restore(file: &Path, data_dir: &Path) -> Result<Restored, BackupError> {
    let mut backup = File::open(file).map_err(disk(file))?;
    let manifest = read_manifest(&mut backup, file)?;
    let was_there = data_dir.try_exists().map_err(disk(data_dir))?;
    if was_there && fs::read_dir(data_dir).map_err(disk(data_dir))?.next().is_some() {
        let detail = "it is not empty; name a directory that is, or is not there".to_owned();
        return Err(BackupError::Unfit { path: data_dir.to_owned(), detail });
    }
    make_directory(data_dir)?;
    let restored = restore_files(&mut backup, file, &manifest, data_dir).and_then(|()| check(file, data_dir));
    match restored {
        Ok(ledger) => Ok(Restored { manifest, ledger }),
        Err(error) => {
            // What stays of it is told by the error of the next try.
            let _ = fs::remove_dir_all(data_dir);
            if was_there {
                let _ = make_directory(data_dir);
            }
            Err(error)
        }
    }
}

fn damaged(file: &Path, detail: impl Into<String>) -> BackupError {
    BackupError::Damaged { path: file.to_owned(), detail: detail.into() }
}

fn read_exactly<const N: usize>(backup: &mut impl Read, file: &Path) -> Result<[u8; N], BackupError> {
    let mut bytes = [0; N];
    match backup.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged(file, "it is cut off")),
        read => read.map(|()| bytes).map_err(disk(file)),
    }
}

fn read_manifest(backup: &mut File, file: &Path) -> Result<Manifest, BackupError> {
    if read_exactly::<{ MAGIC.len() }>(backup, file)? != *MAGIC {
        return Err(damaged(file, "it is no backup that this program has made, or one of a later version"));
    }
    let length = u64::from_le_bytes(read_exactly(backup, file)?);
    if length > MANIFEST_BYTES_MAX {
        return Err(damaged(file, "its manifest is longer than any can be"));
    }
    let mut text = Vec::new();
    backup.take(length).read_to_end(&mut text).map_err(disk(file))?;
    let hash: [u8; 32] = read_exactly(backup, file)?;
    if blake3::hash(&text) != blake3::Hash::from_bytes(hash) {
        return Err(damaged(file, "its manifest is not what was written"));
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| damaged(file, error.to_string()))?;
    let paths: BTreeSet<&str> = manifest.files.iter().map(|saved| saved.path.as_str()).collect();
    if manifest.files.len() > FILES_MAX || paths.len() != manifest.files.len() {
        return Err(damaged(file, "its manifest names too many files, or one twice"));
    }
    match manifest.files.iter().find(|saved| !is_within(&saved.path) || saved.bytes > FILE_BYTES_MAX) {
        Some(saved) => Err(damaged(file, format!("{:?} is no file of a data directory, or too large", saved.path))),
        None => Ok(manifest),
    }
}

/// Whether a path leads nowhere but into the directory that it is joined to.
fn is_within(path: &str) -> bool {
    let mut components = Path::new(path).components();
    !path.is_empty() && path.len() <= 1024 && components.all(|component| matches!(component, Component::Normal(_)))
}

fn restore_files(backup: &mut File, file: &Path, manifest: &Manifest, data_dir: &Path) -> Result<(), BackupError> {
    let mut changed = BTreeSet::from([data_dir.to_owned(), parent_of(data_dir).to_owned()]);
    for saved in &manifest.files {
        let target = data_dir.join(&saved.path);
        let directory = parent_of(&target);
        make_directory(directory)?;
        changed.insert(directory.to_owned());
        restore_file(backup, file, saved, &target)?;
    }
    if backup.read(&mut [0]).map_err(disk(file))? > 0 {
        return Err(damaged(file, "something follows behind its end"));
    }
    changed.iter().try_for_each(|directory: &PathBuf| sync_directory(directory).map_err(disk(directory)))
}

fn restore_file(backup: &mut File, file: &Path, saved: &SavedFile, target: &Path) -> Result<(), BackupError> {
    let mut written = File::options().write(true).create_new(true).mode(0o600).open(target).map_err(disk(target))?;
    let mut hashed = Hashed { source: backup.take(saved.bytes), hasher: blake3::Hasher::new() };
    let bytes = io::copy(&mut hashed, &mut written).map_err(disk(target))?;
    if bytes != saved.bytes || hashed.hasher.finalize().to_hex().as_str() != saved.hash {
        return Err(damaged(file, format!("{} is not what was saved", saved.path)));
    }
    written.sync_all().map_err(disk(target))
}

/// A reader that hashes all it passes on.
struct Hashed<R> {
    source: R,
    hasher: blake3::Hasher,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

/// Checks the ledger as a start does, and that it is that of the key beside it.
fn check(file: &Path, data_dir: &Path) -> Result<Summary, BackupError> {
    let Inspection::Good(summary) = look_unlocked(&data_dir.join(LEDGER_DIR))? else {
        return Err(damaged(file, "there is no ledger in it"));
    };
    let key = Identity::load(&data_dir.join(IDENTITY_FILE)).map_err(|error| damaged(file, error.to_string()))?;
    match &summary.site {
        Some(site) if site != key.site_id() => {
            Err(damaged(file, format!("its ledger is that of site {site}, its key that of site {}", key.site_id())))
        }
        _ => Ok(summary),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::{Store, StoreSettings, backup::back_up, data_dir::DataDir};

    fn saved(directory: &Path) -> PathBuf {
        let data_dir = DataDir::open(&directory.join("data")).unwrap();
        data_dir.identity().unwrap();
        let file = directory.join("backup");
        // As its node has it open.
        let opened = Store::open(&data_dir.ledger_path(), 7, StoreSettings::default()).unwrap();
        let config = directory.join("site.toml");
        fs::write(&config, "name = \"alpha\"").unwrap();
        let backup = back_up(data_dir.path(), &[config], &file, (9, "kolo 0")).unwrap();
        assert_eq!((backup.ledger.reservations, backup.manifest.made_ms), (0, 9));
        drop(opened);
        file
    }

    #[test]
    fn a_backup_is_private_and_is_restored_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let file = saved(directory.path());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let to = directory.path().join("restored");
        restore(&file, &to).unwrap();
        let key = |dir: &str| fs::read(directory.path().join(dir).join(IDENTITY_FILE)).unwrap();
        assert_eq!(key("data"), key("restored"));
        assert!(to.join("restored-configuration/site.toml").exists());
        assert!(matches!(restore(&file, &to), Err(BackupError::Unfit { .. })), "it is not empty now");
        assert!(matches!(back_up(&to, &[], &file, (1, "")), Err(BackupError::Exists(_))));
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 4, "{left:?}");
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_noticed_and_nothing_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let file = saved(directory.path());
        let (good, to) = (fs::read(&file).unwrap(), directory.path().join("restored"));
        let is_refused = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            restore(&file, &to).is_err() && !to.exists()
        };
        for at in (0..good.len()).step_by(good.len() / 97 + 1).chain(0..40) {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            assert!(is_refused(&bytes), "byte {at}");
        }
        for length in (0..good.len()).step_by(good.len() / 31 + 1) {
            assert!(is_refused(&good[..length]), "cut to {length}");
        }
        assert!(is_refused(&[&good[..], b"x"].concat()));
        assert!(!is_refused(&good));
    }

    #[test]
    fn no_path_leads_out_of_the_directory() {
        for path in ["", "/etc/passwd", "../x", "a/../../x", "a/./b/.."] {
            assert!(!is_within(path), "{path}");
        }
        assert!(is_within("ledger/snapshot.1"));
    }
}
