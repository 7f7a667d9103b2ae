//! Deliberate faults, each of which the simulator must find within a stated number of seeds. A simulator that finds
//! nothing proves nothing unless it finds these.
//!
//! Invariant: the core runs unchanged. A fault lies in what the simulated node does with events and outputs, in what it
//! receives ([`super::mutations`]), or in the books of its hosts ([`BookFault`]); the checkers do not know which one is on.

use clap::ValueEnum;

use crate::engine::BookFault;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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
    /// The user learns a decision before it is on disk.
    ReportBeforeWrite,
    /// Participants learn a decision before it is on disk.
    StatusBeforeWrite,
    /// After a crash the entry point gives its attempts the numbers of earlier ones.
    ReuseAttemptNumbers,
    /// A site forgets at once which attempts are over.
    NoTombstones,
    /// A restarted site begins with an empty ledger.
    ForgetReservations,
    /// Sites do not verify signatures.
    SkipSignature,
    /// Sites let any node take a reservation over.
    TakeOverUnsigned,
    /// Of several nodes that a user has asked to take over, the last to ask coordinates.
    TakeOverUnordered,
    /// A repaired reservation does not give up what it has lost.
    LostNotGivenUp,
    /// A host that its site no longer keeps stays in the reservation.
    LossIgnored,
    /// An entry point goes on with what another node has taken over.
    HandOverIgnored,
    /// An entry point gives up when a site says that another node coordinates, whatever the user has signed.
    HandOverUnsigned,
    /// A node that takes a reservation over asks only the nodes that others have named to give it up.
    ForgetSuccessors,
    /// A node that takes a reservation over takes it for one of the first shape.
    ShapeForgotten,
    /// A node that takes a reservation over takes it for one of the least factor.
    FactorForgotten,
    /// A site forgets who coordinates a reservation in the place of its entry point.
    ForgetCoordinator,
    /// A site books seats for longer than their user has signed.
    GrantLonger,
    /// A site books seats under other numbers than they have.
    SeatsRenumbered,
    /// A site takes less than the whole of a host that is to be taken whole.
    ShareWholeHosts,
    /// Neither the entry point nor sites heed the deadline.
    IgnoreDeadline,
    /// The entry point makes a plan of its own in place of the one that was handed in.
    PlanAnew,
    /// A site answers its owner that a booking is taken back, and has not written it down.
    EvictionNotWritten,
    /// The entry point does not see which hosts sites have given in the place of others.
    PlacesIgnored,
    /// A site holds for less than its price.
    BelowPrice,
    /// The entry point forgets the budget; each site sees its own seats only.
    BudgetForgotten,
    /// What is planned again of a batch may cost what the request may, whatever the batch may.
    BatchBudgetForgotten,
    /// The coordinator does not wait for the other requests of a batch that is reserved as a whole or not at all.
    BatchNotTied,
    /// The entry point takes the half of what a site charges for what it is to pay.
    ChargeHalved,
    /// A site takes what a cancellation gives back twice off what is to be paid.
    RefundTwice,
    /// An entry point that starts again forgets what earlier attempts have cost: each attempt has the whole budget.
    BudgetPerAttempt,
    /// The entry point keeps a receipt that names another price than was agreed.
    ReceiptUnchecked,
    /// A site reckons what its hosts send to all others, its own among them.
    LoadPerHost,
    /// What is given back is not given back on the uplink.
    LinkKept,
    /// Sites do not see the traffic of what a repair holds.
    RepairForgetsLink,
    /// A site that starts again forgets that its owner empties it.
    DrainForgotten,
    /// Nodes believe whatever their wall clocks show.
    ClockBelieved,
    /// A node takes a write for done that its full disk has refused.
    FullDiskPromises,
    /// A site that lacks room on its disk promises as before.
    FullDiskUnheeded,
    /// The entry point takes a site whose disk has lost promises for one that has them.
    LieBelieved,
    /// A node without descriptors takes what it writes for done, and has not written it.
    StarvedWritesLost,
    /// Sites heed no rules of their owners that have changed.
    RulesIgnored,
    /// Sites heed no shares when they hold for a repair.
    RepairForgetsShare,
    /// Sites forgive at once that holds have lapsed.
    LapsesForgiven,
    /// What nodes of one network have is counted as if each had a network of its own.
    NetworkNotCounted,
    /// A site that starts again forgets the jobs of its owner.
    OwnJobsForgotten,
    /// Sites hold whatever that costs the jobs of their owner.
    OwnQueueIgnored,
    /// Sites stop jobs of their owner that nobody has allowed them to stop.
    OwnJobsStopped,
    /// Sites do not see that only what is held is in the way of a job that is to stop.
    HoldsStopJobs,
    /// An event of a ledger goes through steps without end.
    EndlessEvent,
    /// A site writes down that a reservation waits for longer than its user grants.
    WaitsTooLong,
    /// Sites hold what they are asked a quote for.
    QuoteHolds,
    /// The plan of the owner's jobs does not see what is promised.
    PlannedBesidePromises,
    /// A site gives one host of a class to several seats at a time.
    BindTwice,
    /// A site tells of one host of a class fewer than it books.
    ClassMiscounted,
    /// A site does not write down which seats it has moved.
    WitnessForgotten,
    /// A site that starts again forgets which seats it has bound.
    BoundMoved,
    /// The entry point forgets the limit of sites; each site sees the sites of one attempt only.
    ForgetSitesMax,
}

impl Canary {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The fault of the books of a host that it is, if it is one.
    pub fn of_books(self) -> Option<BookFault> {
        match self {
            Canary::AdmitBesideHolds => Some(BookFault::AdmitBesideHolds),
            Canary::DoubleRelease => Some(BookFault::DoubleRelease),
            Canary::LapsedHoldKept => Some(BookFault::LapsedHoldKept),
            Canary::LinkKept => Some(BookFault::LinkKept),
            Canary::PlannedBesidePromises => Some(BookFault::PromisesUnseen),
            Canary::BindTwice => Some(BookFault::ClassNeverFull),
            Canary::HoldsStopJobs => Some(BookFault::SecondsFull),
            Canary::EndlessEvent => Some(BookFault::LooksEndlessly),
            Canary::BelowPrice => Some(BookFault::NoTariff),
            _ => None,
        }
    }
}
