//! Floating seats: what a site has promised without naming the host.
//!
//! Invariant: a seat's window is fixed when it is admitted; only a wait at its binding makes it longer.

use crate::model::{
    host::{Host, Speed},
    ids::{RequestId, SeatNumber},
    resources::{Amounts, Attributes, amount_of},
    time::Window,
};

/// What a seat needs of its host. The order has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Need {
    /// Least amounts; a seat on a part of a host takes exactly these.
    pub amounts: Amounts,
    /// Properties that the host must have.
    pub attributes: Attributes,
    /// Least speed, if any is asked.
    pub speed_min: Option<Speed>,
    /// Whether the seat takes its host whole, so that nothing else is there in its window.
    pub is_exclusive: bool,
}

impl Need {
    /// Whether an empty host would do.
    #[must_use]
    pub fn is_met_by(&self, host: &Host) -> bool {
        self.speed_min.is_none_or(|least| host.speed >= least)
            && self.attributes.iter().all(|(key, value)| host.attributes.get(key) == Some(value))
            && self.amounts.iter().all(|(name, amount)| *amount <= amount_of(&host.capacity, name))
    }
}

/// A promised seat: one of a site's hosts that meets the need, for the whole window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Whose it is. A request that loses one seat counts as lost once, however many it loses.
    pub request: RequestId,
    /// Which of the request's seats.
    pub number: SeatNumber,
    /// When it is.
    pub window: Window,
    /// What its host must be.
    pub need: Need,
}

/// A seat of a [`super::Witness`]; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatKey(pub(super) u64);
