//! A directory that files are read from or written into, and nothing beside it.
//!
//! The directory of a seat is written by a command that may be hostile. Invariants: every name is looked up below the directory, through no link,
//! whatever is changed meanwhile; only plain files are read, and at a site only those of the user that commands run as.

use std::{
    fs::{File, Permissions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
};

use nix::unistd::{Gid, Uid, fchown};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, mkdirat, open, openat2, statat};

use super::{
    manifest::{BYTES_MAX, CHUNK_BYTES, ChunkHash, FILES_MAX, FileEntry, Manifest, ManifestError},
    store::{ChunkStore, StoreError},
};

/// A directory.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    owner: Option<(Uid, Gid)>,
}

/// Why files cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The system refuses, for this name.
    #[error("{0:?}: {1}")]
    Name(String, io::Error),
    /// It is no plain file.
    #[error("{0:?} is {1}; only plain files and directories are sent")]
    NoFile(String, &'static str),
    /// It cannot be named in a manifest.
    #[error("{0:?}: a name that is not UTF-8")]
    NotText(String),
    /// The files do not make a manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A piece is missing.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody waits for it any more.
    #[error("whoever wanted it has gone")]
    Stopped,
}

fn named(path: &str) -> impl Fn(io::Error) -> TreeError {
    let path = path.to_owned();
    move |source| {
        let is_link = source.raw_os_error() == Some(nix::libc::ELOOP);
        if is_link { TreeError::NoFile(path.clone(), "a link") } else { TreeError::Name(path.clone(), source) }
    }
}

/// What becomes of what is no plain file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// It is an error.
    Refused,
    /// It is left out.
    LeftOut,
}

impl Tree {
    /// The directory of a user, with the user's rights.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn of_user(path: &Path) -> io::Result<Tree> {
        let root = open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Tree { root, owner: None })
    }

    /// The directory of a seat, which must belong to the user that commands run as; `owner` when that is not the present one.
    ///
    /// # Errors
    /// When it cannot be opened, or is another's.
    pub fn of_seat(path: &Path, owner: Option<(Uid, Gid)>) -> io::Result<Tree> {
        let root = open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let tree = Tree { root, owner };
        let found = rustix::fs::fstat(&tree.root)?;
        if tree.is_ours(found.st_uid) { Ok(tree) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// As [`Tree::of_seat`], while the directory is being made and is still this process's own.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn of_new_seat(root: &File, owner: Option<(Uid, Gid)>) -> io::Result<Tree> {
        Ok(Tree { root: root.as_fd().try_clone_to_owned()?, owner })
    }

    fn is_ours(&self, uid: u32) -> bool {
        uid == self.owner.map_or_else(nix::unistd::geteuid, |(uid, _)| uid).as_raw()
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o644) } else { Mode::empty() };
        Ok(File::from(openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, resolve)?))
    }

    /// A plain file, to be read.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn file(&self, path: &str) -> Result<File, TreeError> {
        // One end of a pipe would wait for the other.
        let file = self.open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).map_err(named(path))?;
        let found = file.metadata().map_err(named(path))?;
        if !found.is_file() {
            return Err(TreeError::NoFile(path.to_owned(), "no file"));
        }
        // Another name of a file of somebody else's.
        if self.owner.is_some() && !self.is_ours(found.uid()) {
            return Err(TreeError::NoFile(path.to_owned(), "somebody else's"));
        }
        Ok(file)
    }

    /// The plain files whose names are wanted, in order. No more is read than a manifest may name, and nothing once `is_stopped`.
    ///
    /// # Errors
    /// [`TreeError`]; what is no plain file only where it is [`Others::Refused`].
    pub fn manifest(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        others: Others,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Manifest, TreeError> {
        let mut paths = self.paths(&is_wanted, others)?;
        paths.sort();
        if paths.len() > FILES_MAX {
            return Err(ManifestError::TooMany(paths.len()).into());
        }
        let (mut files, mut room) = (Vec::new(), BYTES_MAX);
        for path in paths {
            match self.entry_within(&path, room, &is_stopped) {
                Ok(entry) => {
                    room -= entry.bytes;
                    files.push(entry);
                }
                Err(error @ (TreeError::Manifest(_) | TreeError::Stopped)) => return Err(error),
                // It has become another thing meanwhile, or is another's.
                Err(_) if others == Others::LeftOut => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Manifest { files })
    }

    fn paths(&self, is_wanted: &impl Fn(&str) -> bool, others: Others) -> Result<Vec<String>, TreeError> {
        let (mut found, mut directories, mut seen) = (Vec::new(), vec![String::new()], 0);
        while let Some(directory) = directories.pop() {
            let below = if directory.is_empty() { "." } else { &directory };
            let opened = match self.open(below, OFlags::DIRECTORY | OFlags::RDONLY) {
                Ok(opened) => opened,
                Err(_) if others == Others::LeftOut && !directory.is_empty() => continue,
                Err(error) => return Err(named(below)(error)),
            };
            for entry in Dir::read_from(&opened).map_err(io::Error::from).map_err(named(below))? {
                let entry = entry.map_err(io::Error::from).map_err(named(below))?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                seen += 1;
                if seen > 4 * FILES_MAX {
                    return Err(ManifestError::TooMany(seen).into());
                }
                let text = match name.to_str() {
                    Ok(text) => text,
                    Err(_) if others == Others::LeftOut => continue,
                    Err(_) => return Err(TreeError::NotText(name.to_string_lossy().into_owned())),
                };
                let path = if directory.is_empty() { text.to_owned() } else { format!("{directory}/{text}") };
                let kind = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
                match FileType::from_raw_mode(kind.map_err(named(&path))?.st_mode) {
                    FileType::Directory => directories.push(path),
                    FileType::RegularFile if is_wanted(&path) => found.push(path),
                    FileType::RegularFile => {}
                    kind if others == Others::Refused && is_wanted(&path) => {
                        return Err(TreeError::NoFile(path, name_of(kind)));
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// What a file is now.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn entry(&self, path: &str) -> Result<FileEntry, TreeError> {
        self.entry_within(path, BYTES_MAX, &|| false)
    }

    /// The same of a file that has at most `room` bytes, as long as it is not stopped.
    fn entry_within(&self, path: &str, room: u64, is_stopped: &impl Fn() -> bool) -> Result<FileEntry, TreeError> {
        let within = |bytes: u64| match room.checked_sub(bytes) {
            Some(_) => Ok(bytes),
            None => Err(ManifestError::TooLarge((BYTES_MAX - room).saturating_add(bytes) >> 20)),
        };
        let file = self.file(path)?;
        let found = file.metadata().map_err(named(path))?;
        within(found.len())?;
        let is_executable = found.permissions().mode() & 0o111 != 0;
        let (mut bytes, mut chunks) = (0, Vec::new());
        loop {
            if is_stopped() {
                return Err(TreeError::Stopped);
            }
            let mut piece = Vec::new();
            let read = (&file).take(CHUNK_BYTES as u64).read_to_end(&mut piece).map_err(named(path))?;
            if read == 0 {
                return Ok(FileEntry { path: path.to_owned(), is_executable, bytes, chunks });
            }
            // It may grow while it is read.
            bytes = within(bytes + read as u64)?;
            chunks.push(ChunkHash::of(&piece));
        }
    }

    /// A piece of a file, as it is now.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn piece(&self, path: &str, offset: u64, bytes: usize) -> Result<Vec<u8>, TreeError> {
        let mut file = self.file(path)?;
        let mut piece = Vec::new();
        file.seek(SeekFrom::Start(offset)).map_err(named(path))?;
        file.take(bytes as u64).read_to_end(&mut piece).map_err(named(path))?;
        Ok(piece)
    }

    /// Writes the files below `directory`, where it is not empty, from their pieces; what has their names goes. `owner` gets them.
    ///
    /// # Errors
    /// [`TreeError`]; some files may have been written.
    pub fn write(&self, directory: &str, manifest: &Manifest, store: &ChunkStore) -> Result<(), TreeError> {
        for entry in &manifest.files {
            let path = match directory {
                "" => entry.path.clone(),
                directory => format!("{directory}/{}", entry.path),
            };
            super::manifest::check_path(&path)?;
            for (at, _) in path.match_indices('/') {
                self.make_directory(&path[..at]).map_err(named(&path[..at]))?;
            }
            self.write_file(&path, entry, store)?;
        }
        Ok(())
    }

    fn make_directory(&self, path: &str) -> io::Result<()> {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = self.open(parent, OFlags::DIRECTORY | OFlags::RDONLY)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let made = self.open(path, OFlags::DIRECTORY | OFlags::RDONLY)?;
                self.give(&made)
            }
            Err(error) if error == rustix::io::Errno::EXIST => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write_file(&self, path: &str, entry: &FileEntry, store: &ChunkStore) -> Result<(), TreeError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut file = self.open(path, flags).map_err(named(path))?;
        let found = file.metadata().map_err(named(path))?;
        // Nothing is written through another name of a file of somebody else's.
        let is_own = self.is_ours(found.uid()) || found.uid() == nix::unistd::geteuid().as_raw() && found.len() == 0;
        if !found.is_file() || found.nlink() != 1 || !is_own {
            return Err(TreeError::NoFile(path.to_owned(), "no file of its own"));
        }
        file.set_len(0).map_err(named(path))?;
        for hash in &entry.chunks {
            file.write_all(&store.read(hash)?).map_err(named(path))?;
        }
        let mode = if entry.is_executable { 0o755 } else { 0o644 };
        file.set_permissions(Permissions::from_mode(mode)).map_err(named(path))?;
        self.give(&file).map_err(named(path))
    }

    fn give(&self, file: &File) -> io::Result<()> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        Ok(fchown(file, Some(uid), Some(gid))?)
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no file",
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, os::unix::fs::symlink};

    use proptest::prelude::*;

    use super::*;

    fn keep(tree: &Tree, manifest: &Manifest, store: &mut ChunkStore) {
        for chunk in manifest.chunks() {
            let piece = tree.piece(&manifest.files[chunk.file].path, chunk.offset, chunk.bytes).unwrap();
            store.put(&chunk.hash, &piece).unwrap();
        }
    }

    fn all_of(directory: &Path) -> Manifest {
        Tree::of_user(directory).unwrap().manifest(|_| true, Others::Refused, || false).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn files_come_out_as_they_went_in(
            files in prop::collection::btree_map("[a-c]{1,2}(/[d-f]{1,2}){0,2}", (0..3_usize, any::<bool>(), any::<u8>()), 0..6),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let [from, to, store] = ["from", "to", "store"].map(|name| directory.path().join(name));
            [&from, &to].into_iter().for_each(|path| fs::create_dir(path).unwrap());
            let mut expected = BTreeMap::new();
            for (path, (pieces, is_executable, byte)) in files {
                let file = from.join(&path);
                // A name that is a directory already is left out.
                if fs::create_dir_all(file.parent().unwrap()).is_err() || file.is_dir() {
                    continue;
                }
                let bytes = vec![byte; pieces * CHUNK_BYTES / 2 + usize::from(byte)];
                fs::write(&file, &bytes).unwrap();
                fs::set_permissions(&file, Permissions::from_mode(if is_executable { 0o700 } else { 0o600 })).unwrap();
                expected.insert(path, (bytes, is_executable));
            }
            let manifest = all_of(&from);
            let mut store = ChunkStore::open(&store).unwrap();
            keep(&Tree::of_user(&from).unwrap(), &manifest, &mut store);
            Tree::of_user(&to).unwrap().write("x/y", &Manifest::read(&manifest.encode().unwrap()).unwrap(), &store).unwrap();
            let found = all_of(&to);
            let read = found.files.iter().map(|entry| {
                (entry.path.strip_prefix("x/y/").unwrap().to_owned(), (fs::read(to.join(&entry.path)).unwrap(), entry.is_executable))
            });
            prop_assert_eq!(read.collect::<BTreeMap<_, _>>(), expected);
        }
    }

    #[test]
    fn what_is_too_much_for_a_manifest_is_refused_before_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::of_user(directory.path()).unwrap();
        for name in ["a", "b", "c"] {
            File::create(directory.path().join(name)).unwrap().set_len(BYTES_MAX / 2).unwrap();
        }
        let looks = std::cell::Cell::new(0_u64);
        let look = |most: u64| {
            looks.set(0);
            let is_stopped = || looks.replace(looks.get() + 1) == most;
            tree.manifest(|name| name > "b", Others::LeftOut, is_stopped).unwrap_err()
        };
        assert!(matches!(look(3), TreeError::Stopped) && looks.get() == 4, "one look for each piece");
        File::create(directory.path().join("c")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let refused = look(u64::MAX);
        assert!(matches!(refused, TreeError::Manifest(ManifestError::TooLarge(8192))), "{refused}");
        assert_eq!(looks.get(), 0, "nothing was read");
        for number in 0..=FILES_MAX {
            File::create(directory.path().join(format!("d{number}"))).unwrap();
        }
        let many = tree.manifest(|name| name.starts_with('d'), Others::LeftOut, || true).unwrap_err();
        assert!(matches!(many, TreeError::Manifest(ManifestError::TooMany(_))), "{many}");
    }

    #[test]
    fn what_is_no_plain_file_is_refused_by_name_or_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::of_user(directory.path()).unwrap();
        fs::write(directory.path().join("a"), "x").unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(
            tree.manifest(|_| true, Others::Refused, || false).unwrap_err().to_string(),
            "\"pipe\" is a pipe; only plain files and directories are sent"
        );
        fs::remove_file(pipe).unwrap();
        symlink("/etc", directory.path().join("l")).unwrap();
        let refused = tree.manifest(|_| true, Others::Refused, || false).unwrap_err().to_string();
        assert_eq!(refused, "\"l\" is a link; only plain files and directories are sent");
        let names: Vec<String> = tree
            .manifest(|_| true, Others::LeftOut, || false)
            .unwrap()
            .files
            .into_iter()
            .map(|file| file.path)
            .collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn nothing_outside_is_read_or_written_through_links() {
        let directory = tempfile::tempdir().unwrap();
        let [inside, outside, store] = ["inside", "outside", "store"].map(|name| directory.path().join(name));
        [&inside, &outside].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        fs::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, inside.join("d")).unwrap();
        symlink(outside.join("secret"), inside.join("f")).unwrap();
        fs::hard_link(outside.join("secret"), inside.join("h")).unwrap();
        let tree = Tree::of_user(&inside).unwrap();
        for path in ["d/secret", "f", "../outside/secret", "/etc/passwd"] {
            assert!(tree.file(path).is_err(), "{path}");
        }
        let store = ChunkStore::open(&store).unwrap();
        let entry = |path: &str| super::super::manifest::tests::entry(path, b"");
        for path in ["d/new", "f", "h"] {
            let written = tree.write("", &Manifest { files: vec![entry(path)] }, &store);
            assert!(written.is_err(), "{path}");
        }
        assert!(tree.write("..", &Manifest { files: vec![entry("a")] }, &store).is_err());
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }
}
