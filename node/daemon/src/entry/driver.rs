//! One task a request: feeds its negotiation with answers and timers, and does what it wants done.
//!
//! Invariant: a record is on disk before any later output leaves; the status that participants get changes after the write
//! and before the messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, ready},
    sync::Arc,
    time::Instant,
};

use broker::{
    demand::Demand,
    ids::SiteId,
    needs::Lack,
    negotiation::{Event, Excluded, Found, Negotiation, Output, RequestRecord},
    phases::{Phase, PhaseStopwatch},
    protocol::{SiteAnswer, SiteRequest, Standing},
    reason::CutCounts,
    time::{Millis, Now, Time},
    trust::Authorization,
};
use discovery::{
    Constraint, Discovery, Query,
    config::{FIND_TIMEOUT, SILENCE_REMEMBERED},
    identity::key_of_site,
};
use futures::{StreamExt as _, stream};
use kolo_runtime::{
    clock::{Clock, duration},
    span::of_request,
};
use kolo_storage::{Change, Store, StoreError};
use kolo_text::needs::{feature_text, lack_text, refused_text};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{Instrument as _, debug, error, info};

use crate::{
    entry::{
        lacks::lack_of,
        planning::Planning,
        request::{Command, RequestHandle, ShownStage, Snapshot, SubmitError},
        requests::Requests,
    },
    site::task::OwnSite,
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

/// Most callers who wait for one check of a reservation.
const CHECKS_AWAITED_MAX: usize = 64;

/// How long a site may take to say what it leaves to a user, and how many are asked at a time.
const STANDING_TIMEOUT: Millis = Millis(1_000);
const STANDINGS_AT_ONCE: usize = 32;

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
    end: EndByBothClocks,
    checks: Checks,
}

/// Those who wait for a check of the reservation that begins after they have asked.
#[derive(Debug, Default)]
struct Checks {
    is_wanted: bool,
    /// For the next check, at most [`CHECKS_AWAITED_MAX`]; a further one is answered at once.
    next: Vec<oneshot::Sender<()>>,
    /// For the present one.
    present: Vec<oneshot::Sender<()>>,
}

impl Checks {
    fn want(&mut self, waiting: Option<oneshot::Sender<()>>) {
        self.is_wanted = true;
        self.next.retain(|waiting| !waiting.is_closed());
        if self.next.len() < CHECKS_AWAITED_MAX {
            self.next.extend(waiting);
        }
    }

    /// No check is under way: tells those who have waited for it. Whether another is to begin.
    fn end_and_begin(&mut self) -> bool {
        for waiting in self.present.drain(..) {
            // Who asked may have stopped waiting.
            let _ = waiting.send(());
        }
        self.present = std::mem::take(&mut self.next);
        std::mem::take(&mut self.is_wanted)
    }
}

/// The end of a reservation by both clocks: the wall clock of a machine may be ahead for a while, and until the other one agrees nothing
/// counts as over that people would have to be told of.
#[derive(Debug, Default)]
struct EndByBothClocks {
    utc: Option<Time>,
    monotonic: Option<Millis>,
}

impl EndByBothClocks {
    /// Takes the end as it is known now; where that is news, the other clock is so far from it as the wall clock says.
    fn note(&mut self, end: Option<Time>, now: Now) {
        if self.utc != end {
            let far = |end: Time| now.monotonic + Millis(end.since(now.utc).0.saturating_mul(1000));
            *self = EndByBothClocks { utc: end, monotonic: end.map(far) };
        }
    }

    fn is_past(&self, now: Now) -> bool {
        self.monotonic.is_none_or(|end| end <= now.monotonic)
    }

    /// Whether both clocks say so, up to a second: the wall clock tells whole ones only.
    fn is_told(&self, now: Now) -> bool {
        self.utc.is_some_and(|end| end <= now.utc)
            && self.is_past(Now { monotonic: now.monotonic + Millis(1_000), ..now })
    }
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
        end: EndByBothClocks::default(),
        checks: Checks::default(),
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
            if !self.negotiation.is_checking() && self.checks.end_and_begin() {
                self.feed(Event::Check).await;
                continue;
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
                    Command::Cancel(None) if self.has_ended() => {}
                    Command::Cancel(None) => self.feed(Event::Cancel).await,
                    Command::Cancel(Some(exit_code)) => self.feed(Event::GiveBack(exit_code)).await,
                    Command::Check(waiting) => self.checks.want(waiting),
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
        let is_history = is_history && self.end.is_past(now);
        is_history && self.negotiation.is_quiet() && !self.negotiation.may_have_waited(now) && self.events.is_empty()
    }

    /// Whether its reservation has ended, as people are told by now, and has not begun later than its site had confirmed.
    fn has_ended(&self) -> bool {
        let now = self.coordinator.clock.now();
        self.end.is_told(now) && !self.negotiation.may_have_waited(now)
    }

    /// When the task must wake at the latest: for the negotiation, or for the end of the reservation that is to come.
    fn wakes_at(&self) -> Option<Millis> {
        let now = self.coordinator.clock.now();
        let end = self.handle.snapshot.borrow().ends_at().filter(|end| *end > now.utc);
        let end = end.map(|end| now.monotonic + Millis(end.since(now.utc).0.saturating_mul(1000)));
        let by_other_clock = self.end.monotonic.filter(|end| *end > now.monotonic);
        [self.negotiation.poll_timeout(), end, by_other_clock].into_iter().flatten().min()
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
                let authorization = self.negotiation.record().authorization.clone();
                let look = async move {
                    let started = Instant::now();
                    let mut found = coordinator.find(&demand, (count, enough), seed, exclude, ask_after).await;
                    if let Some(authorization) = authorization {
                        coordinator.ask_standings(&mut found, authorization).await;
                    }
                    metrics.phase(Phase::Find, started.elapsed().as_secs_f64());
                    let _ = sender.send(Event::Found(found)).await;
                };
                tokio::spawn(look.in_current_span());
            }
            Output::Ask { site, attempt, purpose, request, timeout } => {
                let (coordinator, sender) = (self.coordinator.clone(), self.sender.clone());
                let needs = self.negotiation.wanted().needs().clone();
                let ask = async move {
                    let answer = coordinator.ask(&site, request, timeout).await;
                    if let Some(lack) = lack_of(&answer, &needs) {
                        coordinator.discovery.note_refusal(&site, lack);
                    }
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
        self.end.note(snapshot.ends_at(), self.coordinator.clock.now());
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

    /// Asks the sites of these hosts that say that they have rules about users what these leave to the user who has signed this: in
    /// parallel, each once. Of one that does not answer in time nothing is known, and it decides of holds all the same.
    pub async fn ask_standings(&self, found: &mut Found, authorization: Authorization) {
        let asking = found.hosts.iter().filter(|host| host.offer.asks).map(|host| host.site.clone());
        let standings = self.standings_at(asking.collect(), authorization).await;
        for host in &mut found.hosts {
            host.standing = standings.get(&host.site).cloned();
        }
    }

    /// What the rules about users of these sites leave to the user who has signed this, of those that have answered in time.
    pub async fn standings_at(
        &self,
        sites: BTreeSet<SiteId>,
        authorization: Authorization,
    ) -> BTreeMap<SiteId, Arc<Standing>> {
        let authorization = Arc::new(authorization);
        let ask = |site: SiteId| {
            let question = SiteRequest::Standing(authorization.clone());
            async move {
                match self.ask(&site, question, STANDING_TIMEOUT).await {
                    Ok(SiteAnswer::Standing(standing)) => Some((site, Arc::new(*standing))),
                    _ => None,
                }
            }
        };
        let answers = stream::iter(sites).map(ask).buffer_unordered(STANDINGS_AT_ONCE).filter_map(ready);
        answers.collect().await
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

/// Names of images in a reason.
const IMAGES_SHOWN: usize = 8;

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
    let is_of_image = |(constraint, _): &(Constraint, usize)| {
        matches!(constraint, Constraint::Allows(Lack::WithoutImage | Lack::Image(_)))
    };
    let shown = if found.cut.iter().any(is_of_image) { IMAGES_SHOWN } else { 0 };
    let images = discovery.view().image_names(shown);
    for (constraint, hosts) in found.cut {
        match constraint {
            // Sites that this request leaves out are reported with the attempts that they failed in.
            Constraint::NotExcluded => {}
            Constraint::Feature(feature) => cut.add_of_sites(feature_text(&feature), hosts as u64),
            Constraint::Allows(lack) => cut.add_of_sites(lack_text(&lack, &images), hosts as u64),
            Constraint::KeepsWord(lack) => cut.add_of_sites(refused_text(&lack), hosts as u64),
            Constraint::Need(unmet) => cut.add(unmet, hosts as u64),
        }
    }
    let sites: BTreeSet<&SiteId> = found.hosts.iter().map(|host| &host.site).collect();
    let uplinks = discovery.view().uplinks(sites.iter().copied().filter(|_| demand.traffic().is_some()));
    let quoting = discovery.view().quoting(sites);
    let discovery::Found { hosts, known_hosts, without_schedule, left_out, .. } = found;
    Found { hosts, uplinks, quoting, known_hosts, without_schedule, left_out, cut, denied: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_was_ahead_ends_nothing() {
        let now = |monotonic, utc| Now { monotonic: Millis(monotonic), utc: Time(utc) };
        let mut end = EndByBothClocks::default();
        assert!(end.is_past(now(0, 100)), "what has no reservation waits for none");
        end.note(Some(Time(160)), now(5_000, 100));
        assert!(!end.is_past(now(6_000, 90_000)), "only the wall clock has jumped");
        end.note(Some(Time(160)), now(7_000, 90_001));
        assert!(!end.is_past(now(64_999, 160)) && end.is_past(now(65_000, 160)));
        end.note(Some(Time(220)), now(60_000, 155));
        assert!(!end.is_past(now(124_999, 220)) && end.is_past(now(125_000, 220)), "it was lengthened");
        end.note(Some(Time(300)), now(130_500, 240));
        assert!(!end.is_told(now(189_499, 300)) && end.is_told(now(189_500, 300)), "a part of a second is lost");
        assert!(!end.is_told(now(189_500, 299)) && !end.is_told(now(130_600, 90_000)));
        end.note(None, now(61_000, 156));
        assert!(end.is_past(now(61_000, 156)), "it was given back");
    }
}
