//! When, how long and how far ahead a site offers its hosts: the owner's rules that name nobody, as they are published.
//!
//! Invariant: spans are in order, none is empty, no two touch, and they are at most [`Spans::MOST`]. [`Offered::check`] decides at a site;
//! what [`Offered::closed`] says to planners is the same (see the property below).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::model::time::{Span, Time, Window};

/// The latest end of a valid window.
const FOREVER: Time = Time(2 * Time::MAX.0);

/// Spans of time, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<(i64, i64)>", into = "Vec<(i64, i64)>")]
pub struct Spans(Vec<Window>);

/// What is wrong with spans; `index` counts them from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpansError {
    /// A span is empty or backwards.
    #[error(
        "span {index} ends before it begins, or is empty ({start} to {end}): expected [begin, end] with a later end"
    )]
    Backwards {
        /// Which.
        index: usize,
        /// Its begin.
        start: i64,
        /// Its end.
        end: i64,
    },
    /// A span begins before the end of the one before it.
    #[error(
        "span {index} begins at {start}, before the end of the span before it ({end}): expected spans in order, without overlaps"
    )]
    Overlap {
        /// Which.
        index: usize,
        /// Its begin.
        start: i64,
        /// Where the one before it ends.
        end: i64,
    },
    /// A time is negative, or after the year 9999.
    #[error("span {index} is out of range: expected times from 0 to {}", Time::MAX.0)]
    OutOfRange {
        /// Which.
        index: usize,
    },
    /// There are too many.
    #[error("{0} spans, at most {most} can be published", most = Spans::MOST)]
    TooMany(usize),
}

impl Spans {
    /// Most spans of a site. Nights and week-ends of a year are 261.
    pub const MOST: usize = 2_000;

    /// Spans in order; those that touch become one.
    ///
    /// # Errors
    /// [`SpansError`] with the first span that is wrong.
    pub fn new(windows: impl IntoIterator<Item = Window>) -> Result<Spans, SpansError> {
        let mut spans: Vec<Window> = Vec::new();
        for (index, window) in windows.into_iter().enumerate() {
            let (start, end) = (window.start.0, window.end.0);
            if start >= end {
                return Err(SpansError::Backwards { index, start, end });
            }
            if !window.start.is_in_range() || end > 2 * Time::MAX.0 {
                return Err(SpansError::OutOfRange { index });
            }
            match spans.last_mut() {
                Some(last) if window.start < last.end => {
                    return Err(SpansError::Overlap { index, start, end: last.end.0 });
                }
                Some(last) if window.start == last.end => last.end = window.end,
                _ => spans.push(window),
            }
        }
        if spans.len() > Spans::MOST { Err(SpansError::TooMany(spans.len())) } else { Ok(Spans(spans)) }
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Window> {
        self.0.iter().copied()
    }

    /// Whether one of them has all of `window`.
    #[must_use]
    pub fn contain(&self, window: Window) -> bool {
        self.from(window.start).first().is_some_and(|span| span.start <= window.start && window.end <= span.end)
    }

    /// Those that end after `time`.
    #[must_use]
    pub fn from(&self, time: Time) -> &[Window] {
        &self.0[self.0.partition_point(|span| span.end <= time)..]
    }
}

impl TryFrom<Vec<(i64, i64)>> for Spans {
    type Error = SpansError;
    fn try_from(spans: Vec<(i64, i64)>) -> Result<Spans, SpansError> {
        Spans::new(spans.into_iter().map(|(start, end)| Window { start: Time(start), end: Time(end) }))
    }
}

impl From<Spans> for Vec<(i64, i64)> {
    fn from(spans: Spans) -> Vec<(i64, i64)> {
        spans.iter().map(|span| (span.start.0, span.end.0)).collect()
    }
}

/// See the module. The default offers everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Offered {
    /// A reservation lies inside one of these; none: at any time.
    pub spans: Option<Arc<Spans>>,
    /// Longest reservation.
    pub longest: Option<Span>,
    /// No reservation ends later than this from now.
    pub reach: Option<Span>,
    /// Whether there are rules about users beside: what they leave to one is asked, and not published.
    pub asks: bool,
    /// Whether the owner empties the site: then nothing is offered until that ends. Told in adverts only.
    #[serde(skip)]
    pub is_draining: bool,
    /// Whether the site's disk is full. A full disk offers no time until it has room; only adverts tell of it.
    #[serde(skip)]
    pub is_disk_full: bool,
}

/// The rule that a reservation would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// The owner empties the site.
    Draining,
    /// The site's disk is full.
    Disk,
    /// It is longer than this.
    Longest(Span),
    /// It ends farther than this from now.
    Reach(Span),
    /// It is in none of the spans as a whole; where the next one is that ends after its start.
    Spans(Option<Window>),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Draining => f.write_str("the owner is emptying the site"),
            Breach::Disk => f.write_str("this site's disk is full; it grants nothing new until its owner frees room"),
            Breach::Longest(longest) => write!(f, "at most {longest} are allowed"),
            Breach::Reach(reach) => write!(f, "it would end more than {reach} from now"),
            Breach::Spans(Some(next)) => write!(
                f,
                "the site offers its hosts only at the times of its owner, next from {} to {}",
                next.start.in_utc(),
                next.end.in_utc()
            ),
            Breach::Spans(None) => {
                f.write_str("the site offers its hosts only at the times of its owner, and none is left from then on")
            }
        }
    }
}

impl Offered {
    /// Whether everything is offered.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Offered::default()
    }

    /// Whether the site offers no time at all, so that its spans do not matter: it is emptied, or its disk is full.
    #[must_use]
    pub fn offers_nothing(&self) -> bool {
        self.is_draining || self.is_disk_full
    }

    /// Whether a reservation may be made at `now`, as far as these rules are concerned.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, window: Window, now: Time) -> Result<(), Breach> {
        if self.is_draining {
            return Err(Breach::Draining);
        }
        if self.is_disk_full {
            return Err(Breach::Disk);
        }
        if let Some(longest) = self.longest.filter(|longest| window.duration() > *longest) {
            return Err(Breach::Longest(longest));
        }
        if let Some(reach) = self.reach.filter(|reach| window.end > now + *reach) {
            return Err(Breach::Reach(reach));
        }
        match &self.spans {
            Some(spans) if !spans.contain(window) => Err(Breach::Spans(spans.from(window.start).first().copied())),
            _ => Ok(()),
        }
    }

    /// The times from `now` on that no reservation may touch which is made at `now`: in order, and none overlaps.
    #[must_use]
    pub fn closed(&self, now: Time) -> Vec<Window> {
        if self.offers_nothing() {
            return vec![Window { start: now, end: FOREVER }];
        }
        let open_until = self.reach.map_or(FOREVER, |reach| now + reach);
        let mut closed = Vec::new();
        let mut from = now;
        let mut close = |from: Time, until: Time| {
            if from < until {
                closed.push(Window { start: from, end: until });
            }
        };
        if let Some(spans) = &self.spans {
            for span in spans.from(now).iter().take_while(|span| span.start < open_until) {
                close(from, span.start);
                from = span.end;
            }
            from = from.min(open_until);
            close(from, FOREVER);
        } else {
            close(open_until, FOREVER);
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(start: i64, end: i64) -> Window {
        Window { start: Time(start), end: Time(end) }
    }

    #[test]
    fn spans_that_are_wrong_are_named() {
        let error = |spans: &[(i64, i64)]| Spans::try_from(spans.to_vec()).unwrap_err().to_string();
        assert!(error(&[(0, 5), (9, 9)]).starts_with("span 1 ends before it begins, or is empty (9 to 9)"));
        assert!(error(&[(0, 5), (3, 9)]).starts_with("span 1 begins at 3, before the end of the span before it (5)"));
        assert!(error(&[(8, 9), (0, 5)]).starts_with("span 1 begins at 0"));
        assert!(error(&[(-1, 5)]).starts_with("span 0 is out of range"));
        let many: Vec<(i64, i64)> = (0..2_001).map(|at| (10 * at, 10 * at + 1)).collect();
        assert_eq!(error(&many), "2001 spans, at most 2000 can be published");
        let touching: Spans = vec![(0, 5), (5, 9)].try_into().unwrap();
        assert_eq!(Vec::from(touching), [(0, 9)]);
    }

    proptest! {
        /// Second by second.
        #[test]
        fn what_is_closed_is_what_a_check_refuses(
            cuts in prop::option::of(prop::collection::btree_set(0_i64..60, 0..12)),
            (longest, reach) in (prop::option::of(0_u64..30), prop::option::of(0_u64..60)),
            now in 0_i64..30, start in 0_i64..50, length in 1_i64..30,
            (is_draining, is_disk_full) in (prop::bool::weighted(0.1), prop::bool::weighted(0.1)),
        ) {
            let cuts: Option<Vec<i64>> = cuts.map(|cuts| cuts.into_iter().collect());
            let spans = cuts.as_ref().map(|cuts| cuts.chunks_exact(2).map(|two| (two[0], two[1])).collect::<Vec<_>>());
            let offered = Offered {
                spans: spans.clone().map(|spans| Arc::new(spans.try_into().unwrap())),
                longest: longest.map(Span),
                reach: reach.map(Span),
                asks: false,
                is_draining,
                is_disk_full,
            };
            let (now, asked) = (Time(now), window(now + start, now + start + length));
            let is_open = |second: i64| {
                spans.as_ref().is_none_or(|spans| spans.iter().any(|(from, until)| (*from..*until).contains(&second)))
            };
            let expected = !is_draining
                && !is_disk_full
                && (asked.start.0..asked.end.0).all(is_open)
                && longest.is_none_or(|longest| length.unsigned_abs() <= longest)
                && reach.is_none_or(|reach| asked.end <= now + Span(reach));
            prop_assert_eq!(offered.check(asked, now).is_ok(), expected);
            let closed = offered.closed(now);
            prop_assert!(closed.iter().all(|one| one.start < one.end) && closed.windows(2).all(|two| two[0].end < two[1].start));
            let is_free = closed.iter().all(|closed| !closed.overlaps(asked));
            prop_assert_eq!(is_free && longest.is_none_or(|longest| length.unsigned_abs() <= longest), expected);
        }
    }
}
