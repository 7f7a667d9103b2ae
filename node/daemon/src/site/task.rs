//! The site's side: one task feeds the ledger with what arrives from peers and from this node's own requests, and with
//! its timers.
//!
//! Invariant: outputs leave in the ledger's order, and none of them before the changes in front of it are on disk. What
//! arrives while a write is under way waits in a bounded queue and is then handled as one group with one write.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use broker::{
    ids::{HostId, Network, RequestId, SiteId},
    ledger::{
        BookingRecord, Charge, Event, FeedReport, HostLedger, Ledger, LocalWork, Output, QueueError, QueueOrder,
        QueuedJob, Record, ReplyToken, Unusable,
    },
    protocol::{AttemptId, AttemptStatus, LedgerVersion, ScheduleSnapshot, ScheduleUpdate, SiteAnswer, SiteRequest},
    tariff::Tariff,
    time::{Millis, Time},
    trust::{Authorization, SignedText},
};
use discovery::{Discovery, Inbound, InboundRequest, Responder, ScheduleSource};
use kolo_runtime::{clock::Clock, lock::locked, metrics::Metrics, span::of_message};
use kolo_seat::used::{self, Line, Reserved};
use kolo_storage::{Change, Store, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{Instrument as _, Span, debug, warn};

use super::{
    charges::Charges,
    promises::{News, Promises},
    usable::Usable,
};

/// Events that may wait for the ledger. A further sender waits (own requests) or gets "busy" (peers).
const QUEUE: usize = 1024;
/// Most events handled between two writes, and most bookings of one write where no single record has more: a write is of bounded size.
const GROUP: usize = 128;
/// How long a participant's inquiry waits for an answer; it is repeated by the ledger's own timer.
const INQUIRY_TIMEOUT: Millis = Millis(5_000);
/// How often ended reservations and the past are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(30);

/// What the node knows as a coordinator, for questions that reach its site.
pub trait Coordination: Send + Sync {
    /// What this node, as the coordinator of an attempt, answers `asker` about it; none when it does not coordinate the attempt.
    fn status_of(&self, attempt: &AttemptId, asker: &SiteId) -> Option<AttemptStatus>;

    /// The user's authorization by which this node coordinates the request, or has left it to another one, if that is of a
    /// later term than `authorization`.
    fn later_authorization(&self, request: &RequestId, authorization: &Authorization) -> Option<Arc<SignedText>>;

    /// Whether this node is about to coordinate a request.
    fn is_arriving(&self, request: &RequestId) -> bool;

    /// Whether this node coordinates a request, or is about to.
    fn coordinates(&self, request: &RequestId) -> bool;

    /// Leaves a request to the node `to`, whose site has found nothing against that. What is returned resolves when that is on
    /// disk, to the node that the request had been left to before; an answer before that could leave two coordinators after a
    /// crash. None: this node has nothing of the request.
    fn hand_over(
        &self,
        request: &RequestId,
        to: &SiteId,
        authorization: Arc<Authorization>,
    ) -> Option<oneshot::Receiver<Option<SiteId>>>;
}

/// Where an answer goes.
enum ReplyTo {
    Peer(Responder),
    Own(oneshot::Sender<SiteAnswer>),
}

impl ReplyTo {
    fn answer(self, answer: SiteAnswer) {
        match self {
            ReplyTo::Peer(responder) => responder.answer(answer),
            // The asker may have given up waiting.
            ReplyTo::Own(sender) => drop(sender.send(answer)),
        }
    }
}

/// What the requests of this node have to do with a question to its ledger.
enum Concern {
    /// Nothing.
    None,
    /// A site asks what became of an attempt.
    Inquiry(AttemptId),
    /// A node says that it coordinates a request now.
    TakeOver(RequestId, Arc<Authorization>),
    /// A node that may be about to coordinate a request asks what there is of it.
    Lookup(RequestId),
}

impl Concern {
    fn of(request: &SiteRequest) -> Concern {
        match request {
            SiteRequest::Inquire(attempt) => Concern::Inquiry(attempt.clone()),
            SiteRequest::TakeOver { attempt, authorization, .. } => {
                Concern::TakeOver(attempt.request.clone(), authorization.clone())
            }
            SiteRequest::Lookup(request) => Concern::Lookup(request.clone()),
            _ => Concern::None,
        }
    }
}

/// Who asked what, until the ledger has answered.
struct Asked {
    reply: ReplyTo,
    from: SiteId,
    /// The attempt that it is about, if it is about one.
    attempt: Option<AttemptId>,
    concern: Concern,
    /// Of the request that it is about.
    span: Span,
}

/// The request that a question is about, where it is about one.
fn request_of(request: &SiteRequest) -> Option<&RequestId> {
    match request {
        SiteRequest::Lookup(id) => Some(id),
        other => other.about().0.map(|attempt| &attempt.request),
    }
}

enum Message {
    Ask { from: SiteId, network: Option<Network>, request: SiteRequest, reply: ReplyTo },
    Local { work: LocalWork, reply: ReplyTo },
    Evict { request: RequestId, reply: ReplyTo },
    Unusable { unusable: Unusable, reply: ReplyTo },
    Feed { works: Vec<LocalWork>, queue: Vec<QueuedJob>, reply: oneshot::Sender<FeedReport> },
    Order { order: QueueOrder, reply: oneshot::Sender<Result<(), QueueError>> },
    Status(Event),
}

/// The ledger as other tasks read it.
#[derive(Clone)]
pub struct SharedLedger {
    ledger: Arc<Mutex<Ledger>>,
    clock: Clock,
    charges: Arc<Mutex<Charges>>,
    /// Reservations have changed; what waits for it is the owner's hook alone.
    changed: Arc<Notify>,
    /// The ledger has outputs that no event of the site's task has led to.
    touched: Arc<Notify>,
}

impl SharedLedger {
    /// Wraps the ledger of this node.
    pub fn new(ledger: Ledger, clock: Clock, charges: Vec<Charge>) -> SharedLedger {
        let charges = Arc::new(Mutex::new(Charges::new(charges)));
        SharedLedger {
            ledger: Arc::new(Mutex::new(ledger)),
            clock,
            charges,
            changed: Arc::default(),
            touched: Arc::default(),
        }
    }

    /// Puts other hosts, own work and another uplink into force.
    pub fn replace_hosts(&self, units: Vec<HostLedger>) {
        let now = self.clock.now();
        let misfits = self.lock().replace_hosts(now, units);
        warn_of(&misfits, now.utc);
        self.touched.notify_one();
    }

    /// Puts other tariffs into force for the hosts that are named.
    pub fn set_tariffs(&self, tariffs: BTreeMap<HostId, Arc<Tariff>>) {
        let now = self.clock.now();
        self.lock().set_tariffs(now, tariffs);
        self.touched.notify_one();
    }

    /// What bookings have cost that have ended, the newest last.
    pub fn charges(&self) -> MutexGuard<'_, Charges> {
        locked(&self.charges)
    }

    fn note_charge(&self, record: &Record) {
        let Record::Charge(charge) = record else { return };
        self.charges().push(charge.clone());
    }

    /// Waits until reservations have changed on disk since the last wait. One task waits at a time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Reads the ledger. Do not hold the guard across a wait.
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.ledger)
    }
}

/// Tells the owner of bookings that have lost hosts, or have begun and lack room.
pub fn warn_of(misfits: &[BookingRecord], now: Time) {
    for misfit in misfits {
        let request = &misfit.attempt.request;
        if misfit.window.start <= now {
            warn!(%request, "a reservation no longer fits what is on offer; it has begun and is kept");
        } else {
            warn!(%request, "a reservation no longer fits what is on offer; hosts of it are given back, and its coordinator learns of it");
        }
    }
}

impl ScheduleSource for SharedLedger {
    fn snapshot(&self) -> ScheduleSnapshot {
        let now = self.clock.now();
        self.lock().snapshot(now)
    }

    fn version(&self) -> LedgerVersion {
        self.lock().version()
    }
}

/// Asks this node's own ledger.
#[derive(Clone)]
pub struct OwnSite {
    site: SiteId,
    messages: mpsc::Sender<Message>,
}

impl OwnSite {
    /// Asks as the entry point of this node would ask any other site.
    pub async fn ask(&self, request: SiteRequest, timeout: Duration) -> Result<SiteAnswer, String> {
        let from = self.site.clone();
        self.send(|reply| Message::Ask { from, network: None, request, reply: ReplyTo::Own(reply) }, timeout).await
    }

    /// Enters the owner's own work.
    pub async fn enter(&self, work: LocalWork, timeout: Duration) -> Result<SiteAnswer, String> {
        self.send(|reply| Message::Local { work, reply: ReplyTo::Own(reply) }, timeout).await
    }

    /// Takes the site's hosts back from a request.
    pub async fn evict(&self, request: RequestId, timeout: Duration) -> Result<SiteAnswer, String> {
        self.send(|reply| Message::Evict { request, reply: ReplyTo::Own(reply) }, timeout).await
    }

    /// Takes seats away from hosts on which the hook has failed.
    pub async fn leave(&self, unusable: Unusable, timeout: Duration) -> Result<SiteAnswer, String> {
        self.send(|reply| Message::Unusable { unusable, reply: ReplyTo::Own(reply) }, timeout).await
    }

    /// Replaces the own work that the feed reported before by these `works`, and its jobs that wait by this `queue`.
    pub async fn feed(
        &self,
        (works, queue): (Vec<LocalWork>, Vec<QueuedJob>),
        timeout: Duration,
    ) -> Result<FeedReport, String> {
        self.send(|reply| Message::Feed { works, queue, reply }, timeout).await
    }

    /// Carries an order of the owner's own queue out.
    pub async fn order(&self, order: QueueOrder, timeout: Duration) -> Result<Result<(), QueueError>, String> {
        self.send(|reply| Message::Order { order, reply }, timeout).await
    }

    async fn send<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Message,
        timeout: Duration,
    ) -> Result<T, String> {
        let (reply, answer) = oneshot::channel();
        let message = message(reply);
        let stopped = || "this node is stopping".to_owned();
        let asking = async {
            self.messages.send(message).await.map_err(|_| stopped())?;
            answer.await.map_err(|_| stopped())
        };
        tokio::time::timeout(timeout, asking).await.map_err(|_| "no answer in time".to_owned())?
    }
}

pub struct SiteTask {
    ledger: SharedLedger,
    promises: Promises,
    /// Where it is written down what was reserved, if it is.
    used: Option<Arc<Path>>,
    clock: Clock,
    store: Store,
    discovery: Discovery,
    requests: Arc<dyn Coordination>,
    metrics: Arc<Metrics>,
    usable: Usable,
    sender: mpsc::Sender<Message>,
    messages: mpsc::Receiver<Message>,
    replies: BTreeMap<u64, Asked>,
    reports: BTreeMap<u64, oneshot::Sender<FeedReport>>,
    orders: BTreeMap<u64, oneshot::Sender<Result<(), QueueError>>>,
    next_token: u64,
}

/// Makes the handle first: requests need it, and the task needs the requests.
pub fn own_site(site: SiteId) -> (OwnSite, SiteQueue) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (OwnSite { site, messages: sender.clone() }, SiteQueue { sender, receiver })
}

/// The waiting end of [`OwnSite`].
pub struct SiteQueue {
    sender: mpsc::Sender<Message>,
    receiver: mpsc::Receiver<Message>,
}

impl SiteTask {
    /// Puts the task together.
    pub fn new(
        queue: SiteQueue,
        ledger: SharedLedger,
        clock: Clock,
        store: Store,
        discovery: Discovery,
        requests: Arc<dyn Coordination>,
        metrics: Arc<Metrics>,
    ) -> SiteTask {
        let promises = Promises::of(ledger.lock().of_users());
        SiteTask {
            ledger,
            promises,
            used: None,
            clock,
            store,
            discovery,
            requests,
            metrics,
            usable: Usable::default(),
            sender: queue.sender,
            messages: queue.receiver,
            replies: BTreeMap::new(),
            reports: BTreeMap::new(),
            orders: BTreeMap::new(),
            next_token: 0,
        }
    }

    /// Goes by what the owner's hook has made usable.
    #[must_use]
    pub fn with_usable(self, usable: Usable) -> SiteTask {
        SiteTask { usable, ..self }
    }

    /// Writes down in this directory what was reserved, once it is over.
    #[must_use]
    pub fn noting_use(self, used: Option<&Path>) -> SiteTask {
        SiteTask { used: used.map(Arc::from), ..self }
    }

    /// Runs until the disk fails; the caller stops it by dropping the future.
    ///
    /// # Errors
    /// [`StoreError`] when a promise cannot be written down.
    pub async fn run(mut self, mut inbound: Inbound) -> Result<(), StoreError> {
        let mut forget = tokio::time::interval(FORGET_EVERY);
        self.perform().await?;
        loop {
            let timeout = self.ledger.lock().poll_timeout();
            let wake = async {
                match timeout {
                    Some(at) => tokio::time::sleep_until(self.clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(message) = self.messages.recv() => self.feed(message),
                Some(request) = inbound.next() => self.feed_peer(request),
                () = self.ledger.touched.notified() => {}
                () = wake => {
                    let now = self.clock.now();
                    self.ledger.lock().handle_timeout(now);
                }
                _ = forget.tick() => {
                    let now = self.clock.now();
                    self.ledger.lock().forget_past(now);
                }
            }
            for _ in 0..GROUP {
                if let Ok(message) = self.messages.try_recv() {
                    self.feed(message);
                } else if let Some(request) = inbound.try_next() {
                    self.feed_peer(request);
                } else {
                    break;
                }
            }
            self.perform().await?;
        }
    }

    fn feed_peer(&mut self, inbound: InboundRequest) {
        let InboundRequest { from, network, request, reply } = inbound;
        self.feed(Message::Ask { from, network, request, reply: ReplyTo::Peer(reply) });
    }

    fn feed(&mut self, message: Message) {
        let event = match message {
            Message::Status(event) => event,
            Message::Local { work, reply } => Event::Local { token: self.own_token(reply), work },
            Message::Evict { request, reply } => Event::Evict { token: self.own_token(reply), request },
            Message::Unusable { unusable, reply } => Event::Unusable { token: self.own_token(reply), unusable },
            Message::Feed { works, queue, reply } => {
                self.next_token += 1;
                self.reports.insert(self.next_token, reply);
                Event::Feed { token: ReplyToken(self.next_token), works, queue }
            }
            Message::Order { order, reply } => {
                self.next_token += 1;
                self.orders.insert(self.next_token, reply);
                Event::Queue { token: ReplyToken(self.next_token), order }
            }
            Message::Ask { from, network, request, reply } => {
                if let Some(refusal) = self.refusal_of_takeover(&from, &request) {
                    return reply.answer(refusal);
                }
                if self.must_wait(&request) {
                    return;
                }
                self.next_token += 1;
                let span = request_of(&request).map_or(Span::none(), of_message);
                let (attempt, what) = request.about();
                let attempt = attempt.cloned();
                let number = attempt.as_ref().map(|attempt| attempt.attempt);
                span.in_scope(|| debug!(attempt = number, %from, what, "asked"));
                let concern = Concern::of(&request);
                self.replies.insert(self.next_token, Asked { reply, from: from.clone(), attempt, concern, span });
                Event::Request { from, network, token: ReplyToken(self.next_token), request }
            }
        };
        let now = self.clock.now();
        self.ledger.lock().handle(now, event);
    }

    /// The token of a question of this site's owner.
    fn own_token(&mut self, reply: ReplyTo) -> ReplyToken {
        self.next_token += 1;
        let from = self.discovery.site_id().clone();
        let asked = Asked { reply, from, attempt: None, concern: Concern::None, span: Span::none() };
        self.replies.insert(self.next_token, asked);
        ReplyToken(self.next_token)
    }

    /// What a node gets at once that wants to take over what this one coordinates by a later authorization of the user.
    fn refusal_of_takeover(&self, from: &SiteId, request: &SiteRequest) -> Option<SiteAnswer> {
        let SiteRequest::TakeOver { attempt, authorization, .. } = request else { return None };
        let later = self.requests.later_authorization(&attempt.request, authorization)?;
        self.ledger.lock().refusal_of_takeover(attempt, from, later)
    }

    /// Whether this node is itself about to coordinate what another one takes over: it cannot say yet which of the two is to. The
    /// other one gets no answer, and asks again.
    fn must_wait(&self, request: &SiteRequest) -> bool {
        matches!(request, SiteRequest::TakeOver { attempt, .. } if self.requests.is_arriving(&attempt.request))
    }

    /// Lets the ledger's outputs happen, writes first.
    async fn perform(&mut self) -> Result<(), StoreError> {
        let mut portions: Vec<Vec<Change>> = Vec::new();
        let mut weight = GROUP;
        let mut others = Vec::new();
        let (mut news, now) = (Vec::new(), self.clock.now().utc);
        loop {
            // The lock is not held while the output is looked at.
            let Some(output) = self.ledger.lock().poll_output() else { break };
            match output {
                Output::Persist(record) => {
                    news.extend(self.promises.note(&record, now));
                    self.ledger.note_charge(&record);
                    let more = record.put().len().max(1);
                    weight += more;
                    match portions.last_mut().filter(|_| weight <= GROUP) {
                        Some(portion) => portion.push(Change::Ledger(record)),
                        None => {
                            portions.push(vec![Change::Ledger(record)]);
                            weight = more;
                        }
                    }
                }
                other => others.push(other),
            }
        }
        if self.ledger.lock().has_jobs_to_move() {
            self.discovery.publish_quotes();
        }
        let has_changes = !portions.is_empty();
        for portion in portions {
            self.store.commit(portion).await?;
        }
        if has_changes {
            self.ledger.changed.notify_one();
        }
        news.iter().for_each(News::log);
        self.note_reserved(news.iter().filter_map(|news| news.reserved(now)).collect()).await;
        for output in others {
            match output {
                Output::Persist(_) => {}
                Output::Publish(parts) => {
                    let site = self.discovery.site_id().clone();
                    let update = ScheduleUpdate { site, from: parts.from, changes: parts.changes };
                    self.discovery.publish_changes(update);
                }
                Output::Reply { token, answer } => self.reply(token, answer),
                Output::Inquire { to, attempt, round } => self.inquire(to, attempt, round),
                Output::FeedApplied { token, report } => {
                    if let Some(reply) = self.reports.remove(&token.0) {
                        // The feed may have given up waiting.
                        let _ = reply.send(report);
                    }
                }
                Output::QueueChanged { token, result } => {
                    if let Some(reply) = self.orders.remove(&token.0) {
                        // The asker may have given up waiting.
                        let _ = reply.send(result);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes down what was reserved. It is no promise, so the node goes on without.
    async fn note_reserved(&self, over: Vec<Reserved>) {
        let Some(directory) = self.used.clone().filter(|_| !over.is_empty()) else { return };
        let lines = over.into_iter().map(Line::Reserved);
        let write = move || lines.map(|line| used::add(&directory, &line)).find_map(Result::err);
        if let Ok(Some(error)) = tokio::task::spawn_blocking(write).await {
            warn!(%error, "what was reserved is not written down");
        }
    }

    fn reply(&mut self, token: ReplyToken, mut answer: SiteAnswer) {
        let Some(Asked { reply, from, attempt, concern, span }) = self.replies.remove(&token.0) else { return };
        let _entered = span.clone().entered();
        self.usable.hide(attempt.as_ref(), &mut answer);
        match (&mut answer, concern) {
            (SiteAnswer::Status { decision, .. }, Concern::Inquiry(attempt)) => {
                *decision = self.requests.status_of(&attempt, &from);
            }
            (SiteAnswer::Found { .. }, Concern::Lookup(request)) => {
                answer.note_coordinated(|| self.requests.coordinates(&request));
            }
            (SiteAnswer::Booked { .. }, Concern::TakeOver(request, authorization)) => {
                let written = self.requests.hand_over(&request, &from, authorization);
                if let Some(written) = written {
                    let metrics = self.metrics.clone();
                    let give = async move {
                        // An error means that it is not on disk: the other node gets no answer, and asks again.
                        if let Ok(before) = written.await {
                            answer.name_former_coordinator(|| before);
                            metrics.answered(&answer);
                            debug!(?answer, "answered");
                            reply.answer(answer);
                        }
                    };
                    tokio::spawn(give.instrument(span));
                    return;
                }
            }
            _ => {}
        }
        self.metrics.answered(&answer);
        debug!(?answer, "answered");
        reply.answer(answer);
    }

    /// Asks what became of an attempt; the answer comes back as an event, no answer as none.
    fn inquire(&self, to: SiteId, attempt: AttemptId, round: u32) {
        if to == *self.discovery.site_id() {
            let decision = self.requests.status_of(&attempt, &to);
            // About its own attempts the ledger needs the decision only: it knows its own booking.
            let booking = AttemptStatus::Confirmed;
            let event = Event::StatusReceived { from: to, attempt, round, decision, booking };
            // A full queue loses the answer; the ledger asks again.
            let _ = self.sender.try_send(Message::Status(event));
            return;
        }
        let (discovery, sender) = (self.discovery.clone(), self.sender.clone());
        tokio::spawn(async move {
            let request = SiteRequest::Inquire(attempt.clone());
            if let Ok(SiteAnswer::Status { decision, booking }) = discovery.ask(&to, request, INQUIRY_TIMEOUT).await {
                let event = Event::StatusReceived { from: to, attempt, round, decision, booking };
                let _ = sender.send(Message::Status(event)).await;
            }
        });
    }
}
