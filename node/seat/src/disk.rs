//! How much of a disk users may fill.
//!
//! Invariant: output and files of users leave a part of the disk to everything else, above all to the site's ledger, which lies on the same
//! one and stops the node when it cannot be written. Of what they may take a part is for the beginnings of outputs alone, so that whoever
//! says much does not keep others from running something that says little.

use std::{io, os::fd::AsFd};

use nix::{
    errno::Errno,
    sys::statvfs::{Statvfs, fstatvfs},
};

/// Bytes that users leave free on a large disk.
const LEFT_FREE_BYTES: u64 = 1 << 30;
/// Users leave one part in so many free on a disk where that is less than [`LEFT_FREE_BYTES`].
const LEFT_FREE_PART: u64 = 20;
/// Bytes that only beginnings of outputs take on a large disk: twice what those of all runs of a site are.
const BEGINNINGS_BYTES: u64 = 256 << 20;
/// One part in so many is theirs on a disk where that is less than [`BEGINNINGS_BYTES`].
const BEGINNINGS_PART: u64 = 4;

/// Bytes that users may still take of the disk that a file is on.
///
/// # Errors
/// What the system says of the file.
pub fn bytes_for_users(file: impl AsFd) -> io::Result<u64> {
    Ok(bytes_beside_the_rest(&fstatvfs(file)?))
}

/// Bytes that users may still take of the disk that a file is on for all but the beginnings of outputs.
///
/// # Errors
/// What the system says of the file.
pub fn bytes_beside_beginnings(file: impl AsFd) -> io::Result<u64> {
    let disk = fstatvfs(file)?;
    let all = disk.blocks().saturating_mul(disk.fragment_size());
    Ok(bytes_beside_the_rest(&disk).saturating_sub(BEGINNINGS_BYTES.min(all / BEGINNINGS_PART)))
}

/// The error of a disk on which users have no room, whoever else has some.
pub fn disk_full() -> io::Error {
    Errno::ENOSPC.into()
}

fn bytes_beside_the_rest(disk: &Statvfs) -> u64 {
    let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
    let left_free = LEFT_FREE_BYTES.min(bytes(disk.blocks()) / LEFT_FREE_PART);
    bytes(disk.blocks_available()).saturating_sub(left_free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_get_less_than_is_free() {
        let file = tempfile::tempfile().unwrap();
        let disk = fstatvfs(&file).unwrap();
        let free = disk.blocks_available() * disk.fragment_size();
        let for_users = bytes_for_users(&file).unwrap();
        assert!(for_users < free && bytes_beside_beginnings(&file).unwrap() < for_users);
    }
}
