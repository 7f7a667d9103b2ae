//! Durations and times as people write them, and as they are shown.
//!
//! Invariant: pure functions of the text, the present moment and the zone. A bare number is never understood: it means
//! minutes in one scheduler, hours in another and seconds in a third. What is shown always carries its zone, and what
//! is shown is read back as the same value.

use std::time::Duration;

use broker::time::{Span, Time};
use jiff::{
    SignedDuration, SpanRelativeTo, Timestamp, ToSpan, Zoned,
    civil::{self, Weekday},
    tz::TimeZone,
};

/// Why a text is not a duration or a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeTextError {
    /// A number without a unit.
    #[error("{0:?} has no unit: expected a duration such as 2:00:00, 2h30m, 90min or 1d")]
    BareNumber(String),
    /// Two numbers, which could be hours and minutes or minutes and seconds.
    #[error("{0:?} may mean hours or minutes: expected all three as in 2:30:00, or units as in 2h30m")]
    TwoNumbers(String),
    /// Not a duration, or one of months or years, whose length varies.
    #[error("{0:?} is no duration: expected one such as 2:00:00, 2h30m, 90min or 1d")]
    Duration(String),
    /// A duration below zero.
    #[error("{0:?} is negative: expected a duration such as 2:00:00, 2h30m, 90min or 1d")]
    Negative(String),
    /// Zero, or finer than a second, where whole seconds are asked.
    #[error("{0:?}: expected at least one second, in whole seconds")]
    NotWholeSeconds(String),
    /// In none of the forms that are read.
    #[error(
        "{text:?} is no time: expected now, +3h, 18:00 (the next), \"today 14:00\", \"tomorrow 08:00\", \"monday 9:00\", \"2026-11-21 \
         08:00\" (in zone {zone}) or 2026-11-21T08:00+01:00"
    )]
    Time {
        /// As it was written.
        text: String,
        /// The zone that would have been assumed.
        zone: String,
    },
    /// A clock time that the zone skips or has twice (summer time begins or ends).
    #[error(
        "{text:?} does not exist, or exists twice, in zone {zone}, whose clocks change then: add the offset, as in +01:00"
    )]
    NotUnique {
        /// As it was written.
        text: String,
        /// The zone that was assumed.
        zone: String,
    },
    /// Before 1970 or after 9999.
    #[error("{0:?} is outside the years 1970 to 9999")]
    OutOfRange(String),
}

/// Reads a duration: `2:00:00`, `2h30m`, `90min`, `1d` (24 hours), `500ms`. Zero is a duration.
///
/// # Errors
/// [`TimeTextError`] when the text has no unit, is no duration, or is negative.
pub fn parse_duration(text: &str) -> Result<Duration, TimeTextError> {
    let trimmed = text.trim();
    let owned = || trimmed.to_owned();
    let is_number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_number(trimmed.trim_start_matches(['+', '-'])) {
        return Err(TimeTextError::BareNumber(owned()));
    }
    if let Some((left, right)) = trimmed.split_once(':')
        && is_number(left)
        && is_number(right)
    {
        return Err(TimeTextError::TwoNumbers(owned()));
    }
    let span: jiff::Span = trimmed.parse().map_err(|_| TimeTextError::Duration(owned()))?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| TimeTextError::Duration(owned()))?;
    Duration::try_from(signed).map_err(|_| TimeTextError::Negative(owned()))
}

/// Reads a duration of at least one second, in whole seconds.
pub fn parse_span(text: &str) -> Result<Span, TimeTextError> {
    let duration = parse_duration(text)?;
    if duration.subsec_nanos() != 0 || duration.as_secs() == 0 {
        return Err(TimeTextError::NotWholeSeconds(text.trim().to_owned()));
    }
    if duration.as_secs() > Span::MAX.0 {
        return Err(TimeTextError::OutOfRange(text.trim().to_owned()));
    }
    Ok(Span(duration.as_secs()))
}

/// Reads a time: `now`, `+3h` or `now+3h`, `18:00` (the next one), `today 14:00`, `tomorrow 08:00`, `monday 9:00` (the next one), ISO 8601 with an offset or zone, or without one (then
/// in the zone of `now`).
///
/// # Errors
/// [`TimeTextError`] when the text is no time, or a clock time that does not exist exactly once.
pub fn parse_time(text: &str, now: &Zoned) -> Result<Time, TimeTextError> {
    let trimmed = text.trim();
    let from_now = trimmed.strip_prefix("now").or_else(|| trimmed.starts_with('+').then_some(trimmed));
    let timestamp = match from_now {
        Some(rest) => time_from_now(rest.trim_start(), trimmed, now)?,
        None => time_on_calendar(trimmed, now)?,
    };
    let time = Time(timestamp.as_second());
    if time.is_in_range() { Ok(time) } else { Err(TimeTextError::OutOfRange(trimmed.to_owned())) }
}

fn time_from_now(rest: &str, whole: &str, now: &Zoned) -> Result<Timestamp, TimeTextError> {
    if rest.is_empty() {
        return Ok(now.timestamp());
    }
    let Some(text) = rest.strip_prefix('+') else {
        return Err(not_a_time(whole, now));
    };
    let duration = parse_duration(text)?;
    now.timestamp().checked_add(duration).map_err(|_| TimeTextError::OutOfRange(whole.to_owned()))
}

fn time_on_calendar(text: &str, now: &Zoned) -> Result<Timestamp, TimeTextError> {
    if let Some((word, clock)) = text.split_once(char::is_whitespace)
        && let Some(day) = Day::read(word)
    {
        let clock = parse_clock(clock.trim()).ok_or_else(|| not_a_time(text, now))?;
        return day.at(clock, text, now);
    }
    if let Some(clock) = parse_clock(text) {
        return Day::Next.at(clock, text, now);
    }
    if text.contains('[') {
        return text.parse::<Zoned>().map(|zoned| zoned.timestamp()).map_err(|_| not_a_time(text, now));
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp);
    }
    // A date alone would mean its midnight, which is hardly ever what was meant.
    if !text.contains(':') {
        return Err(not_a_time(text, now));
    }
    let datetime: civil::DateTime = text.parse().map_err(|_| not_a_time(text, now))?;
    in_zone(datetime, text, now)
}

/// A day that depends on the present.
#[derive(Debug, Clone, Copy)]
enum Day {
    Today,
    Tomorrow,
    /// That of the next such time of the clock.
    Next,
    /// The next of this name on which such a time is still to come.
    Named(Weekday),
}

impl Day {
    fn read(word: &str) -> Option<Day> {
        let word = word.to_lowercase();
        Some(match &*word {
            "today" => Day::Today,
            "tomorrow" => Day::Tomorrow,
            "mon" | "monday" => Day::Named(Weekday::Monday),
            "tue" | "tuesday" => Day::Named(Weekday::Tuesday),
            "wed" | "wednesday" => Day::Named(Weekday::Wednesday),
            "thu" | "thursday" => Day::Named(Weekday::Thursday),
            "fri" | "friday" => Day::Named(Weekday::Friday),
            "sat" | "saturday" => Day::Named(Weekday::Saturday),
            "sun" | "sunday" => Day::Named(Weekday::Sunday),
            _ => return None,
        })
    }

    /// The time of this day with this time of the clock.
    fn at(self, clock: civil::Time, text: &str, now: &Zoned) -> Result<Timestamp, TimeTextError> {
        let is_past = clock <= now.time();
        let days = match self {
            Day::Today => 0,
            Day::Tomorrow => 1,
            Day::Next => i64::from(is_past),
            Day::Named(weekday) => match now.weekday().until(weekday) {
                0 if is_past => 7,
                days => i64::from(days),
            },
        };
        let date = now.date().checked_add(days.days()).map_err(|_| TimeTextError::OutOfRange(text.to_owned()))?;
        in_zone(date.to_datetime(clock), text, now)
    }
}

/// `8:00`, `08:00` or `08:00:30`.
fn parse_clock(text: &str) -> Option<civil::Time> {
    let (hour, _) = text.split_once(':')?;
    // A whole date with a time would be read as its time.
    if hour.is_empty() || hour.len() > 2 || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':') {
        return None;
    }
    let padded = if hour.len() == 1 { format!("0{text}") } else { text.to_owned() };
    padded.parse().ok()
}

fn in_zone(datetime: civil::DateTime, text: &str, now: &Zoned) -> Result<Timestamp, TimeTextError> {
    let ambiguous = now.time_zone().clone().into_ambiguous_zoned(datetime);
    if ambiguous.is_ambiguous() {
        return Err(TimeTextError::NotUnique { text: text.to_owned(), zone: zone_name(now.time_zone()) });
    }
    ambiguous.unambiguous().map(|zoned| zoned.timestamp()).map_err(|_| TimeTextError::OutOfRange(text.to_owned()))
}

fn not_a_time(text: &str, now: &Zoned) -> TimeTextError {
    TimeTextError::Time { text: text.to_owned(), zone: zone_name(now.time_zone()) }
}

fn zone_name(zone: &TimeZone) -> String {
    zone.iana_name().unwrap_or("of this machine").to_owned()
}

/// Shows a time in `zone`, with the offset: `2026-11-21 08:00:00+01:00`.
pub fn format_time(time: Time, zone: &TimeZone) -> String {
    match Timestamp::from_second(time.0) {
        Ok(timestamp) => timestamp.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string(),
        Err(_) => format!("{} s after 1970", time.0),
    }
}

/// Shows a duration such that [`parse_duration`] reads it back: `2h`, `1h 30m`, `500ms`, `366d`.
pub fn format_duration(duration: Duration) -> String {
    const DAY_S: u64 = 86_400;
    let seconds = duration.as_secs();
    // Days are read only up to some 20,000 years, hours beyond.
    let is_in_range = (2 * DAY_S..=Span::MAX.0).contains(&seconds);
    if duration.subsec_nanos() == 0 && is_in_range && seconds.is_multiple_of(DAY_S) {
        return format!("{}d", seconds / DAY_S);
    }
    match SignedDuration::try_from(duration) {
        Ok(signed) => format!("{signed:#}"),
        Err(_) => format!("{seconds}s"),
    }
}

/// Shows a span such that [`parse_span`] reads it back.
pub fn format_span(span: Span) -> String {
    span.to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ljubljana() -> Zoned {
        "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().unwrap()
    }

    fn shown(text: &str, now: &Zoned) -> Result<String, TimeTextError> {
        parse_time(text, now).map(|time| format_time(time, now.time_zone()))
    }

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, seconds) in [
            ("2:00:00", 7200),
            ("02:00:05", 7205),
            ("2h30m", 9000),
            ("2h 30m", 9000),
            ("90min", 5400),
            ("1d", 86_400),
            ("1w", 604_800),
            ("1.5h", 5400),
            (" 10s ", 10),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
    }

    #[test]
    fn what_is_no_duration_says_why() {
        assert!(matches!(parse_duration("90"), Err(TimeTextError::BareNumber(_))));
        assert!(matches!(parse_duration("1.5"), Err(TimeTextError::BareNumber(_))));
        assert!(matches!(parse_duration("-90"), Err(TimeTextError::BareNumber(_))));
        assert!(matches!(parse_duration("2:30"), Err(TimeTextError::TwoNumbers(_))));
        assert!(matches!(parse_duration("-2h"), Err(TimeTextError::Negative(_))));
        assert!(matches!(parse_duration("2h ago"), Err(TimeTextError::Negative(_))));
        for text in ["", "h", "two hours", "1mo", "1y", "2 fortnights", "99999999999999999999h"] {
            assert!(matches!(parse_duration(text), Err(TimeTextError::Duration(_))), "{text}");
        }
        assert!(matches!(parse_span("500ms"), Err(TimeTextError::NotWholeSeconds(_))));
        assert!(matches!(parse_span("0s"), Err(TimeTextError::NotWholeSeconds(_))));
        assert_eq!(parse_span("1h"), Ok(Span(3600)));
    }

    #[test]
    fn times_are_read_relative_to_now_and_zone() {
        let now = ljubljana();
        for (text, expected) in [
            ("now", "2026-11-21 09:30:00+01:00"),
            ("now+1h", "2026-11-21 10:30:00+01:00"),
            ("now + 1d", "2026-11-22 09:30:00+01:00"),
            ("+3h", "2026-11-21 12:30:00+01:00"),
            (" + 2h30m ", "2026-11-21 12:00:00+01:00"),
            ("today 14:00", "2026-11-21 14:00:00+01:00"),
            ("tomorrow 08:00", "2026-11-22 08:00:00+01:00"),
            ("tomorrow  8:00", "2026-11-22 08:00:00+01:00"),
            ("Tomorrow 08:00", "2026-11-22 08:00:00+01:00"),
            // It is half past nine on a Saturday.
            ("18:00", "2026-11-21 18:00:00+01:00"),
            ("9:30", "2026-11-22 09:30:00+01:00"),
            ("8:00", "2026-11-22 08:00:00+01:00"),
            ("monday 9:00", "2026-11-23 09:00:00+01:00"),
            ("Mon 9:00", "2026-11-23 09:00:00+01:00"),
            ("saturday 18:00", "2026-11-21 18:00:00+01:00"),
            ("sat 09:00", "2026-11-28 09:00:00+01:00"),
            ("friday 23:59:59", "2026-11-27 23:59:59+01:00"),
            ("2026-11-21 08:00", "2026-11-21 08:00:00+01:00"),
            ("2026-07-01T08:00", "2026-07-01 08:00:00+02:00"),
            ("2026-11-21T08:00+01:00", "2026-11-21 08:00:00+01:00"),
            ("2026-11-21T08:00Z", "2026-11-21 09:00:00+01:00"),
            ("2026-11-21T08:00-05:00[America/New_York]", "2026-11-21 14:00:00+01:00"),
        ] {
            assert_eq!(shown(text, &now).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_says_what_was_expected() {
        let now = ljubljana();
        for text in [
            "",
            "8",
            "1763712000",
            "2026-11-21",
            "today",
            "today 14",
            "monday",
            "monday 9",
            "funday 9:00",
            "25:00",
            "18:00 hostname",
            "yesterday 08:00",
            "now-1h",
            "-1h",
            "nowish",
        ] {
            let error = parse_time(text, &now).unwrap_err();
            assert!(matches!(error, TimeTextError::Time { .. }), "{text}: {error}");
            assert!(error.to_string().contains("Europe/Ljubljana"), "{error}");
        }
        assert!(matches!(parse_time("now+90", &now), Err(TimeTextError::BareNumber(_))));
        assert!(matches!(parse_time("+3", &now), Err(TimeTextError::BareNumber(_))));
        assert!(matches!(parse_time("+2:30", &now), Err(TimeTextError::TwoNumbers(_))));
        assert!(matches!(parse_time("+-1h", &now), Err(TimeTextError::Negative(_))));
        assert!(matches!(parse_time("1969-01-01 08:00", &now), Err(TimeTextError::OutOfRange(_))));
    }

    #[test]
    fn a_clock_time_in_the_change_of_summer_time_needs_its_offset() {
        let now = ljubljana();
        assert!(matches!(parse_time("2026-10-25 02:30", &now), Err(TimeTextError::NotUnique { .. })));
        assert!(matches!(parse_time("2026-03-29 02:30", &now), Err(TimeTextError::NotUnique { .. })));
        assert_eq!(shown("2026-10-25 02:30+01:00", &now).as_deref(), Ok("2026-10-25 02:30:00+01:00"));
    }

    proptest! {
        #[test]
        fn every_time_and_span_is_read_back_as_shown(seconds in 0..=253_402_207_200_i64, length in 1..=Span::MAX.0 / 100) {
            let now = ljubljana();
            prop_assert_eq!(parse_time(&format_time(Time(seconds), now.time_zone()), &now), Ok(Time(seconds)));
            prop_assert_eq!(parse_span(&format_span(Span(length))), Ok(Span(length)));
        }

        #[test]
        fn no_text_panics(text in "(now|today|tomorrow|[0-9:+. -]|[hmdsT]|\\PC){0,12}") {
            let _ = parse_duration(&text);
            let _ = parse_time(&text, &ljubljana());
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        let now = ljubljana();
        for time in [0, 1, 1_763_712_000, 253_402_200_000] {
            assert_eq!(parse_time(&format_time(Time(time), now.time_zone()), &now), Ok(Time(time)));
        }
        for text in ["2s", "500ms", "1m 30s", "1h", "24h", "366d", "0s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(format_span(Span(7200)), "2h");
    }
}
