//! The handle that the node holds: ask, fetch, publish, look.
//!
//! Invariant: no call here waits for the swarm task except for an answer that was asked for, and then at most for the
//! time the caller gave. When the swarm task has no room, the caller is told so at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use broker::{
    host::Host,
    ids::SiteId,
    protocol::{ScheduleUpdate, SiteAnswer, SiteRequest},
    time::Millis,
};
use libp2p::{Multiaddr, PeerId, kad::RecordKey};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
    time,
};

use crate::{
    check::{self, Invalid, check_snapshot, check_version},
    codec::{WireAnswer, WireRequest},
    conduct::{Ban, Offence},
    counters::Counter,
    find::{Found, Query, Searches},
    identity::peer_of_site,
    inbound::{InboundQueue, ScheduleServer},
    index,
    membership::Badge,
    offsets::ClockOffset,
    outbox::Offer,
    reach::{self, Reach},
    shared::Shared,
    swarm_task::{AskCommand, Command},
    view::SharedView,
    wire,
};

/// Why a direct request brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The site's name is not a peer id, so it cannot be asked.
    #[error("{0} is not a site of a live grid")]
    NotASite(SiteId),
    /// No connection could be made: the request did not arrive.
    #[error("the site cannot be reached")]
    Unreachable,
    /// No answer in time; whether the request arrived is not known.
    #[error("the site did not answer in time")]
    TimedOut,
    /// The connection broke; whether the request arrived is not known.
    #[error("the connection broke before the answer")]
    Interrupted,
    /// Too much is going on, here or there: the request was not worked on.
    #[error("too many requests are open")]
    Busy,
    /// The site answered, but not what was asked, or not in this protocol.
    #[error("the site does not keep to the protocol: {0}")]
    Protocol(String),
    /// Discovery has been shut down.
    #[error("discovery has stopped")]
    Stopped,
}

/// Why an offer cannot be published: it breaks a limit that every receiver checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A name, number or amount is beyond its limit.
    #[error("the offer breaks a limit: {0}")]
    Invalid(#[from] Invalid),
    /// All hosts together are too large for one advert.
    #[error("the offer is larger than {} bytes when encoded", crate::wire::ADVERT_BYTES_MAX)]
    TooLarge,
}

/// How the peer-to-peer layer is doing.
#[derive(Debug, Clone)]
pub struct Status {
    /// Sites with an open connection.
    pub connected: Vec<SiteId>,
    /// Sites in the view, this one included.
    pub known_sites: usize,
    /// Hosts in the view.
    pub known_hosts: usize,
    /// Peers that are banned at present.
    pub bans: Vec<BannedPeer>,
    /// The clocks of other sites beside this machine's; none when no site was heard of lately.
    pub clock: Option<ClockOffset>,
    /// What others say this node's address is, most of them first.
    pub seen_as: Vec<IpAddr>,
    /// Everything counted since the start.
    pub counters: BTreeMap<&'static str, u64>,
    /// Addresses of other nodes, worth keeping over a restart as `known_peers`.
    pub addresses_worth_remembering: Vec<Multiaddr>,
}

/// A peer that behaved badly, whose connections are refused for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BannedPeer {
    /// Who.
    pub site: SiteId,
    /// How long the ban still lasts.
    pub remaining: Millis,
    /// What it did, in words.
    pub why: &'static str,
    /// How often it was banned, this time included.
    pub times: u32,
}

/// The peer-to-peer layer of a node. Cheap to clone; when the last clone goes, everything stops, without a farewell.
#[derive(Clone)]
pub struct Discovery {
    core: Core,
    _tasks: Arc<Tasks>,
}

/// Stops the tasks of a node when it goes.
pub(crate) struct Tasks(pub(crate) Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Discovery {
    pub(crate) fn new(core: Core, tasks: Tasks) -> Discovery {
        Discovery { core, _tasks: Arc::new(tasks) }
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// This node's site.
    #[must_use]
    pub fn site_id(&self) -> &SiteId {
        self.core.shared.site()
    }

    /// The addresses at which others can dial this node, each with its peer id.
    #[must_use]
    pub fn listen_addresses(&self) -> Vec<Multiaddr> {
        self.core.shared.listen_addresses()
    }

    /// Offers `hosts`: signs an advert, tells it by gossip, puts it and its index entries into the DHT, and renews all
    /// of that before its time is over. Replaces the offer before.
    ///
    /// # Errors
    /// [`OfferError`] when the offer breaks a limit that every receiver checks; nothing is published then.
    pub fn publish_advert(&self, name: String, contact: Option<String>, hosts: Vec<Host>) -> Result<(), OfferError> {
        let shared = &self.core.shared;
        let offer = Offer { name, contact, hosts };
        let advert = shared.advert(&offer);
        check::check_advert(&advert)?;
        shared.publishable_advert(advert).ok_or(OfferError::TooLarge)?;
        let mut outbox = shared.outbox();
        outbox.offer = Some(offer);
        outbox.is_offer_new = true;
        drop(outbox);
        shared.outbox_changed.notify_one();
        Ok(())
    }

    /// Tells consecutive changes of this site's schedules. Call it in the order of the ledger's versions. The changes
    /// are batched and merged; when more wait than may, they are dropped, receivers see the gap and ask.
    pub fn publish_changes(&self, update: ScheduleUpdate) {
        let shared = &self.core.shared;
        shared.view.hear_update(&update, shared.clock.now());
        let dropped = shared.outbox().changes.push(update);
        shared.counters.add(Counter::ChangesDropped, dropped as u64);
        shared.outbox_changed.notify_one();
    }

    /// Finds hosts for a query: a sample of `query.count` fitting hosts with current schedules. The same view, query and
    /// seed give the same sample.
    pub async fn find(&self, query: Query, seed: u64) -> Found {
        self.core.find(query, seed).await
    }

    /// Asks a site about an attempt. This node's own site is asked through its own queue.
    ///
    /// # Errors
    /// [`AskError`] when there is no answer; only with some of them is it certain that the request did not arrive.
    pub async fn ask(&self, site: &SiteId, request: SiteRequest, timeout: Millis) -> Result<SiteAnswer, AskError> {
        self.core.ask(site, request, timeout).await
    }

    /// Fetches all schedules of a site into the view.
    ///
    /// # Errors
    /// [`AskError`] when the site does not give them.
    pub async fn fetch_schedule(&self, site: &SiteId, timeout: Millis) -> Result<(), AskError> {
        self.core.fetch_schedule(site, timeout).await
    }

    /// Opens connections to sites that will be asked soon. A hint: what cannot be done now is left to the request.
    pub fn prepare(&self, sites: impl IntoIterator<Item = SiteId>) {
        let shared = &self.core.shared;
        let peers: Vec<(PeerId, Vec<Multiaddr>)> = sites
            .into_iter()
            .take(PREPARE_MAX)
            .filter(|site| site != shared.site() && !shared.is_connected(site))
            .filter_map(|site| Some((peer_of_site(&site)?, shared.addresses_of(&site))))
            .collect();
        if !peers.is_empty() {
            // A full queue means that the swarm has more urgent things to do.
            let _ = self.core.commands.try_send(Command::Connect(peers));
        }
    }

    /// Call it when this node's own credential or its list of revocations has changed: sites that no longer belong leave
    /// the view, and the advert is renewed, so that others hear of it.
    pub fn membership_changed(&self) {
        self.core.shared.drop_non_members();
        self.core.renew_advert();
    }

    /// What a site shows of its membership in the advert that is believed.
    #[must_use]
    pub fn badge(&self, site: &SiteId) -> Option<Badge> {
        self.core.shared.view.envelope(site).and_then(|envelope| wire::badge_of(&envelope))
    }

    /// What this node believes of all sites.
    #[must_use]
    pub fn view(&self) -> &SharedView {
        &self.core.shared.view
    }

    /// The present on the clock that the view's ages count on.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.core.shared.clock.now()
    }

    /// Asks some connected sites to open a connection to this node, at the addresses that it tells. Takes seconds.
    pub async fn ask_reach(&self) -> Reach {
        reach::ask(&self.core).await
    }

    /// Whether there is no connection to anybody.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.core.shared.is_alone()
    }

    /// Where nodes listen that this one has met, with their peer ids.
    #[must_use]
    pub fn addresses_worth_remembering(&self) -> Vec<Multiaddr> {
        self.core.shared.worth_remembering()
    }

    /// How the layer is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = &self.core.shared;
        let now = shared.clock.now();
        let banned = |ban: &Ban| {
            let site = crate::identity::site_of_peer(&ban.peer)?;
            Some(BannedPeer { site, remaining: ban.until - now, why: ban.why.as_str(), times: ban.times })
        };
        Status {
            bans: shared.bans().iter().filter_map(banned).collect(),
            connected: shared.connected().iter().filter_map(crate::identity::site_of_peer).collect(),
            known_sites: shared.view.site_count(),
            known_hosts: shared.view.host_count(),
            clock: shared.offsets.summary(now),
            seen_as: shared.seen_as.told(),
            counters: shared.counters.all(),
            addresses_worth_remembering: shared.worth_remembering(),
        }
    }

    /// Says good-bye and stops: a signed departure goes out by gossip and into the DHT, so that nobody asks this site
    /// any more.
    pub async fn shutdown(self) {
        let (sender, receiver) = oneshot::channel();
        if self.core.commands.send(Command::Leave(sender)).await.is_ok() {
            // An error says that the swarm task ended already, which is what was wanted.
            let _ = receiver.await;
        }
    }
}

/// Most sites prepared in one call; a plan has fewer, and a dial costs 3 to 4 ms.
const PREPARE_MAX: usize = 256;

/// What the handle and the background tasks work with. Unlike [`Discovery`] it does not keep the tasks alive.
#[derive(Clone)]
pub(crate) struct Core {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    inbound: InboundQueue,
    schedules: ScheduleServer,
    lookups: Arc<Semaphore>,
    searches: Arc<Searches>,
}

impl Core {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: mpsc::Sender<Command>,
        inbound: InboundQueue,
        schedules: ScheduleServer,
    ) -> Core {
        let lookups = Arc::new(Semaphore::new(shared.config.limits.dht_lookups_max));
        Core { shared, commands, inbound, schedules, lookups, searches: Arc::default() }
    }

    /// Signs the own advert anew and publishes it.
    pub(crate) fn renew_advert(&self) {
        // A full queue means that the swarm has more urgent things to do; the advert is renewed in its time.
        let _ = self.commands.try_send(Command::Renew);
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn schedules(&self) -> &ScheduleServer {
        &self.schedules
    }

    pub(crate) fn searches(&self) -> &Searches {
        &self.searches
    }

    pub(crate) async fn ask(
        &self,
        site: &SiteId,
        request: SiteRequest,
        timeout: Millis,
    ) -> Result<SiteAnswer, AskError> {
        if site == self.shared.site() {
            let answer = self.inbound.offer(site.clone(), request).ok_or(AskError::Busy)?;
            return within(timeout, answer).await?.map_err(|_| AskError::Busy);
        }
        match self.request(site, WireRequest::Site(request), timeout).await? {
            WireAnswer::Site(answer) => {
                self.note_version(site, &answer);
                Ok(answer)
            }
            WireAnswer::Busy => Err(AskError::Busy),
            other => Err(unexpected(&other)),
        }
    }

    fn note_version(&self, site: &SiteId, answer: &SiteAnswer) {
        let Some(version) = answer.version() else { return };
        if check_version(version).is_ok() {
            self.shared.view.hear_version(site, version, self.shared.clock.now());
        }
    }

    pub(crate) async fn fetch_schedule(&self, site: &SiteId, timeout: Millis) -> Result<(), AskError> {
        let fetched = within(timeout, self.fetch_schedule_unhurried(site, timeout)).await.and_then(|fetched| fetched);
        let counter = if fetched.is_ok() { Counter::SchedulesFetched } else { Counter::ScheduleFetchesFailed };
        self.shared.count(counter);
        fetched
    }

    async fn fetch_schedule_unhurried(&self, site: &SiteId, timeout: Millis) -> Result<(), AskError> {
        let view = &self.shared.view;
        // With a gap, "unchanged" would be no news.
        let known = view.version(site).filter(|_| view.is_fresh(site, self.shared.clock.now(), Millis(u64::MAX)));
        let answer = if site == self.shared.site() {
            self.schedules.ask(known).ok_or(AskError::Busy)?.await.map_err(|_| AskError::Stopped)?
        } else {
            if !view.knows(site) {
                self.learn_site(site, timeout).await?;
            }
            self.request(site, WireRequest::Schedules(known), timeout).await?
        };
        let now = self.shared.clock.now();
        match answer {
            WireAnswer::Unchanged(version) if Some(version) == known => view.hear_version(site, version, now),
            WireAnswer::Schedules(schedules) => {
                let snapshot = Arc::unwrap_or_clone(schedules).into_snapshot(site.clone());
                check_snapshot(&snapshot).map_err(|invalid| AskError::Protocol(invalid.to_string()))?;
                view.hear_snapshot(snapshot, now);
            }
            WireAnswer::Busy => return Err(AskError::Busy),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    /// Gets the signed advert of a site from the DHT, or from the site itself, into the view.
    pub(crate) async fn learn_site(&self, site: &SiteId, timeout: Millis) -> Result<(), AskError> {
        let record = self.lookup_record(index::advert_key(&self.shared.config.grid, site)).await;
        if record.is_some_and(|record| self.shared.hear(&record).is_ok()) && self.shared.view.knows(site) {
            return Ok(());
        }
        match self.request(site, WireRequest::Advert, timeout).await? {
            WireAnswer::Adverts { envelopes, .. } => {
                for envelope in envelopes.iter().take(1) {
                    self.hear_from(peer_of_site(site), envelope);
                }
                if self.shared.view.knows(site) { Ok(()) } else { Err(AskError::Unreachable) }
            }
            WireAnswer::Busy => Err(AskError::Busy),
            other => Err(unexpected(&other)),
        }
    }

    /// Hears an envelope that `from` gave in an answer; says whether it was news, and blames `from` when it could have
    /// seen itself that nobody can use it.
    pub(crate) fn hear_from(&self, from: Option<PeerId>, envelope: &[u8]) -> bool {
        let heard = self.shared.hear(envelope);
        if let (Err(dropped), Some(from)) = (&heard, from)
            && dropped.is_forwarders_fault()
        {
            // A full queue means that the swarm has more urgent things to do; there will be another occasion.
            let _ = self.commands.try_send(Command::Blame(from, Offence::InvalidAnswer));
        }
        heard.is_ok()
    }

    /// Sends a request to another site and waits for its answer.
    pub(crate) async fn request(
        &self,
        site: &SiteId,
        request: WireRequest,
        timeout: Millis,
    ) -> Result<WireAnswer, AskError> {
        let peer = peer_of_site(site).ok_or_else(|| AskError::NotASite(site.clone()))?;
        let addresses = if self.shared.is_connected(site) { Vec::new() } else { self.shared.addresses_of(site) };
        let (reply, answer) = oneshot::channel();
        let command = Command::Ask(Box::new(AskCommand { peer, addresses, request, reply }));
        self.commands.try_send(command).map_err(|error| {
            self.shared.count(Counter::AsksRefused);
            match error {
                mpsc::error::TrySendError::Full(_) => AskError::Busy,
                mpsc::error::TrySendError::Closed(_) => AskError::Stopped,
            }
        })?;
        let answer = within(timeout, answer).await.and_then(|answer| answer.unwrap_or(Err(AskError::Stopped)));
        if answer.is_err() {
            self.shared.count(Counter::AsksFailed);
        }
        answer
    }

    /// The providers of an index key; empty when there are none or the swarm has no room.
    pub(crate) async fn lookup_providers(&self, key: RecordKey) -> BTreeSet<PeerId> {
        self.lookup(|reply| Command::Providers { key, reply }).await.unwrap_or_default()
    }

    /// A record of the DHT, unchecked.
    pub(crate) async fn lookup_record(&self, key: RecordKey) -> Option<Vec<u8>> {
        self.lookup(|reply| Command::Record { key, reply }).await.flatten()
    }

    async fn lookup<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        // Closed never: the semaphore lives as long as this.
        let _permit = self.lookups.acquire().await.ok()?;
        let (reply, answer) = oneshot::channel();
        self.commands.try_send(command(reply)).ok()?;
        answer.await.ok()
    }
}

fn unexpected(answer: &WireAnswer) -> AskError {
    let kind = match answer {
        WireAnswer::Schedules(_) => "schedules",
        WireAnswer::Unchanged(_) => "unchanged",
        WireAnswer::Site(_) => "an answer about an attempt",
        WireAnswer::Adverts { .. } => "adverts",
        WireAnswer::Busy => "busy",
        WireAnswer::Revocations { .. } => "revocations",
        WireAnswer::Reached(_) => "whether this node is reached",
    };
    AskError::Protocol(format!("answered with {kind}"))
}

/// Waits for `future` at most `timeout`.
pub(crate) async fn within<T>(timeout: Millis, future: impl Future<Output = T>) -> Result<T, AskError> {
    time::timeout(Duration::from_millis(timeout.0), future).await.map_err(|_| AskError::TimedOut)
}
