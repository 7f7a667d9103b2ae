//! A reservation whose entry point is gone, carried on by this node because its user wants that.
//!
//! Invariant: what sites tell of the reservation counts only with the request that its user has signed; at most
//! [`ASKED_AT_ONCE`] sites are asked at the same time.

use std::sync::Arc;

use broker::{
    ids::{RequestId, SiteId},
    negotiation::{RequestRecord, TakeOverError},
    protocol::{BookedPart, SiteAnswer, SiteRequest},
    time::Millis,
    trust::{Authorization, Permit, PublicKey, RequestStatement},
};
use tokio::{
    sync::{Semaphore, mpsc::error::TrySendError, oneshot},
    task::JoinSet,
};

use super::{
    carry::Carrier,
    clock::unix_ms,
    requests::{Carried, Command, Requests, SubmitError},
};

/// Sites asked at the same time.
const ASKED_AT_ONCE: usize = 64;
/// How long a site may take to answer.
const ANSWER_TIMEOUT: Millis = Millis(2_000);

/// What the sites of the grid tell of a request.
#[derive(Debug)]
pub struct Looked {
    /// What is reserved, by the sites that have it.
    pub parts: Vec<(SiteId, BookedPart)>,
    /// What its user has signed last, and with which key.
    pub signed: Option<(PublicKey, RequestStatement)>,
    /// Sites asked.
    pub asked: usize,
    /// Sites that did not answer.
    pub silent: usize,
}

/// Asks every known site what it has reserved for a request.
pub async fn look_up(carrier: &Carrier, id: &RequestId) -> Looked {
    let mut sites = carrier.discovery.view().site_ids();
    let own = carrier.discovery.site_id();
    if !sites.contains(own) {
        sites.push(own.clone());
    }
    let (asked, turns) = (sites.len(), Arc::new(Semaphore::new(ASKED_AT_ONCE)));
    let mut asking = JoinSet::new();
    for site in sites {
        let (carrier, id, turns) = (carrier.clone(), id.clone(), turns.clone());
        asking.spawn(async move {
            // The semaphore is never closed.
            let _turn = turns.acquire().await;
            let answer = carrier.ask(&site, SiteRequest::Lookup(id), ANSWER_TIMEOUT).await;
            (site, answer)
        });
    }
    let mut looked = Looked { parts: Vec::new(), signed: None, asked, silent: 0 };
    while let Some(Ok((site, answer))) = asking.join_next().await {
        match answer {
            Ok(SiteAnswer::Found { parts, .. }) => looked.add(id, &site, parts),
            _ => looked.silent += 1,
        }
    }
    looked.parts.sort_by(|a, b| (&a.0, &a.1.attempt).cmp(&(&b.0, &b.1.attempt)));
    looked
}

impl Looked {
    /// Takes what fits the request and, where several users are told of, the first one's. The user's own signature is
    /// compared with it later, so a site that lies can hide a reservation but not change its owner.
    fn add(&mut self, id: &RequestId, site: &SiteId, parts: Vec<BookedPart>) {
        for part in parts {
            let author = part.statement.author;
            let Ok(statement) = part.statement.open::<RequestStatement>() else { continue };
            let is_of_it = statement.id == *id && part.attempt.request == *id;
            if !is_of_it || self.signed.as_ref().is_some_and(|(known, _)| *known != author) {
                continue;
            }
            if self.signed.as_ref().is_none_or(|(_, last)| last.issued < statement.issued) {
                self.signed = Some((author, statement));
            }
            self.parts.push((site.clone(), part));
        }
    }
}

/// Why a reservation was not taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverFailure {
    /// What sites tell is no reservation.
    #[error(transparent)]
    Parts(#[from] TakeOverError),
    /// The signed request is not the one that was reserved.
    #[error("the reservation is of another user, or of another request")]
    Other,
    /// As for every request.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl Requests {
    /// Goes on with a reservation that another entry point has made: `looked` is what sites tell of it, `authorization` the
    /// same request, signed by its user for this node and checked. It is on disk when this returns.
    ///
    /// # Errors
    /// [`TakeOverFailure`].
    pub async fn take_over(
        self: &Arc<Self>,
        carrier: &Carrier,
        authorization: Authorization,
        permit: Permit,
        looked: &Looked,
    ) -> Result<Arc<Carried>, TakeOverFailure> {
        let Some((user, signed)) = &looked.signed else { return Err(TakeOverError::Nothing.into()) };
        if *user != permit.user || signed.request != permit.statement.request {
            return Err(TakeOverFailure::Other);
        }
        let statement = &permit.statement;
        let now = carrier.clock.now().utc;
        // With the window over nothing can be moved; lost hosts can still be replaced.
        let starts = statement.request.starts(now, self.settings().planner.default_reach).unwrap_or((now, now));
        let (id, request) = (statement.id.clone(), statement.request.clone());
        let known = self.get(&id).map(|known| known.watch().borrow().record.last_attempt);
        let mut record = RequestRecord::arrived(id, permit.name.clone(), request, authorization, unix_ms(), starts);
        // A node that has acted for the request before must not give its tries the same numbers again.
        record.last_attempt = known.unwrap_or(0);
        let record = record.take_over(&looked.parts)?;
        Ok(self.take_on(carrier, record, true).await?)
    }

    /// Whether this node acts for a request by a later word of its user than the one that another node shows.
    pub fn keeps_from(&self, request: &RequestId, authorization: &Authorization) -> bool {
        self.get(request).is_some_and(|carried| carried.snapshot.borrow().record.keeps_from(authorization))
    }

    /// A node says that it acts for a request, and this node, as a site, has found nothing against it: what is carried here
    /// of the request hears of it. Until that has let go on its disk the other node must not hear that it has: a crash in
    /// between would leave two nodes that act. Then it is told which other node this one had handed the request over to
    /// before. None: nothing of it is carried here.
    pub fn taken_over(
        &self,
        request: &RequestId,
        by: &SiteId,
        authorization: Arc<Authorization>,
    ) -> Option<oneshot::Receiver<Option<SiteId>>> {
        let carried = self.get(request)?;
        let (on_disk, written) = oneshot::channel();
        match carried.commands.try_send(Command::HandOver { by: by.clone(), authorization, on_disk }) {
            // When too many wishes wait, the sender is dropped here: no answer, and the other node says it again.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            // It is over, and that is on disk.
            Err(TrySendError::Closed(command)) => {
                if let Command::HandOver { by, on_disk, .. } = command {
                    let _ = on_disk.send(carried.snapshot.borrow().record.acted_before(&by));
                }
            }
        }
        Some(written)
    }
}
