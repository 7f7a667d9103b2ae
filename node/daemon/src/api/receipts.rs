//! What is signed of requests: what sites have signed for the reservations of a request of this node, and what this site keeps of those who
//! book it.

use std::sync::Arc;

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    ids::RequestId,
    ledger::{Booking, Charge},
};
use kolo_api::receipts::{KeptReceipt, KeptReceipts, Receipts, SiteReceipt};

use super::{
    extract::Path,
    problem::Problem,
    requests::{family, select},
    scopes::Caller,
    state::ApiState,
};

/// The receipts that sites have signed for what they have reserved.
#[utoipa::path(get, path = "/requests/{id}/receipts", tag = "requests", params(("id" = String, Path, description = "An id, the beginning of one, or the writer's label")), responses((status = 200, description = "Done", body = Receipts)))]
pub async fn show_receipts(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(selector): Path,
) -> Result<Json<Receipts>, Problem> {
    let snapshot = select(&state, &caller, &selector)?.watch().borrow().clone();
    let family = family(&state, &snapshot);
    let members = || [&family.snapshot].into_iter().chain(&family.parts);
    let kept = members().flat_map(|one| &one.record.receipts);
    let receipts = kept.map(|kept| SiteReceipt {
        site: kept.site.clone(),
        site_name: state.site_name(&kept.site),
        signed: kept.receipt.clone(),
    });
    let requests = members().map(|one| one.record.id.clone()).collect();
    Ok(Json(Receipts { id: snapshot.record.id.clone(), requests, receipts: receipts.collect() }))
}

/// What this site keeps of the bookings of a request, of whichever user and node: what its user has signed, what the site has, and what it
/// has cost.
#[utoipa::path(get, path = "/receipts/{id}", tag = "grid", params(("id" = String, Path, description = "The whole id")), responses((status = 200, description = "Done", body = KeptReceipts)))]
pub async fn show_kept_receipts(
    State(state): State<Arc<ApiState>>,
    Path(id): Path,
) -> Result<Json<KeptReceipts>, Problem> {
    let missing = || Problem::new(StatusCode::NOT_FOUND, format!("this site keeps no receipt of a request {id}"));
    let id = RequestId::new(&id).map_err(|_| missing())?;
    let of_charge = |charge: &Charge| KeptReceipt {
        user: charge.user.clone(),
        window: charge.window,
        agreed: charge.agreed,
        charged: Some(charge.charged),
        request: charge.statement.clone(),
        receipt: charge.receipt.clone(),
    };
    let mut bookings: Vec<KeptReceipt> =
        state.ledger.charges().iter().filter(|charge| charge.attempt.request == id).map(of_charge).collect();
    let ledger = state.ledger.lock();
    let standing = ledger.bookings().filter(|booking| booking.attempt.request == id && !booking.is_held());
    bookings.extend(standing.map(|booking: &Booking| KeptReceipt {
        user: booking.user.clone(),
        window: booking.window,
        agreed: booking.grants.iter().map(|grant| grant.agreed.cost).sum(),
        charged: None,
        request: booking.statement.clone(),
        receipt: ledger.receipt_for(booking),
    }));
    drop(ledger);
    if bookings.is_empty() { Err(missing()) } else { Ok(Json(KeptReceipts { id, bookings })) }
}
