//! Files written as a whole.
//!
//! Invariant: a file is written under a temporary name beside its place and renamed when it is whole, so nothing
//! half-written is ever seen there.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::error::BadUsage;

/// Whether [`write_whole`] could write to each of these now, and to each something of its own: for a look before a long run.
/// Nothing is left behind.
///
/// # Errors
/// The first place where it could not, and why: bad usage.
pub fn check_places<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), BadUsage> {
    let mut places: Vec<PathBuf> = Vec::new();
    for path in paths {
        let place = check_place(path).map_err(|error| BadUsage::new(format_args!("{}: {error}", path.display())))?;
        if places.contains(&place) {
            let twice = format_args!("{}: two results are to be written to this file", path.display());
            return Err(BadUsage::new(twice));
        }
        places.push(place);
    }
    Ok(())
}

/// The place in the folder that is really meant, when a file can be made there.
fn check_place(path: &Path) -> io::Result<PathBuf> {
    temporary_beside(path)?;
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok(folder_of(path).canonicalize()?.join(name))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file in the folder of `path`, when a file may take that name: the renaming at the end would put it in the
/// place of a device, a pipe or a link as well.
fn temporary_beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if !there.is_file() => {
            let what = "a device, pipe or link is there, expected a file or nothing";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let folder = folder_of(path);
    // Its error names the folder; the builder's names a temporary file that the user never asked for.
    fs::read_dir(folder)?;
    // Readable for others as far as the user's mask allows; temporary files are not by themselves.
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(|error| error.kind().into())
}

/// Writes a file as a whole: nothing is seen at `path` before everything is written.
///
/// # Errors
/// What `write` says, or why the file cannot be made, written or renamed; what is there and no file is left alone.
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
    fn places_are_checked_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        check_places(&[folder.path().join("x"), folder.path().join("y")]).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        for (path, expected) in
            [(folder.path().to_owned(), "is a directory"), (folder.path().join("none/x"), "No such file")]
        {
            let error = check_places([&path]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}: {expected}", path.display())), "{error}");
            assert!(write_whole(&path, |_| Ok(())).is_err());
        }
    }

    #[test]
    fn one_file_is_not_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        let again = folder.path().join("in/../x");
        let error = check_places([&folder.path().join("x"), &folder.path().join("y"), &again]).unwrap_err().to_string();
        assert_eq!(error, format!("{}: two results are to be written to this file", again.display()));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_left_alone() {
        use std::os::unix::{fs::symlink, net::UnixListener};

        let folder = tempfile::tempdir().unwrap();
        let (socket, link, target) =
            (folder.path().join("socket"), folder.path().join("link"), folder.path().join("target"));
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        for path in [&socket, &link] {
            let before = fs::symlink_metadata(path).unwrap().file_type();
            assert!(check_places([path]).unwrap_err().to_string().contains("expected a file or nothing"));
            assert!(write_whole(path, |file| file.write_all(b"lost")).is_err());
            assert_eq!(fs::symlink_metadata(path).unwrap().file_type(), before);
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
