//! The owner's week: when the hosts of this site are to be had in the next seven days, drawn hour by hour as the grid sees it.
//!
//! Invariant: the picture is seven lines of plain characters, one for each hour of the clock, so it reads the same in a pipe.

use broker::time::{Time, Window};
use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use kolo_api::{
    bookings::{BookingList, NotOffered},
    grid::Status,
};
use kolo_text::time::format_time;

use super::finding::Finding;
use crate::{client::Client, error::CliError};

const DAYS: i8 = 7;
const HOURS: i8 = 24;
/// Changes that are named below the picture.
const CHANGES_SHOWN: usize = 3;

/// Asks the node here, if one answers and has times at which it offers nothing.
pub(super) fn check(client: Result<Client, CliError>, now: Time, zone: &TimeZone) -> Option<Finding> {
    let client = client.ok()?;
    let status: Status = client.get("/v1/status").ok()?;
    let until = hour_of(today(now, zone)?.checked_add(i64::from(DAYS).days()).ok()?, 0, zone)?;
    let path = format!("/v1/bookings?site={}&from={}&until={}&limit=1", status.site, now.0, until.0);
    let list: BookingList = client.get(&path).ok()?;
    let own = list.sites.into_iter().find(|site| site.site == status.site)?;
    finding(&own.not_offered, (now, until), zone)
}

/// Nothing where the hosts are offered all the time.
fn finding(closed: &[NotOffered], (now, until): (Time, Time), zone: &TimeZone) -> Option<Finding> {
    if closed.is_empty() {
        return None;
    }
    let change =
        |at: Time, what: &str| (now < at && at < until).then(|| format!("{what} from {}", format_time(at, zone)));
    let changes = closed.iter().flat_map(|one| [change(one.start, "closed"), change(one.end, "offered")]);
    let changes: Vec<String> = changes.flatten().take(CHANGES_SHOWN).collect();
    let is_closed = closed.iter().any(|one| one.start <= now && now < one.end);
    let present = if is_closed { "closed now" } else { "offered now" };
    let next = if changes.is_empty() { "no change in seven days".to_owned() } else { changes.join(", ") };
    let mut picture = vec![format!("{:<10}{}", "", scale())];
    picture.extend(today(now, zone).into_iter().flat_map(|first| days(closed, (now, first), zone)));
    picture.push("# offered, + in part, . not; blank: past, or no such hour".to_owned());
    let zone = zone.iana_name().map_or_else(|| "the local zone".to_owned(), str::to_owned);
    let what = format!("hosts are {present}; {next}; by the clock of {zone}:");
    Some(Finding { picture, ..Finding::good("offered", what) })
}

/// The first hour of each three, above them.
fn scale() -> String {
    (0..HOURS).step_by(3).map(|hour| format!("{hour:<3}")).collect::<String>().trim_end().to_owned()
}

fn today(now: Time, zone: &TimeZone) -> Option<Date> {
    Some(Timestamp::from_second(now.0).ok()?.to_zoned(zone.clone()).date())
}

/// When this hour of a day begins by the clock of the zone; of one that is skipped, when the clock goes on.
fn hour_of(day: Date, hour: i8, zone: &TimeZone) -> Option<Time> {
    Some(Time(day.at(hour, 0, 0, 0).to_zoned(zone.clone()).ok()?.timestamp().as_second()))
}

fn days(closed: &[NotOffered], (now, first): (Time, Date), zone: &TimeZone) -> Vec<String> {
    let line = |after: i8| {
        let day = first.checked_add(i64::from(after).days()).ok()?;
        let next = day.tomorrow().ok()?;
        let begin = |hour: i8| if hour < HOURS { hour_of(day, hour, zone) } else { hour_of(next, 0, zone) };
        let mark = |hour: i8| {
            let hour = begin(hour).zip(begin(hour + 1)).map(|(start, end)| Window { start: start.max(now), end });
            hour.map_or(' ', |hour| mark_of(closed, hour))
        };
        let marks: String = (0..HOURS).map(mark).collect();
        Some(format!("{:<10}{}", day.strftime("%a %m-%d").to_string(), marks.trim_end()))
    };
    (0..DAYS).filter_map(line).collect()
}

/// How much of an hour is offered.
fn mark_of(closed: &[NotOffered], hour: Window) -> char {
    if hour.start >= hour.end {
        return ' ';
    }
    let inside = |one: &NotOffered| one.end.min(hour.end).0.saturating_sub(one.start.max(hour.start).0).max(0);
    match closed.iter().map(inside).sum::<i64>() {
        0 => '#',
        all if all == hour.end.0 - hour.start.0 => '.',
        _ => '+',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time(text.parse::<Timestamp>().unwrap().as_second())
    }

    fn closed(windows: &[(&str, &str)]) -> Vec<NotOffered> {
        windows.iter().map(|(start, end)| NotOffered { start: at(start), end: at(end) }).collect()
    }

    #[test]
    fn a_week_is_drawn_by_the_clock_of_the_zone() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        // Half an hour past ten on Friday in Berlin; its clock is put back on Sunday, so two hours are one there.
        let (now, until) = (at("2026-10-23T08:30:00Z"), at("2026-10-29T23:00:00Z"));
        let closed = closed(&[
            ("2026-10-23T08:30:00Z", "2026-10-23T16:00:00Z"),
            ("2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"),
            ("2026-10-26T07:15:00Z", "2026-10-26T17:00:00Z"),
        ]);
        let finding = finding(&closed, (now, until), &zone).unwrap();
        assert_eq!(
            finding.what,
            "hosts are closed now; offered from 2026-10-23 18:00:00+02:00, closed from 2026-10-25 02:00:00+02:00, \
             offered from 2026-10-25 02:30:00+02:00; by the clock of Europe/Berlin:"
        );
        assert_eq!(
            finding.picture,
            [
                "          0  3  6  9  12 15 18 21",
                "Fri 10-23           ........######",
                "Sat 10-24 ########################",
                "Sun 10-25 ##+#####################",
                "Mon 10-26 ########+.........######",
                "Tue 10-27 ########################",
                "Wed 10-28 ########################",
                "Thu 10-29 ########################",
                "# offered, + in part, . not; blank: past, or no such hour",
            ]
        );
    }

    #[test]
    fn an_hour_that_the_clock_skips_is_blank_and_what_is_always_offered_is_not_drawn() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let (now, until) = (at("2027-03-27T23:00:00Z"), at("2027-04-03T22:00:00Z"));
        let all = closed(&[("2027-03-27T23:00:00Z", "2099-01-01T00:00:00Z")]);
        let drawn = finding(&all, (now, until), &zone).unwrap();
        assert_eq!(drawn.picture[1], "Sun 03-28 .. .....................");
        assert!(drawn.what.starts_with("hosts are closed now; no change in seven days; "), "{}", drawn.what);
        assert_eq!(finding(&[], (now, until), &zone), None);
    }
}
