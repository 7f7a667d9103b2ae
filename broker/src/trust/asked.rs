//! Whether a hold is what the user asked for: the part of it that lies at this site, which is all that the site can see.
//!
//! Invariant: nothing here looks at the site's own schedules; a hold that passes may still find no room.

use super::{Denial, RequestStatement, Rule};
use crate::{
    host::Host,
    ids::HostId,
    protocol::HoldRequest,
    request::StartWindow,
    resources::{Amounts, amount_of},
    time::Span,
};

/// Clocks of users and sites may differ by this much: a start may lie this long before the user signed.
pub const ISSUED_TOLERANCE: Span = Span(60);

/// Checks window and grants of `hold` against the request.
///
/// # Errors
/// The first rule that the hold breaks.
pub(super) fn check<'a>(
    statement: &RequestStatement,
    hold: &HoldRequest,
    host: impl Fn(&HostId) -> Option<&'a Host>,
) -> Result<(), Denial> {
    let request = &statement.request;
    let (asked, got) = (request.demand().length().at_reference().0, hold.window.duration().0);
    if asked != got {
        return Err(Denial::new(Rule::Duration, format!("{got} s held, the user asked for {asked} s")));
    }
    let StartWindow { earliest: asked_earliest, latest: asked_latest, .. } = request.window();
    let signed = statement.issued - ISSUED_TOLERANCE;
    let earliest = asked_earliest.map_or(signed, |earliest| earliest.max(signed));
    let start = hold.window.start;
    if start < earliest || asked_latest.is_some_and(|latest| start > latest) {
        let latest = asked_latest.map_or_else(|| "any".to_owned(), |latest| latest.0.to_string());
        let detail = format!("start {} is outside what the user asked for ({} to {latest})", start.0, earliest.0);
        return Err(Denial::new(Rule::Window, detail));
    }
    if hold.grants.len() > request.demand().seats() {
        let detail = format!("{} hosts held, the user asked for {}", hold.grants.len(), request.demand().seats());
        return Err(Denial::new(Rule::HostCount, detail));
    }
    check_total(statement, hold.grants.iter().map(|grant| &grant.amounts))?;
    for grant in &hold.grants {
        let id = &grant.host;
        let low =
            request.demand().per_host().iter().find(|(name, minimum)| amount_of(&grant.amounts, name) < **minimum);
        if let Some((name, minimum)) = low {
            let detail = format!("host {id}: less than {minimum} of {name}, which the user asked for on each host");
            return Err(Denial::new(Rule::PerHost, detail));
        }
        if request.demand().candidates().is_some_and(|candidates| candidates.binary_search(id).is_err()) {
            return Err(Denial::new(Rule::Candidates, format!("host {id} is not one that the user named")));
        }
        let lacks = |host: &Host| {
            request.demand().attributes().iter().find(|(key, value)| host.attributes.get(*key) != Some(value))
        };
        if let Some((key, value)) = host(id).and_then(lacks) {
            return Err(Denial::new(Rule::Attributes, format!("host {id} is not {key}={value}")));
        }
    }
    Ok(())
}

/// Checks that `grants` are together no more than the whole request needs.
///
/// # Errors
/// [`Rule::Total`], with the first resource that is above, or was not asked for.
pub(crate) fn check_total<'a>(
    statement: &RequestStatement,
    grants: impl Iterator<Item = &'a Amounts>,
) -> Result<(), Denial> {
    let mut sums = Amounts::new();
    for (name, amount) in grants.flatten() {
        *sums.entry(name.clone()).or_default() += *amount;
    }
    let above = sums.iter().find(|(name, sum)| **sum > statement.request.demand().needed_in_sum(name));
    match above {
        None => Ok(()),
        Some((name, sum)) => {
            let needed = statement.request.demand().needed_in_sum(name);
            Err(Denial::new(Rule::Total, format!("{sum} of {name} held, the user asked for {needed} in all")))
        }
    }
}
