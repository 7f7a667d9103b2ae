//! How far a long computation is, on standard error: a bar with an estimate of what is left on a terminal, a line now and
//! then elsewhere.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines about the same stage.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// A bar of steps.
const BAR: &str = "{msg} {wide_bar} {pos}/{len} {elapsed}, {eta} left";
/// Lines that are replaced again and again.
const LIVE: &str = "{spinner} {msg}";

/// A display of one stage after another. Threads may share it.
pub struct Progress {
    bar: ProgressBar,
    /// The stage that lines report, where the bar cannot be seen.
    stage: Option<Mutex<Stage>>,
}

/// The present stage, for lines about it.
struct Stage {
    name: String,
    steps: u64,
    began: Instant,
    last_line: Instant,
}

impl Stage {
    fn new(name: &str, steps: u64) -> Stage {
        let now = Instant::now();
        Stage { name: name.to_owned(), steps, began: now, last_line: now }
    }

    /// The line to print when `done` steps are done; none shortly after the last one.
    fn line(&mut self, done: u64, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.last_line) < LINE_EVERY {
            return None;
        }
        self.last_line = now;
        let seconds = now.saturating_duration_since(self.began).as_secs();
        Some(format!("{}: {done} of {} after {seconds} s", self.name, self.steps))
    }
}

impl Progress {
    /// A display whose first stage has `steps` steps. `name` says what they are.
    pub fn new(name: &str, steps: u64) -> Progress {
        // It hides itself where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        let stage = bar.is_hidden().then(|| Mutex::new(Stage::new(name, steps)));
        let progress = Progress { bar, stage };
        progress.show(BAR, name);
        progress
    }

    /// Begins a new stage and says so.
    pub fn begin(&self, name: &str, steps: u64) {
        if let Some(stage) = &self.stage {
            *stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage::new(name, steps);
            eprintln!("{name} ({steps})");
        }
        self.bar.reset();
        self.bar.set_length(steps);
        self.show(BAR, name);
    }

    /// `done` steps of the stage are done.
    pub fn at(&self, done: u64) {
        self.bar.set_position(done);
        self.print_line(done);
    }

    /// So many further steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
        self.print_line(self.bar.position());
    }

    fn print_line(&self, done: u64) {
        if let Some(stage) = &self.stage
            && let Some(line) = stage.lock().unwrap_or_else(PoisonError::into_inner).line(done, Instant::now())
        {
            eprintln!("{line}");
        }
    }

    /// Shows lines in the place of the bar; all in one line where there is no terminal.
    pub fn live(&self, lines: &[String]) {
        if self.stage.is_some() {
            eprintln!("{}", lines.join("; "));
        }
        self.show(LIVE, &lines.join("\n  "));
        self.bar.tick();
    }

    /// How often [`Progress::live`] is worth calling.
    pub fn live_every(&self) -> Duration {
        if self.stage.is_some() { LINE_EVERY } else { Duration::from_millis(500) }
    }

    /// Takes the display away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, template: &str, message: &str) {
        self.bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.set_message(message.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_a_stage_come_now_and_then() {
        let mut stage = Stage::new("forming the grid", 200);
        let began = stage.began;
        assert_eq!(stage.line(1, began + LINE_EVERY / 2), None);
        assert_eq!(stage.line(9, began + LINE_EVERY).as_deref(), Some("forming the grid: 9 of 200 after 5 s"));
        assert_eq!(stage.line(10, began + LINE_EVERY * 3 / 2), None);
        assert!(stage.line(200, began + LINE_EVERY * 2).is_some());
    }
}
