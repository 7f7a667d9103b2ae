//! Direct requests, look-ups and fetches, as the parts of a node use them.
//!
//! Invariant: no call waits for the swarm task except for an answer that was asked for, and then at most for the caller's
//! time-out. When the swarm task has no room, the caller gets an error at once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use broker::{
    ids::SiteId,
    protocol::{LedgerVersion, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    time::Millis,
};
use libp2p::{PeerId, kad::RecordKey};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time,
};

use crate::{
    admission::Offence,
    command::{AskCommand, AskError, Command},
    counters::Counter,
    dht::index,
    direct::{inbound::InboundQueue, schedules::ScheduleServer, under_way::UnderWay},
    identity::peer_of_site,
    shared::Shared,
    streams::Reply,
    wire::{WireAnswer, WireRequest, check::check_version, site_is_busy},
};

/// A site that does not answer within less than this is not taken for silent.
const PATIENCE_MIN: Millis = Millis(500);

/// What the handle and the background tasks work with. Unlike the handle it does not keep the tasks alive.
#[derive(Clone)]
pub(crate) struct Core {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    inbound: InboundQueue,
    schedules: ScheduleServer,
    /// The schedules of large sites on their way.
    under_way: UnderWay,
    lookups: Arc<Semaphore>,
}

impl Core {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: mpsc::Sender<Command>,
        inbound: InboundQueue,
        schedules: ScheduleServer,
    ) -> Core {
        let lookups = Arc::new(Semaphore::new(shared.config.limits.dht_lookups_max));
        Core { shared, commands, inbound, schedules, under_way: UnderWay::default(), lookups }
    }

    /// Opens a stream to test the link to a connected peer.
    pub(crate) fn open_link(&self, peer: PeerId, reply: Reply) -> Result<(), AskError> {
        self.commands.try_send(Command::OpenLink { peer, reply }).map_err(|_| AskError::Busy)
    }

    /// Opens a stream to what runs at a connected peer.
    pub(crate) fn open_run(&self, peer: PeerId, reply: Reply) -> Result<(), AskError> {
        self.commands.try_send(Command::OpenRun { peer, reply }).map_err(|_| AskError::Busy)
    }

    /// Says good-bye and ends the swarm task.
    pub(crate) async fn leave(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.commands.send(Command::Leave(sender)).await.is_ok() {
            // An error means that the swarm task ended already, which is what was wanted.
            let _ = receiver.await;
        }
    }

    /// Drops and disconnects those that no longer belong to the grid.
    pub(crate) fn check_members(&self) {
        self.shared.drop_non_members();
        // A full queue means that the swarm has more urgent things to do; it looks now and then by itself.
        let _ = self.commands.try_send(Command::CheckMembers);
    }

    /// Signs the own advert again and publishes it.
    pub(crate) fn renew_advert(&self) {
        // A full queue means that the swarm has more urgent things to do; the advert is renewed in its time.
        let _ = self.commands.try_send(Command::Renew);
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What this site tells of its schedules.
    pub(crate) fn schedules(&self) -> &ScheduleServer {
        &self.schedules
    }

    pub(crate) fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// What waits for this node.
    #[cfg(test)]
    pub(crate) fn inbound(&self) -> &InboundQueue {
        &self.inbound
    }

    pub(crate) async fn ask(
        &self,
        site: &SiteId,
        request: SiteRequest,
        timeout: Millis,
    ) -> Result<SiteAnswer, AskError> {
        if site == self.shared.site() {
            let answer = self.inbound.offer(site.clone(), None, request).ok_or(AskError::Busy)?;
            return within(timeout, answer).await?.map_err(|_| AskError::Busy);
        }
        let answered = match self.request(site, WireRequest::Site(request), timeout).await {
            Ok(WireAnswer::Site(answer)) => {
                self.note_version(site, &answer);
                Ok(answer)
            }
            Ok(WireAnswer::Busy) => Ok(site_is_busy()),
            Ok(other) => Err(unexpected(&other)),
            Err(error) => Err(error),
        };
        match answered {
            // Nobody can be made to understand by being asked again: that is as good as a refusal.
            Err(AskError::NotUnderstood(what)) => Ok(SiteAnswer::Refused(Refusal {
                reason: RefusalReason::NotUnderstood(what),
                version: LedgerVersion::default(),
                hosts: Vec::new(),
            })),
            answered => answered,
        }
    }

    fn note_version(&self, site: &SiteId, answer: &SiteAnswer) {
        let Some(version) = answer.version() else { return };
        if check_version(version).is_ok() {
            self.shared.view.receive_version(site, version, self.shared.clock.now());
        }
    }

    /// Gets the signed advert of a site from the DHT, or from the site itself, into the view.
    pub(crate) async fn learn_site(&self, site: &SiteId, timeout: Millis) -> Result<(), AskError> {
        let record = self.lookup_record(index::advert_key(&self.shared.config.grid, site)).await;
        if record.is_some_and(|record| self.shared.receive(&record).is_ok()) && self.shared.view.knows(site) {
            return Ok(());
        }
        match self.request(site, WireRequest::Advert, timeout).await? {
            WireAnswer::Adverts { envelopes, .. } => {
                for envelope in envelopes.iter().take(1) {
                    self.receive_from(peer_of_site(site), envelope);
                }
                if self.shared.view.knows(site) { Ok(()) } else { Err(AskError::Unreachable) }
            }
            WireAnswer::Busy => Err(AskError::Busy),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes in an envelope that `from` sent in an answer; returns whether it was news, and blames `from` for an envelope
    /// that it could have refused itself.
    pub(crate) fn receive_from(&self, from: Option<PeerId>, envelope: &[u8]) -> bool {
        let received = self.shared.receive(envelope);
        if let (Err(dropped), Some(from)) = (&received, from)
            && dropped.is_forwarders_fault()
        {
            self.blame_peer(from, Offence::InvalidAnswer);
        }
        received.is_ok()
    }

    /// Notes an offence of a site.
    pub(crate) fn blame(&self, site: &SiteId, offence: Offence) {
        if let Some(peer) = peer_of_site(site) {
            self.blame_peer(peer, offence);
        }
    }

    fn blame_peer(&self, peer: PeerId, offence: Offence) {
        // A full queue means that the swarm has more urgent things to do; there will be another occasion.
        let _ = self.commands.try_send(Command::Blame(peer, offence));
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
        match &answer {
            Ok(_) => self.shared.health.answered(site),
            Err(error) => {
                self.shared.count(Counter::AsksFailed);
                self.note_failure(site, error, timeout);
            }
        }
        answer
    }

    pub(crate) fn note_failure(&self, site: &SiteId, error: &AskError, timeout: Millis) {
        // A site that was given no time has not failed.
        let is_proven = *error != AskError::TimedOut || timeout >= PATIENCE_MIN;
        if error.is_sites_fault() && is_proven && site != self.shared.site() {
            self.shared.health.failed(site, self.shared.clock.now());
        }
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

/// The error of who has got an answer to another question.
pub(crate) fn unexpected(answer: &WireAnswer) -> AskError {
    let kind = match answer {
        WireAnswer::Schedules(_) => "schedules",
        WireAnswer::Changes(_) => "changes of schedules",
        WireAnswer::PartsGone => "parts of schedules that are gone",
        WireAnswer::Unchanged(_) => "unchanged",
        WireAnswer::Site(_) | WireAnswer::Many(_) => "an answer about an attempt",
        WireAnswer::Adverts { .. } => "adverts",
        WireAnswer::Busy => "busy",
        WireAnswer::Revocations { .. } => "revocations",
        WireAnswer::DialedBack(_) => "whether this node is reached",
        WireAnswer::NotUnderstood { kind } => return AskError::NotUnderstood(format!("a request of kind {kind}")),
    };
    AskError::Protocol(format!("answered with {kind}"))
}

/// Waits for `future` at most `timeout`.
pub(crate) async fn within<T>(timeout: Millis, future: impl Future<Output = T>) -> Result<T, AskError> {
    time::timeout(Duration::from_millis(timeout.0), future).await.map_err(|_| AskError::TimedOut)
}
