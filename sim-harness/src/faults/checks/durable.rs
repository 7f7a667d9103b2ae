//! A success that was reported to a user is exactly N hosts that together have what was asked, and it is on the disks of all
//! their sites until it ends, whatever crashes, except where the owner of a host has taken that away. Only a user who
//! cancels it ends it earlier, and only when the entry point has that on disk: until then a crash may forget it. A move that
//! the user has asked for, which may be to other hosts at the same start, replaces the report when the entry point has it on
//! disk, also when that crashes before anybody has looked.
//!
//! Invariant: reads the modelled disks, also those of nodes that do not run.

use std::collections::BTreeSet;

use broker::{
    ids::RequestId,
    negotiation::{Decision, Outcome},
    plan::Plan,
    resources::amount_of,
    time::{Span, Window},
};

use super::super::{
    grid::Grid,
    names,
    users::{Report, UserRequest},
};

/// Sites may forget a reservation when it has ended on their clock, which is ahead by up to 20 s.
const CLOCKS_DIFFER: Span = Span(45);

/// What was reported to the user of this request must be true.
pub fn check_reported(grid: &mut Grid, id: &RequestId) {
    let Some(user) = grid.users.get(id) else { return };
    let Some(plan) = user.report.plan() else { return };
    let shape = if matches!(user.report, Report::Reserved { .. }) { check_shape(user, plan) } else { Ok(()) };
    if let Err(what) = shape.and_then(|()| check_disks(grid, id, user, plan)) {
        grid.violate("a reported success is durable", Some(id), what);
    }
}

fn check_disks(grid: &Grid, id: &RequestId, user: &UserRequest, reported: &Plan) -> Result<(), String> {
    let record = grid.nodes[user.entry_point].disk.requests.get(id);
    let plan = match record.map(|record| &record.decision) {
        Some(Decision::Reserved { plan, attempt })
            if user.request.moves_on_loss() && user.report.is_before(*attempt) =>
        {
            plan
        }
        _ => reported,
    };
    let window = Window::starting(plan.start, user.request.demand().length().at_reference());
    let is_over = record.is_some_and(|record| match &record.decision {
        Decision::Closed(Outcome::HandedOver) => user.signed_for.len() > 1,
        Decision::Closed(_) => user.is_cancelled,
        _ => false,
    });
    if is_over || window.end <= grid.utc() + CLOCKS_DIFFER {
        return Ok(());
    }
    for grant in plan.seats.iter().filter(|grant| !user.report.is_lost(grant)) {
        let index = names::index_of(&grant.site).ok_or_else(|| format!("there is no site {}", grant.site))?;
        let is_there = grid.nodes[index].has_on_disk(id, |reservation, one| {
            reservation.window == window && one.host == grant.host && one.amounts == grant.amounts
        });
        if !is_there && !grid.truth.is_lost(id, index, &grant.host) {
            return Err(format!(
                "a success was reported, but {} of {} is not on the disk of its site",
                grant.host, grant.site
            ));
        }
    }
    Ok(())
}

/// Exactly N distinct hosts, the minima on each, the totals in sum.
fn check_shape(user: &UserRequest, plan: &Plan) -> Result<(), String> {
    let distinct: BTreeSet<_> = plan.seats.iter().map(|grant| (&grant.site, &grant.host)).collect();
    let asked = user.request.demand().seats();
    if distinct.len() != asked || plan.seats.len() != asked {
        return Err(format!("{} hosts, {} of them distinct, instead of {asked}", plan.seats.len(), distinct.len()));
    }
    for (name, minimum) in user.request.demand().per_host() {
        if let Some(grant) = plan.seats.iter().find(|grant| amount_of(&grant.amounts, name) < *minimum) {
            return Err(format!("{} of {} gives less than the minimum of {}", grant.host, grant.site, name.as_str()));
        }
    }
    for (name, total) in user.request.demand().total() {
        let sum: u64 = plan.seats.iter().map(|grant| amount_of(&grant.amounts, name).0).sum();
        if sum < total.0 {
            return Err(format!("{sum} of {} in sum instead of {}", name.as_str(), total.0));
        }
    }
    Ok(())
}
