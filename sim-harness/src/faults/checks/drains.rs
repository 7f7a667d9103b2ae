//! A site that is being emptied, or that lacks room on its disk, promises nothing new: all that its ledger has, it had when that began.
//!
//! Invariant: goes by what the owner has said and by the modelled disk, not by the gate of the ledger.

use std::collections::BTreeMap;

use broker::{
    ledger::Booking,
    protocol::{AttemptId, Grant},
};

use super::{super::grid::Grid, floating};

const EMPTIED: &str = "a site that is being emptied promises nothing new";
const LACKING: &str = "a site that lacks room on its disk promises nothing new";

/// The ledger of a site has changed.
pub fn check_ledger(grid: &mut Grid, node: usize) {
    let Some(running) = grid.nodes[node].running() else { return };
    let is_new = |standing: &BTreeMap<AttemptId, Vec<Grant>>, booking: &Booking| {
        let promised = standing.get(&booking.attempt);
        let stood = |grant: &Grant| promised.is_some_and(|all| all.iter().any(|one| floating::is_same(one, grant)));
        !booking.grants.iter().all(stood)
    };
    let emptied = grid.truth.standing_at(node).map(|standing| (EMPTIED, standing));
    let lacking = grid.truth.standing_in_lack(node).map(|standing| (LACKING, standing));
    let found = emptied.into_iter().chain(lacking).find_map(|(invariant, standing)| {
        let new = running.machines.ledger.of_users().find(|booking| is_new(standing, booking))?;
        Some((invariant, new.attempt.clone()))
    });
    if let Some((invariant, attempt)) = found {
        let what = format!("s{node} has #{} of {}", attempt.attempt, attempt.entry_point);
        grid.violate(invariant, Some(&attempt.request), what);
    }
}
