//! How far the runs are, on standard error: a bar with an estimate of what is left on a terminal, a line a run elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::settings::Settings;

/// See the module.
pub struct Progress {
    bar: ProgressBar,
    /// Work of each run, in sites: a run takes about as long as it has requests.
    works: Vec<u64>,
}

impl Progress {
    /// A display for these runs.
    pub fn new(plans: &[Settings]) -> Progress {
        let works: Vec<u64> = plans.iter().map(|settings| settings.sites as u64).collect();
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(works.iter().sum::<u64>() * 1000), target);
        bar.set_style(
            ProgressStyle::with_template("{msg} {wide_bar} {percent} % {elapsed}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Progress { bar, works }
    }

    /// So many thousandths of the virtual time of a run have passed.
    pub fn at(&self, run: usize, passed: u64) {
        let (before, own) = (self.works[..run].iter().sum::<u64>() * 1000, self.works[run]);
        self.bar.set_message(format!("run {} of {}", run + 1, self.works.len()));
        self.bar.set_position(before + own * passed);
        if self.bar.is_hidden() && passed == 1000 {
            eprintln!("run {} of {} is done ({own} sites)", run + 1, self.works.len());
        }
    }

    /// Takes the display away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
