//! Checks what was acknowledged to users against all ledgers of the grid, by plain sums over what the nodes' APIs show.
//!
//! Nothing of the nodes' own ledger code is used here, so that the two cannot be wrong in the same way. Violations name
//! request, site, host, resource and amounts.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    ids::HostId,
    request::Request,
    resources::{ResourceName, amount_of},
    time::{Span, Time},
};

use crate::grid::nodes::wire::{Booking, BookingState, Ledger, LedgerHost, RequestView, Reservation, Steps};

/// Something that must never be. Hosts are named with their sites, times are epoch seconds, amounts are in base units.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// More is granted than there is.
    #[error("{host}: {resource} over-committed at {t}: {own} used by the owner and {granted} granted, of {capacity}")]
    OverCommitted { host: String, resource: ResourceName, t: i64, own: u128, granted: u128, capacity: u64 },
    /// The schedule that a site publishes is not the sum of the owner's use and the bookings.
    #[error("{host}: {resource} at {t}: the schedule shows {shown}, own use and bookings make {sum}")]
    ScheduleDiffers { host: String, resource: ResourceName, t: i64, shown: u64, sum: u128 },
    /// A ledger grants on a host that the site does not have.
    #[error("{site}: request {request} has a grant on {host}, which the site does not have")]
    UnknownHost { site: String, request: String, host: String },
    /// A hold outlived its lease.
    #[error("{site}: a hold of request {request} is left")]
    HoldLeft { site: String, request: String },
    /// A request without an acknowledged reservation occupies hosts.
    #[error("{site}: {request}, which was acknowledged to no user, is in the ledger")]
    Leftover { site: String, request: String },
    /// A request has one host more than once.
    #[error("{site}: {request} has the same host {times} times")]
    Repeated { site: String, request: String, times: usize },
    /// What was acknowledged is not in the ledgers, or differs there.
    #[error("{request}: acknowledged {acknowledged}, the ledgers have {found}")]
    NotAsAcknowledged { request: String, acknowledged: String, found: String },
    /// What was acknowledged is not what was asked.
    #[error("{request}: asked {asked}, acknowledged {acknowledged}")]
    NotAsAsked { request: String, asked: String, acknowledged: String },
}

impl Violation {
    /// Whether it is none while sites have yet to learn the outcome.
    pub fn may_pass(&self) -> bool {
        match self {
            Violation::HoldLeft { .. } | Violation::Leftover { .. } | Violation::NotAsAcknowledged { .. } => true,
            Violation::OverCommitted { .. }
            | Violation::ScheduleDiffers { .. }
            | Violation::UnknownHost { .. }
            | Violation::Repeated { .. }
            | Violation::NotAsAsked { .. } => false,
        }
    }

    /// The request whose reservation is not in the ledgers as acknowledged, if it is that.
    pub fn broken_reservation(&self) -> Option<&str> {
        match self {
            Violation::NotAsAcknowledged { request, .. } => Some(request),
            _ => None,
        }
    }
}

/// What a user asked, and what the entry point reported.
#[derive(Debug, Clone, Copy)]
pub struct Reported<'a> {
    /// The request, in absolute time.
    pub request: &'a Request,
    pub view: &'a RequestView,
}

/// Checks everything. `now` (epoch seconds) is when the ledgers were read: what was over by then may be gone.
pub fn check(ledgers: &[Ledger], reported: &[Reported<'_>], now: i64) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ledger in ledgers {
        check_hosts(ledger, now, &mut violations);
    }
    let acknowledged: BTreeMap<&str, &Reservation> = reported
        .iter()
        .filter(|reported| reported.view.state.is_reserved())
        .filter_map(|reported| Some((reported.view.id.as_str(), reported.view.reservation.as_ref()?)))
        .collect();
    check_bookings(ledgers, &acknowledged, &mut violations);
    for reported in reported.iter().filter(|reported| reported.view.state.is_reserved()) {
        match &reported.view.reservation {
            Some(reservation) => check_reservation(ledgers, *reported, reservation, now, &mut violations),
            None => violations.push(Violation::NotAsAsked {
                request: reported.view.id.clone(),
                asked: format!("{} hosts", reported.request.hosts()),
                acknowledged: format!("{:?}, but no hosts", reported.view.state),
            }),
        }
    }
    violations
}

/// Whether a hold, or anything of a request that is not reserved, is in a ledger: such things may stay until the hold
/// deadline.
pub fn is_unsettled(ledgers: &[Ledger], reported: &[Reported<'_>]) -> bool {
    let acknowledged: BTreeSet<&str> = reported
        .iter()
        .filter(|reported| reported.view.state.is_reserved())
        .map(|reported| reported.view.id.as_str())
        .collect();
    ledgers
        .iter()
        .flat_map(|ledger| &ledger.bookings)
        .any(|booking| booking.state == BookingState::Held || !acknowledged.contains(booking.request.as_str()))
}

/// Use at `t` of a step function.
fn used_at(steps: &Steps, t: i64) -> u64 {
    let next = steps.partition_point(|(at, _)| *at <= t);
    next.checked_sub(1).map_or(0, |index| steps[index].1)
}

/// Sum of what the bookings grant of `resource` on `host` at `t`.
fn granted_at(bookings: &[Booking], host: &str, resource: &ResourceName, t: i64) -> u128 {
    bookings
        .iter()
        .filter(|booking| booking.window.start.0 <= t && t < booking.window.end.0)
        .flat_map(|booking| &booking.grants)
        .filter(|grant| grant.host.as_str() == host)
        .map(|grant| u128::from(amount_of(&grant.amounts, resource).0))
        .sum()
}

fn check_hosts(ledger: &Ledger, now: i64, violations: &mut Vec<Violation>) {
    for host in &ledger.hosts {
        let here: Vec<Booking> = ledger
            .bookings
            .iter()
            .filter(|booking| booking.grants.iter().any(|grant| grant.host.as_str() == host.id))
            .cloned()
            .collect();
        let mut resources: BTreeSet<&ResourceName> = host.resources.keys().collect();
        resources.extend(host.own.keys().chain(host.occupancy.keys()));
        resources.extend(here.iter().flat_map(|booking| &booking.grants).flat_map(|grant| grant.amounts.keys()));
        for resource in resources {
            check_resource(ledger, host, &here, resource, now, violations);
        }
    }
}

/// Looks at every moment at which the sum can change, and reports the first violation of each kind.
fn check_resource(
    ledger: &Ledger,
    host: &LedgerHost,
    bookings: &[Booking],
    resource: &ResourceName,
    now: i64,
    violations: &mut Vec<Violation>,
) {
    let nothing = Steps::new();
    let own = host.own.get(resource).unwrap_or(&nothing);
    let shown = host.occupancy.get(resource).unwrap_or(&nothing);
    let capacity = amount_of(&host.resources, resource).0;
    let mut moments: BTreeSet<i64> = own.iter().chain(shown).map(|(t, _)| *t).collect();
    moments.extend(bookings.iter().flat_map(|booking| [booking.window.start.0, booking.window.end.0]));
    let name = || format!("{}/{}", ledger.site, host.id);
    let (mut over, mut differs) = (None, None);
    for t in moments {
        let granted = granted_at(bookings, &host.id, resource, t);
        let own = u128::from(used_at(own, t));
        if granted > 0 && own + granted > u128::from(capacity) && over.is_none() {
            over =
                Some(Violation::OverCommitted { host: name(), resource: resource.clone(), t, own, granted, capacity });
        }
        // A site forgets the past of its schedules.
        let shown = used_at(shown, t);
        if t >= now && u128::from(shown) != own + granted && differs.is_none() {
            let resource = resource.clone();
            differs = Some(Violation::ScheduleDiffers { host: name(), resource, t, shown, sum: own + granted });
        }
    }
    violations.extend(over.into_iter().chain(differs));
}

fn check_bookings(ledgers: &[Ledger], acknowledged: &BTreeMap<&str, &Reservation>, violations: &mut Vec<Violation>) {
    for ledger in ledgers {
        let hosts: BTreeSet<&str> = ledger.hosts.iter().map(|host| host.id.as_str()).collect();
        // A request may have several bookings at a site, one for each time that hosts of it were replaced.
        let mut times: BTreeMap<(&str, &HostId), usize> = BTreeMap::new();
        for booking in &ledger.bookings {
            let (site, request) = (ledger.site.clone(), booking.request.clone());
            for grant in booking.grants.iter().filter(|grant| !hosts.contains(grant.host.as_str())) {
                let (site, request) = (site.clone(), request.clone());
                violations.push(Violation::UnknownHost { site, request, host: grant.host.to_string() });
            }
            for grant in &booking.grants {
                *times.entry((&booking.request, &grant.host)).or_default() += 1;
            }
            if booking.state == BookingState::Held {
                violations.push(Violation::HoldLeft { site, request });
            } else if !acknowledged.contains_key(booking.request.as_str()) {
                violations.push(Violation::Leftover { site, request });
            }
        }
        violations.extend(times.into_iter().filter(|(_, times)| *times > 1).map(|((request, _), times)| {
            Violation::Repeated { site: ledger.site.clone(), request: request.to_owned(), times }
        }));
    }
}

fn check_reservation(
    ledgers: &[Ledger],
    reported: Reported<'_>,
    reservation: &Reservation,
    now: i64,
    violations: &mut Vec<Violation>,
) {
    let id = &reported.view.id;
    let as_asked =
        |asked: String, acknowledged: String| Violation::NotAsAsked { request: id.clone(), asked, acknowledged };
    let request = reported.request;
    let distinct: BTreeSet<(&str, &str)> =
        reservation.hosts.iter().map(|host| (host.site.as_str(), host.host.as_str())).collect();
    if distinct.len() != request.hosts() || reservation.hosts.len() != request.hosts() {
        let acknowledged = format!("{} hosts, {} of them distinct", reservation.hosts.len(), distinct.len());
        violations.push(as_asked(format!("{} hosts", request.hosts()), acknowledged));
    }
    violations.extend(window_as_asked(request, reservation).map(|(asked, acknowledged)| as_asked(asked, acknowledged)));
    for resource in request.resources() {
        let least = amount_of(request.per_host(), &resource).0;
        let mut sum: u128 = 0;
        for host in &reservation.hosts {
            let granted = amount_of(&host.amounts, &resource).0;
            sum += u128::from(granted);
            if granted < least {
                let acknowledged = format!("{granted} on {}/{}", host.site, host.host);
                violations.push(as_asked(format!("{resource} {least} on each host"), acknowledged));
            }
        }
        let needed = request.needed_in_sum(&resource).0;
        if sum != u128::from(needed) {
            violations.push(as_asked(format!("{resource} {needed} in sum"), format!("{sum}")));
        }
    }
    violations.extend(
        hosts_as_asked(ledgers, request, reservation).map(|(asked, acknowledged)| as_asked(asked, acknowledged)),
    );
    if reservation.end > now {
        check_presence(ledgers, id, reservation, violations);
    }
}

fn window_as_asked(request: &Request, reservation: &Reservation) -> Option<(String, String)> {
    let length = reservation.end.checked_sub(reservation.start).and_then(|length| u64::try_from(length).ok());
    // Starts as the request alone bounds them: no arrival, and any reach where no latest start is given.
    let (earliest, latest) = request.starts(Time::ZERO, Span::MAX).ok()?;
    let is_in_time = (earliest.0..=latest.0).contains(&reservation.start);
    (length != Some(request.duration().0) || !is_in_time).then(|| {
        let asked = format!("{} s from {} to {}", request.duration().0, earliest.0, latest.0);
        (asked, format!("[{}, {})", reservation.start, reservation.end))
    })
}

/// Attributes and candidates, as far as the ledgers show the hosts.
fn hosts_as_asked<'a>(
    ledgers: &'a [Ledger],
    request: &'a Request,
    reservation: &'a Reservation,
) -> impl Iterator<Item = (String, String)> + 'a {
    reservation.hosts.iter().filter_map(move |acknowledged| {
        let ledger = ledgers.iter().find(|ledger| ledger.site == acknowledged.site)?;
        let host = ledger.hosts.iter().find(|host| host.id == acknowledged.host)?;
        let wrong = request.attributes().iter().find(|(key, value)| host.attributes.get(*key) != Some(value));
        if let Some((key, value)) = wrong {
            return Some((format!("{key}={value}"), format!("{}/{} without it", acknowledged.site, acknowledged.host)));
        }
        let is_candidate = request.candidates().is_none_or(|named| named.iter().any(|id| id.as_str() == host.id));
        (!is_candidate).then(|| ("named candidates".to_owned(), format!("{}/{}", acknowledged.site, acknowledged.host)))
    })
}

/// What one request occupies: site and host, window, amounts by resource.
type Occupied = BTreeSet<(String, i64, i64, Vec<(String, u64)>)>;

fn check_presence(ledgers: &[Ledger], id: &str, reservation: &Reservation, violations: &mut Vec<Violation>) {
    let amounts = |amounts: &broker::resources::Amounts| {
        amounts.iter().filter(|(_, amount)| amount.0 > 0).map(|(name, amount)| (name.to_string(), amount.0)).collect()
    };
    let acknowledged: Occupied = reservation
        .hosts
        .iter()
        .map(|host| {
            (format!("{}/{}", host.site, host.host), reservation.start, reservation.end, amounts(&host.amounts))
        })
        .collect();
    let mut found = Occupied::new();
    for ledger in ledgers {
        for booking in ledger.bookings.iter().filter(|booking| booking.request == id) {
            if booking.state == BookingState::Confirmed {
                found.extend(booking.grants.iter().map(|grant| {
                    let host = format!("{}/{}", ledger.site, grant.host);
                    (host, booking.window.start.0, booking.window.end.0, amounts(&grant.amounts))
                }));
            }
        }
    }
    if acknowledged != found {
        let words = |side: &Occupied, other: &Occupied| {
            let only: Vec<String> = side
                .difference(other)
                .map(|(host, start, end, amounts)| format!("{host} in [{start}, {end}) with {amounts:?}"))
                .collect();
            if only.is_empty() { "nothing more".to_owned() } else { only.join(", ") }
        };
        violations.push(Violation::NotAsAcknowledged {
            request: id.to_owned(),
            acknowledged: words(&acknowledged, &found),
            found: words(&found, &acknowledged),
        });
    }
}

#[cfg(test)]
#[path = "invariants_tests.rs"]
mod tests;
