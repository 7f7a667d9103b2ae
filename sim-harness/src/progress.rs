//! How far a long computation is: a bar on standard error, only on a terminal, with an estimate of what is left.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of so many steps. `what` says what the steps are.
pub fn bar(what: &'static str, steps: usize) -> ProgressBar {
    let is_terminal = std::io::stderr().is_terminal();
    let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
    bar.set_style(
        ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.with_message(what)
}
