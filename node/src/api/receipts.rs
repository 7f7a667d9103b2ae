//! What sites have signed for the reservations of a request.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use broker::{
    ids::{RequestId, SiteId},
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
