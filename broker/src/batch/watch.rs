//! What somebody who waits for a batch learns of it, and how they end it.
//!
//! Invariant: a search that is ended gives the best that it has so far, with a bound that holds.

use std::{fmt, time::Duration};

/// How far the search for a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Requests that are planned for the time being.
    pub placed: usize,
    /// The value of the batch's objective so far, where the search knows it.
    pub value: Option<i64>,
}

/// The one who waits.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Tells the time since some fixed moment.
    pub clock: &'a dyn Fn() -> Duration,
    /// Is told how far it is, some times a second; whether it is to go on.
    pub goes_on: &'a dyn Fn(Progress) -> bool,
}

impl Watch<'static> {
    /// Nobody waits, and there is no clock.
    pub const NOBODY: Watch<'static> = Watch { clock: &|| Duration::ZERO, goes_on: &|_| true };
}

impl<'a> Watch<'a> {
    /// With a clock, to the end of the search.
    pub fn timed(clock: &'a dyn Fn() -> Duration) -> Watch<'a> {
        Watch { clock, ..Watch::NOBODY }
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Asks the one who waits whether a search goes on, after so much work each time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience<'a> {
    watch: Watch<'a>,
    every: u64,
    next: u64,
    is_over: bool,
}

impl<'a> Patience<'a> {
    pub fn new(watch: Watch<'a>, every: u64) -> Patience<'a> {
        Patience { watch, every, next: every, is_over: false }
    }

    /// Whether the search was ended before this much work, or is now.
    pub fn is_over(&mut self, work: u64, progress: impl FnOnce() -> Progress) -> bool {
        if work >= self.next && !self.is_over {
            self.next = work + self.every;
            self.is_over = !(self.watch.goes_on)(progress());
        }
        self.is_over
    }
}
