//! A copy of a node's data directory in one file, made while the node runs: ledger, keys, tokens, what it knows of its grid, and the
//! configuration.
//!
//! The file begins with [`MAGIC`], the length of a [`Manifest`] in eight bytes (least first), the manifest as JSON, and its BLAKE3 hash; the
//! content of the files follows in the order of the manifest. What users run, and the files that they have sent, are not in it.
//!
//! Invariant: the ledger in a backup is one that a start would accept, with all that was acknowledged before the backup began; what is read
//! while it changes does not check out, and is read again. The file is its owner's alone.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use broker::ids::SiteId;
use serde::{Deserialize, Serialize};

use super::{
    data_dir::{API_ADDRESS_FILE, FILES_DIR, LEDGER_DIR, RUNS_DIR, SPARE_FILE},
    error::StoreError,
    files::{self, Generations, parent_of, sync_directory},
    inspect::{Inspection, Summary, look_unlocked},
    sector::Role,
};

/// First bytes of a backup; the number is that of the layout.
pub const MAGIC: &[u8; 14] = b"kolo backup 1\n";
/// Most bytes of a manifest.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Most files.
pub const FILES_MAX: usize = 2_000;
/// Most bytes of one file: a snapshot of a million bookings has some 2 GiB.
pub const FILE_BYTES_MAX: u64 = 4 << 30;
/// Most bytes of a file beside the ledger; larger ones are no keys and no configuration.
const SMALL_BYTES_MAX: u64 = 64 << 20;
/// Deepest directory.
const DEPTH_MAX: usize = 4;
/// Most readings of a ledger that changes meanwhile.
const TRIES_MAX: u32 = 50;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// Folder of the configuration in a backup, and in the directory that it is restored to.
pub const CONFIG_DIR: &str = "restored-configuration";

/// List of the files in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Time of the backup, in Unix milliseconds: promises of before are in it.
    pub made_ms: u64,
    /// Name and version of the program that has made it.
    pub software: String,
    /// Whose ledger it is.
    pub site: Option<SiteId>,
    pub files: Vec<SavedFile>,
}

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFile {
    /// Path in the data directory.
    pub path: String,
    pub bytes: u64,
    /// BLAKE3, in hexadecimal digits.
    pub hash: String,
}

/// Errors of a backup and of a restoration.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{path}: {source}", path = path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("{path}: it is there already; name another", path = .0.display())]
    Exists(PathBuf),
    #[error("{path}: no node has run here yet, so there is nothing to save", path = .0.display())]
    NoLedger(PathBuf),
    #[error(transparent)]
    Ledger(#[from] StoreError),
    /// A bound is reached, or a file cannot be named.
    #[error("{path}: {detail}", path = path.display())]
    Unfit { path: PathBuf, detail: String },
    /// The file is no backup, or was changed.
    #[error("{path}: {detail}; nothing was restored", path = path.display())]
    Damaged { path: PathBuf, detail: String },
}

/// The error of a file that the disk or the system refuses.
pub fn disk(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Disk { path, source }
}

/// A backup that was made.
#[derive(Debug)]
pub struct Backup {
    pub manifest: Manifest,
    /// Counts of the ledger's contents.
    pub ledger: Summary,
    /// Bytes of all files in it.
    pub bytes: u64,
}

/// A directory of copies that goes when it is dropped.
struct Staging(PathBuf);

impl Staging {
    fn make(path: PathBuf) -> Result<Staging, BackupError> {
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(disk(&path))?;
        Ok(Staging(path))
    }
}

/// Makes a directory that is its owner's alone, unless it is there.
pub fn make_directory(path: &Path) -> Result<(), BackupError> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path).map_err(disk(path))
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Nothing in it is needed; what stays is private.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Saves the data directory and the files of the `configuration` into a new file. `made_ms` is the present.
///
/// # Errors
/// [`BackupError`]; there is no such file then.
pub fn back_up(
    data_dir: &Path,
    configuration: &[PathBuf],
    file: &Path,
    (made_ms, software): (u64, &str),
) -> Result<Backup, BackupError> {
    if file.try_exists().map_err(disk(file))? {
        return Err(BackupError::Exists(file.to_owned()));
    }
    let within = |dir: &Path| dir.canonicalize().map_err(disk(dir));
    if within(parent_of(file))?.starts_with(within(data_dir)?) {
        return Err(unfit(file, "it would be lost with the data directory; name a file elsewhere"));
    }
    let staging = Staging::make(beside(file, ".copying"))?;
    let copies = staging.0.join("data");
    make_directory(&copies)?;
    let ledger = copy_ledger(&data_dir.join(LEDGER_DIR), &copies.join(LEDGER_DIR))?;
    copy_rest(data_dir, &copies, 0)?;
    for path in configuration {
        let name = path.file_name().ok_or_else(|| unfit(path, "it names no file"))?;
        let directory = copies.join(CONFIG_DIR);
        make_directory(&directory)?;
        copy(path, &directory.join(name), SMALL_BYTES_MAX)?;
    }
    let mut files = Vec::new();
    list(&copies, &copies, &mut files)?;
    let bytes = files.iter().map(|file| file.bytes).sum();
    let manifest = Manifest { made_ms, software: software.to_owned(), site: ledger.site.clone(), files };
    let unfinished = staging.0.join("backup");
    write(&copies, &manifest, &unfinished)?;
    fs::rename(&unfinished, file).and_then(|()| sync_directory(parent_of(file))).map_err(disk(file))?;
    Ok(Backup { manifest, ledger, bytes })
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn unfit(path: &Path, detail: impl Into<String>) -> BackupError {
    BackupError::Unfit { path: path.to_owned(), detail: detail.into() }
}

/// Copies a ledger that may be in use, until the copy is one that a start would accept.
fn copy_ledger(from: &Path, to: &Path) -> Result<Summary, BackupError> {
    let mut tries = 0;
    loop {
        tries += 1;
        make_directory(to)?;
        let looked = match copy_generations(from, to) {
            Ok(()) => look_unlocked(to).map_err(BackupError::from),
            Err(error) => Err(error),
        };
        let error = match looked {
            Ok(Inspection::Good(summary)) => return Ok(summary),
            Ok(_) => return Err(BackupError::NoLedger(from.to_owned())),
            Err(error) => error,
        };
        let has_changed = match &error {
            BackupError::Ledger(StoreError::Damaged { .. }) => true,
            BackupError::Disk { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        };
        if !has_changed || tries == TRIES_MAX {
            return Err(error);
        }
        fs::remove_dir_all(to).map_err(disk(to))?;
        thread::sleep(PAUSE);
    }
}

fn copy_generations(from: &Path, to: &Path) -> Result<(), BackupError> {
    if !from.try_exists().map_err(disk(from))? {
        return Err(BackupError::NoLedger(from.to_owned()));
    }
    let found = Generations::of(from)?;
    let base = found.snapshots.last().copied().ok_or_else(|| BackupError::NoLedger(from.to_owned()))?;
    let journals = found.journals.into_iter().filter(|generation| *generation >= base);
    let all = [(base, Role::Snapshot)].into_iter().chain(journals.map(|generation| (generation, Role::Journal)));
    for (generation, role) in all {
        let [from, to] = [from, to].map(|dir| files::path_of(dir, generation, role));
        copy(&from, &to, FILE_BYTES_MAX)?;
    }
    Ok(())
}

/// Copies what is beside the ledger, and neither is made by the next start nor belongs to users.
fn copy_rest(from: &Path, to: &Path, depth: usize) -> Result<(), BackupError> {
    for entry in fs::read_dir(from).map_err(disk(from))? {
        let entry = entry.map_err(disk(from))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(disk(&entry.path()))?);
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| unfit(&path, "its name is no text"))?;
        let is_left_out = [API_ADDRESS_FILE, SPARE_FILE, RUNS_DIR, FILES_DIR, CONFIG_DIR].contains(&name)
            || name.starts_with(LEDGER_DIR)
            || name.ends_with(".new");
        let target = to.join(name);
        if depth == 0 && is_left_out {
            continue;
        } else if kind.is_file() {
            match copy(&path, &target, SMALL_BYTES_MAX) {
                // One that was replaced or removed meanwhile.
                Err(BackupError::Disk { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                copied => copied?,
            }
        } else if kind.is_dir() && depth < DEPTH_MAX {
            make_directory(&target)?;
            copy_rest(&path, &target, depth + 1)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, bytes_max: u64) -> Result<(), BackupError> {
    let source = File::open(from).map_err(disk(from))?;
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to).map_err(disk(to))?;
    let copied = io::copy(&mut source.take(bytes_max + 1), &mut target).map_err(disk(to))?;
    if copied > bytes_max { Err(unfit(from, format!("it has more than {bytes_max} bytes"))) } else { Ok(()) }
}

/// The files in a directory of copies, with their hashes.
fn list(root: &Path, directory: &Path, files: &mut Vec<SavedFile>) -> Result<(), BackupError> {
    for entry in fs::read_dir(directory).map_err(disk(directory))? {
        let path = entry.map_err(disk(directory))?.path();
        if path.is_dir() {
            list(root, &path, files)?;
            continue;
        }
        if files.len() >= FILES_MAX {
            return Err(unfit(directory, format!("the data directory has more than {FILES_MAX} files")));
        }
        let mut hasher = blake3::Hasher::new();
        let bytes = File::open(&path).and_then(|file| io::copy(&mut { file }, &mut hasher)).map_err(disk(&path))?;
        let relative = path.strip_prefix(root).ok().and_then(Path::to_str);
        let path = relative.ok_or_else(|| unfit(&path, "its name is no text"))?.to_owned();
        files.push(SavedFile { path, bytes, hash: hasher.finalize().to_hex().to_string() });
    }
    Ok(())
}

fn write(staging: &Path, manifest: &Manifest, to: &Path) -> Result<(), BackupError> {
    let text = serde_json::to_vec(manifest).map_err(|error| unfit(to, error.to_string()))?;
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(unfit(to, "there are too many files with long names"));
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(to).map_err(disk(to))?;
    let head = [&MAGIC[..], &(text.len() as u64).to_le_bytes(), &text, blake3::hash(&text).as_bytes()].concat();
    file.write_all(&head).map_err(disk(to))?;
    for saved in &manifest.files {
        let path = staging.join(&saved.path);
        File::open(&path).and_then(|source| io::copy(&mut { source }, &mut file)).map_err(disk(&path))?;
    }
    file.sync_all().map_err(disk(to))
}
