//! A host: the smallest unit that can run on its own (the source's `V_j`), as its site describes it.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::model::{
    ids::HostId,
    resources::{Amounts, Attributes},
    tariff::Tariff,
};

/// How fast a host is, in thousandths of the reference host's speed; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Speed(u32);

/// A speed of zero: nothing would ever end there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("speed: expected at least 1 (thousandths of the reference speed), got 0")]
pub struct SpeedError;

impl Speed {
    /// The speed of the reference host.
    pub const REFERENCE: Speed = Speed(1000);

    /// The speed in thousandths of the reference speed.
    #[must_use]
    pub fn thousandths(self) -> u32 {
        self.0
    }

    /// Whether it is the speed of the reference host, which is left out where it is written down.
    #[must_use]
    pub fn is_reference(&self) -> bool {
        *self == Speed::REFERENCE
    }
}

impl Default for Speed {
    fn default() -> Speed {
        Speed::REFERENCE
    }
}

impl TryFrom<u32> for Speed {
    type Error = SpeedError;
    fn try_from(thousandths: u32) -> Result<Speed, SpeedError> {
        if thousandths == 0 { Err(SpeedError) } else { Ok(Speed(thousandths)) }
    }
}

impl From<Speed> for u32 {
    fn from(speed: Speed) -> u32 {
        speed.0
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

/// What a site says of one host: capacities, attributes and speed. Its schedule is kept apart, since that changes with every
/// reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name inside its site.
    pub id: HostId,
    /// Capacity `r_ij` by resource.
    pub capacity: Amounts,
    /// Qualitative properties.
    pub attributes: Attributes,
    /// How fast it is.
    pub speed: Speed,
    /// What its use costs. It travels beside the hosts of an advert.
    #[serde(skip)]
    pub tariff: Arc<Tariff>,
}
