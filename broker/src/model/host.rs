//! A host: the smallest unit that can run on its own (the source's `V_j`), as its site describes it; and classes of hosts that their owner
//! calls alike.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::model::{
    ids::{HostId, IdError},
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

/// Why hosts are no class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// It would have no host, or more than there may be.
    #[error("expected 1 to {most} hosts, got {count}")]
    Count {
        /// How many were asked for.
        count: u64,
        /// How many there may be.
        most: usize,
    },
    /// The name of the class leaves no room for a number.
    #[error("the names of its hosts: {0}")]
    Name(IdError),
}

/// The names of the hosts of a class: its own name with a number, from 1 on.
///
/// # Errors
/// [`ClassError`] of no host, of more than `most`, and of a name that is too long.
pub fn hosts_of_class(class: &HostId, count: u64, most: usize) -> Result<Vec<HostId>, ClassError> {
    let is_allowed = count > 0 && usize::try_from(count).is_ok_and(|count| count <= most);
    if !is_allowed {
        return Err(ClassError::Count { count, most });
    }
    (1..=count).map(|number| HostId::new(&format!("{class}-{number}")).map_err(ClassError::Name)).collect()
}
