//! A site that is being emptied promises nothing new: all that its ledger has, it had when its owner began.
//!
//! Invariant: goes by what the owner has said, not by the gate of the ledger.

use super::{super::grid::Grid, floating};

/// The ledger of a site has changed.
pub fn check_ledger(grid: &mut Grid, node: usize) {
    let (Some(standing), Some(running)) = (grid.truth.standing_at(node), grid.nodes[node].running()) else { return };
    let new = running.machines.ledger.of_users().find(|booking| {
        let promised = standing.get(&booking.attempt);
        booking
            .grants
            .iter()
            .any(|grant| promised.is_none_or(|promised| !promised.iter().any(|one| floating::is_same(one, grant))))
    });
    if let Some(attempt) = new.map(|booking| booking.attempt.clone()) {
        let what = format!("s{node} has #{} of {}", attempt.attempt, attempt.entry_point);
        grid.violate("a site that is being emptied promises nothing new", Some(&attempt.request), what);
    }
}
