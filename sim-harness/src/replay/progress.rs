//! How far a replay is, on standard error and only on a terminal, with an estimate of what is left.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::engine::Watch;

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
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(jobs as u64), target);
        bar.set_style(
            ProgressStyle::with_template("jobs {wide_bar} {pos}/{len} {elapsed}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Progress { bar, shown: 0 }
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
