//! What is signed of requests: what sites have signed for the reservations of a request of this node, and what this site keeps of those who
//! book it.

use std::sync::Arc;

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    cost::Cost,
    ids::{RequestId, SiteId},
    ledger::{Booking, Charge},
    time::Window,
    trust::SignedText,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    extract::Path,
    problem::Problem,
    requests::{family, select},
    schema,
    scopes::Caller,
    state::ApiState,
};

/// Answer of `GET /v1/requests/{id}/receipts`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Receipts {
    pub id: RequestId,
    /// It, and those that lengthen its reservation.
    pub requests: Vec<RequestId>,
    /// Also those of what lengthens its reservation, and of what was replaced or given back and has cost something.
    pub receipts: Vec<SiteReceipt>,
}

/// The receipt of one site.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SiteReceipt {
    pub site: SiteId,
    /// Not unique, not trusted; empty when it is not known.
    pub site_name: String,
    /// A `kolo-receipt/1`, whose author is the key of the site's node. Keep it as it is: the signature is over the text's bytes.
    #[schema(value_type = schema::SignedText)]
    pub signed: Arc<SignedText>,
}

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

/// Answer of `GET /v1/receipts/{id}`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KeptReceipts {
    pub id: RequestId,
    /// Those that stand, and those that are over and have cost something.
    pub bookings: Vec<KeptReceipt>,
}

/// What this site keeps of a booking.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KeptReceipt {
    pub user: String,
    #[schema(value_type = schema::Window)]
    pub window: Window,
    /// For how much it was reserved, in thousandths of a credit.
    #[schema(value_type = u64)]
    pub agreed: Cost,
    /// What of that is to be paid, once it is over.
    #[schema(value_type = Option<u64>, nullable = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<Cost>,
    /// The `kolo-request/1` whose author is the user.
    #[schema(value_type = Option<schema::SignedText>, nullable = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Arc<SignedText>>,
    /// The `kolo-receipt/1` that this site has signed.
    #[schema(value_type = Option<schema::SignedText>, nullable = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Arc<SignedText>>,
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
