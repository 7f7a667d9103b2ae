//! The transfer of files by SFTP (version 3), for scp, sftp, sshfs and editors.
//!
//! What may be read and written is decided by how the seat is confined, as for a command; nothing is checked here. Invariant: no more than
//! [`HANDLES_MAX`] files and directories are open, and an answer holds at most [`READ_BYTES_MAX`] bytes or [`NAMES_MAX`] names.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata, OpenOptions, Permissions, ReadDir},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::libc::O_NONBLOCK;
use russh_sftp::{
    protocol::{self, Attrs, Data, FileAttributes, Handle, Name, OpenFlags, Packet, Status, StatusCode, Version},
    server::Handler,
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, futimens, utimensat};

/// Most files and directories that are open.
const HANDLES_MAX: usize = 256;
/// Most bytes of one answer.
const READ_BYTES_MAX: u32 = 128 << 10;
/// Most names of one answer.
const NAMES_MAX: usize = 256;
/// A rename that may replace, as `sftp` and editors want it.
const POSIX_RENAME: &str = "posix-rename@openssh.com";

/// The files of a seat, relative to its home.
#[derive(Debug)]
pub struct Files {
    home: PathBuf,
    last: u64,
    open: BTreeMap<String, Open>,
}

#[derive(Debug)]
enum Open {
    File(File),
    Directory(ReadDir),
}

impl Files {
    /// Relative paths are below `home`.
    pub fn new(home: &Path) -> Files {
        Files { home: home.to_owned(), last: 0, open: BTreeMap::new() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.join(path)
    }

    fn keep(&mut self, id: u32, open: Open) -> Result<Handle, StatusCode> {
        if self.open.len() >= HANDLES_MAX {
            return Err(StatusCode::Failure);
        }
        self.last += 1;
        let handle = self.last.to_string();
        self.open.insert(handle.clone(), open);
        Ok(Handle { id, handle })
    }

    fn file(&self, handle: &str) -> Result<&File, StatusCode> {
        match self.open.get(handle) {
            Some(Open::File(file)) => Ok(file),
            _ => Err(StatusCode::Failure),
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn failed(error: io::Error) -> StatusCode {
    match error.kind() {
        ErrorKind::NotFound => StatusCode::NoSuchFile,
        ErrorKind::PermissionDenied => StatusCode::PermissionDenied,
        _ => StatusCode::Failure,
    }
}

fn done(id: u32) -> Status {
    Status { id, status_code: StatusCode::Ok, error_message: "Ok".to_owned(), language_tag: "en".to_owned() }
}

fn attributes(found: &Metadata) -> FileAttributes {
    FileAttributes { permissions: Some(found.mode()), ..FileAttributes::from(found) }
}

fn text(path: &Path) -> Result<String, StatusCode> {
    path.to_str().map(str::to_owned).ok_or(StatusCode::Failure)
}

/// The times that are said of a file; none unless both are.
fn times(wanted: &FileAttributes) -> Option<Timestamps> {
    let at = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    Some(Timestamps { last_access: at(wanted.atime?), last_modification: at(wanted.mtime?) })
}

/// Gives a file what is said of it; its owner is never changed.
fn set(file: &File, wanted: &FileAttributes) -> io::Result<()> {
    if let Some(size) = wanted.size {
        file.set_len(size)?;
    }
    if let Some(mode) = wanted.permissions {
        file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
    }
    times(wanted).map_or(Ok(()), |times| Ok(futimens(file, &times)?))
}

/// The same by its path: it need not be open for reading or writing.
fn set_at(path: &Path, wanted: &FileAttributes) -> io::Result<()> {
    if let Some(size) = wanted.size {
        OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path)?.set_len(size)?;
    }
    if let Some(mode) = wanted.permissions {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
    }
    times(wanted).map_or(Ok(()), |times| Ok(utimensat(CWD, path, &times, AtFlags::empty())?))
}

impl Handler for Files {
    type Error = StatusCode;

    fn unimplemented(&self) -> StatusCode {
        StatusCode::OpUnsupported
    }

    async fn init(
        &mut self,
        _version: u32,
        _extensions: std::collections::HashMap<String, String>,
    ) -> Result<Version, StatusCode> {
        let mut version = Version::new();
        version.extensions.insert(POSIX_RENAME.to_owned(), "1".to_owned());
        Ok(version)
    }

    async fn open(
        &mut self,
        id: u32,
        name: String,
        flags: OpenFlags,
        wanted: FileAttributes,
    ) -> Result<Handle, StatusCode> {
        let mut options = OpenOptions::from(flags);
        // Nothing here waits for the other end of a pipe.
        options.custom_flags(O_NONBLOCK).mode(wanted.permissions.map_or(0o666, |mode| mode & 0o777));
        let file = options.open(self.path(&name)).map_err(failed)?;
        self.keep(id, Open::File(file))
    }

    async fn close(&mut self, id: u32, handle: String) -> Result<Status, StatusCode> {
        self.open.remove(&handle).map(|_| done(id)).ok_or(StatusCode::Failure)
    }

    async fn read(&mut self, id: u32, handle: String, offset: u64, len: u32) -> Result<Data, StatusCode> {
        let mut data = vec![0; len.min(READ_BYTES_MAX) as usize];
        let count = self.file(&handle)?.read_at(&mut data, offset).map_err(failed)?;
        data.truncate(count);
        if data.is_empty() { Err(StatusCode::Eof) } else { Ok(Data { id, data }) }
    }

    async fn write(&mut self, id: u32, handle: String, offset: u64, data: Vec<u8>) -> Result<Status, StatusCode> {
        self.file(&handle)?.write_all_at(&data, offset).map_err(failed)?;
        Ok(done(id))
    }

    async fn lstat(&mut self, id: u32, path: String) -> Result<Attrs, StatusCode> {
        let found = fs::symlink_metadata(self.path(&path)).map_err(failed)?;
        Ok(Attrs { id, attrs: attributes(&found) })
    }

    async fn stat(&mut self, id: u32, path: String) -> Result<Attrs, StatusCode> {
        let found = fs::metadata(self.path(&path)).map_err(failed)?;
        Ok(Attrs { id, attrs: attributes(&found) })
    }

    async fn fstat(&mut self, id: u32, handle: String) -> Result<Attrs, StatusCode> {
        let found = self.file(&handle)?.metadata().map_err(failed)?;
        Ok(Attrs { id, attrs: attributes(&found) })
    }

    async fn setstat(&mut self, id: u32, path: String, wanted: FileAttributes) -> Result<Status, StatusCode> {
        set_at(&self.path(&path), &wanted).map_err(failed)?;
        Ok(done(id))
    }

    async fn fsetstat(&mut self, id: u32, handle: String, wanted: FileAttributes) -> Result<Status, StatusCode> {
        set(self.file(&handle)?, &wanted).map_err(failed)?;
        Ok(done(id))
    }

    async fn opendir(&mut self, id: u32, path: String) -> Result<Handle, StatusCode> {
        let directory = fs::read_dir(self.path(&path)).map_err(failed)?;
        self.keep(id, Open::Directory(directory))
    }

    async fn readdir(&mut self, id: u32, handle: String) -> Result<Name, StatusCode> {
        let Some(Open::Directory(directory)) = self.open.get_mut(&handle) else {
            return Err(StatusCode::Failure);
        };
        // A name that is not UTF-8 cannot be told, and is left out.
        let named = |entry: fs::DirEntry| {
            let attributes = entry.metadata().map_or_else(|_| FileAttributes::empty(), |found| attributes(&found));
            Some(protocol::File::new(entry.file_name().into_string().ok()?, attributes))
        };
        let files: Vec<_> = directory.by_ref().filter_map(|entry| named(entry.ok()?)).take(NAMES_MAX).collect();
        if files.is_empty() { Err(StatusCode::Eof) } else { Ok(Name { id, files }) }
    }

    async fn remove(&mut self, id: u32, name: String) -> Result<Status, StatusCode> {
        fs::remove_file(self.path(&name)).map_err(failed)?;
        Ok(done(id))
    }

    async fn mkdir(&mut self, id: u32, path: String, _wanted: FileAttributes) -> Result<Status, StatusCode> {
        fs::create_dir(self.path(&path)).map_err(failed)?;
        Ok(done(id))
    }

    async fn rmdir(&mut self, id: u32, path: String) -> Result<Status, StatusCode> {
        fs::remove_dir(self.path(&path)).map_err(failed)?;
        Ok(done(id))
    }

    async fn realpath(&mut self, id: u32, path: String) -> Result<Name, StatusCode> {
        let path = self.path(&path);
        // What is not there yet has a path all the same.
        let real = fs::canonicalize(&path).unwrap_or(path);
        Ok(Name { id, files: vec![protocol::File::dummy(text(&real)?)] })
    }

    async fn rename(&mut self, id: u32, from: String, to: String) -> Result<Status, StatusCode> {
        let (from, to) = (self.path(&from), self.path(&to));
        if fs::symlink_metadata(&to).is_ok() {
            return Err(StatusCode::Failure);
        }
        fs::rename(from, to).map_err(failed)?;
        Ok(done(id))
    }

    async fn readlink(&mut self, id: u32, path: String) -> Result<Name, StatusCode> {
        let target = fs::read_link(self.path(&path)).map_err(failed)?;
        Ok(Name { id, files: vec![protocol::File::dummy(text(&target)?)] })
    }

    async fn symlink(&mut self, id: u32, link: String, target: String) -> Result<Status, StatusCode> {
        // OpenSSH sends the two the other way round than the draft says, and so does everybody since.
        std::os::unix::fs::symlink(link, self.path(&target)).map_err(failed)?;
        Ok(done(id))
    }

    async fn extended(&mut self, id: u32, request: String, data: Vec<u8>) -> Result<Packet, StatusCode> {
        if request != POSIX_RENAME {
            return Err(StatusCode::OpUnsupported);
        }
        let (from, rest) = string(&data).ok_or(StatusCode::BadMessage)?;
        let (to, _) = string(rest).ok_or(StatusCode::BadMessage)?;
        fs::rename(self.path(from), self.path(to)).map_err(failed)?;
        Ok(Packet::Status(done(id)))
    }
}

/// A text with its length before it, and what follows.
fn string(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_come_and_go_as_a_client_wants_and_bounds_hold() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::new(directory.path());
        let wanted = FileAttributes { permissions: Some(0o640), ..FileAttributes::empty() };
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        let handle = files.open(1, "a".to_owned(), flags, wanted).await.unwrap().handle;
        files.write(2, handle.clone(), 3, b"abc".to_vec()).await.unwrap();
        let times = FileAttributes { atime: Some(5), mtime: Some(7), ..FileAttributes::empty() };
        files.fsetstat(3, handle.clone(), times).await.unwrap();
        files.close(4, handle.clone()).await.unwrap();
        assert!(files.close(4, handle).await.is_err());
        let found = files.stat(5, "a".to_owned()).await.unwrap().attrs;
        assert_eq!(
            (found.size, found.mtime, found.permissions.map(|mode| mode & 0o777)),
            (Some(6), Some(7), Some(0o640))
        );

        let handle = files.open(6, "a".to_owned(), OpenFlags::READ, FileAttributes::empty()).await.unwrap().handle;
        assert_eq!(files.read(7, handle.clone(), 3, u32::MAX).await.unwrap().data, b"abc");
        assert_eq!(files.read(8, handle, 6, 1).await.unwrap_err(), StatusCode::Eof);
        let missing = files.open(9, "no".to_owned(), OpenFlags::READ, FileAttributes::empty()).await.unwrap_err();
        assert_eq!(missing, StatusCode::NoSuchFile);

        files.mkdir(10, "d".to_owned(), FileAttributes::empty()).await.unwrap();
        files.symlink(11, "a".to_owned(), "d/link".to_owned()).await.unwrap();
        assert_eq!(files.readlink(12, "d/link".to_owned()).await.unwrap().files[0].filename, "a");
        assert!(
            files.rename(13, "a".to_owned(), "d".to_owned()).await.is_err(),
            "nothing is replaced by a plain rename"
        );
        fs::write(directory.path().join("b"), "x").unwrap();
        let two = [&[0, 0, 0, 1][..], b"a", &[0, 0, 0, 1], b"b"].concat();
        files.extended(14, POSIX_RENAME.to_owned(), two).await.unwrap();
        assert_eq!(fs::read(directory.path().join("b")).unwrap().len(), 6);
        assert!(files.extended(15, POSIX_RENAME.to_owned(), vec![0, 0, 0, 9, 1]).await.is_err());
        let listed = files.opendir(16, String::new()).await.unwrap().handle;
        let mut names: Vec<_> =
            files.readdir(17, listed.clone()).await.unwrap().files.into_iter().map(|file| file.filename).collect();
        names.sort();
        assert_eq!(names, ["b", "d"]);
        assert_eq!(files.readdir(18, listed).await.unwrap_err(), StatusCode::Eof);
        for _ in files.open.len()..HANDLES_MAX {
            files.opendir(19, ".".to_owned()).await.unwrap();
        }
        assert!(files.opendir(20, ".".to_owned()).await.is_err());
    }
}
