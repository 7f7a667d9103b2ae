//! Schedules of this site, served beside the queue of requests.

use std::sync::Arc;

use broker::protocol::LedgerVersion;
use tokio::sync::{mpsc, oneshot};

use crate::{
    config::ScheduleSource,
    counters::{Counter, Counters},
    wire::{WireAnswer, WireSchedules},
};

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
    /// A handle, and the task that answers, which ends when all handles are gone.
    pub(crate) fn new(
        source: Arc<dyn ScheduleSource>,
        counters: Arc<Counters>,
    ) -> (ScheduleServer, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(QUESTIONS_MAX);
        (ScheduleServer(sender), serve(source, counters, receiver))
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
                let all = schedules.get_or_insert_with(|| Arc::new(WireSchedules::from_snapshot(&source.snapshot())));
                WireAnswer::Schedules(Arc::clone(all))
            };
            counters.count(Counter::SchedulesServed);
            // An error means that the asker has gone.
            let _ = question.reply.send(answer);
        }
    }
}
