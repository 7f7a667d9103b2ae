//! Activation: the owner's hook runs when reservations at this site come, begin, change and go, so that they become usable.
//!
//! One task looks at the ledger when it has changed and when a start or an end is due, and runs the hook. Where `start` fails on hosts of a
//! class it has the ledger try others. A reservation and
//! what lengthens it on the same hosts are one activation ([`parts`]). Invariant: that an
//! event is begun is on disk before its run, that it is over before the next run for the activation; so no event that is over
//! ever runs the hook again, and one that the end of the node has cut off runs it again with a higher `KOLO_RUN`. An activation
//! has one run at a time, all together at most [`RUNS_MAX`].

mod log;
mod message;
mod next;
mod parts;
pub mod process;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{
    ids::RequestId,
    ledger::{Booking, Ledger, Unusable},
    protocol::{AttemptId, Grant},
    time::{Span, Time},
};
use kolo_api::grid::FailedActivation;
use kolo_config::{ActivationSettings, NodeConfig};
use kolo_runtime::{
    clock::{Clock, unix_ms},
    lock::locked,
    metrics::Metrics,
    span::of_request,
};
use kolo_storage::{
    Change, Store, StoreError,
    activation::{ActivationEvent, ActivationRecord, Begun, Outcome, Stage, Terms},
};
use tokio::{
    task::{Id, JoinSet},
    time::Instant,
};
use tracing::{Instrument as _, info, warn};

use self::{
    log::HookLog,
    message::{booking_name, telling},
    next::{Next, next},
    parts::{Activation, Extent, activations},
    process::{Hook, Run},
};
use crate::site::{
    promises::base_named_by,
    task::{OwnSite, SharedLedger},
    usable::Usable,
};

/// Runs at the same time: a hook that hangs must not keep others waiting for long, and many must not fill the
/// machine.
const RUNS_MAX: usize = 16;
/// Least time between two looks at the whole ledger: reservations may come by the hundred.
const LOOKS_APART: Duration = Duration::from_millis(100);
/// Longest time between two looks: a clock may be set, and a machine may sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Wait before the first further run of an event that has failed; doubled each time.
const BACK_OFF: Duration = Duration::from_secs(1);
/// Longest such wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(60);
/// How long what lengthens a reservation waits for the rest of it: hosts that give different amounts take a request each.
const APART_WAIT: Duration = Duration::from_secs(10);
/// How long the ledger may take to give seats other hosts.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Events given up that are shown.
const GIVEN_UP_SHOWN: usize = 16;

/// What others see of the hook's work; clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Activations(Arc<Mutex<VecDeque<FailedActivation>>>);

impl Activations {
    /// The last events that were given up, oldest first.
    pub fn given_up(&self) -> Vec<FailedActivation> {
        locked(&self.0).iter().cloned().collect()
    }

    fn note(&self, record: &ActivationRecord) {
        let Some(given_up) = &record.given_up else { return };
        let shown = FailedActivation {
            booking: booking_name(&record.attempt),
            request: record.attempt.request.to_string(),
            event: given_up.event.name().to_owned(),
            at: given_up.at.0,
            why: given_up.why.clone(),
        };
        let mut list = locked(&self.0);
        if list.len() == GIVEN_UP_SHOWN {
            list.pop_front();
        }
        list.push_back(shown);
    }
}

/// What the task needs of the node.
pub struct Surroundings {
    pub ledger: SharedLedger,
    pub clock: Clock,
    /// Where records are kept.
    pub store: Store,
    /// Counts the runs.
    pub metrics: Arc<Metrics>,
    /// Shows what was given up.
    pub shown: Activations,
    /// Is asked for other hosts.
    pub own_site: OwnSite,
    /// Is told what is usable.
    pub usable: Usable,
}

pub struct Activator {
    around: Surroundings,
    hook: Arc<Hook>,
    log: HookLog,
    site: String,
    early: Span,
    tries: u32,
    records: BTreeMap<AttemptId, ActivationRecord>,
    /// Of bookings without a record that lengthen a request: which one.
    bases: BTreeMap<AttemptId, RequestId>,
    /// Since when parts wait for the rest.
    apart_since: BTreeMap<AttemptId, Instant>,
    /// Activations with a run under way, and its task.
    running: BTreeMap<AttemptId, Id>,
    /// When events that have failed are tried again.
    again_at: BTreeMap<AttemptId, Instant>,
    runs: JoinSet<(AttemptId, Run)>,
}

/// What there is to do at a look.
#[derive(Default)]
struct ToDo {
    /// Runs of the hook.
    due: Vec<Due>,
    /// Seats on hosts where `start` was given up.
    unusable: Vec<Unusable>,
    /// Records of no more use.
    forgotten: Vec<AttemptId>,
}

/// A run of the hook for an activation.
struct Due {
    attempt: AttemptId,
    event: ActivationEvent,
    /// The booking that it is named after.
    booking: Option<Booking>,
    /// What of it is reserved.
    terms: Option<Terms>,
}

impl Activator {
    /// Puts the task together with what the disk remembers; none when the owner has no hook.
    pub fn new(config: &NodeConfig, records: Vec<ActivationRecord>, around: Surroundings) -> Option<Activator> {
        let ActivationSettings { hook, timeout, tries, early, .. } = config.settings.activation.clone();
        if hook.0.is_empty() {
            return None;
        }
        records.iter().for_each(|record| around.shown.note(record));
        let usable = records.iter().filter(|record| is_usable(record)).map(|record| record.attempt.clone());
        around.usable.begin(usable.collect());
        Some(Activator {
            around,
            hook: Arc::new(Hook { command: hook.0, timeout, path: config.search_path.clone() }),
            log: HookLog::new(config.activation_log.clone()),
            site: config.name.clone(),
            early: early.unwrap_or(Span(0)),
            tries,
            records: records.into_iter().map(|record| (record.attempt.clone(), record)).collect(),
            bases: BTreeMap::new(),
            apart_since: BTreeMap::new(),
            running: BTreeMap::new(),
            again_at: BTreeMap::new(),
            runs: JoinSet::new(),
        })
    }

    /// Works until the disk fails; the caller stops it by dropping the future, which ends the runs.
    ///
    /// # Errors
    /// [`StoreError`] when an event cannot be written down.
    pub async fn run(mut self) -> Result<(), StoreError> {
        let mut looked = Instant::now();
        let mut look_at = looked;
        loop {
            tokio::select! {
                () = self.around.ledger.changed() => look_at = look_at.min(looked + LOOKS_APART),
                Some(ended) = self.runs.join_next() => {
                    let lost = |attempt| (attempt, Run::failed("its task was lost"));
                    let ended = ended.or_else(|error| self.run_of(error.id()).map(lost).ok_or(()));
                    if let Ok((attempt, run)) = ended {
                        let span = of_request(&attempt.request);
                        self.ended(attempt, run).instrument(span).await?;
                    }
                    look_at = look_at.min(looked + LOOKS_APART);
                }
                () = tokio::time::sleep_until(look_at) => {
                    looked = Instant::now();
                    look_at = self.look().await?;
                }
            }
        }
    }

    /// Begins what is due; the latest time of the next look.
    async fn look(&mut self) -> Result<Instant, StoreError> {
        let (ToDo { mut due, unusable, forgotten }, mut next_at) = self.due();
        for unusable in unusable {
            let attempt = unusable.attempt.clone();
            // What the ledger gives instead, or that it gives nothing, is on disk, and is looked at next.
            if let Err(why) = self.around.own_site.leave(unusable, LEAVE_TIMEOUT).await {
                warn!(request = %attempt.request, why, "the ledger has not given other hosts; it is asked again");
                self.again_at.insert(attempt, Instant::now() + BACK_OFF);
            }
            next_at = next_at.min(Instant::now() + BACK_OFF);
        }
        // What frees a host comes first.
        due.sort_by_key(|due| due.event);
        let mut changes: Vec<Change> = forgotten.iter().cloned().map(Change::ForgetActivation).collect();
        let mut tellings = Vec::new();
        for Due { attempt, event, booking, terms } in due.into_iter().take(RUNS_MAX.saturating_sub(self.running.len()))
        {
            let known = self.records.get(&attempt).cloned();
            let Some(mut record) = known.or_else(|| booking.as_ref().map(ActivationRecord::new)) else { continue };
            record.begin(event, terms);
            if let Some(telling) = telling(&record, &self.site) {
                changes.push(Change::Activation(Box::new(record.clone())));
                self.again_at.remove(&attempt);
                self.records.insert(attempt.clone(), record);
                tellings.push((attempt, telling));
            }
        }
        for attempt in &forgotten {
            self.records.remove(attempt);
            self.again_at.remove(attempt);
            self.around.usable.forget(attempt);
        }
        self.around.store.commit(changes).await?;
        for (attempt, telling) in tellings {
            let (hook, of) = (self.hook.clone(), attempt.clone());
            let span = of_request(&attempt.request);
            let run = async move { (of, hook.run(&telling.variables, &telling.document).await) };
            let task = self.runs.spawn(run.instrument(span));
            self.running.insert(attempt, task.id());
        }
        Ok(next_at)
    }

    /// The booking whose run a task is.
    fn run_of(&self, task: Id) -> Option<AttemptId> {
        self.running.iter().find(|(_, id)| **id == task).map(|(attempt, _)| attempt.clone())
    }

    /// What is to be done now, and when to look again.
    fn due(&mut self) -> (ToDo, Instant) {
        let (now, instant, now_ms) = (self.around.clock.now().utc, Instant::now(), unix_ms());
        let mut next_at = instant + LOOK_AGAIN;
        let mut to_do = ToDo::default();
        let shared = self.around.ledger.clone();
        let ledger = shared.lock();
        self.read_bases(&ledger);
        let all = activations(&self.records, reservations(&ledger), &self.bases, now);
        let apart: BTreeMap<AttemptId, Instant> = all
            .iter()
            .filter(|activation| activation.is_apart)
            .map(|Activation { attempt, .. }| {
                ((*attempt).clone(), self.apart_since.get(attempt).copied().unwrap_or(instant))
            })
            .collect();
        for Activation { attempt, record, booking, extent, .. } in all {
            if self.running.contains_key(attempt) {
                continue;
            }
            match next(record, extent, now, self.early) {
                Next::Wait(None) => {}
                Next::Wait(Some(at)) => next_at = next_at.min(instant + until(at, now_ms)),
                Next::Forget => to_do.forgotten.push(attempt.clone()),
                Next::Run(event) => {
                    // Its end does not wait for what has failed before.
                    let again_at = self.again_at.get(attempt).copied().filter(|_| is_again(record, event));
                    let starts_in = extent.map(|extent| until(extent.window.start - self.early, now_ms));
                    let apart_until = apart.get(attempt).map(|since| *since + APART_WAIT);
                    let joins_until = apart_until.map(|until| until.min(instant + starts_in.unwrap_or_default()));
                    match again_at.or(joins_until).filter(|at| *at > instant) {
                        Some(at) => next_at = next_at.min(at),
                        None => match unusable_hosts(record, extent, event, now) {
                            Some(unusable) => to_do.unusable.push(unusable),
                            None => to_do.due.push(Due {
                                attempt: attempt.clone(),
                                event,
                                booking: booking.cloned(),
                                terms: extent.map(Extent::terms),
                            }),
                        },
                    }
                }
            }
        }
        drop(ledger);
        self.apart_since = apart;
        (to_do, next_at)
    }

    /// Reads what bookings without a record lengthen, once each.
    fn read_bases(&mut self, ledger: &Ledger) {
        let mut before = std::mem::take(&mut self.bases);
        for booking in reservations(ledger).filter(|booking| !self.records.contains_key(&booking.attempt)) {
            let read = || base_named_by(booking.statement.as_ref()?);
            if let Some(base) = before.remove(&booking.attempt).or_else(read) {
                self.bases.insert(booking.attempt.clone(), base);
            }
        }
    }

    /// A run has ended: writes down how.
    async fn ended(&mut self, attempt: AttemptId, run: Run) -> Result<(), StoreError> {
        self.running.remove(&attempt);
        let Some(record) = self.records.get_mut(&attempt) else { return Ok(()) };
        let Some(Begun { event, runs: count, failures }) = record.begun.clone() else { return Ok(()) };
        let now = self.around.clock.now().utc;
        let (booking, request) = (booking_name(&attempt), &attempt.request);
        let (how, outcome) = match &run.outcome {
            Outcome::Done => ("done".to_owned(), "done"),
            Outcome::Failed(why) => (format!("failed: {why}"), "failed"),
        };
        let is_over = record.finish((run.outcome, &run.failed_hosts), now, self.tries);
        let leaves = outcome == "failed" && record.begun.as_ref().is_some_and(|begun| begun.failures == 0);
        if outcome == "done" {
            info!(booking, event = event.name(), run = count, "the hook has run");
        } else {
            let tried_again = !is_over;
            warn!(booking, event = event.name(), run = count, tried_again, how, "the hook has failed");
        }
        if (is_over || leaves) && outcome == "failed" {
            self.around.shown.note(record);
        }
        if !is_over && !leaves {
            let wait = BACK_OFF.saturating_mul(1 << failures.min(10)).min(BACK_OFF_MAX);
            self.again_at.insert(attempt.clone(), Instant::now() + wait);
        }
        let (change, is_usable) = (Change::Activation(Box::new(record.clone())), is_usable(record));
        let (log, what) =
            (self.log.clone(), format!("{} of {booking} (request {request}), run {count}: {how}", event.name()));
        let written = tokio::task::spawn_blocking(move || log.add(now, &what, &run.said)).await;
        if let Ok(Err(error)) = written {
            warn!(%error, log = %self.log.path().display(), "what the hook said is not kept");
        }
        self.around.store.commit(vec![change]).await?;
        if is_usable {
            self.around.usable.note(&attempt);
        }
        // What is counted is on disk: a run that was counted and lost in a crash would be repeated.
        self.around.metrics.activated(event.name(), outcome);
        if is_over && outcome == "failed" {
            self.around.metrics.activated(event.name(), "given_up");
        }
        Ok(())
    }
}

/// What the hook runs for: confirmed bookings of users. The owner's own work is none.
fn reservations(ledger: &Ledger) -> impl Iterator<Item = &Booking> {
    ledger.bookings().filter(|booking| !booking.is_held() && !ledger.is_local(&booking.attempt))
}

/// Whether the hook has made the hosts usable, as far as it ever will.
fn is_usable(record: &ActivationRecord) -> bool {
    matches!(record.stage, Stage::Started | Stage::Over)
}

/// The hosts that seats are to leave before `start` is run again; none when there are none.
fn unusable_hosts(
    record: Option<&ActivationRecord>,
    extent: Option<Extent<'_>>,
    event: ActivationEvent,
    now: Time,
) -> Option<Unusable> {
    let (record, extent) = record.filter(|_| event == ActivationEvent::Start).zip(extent)?;
    // A seat that has ended goes nowhere.
    let is_left = |grant: &&Grant| grant.window.end > now && record.failed.has(grant);
    let is_there = !extent.terms().is_lengthened() && extent.grants.iter().find(is_left).is_some();
    let (hosts, may_move) = (record.failed.hosts.clone(), record.failed.may_move());
    is_there.then(|| Unusable { attempt: record.attempt.clone(), hosts, may_move })
}

/// Whether `event` was begun before.
fn is_again(record: Option<&ActivationRecord>, event: ActivationEvent) -> bool {
    record.and_then(|record| record.begun.as_ref()).is_some_and(|begun| begun.event == event)
}

/// How long until `at` when the clock shows `now_ms` (Unix milliseconds).
fn until(at: Time, now_ms: u64) -> Duration {
    let at_ms = u64::try_from(at.0).unwrap_or(0).saturating_mul(1000);
    Duration::from_millis(at_ms.saturating_sub(now_ms))
}
