//! The reservations of a grid over time, a row for each site.
//!
//! Invariant: every reservation is inside the picture, and takes at least one column.

use std::collections::BTreeMap;

use jiff::{Timestamp, tz::TimeZone};

use crate::grid::nodes::wire::Reservation;

/// Columns of time.
const COLUMNS: usize = 72;
/// Most rows; sites with fewer reservations are left out.
const ROWS_MAX: usize = 20;
/// How busy a site is: from no booking to as many as any site has in one column.
const LEVELS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Between two times in the heading.
const HEADING_COLUMNS: usize = 12;

/// Draws `all` reservations, of which `example` is marked.
pub fn picture(all: &[&Reservation], example: &Reservation) -> String {
    let begin = all.iter().map(|one| one.start).min().unwrap_or_default();
    let end = all.iter().map(|one| one.end).max().unwrap_or_default();
    let column_s = end.saturating_sub(begin).max(1).unsigned_abs().div_ceil(COLUMNS as u64).cast_signed();
    let column = |t: i64| usize::try_from((t - begin) / column_s).unwrap_or(0).min(COLUMNS - 1);
    let columns = |one: &Reservation| column(one.start)..=column(one.end - 1);
    let mut rows: BTreeMap<&str, (usize, [usize; COLUMNS])> = BTreeMap::new();
    for one in all {
        for host in &one.hosts {
            let (total, row) = rows.entry(&host.site_name).or_insert((0, [0; COLUMNS]));
            *total += 1;
            row[columns(one)].iter_mut().for_each(|bookings| *bookings += 1);
        }
    }
    let most = rows.values().flat_map(|(_, row)| row).copied().max().unwrap_or(0).max(1);
    let mut busiest: Vec<_> = rows.iter().collect();
    busiest.sort_by_key(|(_, (total, _))| std::cmp::Reverse(*total));
    let left_out = busiest.len().saturating_sub(ROWS_MAX);
    busiest.truncate(ROWS_MAX);
    busiest.sort_by_key(|(name, _)| **name);
    let width = busiest.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let heading = (begin..)
        .step_by(HEADING_COLUMNS * usize::try_from(column_s).unwrap_or(usize::MAX))
        .take(COLUMNS / HEADING_COLUMNS)
        .map(|time| format!("{:<HEADING_COLUMNS$}", local_time(time, "%H:%M")));
    let mut lines = vec![format!("{:width$} {}", "", heading.collect::<String>().trim_end())];
    for (name, (_, row)) in busiest {
        let is_marked = example.hosts.iter().any(|host| host.site_name == **name);
        let cells = row.iter().enumerate().map(|(at, bookings)| match bookings {
            _ if is_marked && columns(example).contains(&at) => '#',
            bookings => LEVELS[(bookings * (LEVELS.len() - 1)).div_ceil(most)],
        });
        lines.push(format!("{name:width$} {}", cells.collect::<String>()));
    }
    if left_out > 0 {
        lines.push(format!("and {left_out} more sites"));
    }
    let [.., full] = LEVELS;
    let minutes = column_s as f64 / 60.0;
    lines
        .push(format!("a column is {minutes:.0} min; {full} means {most} bookings of a site, # the reservation below"));
    lines.join("\n")
}

/// A moment in this machine's zone.
pub fn local_time(seconds: i64, format: &str) -> String {
    let moment = Timestamp::from_second(seconds).unwrap_or_default().to_zoned(TimeZone::system());
    moment.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_site_has_a_row_with_its_share_and_the_example_is_marked() {
        let reservation = |start: i64, end: i64, sites: &[&str]| -> Reservation {
            let hosts: Vec<_> = sites
                .iter()
                .map(|site| json!({"site": "x", "site_name": site, "host": "h", "end": 160, "amounts": {}}))
                .collect();
            serde_json::from_value(json!({"start": start, "end": end, "hosts": hosts})).unwrap()
        };
        let (early, late) = (reservation(0, 36 * 60, &["a", "a", "b"]), reservation(36 * 60, 72 * 60, &["a", "c"]));
        let drawn = picture(&[&early, &late], &late);
        let rows: Vec<&str> = drawn.lines().skip(1).collect();
        let [half, none] = ["▄".repeat(36), "·".repeat(36)];
        let expected = [
            format!("a {}{}", "█".repeat(36), "#".repeat(36)),
            format!("b {half}{none}"),
            format!("c {none}{}", "#".repeat(36)),
            "a column is 1 min; █ means 2 bookings of a site, # the reservation below".to_owned(),
        ];
        assert_eq!(rows, expected, "{drawn}");
        let many: Vec<Reservation> = (0..30).map(|site| reservation(0, 1, &[&format!("site-{site}")])).collect();
        let drawn = picture(&many.iter().collect::<Vec<_>>(), &many[0]);
        assert!(drawn.contains("\nand 10 more sites\n") && drawn.lines().count() == 23, "{drawn}");
    }
}
