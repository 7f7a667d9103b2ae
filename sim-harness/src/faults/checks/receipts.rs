//! For each seat of a reservation that was reported to a user, the user's coordinator has the receipt of its site on disk, and the receipt
//! says what is in the site's books.
//!
//! Invariant: reads the modelled disks. That a receipt is signed is left to the core; here its author is compared.

use broker::{
    ids::{RequestId, SiteId},
    negotiation::{Decision, RequestRecord},
    plan::{Place, Seat},
    protocol::{AttemptId, Grant},
    receipt::Receipt,
    time::Span,
    trust::{PublicKey, testing},
};

use super::super::{grid::Grid, names};

/// The disk of a node has changed, for this request.
pub fn check_receipts(grid: &mut Grid, id: &RequestId) {
    let Some(user) = grid.users.get(id).filter(|user| user.report.plan().is_some()) else { return };
    let Some(record) = grid.nodes[user.entry_point].disk.requests.get(id) else { return };
    let Decision::Reserved { plan, .. } = &record.decision else { return };
    let lost = |seat: &&Seat| record.reservation.as_ref().is_some_and(|reservation| reservation.is_lost(seat.number));
    let receipts = receipts_of(record, user.user);
    let wrong = plan.seats.iter().filter(|seat| !lost(seat)).find_map(|seat| {
        let parts = record.reservation.iter().flat_map(|reservation| &reservation.parts);
        let wait = parts.filter(|part| part.seats.contains(&seat.number)).map(|part| part.wait).max();
        let agreed = promised(&Grant::from(seat), wait.unwrap_or_default());
        let of_seat = receipts.iter().find(|(_, grant, site)| **site == seat.site && *grant == agreed);
        let Some((attempt, grant, _)) = of_seat else {
            return Some(format!("seat {} at {} has no receipt for what it costs", seat.number, seat.site));
        };
        let booking = &grid.nodes[names::index_of(&seat.site)?].disk.reservations.get(attempt)?;
        let in_books = booking.grants.iter().find(|one| one.seat == seat.number)?;
        (promised(in_books, booking.wait) != *grant)
            .then(|| format!("seat {} is otherwise in the books of {}", seat.number, seat.site))
    });
    if let Some(what) = wrong {
        grid.violate("a reservation has its receipts", Some(id), what);
    }
}

/// A grant that has waited for so long as a receipt has it.
fn promised(grant: &Grant, wait: Span) -> Grant {
    let (place, window) = (Place::Host(grant.place.promised().clone()), grant.window.earlier(wait));
    Grant { place, window, ..grant.clone() }
}

/// What the receipts of a request say that are for its user and from the site that they name, seat by seat.
fn receipts_of(record: &RequestRecord, user: PublicKey) -> Vec<(AttemptId, Grant, &SiteId)> {
    let mut seats = Vec::new();
    for kept in &record.receipts {
        let Ok(receipt) = testing::said::<Receipt>(&kept.receipt) else { continue };
        let is_from_site = receipt.site == kept.site && names::key_of(&kept.site) == Some(kept.receipt.author);
        if !is_from_site || receipt.user != user || receipt.request != record.id {
            continue;
        }
        let grants = receipt.grants();
        let Receipt { entry_point, request, attempt, .. } = receipt;
        let name = AttemptId { entry_point, request, attempt };
        seats.extend(grants.into_iter().map(|grant| (name.clone(), grant, &kept.site)));
    }
    seats
}
