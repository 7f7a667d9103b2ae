//! What is reserved together is reserved as a whole or not at all: no user sees one request of such a batch reserved and another one
//! without a reservation, unless a user has let another node take one of the two over, or a disk has lost something of
//! one of them.
//!
//! Invariant: reads only what was reported.

use broker::{ids::RequestId, negotiation::Outcome};

use super::super::{
    grid::Grid,
    names,
    users::{Report, UserRequest},
};

/// Something was reported of this request.
pub fn check_together(grid: &mut Grid, id: &RequestId) {
    let Some(batch) = grid.users.get(id).and_then(|user| user.tied) else { return };
    let is_of_it = |user: &&UserRequest| user.tied == Some(batch) && user.signed_for.len() == 1;
    let members: Vec<&UserRequest> = grid.users.all().filter(is_of_it).collect();
    if members.iter().any(|user| grid.truth.is_lied_about(&names::request(user.number))) {
        return;
    }
    let reserved = members.iter().find(|user| user.report.plan().is_some());
    let without =
        members.iter().find(|user| matches!(user.report, Report::Over(Outcome::Failed(_) | Outcome::Rejected { .. })));
    if let (Some(reserved), Some(without)) = (reserved, without) {
        let what = format!("request {} is reserved, and request {} has ended without", reserved.number, without.number);
        grid.violate("what is reserved together is reserved as a whole or not at all", Some(id), what);
    }
}
