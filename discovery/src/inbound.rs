//! What others ask this node: a bounded queue of requests for the ledger, and schedules served beside it.
//!
//! Invariant: nobody waits for a place in a queue. What does not fit is answered "busy" at once, and a request whose
//! [`Responder`] is dropped is answered "busy" as well, so that an asker never waits for nothing.

use std::sync::Arc;

use broker::{
    ids::SiteId,
    protocol::{LedgerVersion, ScheduleSnapshot, SiteAnswer, SiteRequest},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    codec::{WireAnswer, WireSchedules},
    counters::{Counter, Counters},
};

/// Who knows this site's schedules: the ledger, as others may see it.
///
/// Called from a task of its own, never from the one that owns the swarm, so it may take a lock and a few milliseconds.
pub trait ScheduleSource: Send + Sync + 'static {
    /// All schedules at the ledger's present version.
    fn snapshot(&self) -> ScheduleSnapshot;

    /// The ledger's present version. Worth implementing: most questions are answered with "unchanged".
    fn version(&self) -> LedgerVersion {
        self.snapshot().version
    }
}

/// A request of another site (or of this node itself, when it is its own entry point) for the ledger.
#[derive(Debug)]
pub struct InboundRequest {
    /// Who asks; proven by the connection.
    pub from: SiteId,
    /// What.
    pub request: SiteRequest,
    /// Where the answer goes.
    pub reply: Responder,
}

/// Takes the one answer to a request.
#[derive(Debug)]
pub struct Responder(oneshot::Sender<SiteAnswer>);

impl Responder {
    /// Sends the answer. When the asker has gone in the meantime, the answer goes nowhere, which the protocol allows
    /// for: an answer may always be lost.
    pub fn answer(self, answer: SiteAnswer) {
        // An error says that the asker has gone.
        let _ = self.0.send(answer);
    }

    /// Whether somebody still waits for the answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }
}

/// The node's end of the queue of requests.
#[derive(Debug)]
pub struct Inbound(mpsc::Receiver<InboundRequest>);

impl Inbound {
    /// The next request; `None` when discovery has stopped.
    pub async fn next(&mut self) -> Option<InboundRequest> {
        self.0.recv().await
    }

    /// The next request if one is waiting already, so that a node can group its writes.
    pub fn try_next(&mut self) -> Option<InboundRequest> {
        self.0.try_recv().ok()
    }
}

/// Discovery's end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct InboundQueue(mpsc::Sender<InboundRequest>);

impl InboundQueue {
    pub(crate) fn new(capacity: usize) -> (InboundQueue, Inbound) {
        let (sender, receiver) = mpsc::channel(capacity);
        (InboundQueue(sender), Inbound(receiver))
    }

    /// Queues a request; `None` when the queue is full or nobody takes from it any more.
    pub(crate) fn offer(&self, from: SiteId, request: SiteRequest) -> Option<oneshot::Receiver<SiteAnswer>> {
        let (sender, receiver) = oneshot::channel();
        self.0.try_send(InboundRequest { from, request, reply: Responder(sender) }).ok()?;
        Some(receiver)
    }
}

/// A question for the schedules, and where the answer goes.
struct SchedulesQuestion {
    known: Option<LedgerVersion>,
    reply: oneshot::Sender<WireAnswer>,
}

/// Answers questions for the schedules, one look at the ledger for all that wait.
#[derive(Debug, Clone)]
pub(crate) struct ScheduleServer(mpsc::Sender<SchedulesQuestion>);

/// Questions that wait for one look at the ledger.
const QUESTIONS_MAX: usize = 256;

impl ScheduleServer {
    /// Starts the task that answers. It ends when all handles are gone.
    pub(crate) fn start(source: Arc<dyn ScheduleSource>, counters: Arc<Counters>) -> ScheduleServer {
        let (sender, receiver) = mpsc::channel(QUESTIONS_MAX);
        tokio::spawn(serve(source, counters, receiver));
        ScheduleServer(sender)
    }

    /// Asks; `None` when too many are waiting.
    pub(crate) fn ask(&self, known: Option<LedgerVersion>) -> Option<oneshot::Receiver<WireAnswer>> {
        let (reply, receiver) = oneshot::channel();
        self.0.try_send(SchedulesQuestion { known, reply }).ok()?;
        Some(receiver)
    }
}

async fn serve(
    source: Arc<dyn ScheduleSource>,
    counters: Arc<Counters>,
    mut questions: mpsc::Receiver<SchedulesQuestion>,
) {
    let mut waiting = Vec::with_capacity(QUESTIONS_MAX);
    while questions.recv_many(&mut waiting, QUESTIONS_MAX).await > 0 {
        let version = source.version();
        let mut schedules: Option<Arc<WireSchedules>> = None;
        for question in waiting.drain(..) {
            let answer = if question.known == Some(version) {
                WireAnswer::Unchanged(version)
            } else {
                let all = schedules.get_or_insert_with(|| Arc::new(WireSchedules::from_snapshot(source.snapshot())));
                WireAnswer::Schedules(Arc::clone(all))
            };
            counters.count(Counter::SchedulesServed);
            // An error says that the asker has gone.
            let _ = question.reply.send(answer);
        }
    }
}
