//! A disk of a few MiB, which a test can fill.
//!
//! Invariant: it is unmounted when its [`SmallDisk`] goes, whatever still uses it.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::geteuid;

/// A disk of its own at a place, as long as this lives.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// A disk of so many MiB at a place; none where this system lets nobody mount one here.
    ///
    /// # Panics
    /// When no directory can be made there.
    #[must_use]
    pub fn at(path: &Path, mib: u32) -> Option<SmallDisk> {
        fs::create_dir_all(path).expect("a directory can be made");
        let options = format!("size={mib}m,mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).status();
        (geteuid().is_root() && mounted.is_ok_and(|status| status.success())).then(|| SmallDisk(path.to_owned()))
    }

    /// Takes all that is left of it, as other programs would.
    ///
    /// # Panics
    /// When no file can be made there.
    pub fn fill(&self) {
        let filler = fs::File::options().create(true).append(true).open(self.0.join("filler"));
        let mut filler = filler.expect("the filler can be opened");
        for bytes in [64 << 10, 4 << 10, 1] {
            while filler.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    /// Gives so many bytes of it back.
    ///
    /// # Panics
    /// When it was not filled with as many.
    pub fn leave(&self, bytes: u64) {
        let filler = fs::File::options().write(true).open(self.0.join("filler")).expect("it was filled");
        let length = filler.metadata().expect("it is open").len();
        filler.set_len(length.checked_sub(bytes).expect("it is longer")).expect("a file can be cut");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
