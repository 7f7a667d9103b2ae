//! Disks that lie: what a site has lost that it had promised is told to the user, as a seat that is lost.
//!
//! What else is not asked of a request of which a disk has lost something, since nobody could know better: that its seats are on disk and
//! stay as they were told, that what was given back stays free once it has begun, that all sites together keep to its budget, and that both sides have charged alike. That every site's
//! books hold no more than there is, that all settles, and that hosts which are lost are replaced, is asked as ever.
//!
//! Invariant: reads the modelled disks, and what was reported.

use broker::{
    ids::RequestId,
    negotiation::Stage,
    time::{Span, Time},
};

use super::super::{grid::Grid, names, users::UserRequest};

/// Of what ends so soon its site may have nothing more.
const ENDS_SOON: Span = Span(600);

/// A seat that a disk has lost and that its user takes for reserved, when the node that the user asks runs.
pub fn untold(grid: &Grid) -> Option<(RequestId, String)> {
    let until = grid.utc() + ENDS_SOON;
    grid.users.all().find_map(|user| {
        let id = names::request(user.number);
        let what = untold_of(grid, user, &id, until).filter(|_| grid.truth.is_lied_about(&id))?;
        Some((id, what))
    })
}

fn untold_of(grid: &Grid, user: &UserRequest, id: &RequestId, until: Time) -> Option<String> {
    let stage = grid.negotiation(user.entry_point, id)?.stage();
    if !matches!(stage, Stage::Reserved(_) | Stage::Degraded { .. }) {
        return None;
    }
    let lasts = user.report.plan()?.seats.iter().filter(|seat| seat.window.end > until && !user.report.is_lost(seat));
    let mut missing = lasts.filter(|seat| {
        let site = names::index_of(&seat.site).map(|index| &grid.nodes[index]);
        site.is_some_and(|site| !site.has_on_disk(id, |_, grant| grant.seat == seat.number))
    });
    let seat = missing.next()?;
    Some(format!("nobody has told the user that {} has lost seat {}", seat.site, seat.number))
}
