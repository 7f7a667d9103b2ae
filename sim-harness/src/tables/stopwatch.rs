//! Measures what the phases of one planning run take.
//!
//! Invariant: every instant between a reset and a stop is counted for exactly one phase, or for the shares of phase VI,
//! which no plan line reports.

use std::time::{Duration, Instant};

use broker::{
    offline::Stopwatch,
    phases::{Phase, PhaseObserver},
};

/// A stopwatch on the machine's monotonic clock.
pub struct PhaseClock {
    phase: Phase,
    since: Instant,
    spent: [Duration; 6],
}

impl PhaseClock {
    /// A clock that has measured nothing yet.
    pub fn new() -> PhaseClock {
        PhaseClock { phase: Phase::Find, since: Instant::now(), spent: [Duration::ZERO; 6] }
    }
}

impl PhaseObserver for PhaseClock {
    fn enter(&mut self, phase: Phase) {
        let now = Instant::now();
        self.spent[self.phase as usize] += now - self.since;
        (self.phase, self.since) = (phase, now);
    }
}

impl Stopwatch for PhaseClock {
    fn reset(&mut self) {
        *self = PhaseClock::new();
    }

    fn stop(&mut self) -> [f64; 5] {
        self.enter(Phase::Find);
        let [find, check, start_times, select_and_swap, optimize, _] = self.spent;
        [find, check, start_times, select_and_swap, optimize].map(|spent| spent.as_secs_f64() * 1e6)
    }
}
