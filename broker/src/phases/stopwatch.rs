//! What the phases take, measured with a clock that the caller lends: this crate has none.
//!
//! Invariant: every instant between a reset and a stop counts for exactly one phase.

use std::time::Duration;

use super::{Phase, PhaseObserver};

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 6] =
        [Phase::Find, Phase::Check, Phase::StartTimes, Phase::SelectAndSwap, Phase::Optimize, Phase::Reserve];

    /// The phase's name in formats and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Find => "find",
            Phase::Check => "check",
            Phase::StartTimes => "start_times",
            Phase::SelectAndSwap => "select_and_swap",
            Phase::Optimize => "optimize",
            Phase::Reserve => "reserve",
        }
    }
}

/// Adds up what each phase takes. `clock` tells the time since some fixed moment.
#[derive(Debug)]
pub struct PhaseStopwatch<C> {
    clock: C,
    running: Option<(Phase, Duration)>,
    spent: [Duration; Phase::ALL.len()],
}

impl<C: Fn() -> Duration> PhaseStopwatch<C> {
    /// A stopwatch that stands still at zero.
    pub fn new(clock: C) -> PhaseStopwatch<C> {
        PhaseStopwatch { clock, running: None, spent: Default::default() }
    }

    /// Back to zero, standing still.
    pub fn reset(&mut self) {
        self.running = None;
        self.spent = Default::default();
    }

    /// Stands still, and tells what the phases in the order of [`Phase::ALL`] have taken since the last reset, in
    /// microseconds.
    pub fn stop(&mut self) -> [f64; Phase::ALL.len()] {
        self.book((self.clock)());
        self.spent.map(|spent| spent.as_secs_f64() * 1e6)
    }

    fn book(&mut self, now: Duration) {
        if let Some((phase, since)) = self.running.take() {
            self.spent[phase as usize] += now.saturating_sub(since);
        }
    }
}

impl<C: Fn() -> Duration> PhaseObserver for PhaseStopwatch<C> {
    fn enter(&mut self, phase: Phase) {
        let now = (self.clock)();
        self.book(now);
        self.running = Some((phase, now));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_instant_counts_once() {
        let now = Cell::new(0);
        let mut stopwatch = PhaseStopwatch::new(|| Duration::from_micros(now.get()));
        for (phase, until) in [(Phase::Find, 5), (Phase::Check, 7), (Phase::Find, 10)] {
            stopwatch.enter(phase);
            now.set(until);
        }
        let spent = stopwatch.stop();
        now.set(99);
        assert_eq!(stopwatch.stop(), spent, "it stands still");
        assert_eq!(spent, [8.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        stopwatch.reset();
        assert!(stopwatch.stop().iter().all(|us| *us == 0.0));
    }
}
