//! What all tasks of one node share: identity, clocks, view, health of peers, counters, and what waits to be published.
//!
//! Invariant: locks in here are held for a few instructions only and never across an `await`.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use broker::{
    ids::SiteId,
    protocol::{Advert, ScheduleUpdate},
    time::Millis,
    view::Received,
};
use libp2p::{Multiaddr, PeerId, multiaddr::Protocol};
use tokio::sync::Notify;

use crate::{
    addresses::{self, DialFilter},
    admission::Ban,
    clock::{Clock, millis},
    config::{DhtUpkeep, DiscoveryConfig},
    counters::{Counter, Counters},
    dissemination::outbox::{Offer, PendingChanges},
    health::PeerHealth,
    identity::{Identity, site_of_peer},
    membership::{Badge, DifferingDigests},
    refusals::Refusals,
    run::OpenStreams,
    status::{Apart, Offsets, SeenAs},
    view::SharedView,
    wire::{self, Dialect, Dropped, Payload, Stamp, Terms, check::ADDRESSES_MAX},
};

pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) config: DiscoveryConfig,
    pub(crate) dialect: Dialect,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) view: SharedView,
    pub(crate) health: PeerHealth,
    /// Something was put into the outbox.
    pub(crate) outbox_changed: Notify,
    /// A neighbour of the same grid was met for the first time.
    pub(crate) neighbour_met: Notify,
    /// Sites that know other revocations.
    pub(crate) differing_digests: DifferingDigests,
    /// How far the clocks of others are from this one's.
    pub(crate) offsets: Offsets,
    /// This node's address as other nodes see it.
    pub(crate) seen_as: SeenAs,
    /// Peers that speak another version of the protocol.
    pub(crate) apart: Apart,
    /// Which addresses are dialled.
    pub(crate) dials: Arc<DialFilter>,
    /// Streams to what runs on a seat, by peer.
    pub(crate) runs: OpenStreams,
    /// What sites have refused to commands that their adverts claim.
    pub(crate) refusals: Refusals,
    outbox: Mutex<Outbox>,
    last_sequence: AtomicU64,
    listen: RwLock<Vec<Multiaddr>>,
    connected: RwLock<Connected>,
    worth_remembering: RwLock<Vec<Multiaddr>>,
    bans: RwLock<Vec<Ban>>,
}

/// What waits for the swarm task.
pub(crate) struct Outbox {
    pub(crate) offer: Option<Offer>,
    pub(crate) is_offer_new: bool,
    /// Whether own jobs have waited at this site.
    pub(crate) quotes: bool,
    pub(crate) changes: PendingChanges,
}

/// How long an envelope with schedule changes may travel. Later its receivers have asked the site anyway.
pub const UPDATE_TIME_TO_LIVE: Millis = Millis(60_000);
/// How long a departure may travel.
const DEPARTURE_TIME_TO_LIVE: Millis = Millis(600_000);

fn valid<T>(lock: Result<T, PoisonError<T>>) -> T {
    // Everything behind these locks is valid after each single operation, so a panic elsewhere does not spoil it.
    lock.unwrap_or_else(PoisonError::into_inner)
}

/// The peers that are connected.
#[derive(Debug, Default)]
struct Connected {
    peers: BTreeSet<PeerId>,
    /// The sites of these peers.
    sites: BTreeSet<SiteId>,
}

impl Shared {
    pub(crate) fn new(
        identity: Identity,
        (config, dialect, dials): (DiscoveryConfig, Dialect, Arc<DialFilter>),
        view: SharedView,
        health: PeerHealth,
        counters: Arc<Counters>,
    ) -> Shared {
        let changes = PendingChanges::new(config.limits.changes_pending_max);
        Shared {
            identity,
            clock: Clock::counting(config.since_start),
            counters,
            view,
            health,
            outbox_changed: Notify::new(),
            neighbour_met: Notify::new(),
            differing_digests: DifferingDigests::default(),
            offsets: Offsets::default(),
            seen_as: SeenAs::default(),
            apart: Apart::default(),
            dials,
            runs: OpenStreams::default(),
            refusals: Refusals::default(),
            outbox: Mutex::new(Outbox { offer: None, is_offer_new: false, quotes: false, changes }),
            last_sequence: AtomicU64::new(0),
            listen: RwLock::new(Vec::new()),
            connected: RwLock::default(),
            worth_remembering: RwLock::new(Vec::new()),
            bans: RwLock::new(Vec::new()),
            config,
            dialect,
        }
    }

    pub(crate) fn site(&self) -> &SiteId {
        self.identity.site_id()
    }

    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        valid(self.outbox.lock())
    }

    /// Takes note of where this node listens; returns the addresses that it tells others, without its peer id.
    pub(crate) fn set_listen(&self, listeners: &[Multiaddr]) -> Vec<Multiaddr> {
        let announced = &self.config.announce;
        let found = addresses::told(&self.config.listen, listeners);
        self.dials.set_own(found.iter().chain(announced));
        let told = if announced.is_empty() { found } else { announced.clone() };
        valid(self.listen.write()).clone_from(&told);
        told
    }

    /// Addresses at which others can dial this node, with the peer id.
    pub(crate) fn listen_addresses(&self) -> Vec<Multiaddr> {
        let peer = self.identity.peer_id();
        valid(self.listen.read()).iter().map(|address| with_peer(address.clone(), peer)).collect()
    }

    pub(crate) fn set_connected(&self, peer: PeerId, is_connected: bool) {
        let mut connected = valid(self.connected.write());
        // A site is asked for far more often than a connection comes or goes.
        let site = site_of_peer(&peer);
        if is_connected {
            connected.peers.insert(peer);
            connected.sites.extend(site);
        } else {
            connected.peers.remove(&peer);
            site.map(|site| connected.sites.remove(&site));
        }
    }

    pub(crate) fn connected(&self) -> Vec<PeerId> {
        valid(self.connected.read()).peers.iter().copied().collect()
    }

    /// How often this node renews what it has in the DHT.
    pub(crate) fn dht_upkeep(&self) -> DhtUpkeep {
        DhtUpkeep::of(self.config.gossip, self.view.site_count(), &self.config.limits)
    }

    pub(crate) fn is_alone(&self) -> bool {
        valid(self.connected.read()).peers.is_empty()
    }

    pub(crate) fn is_connected(&self, site: &SiteId) -> bool {
        valid(self.connected.read()).sites.contains(site)
    }

    pub(crate) fn set_worth_remembering(&self, addresses: Vec<Multiaddr>) {
        *valid(self.worth_remembering.write()) = addresses;
    }

    pub(crate) fn worth_remembering(&self) -> Vec<Multiaddr> {
        valid(self.worth_remembering.read()).clone()
    }

    pub(crate) fn set_bans(&self, bans: Vec<Ban>) {
        *valid(self.bans.write()) = bans;
    }

    pub(crate) fn bans(&self) -> Vec<Ban> {
        valid(self.bans.read()).clone()
    }

    /// Addresses that a site advertises, as far as this node dials them.
    pub(crate) fn addresses_of(&self, site: &SiteId) -> Vec<Multiaddr> {
        let advertised = self.view.addresses(site);
        let parsed = advertised.iter().filter_map(|address| address.parse().ok());
        parsed.filter(|address| self.dials.allows(address)).collect()
    }

    /// The next sequence number: the time, but always above the last one.
    pub(crate) fn next_sequence(&self) -> u64 {
        let now = self.clock.utc_ms();
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        match self.last_sequence.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(last) | Err(last) => now.max(last.saturating_add(1)),
        }
    }

    /// The advert of `offer` as of now. A caller that believes it keeps the outbox locked until then, so that no later advert shows an
    /// earlier offer.
    pub(crate) fn advert(&self, offer: &Offer, quotes: bool) -> Advert {
        let time_to_live_s = self.advert_time_to_live().as_secs();
        Advert {
            site: self.site().clone(),
            name: offer.name.clone(),
            sequence: self.next_sequence(),
            time_to_live_s: u32::try_from(time_to_live_s).unwrap_or(u32::MAX),
            contact: offer.contact.clone(),
            hosts: offer.hosts.clone(),
            offer: offer.offered.clone(),
            uplink: offer.uplink,
            quotes,
            addresses: self.listen_addresses().iter().take(ADDRESSES_MAX).map(ToString::to_string).collect(),
            features: self.dialect.features.clone().allowing(offer.allows.iter().copied(), offer.images.clone()),
        }
    }

    /// How long an advert is good that is made now.
    pub(crate) fn advert_time_to_live(&self) -> Duration {
        self.config.intervals.advert_time_to_live_among(self.view.site_count()).max(Duration::from_secs(1))
    }

    /// Signs an advert and believes it.
    pub(crate) fn publishable_advert(&self, advert: Advert) -> Option<Vec<u8>> {
        let time_to_live = self.advert_time_to_live();
        let envelope = self.seal_advert(advert.clone(), millis(time_to_live))?;
        self.view.receive_advert(advert, &envelope, self.clock.now(), millis(time_to_live));
        Some(envelope)
    }

    /// Signs the departure of this site.
    pub(crate) fn departure(&self) -> Option<Vec<u8>> {
        let advert = Advert { time_to_live_s: 0, ..self.advert(&Offer::default(), false) };
        self.seal_advert(advert, DEPARTURE_TIME_TO_LIVE)
    }

    fn seal_advert(&self, advert: Advert, time_to_live: Millis) -> Option<Vec<u8>> {
        let stamp = Stamp { sequence: advert.sequence, sent_ms: self.clock.utc_ms(), time_to_live };
        let membership = &self.config.membership;
        let badge = Badge { credential: membership.credential(), revocations_digest: membership.revocations_digest() };
        wire::seal_with_badge(
            &self.identity,
            &self.config.grid,
            stamp,
            Payload::Advert(advert),
            (badge, &self.dialect.extra),
        )
    }

    /// Signs an update.
    pub(crate) fn seal_update(&self, update: ScheduleUpdate) -> Option<Vec<u8>> {
        let sent_ms = self.clock.utc_ms();
        let stamp = Stamp { sequence: self.next_sequence(), sent_ms, time_to_live: UPDATE_TIME_TO_LIVE };
        wire::seal(&self.identity, &self.config.grid, stamp, Payload::Update(update))
    }

    /// Checks an envelope, and that its author belongs to the grid, without believing it.
    pub(crate) fn open(&self, envelope: &[u8]) -> Result<wire::Opened, Dropped> {
        let skew_max = millis(self.config.intervals.skew_max);
        let terms = Terms { grid: &self.config.grid, utc_ms: self.clock.utc_ms(), skew_max };
        let opened = wire::open(envelope, terms)?;
        // Changes are believed of sites in the view only, and only members are there.
        let is_advert = matches!(opened.payload, Payload::Advert(_));
        if is_advert && self.config.membership.check(&opened.author, &opened.badge.credential).is_err() {
            return Err(Dropped::NotMember);
        }
        Ok(opened)
    }

    /// Checks an envelope and believes it if it is news; counts it if it is dropped.
    pub(crate) fn receive(&self, envelope: &[u8]) -> Result<SiteId, Dropped> {
        let heard = self.open(envelope).and_then(|opened| self.believe(opened, envelope));
        if let Err(dropped) = &heard {
            self.counters.count(dropped.counter());
        }
        heard
    }

    /// Believes an envelope if it is news.
    pub(crate) fn believe(&self, opened: wire::Opened, envelope: &[u8]) -> Result<SiteId, Dropped> {
        let wire::Opened { author, remaining, badge, payload, .. } = opened;
        let now = self.clock.now();
        let heard = match payload {
            // After a restart with a clock set back, the grid knows a later advert of this site than it can make.
            Payload::Advert(advert) if author == *self.site() => {
                self.last_sequence.fetch_max(advert.sequence, Ordering::Relaxed);
                Received::Old
            }
            Payload::Advert(advert) if !self.view.make_room_for(&advert.site, now) => return Err(Dropped::ViewFull),
            Payload::Advert(advert) => {
                let membership = &self.config.membership;
                if membership.is_closed() && badge.revocations_digest != membership.revocations_digest() {
                    self.differing_digests.note(&author, badge.revocations_digest);
                }
                self.view.receive_advert(advert, envelope, now, remaining)
            }
            Payload::Update(_) if author == *self.site() => Received::Old,
            Payload::Update(update) => self.view.receive_update(&update, now),
        };
        match heard {
            Received::Old => Err(Dropped::Stale),
            Received::Applied | Received::Gap => Ok(author),
        }
    }

    /// Drops the sites from the view that no longer belong to the grid.
    pub(crate) fn drop_non_members(&self) {
        let is_member = |site: &SiteId, envelope: &[u8]| {
            wire::badge_of(envelope).is_some_and(|badge| self.config.membership.check(site, &badge.credential).is_ok())
        };
        self.view.drop_unless(is_member);
    }

    /// Whether an envelope claims, unchecked, to be newer than what is known.
    pub(crate) fn may_be_news(&self, envelope: &[u8]) -> bool {
        wire::peek(envelope)
            .is_some_and(|(author, sequence)| self.view.sequence(&author).is_none_or(|known| sequence > known))
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.counters.count(counter);
    }
}

/// The address with the peer id at its end.
pub(crate) fn with_peer(address: Multiaddr, peer: PeerId) -> Multiaddr {
    match address.iter().last() {
        Some(Protocol::P2p(_)) => address,
        _ => address.with(Protocol::P2p(peer)),
    }
}

/// The peer id at the end of an address.
pub(crate) fn peer_of_address(address: &Multiaddr) -> Option<PeerId> {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => Some(peer),
        _ => None,
    }
}
