//! The rules of one owner as the test has drawn them, how they are written, and what they allow, minute by minute.
//!
//! Invariant: it reads nothing of the product but what bookings its ledger lists.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{Drawn, books::Booking};

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// Zones whose clocks never change, with what they are ahead of UTC in seconds.
const ZONES: [(&str, i64); 3] = [("UTC", 0), ("Asia/Kolkata", 19_800), ("Etc/GMT+5", -18_000)];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// The rules that are drawn, by the names that reasons give them.
pub const NAMES: [&str; 9] = [
    "owner-hours",
    "owner-max-duration",
    "owner-max-reach",
    "user-share",
    "site-share",
    "max-host-hours",
    "max-reservations",
    "owner-deny",
    "draining",
];

/// One `[[offered]]` table: minutes of the day, and the days on which they begin.
#[derive(Debug, Clone)]
struct Table {
    stretches: Vec<(i64, i64)>,
    days: BTreeSet<usize>,
    zone: (&'static str, i64),
}

impl Table {
    fn drawn(drawn: &mut Drawn) -> Table {
        // Stretches of one table do not overlap; one alone may go through midnight.
        let half_hours = |drawn: &mut Drawn| 30 * drawn.between(0, 11);
        let stretches = match drawn.between(0, 3) {
            0 => Vec::new(),
            1 => vec![
                (half_hours(drawn), 390 + half_hours(drawn)),
                (750 + half_hours(drawn), 1_110 + half_hours(drawn) % 300),
            ],
            _ => {
                let from = 30 * drawn.between(0, 47);
                vec![(from, (from + 30 * drawn.between(3, 40)) % 1_440)]
            }
        };
        let days = match drawn.between(0, 2) {
            0 => (0..5).collect(),
            1 => [drawn.index(7), drawn.index(7), drawn.index(7)].into(),
            _ => (0..7).collect(),
        };
        Table { stretches, days, zone: *drawn.one_of(&ZONES) }
    }

    fn has(&self, second: i64) -> bool {
        let local = second + self.zone.1;
        let (minute, day) = (local.rem_euclid(DAY) / MINUTE, local.div_euclid(DAY));
        // 1 January 1970 was a Thursday.
        let begins_on = |day: i64| self.days.contains(&usize::try_from((day + 3).rem_euclid(7)).unwrap());
        let is_in = |(from, until): &(i64, i64)| {
            if from < until {
                (*from..*until).contains(&minute) && begins_on(day)
            } else {
                minute >= *from && begins_on(day) || minute < *until && begins_on(day - 1)
            }
        };
        if self.stretches.is_empty() { begins_on(day) } else { self.stretches.iter().any(is_in) }
    }

    fn written(&self) -> String {
        let clock = |minute: &i64| format!("{:02}:{:02}", minute / 60, minute % 60);
        let hours: Vec<String> =
            self.stretches.iter().map(|(from, until)| format!("\"{}-{}\"", clock(from), clock(until))).collect();
        let days: Vec<String> = self.days.iter().map(|day| format!("\"{}\"", DAYS[*day])).collect();
        let hours = if hours.is_empty() { hours.concat() } else { format!("hours = [{}]\n", hours.join(", ")) };
        format!("[[offered]]\n{hours}days = [{}]\nzone = \"{}\"\n", days.join(", "), self.zone.0)
    }
}

/// Who asks, and for what: the rules about users look at it.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The user's key.
    pub key: &'a str,
    /// The node that asks.
    pub entry_point: &'a str,
}

/// The rules of one owner.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    offered: Vec<Table>,
    longest: Option<i64>,
    reach: Option<i64>,
    /// Percent of the cores of each host.
    user_share: Option<u64>,
    site_share: Option<u64>,
    host_hours: Option<i64>,
    reservations: Option<usize>,
    denied: BTreeSet<String>,
    /// Whether the site is being emptied.
    pub drains: bool,
}

impl Rules {
    /// Rules of which each is there now and then, among users with these keys.
    pub fn drawn(drawn: &mut Drawn, keys: &[String]) -> Rules {
        let mut rules = Rules::default();
        if drawn.chance(45) {
            rules.offered = (0..drawn.between(1, 2)).map(|_| Table::drawn(drawn)).collect();
        }
        rules.longest = drawn.chance(30).then(|| MINUTE * drawn.between(40, 600));
        rules.reach = drawn.chance(30).then(|| HOUR * drawn.between(12, 90) + drawn.between(0, 3_000));
        rules.user_share = drawn.chance(20).then(|| drawn.between(20, 90).unsigned_abs());
        rules.site_share = drawn.chance(25).then(|| drawn.between(15, 80).unsigned_abs());
        rules.host_hours = drawn.chance(15).then(|| drawn.between(2, 30));
        rules.reservations = drawn.chance(10).then(|| drawn.index(4) + 1);
        rules.denied = keys.iter().filter(|_| drawn.chance(10)).cloned().collect();
        rules.drains = drawn.chance(6);
        rules
    }

    /// As the configuration has them.
    pub fn written(&self) -> String {
        let mut text = "\n[policy]\n".to_owned();
        let denied: Vec<String> = self.denied.iter().map(|key| format!("\"{key}\"")).collect();
        writeln!(text, "deny = [{}]", denied.join(", ")).unwrap();
        writeln!(text, "max_duration = \"{}s\"", self.longest.unwrap_or(366 * DAY)).unwrap();
        writeln!(text, "max_reach = \"{}s\"", self.reach.unwrap_or(366 * DAY)).unwrap();
        writeln!(text, "site_share = \"{}%\"", self.site_share.unwrap_or(100)).unwrap();
        if let Some(percent) = self.user_share {
            writeln!(text, "user_share = {{ cpu = \"{percent}%\" }}").unwrap();
        }
        if let Some(hours) = self.host_hours {
            writeln!(text, "max_host_hours = {hours}").unwrap();
        }
        if let Some(most) = self.reservations {
            writeln!(text, "max_reservations = {most}").unwrap();
        }
        text + &self.offered.iter().map(Table::written).collect::<String>()
    }

    /// Whether everything from `start` to `end` is offered to somebody who asks `now`.
    pub fn offer(&self, (start, end): (i64, i64), now: i64) -> bool {
        let minutes = (start.div_euclid(MINUTE) + 1..).map(|minute| minute * MINUTE).take_while(|second| *second < end);
        let is_open = |second: i64| self.offered.is_empty() || self.offered.iter().any(|table| table.has(second));
        !self.drains
            && self.longest.is_none_or(|longest| end - start <= longest)
            && self.reach.is_none_or(|reach| end <= now + reach)
            && is_open(start)
            && { minutes }.all(is_open)
    }

    /// The minutes between two times at which hosts begin to be offered.
    pub fn openings(&self, (from, until): (i64, i64)) -> Vec<i64> {
        let is_open = |second: i64| self.offered.iter().any(|table| table.has(second));
        let minutes = (from.div_euclid(MINUTE) + 1..=until.div_euclid(MINUTE)).map(|minute| minute * MINUTE);
        minutes.filter(|second| !self.offered.is_empty() && is_open(*second) && !is_open(second - MINUTE)).collect()
    }

    /// What of so many cores of a host the user may have in a window, beside what he has of it.
    pub fn cores_of_host(
        &self,
        (host, cores): (&str, u64),
        asker: Asker<'_>,
        window: (i64, i64),
        books: &[Booking],
    ) -> u64 {
        let Some(percent) = self.user_share else { return cores };
        let his = books.iter().filter(|booking| booking.key == asker.key && booking.host == host);
        (cores * percent / 100).saturating_sub(peak(his, window, "cpu"))
    }

    /// How many seats of these amounts the user may have more of the whole site, whose hosts have so much of each resource.
    pub fn seats(
        &self,
        hosts: &[[u64; 2]],
        (asker, site): (Asker<'_>, (&str, &str)),
        (window, amounts): ((i64, i64), [u64; 2]),
        books: &[Booking],
    ) -> u64 {
        if self.denied.contains(asker.key) {
            return 0;
        }
        let length = (window.1 - window.0).unsigned_abs();
        let his = || books.iter().filter(|booking| booking.key == asker.key);
        let mut seats = u64::MAX;
        let requests: BTreeSet<&str> = his().map(|booking| booking.request.as_str()).collect();
        if self.reservations.is_some_and(|most| requests.len() >= most) {
            return 0;
        }
        if let Some(hours) = self.host_hours {
            let had: u64 = his().map(Booking::length).sum();
            seats = seats.min((hours.unsigned_abs() * 3_600).saturating_sub(had) / length);
        }
        let (own_site, owner) = site;
        let Some(percent) = self.site_share.filter(|percent| *percent < 100 && asker.key != owner) else {
            return seats;
        };
        let through = || books.iter().filter(|booking| booking.entry_point == asker.entry_point);
        let by_node: Vec<&Booking> = if asker.entry_point == own_site { Vec::new() } else { through().collect() };
        for party in [his().collect::<Vec<_>>(), by_node] {
            for (at, name) in ["cpu", "memory"].into_iter().enumerate().filter(|(at, _)| amounts[*at] > 0) {
                let (sum, one) =
                    (hosts.iter().map(|host| host[at]).sum::<u64>(), hosts.iter().map(|host| host[at]).max());
                let one = one.unwrap_or(0);
                let most = (sum * percent / 100).max(one);
                seats = seats.min(most.saturating_sub(peak(party.iter().copied(), window, name)) / amounts[at]);
                let reach = self.reach.unwrap_or(366 * DAY).unsigned_abs();
                let longest = self.longest.unwrap_or(366 * DAY).unsigned_abs().min(reach);
                let in_all = (sum * reach / 100 * percent).max(one * longest);
                let had: u64 = party.iter().map(|booking| booking.amount(name) * booking.length()).sum();
                seats = seats.min(in_all.saturating_sub(had) / (amounts[at] * length));
            }
        }
        seats
    }

    /// Whether a user has only a share of the site.
    pub fn has_share(&self) -> bool {
        self.site_share.is_some()
    }

    /// The names of rules that this site has, as reasons name them.
    pub fn names(&self, asker: Asker<'_>) -> Vec<&'static str> {
        let has = [
            !self.offered.is_empty(),
            self.longest.is_some(),
            self.reach.is_some(),
            self.user_share.is_some(),
            self.site_share.is_some(),
            self.host_hours.is_some(),
            self.reservations.is_some(),
            self.denied.contains(asker.key),
            self.drains,
        ];
        NAMES.into_iter().zip(has).filter(|(_, has)| *has).map(|(name, _)| name).collect()
    }
}

/// The most of a resource that these have together at any time of a window.
pub fn peak<'a>(bookings: impl Iterator<Item = &'a Booking>, window: (i64, i64), name: &str) -> u64 {
    let there: Vec<&Booking> = bookings.filter(|one| one.window.0 < window.1 && window.0 < one.window.1).collect();
    let at = |time: i64| {
        let then = there.iter().filter(|one| one.window.0 <= time && time < one.window.1);
        then.map(|one| one.amount(name)).sum::<u64>()
    };
    there.iter().map(|one| at(one.window.0.max(window.0))).max().unwrap_or(0)
}
