//! One task a request: feeds its negotiation with answers and timers, and does what it wants done.
//!
//! Invariant: a record is on disk before any later output leaves; the status that participants get changes after the write
//! and before the messages.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Instant};

use broker::{
    demand::Demand,
    ids::SiteId,
    negotiation::{Event, Excluded, Found, Negotiation, Output, RequestRecord},
    phases::{Phase, PhaseStopwatch},
    protocol::SiteRequest,
    reason::CutCounts,
    time::{Millis, Now},
};
use discovery::{
    Constraint, Discovery, Query,
    config::{FIND_TIMEOUT, SILENCE_REMEMBERED},
    identity::key_of_site,
};
use tokio::sync::{mpsc, watch};
use tracing::{Instrument as _, debug, error, info};

use crate::{
    entry::{
        planning::Planning,
        request::{Command, RequestHandle, ShownStage, Snapshot, SubmitError},
        requests::Requests,
    },
    runtime::{
        clock::{Clock, duration},
        span::of_request,
    },
    site::task::OwnSite,
    storage::{Change, Store, StoreError},
};

/// Answers that may wait for the negotiation; a further asking task waits for a place.
const QUEUE: usize = 256;
/// Wishes of the user that may wait; further ones are dropped, since they would say the same.
const COMMANDS: usize = 4;
/// A schedule learnt longer ago than this is fetched again before planning.
pub const MAX_SCHEDULE_AGE: Millis = discovery::config::SCHEDULE_AGE_MAX;
/// The same for a request that has met a conflict: what it knew was too old, so it asks the sites what is so now, rather
/// than running into the next change that it has not received.
const MAX_SCHEDULE_AGE_AFTER_CONFLICT: Millis = discovery::config::SCHEDULE_AGE_MAX_AFTER_CONFLICT;

/// What the tasks that coordinate requests share.
#[derive(Clone)]
pub struct Coordinator {
    pub discovery: Discovery,
    /// The name of the grid.
    pub grid: String,
    /// This node's own ledger.
    pub own_site: OwnSite,
    pub store: Store,
    pub clock: Clock,
    pub planning: Planning,
    /// Gets the reason when the disk has failed.
    pub failed: mpsc::Sender<String>,
}

struct Task {
    requests: Arc<Requests>,
    coordinator: Coordinator,
    negotiation: Negotiation,
    handle: Arc<RequestHandle>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
    commands: mpsc::Receiver<Command>,
    is_active: bool,
}

/// Makes the task of a request that was counted as under way, and the handle that others see.
pub fn start(
    requests: Arc<Requests>,
    coordinator: &Coordinator,
    record: RequestRecord,
    is_resumed: bool,
    seed: u64,
    now: Now,
) -> (Arc<RequestHandle>, impl Future<Output = ()> + Send + 'static) {
    let entry_point = coordinator.discovery.site_id().clone();
    let settings = requests.settings().clone();
    let on_disk = Arc::new(record.clone());
    let mut negotiation = Negotiation::new(entry_point, settings, record, is_resumed, seed, now);
    negotiation.check_receipts(coordinator.grid.clone(), key_of_site);
    let (sender_of_commands, commands) = mpsc::channel(COMMANDS);
    let (sender, events) = mpsc::channel(QUEUE);
    let handle = Arc::new(RequestHandle {
        snapshot: watch::Sender::new(snapshot_of(&negotiation, 1)),
        commands: sender_of_commands,
        on_disk: watch::Sender::new(on_disk),
    });
    // What was decided before a restart, or elsewhere, is not decided again.
    let is_active = handle.snapshot.borrow().stage.is_under_way();
    if !is_active {
        requests.finished();
    }
    let task = Task {
        requests,
        coordinator: coordinator.clone(),
        negotiation,
        handle: handle.clone(),
        events,
        sender,
        commands,
        is_active,
    };
    let span = of_request(&task.negotiation.record().id);
    (handle, task.run().instrument(span))
}

fn snapshot_of(negotiation: &Negotiation, revision: u64) -> Snapshot {
    let record = Arc::new(negotiation.record().clone());
    Snapshot { revision, stage: negotiation.stage().into(), member: negotiation.member(), record }
}

impl Task {
    async fn run(mut self) {
        if let Err(error) = self.coordinate().await {
            error!(%error, "the request cannot go on");
            let _ = self.coordinator.failed.try_send(error);
        }
        if self.is_active {
            self.requests.finished();
        }
    }

    async fn coordinate(&mut self) -> Result<(), String> {
        loop {
            self.perform().await?;
            self.show();
            if self.is_over() {
                return Ok(());
            }
            let timeout = self.wakes_at();
            let clock = self.coordinator.clock;
            let wake = async {
                match timeout {
                    Some(at) => tokio::time::sleep_until(clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(event) = self.events.recv() => self.feed(event).await,
                Some(command) = self.commands.recv() => match command {
                    Command::Cancel => self.feed(Event::Cancel).await,
                    Command::Check => self.feed(Event::Check).await,
                    Command::Batch(event) => self.feed(event).await,
                    Command::HandOver { by, authorization, on_disk } => {
                        self.feed(Event::TakenOver { by: by.clone(), authorization }).await;
                        self.perform().await?;
                        // Who asked may have stopped waiting.
                        let _ = on_disk.send(self.negotiation.record().former_coordinator(&by));
                    }
                },
                () = wake => {
                    let (hosts, negotiation) = (self.negotiation.hosts_planned_on(), &mut self.negotiation);
                    self.coordinator.planning.run(hosts, || negotiation.handle_timeout(clock.now())).await;
                }
            }
        }
    }

    async fn feed(&mut self, event: Event) {
        let clock = self.coordinator.clock;
        let negotiation = &mut self.negotiation;
        let hosts = match &event {
            Event::Found(found) => found.hosts.len(),
            _ => negotiation.hosts_planned_on(),
        };
        let started = Instant::now();
        let mut stopwatch = PhaseStopwatch::new(|| started.elapsed());
        self.coordinator.planning.run(hosts, || negotiation.handle(clock.now(), event, &mut stopwatch)).await;
        let taken = stopwatch.stop();
        self.requests.metrics().phases(taken);
    }

    /// Requests that have ended need no task. A reservation does until its end, because it may be cancelled, and until it is known that it
    /// has not begun later.
    fn is_over(&self) -> bool {
        let now = self.coordinator.clock.now();
        let is_history = self.handle.snapshot.borrow().is_history(now.utc);
        is_history && self.negotiation.is_quiet() && !self.negotiation.may_have_waited(now) && self.events.is_empty()
    }

    /// When the task must wake at the latest: for the negotiation, or for the end of the reservation that is to come.
    fn wakes_at(&self) -> Option<Millis> {
        let now = self.coordinator.clock.now();
        let end = self.handle.snapshot.borrow().ends_at().filter(|end| *end > now.utc);
        let end = end.map(|end| now.monotonic + Millis(end.since(now.utc).0.saturating_mul(1000)));
        [self.negotiation.poll_timeout(), end].into_iter().flatten().min()
    }

    /// Lets the outputs happen in order.
    async fn perform(&mut self) -> Result<(), String> {
        while let Some(output) = self.negotiation.poll_output() {
            self.let_out(output).await?;
        }
        Ok(())
    }

    async fn let_out(&mut self, output: Output) -> Result<(), String> {
        match output {
            Output::Persist(record) => {
                let on_disk = Arc::new((*record).clone());
                let change = Change::Request(record);
                self.coordinator.store.commit(vec![change]).await.map_err(|error| error.to_string())?;
                self.handle.on_disk.send_replace(on_disk);
            }
            Output::Find { count, enough, seed, exclude } => {
                // People see "planning" while discovery looks.
                self.show();
                let demand = self.negotiation.wanted().clone();
                let (coordinator, sender) = (self.coordinator.clone(), self.sender.clone());
                let has_met_conflict = self.negotiation.record().history.conflicts > 0;
                let ask_after = if has_met_conflict { MAX_SCHEDULE_AGE_AFTER_CONFLICT } else { MAX_SCHEDULE_AGE };
                let metrics = self.requests.metrics().clone();
                let look = async move {
                    let started = Instant::now();
                    let found = coordinator.find(&demand, (count, enough), seed, exclude, ask_after).await;
                    metrics.phase(Phase::Find, started.elapsed().as_secs_f64());
                    let _ = sender.send(Event::Found(found)).await;
                };
                tokio::spawn(look.in_current_span());
            }
            Output::Ask { site, attempt, purpose, request, timeout } => {
                let (coordinator, sender) = (self.coordinator.clone(), self.sender.clone());
                let ask = async move {
                    let answer = coordinator.ask(&site, request, timeout).await;
                    debug!(%site, attempt, ?purpose, ?answer, "answered");
                    let _ = sender.send(Event::Answer { site, attempt, purpose, answer }).await;
                };
                tokio::spawn(ask.in_current_span());
            }
        }
        Ok(())
    }

    fn show(&mut self) {
        let revision = self.handle.snapshot.borrow().revision + 1;
        let snapshot = snapshot_of(&self.negotiation, revision);
        if self.is_active && !snapshot.stage.is_under_way() {
            self.is_active = false;
            self.requests.finished();
            let (outcome, record) = (snapshot.stage.outcome(), &snapshot.record);
            self.requests.metrics().decided(outcome, record.elapsed_ms, &record.history);
            let state = match &snapshot.stage {
                ShownStage::Closed { .. } => "closed",
                _ => "confirmed",
            };
            let (tries, elapsed_ms) = (record.history.attempts.len(), record.elapsed_ms);
            info!(state, tries, elapsed_ms, "decided");
        }
        let id = snapshot.record.id.clone();
        self.handle.snapshot.send_replace(snapshot);
        self.requests.changed(&id, revision);
    }
}

impl Coordinator {
    /// Stops the node, because the disk has failed; returns the error for the user.
    pub fn stop_node(&self, error: StoreError) -> SubmitError {
        // A full channel means that the node is stopping for this reason already.
        let _ = self.failed.try_send(error.to_string());
        error.into()
    }

    /// Asks a site, or this node's own ledger.
    pub(super) async fn ask(
        &self,
        site: &SiteId,
        request: SiteRequest,
        timeout: Millis,
    ) -> Result<broker::protocol::SiteAnswer, String> {
        if site == self.discovery.site_id() {
            return self.own_site.ask(request, duration(timeout)).await;
        }
        self.discovery.ask(site, request, timeout).await.map_err(|error| error.to_string())
    }

    /// Phase I, without sites that have not answered lately as long as there are enough others.
    async fn find(
        &self,
        demand: &Demand,
        (count, enough): (usize, usize),
        seed: u64,
        exclude: Excluded,
        ask_after: Millis,
    ) -> Found {
        let silent = self.discovery.silent_sites(SILENCE_REMEMBERED);
        if !silent.is_subset(&exclude.sites) {
            let sites = exclude.sites.union(&silent).cloned().collect();
            let without = Excluded { sites, ..exclude.clone() };
            let found = find(&self.discovery, demand, (count, enough), seed, without, ask_after).await;
            if found.hosts.len() >= enough {
                return found;
            }
        }
        find(&self.discovery, demand, (count, enough), seed, exclude, ask_after).await
    }
}

/// Phase I through discovery, in the planner's words. Some of the hosts whose schedules were confirmed longer ago than `ask_after` are
/// asked.
pub async fn find(
    discovery: &Discovery,
    demand: &Demand,
    (count, enough): (usize, usize),
    seed: u64,
    exclude: Excluded,
    ask_after: Millis,
) -> Found {
    let (demand, max_schedule_age, timeout) = (demand.clone(), MAX_SCHEDULE_AGE, FIND_TIMEOUT);
    let query = Query { count, enough, demand, max_schedule_age, ask_after, timeout, exclude };
    let demand = query.demand.clone();
    let found = discovery.find(query, seed).await;
    let mut cut = CutCounts::default();
    for (constraint, hosts) in found.cut {
        // Sites that this request leaves out are reported with the attempts that they failed in.
        if let Constraint::Need(unmet) = constraint {
            cut.add(unmet, hosts as u64);
        }
    }
    let sites: BTreeSet<&SiteId> = found.hosts.iter().map(|host| &host.site).collect();
    let uplinks = discovery.view().uplinks(sites.iter().copied().filter(|_| demand.traffic().is_some()));
    let quoting = discovery.view().quoting(sites);
    let discovery::Found { hosts, known_hosts, without_schedule, left_out, .. } = found;
    Found { hosts, uplinks, quoting, known_hosts, without_schedule, left_out, cut }
}
