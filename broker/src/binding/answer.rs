//! Answers to new seats, and why a call makes no sense.
//!
//! Invariant: a no comes with its proof.

use std::sync::Arc;

use super::seat::{Seat, SeatKey};
use crate::model::{ids::HostId, time::Time};

/// Seats that no assignment can all give what they were promised: at one second they need more hosts than there are.
///
/// Every seat but those begun can use none but `hosts`. The seats begun have their host among them. (Hall's condition, at one second.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The second.
    pub at: Time,
    /// The seats, those asked for among them.
    pub seats: Vec<Arc<Seat>>,
    /// All hosts that they could use.
    pub hosts: Vec<HostId>,
}

/// The answer to new seats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// They are promised; the keys are in the order asked.
    Yes(Vec<SeatKey>),
    /// They cannot be promised, whatever is moved. Nothing has changed.
    No(Certificate),
    /// No assignment was found and no proof that there is none. Nothing has changed.
    Undecided,
}

/// Why a call makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// Seats are bound in the order of their starts, so none can come before one that is bound.
    #[error("the seat would start at {} s, before a seat that is already bound ({} s)", .start.0, .bound.0)]
    Past {
        /// When the seat would start.
        start: Time,
        /// The latest start of a bound seat.
        bound: Time,
    },
    /// Another seat starts earlier and is not bound.
    #[error("a seat that starts earlier, at {} s, is not bound yet", .0.0)]
    NotYet(Time),
    /// The window is empty or out of range.
    #[error("the window is empty or out of range")]
    Window,
    /// There is no such seat (any more).
    #[error("there is no such seat")]
    NoSeat,
    /// There is no such host (any more).
    #[error("there is no host {0}")]
    NoHost(HostId),
    /// A host of this name is there already.
    #[error("there is a host {0} already")]
    SameHost(HostId),
    /// Every host that could take the seat has own work that must not be disturbed, or was excluded.
    #[error("no host of those that meet the need may be disturbed")]
    NoneLeft,
}
