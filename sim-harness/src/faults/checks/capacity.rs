//! No host is ever over-committed: what is granted at a time, added up one by one, is at most what there is. One exception:
//! what had begun when its owner took capacity away stays, and nothing else is granted where there is too little then.
//!
//! Invariant: shares no code with the ledger's own arithmetic. Looks at the site's present and future, as its own clock
//! has it: a window may start a little in the past, where the ledger has forgotten what was granted.

use broker::{
    host::Host,
    ids::{HostId, RequestId},
    ledger::BookingState,
    protocol::{AttemptId, Grant},
    resources::{Amounts, amount_of},
    schedule::Schedule,
    time::{Now, Time, Window},
};

use super::super::node::Node;
use crate::engine::SiteLedger;

/// One amount granted on a host.
struct Granted<'a> {
    request: &'a RequestId,
    host: &'a HostId,
    window: Window,
    amounts: &'a Amounts,
    /// It had begun when its owner took capacity away.
    stays: bool,
}

type Finding = Box<(RequestId, String)>;

fn granted<'a>(request: &'a RequestId, grant: &'a Grant, stays: bool) -> Granted<'a> {
    Granted { request, host: grant.host(), window: grant.window, amounts: &grant.amounts, stays }
}

/// Checks what the ledger has promised, and that no hold outlives its deadline.
pub fn check_ledger(node: &Node, ledger: &SiteLedger, now: Now) -> Result<(), Finding> {
    let mut all = Vec::new();
    for booking in ledger.bookings() {
        let AttemptId { request, attempt, .. } = &booking.attempt;
        if let BookingState::Held { deadline, .. } = booking.state
            && deadline <= now.monotonic
        {
            return Err(Box::new((request.clone(), format!("#{attempt} is held after its deadline"))));
        }
        let stays = node.begun.contains(&booking.attempt);
        all.extend(booking.grants.iter().map(|grant| granted(request, grant, stays)));
    }
    check(&node.hosts, &all, now.utc)
}

/// Checks that what is planned for own jobs fits beside what the ledger has promised.
pub fn check_planned(
    node: &Node,
    ledger: &SiteLedger,
    planned: &[(AttemptId, Grant)],
    now: Now,
) -> Result<(), Finding> {
    let promised = ledger.bookings().flat_map(|booking| {
        let stays = node.begun.contains(&booking.attempt);
        booking.grants.iter().map(move |grant| granted(&booking.attempt.request, grant, stays))
    });
    let planned = planned.iter().map(|(attempt, grant)| granted(&attempt.request, grant, false));
    check(&node.hosts, &promised.chain(planned).collect::<Vec<_>>(), now.utc)
}

/// Checks what the disk says was promised, except for what the ledger has dropped and not yet written.
pub fn check_disk(node: &Node, now: Now) -> Result<(), Finding> {
    let mut all = Vec::new();
    for reservation in node.disk.reservations.values() {
        let is_dropped = |grant: &&Grant| {
            !node.dropped.is_empty() && node.dropped.contains(&(reservation.attempt.clone(), grant.seat))
        };
        let stays = node.begun.contains(&reservation.attempt);
        let kept = reservation.grants.iter().filter(|grant| !is_dropped(grant));
        all.extend(kept.map(|grant| granted(&reservation.attempt.request, grant, stays)));
    }
    check(&node.hosts, &all, now.utc)
}

/// Whether one more grant would be too much beside these, or its host is not there.
pub fn has_no_room<'a>(
    hosts: &'a [(Host, Schedule)],
    promised: impl Iterator<Item = (&'a RequestId, &'a Grant)>,
    grant: &'a Grant,
    request: &'a RequestId,
    now: Now,
) -> bool {
    let promised = promised.map(|(request, grant)| granted(request, grant, false));
    let all: Vec<Granted<'_>> = promised.chain([granted(request, grant, false)]).collect();
    !hosts.iter().any(|(host, _)| host.id == *grant.host()) || check(hosts, &all, now.utc).is_err()
}

/// Sums only grow where something starts, so the starts are the times to look at.
fn check(hosts: &[(Host, Schedule)], granted: &[Granted<'_>], now: Time) -> Result<(), Finding> {
    for (host, own) in hosts {
        let here: Vec<&Granted<'_>> = granted.iter().filter(|granted| *granted.host == host.id).collect();
        for (name, capacity) in &host.capacity {
            let own = own.occupancy(name);
            let starts_of_own = own.map_or_else(Vec::new, |own| own.steps().into_iter().map(|(at, _)| at).collect());
            for at in here.iter().map(|granted| granted.window.start).chain(starts_of_own) {
                let at = at.max(now);
                let under_way = here.iter().filter(|granted| granted.window.start <= at && at < granted.window.end);
                let mut sum = own.map_or(0, |own| own.used_at(at).0);
                let mut last = None;
                for one in under_way {
                    let amount = amount_of(one.amounts, name).0;
                    sum += amount;
                    last = if one.stays || amount == 0 { last } else { Some(one.request) };
                }
                if let Some(request) = last
                    && sum > capacity.0
                {
                    let what = format!(
                        "{}: {sum} of {} granted at {}, there are {}",
                        host.id,
                        name.as_str(),
                        at.0,
                        capacity.0
                    );
                    return Err(Box::new((request.clone(), what)));
                }
            }
        }
    }
    Ok(())
}
