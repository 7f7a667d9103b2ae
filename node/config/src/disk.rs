//! The disk that holds a directory, as the system that is mounted there tells it: also in memory or on another machine.

use std::path::Path;

use nix::{
    errno::Errno,
    sys::statvfs::{FsFlags, statvfs},
};

const BYTES_PER_MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub total_mib: u64,
    /// What users other than root may still write.
    pub free_mib: u64,
    /// Nothing can be written.
    pub is_read_only: bool,
}

impl Disk {
    /// The disk that holds `path`, or would if it were made.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of(path: &Path) -> Result<Disk, Errno> {
        let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
        let told = statvfs(there)?;
        let mib = |blocks: u64| blocks.saturating_mul(told.fragment_size()) / BYTES_PER_MIB;
        Ok(Disk {
            total_mib: mib(told.blocks()),
            free_mib: mib(told.blocks_available()),
            is_read_only: told.flags().contains(FsFlags::ST_RDONLY),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_on_the_disk_of_what_holds_it_and_a_file_system_without_a_disk_counts() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::of(directory.path()).unwrap();
        assert!(disk.total_mib > 0 && disk.free_mib <= disk.total_mib && !disk.is_read_only);
        let below = Disk::of(&directory.path().join("not/yet")).unwrap();
        assert_eq!(below.total_mib, disk.total_mib);
        // No block device is behind this one.
        let in_memory = Path::new("/dev/shm");
        assert!(!in_memory.is_dir() || Disk::of(in_memory).unwrap().total_mib > 0);
    }
}
