//! What can be wrong with a schedule that comes from outside, and with a reservation that does not fit one.

use crate::{
    amount::Amount,
    resources::ResourceName,
    schedule::{MAX_STEPS, occupancy::TIME_LIMIT},
    time::{Time, Window},
};

/// What is wrong with steps from outside, or with a removal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// More than [`MAX_STEPS`] steps.
    #[error("more than {MAX_STEPS} steps")]
    TooManySteps,
    /// A step's time is not after the time of the step before it.
    #[error("step {index}: time {time} is not after the step before it ({before})", time = .time.0, before = .before.0)]
    NotAscending {
        /// Position of the step in the list, from 0.
        index: usize,
        /// The step's time.
        time: Time,
        /// The time of the step before.
        before: Time,
    },
    /// A step's time is not one at which a valid window can start or end.
    #[error("step {index}: expected a time of 0 to {max} seconds, got {time}", max = TIME_LIMIT.0, time = .time.0)]
    TimeOutOfRange {
        /// Position of the step in the list, from 0.
        index: usize,
        /// The step's time.
        time: Time,
    },
    /// A step's amount is above [`Amount::MAX`].
    #[error("step {index}: {amount} is larger than any amount ({max})", max = Amount::MAX.0)]
    AmountTooLarge {
        /// Position of the step in the list, from 0.
        index: usize,
        /// The step's amount.
        amount: Amount,
    },
    /// Less is reserved somewhere in the window than was to be removed.
    #[error("cannot remove {amount} in {window:?}: less is reserved there")]
    NotReserved {
        /// The window of the removal.
        window: Window,
        /// The amount of the removal.
        amount: Amount,
    },
    /// One of the above, with the resource it concerns.
    #[error("{resource}: {error}")]
    Resource {
        /// The resource.
        resource: ResourceName,
        /// What is wrong with it.
        error: Box<ScheduleError>,
    },
}

impl ScheduleError {
    /// The same error, with the resource it concerns.
    pub(super) fn of_resource(self, resource: &ResourceName) -> Self {
        Self::Resource { resource: resource.clone(), error: Box::new(self) }
    }
}

/// The resource that keeps amounts from fitting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: {asked} asked, {free} free")]
pub struct Shortage {
    /// The resource that is short.
    pub resource: ResourceName,
    /// What was asked of it, in base units.
    pub asked: Amount,
    /// What is free of it during the whole window, in base units.
    pub free: Amount,
}
