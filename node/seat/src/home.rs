//! The directory of a seat that sessions of SSH begin in: what one leaves there the next one finds.
//!
//! Its path is in the file `home` of the seat's directory. Invariant: it goes with the seat, once nothing runs there and its time is over.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use kolo_trust::files;
use nix::{
    libc::{O_DIRECTORY, O_NOFOLLOW},
    unistd::{Gid, Uid, fchown, mkdtemp},
};
use serde::{Deserialize, Serialize};

use super::removal::remove_tree;

/// The file of a seat with the path.
const NAME: &str = "home";
/// Longest path.
const PATH_BYTES_MAX: u64 = 4096;

/// Where a session of SSH finds itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// The directory of the seat.
    pub directory: PathBuf,
    /// That of the newest run which goes on there, if any does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<PathBuf>,
}

/// The directory of a seat, made in `within` for its owner when there is none.
///
/// # Errors
/// Those of the disk.
pub fn of_seat(seat: &Path, within: &Path, owner: Option<(Uid, Gid)>) -> io::Result<PathBuf> {
    if let Some(home) = known(seat)? {
        return Ok(home);
    }
    let home = mkdtemp(&within.join("kolo-seat-XXXXXX"))?;
    let opened = File::options().read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(&home)?;
    if let Some((uid, gid)) = owner {
        fchown(&opened, Some(uid), Some(gid))?;
    }
    let text = home.to_str().ok_or_else(|| io::Error::other("the path of the scratch directories is not UTF-8"))?;
    files::replace(&seat.join(NAME), text).map_err(io::Error::other)?;
    Ok(home)
}

/// Removes the directory of a seat, if it has one.
///
/// # Errors
/// Those of the disk.
pub fn remove(seat: &Path) -> io::Result<()> {
    let Some(home) = known(seat)? else { return Ok(()) };
    remove_tree(&home)?;
    fs::remove_file(seat.join(NAME))
}

fn known(seat: &Path) -> io::Result<Option<PathBuf>> {
    let text = files::read(&seat.join(NAME), PATH_BYTES_MAX).map_err(io::Error::other)?;
    let is_there = |home: &PathBuf| fs::symlink_metadata(home).is_ok_and(|found| found.is_dir());
    Ok(text.map(PathBuf::from).filter(is_there))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_seat_has_one_home_until_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let (seat, within) = (directory.path().join("seat"), directory.path());
        let home = of_seat(&seat, within, None).unwrap();
        fs::write(home.join("file"), "x").unwrap();
        // Its user may have closed it.
        fs::set_permissions(&home, fs::Permissions::from_mode(0o500)).unwrap();
        assert_eq!(of_seat(&seat, within, None).unwrap(), home);
        remove(&seat).unwrap();
        remove(&seat).unwrap();
        assert!(!home.exists());
        let other = of_seat(&seat, within, None).unwrap();
        assert!(other != home && other.is_dir());
    }
}
