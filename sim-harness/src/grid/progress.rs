//! How far a run is, on standard error: a bar on a terminal, a line a stage elsewhere.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows how far a run is.
pub struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
}

impl Progress {
    /// A display on standard error.
    pub fn new() -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Progress { bar: ProgressBar::with_draw_target(None, target), is_terminal }
    }

    /// Begins a stage of `steps` steps.
    pub fn stage(&self, name: &str, steps: usize) {
        if !self.is_terminal {
            eprintln!("{name} ({steps})");
        }
        self.bar.set_style(
            ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.reset();
        self.bar.set_length(steps as u64);
        self.bar.set_message(name.to_owned());
    }

    /// Shows how a load goes: in the place of the bar on a terminal, as a line of its own elsewhere.
    pub fn live(&self, words: &str) {
        if !self.is_terminal {
            eprintln!("{words}");
            return;
        }
        self.bar.set_style(
            ProgressStyle::with_template("{spinner} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.set_message(words.to_owned());
        self.bar.tick();
    }

    /// How often [`Progress::live`] is worth calling.
    pub fn live_every(&self) -> Duration {
        if self.is_terminal { Duration::from_millis(500) } else { Duration::from_secs(5) }
    }

    /// `done` steps of the stage are done.
    pub fn at(&self, done: usize) {
        self.bar.set_position(done as u64);
    }

    /// Takes the display away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
