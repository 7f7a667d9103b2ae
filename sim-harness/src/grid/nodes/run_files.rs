//! What a run of nodes needs of this machine: places for its files, many open files, and the clock.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::error::BadUsage;

/// Raises the soft limit on open files, for this process and those that it starts, as far as the system lets it: large grids
/// have thousands of connections. Where that is not enough, whatever cannot be opened says so.
pub fn allow_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // A refusal changes nothing.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Now, in whole seconds since the Unix epoch.
pub fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Where a run keeps its files.
pub struct Files {
    /// Data directories and configurations.
    pub run_dir: TempDir,
    keep_logs: Option<PathBuf>,
}

impl Files {
    /// Makes the directories.
    pub fn make(keep_logs: Option<&Path>) -> anyhow::Result<Files> {
        if let Some(path) = keep_logs {
            fs::create_dir_all(path).with_context(|| BadUsage::new(format!("--keep-logs: {}", path.display())))?;
        }
        let made = tempfile::Builder::new().prefix("kolo-sim-grid-").tempdir();
        Ok(Files {
            run_dir: made.context("cannot make a temporary directory")?,
            keep_logs: keep_logs.map(Path::to_owned),
        })
    }

    /// Where log files go.
    pub fn log_dir(&self) -> &Path {
        self.keep_logs.as_deref().unwrap_or(self.run_dir.path())
    }

    /// Keeps everything, and says where it is.
    pub fn keep(self) -> Vec<String> {
        let kept = [Some(self.run_dir.keep()), self.keep_logs];
        kept.into_iter().flatten().map(|path| path.display().to_string()).collect()
    }
}
