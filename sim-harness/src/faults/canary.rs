//! Deliberate faults, each of which the simulator must find within a stated number of seeds. A simulator that finds
//! nothing proves nothing unless it finds these.
//!
//! Invariant: the core runs unchanged. A fault lies in what the simulated node does with events and outputs, in what it hears
//! ([`super::mutations`]), or in the books of its hosts ([`BookFault`]); the checkers do not know which one is on.

use crate::engine::BookFault;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// A site confirms what it does not hold.
    ConfirmWithoutHold,
    /// A hold never lapses.
    ForgetHoldDeadline,
    /// What is given back is freed twice.
    DoubleRelease,
    /// A lapsed hold is never given back.
    LapsedHoldKept,
    /// A site answers before the journal is on disk.
    JournalAfterAnswer,
    /// A view believes a snapshot that is older than what it knows.
    AcceptOldSequence,
    /// Admission does not see the holds of others.
    AdmitBesideHolds,
    /// The entry point does not write its decisions down.
    DecisionNotWritten,
    /// A site that has confirmed never asks what became of the attempt.
    SettleNeverAsked,
    /// A release that got no answer is not repeated.
    ReleaseNotRepeated,
    /// The user hears of a decision before it is on disk.
    TellBeforeWrite,
    /// Participants hear of a decision before it is on disk.
    StatusBeforeWrite,
    /// After a crash the entry point gives its attempts the numbers of earlier ones.
    ReuseTryNumbers,
    /// A site forgets at once which attempts are over.
    NoTombstones,
    /// A restarted site begins with an empty ledger.
    ForgetReservations,
    /// Sites do not verify signatures.
    SkipSignature,
    /// Sites let any node take a reservation over.
    TakeOverUnsigned,
    /// Of several nodes that a user has asked to take over, the one that asks last has it.
    TakeOverUnordered,
    /// A repaired reservation does not give up what it has lost.
    LostNotGivenUp,
    /// A host that its site no longer keeps stays in the reservation.
    LossIgnored,
    /// An entry point goes on with what another node has taken over.
    HandOverIgnored,
    /// An entry point lets go when a site says that another node acts, whatever the user has signed.
    HandOverUnsigned,
    /// A node that takes a reservation over tells nobody but those that others have named.
    SuccessorsUntold,
    /// A site forgets who coordinates a reservation in the place of its entry point.
    ForgetCoordinator,
}

impl Canary {
    /// All faults.
    pub const ALL: [Canary; 24] = [
        Canary::ConfirmWithoutHold,
        Canary::ForgetHoldDeadline,
        Canary::DoubleRelease,
        Canary::LapsedHoldKept,
        Canary::JournalAfterAnswer,
        Canary::AcceptOldSequence,
        Canary::AdmitBesideHolds,
        Canary::DecisionNotWritten,
        Canary::SettleNeverAsked,
        Canary::ReleaseNotRepeated,
        Canary::TellBeforeWrite,
        Canary::StatusBeforeWrite,
        Canary::ReuseTryNumbers,
        Canary::NoTombstones,
        Canary::ForgetReservations,
        Canary::SkipSignature,
        Canary::TakeOverUnsigned,
        Canary::TakeOverUnordered,
        Canary::LostNotGivenUp,
        Canary::LossIgnored,
        Canary::HandOverIgnored,
        Canary::HandOverUnsigned,
        Canary::SuccessorsUntold,
        Canary::ForgetCoordinator,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Canary::ConfirmWithoutHold => "confirm-without-hold",
            Canary::ForgetHoldDeadline => "forget-hold-deadline",
            Canary::DoubleRelease => "double-release",
            Canary::LapsedHoldKept => "lapsed-hold-kept",
            Canary::JournalAfterAnswer => "journal-after-answer",
            Canary::AcceptOldSequence => "accept-old-sequence",
            Canary::AdmitBesideHolds => "admit-beside-holds",
            Canary::DecisionNotWritten => "decision-not-written",
            Canary::SettleNeverAsked => "settle-never-asked",
            Canary::ReleaseNotRepeated => "release-not-repeated",
            Canary::TellBeforeWrite => "tell-before-write",
            Canary::StatusBeforeWrite => "status-before-write",
            Canary::ReuseTryNumbers => "reuse-try-numbers",
            Canary::NoTombstones => "no-tombstones",
            Canary::ForgetReservations => "forget-reservations",
            Canary::SkipSignature => "skip-signature",
            Canary::TakeOverUnsigned => "take-over-unsigned",
            Canary::TakeOverUnordered => "take-over-unordered",
            Canary::LostNotGivenUp => "lost-not-given-up",
            Canary::LossIgnored => "loss-ignored",
            Canary::HandOverIgnored => "hand-over-ignored",
            Canary::HandOverUnsigned => "hand-over-unsigned",
            Canary::SuccessorsUntold => "successors-untold",
            Canary::ForgetCoordinator => "forget-coordinator",
        }
    }

    /// The fault with this name.
    pub fn named(name: &str) -> Option<Canary> {
        Canary::ALL.into_iter().find(|canary| canary.name() == name)
    }

    /// The fault of the books of a host that it is, if it is one.
    pub fn of_books(self) -> Option<BookFault> {
        match self {
            Canary::AdmitBesideHolds => Some(BookFault::AdmitBesideHolds),
            Canary::DoubleRelease => Some(BookFault::DoubleRelease),
            Canary::LapsedHoldKept => Some(BookFault::LapsedHoldKept),
            _ => None,
        }
    }
}
