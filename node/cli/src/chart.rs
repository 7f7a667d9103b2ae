//! Reservations as bars of text: a row a host, grouped by site, time from left to right, a letter a request.
//!
//! Invariant: pure; what is drawn depends on what is given only. A cell shows a request when any part of its time is
//! reserved for it, so a short reservation is never invisible; a cell of several requests shows how that they are several.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    ids::{HostId, SiteId},
    time::{Span, Time},
};
use jiff::tz::TimeZone;
use kolo_api::{bookings::BookingView, grid::ScheduleState};
use kolo_text::{
    safe::safe,
    time::{format_span, format_time},
    words::{age_text, counted, site_text},
};
use serde::Serialize;

use super::output::Look;

/// What a request is drawn as; more requests than letters share the last one.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789*";
const FREE: char = '\u{b7}';
const SEVERAL: char = '#';
/// Columns between two marks of the ruler.
const MARK_COLUMNS: usize = 12;
/// Narrowest and widest column of names.
const NAME_COLUMNS: (usize, usize) = (6, 20);
const DAY_S: u64 = 86_400;
/// Lengths of a column, in seconds, as people count time; longer ones are whole days.
const CELLS_S: [u64; 20] =
    [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200];

/// What a chart shows.
#[derive(Debug, Clone, Serialize)]
pub struct Chart {
    pub from: Time,
    pub until: Time,
    /// The present, by the node's clock.
    pub now: Time,
    /// Sites in order of their names.
    pub sites: Vec<ChartSite>,
    /// Reservations that touch the time shown, by start.
    pub bookings: Vec<BookingView>,
    /// Whether there are more than were asked for.
    pub is_cut: bool,
}

/// A site and its hosts.
#[derive(Debug, Clone, Serialize)]
pub struct ChartSite {
    pub site: SiteId,
    pub name: String,
    /// What is known of its schedule.
    pub schedule: ScheduleState,
    /// How long ago it reported its reservations.
    pub told_age_s: Option<u64>,
    /// Whether its owner publishes no reservations.
    pub is_withheld: bool,
    pub hosts: Vec<HostId>,
    /// What its uplink carries, if that has a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink_mbps: Option<u64>,
}

impl ChartSite {
    /// Its hosts, and its uplink below them.
    fn units(&self) -> impl Iterator<Item = HostId> {
        self.hosts.iter().cloned().chain(self.uplink_mbps.map(|_| HostId::uplink()))
    }
}

impl Chart {
    /// The chart as text of so many columns, names included; times in the zone of `look`.
    pub fn text(&self, columns: usize, look: &Look) -> String {
        let names = self.sites.iter().flat_map(ChartSite::units).map(|unit| safe(unit.as_str()).chars().count() + 2);
        let name_columns = names.max().unwrap_or(0).clamp(NAME_COLUMNS.0, NAME_COLUMNS.1);
        let cells = columns.saturating_sub(name_columns + 1).max(MARK_COLUMNS);
        let grid = Grid::new(self.from, self.until.since(self.from), cells);
        let letters = self.letters();
        let mut text = format!(
            "{} to {}, {} a column\n",
            format_time(self.from, &look.zone),
            format_time(self.until, &look.zone),
            format_span(grid.cell)
        );
        let (marks, pointers) = grid.ruler(self.now, &look.zone);
        text.push_str(&format!("{:name_columns$} {marks}\n{:name_columns$} {pointers}\n", "", ""));
        for site in &self.sites {
            text.push_str(&site_line(site, look));
            let mut by_host: BTreeMap<HostId, Vec<(&BookingView, Time)>> = BTreeMap::new();
            for booking in self.bookings.iter().filter(|booking| booking.site == site.site) {
                for host in &booking.hosts {
                    by_host.entry(host.host.clone()).or_default().push((booking, host.end));
                }
                if booking.uplink_mbps > 0 {
                    by_host.entry(HostId::uplink()).or_default().push((booking, booking.end));
                }
            }
            for host in site.units() {
                let bookings = by_host.get(&host).map_or(&[][..], Vec::as_slice);
                let name: String = safe(host.as_str()).chars().take(name_columns - 2).collect();
                let bar =
                    grid.bar(bookings, &letters, site.schedule == ScheduleState::Current && !site.is_withheld, look);
                text.push_str(&format!("  {name:<width$} {bar}\n", width = name_columns - 2));
            }
        }
        text + &self.legend(&letters, look)
    }

    /// A letter for each request, in order of the reservations.
    fn letters(&self) -> BTreeMap<&str, usize> {
        let mut letters = BTreeMap::new();
        for booking in &self.bookings {
            let next = letters.len();
            letters.entry(booking.reservation().as_str()).or_insert(next);
        }
        letters
    }

    fn legend(&self, letters: &BTreeMap<&str, usize>, look: &Look) -> String {
        let mut lines = BTreeMap::new();
        for booking in &self.bookings {
            let index = letters[booking.reservation().as_str()];
            let line = lines.entry(index).or_insert_with(|| (booking, booking.end, BTreeSet::new()));
            line.1 = line.1.max(booking.end);
            line.2.extend(booking.hosts.iter().map(|host| (booking.site.as_str(), host.host.as_str())));
        }
        let mut text = String::new();
        for (index, (booking, end, hosts)) in lines {
            let user = if booking.user.is_empty() { "-".to_owned() } else { safe(&booking.user) };
            let (id, hosts) = (safe(booking.reservation().as_str()), counted(hosts.len(), "host"));
            let what = format!("{id}  {user}  {hosts}");
            let when = format!("{} to {}", format_time(booking.start, &look.zone), format_time(end, &look.zone));
            let width = 2 + what.chars().count() + 2 + when.chars().count();
            let gap = if look.columns.is_some_and(|columns| columns < width) { "\n    " } else { "  " };
            let sign = look.paint.numbered(&letter(index).to_string(), index);
            text.push_str(&format!("{sign} {what}{gap}{when}\n"));
        }
        if text.is_empty() {
            text.push_str("nothing is reserved in this time\n");
        }
        if self.is_cut {
            text.push_str("there are more reservations than are shown; look at less time, or at one site\n");
        }
        text
    }
}

fn site_line(site: &ChartSite, look: &Look) -> String {
    let name = safe(&site_text(site.site.as_str(), &site.name));
    let age = site.told_age_s.map_or_else(
        || "no reservations reported".to_owned(),
        |age| format!("reservations as of {} ago", age_text(Some(age))),
    );
    if site.is_withheld {
        format!("{}  {}\n", look.paint.title(&name), look.paint.faint("its owner publishes no reservations"))
    } else if site.schedule == ScheduleState::Current {
        format!("{}  {}\n", look.paint.title(&name), look.paint.faint(&age))
    } else {
        format!("{}  {}\n", look.paint.title(&name), look.paint.doubtful(&format!("{}, {age}", site.schedule.as_str())))
    }
}

fn letter(index: usize) -> char {
    char::from(LETTERS[index.min(LETTERS.len() - 1)])
}

/// Columns of equal time.
struct Grid {
    from: Time,
    span: Span,
    cell: Span,
    cells: usize,
}

impl Grid {
    /// At most `columns` columns of a round length, for all of `span`.
    fn new(from: Time, span: Span, columns: usize) -> Grid {
        let least = span.0.div_ceil(columns.max(1) as u64).max(1);
        let cell = CELLS_S.into_iter().find(|cell| *cell >= least).unwrap_or_else(|| least.next_multiple_of(DAY_S));
        let cells = usize::try_from(span.0.div_ceil(cell)).unwrap_or(columns);
        Grid { from, span, cell: Span(cell), cells: cells.max(1) }
    }

    /// Start of a column.
    fn start(&self, column: usize) -> Time {
        self.from + Span(self.cell.0.saturating_mul(column as u64))
    }

    /// Columns that `start..end` touches.
    fn columns(&self, start: Time, end: Time) -> std::ops::Range<usize> {
        let until = self.from + self.span;
        let inside = |time: Time| time.clamp(self.from, until).since(self.from).0;
        let first = inside(start) / self.cell.0;
        // What begins after the right edge has no column, not even the last one in part.
        let last = if start < until { inside(end).div_ceil(self.cell.0) } else { first };
        let column = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).min(self.cells);
        column(first)..column(last)
    }

    /// The times above the marks, and the marks with a pointer at the present.
    fn ruler(&self, now: Time, zone: &TimeZone) -> (String, String) {
        let (mut labels, mut marks) = (String::new(), String::new());
        for column in (0..self.cells).step_by(MARK_COLUMNS) {
            // 2026-11-21 08:00:00+01:00: the clock, or day and clock when there are several days.
            let shown = format_time(self.start(column), zone);
            let part = if self.span.0 > DAY_S { shown.get(5..16) } else { shown.get(11..16) };
            let width = MARK_COLUMNS.min(self.cells - column);
            let label: String = part.unwrap_or_default().chars().take(width).collect();
            labels.push_str(&format!("{label:<width$}"));
            marks.push_str(&format!("{:<width$}", "|"));
        }
        let mut marks: Vec<char> = marks.chars().collect();
        let present = self.columns(now, now + Span(1));
        if now >= self.from && present.start < marks.len() {
            marks[present.start] = '\u{25bc}';
        }
        (labels.trim_end().to_owned(), marks.into_iter().collect::<String>().trim_end().to_owned())
    }

    /// The bar of a host with its reservations, each with its end there.
    fn bar(
        &self,
        bookings: &[(&BookingView, Time)],
        letters: &BTreeMap<&str, usize>,
        is_current: bool,
        look: &Look,
    ) -> String {
        let mut cells: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.cells];
        for (booking, end) in bookings {
            let columns = self.columns(booking.start, *end);
            for cell in cells.get_mut(columns).into_iter().flatten() {
                cell.insert(letters[booking.reservation().as_str()]);
            }
        }
        let free = if is_current { FREE } else { '?' };
        let mut text = String::new();
        // One colour a run, not one a cell: lines stay short enough for slow terminals.
        for run in cells.chunk_by(|one, next| one == next) {
            let drawn = |shown: char| shown.to_string().repeat(run.len());
            match (run[0].len(), run[0].first()) {
                (1, Some(index)) => text.push_str(&look.paint.numbered(&drawn(letter(*index)), *index)),
                (0, _) => text.push_str(&look.paint.faint(&drawn(free))),
                _ => text.push_str(&drawn(SEVERAL)),
            }
        }
        text
    }
}

#[cfg(test)]
pub mod tests {
    use broker::ids::RequestId;
    use expect_test::expect;
    use kolo_api::bookings::BookedHost;
    use proptest::prelude::*;

    use super::*;

    fn booking(site: &str, request: &str, user: &str, hours: (i64, i64), hosts: &[&str]) -> BookingView {
        let end = Time(1_763_712_000 + hours.1 * 3600);
        let hosts =
            hosts.iter().map(|host| BookedHost { host: HostId::new(host).unwrap(), end, amounts: Default::default() });
        BookingView {
            site: SiteId::new(site).unwrap(),
            request: RequestId::new(request).unwrap(),
            part_of: None,
            entry_point: SiteId::new("e").unwrap(),
            attempt: 1,
            user: user.to_owned(),
            start: Time(1_763_712_000 + hours.0 * 3600),
            end: Time(1_763_712_000 + hours.1 * 3600),
            hosts: hosts.collect(),
            uplink_mbps: 0,
        }
    }

    /// Two sites, one of them stale and with a hostile name.
    pub fn chart() -> Chart {
        let site = |site: &str, name: &str, schedule: ScheduleState, hosts: &[&str]| ChartSite {
            site: SiteId::new(site).unwrap(),
            name: name.to_owned(),
            schedule,
            told_age_s: (schedule == ScheduleState::Current).then_some(2),
            is_withheld: false,
            hosts: hosts.iter().map(|host| HostId::new(host).unwrap()).collect(),
            uplink_mbps: None,
        };
        Chart {
            from: Time(1_763_712_000),
            until: Time(1_763_712_000 + 24 * 3600),
            now: Time(1_763_712_000 + 3600),
            sites: vec![
                site("12D3KooWaaaa1111", "alpha", ScheduleState::Current, &["a1", "a2"]),
                site("12D3KooWbbbb2222", "be\u{1b}[2Jta", ScheduleState::Stale, &["b1"]),
            ],
            bookings: vec![
                booking("12D3KooWaaaa1111", "first", "ada", (0, 6), &["a1", "a2"]),
                booking("12D3KooWbbbb2222", "first", "ada", (0, 6), &["b1"]),
                booking("12D3KooWaaaa1111", "second", "", (5, 30), &["a1"]),
            ],
            is_cut: false,
        }
    }

    #[test]
    fn bars_show_who_has_which_host_when() {
        expect![[r#"
            2025-11-21 08:00:00+00:00 to 2025-11-22 08:00:00+00:00, 30m a column
                   08:00       14:00       20:00       02:00
                   | ▼         |           |           |
            alpha (..aaaa1111)  reservations as of 2s ago
              a1   AAAAAAAAAA##BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB
              a2   AAAAAAAAAAAA····································
            be\u{1b}[2Jta (..bbbb2222)  stale, no reservations reported
              b1   AAAAAAAAAAAA????????????????????????????????????
            A first  ada  3 hosts  2025-11-21 08:00:00+00:00 to 2025-11-21 14:00:00+00:00
            B second  -  1 host  2025-11-21 13:00:00+00:00 to 2025-11-22 14:00:00+00:00
        "#]]
        .assert_eq(&chart().text(55, &Look::plain(TimeZone::UTC)));
    }

    #[test]
    fn an_uplink_is_a_row_of_its_site() {
        let mut chart = chart();
        chart.sites.truncate(1);
        chart.sites[0].uplink_mbps = Some(1000);
        chart.bookings[0].uplink_mbps = 300;
        let text = chart.text(57, &Look::plain(TimeZone::UTC));
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("  ") && line.contains('A')).collect();
        let bar = format!("  uplink {}{}", "A".repeat(12), FREE.to_string().repeat(36));
        assert_eq!(rows.last(), Some(&&*bar), "{text}");
    }

    #[test]
    fn the_legend_of_a_narrow_terminal_has_times_of_their_own_lines() {
        let look = Look { columns: Some(76), ..Look::plain(TimeZone::UTC) };
        let text = chart().text(55, &look);
        let legend: Vec<&str> = text.lines().skip(8).collect();
        assert_eq!(
            legend,
            [
                "A first  ada  3 hosts",
                "    2025-11-21 08:00:00+00:00 to 2025-11-21 14:00:00+00:00",
                "B second  -  1 host  2025-11-21 13:00:00+00:00 to 2025-11-22 14:00:00+00:00"
            ]
        );
    }

    proptest! {
        #[test]
        fn every_reservation_inside_is_visible_and_no_line_is_too_long(
            columns in 40_usize..300,
            span in 60_u64..10_000_000,
            start in -2_000_000_i64..20_000_000,
            length in 1_i64..2_000_000,
        ) {
            let mut chart = chart();
            chart.until = chart.from + Span(span);
            chart.bookings.truncate(1);
            chart.bookings[0].start = Time(chart.from.0 + start);
            chart.bookings[0].end = Time(chart.from.0 + start + length);
            chart.bookings[0].hosts.iter_mut().for_each(|host| host.end = Time(chart.from.0 + start + length));
            let text = chart.text(columns, &Look::plain(TimeZone::UTC));
            let bar = text.lines().find(|line| line.starts_with("  a1")).unwrap();
            prop_assert!(bar.chars().count() <= columns);
            let is_inside = chart.bookings[0].start < chart.until && chart.bookings[0].end > chart.from;
            prop_assert_eq!(bar.contains('A'), is_inside, "{}", bar);
        }
    }
}
