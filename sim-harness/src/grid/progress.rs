//! How far a run is, on standard error: a bar on a terminal; elsewhere a line when a stage begins, and one now and then
//! while it lasts.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines about the same stage.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far a run is.
pub struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    stage: Mutex<Stage>,
}

/// The stage that goes on, for lines about it.
struct Stage {
    name: String,
    steps: usize,
    begun: Instant,
    told: Instant,
}

impl Stage {
    fn begin(name: &str, steps: usize, now: Instant) -> Stage {
        Stage { name: name.to_owned(), steps, begun: now, told: now }
    }

    /// The line to print when `done` steps are done; none when the last one was a moment ago.
    fn line(&mut self, done: usize, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.told) < LINE_EVERY {
            return None;
        }
        self.told = now;
        let seconds = now.saturating_duration_since(self.begun).as_secs();
        let left = self.steps.saturating_sub(done);
        Some(format!("{}: {done} of {} after {seconds} s, {left} left", self.name, self.steps))
    }
}

impl Progress {
    /// A display on standard error.
    pub fn new() -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let stage = Mutex::new(Stage::begin("", 0, Instant::now()));
        Progress { bar: ProgressBar::with_draw_target(None, target), is_terminal, stage }
    }

    /// Begins a stage of `steps` steps.
    pub fn stage(&self, name: &str, steps: usize) {
        if !self.is_terminal {
            *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage::begin(name, steps, Instant::now());
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

    /// Shows how a load goes: short lines in the place of the bar on a terminal, all in one line elsewhere.
    pub fn live(&self, lines: &[String]) {
        if !self.is_terminal {
            eprintln!("{}", lines.join("; "));
            return;
        }
        self.bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.set_message(lines.join("\n  "));
        self.bar.tick();
    }

    /// How often [`Progress::live`] is worth calling.
    pub fn live_every(&self) -> Duration {
        if self.is_terminal { Duration::from_millis(500) } else { Duration::from_secs(5) }
    }

    /// `done` steps of the stage are done.
    pub fn at(&self, done: usize) {
        self.bar.set_position(done as u64);
        if !self.is_terminal {
            // Nothing panics while it is held.
            let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = stage.line(done, Instant::now()) {
                eprintln!("{line}");
            }
        }
    }

    /// Takes the display away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_a_stage_come_now_and_then() {
        let begun = Instant::now();
        let mut stage = Stage::begin("forming the grid", 200, begun);
        assert_eq!(stage.line(1, begun + LINE_EVERY / 2), None);
        assert_eq!(
            stage.line(9, begun + LINE_EVERY).as_deref(),
            Some("forming the grid: 9 of 200 after 5 s, 191 left")
        );
        assert_eq!(stage.line(10, begun + LINE_EVERY * 3 / 2), None);
        assert!(stage.line(200, begun + LINE_EVERY * 2).is_some());
    }
}
