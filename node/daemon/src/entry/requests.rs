//! Every request that this node coordinates, by id.
//!
//! Invariant: participants that ask for the outcome of an attempt are answered from what is on disk
//! ([`Coordination::status_of`]). At most [`MAX_ACTIVE`] requests are under way; above [`MAX_KEPT`] the oldest ones that are over are forgotten.

use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use broker::{
    host::Host,
    ids::{RequestId, SiteId},
    negotiation::{HandedPlan, HandedSeat, NegotiationSettings, Outcome, RequestRecord},
    protocol::{AttemptId, AttemptStatus},
    time::Time,
    trust::{Authorization, Permit, SignedText},
    view::SiteView,
};
use dashmap::DashMap;
use kolo_runtime::{
    changes::{Change as News, Changes},
    clock::{Clock, unix_ms},
    lock::locked,
    metrics::Metrics,
};
use kolo_storage::{Change, Store, tied::TiedRecord};
use rand::RngExt;
use tokio::sync::{mpsc::error::TrySendError, oneshot};
use tracing::error;

use crate::{
    entry::{
        arrivals::{Arrival, Arrivals},
        driver::{self, Coordinator},
        extensions::{Extensions, base_of},
        request::{Command, MAX_ACTIVE, RequestHandle, ShownStage, Snapshot, SubmitError},
    },
    site::task::Coordination,
};

/// Most requests kept, closed ones included.
const MAX_KEPT: usize = 20_000;

/// What is kept informed of requests.
pub struct Observers {
    /// Of every change.
    pub changes: Changes,
    /// Of decisions and of what they took.
    pub metrics: Arc<Metrics>,
}

/// All requests of this node.
pub struct Requests {
    site: SiteId,
    by_id: DashMap<RequestId, Arc<RequestHandle>>,
    active: AtomicUsize,
    arrivals: Arrivals,
    settings: NegotiationSettings,
    clock: Clock,
    store: Store,
    observers: Observers,
    /// All requests by the time they came and their id, so that a page of the list needs no look at the others.
    order: Mutex<BTreeSet<(u64, RequestId)>>,
    extensions: Extensions,
}

/// A plan that a request comes with.
#[derive(Debug)]
pub struct HandedIn {
    pub plan: HandedPlan,
    /// Whether the request is planned here when that plan cannot be reserved.
    pub replans: bool,
    /// It starts at this moment at the latest, also where the request says nothing.
    pub latest: Option<Time>,
}

impl Requests {
    pub fn new(
        site: SiteId,
        settings: NegotiationSettings,
        clock: Clock,
        store: Store,
        observers: Observers,
    ) -> Requests {
        let (by_id, active, arrivals) = (DashMap::new(), AtomicUsize::new(0), Arrivals::default());
        let (order, extensions) = (Mutex::default(), Extensions::default());
        Requests { site, by_id, active, arrivals, settings, clock, store, observers, order, extensions }
    }

    /// What this node has done.
    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.observers.metrics
    }

    /// Announces that a request has changed.
    pub(super) fn changed(&self, id: &RequestId, revision: u64) {
        self.observers.changes.tell(News::Request { id: id.clone(), revision });
        if let Some(base) = self.base_of_id(id).and_then(|base| self.snapshot(&base)) {
            self.observers.changes.tell(News::Request { id: base.record.id.clone(), revision: base.revision });
        }
    }

    pub fn settings(&self) -> &NegotiationSettings {
        &self.settings
    }

    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    pub(super) fn finished(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a request on that its user has signed and that was checked, with the plan to reserve if it was made elsewhere, and the
    /// user of this node for whom its operator has signed: it is on disk when this returns, and a task coordinates it. One whose name is known is refused, so that a signed request counts once however often it is sent.
    ///
    /// The task starts while the request is still being written: planning and holding promise nobody anything, and what
    /// the task itself writes later, its decision above all, is queued behind the request.
    ///
    /// # Errors
    /// [`SubmitError`] when it is known, cannot be meant, the node is busy, or the disk fails.
    pub async fn submit(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        authorization: Authorization,
        permit: Permit,
        plan: Option<HandedIn>,
        submitted_for: Option<String>,
    ) -> Result<Arc<RequestHandle>, SubmitError> {
        let record = self.arrived(coordinator, authorization, permit, plan, submitted_for)?;
        let _arrival = self.arrives(&record.id)?;
        self.take_on(coordinator, record, false).await
    }

    /// The record of a request that has arrived.
    pub(super) fn arrived(
        &self,
        coordinator: &Coordinator,
        authorization: Authorization,
        permit: Permit,
        plan: Option<HandedIn>,
        submitted_for: Option<String>,
    ) -> Result<RequestRecord, SubmitError> {
        let now = self.clock.now();
        let Permit { statement, name, .. } = permit;
        let mut starts = statement.request.starts(now.utc, self.settings.planner.default_reach)?;
        if let Some(latest) = plan.as_ref().and_then(|handed| handed.latest) {
            starts.1 = starts.1.min(latest).max(starts.0);
        }
        let (id, request) = (statement.id.clone(), statement.request.clone());
        let agreed = |seat: &HandedSeat, window| {
            let agreement = |host: Host| host.tariff.agreement(Some(now.utc), window, &seat.amounts);
            let of_site = |site: &SiteView| site.advert().hosts.get(&seat.host).map(agreement);
            coordinator.discovery.view().with_site(&seat.site, of_site).flatten().unwrap_or_default()
        };
        let replans = plan.as_ref().is_some_and(|handed| handed.replans);
        let handed_in = match plan.map(|handed| handed.plan.check(&statement, starts.1, agreed)) {
            // What has changed since it was made is planned again.
            Some(Err(_)) if replans => None,
            checked => checked.transpose()?,
        };
        let mut record = RequestRecord::arrived(id, name, request, authorization, unix_ms(), starts);
        record.handed_in = handed_in;
        record.replans = replans;
        record.submitted_for = submitted_for;
        Ok(record)
    }

    /// Announces that this node is about to coordinate a request. Its name is free again when what is returned is dropped.
    pub(super) fn arrives(&self, id: &RequestId) -> Result<Arrival<'_>, SubmitError> {
        self.arrivals.announce(id).ok_or_else(|| SubmitError::Known { id: id.clone(), existing: None })
    }

    /// Writes a request down that is new to this node and has been announced, and coordinates it.
    pub(super) async fn take_on(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        record: RequestRecord,
        is_resumed: bool,
    ) -> Result<Arc<RequestHandle>, SubmitError> {
        // One record gives one handle.
        let mut handles = self.take_on_all(coordinator, vec![record], is_resumed, Vec::new()).await?;
        handles.pop().ok_or(SubmitError::Busy)
    }

    /// The same of several, with other changes: all in one write.
    pub(super) async fn take_on_all(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        records: Vec<RequestRecord>,
        is_resumed: bool,
        mut changes: Vec<Change>,
    ) -> Result<Vec<Arc<RequestHandle>>, SubmitError> {
        for RequestRecord { id, .. } in &records {
            if let Some(known) = self.get(id).filter(|known| !is_left_to_another(&known.snapshot.borrow())) {
                let existing = Some(Box::new(known.snapshot.borrow().clone()));
                return Err(SubmitError::Known { id: id.clone(), existing });
            }
        }
        if !is_resumed && !self.store.has_room() {
            return Err(SubmitError::NoRoom);
        }
        let count = records.len();
        if self.active.fetch_add(count, Ordering::Relaxed) + count > MAX_ACTIVE {
            self.active.fetch_sub(count, Ordering::Relaxed);
            return Err(SubmitError::Busy);
        }
        changes.extend(records.iter().map(|record| Change::Request(Box::new(record.clone()))));
        changes.extend(self.make_room(count).into_iter().map(Change::ForgetRequest));
        let written = match self.store.enqueue(changes).await {
            Ok(written) => written,
            Err(error) => {
                self.active.fetch_sub(count, Ordering::Relaxed);
                return Err(coordinator.stop_node(error));
            }
        };
        let coordinate = |record| self.coordinate(coordinator, record, is_resumed);
        let handles = records.into_iter().map(coordinate).collect();
        written.on_disk().await.map_err(|error| coordinator.stop_node(error))?;
        Ok(handles)
    }

    /// Goes on with what the disk remembers.
    pub fn resume(self: &Arc<Self>, coordinator: &Coordinator, records: Vec<RequestRecord>, all_tied: Vec<TiedRecord>) {
        for mut record in records {
            record.together = record.together.filter(|batch| all_tied.iter().any(|tied| tied.id == *batch));
            self.active.fetch_add(1, Ordering::Relaxed);
            self.coordinate(coordinator, record, true);
        }
        for tied in all_tied {
            self.tie(coordinator, tied);
        }
    }

    fn coordinate(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        record: RequestRecord,
        is_resumed: bool,
    ) -> Arc<RequestHandle> {
        let seed = rand::rng().random();
        let (id, started) = (record.id.clone(), self.clock.now());
        let (handle, task) = driver::start(self.clone(), coordinator, record, is_resumed, seed, started);
        let record = handle.snapshot.borrow().record.clone();
        locked(&self.order).insert((record.submitted_ms, id.clone()));
        self.extensions.add(&record);
        self.by_id.insert(id, handle.clone());
        tokio::spawn(watched(self.clone(), handle.clone(), task));
        handle
    }

    /// The oldest requests that are history, as many as are above the bound with so many new ones.
    fn make_room(&self, new: usize) -> Vec<RequestId> {
        let now = self.clock.now().utc;
        let over = (self.by_id.len() + new).saturating_sub(MAX_KEPT);
        if over == 0 {
            return Vec::new();
        }
        let mut history: Vec<(u64, RequestId)> = self
            .by_id
            .iter()
            .filter(|entry| entry.snapshot.borrow().is_history(now))
            .map(|entry| (entry.snapshot.borrow().record.submitted_ms, entry.key().clone()))
            .collect();
        history.sort();
        history.truncate(over);
        let mut order = locked(&self.order);
        for entry in &history {
            order.remove(entry);
            if let Some((_, handle)) = self.by_id.remove(&entry.1) {
                self.extensions.remove(&handle.snapshot.borrow().record);
            }
        }
        history.into_iter().map(|(_, id)| id).collect()
    }

    /// The request with this id.
    pub fn get(&self, id: &RequestId) -> Option<Arc<RequestHandle>> {
        self.by_id.get(id).map(|entry| entry.value().clone())
    }

    fn snapshot(&self, id: &RequestId) -> Option<Snapshot> {
        Some(self.by_id.get(id)?.snapshot.borrow().clone())
    }

    pub(super) fn record(&self, id: &RequestId) -> Option<Arc<RequestRecord>> {
        Some(self.by_id.get(id)?.snapshot.borrow().record.clone())
    }

    /// The reservation that a request of this node lengthens.
    pub fn base_of(&self, part: &RequestRecord) -> Option<RequestId> {
        base_of(part, |id| self.record(id))
    }

    /// The reservation that the request of this name lengthens, when both are of this node.
    pub fn base_of_id(&self, part: &RequestId) -> Option<RequestId> {
        self.record(part).and_then(|part| self.base_of(&part))
    }

    /// The requests that lengthen the reservation of `base`, the oldest first.
    pub fn extensions_of(&self, base: &RequestId) -> Vec<Arc<RequestHandle>> {
        let is_part = |part: &Arc<RequestHandle>| {
            let record = part.snapshot.borrow().record.clone();
            self.base_of(&record).as_ref() == Some(base)
        };
        self.extensions.behind(base).iter().filter_map(|id| self.get(id)).filter(is_part).collect()
    }

    /// At most `limit` requests that are `wanted`, newest first, from behind `after` on; and whether there are more. What lengthens
    /// another is a part of that one and not listed by itself.
    pub fn page(
        &self,
        after: Option<(u64, RequestId)>,
        limit: usize,
        wanted: impl Fn(&RequestRecord) -> bool,
    ) -> (Vec<Snapshot>, bool) {
        let upper = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids: Vec<RequestId> = {
            let order = locked(&self.order);
            order
                .range((Bound::Unbounded, upper))
                .rev()
                .map(|(_, id)| id)
                .filter(|id| self.record(id).is_some_and(|record| wanted(&record) && self.base_of(&record).is_none()))
                .take(limit.saturating_add(1))
                .cloned()
                .collect()
        };
        let has_more = ids.len() > limit;
        (ids.iter().take(limit).filter_map(|id| self.snapshot(id)).collect(), has_more)
    }

    /// The newest request that is `wanted` and that its writer has named `label`.
    pub fn labelled(&self, label: &str, wanted: impl Fn(&RequestRecord) -> bool) -> Option<Arc<RequestHandle>> {
        let named = self.by_id.iter().filter(|entry| entry.bears(label) && wanted(&entry.snapshot.borrow().record));
        let newest = named.max_by_key(|entry| (entry.snapshot.borrow().record.submitted_ms, entry.key().clone()));
        newest.map(|entry| entry.value().clone())
    }

    /// Requests of this label that are `wanted`, have not ended, and lengthen no other one.
    pub fn live_labelled(&self, label: &str, wanted: impl Fn(&RequestRecord) -> bool) -> Vec<Arc<RequestHandle>> {
        let now = self.clock.now().utc;
        let is_live = |handle: &Arc<RequestHandle>| {
            let is_over = |snapshot: &Snapshot| snapshot.stage.is_closed() || snapshot.is_history(now);
            let snapshot = handle.snapshot.borrow();
            handle.bears(label) && wanted(&snapshot.record) && !is_over(&snapshot)
        };
        let live: Vec<Arc<RequestHandle>> =
            self.by_id.iter().map(|entry| entry.value().clone()).filter(is_live).collect();
        // Looked at only when nothing of the table is held.
        live.into_iter().filter(|handle| self.base_of(&handle.snapshot.borrow().record).is_none()).collect()
    }

    /// Requests that are `wanted` and whose id begins with `head`; two at most, since no more are needed to know that there are
    /// several.
    pub fn beginning_with(&self, head: &str, wanted: impl Fn(&RequestRecord) -> bool) -> Vec<Arc<RequestHandle>> {
        let matching =
            self.by_id.iter().filter(|entry| entry.key().begins_with(head) && wanted(&entry.snapshot.borrow().record));
        matching.take(2).map(|entry| entry.value().clone()).collect()
    }

    /// Looks at every request, in no particular order. Keep `look` short.
    pub(super) fn for_each(&self, mut look: impl FnMut(&RequestHandle)) {
        self.by_id.iter().for_each(|entry| look(entry.value()));
    }

    /// Requests whose reservation has ended by `now`.
    pub fn ended(&self, now: Time) -> Vec<Snapshot> {
        let is_over = |snapshot: &Snapshot| snapshot.ends_at().is_some_and(|end| end <= now);
        let over = self.by_id.iter().filter(|one| is_over(&one.snapshot.borrow()));
        over.map(|one| one.snapshot.borrow().clone()).collect()
    }

    /// All requests, newest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let mut all: Vec<Snapshot> = self.by_id.iter().map(|entry| entry.snapshot.borrow().clone()).collect();
        all.sort_by(|a, b| (b.record.submitted_ms, &b.record.id).cmp(&(a.record.submitted_ms, &a.record.id)));
        all
    }
}

/// Runs the task of a request. A panic in it is the end of this task only: a request that brings one about must not take the node down
/// again and again.
async fn watched(requests: Arc<Requests>, handle: Arc<RequestHandle>, task: impl Future<Output = ()> + Send + 'static) {
    let Err(error) = tokio::spawn(task).await else { return };
    if error.is_panic() {
        let snapshot = handle.snapshot.borrow().clone();
        let request = &snapshot.record.id;
        error!(%request, %error, "the task of the request has failed: it stays as it was written last, and goes on after a restart");
        if snapshot.stage.is_under_way() {
            requests.finished();
        }
    }
}

/// Whether another node coordinates a request now and nothing of it is left to do here: the user may come back with it.
pub fn is_left_to_another(snapshot: &Snapshot) -> bool {
    matches!(snapshot.stage, ShownStage::Closed { outcome: Outcome::HandedOver, releasing: false })
}

impl Coordination for Requests {
    fn status_of(&self, attempt: &AttemptId, asker: &SiteId) -> Option<AttemptStatus> {
        match self.get(&attempt.request) {
            Some(handle) => Some(handle.on_disk.borrow().status_of(&self.site, attempt, asker)),
            None => (attempt.entry_point == self.site).then_some(AttemptStatus::Unknown),
        }
    }

    fn later_authorization(&self, request: &RequestId, authorization: &Authorization) -> Option<Arc<SignedText>> {
        self.get(request)?.snapshot.borrow().record.later_authorization(authorization)
    }

    fn is_arriving(&self, request: &RequestId) -> bool {
        self.arrivals.contains(request)
    }

    fn coordinates(&self, request: &RequestId) -> bool {
        self.is_arriving(request) || self.get(request).is_some()
    }

    fn hand_over(
        &self,
        request: &RequestId,
        to: &SiteId,
        authorization: Arc<Authorization>,
    ) -> Option<oneshot::Receiver<Option<SiteId>>> {
        let handle = self.get(request)?;
        let (on_disk, written) = oneshot::channel();
        match handle.commands.try_send(Command::HandOver { by: to.clone(), authorization, on_disk }) {
            // When too many commands wait, the sender is dropped here: no answer, and the other node asks again.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            // It has ended, and that is on disk; or its task has failed, and then there is no answer.
            Err(TrySendError::Closed(command)) => {
                let snapshot = handle.snapshot.borrow().clone();
                let has_ended = snapshot.is_history(self.clock.now().utc);
                if let Command::HandOver { by, on_disk, .. } = command
                    && has_ended
                {
                    let _ = on_disk.send(snapshot.record.former_coordinator(&by));
                }
            }
        }
        Some(written)
    }
}
