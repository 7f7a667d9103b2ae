//! A host: the smallest unit that can run on its own (the source's `V_j`), as its site describes it.

use serde::{Deserialize, Serialize};

use crate::model::{
    ids::HostId,
    resources::{Amounts, Attributes},
};

/// What a site says of one host: capacities and attributes. Its schedule is kept apart, since that changes with every
/// reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name inside its site.
    pub id: HostId,
    /// Capacity `r_ij` by resource.
    pub capacity: Amounts,
    /// Qualitative properties.
    pub attributes: Attributes,
}
