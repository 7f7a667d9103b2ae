//! What a run of nodes needs of this machine: a folder for its files, many open files, and the clock.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

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

/// Makes the folder for data, configuration and logs of all nodes, which goes when it is dropped.
pub fn make_run_dir() -> anyhow::Result<TempDir> {
    tempfile::Builder::new().prefix("kolo-sim-grid-").tempdir().context("cannot make a temporary directory")
}
