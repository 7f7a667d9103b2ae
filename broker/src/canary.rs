//! Deliberate faults of the core, by which the simulator shows that it would find real ones. Faults that can be made
//! from outside (in what a node does with outputs) are not here.
//!
//! Invariant: without the feature `canary` no fault can be switched on and every check is a constant; with it, a fault
//! is on only in the thread that has switched it on.

/// A fault of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// Admission looks at reservations only, not at the holds of others.
    AdmitBesideHolds,
    /// What is given back is taken off the promised amounts twice.
    DoubleRelease,
    /// Signatures are not verified.
    SkipSignature,
    /// Any node may take a reservation over.
    TakeOverUnsigned,
    /// Of several nodes that take a reservation over, the one that asks last has it.
    TakeOverUnordered,
    /// A repaired reservation does not give up what it has lost.
    LostNotGivenUp,
    /// A host that its site no longer keeps stays in the reservation.
    LossIgnored,
    /// An entry point goes on with what another has taken over.
    HandOverIgnored,
    /// An entry point lets go when a site says that another node acts, whatever the user has signed.
    HandOverUnsigned,
    /// A node that takes a reservation over tells nobody but those that others have named.
    SuccessorsUntold,
}

#[cfg(feature = "canary")]
mod switch {
    use std::cell::Cell;

    use super::Canary;

    thread_local! {
        static ON: Cell<Option<Canary>> = const { Cell::new(None) };
    }

    /// Switches one fault on in this thread, or all off.
    pub fn set(canary: Option<Canary>) {
        ON.set(canary);
    }

    pub(crate) fn is_on(canary: Canary) -> bool {
        ON.get() == Some(canary)
    }
}

#[cfg(feature = "canary")]
pub use switch::set;

#[cfg(feature = "canary")]
pub(crate) use switch::is_on;

#[cfg(not(feature = "canary"))]
pub(crate) const fn is_on(_: Canary) -> bool {
    false
}
