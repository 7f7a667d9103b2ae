//! One request of this node as other tasks see it.
//!
//! Invariant: the statuses that participants get change after every write and before every message.

use std::sync::Arc;

use broker::{
    ids::{RequestId, SiteId},
    negotiation::{Event, Failure, Member, Outcome, PlanMisfit, RequestRecord, Reservation, Stage},
    plan::Plan,
    request::RequestError,
    time::Time,
    trust::Authorization,
};
use kolo_storage::StoreError;
use tokio::sync::{mpsc, oneshot, watch};

/// Most requests under way at a time; a further one is refused with "busy".
pub const MAX_ACTIVE: usize = 512;

/// Why a request was not taken on.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The request cannot be meant.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The plan that came with it is not what it asks for.
    #[error("plan: {0}")]
    Plan(#[from] PlanMisfit),
    /// Too many are under way.
    #[error("{MAX_ACTIVE} requests are under way at this node; send it again later, or through another node")]
    Busy,
    #[error(
        "the disk of this node is full, and it takes nothing new on; send it through another node, or make room (kolo doctor)"
    )]
    NoRoom,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request of this name is here already, or is being taken on at this moment.
    #[error("request {id} is known here already; a signed request counts once")]
    Known {
        id: RequestId,
        /// The request that is here.
        existing: Option<Box<Snapshot>>,
    },
}

/// What is known of a request at a moment; shown to people, and to participants that ask.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Grows with every change.
    pub revision: u64,
    /// As kept on disk.
    pub record: Arc<RequestRecord>,
    /// How far it has come.
    pub stage: ShownStage,
    /// The same for the batch that it is tied to.
    pub member: Option<Member>,
}

impl Snapshot {
    /// When the reservation ends, if there is one.
    pub fn ends_at(&self) -> Option<Time> {
        self.stage.reserved_plan().map(Plan::end)
    }

    /// Whether nothing can happen to the request any more: it is over, or its reservation has ended.
    pub fn is_history(&self, now: Time) -> bool {
        self.stage.is_released() || self.ends_at().is_some_and(|end| end <= now)
    }
}

/// How far a request has come, without borrows.
#[derive(Debug, Clone)]
pub enum ShownStage {
    /// Phases I to V.
    Planning,
    /// Between two attempts.
    BackingOff,
    /// Sites are asked to hold.
    Holding(Plan),
    /// Sites are asked to confirm.
    Confirming(Plan),
    /// It is reserved.
    Reserved(Plan),
    /// It is reserved, without the hosts that are lost.
    Degraded {
        /// What was reserved, and what of it is lost.
        reservation: Box<Reservation>,
        /// Others are being looked for.
        is_rebrokering: bool,
    },
    /// It has ended.
    Closed {
        outcome: Outcome,
        /// Some site has not acknowledged the release yet.
        releasing: bool,
    },
}

impl From<Stage<'_>> for ShownStage {
    fn from(stage: Stage<'_>) -> ShownStage {
        match stage {
            Stage::Planning => ShownStage::Planning,
            Stage::BackingOff => ShownStage::BackingOff,
            Stage::Holding(plan) => ShownStage::Holding(plan.clone()),
            Stage::Confirming(plan) => ShownStage::Confirming(plan.clone()),
            Stage::Reserved(plan) => ShownStage::Reserved(plan.clone()),
            Stage::Degraded { reservation, is_rebrokering } => {
                ShownStage::Degraded { reservation: Box::new(reservation.clone()), is_rebrokering }
            }
            Stage::Closed { outcome, releasing } => ShownStage::Closed { outcome: outcome.clone(), releasing },
        }
    }
}

impl ShownStage {
    /// How the request was decided, in a word of [`OUTCOMES`](kolo_runtime::metrics::OUTCOMES).
    pub fn outcome(&self) -> &'static str {
        match self {
            ShownStage::Closed { outcome, .. } => match outcome {
                Outcome::Rejected { .. } => "rejected",
                Outcome::Failed(Failure::Refused { .. }) => "refused",
                Outcome::Failed(Failure::Unreachable { .. }) => "unreachable",
                Outcome::Failed(Failure::PatienceOver { .. }) => "patience_over",
                Outcome::Failed(Failure::Batch { .. }) => "batch",
                Outcome::Cancelled(_) => "cancelled",
                Outcome::HandedOver => "handed_over",
            },
            _ => "reserved",
        }
    }

    /// Whether the request is neither reserved nor ended.
    pub fn is_under_way(&self) -> bool {
        self.reserved_plan().is_none() && !self.is_closed()
    }

    /// The reservation, with or without lost hosts.
    pub fn reserved_plan(&self) -> Option<&Plan> {
        match self {
            ShownStage::Reserved(plan) => Some(plan),
            ShownStage::Degraded { reservation, .. } => Some(&reservation.plan),
            _ => None,
        }
    }

    /// Whether it has ended, with or without releases still to be acknowledged.
    pub fn is_closed(&self) -> bool {
        matches!(self, ShownStage::Closed { .. })
    }

    /// Whether it has ended and every site has acknowledged its release.
    pub fn is_released(&self) -> bool {
        matches!(self, ShownStage::Closed { releasing: false, .. })
    }

    /// The plan that is held, confirmed or reserved.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            ShownStage::Holding(plan) | ShownStage::Confirming(plan) | ShownStage::Reserved(plan) => Some(plan),
            ShownStage::Degraded { reservation, .. } => Some(&reservation.plan),
            ShownStage::Closed { outcome: Outcome::Cancelled(plan), .. } => plan.as_ref(),
            ShownStage::Planning | ShownStage::BackingOff | ShownStage::Closed { .. } => None,
        }
    }
}

/// What a user wants done with a request, at this node or through another.
#[derive(Debug)]
pub enum Command {
    /// Take it back; with the exit code of the command that it was for, if that is why.
    Cancel(Option<u8>),
    /// See now whether the reservation is whole, and repair it if not; whoever waits is told when what was begun after this has ended and is
    /// shown.
    Check(Option<oneshot::Sender<()>>),
    /// What has become of the batch that it is tied to.
    Batch(Event),
    /// Leave it to another node, which shows the user's authorization for that.
    HandOver {
        by: SiteId,
        /// The request as its user has signed it for that node.
        authorization: Arc<Authorization>,
        /// Gets, when the outcome is on disk, the node that the request had been left to before.
        on_disk: oneshot::Sender<Option<SiteId>>,
    },
}

/// One request as other tasks see it.
pub struct RequestHandle {
    pub(super) snapshot: watch::Sender<Snapshot>,
    /// Asks the task that coordinates it to do something.
    pub commands: mpsc::Sender<Command>,
    /// The record as it is on disk: participants that ask are answered from it.
    pub(super) on_disk: watch::Sender<Arc<RequestRecord>>,
}

impl RequestHandle {
    /// The present snapshot, and those to come.
    pub fn watch(&self) -> watch::Receiver<Snapshot> {
        self.snapshot.subscribe()
    }

    pub(super) fn bears(&self, label: &str) -> bool {
        self.snapshot.borrow().record.request.id().is_some_and(|known| known.as_str() == label)
    }
}
