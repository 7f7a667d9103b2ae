//! A log file that is put away when it is full.
//!
//! Invariant: the file, and the one before it, have at most as many bytes as the caller allows, or one entry.

use std::{fs, io, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

/// Adds an entry to the file at `path`, which need not be there; if it would then have more than `bytes_max`, it first goes to
/// `before`, in the place of the one that was. One caller at a time.
///
/// # Errors
/// What the disk says; the file may then have a part of the entry.
pub fn append(path: &Path, before: &Path, entry: &str, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|file| file.len() + entry.len() as u64 > bytes_max) {
        fs::rename(path, before)?;
    }
    let mut file = fs::File::options().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(entry.as_bytes())
}
