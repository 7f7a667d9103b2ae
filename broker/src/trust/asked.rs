//! Whether a hold is what the user asked for: the part of it that lies at this site, which is all that the site can see.
//!
//! Invariant: nothing here looks at the site's own schedules; a hold that passes may still find no room.

use std::collections::BTreeSet;

use super::{Denial, RequestStatement, Rule};
use crate::{
    cost::Cost,
    demand::{Demand, HostNeeds, Length, Unmet},
    host::Host,
    ids::{HostId, SiteId},
    protocol::Grant,
    request::StartWindow,
    resources::{Amounts, amount_of},
    time::{Span, Time},
};

/// Clocks of users and sites may differ by this much: a start may lie this long before the user signed.
pub const CLOCKS_DIFFER: Span = Span(60);

/// Checks what is to be granted at `site`, one of so many, against the request. Of a host that the site does not know only its name is
/// checked.
///
/// # Errors
/// The first rule that the hold breaks.
pub(crate) fn check<'a>(
    statement: &RequestStatement,
    (grants, sites): (&[Grant], usize),
    site: &SiteId,
    host: impl Fn(&HostId) -> Option<&'a Host>,
) -> Result<(), Denial> {
    let demand = statement.request.demand();
    check_number(demand, grants, sites)?;
    check_total(statement, grants.iter().map(|grant| &grant.amounts))?;
    check_budget(statement, grants.iter(), Cost::ZERO)?;
    let needs = demand.host_needs();
    let start = grants.first().map(|grant| grant.window.start);
    for grant in grants {
        check_window(statement, grant)?;
        if Some(grant.window.start) != start {
            let detail = format!("seat {} does not begin with the others", grant.seat);
            return Err(Denial::new(Rule::Window, detail));
        }
        check_amounts(demand, grant)?;
        if demand.candidates().is_some() && needs.names_of(site, grant.host()).next().is_none() {
            let detail = format!("host {} is not one that the user named", grant.host());
            return Err(Denial::new(Rule::Candidates, detail));
        }
        if let Some(host) = host(grant.host()) {
            check_host(&needs, (site, host), grant)?;
            check_length(demand, host, grant)?;
        }
    }
    check_together(demand, grants)
}

/// No more seats, no host twice, and no more sites than the user asked for.
fn check_number(demand: &Demand, grants: &[Grant], sites: usize) -> Result<(), Denial> {
    let (asked, held) = (demand.seats(), grants.len());
    if held > asked || grants.iter().any(|grant| grant.seat.0 as usize >= asked) {
        let detail = format!("{held} hosts held, or one beyond the last; the user asked for {asked}");
        return Err(Denial::new(Rule::HostCount, detail));
    }
    let mut hosts = BTreeSet::new();
    if let Some(twice) = grants.iter().find(|grant| !hosts.insert(grant.host())) {
        let detail = format!("two seats on host {}, the user asked for {asked} hosts", twice.host());
        return Err(Denial::new(Rule::HostCount, detail));
    }
    match demand.sites_max().filter(|most| sites > *most) {
        None => Ok(()),
        Some(most) => Err(Denial::new(Rule::SitesMax, format!("at {sites} sites, the user asked for at most {most}"))),
    }
}

fn check_window(statement: &RequestStatement, grant: &Grant) -> Result<(), Denial> {
    let StartWindow { earliest: asked_earliest, latest: asked_latest, deadline } = statement.request.window();
    let signed = statement.issued - CLOCKS_DIFFER;
    let earliest = asked_earliest.map_or(signed, |earliest| earliest.max(signed));
    let (start, end) = (grant.window.start, grant.window.end);
    if start < earliest || asked_latest.is_some_and(|latest| start > latest) {
        let latest = asked_latest.map_or_else(|| "any".to_owned(), Time::in_utc);
        let (start, earliest) = (start.in_utc(), earliest.in_utc());
        let detail = format!("start {start} is outside what the user asked for ({earliest} to {latest})");
        return Err(Denial::new(Rule::Window, detail));
    }
    match deadline.filter(|deadline| end > *deadline) {
        None => Ok(()),
        Some(deadline) => {
            let (end, deadline) = (end.in_utc(), deadline.in_utc());
            let detail = format!("seat {} ends at {end}, the user asked for {deadline} at the latest", grant.seat);
            Err(Denial::new(Rule::Deadline, detail))
        }
    }
}

fn check_amounts(demand: &Demand, grant: &Grant) -> Result<(), Denial> {
    let low = demand.per_host().iter().find(|(name, minimum)| amount_of(&grant.amounts, name) < **minimum);
    match low {
        None => Ok(()),
        Some((name, minimum)) => {
            let id = grant.host();
            let detail = format!("host {id}: less than {minimum} of {name}, which the user asked for on each host");
            Err(Denial::new(Rule::PerHost, detail))
        }
    }
}

/// The host has the attributes and the speed; and it is taken whole, if that was asked.
fn check_host(needs: &HostNeeds<'_>, (site, host): (&SiteId, &Host), grant: &Grant) -> Result<(), Denial> {
    let id = &host.id;
    match needs.first_unmet(site, host) {
        Some(Unmet::Attribute(key, value)) => {
            return Err(Denial::new(Rule::Attributes, format!("host {id} is not {key}={value}")));
        }
        Some(Unmet::Speed(least)) => {
            let detail = format!("host {id} has speed {}, the user asked for {least}", host.speed);
            return Err(Denial::new(Rule::SpeedMin, detail));
        }
        // The name was checked, and amounts above the capacity find no room.
        Some(Unmet::Candidates | Unmet::Minimum(..) | Unmet::Length(_)) | None => {}
    }
    if needs.demand().is_exclusive() && grant.amounts != host.capacity {
        return Err(Denial::new(Rule::Exclusive, format!("host {id} is not taken whole, as the user asked")));
    }
    Ok(())
}

/// As long as the host needs; with traffic at least that, since the slowest host of all decides, and no longer than on the slowest that may
/// be expected.
fn check_length(demand: &Demand, host: &Host, grant: &Grant) -> Result<(), Denial> {
    let (asked, got) = (demand.length_on(host).0, grant.window.duration().0);
    let may_be_longer = demand.traffic().is_some() && matches!(demand.length(), Length::Work(_));
    if asked == got || may_be_longer && (asked..=demand.longest().0).contains(&got) {
        return Ok(());
    }
    Err(Denial::new(Rule::Duration, format!("{got} s held on host {}, the user asked for {asked} s", host.id)))
}

/// Seats that talk to each other end together.
fn check_together(demand: &Demand, grants: &[Grant]) -> Result<(), Denial> {
    let apart = grants.iter().find(|grant| demand.traffic().is_some() && grant.window.end != grants[0].window.end);
    match apart {
        None => Ok(()),
        Some(grant) => Err(Denial::new(Rule::Duration, format!("seat {} does not end with the others", grant.seat))),
    }
}

/// Checks that `grants`, and what was `spent` before, together cost no more than the user wants to pay.
///
/// # Errors
/// [`Rule::Budget`].
pub(crate) fn check_budget<'a>(
    statement: &RequestStatement,
    grants: impl Iterator<Item = &'a Grant>,
    spent: Cost,
) -> Result<(), Denial> {
    let cost: Cost = grants.map(|grant| grant.agreed.cost).chain([spent]).sum();
    match statement.request.budget().filter(|budget| cost > *budget) {
        None => Ok(()),
        Some(budget) => {
            Err(Denial::new(Rule::Budget, format!("{cost} credits, the user wants to pay at most {budget}")))
        }
    }
}

/// Checks that `grants` are together no more than the whole request needs; where it takes hosts whole, they may be more.
///
/// # Errors
/// [`Rule::Total`], with the first resource that is above, or was not asked for.
pub(crate) fn check_total<'a>(
    statement: &RequestStatement,
    grants: impl Iterator<Item = &'a Amounts>,
) -> Result<(), Denial> {
    let demand = statement.request.demand();
    if demand.is_exclusive() {
        return Ok(());
    }
    let mut sums = Amounts::new();
    for (name, amount) in grants.flatten() {
        *sums.entry(name.clone()).or_default() += *amount;
    }
    let above = sums.iter().find(|(name, sum)| **sum > demand.needed_in_sum(name));
    match above {
        None => Ok(()),
        Some((name, sum)) => {
            let needed = demand.needed_in_sum(name);
            Err(Denial::new(Rule::Total, format!("{sum} of {name} held, the user asked for {needed} in all")))
        }
    }
}
