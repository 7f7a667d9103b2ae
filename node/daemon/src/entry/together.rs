//! Batches that are reserved as a whole or not at all. What is done, and why, is the broker's ([`Step`]); here it is done.
//!
//! Invariant: which requests are tied together is on disk from before the first is held until all are reserved or all have ended, so a
//! node that starts again goes on where it was. What is missing then was forgotten, so it has ended.

use std::sync::Arc;

use broker::{
    negotiation::{Event, Member, Outcome, RequestRecord, Step},
    trust::{Authorization, Permit},
};
use futures::future::select_all;
use kolo_runtime::span::of_request;
use kolo_storage::{Change, StoreError, tied::TiedRecord};
use kolo_text::words::reason_text;
use tokio::sync::watch;
use tracing::{Instrument as _, info};

use super::{
    driver::Coordinator,
    request::{Command, RequestHandle, ShownStage, Snapshot, SubmitError},
    requests::{HandedIn, Requests},
};

/// Most requests of such a batch: all are held at the same time, and half of a hold is there to get them all.
pub const TOGETHER_MAX: usize = 100;

/// One request of such a batch that was checked, with its plan, and the user of this node for whom its operator has signed.
pub struct Part {
    pub authorization: Authorization,
    pub permit: Permit,
    pub plan: HandedIn,
    pub submitted_for: Option<String>,
}

/// Why such a batch was not taken on; with the place of the request when it is one.
pub type NotTakenOn = (Option<usize>, SubmitError);

impl Requests {
    /// Takes requests on that are reserved together or not at all: all of them are on disk, tied together, when this returns.
    ///
    /// # Errors
    /// As [`Requests::submit`], and then nothing was taken on.
    pub async fn submit_together(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        parts: Vec<Part>,
    ) -> Result<Vec<Arc<RequestHandle>>, NotTakenOn> {
        let mut records = Vec::with_capacity(parts.len());
        for (at, part) in parts.into_iter().enumerate() {
            let Part { authorization, permit, plan, submitted_for } = part;
            let record = self.arrived(coordinator, authorization, permit, Some(plan), submitted_for);
            records.push(record.map_err(|error| (Some(at), error))?);
        }
        let Some(id) = records.first().map(|record| record.id.clone()) else { return Ok(Vec::new()) };
        records.iter_mut().for_each(|record| record.together = Some(id.clone()));
        let arrives =
            |(at, record): (usize, &RequestRecord)| self.arrives(&record.id).map_err(|error| (Some(at), error));
        let _arrivals = records.iter().enumerate().map(arrives).collect::<Result<Vec<_>, _>>()?;
        let tied = TiedRecord { id, requests: records.iter().map(|record| record.id.clone()).collect() };
        let written = Change::Tied(Box::new(tied.clone()));
        let handles =
            self.take_on_all(coordinator, records, false, vec![written]).await.map_err(|error| (None, error))?;
        self.tie(coordinator, tied);
        Ok(handles)
    }

    /// Sees to it that these are reserved together, or none of them.
    pub(super) fn tie(self: &Arc<Self>, coordinator: &Coordinator, tied: TiedRecord) {
        let handles = tied.requests.iter().map(|id| self.get(id)).collect();
        let span = of_request(&tied.id);
        let coordinator = coordinator.clone();
        let following = async move {
            if let Err(error) = follow(&coordinator, &tied, handles).await {
                // The disk has failed: the node stops, and goes on with this at its next start.
                let _ = coordinator.stop_node(error);
            }
        };
        tokio::spawn(following.instrument(span));
    }
}

/// Does what the rules say with every change, until nothing ties the requests together any more.
async fn follow(
    coordinator: &Coordinator,
    tied: &TiedRecord,
    handles: Vec<Option<Arc<RequestHandle>>>,
) -> Result<(), StoreError> {
    let mut watches: Vec<_> = handles.iter().flatten().map(|handle| handle.watch()).collect();
    let is_any_missing = watches.len() < handles.len();
    let handles: Vec<Arc<RequestHandle>> = handles.into_iter().flatten().collect();
    loop {
        let shown: Vec<Snapshot> = watches.iter_mut().map(|watch| watch.borrow_and_update().clone()).collect();
        let mut members: Vec<Member> = shown.iter().map(|one| one.member.unwrap_or(Member::Ended)).collect();
        members.extend(is_any_missing.then_some(Member::Ended));
        let tell = async |is_told: fn(Member) -> bool, event: &Event| {
            for (handle, _) in handles.iter().zip(&members).filter(|(_, member)| is_told(**member)) {
                // One whose task has ended needs to be told nothing.
                let _ = handle.commands.send(Command::Batch(event.clone())).await;
            }
        };
        match Step::of(&members) {
            Step::Wait => {}
            Step::Confirm => tell(|member| member == Member::Held, &Event::AllHeld).await,
            Step::Untie => {
                coordinator.store.commit(vec![Change::Untie(tied.id.clone())]).await?;
                info!(requests = handles.len(), "a batch is reserved as a whole");
                tell(|_| true, &Event::BatchReserved).await;
                return Ok(());
            }
            Step::GiveUp if members.iter().all(|member| *member == Member::Ended) => {
                info!(requests = handles.len(), "a batch is given up");
                return coordinator.store.commit(vec![Change::Untie(tied.id.clone())]).await;
            }
            Step::GiveUp => {
                let event = Event::BatchFailed(why(&shown));
                tell(|member| member != Member::Ended, &event).await;
            }
        }
        changed(&mut watches).await;
    }
}

async fn changed(watches: &mut [watch::Receiver<Snapshot>]) {
    if !watches.is_empty() {
        // The senders are kept here, too.
        let _ = select_all(watches.iter_mut().map(|watch| Box::pin(watch.changed()))).await;
    }
}

/// Which request has ended, and why.
fn why(shown: &[Snapshot]) -> String {
    let ended = shown.iter().find_map(|one| match &one.stage {
        ShownStage::Closed { outcome, .. } => Some((&one.record, outcome)),
        _ => None,
    });
    let Some((record, outcome)) = ended else { return "a request of it has ended long ago".to_owned() };
    let name = record.request.id().unwrap_or(&record.id);
    let why = match outcome {
        Outcome::Rejected { reason, .. } => reason_text(reason),
        Outcome::Failed(failure) => failure.to_string(),
        Outcome::Cancelled(_) => "its user has cancelled it".to_owned(),
        Outcome::HandedOver => "its user lets another node coordinate it".to_owned(),
    };
    format!("{name}: {why}")
}
