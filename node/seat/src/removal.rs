//! Removes what a user has left, however it is made.
//!
//! Invariant: neither stack nor open files grow with the depth of the tree, no link is followed, and nothing outside of the tree changes:
//! what lies deep is moved up into the tree's root before it is removed.

use std::{
    ffi::{CStr, CString},
    io,
    os::{fd::AsRawFd as _, unix::ffi::OsStrExt as _},
    path::Path,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chmod, fchmod, openat, renameat, unlinkat},
    io::Errno,
};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a directory with all that is in it. That it is not there is no error.
///
/// # Errors
/// Those of the disk.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let root = match open_directory(CWD, &CString::new(path.as_os_str().as_bytes())?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        root => root?,
    };
    let mut names = 0;
    // Each round takes everything one level up, and removes what was the root's own.
    while empty(&root, &root, &mut names)? {}
    std::fs::remove_dir(path)
}

/// Removes the files of a directory and its empty directories; what else it has goes up into `root`. Whether something is left there.
fn empty(directory: &OwnedFd, root: &OwnedFd, names: &mut u64) -> io::Result<bool> {
    let is_root = std::ptr::eq(directory, root);
    let mut is_left = false;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // Where the disk does not say what it is, a directory shows itself when it cannot be removed as a file.
        let is_file = match entry.file_type() {
            FileType::Directory => false,
            FileType::Unknown => unlinkat(directory, name, AtFlags::empty()).is_ok(),
            _ => {
                unlinkat(directory, name, AtFlags::empty())?;
                true
            }
        };
        if is_file {
            continue;
        }
        if unlinkat(directory, name, AtFlags::REMOVEDIR).is_ok() {
            continue;
        }
        is_left = true;
        if is_root {
            let below = open_directory(directory.as_fd(), name)?;
            empty(&below, root, names)?;
            unlinkat(directory, name, AtFlags::REMOVEDIR)?;
        } else {
            move_up((directory, name), root, names)?;
        }
    }
    Ok(is_left)
}

/// Opens a directory, also one that its user has closed to himself.
fn open_directory(within: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let opened = match openat(within, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let closed = openat(within, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
            chmod(format!("/proc/self/fd/{}", closed.as_raw_fd()), Mode::RWXU)?;
            openat(within, name, DIRECTORY, Mode::empty())?
        }
        opened => opened?,
    };
    // Without these rights nothing in it can be removed.
    let _ = fchmod(&opened, Mode::RWXU);
    Ok(opened)
}

/// Gives an entry a name in the root that is free there.
fn move_up((within, name): (&OwnedFd, &CStr), root: &OwnedFd, names: &mut u64) -> io::Result<()> {
    let mut is_open = false;
    loop {
        *names += 1;
        match renameat(within, name, root, format!(".{names}")) {
            // Something else has this name; each name is tried once.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR) => {}
            // A directory that moves has to be open for writing.
            Err(Errno::ACCESS) if !std::mem::replace(&mut is_open, true) => drop(open_directory(within.as_fd(), name)?),
            moved => return Ok(moved?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::PathBuf,
    };

    use super::*;

    #[test]
    fn a_tree_goes_however_deep_and_closed_it_is_and_what_it_links_to_stays() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "x").unwrap();
        let parent = tempfile::tempdir().unwrap();
        let tree = parent.path().join("tree");
        fs::create_dir(&tree).unwrap();
        // Deeper than a path may be, so it is made from the inside out.
        let mut deep = tree.join("deep");
        fs::create_dir(&deep).unwrap();
        for level in 0..20_000 {
            let next = tree.join(format!("next-{}", level % 2));
            fs::create_dir(&next).unwrap();
            fs::rename(&deep, next.join("deep")).unwrap();
            deep = next;
        }
        for name in ["a", "a/b", "a/b/c"] {
            fs::create_dir(tree.join(name)).unwrap();
        }
        fs::write(tree.join("a/b/.1"), "file").unwrap();
        fs::write(tree.join(".2"), "file").unwrap();
        symlink(outside.path(), tree.join("a/b/link")).unwrap();
        symlink(outside.path(), tree.join("link")).unwrap();
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.path().join("kept").exists());
        remove_tree(&tree).unwrap();
        let link: PathBuf = parent.path().join("link");
        symlink(outside.path(), &link).unwrap();
        assert!(remove_tree(&link).is_err() && outside.path().join("kept").exists(), "a link is no directory");
    }
}
