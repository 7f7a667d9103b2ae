//! What a user was told to stand is exactly N hosts that together have what was asked, and it is on the disks of all
//! their sites until it ends, whatever crashes, except where the owner of a host has taken that away. Only a user who takes
//! it back ends it earlier, and only when the entry point has that on disk: until then a crash may forget it. A move that
//! the user has asked for takes the place of what was told when the entry point has it on disk: that is what whoever looks is
//! told from then on, also when the entry point crashes before anybody has looked.
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
    losses, names,
    users::{Reported, UserRequest},
    world::World,
};

/// Sites may forget a reservation when it has ended on their clock, which is ahead by up to 20 s.
const CLOCKS_DIFFER: Span = Span(45);

impl World {
    /// What the user of this request was told must be true.
    pub(in super::super) fn check_told(&mut self, id: &RequestId) {
        let Some(user) = self.users.get(id) else { return };
        let Some(plan) = user.told.plan() else { return };
        let shape = if matches!(user.told, Reported::Reserved { .. }) { check_shape(user, plan) } else { Ok(()) };
        if let Err(what) = shape.and_then(|()| self.check_disks(id, user, plan)) {
            self.violate("a success told is durable", Some(id), what);
        }
    }

    fn check_disks(&self, id: &RequestId, user: &UserRequest, told: &Plan) -> Result<(), String> {
        let record = self.nodes[user.entry_point].disk.requests.get(id);
        let plan = match record.map(|record| &record.decision) {
            Some(Decision::Reserved { plan, .. }) if user.request.moves_on_loss() && plan.start > told.start => plan,
            _ => told,
        };
        let window = Window::starting(plan.start, user.request.duration());
        let is_over = record.is_some_and(|record| match &record.decision {
            Decision::Closed(Outcome::HandedOver) => user.signed_for.len() > 1,
            Decision::Closed(_) => user.is_taken_back,
            _ => false,
        });
        if is_over || window.end <= self.utc() + CLOCKS_DIFFER {
            return Ok(());
        }
        for grant in plan.grants.iter().filter(|grant| !user.told.is_lost(grant)) {
            let index = names::index_of(&grant.site).ok_or_else(|| format!("there is no site {}", grant.site))?;
            let is_there = losses::has_on_disk(&self.nodes[index], id, |reservation, one| {
                reservation.window == window && one.host == grant.host && one.amounts == grant.amounts
            });
            if !is_there && !self.truth.is_lost(id, index, &grant.host) {
                return Err(format!(
                    "the user was told that it stands, but {} of {} is not on the disk of its site",
                    grant.host, grant.site
                ));
            }
        }
        Ok(())
    }
}

/// Exactly N distinct hosts, the minima on each, the totals in sum.
fn check_shape(user: &UserRequest, plan: &Plan) -> Result<(), String> {
    let distinct: BTreeSet<_> = plan.grants.iter().map(|grant| (&grant.site, &grant.host)).collect();
    let asked = user.request.hosts();
    if distinct.len() != asked || plan.grants.len() != asked {
        return Err(format!("{} hosts, {} of them distinct, instead of {asked}", plan.grants.len(), distinct.len()));
    }
    for (name, minimum) in user.request.per_host() {
        if let Some(grant) = plan.grants.iter().find(|grant| amount_of(&grant.amounts, name) < *minimum) {
            return Err(format!("{} of {} gives less than the minimum of {}", grant.host, grant.site, name.as_str()));
        }
    }
    for (name, total) in user.request.total() {
        let sum: u64 = plan.grants.iter().map(|grant| amount_of(&grant.amounts, name).0).sum();
        if sum < total.0 {
            return Err(format!("{sum} of {} in sum instead of {}", name.as_str(), total.0));
        }
    }
    Ok(())
}
