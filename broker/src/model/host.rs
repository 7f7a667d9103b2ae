//! A host: the smallest unit that can run on its own (the source's `V_j`), as its site describes it.

use serde::{Deserialize, Serialize};

use crate::model::{
    ids::HostId,
    resources::{Amounts, Attributes},
};

/// The speed of the reference host, in thousandths.
pub const REFERENCE_SPEED: u32 = 1000;

/// What a site says of one host: capacities, attributes, speed and price. Its schedule is kept apart, since that
/// changes with every reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name inside its site.
    pub id: HostId,
    /// Capacity `r_ij` by resource.
    pub capacity: Amounts,
    /// Qualitative properties.
    pub attributes: Attributes,
    /// Speed in thousandths of the reference host.
    pub speed: u32,
    /// Price in thousandths of a credit an hour.
    pub price: u32,
}
