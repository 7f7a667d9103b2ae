//! Files written as a whole.
//!
//! Invariant: a file is written under a temporary name beside its place and renamed when it is whole, so nothing
//! half-written is ever seen there.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
};

/// Writes a file as a whole: nothing is seen at `path` before everything is written.
///
/// # Errors
/// What `write` says, or why the file cannot be made, written or renamed.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Readable for others as far as the user's mask allows; temporary files are not by themselves.
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
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
}
