//! Tells the receiver that the node's operator has named what becomes of the requests of this node.
//!
//! One task hears which requests have changed, looks at them, and sends what is new. Invariants: a notice is on disk before it
//! goes out, and that it was taken or given up is on disk before the next one about the request; so what was taken never goes out again, and
//! one that the end of the node has cut off goes out again under its number. One notice a request is on its way, [`RUNS_MAX`] in all;
//! the others wait as what they are: a difference between what was told and what is so.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use broker::{
    ids::RequestId,
    time::{Span, Time},
};
use kolo_api::{
    notice::{Heard, Notice, NoticeEvent, Told, known_of, next, next_moment},
    request_view::RequestView,
};
use kolo_config::NodeConfig;
use kolo_storage::{Change, Store, StoreError, notice::NoticeRecord};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    task::{self, JoinSet},
    time::MissedTickBehavior,
};
use tracing::{info, warn};

use super::receiver::{Receiver, Telling};
use crate::api::{requests::view, state::ApiState};

/// Notices on their way at the same time.
const RUNS_MAX: usize = 16;
/// Longest time between two looks at what is due: a clock may be set, and a machine may sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Wait before a notice goes out again, in seconds; doubled each time.
const BACK_OFF_S: u64 = 1;
/// Longest such wait.
const BACK_OFF_MAX_S: u64 = 60;

/// What is known of one request.
struct Known {
    record: NoticeRecord,
    /// What people will have heard when what is on its way has come there.
    on_its_way: Option<Told>,
    /// What has failed goes out again then, and nothing before.
    not_before: Option<Time>,
}

/// The task.
pub struct Teller {
    state: Arc<ApiState>,
    store: Store,
    receiver: Receiver,
    tries: u32,
    changes: broadcast::Receiver<RequestId>,
    known: BTreeMap<RequestId, Known>,
    /// Requests to be looked at.
    due: BTreeSet<RequestId>,
    /// When others are.
    later: BTreeSet<(Time, RequestId)>,
    runs: JoinSet<Result<(), String>>,
    /// Whom the runs are about.
    requests: HashMap<task::Id, RequestId>,
}

impl Teller {
    /// Puts the task together with what the disk remembers; none when nobody is to be told.
    ///
    /// # Errors
    /// Why the receiver cannot be told.
    pub fn new(
        config: &NodeConfig,
        state: Arc<ApiState>,
        store: Store,
        records: Vec<NoticeRecord>,
    ) -> Result<Option<Teller>, String> {
        let Some(receiver) = Receiver::of(config)? else { return Ok(None) };
        let known = records.into_iter().map(|record| (record.request.clone(), Known::of(record))).collect();
        Ok(Some(Teller {
            changes: state.changes.follow(),
            state,
            store,
            receiver,
            tries: config.settings.notices.tries,
            known,
            due: BTreeSet::new(),
            later: BTreeSet::new(),
            runs: JoinSet::new(),
            requests: HashMap::new(),
        }))
    }

    /// Works until the disk fails; the caller stops it by dropping the future, which ends programs that are told.
    ///
    /// # Errors
    /// [`StoreError`] when a notice cannot be written down.
    pub async fn run(mut self) -> Result<(), StoreError> {
        self.begin().await?;
        let mut tidy = tokio::time::interval(LOOK_AGAIN);
        tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = self.now();
            let wait = self.later.first().map_or(LOOK_AGAIN, |(at, _)| Duration::from_secs(at.since(now).0));
            tokio::select! {
                change = self.changes.recv() => match change {
                    Ok(id) => {
                        self.due.insert(id);
                    }
                    Err(RecvError::Lagged(_)) => self.look_at_all(),
                    // The node has ended.
                    Err(RecvError::Closed) => std::future::pending().await,
                },
                Some(ended) = self.runs.join_next_with_id() => {
                    let (run, result) = ended.unwrap_or_else(|lost| (lost.id(), Err("its task was lost".to_owned())));
                    if let Some(request) = self.requests.remove(&run) {
                        self.ended(&request, result).await?;
                    }
                }
                _ = tidy.tick() => self.forget().await?,
                // A little later than the second that is waited for.
                () = tokio::time::sleep(wait.min(LOOK_AGAIN) + Duration::from_millis(20)) => {}
            }
            self.look().await?;
        }
    }

    fn now(&self) -> Time {
        self.state.coordinator.clock.now().utc
    }

    fn view(&self, id: &RequestId) -> Option<RequestView> {
        let handle = self.state.requests.get(id)?;
        let snapshot = handle.watch().borrow().clone();
        // What lengthens another request is a part of that one.
        let is_part = self.state.requests.base_of(&snapshot.record).is_some();
        (!is_part).then(|| view(&self.state, &snapshot))
    }

    fn look_at_all(&mut self) {
        let (all, _) = self.state.requests.page(None, usize::MAX, |_| true);
        let ids = all.into_iter().map(|snapshot| snapshot.record.id.clone());
        let is_open = |id: &RequestId| self.known.get(id).is_none_or(|known| known.record.told.heard != Heard::Over);
        self.due.extend(ids.filter(is_open));
    }

    /// What was there before anybody was told of it is no news.
    async fn begin(&mut self) -> Result<(), StoreError> {
        self.forget().await?;
        self.look_at_all();
        let now = self.now();
        let mut changes = Vec::new();
        for id in self.due.iter().filter(|id| !self.known.contains_key(*id)).cloned().collect::<Vec<_>>() {
            let Some(view) = self.view(&id) else { continue };
            let record = NoticeRecord::new(id.clone(), known_of(&view, now));
            if record.told.heard != Heard::Over {
                changes.push(Change::Notice(Box::new(record.clone())));
            }
            self.known.insert(id, Known::of(record));
        }
        self.store.commit(changes).await?;
        self.look().await
    }

    /// Forgets what the node has forgotten.
    async fn forget(&mut self) -> Result<(), StoreError> {
        let requests = &self.state.requests;
        let is_gone = |(id, known): &(&RequestId, &Known)| requests.get(id).is_none() && known.on_its_way.is_none();
        let gone: BTreeSet<RequestId> = self.known.iter().filter(is_gone).map(|(id, _)| id.clone()).collect();
        let on_disk = |id: &&RequestId| self.known.get(*id).is_some_and(|known| known.record.told.heard != Heard::Over);
        let changes: Vec<Change> = gone.iter().filter(on_disk).cloned().map(Change::ForgetNotice).collect();
        self.known.retain(|id, _| !gone.contains(id));
        if changes.is_empty() { Ok(()) } else { self.store.commit(changes).await }
    }

    /// Sends what is new of the requests that are due.
    async fn look(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            self.due.extend(self.later.pop_first().map(|(_, id)| id));
        }
        let (mut changes, mut tellings) = (Vec::new(), Vec::new());
        let places = RUNS_MAX.saturating_sub(self.runs.len());
        for id in std::mem::take(&mut self.due) {
            let is_new = !self.known.contains_key(&id);
            let has_place = tellings.len() < places;
            if !is_new && !has_place {
                // Looked at when there is a place: one is under way, and its end comes here.
                self.due.insert(id);
                continue;
            }
            let Some(view) = self.view(&id) else { continue };
            let new = || NoticeRecord::new(id.clone(), Told::default());
            let known = self.known.entry(id.clone()).or_insert_with(|| Known::of(new()));
            if !has_place {
                // On disk, so that it is news after a restart too.
                changes.push(Change::Notice(Box::new(known.record.clone())));
                self.due.insert(id);
                continue;
            }
            if known.on_its_way.is_some() || known.not_before.is_some_and(|at| at > now) {
                // What is on its way is followed by a look, and so is the wait.
                continue;
            }
            known.not_before = None;
            if let Some((event, told)) = next(&view, &known.record.told, now) {
                known.record.begin(event, &told);
                let run = known.record.begun.as_ref().map_or(1, |begun| begun.tries);
                tellings.push((id.clone(), Telling::from(&Notice::new(event, known.record.number, run, &view))));
                known.on_its_way = Some(told);
                changes.push(Change::Notice(Box::new(known.record.clone())));
            } else if is_new {
                changes.push(Change::Notice(Box::new(known.record.clone())));
            }
            self.later.extend(next_moment(&view, now).map(|at| (at, id)));
        }
        if !changes.is_empty() {
            self.store.commit(changes).await?;
        }
        for (id, telling) in tellings {
            let receiver = self.receiver.clone();
            let run = self.runs.spawn(async move { receiver.tell(telling).await });
            self.requests.insert(run.id(), id);
        }
        Ok(())
    }

    /// A notice was taken, or not: writes down which.
    async fn ended(&mut self, request: &RequestId, result: Result<(), String>) -> Result<(), StoreError> {
        let now = self.now();
        self.due.insert(request.clone());
        let Some(known) = self.known.get_mut(request) else { return Ok(()) };
        let Some(told) = known.on_its_way.take() else { return Ok(()) };
        let (event, runs) =
            known.record.begun.as_ref().map_or((NoticeEvent::Failed, 1), |begun| (begun.event, begun.tries));
        let (number, event) = (known.record.number, event.name());
        if let Err(why) = &result {
            let tried_again = runs <= self.tries;
            warn!(%request, event, number, run = runs, tried_again, why, "a notice was not taken");
            if tried_again {
                let wait = (BACK_OFF_S << (runs - 1).min(10)).min(BACK_OFF_MAX_S);
                known.not_before = Some(now + Span(wait));
                self.later.insert((now + Span(wait), request.clone()));
                return Ok(());
            }
        }
        known.record.finish(told);
        let change = match known.record.told.heard {
            Heard::Over => Change::ForgetNotice(request.clone()),
            _ => Change::Notice(Box::new(known.record.clone())),
        };
        self.store.commit(vec![change]).await?;
        let outcome = if result.is_ok() { "taken" } else { "given_up" };
        self.state.metrics.noticed(outcome);
        info!(%request, event, number, run = runs, outcome, "a notice is over");
        Ok(())
    }
}

impl Known {
    fn of(record: NoticeRecord) -> Known {
        Known { record, on_its_way: None, not_before: None }
    }
}
