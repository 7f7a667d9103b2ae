//! The bounded queue of requests of other sites to this node.
//!
//! Invariant: no request waits for a place in the queue. What does not fit is answered "busy" at once, and a request whose
//! [`Responder`] is dropped is answered "busy" as well, so that an asker never waits for nothing.

use broker::{
    ids::{Network, SiteId},
    protocol::{SiteAnswer, SiteRequest},
};
use tokio::sync::{mpsc, oneshot};

use crate::run::RunInbound;

/// A request of another site (or of this node itself, when it is its own entry point) for the ledger.
#[derive(Debug)]
pub struct InboundRequest {
    /// The asking site; proven by the connection.
    pub from: SiteId,
    /// The network that its connection comes from, where that says something about its owner.
    pub network: Option<Network>,
    /// The request.
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
        // An error means that the asker has gone.
        let _ = self.0.send(answer);
    }

    /// Whether the asker still waits for the answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }
}

/// The node's end of the queue of requests.
#[derive(Debug)]
pub struct Inbound {
    requests: mpsc::Receiver<InboundRequest>,
    runs: Option<RunInbound>,
}

impl Inbound {
    /// The next request; `None` when discovery has stopped.
    pub async fn next(&mut self) -> Option<InboundRequest> {
        self.requests.recv().await
    }

    /// The next request if one is waiting already, so that a node can group its writes.
    pub fn try_next(&mut self) -> Option<InboundRequest> {
        self.requests.try_recv().ok()
    }

    /// What takes the streams that others open to what runs here; none the second time. While nobody has taken it they are refused.
    pub fn take_runs(&mut self) -> Option<RunInbound> {
        self.runs.take()
    }

    pub(crate) fn set_runs(&mut self, runs: RunInbound) {
        self.runs = Some(runs);
    }
}

/// Discovery's end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct InboundQueue(mpsc::Sender<InboundRequest>);

impl InboundQueue {
    pub(crate) fn new(capacity: usize) -> (InboundQueue, Inbound) {
        let (sender, requests) = mpsc::channel(capacity);
        (InboundQueue(sender), Inbound { requests, runs: None })
    }

    /// Queues a request; `None` when the queue is full or has no reader any more.
    pub(crate) fn offer(
        &self,
        from: SiteId,
        network: Option<Network>,
        request: SiteRequest,
    ) -> Option<oneshot::Receiver<SiteAnswer>> {
        let (sender, receiver) = oneshot::channel();
        self.0.try_send(InboundRequest { from, network, request, reply: Responder(sender) }).ok()?;
        Some(receiver)
    }
}
