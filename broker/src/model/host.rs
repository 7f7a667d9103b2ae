//! A host: the smallest unit that can run on its own (the source's `V_j`), as its site describes it.

use serde::{Deserialize, Serialize};

use crate::model::{
    ids::HostId,
    resources::{Amounts, Attributes, amount_of},
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

impl Host {
    /// Whether the host could ever satisfy the minima and attributes, regardless of its schedule (phase I).
    #[must_use]
    pub fn could_ever_satisfy(&self, per_host: &Amounts, attributes: &Attributes) -> bool {
        per_host.iter().all(|(name, minimum)| amount_of(&self.capacity, name) >= *minimum)
            && attributes.iter().all(|(key, value)| self.attributes.get(key) == Some(value))
    }
}
