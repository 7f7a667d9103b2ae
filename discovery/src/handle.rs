//! The handle that the node holds: ask, fetch, publish, look.
//!
//! Invariant: no call here waits for the swarm task except for an answer that was asked for, and then at most for the
//! time the caller gave. When the swarm task has no room, the caller gets an error at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use broker::{
    ids::SiteId,
    needs::Lack,
    protocol::{ScheduleUpdate, SiteAnswer, SiteRequest},
    time::{Millis, Time},
};
use libp2p::Multiaddr;

use crate::{
    admission::Ban,
    command::AskError,
    core::Core,
    counters::Counter,
    dht::find::{Finder, Found, Query},
    direct::reachability::{self, Reachability},
    dissemination::outbox::Offer,
    identity::site_of_peer,
    link::{LinkError, LinkSpeed, Links},
    membership::Badge,
    run::{RunError, RunStream, Runs},
    status::ClockOffset,
    tasks::Tasks,
    view::SharedView,
    wire::{self, check},
};

/// Why an offer cannot be published: it breaks a limit that every receiver checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A name, number or amount is beyond its limit.
    #[error("the offer breaks a limit: {0}")]
    Invalid(#[from] check::Invalid),
    /// All hosts together are too large for one advert.
    #[error("the offer is larger than {} bytes when encoded", wire::ADVERT_BYTES_MAX)]
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
    /// The clocks of other sites beside this machine's; none when no site sent anything lately.
    pub clock: Option<ClockOffset>,
    /// This node's address as other nodes see it, the most reported first.
    pub seen_as: Vec<IpAddr>,
    /// From when on others are told more than is used of this site's hosts, because its schedules have more steps than are told.
    pub coarse_from: Option<Time>,
    /// Sites that speak another version of the protocol, and which program is too old, in words.
    pub apart: Vec<(SiteId, String)>,
    /// Everything counted since the start.
    pub counters: BTreeMap<&'static str, u64>,
    /// Addresses of other nodes, worth keeping over a restart as `known_peers`.
    pub addresses_worth_remembering: Vec<Multiaddr>,
}

/// A peer that behaved badly, whose connections are refused for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BannedPeer {
    /// The site.
    pub site: SiteId,
    /// How long the ban still lasts.
    pub remaining: Millis,
    /// Its last offence, in words.
    pub why: &'static str,
    /// How often it was banned, this time included.
    pub times: u32,
}

/// The peer-to-peer layer of a node. Cheap to clone; when the last clone goes, everything stops, without a farewell.
#[derive(Clone)]
pub struct Discovery {
    core: Core,
    finder: Finder,
    links: Arc<Links>,
    runs: Arc<Runs>,
    tasks: Arc<Tasks>,
}

impl Discovery {
    pub(crate) fn new(core: Core, (links, runs): (Arc<Links>, Arc<Runs>), tasks: Tasks) -> Discovery {
        Discovery { finder: Finder::new(core.clone()), core, links, runs, tasks: Arc::new(tasks) }
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Sets the sites at which this node has reservations: they keep their places in a view that is full.
    pub fn keep_booked(&self, sites: BTreeSet<SiteId>) {
        self.core.shared().view.keep_booked(sites);
    }

    /// Waits until a task of discovery has ended, which only happens when it has failed, or after [`Discovery::shutdown`]; its name.
    pub async fn ended(&self) -> &'static str {
        self.tasks.ended().await
    }

    /// This node's site.
    #[must_use]
    pub fn site_id(&self) -> &SiteId {
        self.core.shared().site()
    }

    /// The addresses at which others can dial this node, each with its peer id.
    #[must_use]
    pub fn listen_addresses(&self) -> Vec<Multiaddr> {
        self.core.shared().listen_addresses()
    }

    /// Makes an offer: signs an advert, gossips it, puts it and its index entries into the DHT, and renews all
    /// of that before its time is over. Replaces the offer before.
    ///
    /// # Errors
    /// [`OfferError`] when the offer breaks a limit that every receiver checks; nothing is published then.
    pub fn publish_advert(&self, offer: Offer) -> Result<(), OfferError> {
        let shared = self.core.shared();
        let mut outbox = shared.outbox();
        let advert = shared.advert(&offer, outbox.quotes);
        check::check_advert(&advert)?;
        shared.publishable_advert(advert).ok_or(OfferError::TooLarge)?;
        outbox.offer = Some(offer);
        outbox.is_offer_new = true;
        drop(outbox);
        shared.outbox_changed.notify_one();
        Ok(())
    }

    /// Notes that own jobs wait at this site, so that coordinators ask for quotes from the next advert on, which goes out at once. It
    /// stays so until the node starts again: jobs come and go too often to publish that.
    pub fn publish_quotes(&self) {
        let shared = self.core.shared();
        let mut outbox = shared.outbox();
        if std::mem::replace(&mut outbox.quotes, true) {
            return;
        }
        // It was published before, so it breaks no limit. Before the first one there is nothing to publish.
        let offer = outbox.offer.as_ref();
        outbox.is_offer_new |=
            offer.is_some_and(|offer| shared.publishable_advert(shared.advert(offer, true)).is_some());
        drop(outbox);
        shared.outbox_changed.notify_one();
    }

    /// Publishes consecutive changes of this site's schedules. Call it in the order of the ledger's versions. The changes
    /// are batched and merged; when more wait than may, they are dropped, receivers see the gap and ask.
    pub fn publish_changes(&self, update: ScheduleUpdate) {
        let shared = self.core.shared();
        shared.view.receive_update(&update, shared.clock.now());
        self.core.schedules().note_changes(&update);
        let dropped = shared.outbox().changes.push(update);
        shared.counters.add(Counter::ChangesDropped, dropped as u64);
        shared.outbox_changed.notify_one();
    }

    /// Finds hosts for a query: all that are known with a schedule, and of others a sample of `query.count`, whose schedules are asked for.
    /// The same view, query and seed give the same sample.
    pub async fn find(&self, query: Query, seed: u64) -> Found {
        self.finder.find(query, seed).await
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

    /// Call it when this node's list of revocations has changed: sites that no longer belong leave
    /// the view and are disconnected, and the advert is renewed, so that others learn of it.
    pub fn membership_changed(&self) {
        self.core.check_members();
        self.core.renew_advert();
    }

    /// Sites that did not answer this node within the last `within` and have not answered since.
    #[must_use]
    pub fn silent_sites(&self, within: Millis) -> BTreeSet<SiteId> {
        self.core.shared().health.silent(self.now(), within)
    }

    /// Whether the site is one of [`Discovery::silent_sites`].
    #[must_use]
    pub fn is_silent(&self, site: &SiteId, within: Millis) -> bool {
        self.core.shared().health.is_silent(site, self.now(), within)
    }

    /// What a site shows of its membership in the advert that is believed.
    #[must_use]
    pub fn badge(&self, site: &SiteId) -> Option<Badge> {
        self.core.shared().view.envelope(site).and_then(|envelope| wire::badge_of(&envelope))
    }

    /// What this node believes of all sites.
    #[must_use]
    pub fn view(&self) -> &SharedView {
        &self.core.shared().view
    }

    /// The present on the clock that the view's ages count on.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.core.shared().clock.now()
    }

    /// Asks some connected sites to open a connection to this node, at the addresses that it advertises. Takes seconds.
    pub async fn ask_reachability(&self) -> Reachability {
        reachability::ask(&self.core).await
    }

    /// Measures the link to a site that allows it. Takes seconds, and up to 32 MiB each way.
    ///
    /// # Errors
    /// [`LinkError`] when it was not measured.
    pub async fn measure_link(&self, site: &SiteId) -> Result<LinkSpeed, LinkError> {
        self.links.measure(site).await
    }

    /// Opens a stream to what runs, or is to run, on a seat of a site, which the `opening` names: the site's node reads it and
    /// decides. Behind it both sides carry bytes, and a side that does not read makes the other wait.
    ///
    /// # Errors
    /// [`RunError`] when there is no stream.
    pub async fn open_run(&self, site: &SiteId, opening: Vec<u8>) -> Result<RunStream, RunError> {
        self.runs.open(site, opening).await
    }

    /// Notes that a site has refused a command for the lack of this. Where its advert claims to have it, that is counted, and finds that
    /// need it avoid the site for ten minutes.
    pub fn note_refusal(&self, site: &SiteId, lack: Lack) {
        let shared = self.core.shared();
        if shared.view.with_site(site, |view| !view.advert().features.deny(&lack)) == Some(true) {
            shared.count(Counter::ClaimsRefused);
            shared.refusals.note(site, lack, shared.clock.now());
        }
    }

    /// Whether there is no connection at all.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.core.shared().is_alone()
    }

    /// Where nodes listen that this one has met, with their peer ids.
    #[must_use]
    pub fn addresses_worth_remembering(&self) -> Vec<Multiaddr> {
        self.core.shared().worth_remembering()
    }

    /// How far the clocks of other sites are ahead of this machine's; none until some have signed the time.
    #[must_use]
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        let shared = self.core.shared();
        shared.offsets.summary(shared.clock.utc_ms(), shared.clock.now())
    }

    /// How the layer is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = self.core.shared();
        let now = shared.clock.now();
        let banned = |ban: &Ban| {
            let site = site_of_peer(&ban.peer)?;
            Some(BannedPeer { site, remaining: ban.until - now, why: ban.why.as_str(), times: ban.times })
        };
        Status {
            bans: shared.bans().iter().filter_map(banned).collect(),
            connected: shared.connected().iter().filter_map(site_of_peer).collect(),
            known_sites: shared.view.site_count(),
            known_hosts: shared.view.host_count(),
            clock: shared.offsets.summary(shared.clock.utc_ms(), now),
            seen_as: shared.seen_as.most_reported(),
            coarse_from: self.core.schedules().coarse_from(),
            apart: shared.apart.told(now),
            counters: shared.counters.all(),
            addresses_worth_remembering: shared.worth_remembering(),
        }
    }

    /// Says good-bye and stops: a signed departure goes out by gossip and into the DHT, so that no node asks this site
    /// any more.
    pub async fn shutdown(self) {
        self.core.leave().await;
    }
}
