//! The owner's `[[offered]]` tables: when the hosts are to be had, as they are written and as spans in UTC.
//!
//! What any table offers is offered, but on the dates of `except` of any table nothing is. Invariant: the spans depend on the tables and on
//! the day (UTC) alone, so those that are worked out again on the same day are the same.

use std::{collections::BTreeSet, sync::Arc};

use broker::{
    offered::{Spans, SpansError},
    time::{Span, Time, Window},
};
use serde::Deserialize;
use toml::Value;

use super::{
    calendar::{DAY_S, Dates, When, dates_written, hours_written, read_dates, read_stretches},
    error::ConfigError,
    prices::{Days, Hours, Zone},
};

/// Most tables, and most stretches or dates in one list: the calendar of some years is worked out from them every day.
const TABLES_MAX: usize = 32;
const LIST_MAX: usize = 64;

/// Spans are laid out no further than three years ahead.
const REACH_MAX: Span = Span(3 * 366 * 86_400);

/// One `[[offered]]` table.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedTable {
    /// Stretches of the day; none: all day.
    #[serde(default, deserialize_with = "read_stretches")]
    hours: Vec<Hours>,
    /// On which days; none: on all.
    days: Option<Days>,
    /// Whose clock hours, days and dates are of; none: UTC.
    zone: Option<Zone>,
    /// On which dates; none: on all.
    #[serde(default, deserialize_with = "read_dates")]
    dates: Vec<Dates>,
    /// The dates on which nothing is offered, by any table.
    #[serde(default, deserialize_with = "read_dates")]
    except: Vec<Dates>,
}

impl OfferedTable {
    /// Its keys as they are written, each with its meaning.
    pub fn written(&self) -> Vec<(&'static str, Value, &'static str)> {
        let keys = [
            ("hours", hours_written(&self.hours), "Stretches of the day. Default: all day."),
            ("days", self.days.as_ref().map(Days::written), "On which days its hours begin. Default: all."),
            ("zone", self.zone.as_ref().map(Zone::written), "Whose clock that is. Default: UTC."),
            ("dates", dates_written(&self.dates), "On which dates its hours begin. Default: all."),
            ("except", dates_written(&self.except), "Dates on which nothing is offered, by any table. Default: none."),
        ];
        keys.into_iter().filter_map(|(name, value, meaning)| Some((name, value?, meaning))).collect()
    }

    fn when(&self) -> When<'_> {
        When { hours: &self.hours, days: self.days, dates: &self.dates, zone: self.zone.as_ref() }
    }

    /// Whether it says only on which dates nothing is offered.
    fn is_exception(&self) -> bool {
        self.hours.is_empty() && self.days.is_none() && self.dates.is_empty() && !self.except.is_empty()
    }
}

/// The tables, once they are checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calendar(Vec<OfferedTable>);

impl Calendar {
    /// Checks the tables. `place` says where they are written.
    ///
    /// # Errors
    /// [`ConfigError::Value`] with the table and its key.
    pub fn new(tables: &[OfferedTable], place: &str) -> Result<Calendar, ConfigError> {
        let wrong = |place: String, message: String| Err(ConfigError::Value { place, message });
        if tables.len() > TABLES_MAX {
            return wrong(place.to_owned(), format!("expected at most {TABLES_MAX} tables, got {}", tables.len()));
        }
        for (index, table) in tables.iter().enumerate() {
            let lists = [("hours", table.hours.len()), ("dates", table.dates.len()), ("except", table.except.len())];
            if let Some((key, length)) = lists.into_iter().find(|(_, length)| *length > LIST_MAX) {
                return wrong(format!("{place}[{index}].{key}"), format!("expected at most {LIST_MAX}, got {length}"));
            }
            if table.written().is_empty() {
                let message = "expected hours, days, dates or except; without any table everything is offered";
                return wrong(format!("{place}[{index}]"), message.to_owned());
            }
        }
        Ok(Calendar(tables.to_vec()))
    }

    /// Whether there is no table, and so nothing to be worked out again.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the hosts are to be had, on the day of `now`, for reservations that end within `reach`; none when always.
    ///
    /// # Errors
    /// [`SpansError::TooMany`].
    pub fn spans(&self, reach: Span, now: Time) -> Result<Option<Arc<Spans>>, SpansError> {
        if self.is_empty() {
            return Ok(None);
        }
        let today = now.0.div_euclid(DAY_S) * DAY_S;
        // Clocks differ, what has begun is still looked at, and the spans are worked out once a day.
        let from = (today - DAY_S).max(0);
        let until = (today + 2 * DAY_S).saturating_add_unsigned(reach.min(REACH_MAX).0).min(Time::MAX.0);
        let mut moments = BTreeSet::from([from]);
        self.0.iter().for_each(|table| table.when().add_changes(&mut moments, from, until));
        let ends = moments.iter().copied().skip(1).chain([until]);
        let pieces = moments.iter().copied().zip(ends).filter(|(from, until)| from < until);
        let open = pieces.filter(|(from, _)| self.is_offered(*from));
        Spans::new(open.map(|(from, until)| Window { start: Time(from), end: Time(until) }))
            .map(|spans| Some(Arc::new(spans)))
    }

    fn is_offered(&self, at: i64) -> bool {
        let is_excepted = |table: &OfferedTable| table.when().shows(&table.except, at);
        let mut positive = self.0.iter().filter(|table| !table.is_exception()).peekable();
        !self.0.iter().any(is_excepted)
            && (positive.peek().is_none() || positive.any(|table| table.when().holds_at(at)))
    }
}

/// Why these spans cannot be published.
pub fn too_many_spans(error: &SpansError) -> String {
    format!("{error}: use fewer stretches and days, or lower policy.max_reach, up to which they are laid out")
}

#[cfg(test)]
mod tests {
    use jiff::{Timestamp, civil::Weekday, tz::TimeZone};
    use kolo_text::document::{Syntax, parse};
    use proptest::prelude::*;

    use super::*;

    const ZONES: [&str; 6] =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago", "UTC"];
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

    #[derive(Deserialize)]
    struct Tables {
        offered: Vec<OfferedTable>,
    }

    fn tables(text: &str) -> Result<Vec<OfferedTable>, String> {
        let read = parse::<Tables>(std::path::Path::new("site.toml"), text, Syntax::Toml);
        read.map(|tables| tables.offered).map_err(|error| error.to_string())
    }

    fn time(text: &str) -> Time {
        Time(text.parse::<Timestamp>().unwrap().as_second())
    }

    fn spans(text: &str, days: u64, now: &str) -> Vec<(String, String)> {
        let calendar = Calendar::new(&tables(text).unwrap(), "site.toml: offered").unwrap();
        let spans = calendar.spans(Span(days * 86_400), time(now)).unwrap().unwrap();
        let shown = |time: Time| time.in_utc()[5..16].to_owned();
        spans.iter().map(|span| (shown(span.start), shown(span.end))).collect()
    }

    const NIGHTS: &str = "[[offered]]\nhours = \"18:00-08:00\"\ndays = \"mon-fri\"\nzone = \"Europe/Berlin\"\n\
                          [[offered]]\ndays = \"sat-sun\"\nzone = \"Europe/Berlin\"\nexcept = \"12-24 to 12-26\"";

    #[test]
    fn nights_and_week_ends_are_one_span_each_but_at_christmas() {
        let pairs = |spans: &[(&str, &str)]| -> Vec<(String, String)> {
            spans.iter().map(|(start, end)| ((*start).to_owned(), (*end).to_owned())).collect()
        };
        let found = spans(NIGHTS, 7, "2026-12-18T12:00:00Z");
        // From Thursday 17 December on; Berlin is an hour ahead of UTC. The night before Monday is of Sunday, which ends at midnight.
        let expected = pairs(&[
            ("12-17 00:00", "12-17 07:00"),
            ("12-17 17:00", "12-18 07:00"),
            ("12-18 17:00", "12-20 23:00"),
            ("12-21 17:00", "12-22 07:00"),
            ("12-22 17:00", "12-23 07:00"),
            ("12-23 17:00", "12-23 23:00"),
            ("12-26 23:00", "12-27 00:00"),
        ]);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_night_in_which_the_clock_changes_is_an_hour_shorter_or_longer() {
        let of = |now: &str, at: usize| spans(NIGHTS, 3, now).remove(at);
        let span = |start: &str, end: &str| (start.to_owned(), end.to_owned());
        assert_eq!(of("2027-03-27T12:00:00Z", 1), span("03-26 17:00", "03-28 22:00"));
        assert_eq!(of("2027-10-30T12:00:00Z", 1), span("10-29 16:00", "10-31 23:00"));
    }

    #[test]
    fn what_is_wrong_with_a_table_is_named() {
        for (text, expected) in [
            ("[[offered]]\nzone = \"Europe/Atlantis\"", "no time zone that this machine knows"),
            ("[[offered]]\nhours = \"9:00-9:00\"", "offered[0].hours: \"9:00-9:00\": expected hours of the day"),
            ("[[offered]]\nhours = [\"08:00-12:00\", \"22:00-09:00\"]", "08:00-12:00 and 22:00-09:00 overlap"),
            ("[[offered]]\nhours = []", "expected hours of the day"),
            ("[[offered]]\nexcept = \"2026-12-26 to 2026-12-24\"", "ends before it begins"),
            ("[[offered]]\ndates = \"2026-02-30\"", "expected dates"),
            ("[[offered]]\nday = \"mon\"", "unknown field"),
        ] {
            let error = tables(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("[[offered]]\nzone = \"UTC\"\n".repeat(33), "at most 32 tables"),
            ("[[offered]]".to_owned(), "offered[0]: expected hours, days, dates or except"),
        ] {
            let error = Calendar::new(&tables(&text).unwrap(), "site.toml: offered").unwrap_err().to_string();
            assert!(error.starts_with("site.toml: offered") && error.contains(expected), "{text}: {error}");
        }
        let stretches: Vec<String> = (0..24).map(|hour| format!("\"{hour}:00-{hour}:30\"")).collect();
        let often = format!("[[offered]]\nhours = [{}]", stretches.join(", "));
        let calendar = Calendar::new(&tables(&often).unwrap(), "offered").unwrap();
        assert!(calendar.spans(Span(80 * 86_400), Time(0)).is_ok());
        let error = calendar.spans(Span(366 * 86_400), Time(0)).unwrap_err();
        assert!(too_many_spans(&error).contains("lower policy.max_reach"), "{error}");
    }

    type RawTable = (usize, Vec<u32>, Vec<usize>, Option<(i64, i64)>);

    /// The obvious way: what the zone's calendar and clock show in this minute.
    fn is_offered_by_the_calendar(raw: &[RawTable], except: (usize, i64), first_day: i64, at: i64) -> bool {
        let shown = |zone: usize| Timestamp::from_second(at).unwrap().to_zoned(TimeZone::get(ZONES[zone]).unwrap());
        let day_of = |date: jiff::civil::Date| {
            i64::from(date.since(jiff::civil::date(1970, 1, 1)).unwrap().get_days()) - first_day
        };
        let holds = |(zone, ends, days, dates): &RawTable| {
            let local = shown(*zone);
            let today = local.date();
            let yesterday = today.yesterday().unwrap();
            let weekday = |weekday: Weekday| usize::try_from(weekday.to_monday_zero_offset()).unwrap();
            let has = |date: jiff::civil::Date| {
                let is_date = dates.is_none_or(|(first, last)| (first..=last).contains(&day_of(date)));
                is_date && (days.is_empty() || days.contains(&weekday(date.weekday())))
            };
            let minute = u32::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute())).unwrap();
            let inside = |two: &[u32]| match (two[0], two[1]) {
                (from, until) if from < until => has(today) && from <= minute && minute < until,
                (from, until) => (has(today) && minute >= from) || (has(yesterday) && minute < until),
            };
            if ends.len() < 2 { has(today) } else { ends.chunks_exact(2).any(inside) }
        };
        let is_excepted = day_of(shown(except.0).date()) == except.1;
        !is_excepted && raw.iter().any(holds)
    }

    fn raw_table() -> impl Strategy<Value = RawTable> {
        let ends =
            prop::collection::btree_set(0_u32..24 * 60, 0..6).prop_map(|ends| ends.into_iter().collect::<Vec<u32>>());
        let ends = (ends, any::<bool>()).prop_map(|(mut ends, through)| {
            ends.truncate(ends.len() / 2 * 2);
            if through && !ends.is_empty() {
                // The last stretch goes through midnight.
                ends.rotate_left(1);
            }
            ends
        });
        let days = prop::collection::vec(0_usize..7, 0..4);
        let dates = prop::option::of((0_i64..10, 0_i64..10).prop_map(|(first, length)| (first, first + length)));
        (0..ZONES.len(), ends, days, dates)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Minute by minute, on days with a change of the clock among them.
        #[test]
        fn spans_are_the_minutes_that_the_calendar_offers(
            start in prop::sample::select(vec!["2026-03-06", "2026-03-27", "2026-04-03", "2026-09-05", "2026-10-02", "2026-10-23", "2026-10-30", "2026-06-15"]),
            raw in prop::collection::vec(raw_table(), 1..4), except in (0..ZONES.len(), 0_i64..8),
        ) {
            let first: jiff::civil::Date = start.parse().unwrap();
            let first_day = i64::from(first.since(jiff::civil::date(1970, 1, 1)).unwrap().get_days());
            let date = |day: i64| first.checked_add(jiff::ToSpan::days(day)).unwrap();
            let clock = |minute: u32| format!("{:02}:{:02}", minute / 60, minute % 60);
            let mut text = format!("[[offered]]\nexcept = \"{}\"\nzone = \"{}\"\n", date(except.1), ZONES[except.0]);
            for (zone, ends, days, dates) in &raw {
                text += &format!("[[offered]]\nzone = \"{}\"\n", ZONES[*zone]);
                let hours: Vec<String> = ends.chunks_exact(2).map(|two| format!("{}-{}", clock(two[0]), clock(two[1]))).collect();
                if !hours.is_empty() {
                    text += &format!("hours = {hours:?}\n");
                }
                if !days.is_empty() {
                    text += &format!("days = {:?}\n", days.iter().map(|day| DAYS[*day]).collect::<Vec<_>>());
                }
                if let Some((first, last)) = dates {
                    text += &format!("dates = \"{} to {}\"\n", date(*first), date(*last));
                }
            }
            let tables = tables(&text).unwrap();
            let calendar = Calendar::new(&tables, "offered").unwrap();
            let now = Time(first_day * DAY_S + 43_210);
            let spans = calendar.spans(Span(4 * 86_400), now).unwrap().unwrap();
            for minute in -1440..6 * 1440_i64 {
                let at = first_day * DAY_S + minute * 60;
                let inside = spans.contain(Window { start: Time(at), end: Time(at + 60) });
                prop_assert_eq!(inside, is_offered_by_the_calendar(&raw, except, first_day, at), "at {}: {}", Time(at).in_utc(), text);
            }
        }
    }
}
