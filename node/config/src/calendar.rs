//! What recurs by the clock of a zone: hours of days, on dates.
//!
//! It holds at a moment when that clock shows one of its hours then; so in the hour that a zone has twice it holds twice, and in one that is
//! skipped not at all. Invariant: between two moments that [`When::add_changes`] adds, it holds all the time or not at all.

use std::collections::BTreeSet;

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use serde::{Deserialize, Deserializer, de};
use toml::Value;

use super::prices::{Days, Hours, Zone};

/// Seconds of a day.
pub const DAY_S: i64 = 86_400;

/// Hours through midnight are of the day that they begin on.
pub struct When<'t> {
    /// None: all day.
    pub hours: &'t [Hours],
    /// None: on all days.
    pub days: Option<Days>,
    /// None: on all dates.
    pub dates: &'t [Dates],
    /// None: UTC.
    pub zone: Option<&'t Zone>,
}

impl When<'_> {
    fn clock(&self) -> &TimeZone {
        const UTC: &TimeZone = &TimeZone::UTC;
        self.zone.map_or(UTC, Zone::clock)
    }

    /// Days since 1970 and seconds of the day that the clock shows.
    fn shown_at(&self, at: i64) -> (i64, i64) {
        let local = at + offset_s(self.clock(), at);
        (local.div_euclid(DAY_S), local.rem_euclid(DAY_S))
    }

    /// Whether the clock shows one of the hours of one of the days.
    pub fn holds_at(&self, at: i64) -> bool {
        let (day, second) = self.shown_at(at);
        let is_day = |day: i64| {
            // The first of January 1970 was a Thursday.
            let weekday = usize::try_from((day + 3).rem_euclid(7)).unwrap_or_default();
            self.days.is_none_or(|days| days.contain(weekday))
                && (self.dates.is_empty() || self.dates.iter().any(|dates| dates.contain(day)))
        };
        let is_inside = |hours: &Hours| match (i64::from(hours.from_s), i64::from(hours.until_s)) {
            (from, until) if from < until => is_day(day) && (from..until).contains(&second),
            (from, until) => (is_day(day) && second >= from) || (is_day(day - 1) && second < until),
        };
        if self.hours.is_empty() { is_day(day) } else { self.hours.iter().any(is_inside) }
    }

    /// Whether the clock shows one of these dates.
    pub fn shows(&self, dates: &[Dates], at: i64) -> bool {
        !dates.is_empty() && dates.iter().any(|dates| dates.contain(self.shown_at(at).0))
    }

    /// Adds all moments from `from` until `until` at which it may begin or cease to hold, or its clock shows another date.
    pub fn add_changes(&self, moments: &mut BTreeSet<i64>, from: i64, until: i64) {
        let ends = self.hours.iter().flat_map(|hours| [i64::from(hours.from_s), i64::from(hours.until_s)]);
        let seconds: BTreeSet<i64> = ends.chain([0]).collect();
        let mut start = from;
        while start < until {
            // Until the next change of the clock, the day has one length.
            let next = Timestamp::from_second(start).ok().and_then(|at| self.clock().following(at).next());
            let next = next.map_or(until, |change| change.timestamp().as_second().min(until));
            let offset = offset_s(self.clock(), start);
            moments.insert(start);
            for day in (start + offset).div_euclid(DAY_S)..=(next + offset).div_euclid(DAY_S) {
                let of_day = seconds.iter().map(|second| day * DAY_S + second - offset);
                moments.extend(of_day.filter(|at| (start..next).contains(at)));
            }
            start = next;
        }
    }
}

/// How far this clock is ahead of UTC.
fn offset_s(clock: &TimeZone, at: i64) -> i64 {
    Timestamp::from_second(at).map_or(0, |at| clock.to_offset(at).seconds().into())
}

/// A date, or the dates from one to another: `2026-12-24 to 2026-12-26`, or those of every year, `12-24 to 12-26`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dates {
    /// Once.
    Once(Date, Date),
    /// Month and day of every year; through the new year when the end is the earlier one.
    Yearly((i8, i8), (i8, i8)),
}

/// The years in which dates make sense: zones are known for them, and they fit into times.
const YEARS: std::ops::RangeInclusive<i16> = 1970..=9998;

impl Dates {
    /// Whether this day, counted from 1970, is one of them.
    pub fn contain(&self, day: i64) -> bool {
        let Ok(date) = Date::constant(1970, 1, 1).checked_add(day.days()) else { return false };
        match self {
            Dates::Once(first, last) => (*first..=*last).contains(&date),
            Dates::Yearly(first, last) => {
                let shown = (date.month(), date.day());
                if first <= last { (*first..=*last).contains(&shown) } else { shown >= *first || shown <= *last }
            }
        }
    }

    fn parse(text: &str) -> Result<Dates, String> {
        let expected = || {
            format!(
                "{text:?}: expected dates, such as 2026-12-24, 2026-12-24 to 2026-12-26, or 12-24 to 12-26 for every year"
            )
        };
        let (first, last) = text.split_once(" to ").unwrap_or((text, text));
        let full = |word: &str| word.trim().parse::<Date>().ok().filter(|date| YEARS.contains(&date.year()));
        if let Some((first, last)) = full(first).zip(full(last)) {
            let is_in_order = first <= last;
            return is_in_order
                .then_some(Dates::Once(first, last))
                .ok_or_else(|| format!("{text:?} ends before it begins"));
        }
        let yearly = |word: &str| {
            let (month, day) = word.trim().split_once('-')?;
            // The 29th of February is a date of some years.
            Date::new(2000, month.parse().ok()?, day.parse().ok()?).ok().map(|date| (date.month(), date.day()))
        };
        let (first, last) = yearly(first).zip(yearly(last)).ok_or_else(expected)?;
        Ok(Dates::Yearly(first, last))
    }

    fn written(&self) -> String {
        let (first, last) = match self {
            Dates::Once(first, last) => (first.to_string(), last.to_string()),
            Dates::Yearly(first, last) => {
                let shown = |(month, day): &(i8, i8)| format!("{month:02}-{day:02}");
                (shown(first), shown(last))
            }
        };
        if first == last { first } else { format!("{first} to {last}") }
    }
}

/// Reads a text, one with commas, or a list of texts.
fn words<'de, D: Deserializer<'de>>(source: D, what: &str) -> Result<Vec<String>, D::Error> {
    let written = serde_json::Value::deserialize(source)?;
    let words: Option<Vec<String>> = match &written {
        serde_json::Value::String(text) => Some(text.split(',').map(|word| word.trim().to_owned()).collect()),
        serde_json::Value::Array(words) => words.iter().map(|word| Some(word.as_str()?.trim().to_owned())).collect(),
        _ => None,
    };
    words
        .filter(|words| !words.is_empty())
        .ok_or_else(|| de::Error::custom(format_args!("{written}: expected {what}, a text or a list of texts")))
}

/// Reads dates.
pub fn read_dates<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<Dates>, D::Error> {
    let words = words(source, "dates, such as \"2026-12-24 to 2026-12-26\"")?;
    words.iter().map(|word| Dates::parse(word)).collect::<Result<_, _>>().map_err(de::Error::custom)
}

/// Reads stretches of the day, of which no two overlap.
pub fn read_stretches<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<Hours>, D::Error> {
    let words = words(source, "hours of the day, such as \"18:00-08:00\"")?;
    let hours: Vec<Hours> =
        words.into_iter().map(Hours::try_from).collect::<Result<_, _>>().map_err(de::Error::custom)?;
    let day = 86_400;
    let parts = |hours: &Hours| match (hours.from_s, hours.until_s) {
        (from, until) if from < until => vec![(from, until)],
        (from, until) => vec![(from, day), (0, until)],
    };
    for (at, one) in hours.iter().enumerate() {
        for other in &hours[..at] {
            let overlap = |a: (u32, u32)| parts(other).into_iter().any(|b| a.0.max(b.0) < a.1.min(b.1));
            if parts(one).into_iter().any(overlap) {
                let (other, one) = (other.written(), one.written());
                return Err(de::Error::custom(format_args!(
                    "{other} and {one} overlap: write what they are together as one"
                )));
            }
        }
    }
    Ok(hours)
}

/// Dates or hours as they are read: a text, or a list of several.
pub fn written(words: impl Iterator<Item = String>) -> Option<Value> {
    let mut words: Vec<Value> = words.map(Value::String).collect();
    match words.len() {
        0 => None,
        1 => words.pop(),
        _ => Some(Value::Array(words)),
    }
}

/// Dates as they are read.
pub fn dates_written(dates: &[Dates]) -> Option<Value> {
    written(dates.iter().map(Dates::written))
}

/// Hours as they are read.
pub fn hours_written(hours: &[Hours]) -> Option<Value> {
    written(hours.iter().map(|hours| hours.written()))
}
