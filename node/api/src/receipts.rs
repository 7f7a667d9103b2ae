//! What is signed of requests: by sites for whoever has reserved there, and by users for the sites that they book.

use std::sync::Arc;

use broker::{
    cost::Cost,
    ids::{RequestId, SiteId},
    time::Window,
    trust::SignedText,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

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
