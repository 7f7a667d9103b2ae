//! A directory of the running thread's own, for targets that read files.

use std::{cell::OnceCell, path::Path};

use tempfile::TempDir;

thread_local! {
    static DIRECTORY: OnceCell<TempDir> = const { OnceCell::new() };
}

pub fn in_directory(work: impl FnOnce(&Path)) {
    DIRECTORY.with(|directory| work(directory.get_or_init(|| TempDir::new().expect("a directory")).path()));
}
