//! Time: windows of reservations in whole seconds, protocol deadlines in milliseconds.
//!
//! Two clocks are kept apart on purpose. [`Time`] is absolute (Unix epoch, or relative to a trace's start) and may be
//! wrong on a machine; it only says *when a reservation is*. [`Millis`] is a monotonic clock of one process; every
//! deadline and time-out is measured on it. Invariant: a [`Time`] that passed its check is in `0..=Time::MAX`, so sums
//! of a time and a [`Span`] never overflow.

use std::{fmt, ops};

use serde::{Deserialize, Serialize};

/// An absolute time in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// The zero of the clock: the Unix epoch, or the start of a trace.
    pub const ZERO: Time = Time(0);
    /// The end of the year 9999, the largest time that is accepted from outside.
    pub const MAX: Time = Time(253_402_300_799);

    /// Whether the time is in the accepted range `0..=Time::MAX`.
    #[must_use]
    pub fn is_in_range(self) -> bool {
        (Self::ZERO..=Self::MAX).contains(&self)
    }

    /// The time for people, such as `2025-11-21 08:00:00 UTC`.
    #[must_use]
    pub fn in_utc(self) -> String {
        // Pure arithmetic on the calendar; the crate's clock and time zones are not touched.
        let epoch = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);
        match epoch.checked_add(jiff::SignedDuration::from_secs(self.0)) {
            Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            // Beyond the year 9999, where only the seconds can be said.
            Err(_) => format!("{} s", self.0),
        }
    }

    /// The span from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Span {
        Span(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// A length of time in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Span {
    /// The longest accepted span: the whole accepted range of time.
    pub const MAX: Span = Span(Time::MAX.0 as u64);

    /// Whether it is no time at all.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

/// For people, such as `7d`, `12h` or `1h 30m`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Span(seconds) = self;
        match i64::try_from(seconds) {
            _ if seconds >= 2 * DAY_S && seconds.is_multiple_of(DAY_S) => write!(f, "{}d", seconds / DAY_S),
            Ok(seconds) => write!(f, "{:#}", jiff::SignedDuration::from_secs(seconds)),
            Err(_) => write!(f, "{seconds}s"),
        }
    }
}

impl ops::Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add_unsigned(span.0))
    }
}

impl ops::Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub_unsigned(span.0))
    }
}

/// A half-open window `[start, end)`, never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// First second inside.
    pub start: Time,
    /// First second after.
    pub end: Time,
}

impl Window {
    /// The window that starts at `start` and lasts `duration`.
    #[must_use]
    pub fn starting(start: Time, duration: Span) -> Window {
        Window { start, end: start + duration }
    }

    /// As long, and so much later.
    #[must_use]
    pub fn later(self, wait: Span) -> Window {
        Window { start: self.start + wait, end: self.end + wait }
    }

    /// As long, and so much earlier.
    #[must_use]
    pub fn earlier(self, wait: Span) -> Window {
        Window { start: self.start - wait, end: self.end - wait }
    }

    /// The window's length.
    #[must_use]
    pub fn duration(self) -> Span {
        self.end.since(self.start)
    }

    /// Whether the two windows share a second.
    #[must_use]
    pub fn overlaps(self, other: Window) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The window from the first start to the last end; none of no window.
    #[must_use]
    pub fn hull(windows: impl Iterator<Item = Window>) -> Option<Window> {
        windows.reduce(|a, b| Window { start: a.start.min(b.start), end: a.end.max(b.end) })
    }

    /// Whether the window is in the accepted range of time and not empty. What comes from outside must pass this.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.start.is_in_range() && self.start < self.end && self.end.0 <= 2 * Time::MAX.0
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start.0, self.end.0)
    }
}

/// Milliseconds on the monotonic clock of one process, or a length of such time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl ops::Add for Millis {
    type Output = Millis;
    fn add(self, other: Millis) -> Millis {
        Millis(self.0.saturating_add(other.0))
    }
}

impl ops::Sub for Millis {
    type Output = Millis;
    /// Saturates at zero.
    fn sub(self, other: Millis) -> Millis {
        Millis(self.0.saturating_sub(other.0))
    }
}

/// What the caller's clocks show at the moment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock: deadlines and time-outs.
    pub monotonic: Millis,
    /// The absolute clock: where on the schedules "now" is.
    pub utc: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_half_open() {
        let window = Window::starting(Time(10), Span(5));
        assert!(!window.overlaps(Window::starting(Time(15), Span(1))));
        assert!(!window.overlaps(Window::starting(Time(9), Span(1))));
        assert!(window.overlaps(Window::starting(Time(14), Span(1))));
        assert_eq!(window.duration(), Span(5));
    }

    #[test]
    fn times_that_are_known() {
        assert_eq!(Time(0).in_utc(), "1970-01-01 00:00:00 UTC");
        assert_eq!(Time(951_782_399).in_utc(), "2000-02-28 23:59:59 UTC");
        assert_eq!(Time::MAX.in_utc(), "9999-12-31 23:59:59 UTC");
    }

    #[test]
    fn spans_for_people() {
        let shown = [0, 60, 5_400, 86_400, 7 * 86_400, u64::MAX].map(|seconds| Span(seconds).to_string());
        assert_eq!(shown, ["0s", "1m", "1h 30m", "24h", "7d", "18446744073709551615s"]);
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(Time(i64::MAX) + Span(u64::MAX), Time(i64::MAX));
        assert_eq!(Time(5).since(Time(9)), Span(0));
        assert!(!Window { start: Time(3), end: Time(3) }.is_valid());
    }
}
