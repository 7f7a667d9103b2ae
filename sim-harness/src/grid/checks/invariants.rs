//! Checks what was acknowledged to users against all ledgers of the grid, by plain sums over what the nodes' APIs show.
//!
//! Nothing of the nodes' own ledger code is used here, so that the two cannot be wrong in the same way. Violations name
//! request, site, host, resource and amounts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use broker::{
    request::Request,
    resources::{Amounts, ResourceName, amount_of},
    time::{Span, Time},
};

use crate::grid::nodes::wire::{
    Booking, BookingState, Grant, Ledger, LedgerHost, RequestView, Reservation, ReservedHost, Steps,
};

/// What must never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// More is granted than there is.
    OverCommitted,
    /// The schedule that a site publishes is not the sum of the owner's use and the bookings.
    ScheduleDiffers,
    /// A ledger grants on a host that the site does not have.
    UnknownHost,
    /// A hold outlived its lease.
    HoldLeft,
    /// A request without an acknowledged reservation occupies hosts.
    Leftover,
    /// A request has one host more than once.
    Repeated,
    /// What was acknowledged is not in the ledgers, or differs there.
    NotAsAcknowledged,
    /// What was acknowledged is not what was asked.
    NotAsAsked,
}

/// A breach and where it was found. Hosts are named with their sites, times are epoch seconds, amounts are in base units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub breach: Breach,
    /// The request that it is about, where it is about one.
    pub request: Option<String>,
    text: String,
}

impl Violation {
    pub fn new(breach: Breach, request: Option<&str>, text: String) -> Violation {
        Violation { breach, request: request.map(str::to_owned), text }
    }

    /// Whether it is none while sites have yet to learn the outcome.
    pub fn may_pass(&self) -> bool {
        self.is_left() || self.breach == Breach::NotAsAcknowledged
    }

    /// Whether it is none until the longest hold is over.
    pub fn is_left(&self) -> bool {
        matches!(self.breach, Breach::HoldLeft | Breach::Leftover)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a user asked, and what the entry point reported.
#[derive(Debug, Clone, Copy)]
pub struct Reported<'a> {
    /// The request, in absolute time.
    pub request: &'a Request,
    pub view: &'a RequestView,
}

/// Checks everything. `sites` are all that have ever been in the grid, those that are down among them: what a hostile peer has booked
/// for itself is no user's. `now` (epoch seconds) is when the ledgers were read: what was over by then may be gone.
pub fn check(ledgers: &[Ledger], sites: &BTreeSet<String>, reported: &[Reported<'_>], now: i64) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut acknowledged = BTreeSet::new();
    for ledger in ledgers {
        check_hosts(ledger, now, &mut violations);
    }
    for Reported { request, view } in reported.iter().filter(|reported| reported.view.state.is_reserved()) {
        let not_as_asked = |(asked, acknowledged): (String, String)| {
            let text = format!("{}: asked {asked}, acknowledged {acknowledged}", view.id);
            Violation::new(Breach::NotAsAsked, Some(&view.id), text)
        };
        let Some(reservation) = &view.reservation else {
            let asked = format!("{} hosts", request.demand().seats());
            violations.push(not_as_asked((asked, format!("{:?}, but no hosts", view.state))));
            continue;
        };
        acknowledged.insert(view.id.as_str());
        violations.extend(differences(ledgers, request, reservation).into_iter().map(not_as_asked));
        if reservation.end > now {
            violations.extend(check_presence(ledgers, &view.id, reservation));
        }
    }
    for ledger in ledgers {
        check_bookings(ledger, sites, &acknowledged, &mut violations);
    }
    violations
}

/// Use at `t` of a step function.
fn used_at(steps: &Steps, t: i64) -> u64 {
    let next = steps.partition_point(|(at, _)| *at <= t);
    next.checked_sub(1).map_or(0, |index| steps[index].1)
}

/// Sum of what the bookings grant of `resource` on `host` at `t`.
fn granted_at(bookings: &[&Booking], host: &str, resource: &ResourceName, t: i64) -> u128 {
    bookings
        .iter()
        .flat_map(|booking| &booking.grants)
        .filter(|grant| grant.host == host && grant.window.start.0 <= t && t < grant.window.end.0)
        .map(|grant| u128::from(amount_of(&grant.amounts, resource).0))
        .sum()
}

fn check_hosts(ledger: &Ledger, now: i64, violations: &mut Vec<Violation>) {
    for host in &ledger.hosts {
        let is_here = |booking: &&Booking| booking.grants.iter().any(|grant| grant.host == host.id);
        let here: Vec<&Booking> = ledger.bookings.iter().filter(is_here).collect();
        let mut resources: BTreeSet<&ResourceName> = host.resources.keys().collect();
        resources.extend(host.own.keys().chain(host.occupancy.keys()));
        resources.extend(here.iter().flat_map(|booking| &booking.grants).flat_map(|grant| grant.amounts.keys()));
        for resource in resources {
            violations.extend(check_resource(ledger, host, &here, resource, now));
        }
    }
}

/// Looks at every moment at which the sum can change; the first violation of each kind.
fn check_resource(
    ledger: &Ledger,
    host: &LedgerHost,
    bookings: &[&Booking],
    resource: &ResourceName,
    now: i64,
) -> impl Iterator<Item = Violation> {
    let nothing = Steps::new();
    let own = host.own.get(resource).unwrap_or(&nothing);
    let shown = host.occupancy.get(resource).unwrap_or(&nothing);
    let capacity = amount_of(&host.resources, resource).0;
    let mut moments: BTreeSet<i64> = own.iter().chain(shown).map(|(t, _)| *t).collect();
    let grants = bookings.iter().flat_map(|booking| &booking.grants);
    moments.extend(grants.flat_map(|grant| [grant.window.start.0, grant.window.end.0]));
    let name = format!("{}/{}", ledger.site, host.id);
    let (mut over, mut differs) = (None, None);
    for t in moments {
        let granted = granted_at(bookings, &host.id, resource, t);
        let (own, shown) = (u128::from(used_at(own, t)), u128::from(used_at(shown, t)));
        let sum = own + granted;
        if granted > 0 && sum > u128::from(capacity) && over.is_none() {
            let parts = format!("{own} used by the owner and {granted} granted, of {capacity}");
            let text = format!("{name}: {resource} over-committed at {t}: {parts}");
            over = Some(Violation::new(Breach::OverCommitted, None, text));
        }
        // A site forgets the past of its schedules.
        if t >= now && shown != sum && differs.is_none() {
            let text =
                format!("{name}: {resource} at {t}: the schedule shows {shown}, own use and bookings make {sum}");
            differs = Some(Violation::new(Breach::ScheduleDiffers, None, text));
        }
    }
    over.into_iter().chain(differs)
}

fn check_bookings(
    ledger: &Ledger,
    sites: &BTreeSet<String>,
    acknowledged: &BTreeSet<&str>,
    violations: &mut Vec<Violation>,
) {
    let site = &ledger.site;
    let hosts: BTreeSet<&str> = ledger.hosts.iter().map(|host| host.id.as_str()).collect();
    // A request may have several bookings at a site, one for each time that hosts of it were replaced.
    let mut times: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for booking in &ledger.bookings {
        let request = booking.request.as_str();
        let mut note = |breach, text| violations.push(Violation::new(breach, Some(request), text));
        for host in booking.grants.iter().map(|grant| grant.host.as_str()) {
            *times.entry((request, host)).or_default() += 1;
            if !hosts.contains(host) {
                let text = format!("{site}: request {request} has a grant on {host}, which the site does not have");
                note(Breach::UnknownHost, text);
            }
        }
        if booking.state == BookingState::Held {
            note(Breach::HoldLeft, format!("{site}: a hold of request {request} is left"));
        } else if !acknowledged.contains(request) && sites.contains(&booking.entry_point) {
            let text = format!("{site}: {request}, which was acknowledged to no user, is in the ledger");
            note(Breach::Leftover, text);
        }
    }
    for ((request, _), times) in times.into_iter().filter(|(_, times)| *times > 1) {
        let text = format!("{site}: {request} has the same host {times} times");
        violations.push(Violation::new(Breach::Repeated, Some(request), text));
    }
}

/// Where a reservation is not what was asked: what was, and what was acknowledged. Attributes and candidates as far as the ledgers
/// show the hosts.
fn differences(ledgers: &[Ledger], request: &Request, reservation: &Reservation) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let distinct: BTreeSet<_> = reservation.hosts.iter().map(|host| (&host.site, &host.host)).collect();
    if distinct.len() != request.demand().seats() || reservation.hosts.len() != request.demand().seats() {
        let acknowledged = format!("{} hosts, {} of them distinct", reservation.hosts.len(), distinct.len());
        found.push((format!("{} hosts", request.demand().seats()), acknowledged));
    }
    let sites: BTreeSet<_> = reservation.hosts.iter().map(|host| &host.site).collect();
    if let Some(most) = request.demand().sites_max().filter(|most| sites.len() > *most) {
        found.push((format!("{most} sites at most"), format!("{} sites", sites.len())));
    }
    // Starts as the request alone bounds them: no arrival, and any reach where no latest start is given.
    if let Ok((earliest, latest)) = request.starts(Time::ZERO, Span::MAX)
        && !(earliest.0..=latest.0).contains(&reservation.start)
    {
        found.push((format!("a start from {} to {}", earliest.0, latest.0), reservation.start.to_string()));
    }
    for resource in request.demand().resources() {
        let least = amount_of(request.demand().per_host(), &resource).0;
        let mut sum: u128 = 0;
        for host in &reservation.hosts {
            let granted = amount_of(&host.amounts, &resource).0;
            sum += u128::from(granted);
            if granted < least {
                let acknowledged = format!("{granted} on {}/{}", host.site, host.host);
                found.push((format!("{resource} {least} on each host"), acknowledged));
            }
        }
        let needed = request.demand().needed_in_sum(&resource).0;
        let is_more = request.demand().is_exclusive() && sum > u128::from(needed);
        if sum != u128::from(needed) && !is_more {
            found.push((format!("{resource} {needed} in sum"), format!("{sum}")));
        }
    }
    // Hosts that talk to each other last as long as the slowest of them.
    let speed_of = |seat: &ReservedHost| {
        let ledger = ledgers.iter().find(|ledger| ledger.site == seat.site)?;
        ledger.hosts.iter().find(|host| host.id == seat.host).map(|host| host.speed)
    };
    let talks = request.demand().traffic().is_some();
    let slowest = reservation.hosts.iter().filter(|_| talks).filter_map(speed_of).min();
    for seat in &reservation.hosts {
        let ledger = ledgers.iter().find(|ledger| ledger.site == seat.site);
        let Some(host) = ledger.and_then(|ledger| ledger.hosts.iter().find(|host| host.id == seat.host)) else {
            continue;
        };
        let name = format!("{}/{}", seat.site, seat.host);
        let end = Time(reservation.start) + request.demand().length_at(slowest.unwrap_or(host.speed));
        let is_late = request.window().deadline.is_some_and(|deadline| end > deadline);
        if end.0 != seat.end || is_late {
            found.push((format!("{name} until {}", end.0), format!("until {}", seat.end)));
        }
        let wrong = request.demand().attributes().iter().find(|(key, value)| host.attributes.get(*key) != Some(value));
        let is_candidate =
            request.demand().candidates().is_none_or(|named| named.iter().any(|id| id.as_str() == host.id));
        if let Some((key, value)) = wrong {
            found.push((format!("{key}={value}"), format!("{name} without it")));
        } else if !is_candidate {
            found.push(("named candidates".to_owned(), name));
        }
    }
    found
}

/// What one request occupies: site and host, window, amounts by resource.
type Occupied = BTreeSet<(String, i64, i64, Vec<(String, u64)>)>;

fn check_presence(ledgers: &[Ledger], id: &str, reservation: &Reservation) -> Option<Violation> {
    let amounts = |amounts: &Amounts| {
        amounts.iter().filter(|(_, amount)| amount.0 > 0).map(|(name, amount)| (name.to_string(), amount.0)).collect()
    };
    let seats = reservation
        .hosts
        .iter()
        .map(|seat| (format!("{}/{}", seat.site, seat.host), reservation.start, seat.end, amounts(&seat.amounts)));
    let acknowledged: Occupied = seats.collect();
    let mut found = Occupied::new();
    for ledger in ledgers {
        for booking in ledger.bookings.iter().filter(|booking| booking.request == id) {
            if booking.state == BookingState::Confirmed {
                found.extend(booking.grants.iter().map(|Grant { host, window, amounts: granted }| {
                    (format!("{}/{host}", ledger.site), window.start.0, window.end.0, amounts(granted))
                }));
            }
        }
    }
    let words = |side: &Occupied, other: &Occupied| {
        let only: Vec<String> = side
            .difference(other)
            .map(|(host, start, end, amounts)| format!("{host} in [{start}, {end}) with {amounts:?}"))
            .collect();
        if only.is_empty() { "nothing more".to_owned() } else { only.join(", ") }
    };
    (acknowledged != found).then(|| {
        let (ours, theirs) = (words(&acknowledged, &found), words(&found, &acknowledged));
        let text = format!("{id}: acknowledged {ours}, the ledgers have {theirs}");
        Violation::new(Breach::NotAsAcknowledged, Some(id), text)
    })
}

#[cfg(test)]
#[path = "invariants_tests.rs"]
mod tests;
