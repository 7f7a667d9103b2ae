//! How far a replay is, on standard error and only on a terminal, with an estimate of what is left.

use indicatif::ProgressBar;

use super::engine::Watch;
use crate::progress::bar;

/// Ends between two looks at the display.
const EVERY: usize = 256;

/// See the module.
pub struct Progress {
    bar: ProgressBar,
    shown: usize,
}

impl Progress {
    /// A display for so many jobs.
    pub fn new(jobs: usize) -> Progress {
        Progress { bar: bar("jobs", jobs), shown: 0 }
    }

    /// Takes the display away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Progress {
    fn ended(&mut self, jobs: usize) {
        if jobs >= self.shown + EVERY {
            self.shown = jobs;
            self.bar.set_position(jobs as u64);
        }
    }
}
