//! Files written as a whole.
//!
//! Invariant: a file is written under a temporary name beside its place and renamed when it is whole, so nothing
//! half-written is ever seen there.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
};

/// Whether [`write_whole`] could write there now: for a look before a long run. Nothing is left behind.
///
/// # Errors
/// Why it could not.
pub fn check_place(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    temporary_beside(path).map(drop)
}

/// A temporary file in the folder of `path`.
fn temporary_beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Readable for others as far as the user's mask allows; temporary files are not by themselves.
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // The error of the builder names the temporary file, of which nobody has heard.
    builder.tempfile_in(folder).map_err(|error| error.kind().into())
}

/// Writes a file as a whole: nothing is seen at `path` before everything is written.
///
/// # Errors
/// What `write` says, or why the file cannot be made, written or renamed.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = temporary_beside(path)?;
    let mut buffered = BufWriter::new(file.as_file_mut());
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_write_that_fails_leaves_what_was_there_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        write_whole(&path, |file| file.write_all(b"first")).unwrap();
        let failed = write_whole(&path, |file| {
            file.write_all(b"second")?;
            Err(io::Error::other("full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_place_is_checked_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        check_place(&folder.path().join("x")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        for (path, kind) in [
            (folder.path().to_owned(), io::ErrorKind::IsADirectory),
            (folder.path().join("none/x"), io::ErrorKind::NotFound),
        ] {
            assert_eq!(check_place(&path).unwrap_err().kind(), kind);
            assert!(write_whole(&path, |_| Ok(())).is_err());
        }
    }
}
