//! One simulated site: its hosts and shards, the product's state machines while its node runs, and what the node remembers.
//!
//! Hosts and requests are those of the generator that the real grid uses too, so the two can be compared. Invariant: the
//! hosts of a site, its name and its shards depend on the seed and its position only; a node that starts again has what was
//! on its disk, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    classes::{hosts_of_class, numbered},
    features::Features,
    host::Host,
    ids::{RequestId, SiteId},
    ledger::{LedgerLimits, ScheduleUpdateParts},
    negotiation::{FoundHost, Negotiation, NegotiationSettings, Purpose},
    protocol::{Advert, AttemptId, ClassesLeft, LedgerVersion, ScheduleSnapshot, ScheduleUpdate},
    schedule::Schedule,
    trust::testing,
};
use discovery::{
    GridId, Multiaddr,
    identity::{peer_of_key, site_of_peer},
    index,
    outbox::{Pacer, PendingChanges, advance},
    wire::{Payload, bundle::bundled_bytes},
};

use super::{
    chance::drawn,
    history::{History, Published},
    options::{BEGIN, HOSTS_PER_SITE_MAX, RunArgs, Settings, clocks},
    sizes::{self, SOME_TIME_MS},
};
use crate::engine::{Disk, Machines, Moment, Setup, SiteLedger};

/// Keys of sites begin here, after those of users.
const FIRST_SITE_KEY: u64 = 1_000_000;
/// Names the draws of the shards that nodes take part in.
const SHARDS: u64 = 0x7368;

/// The sender of a question to a ledger, which is to get the answer.
#[derive(Debug, Clone)]
pub enum Asker {
    /// The coordinator of a request, which waits `until` then, and has `planned` on that version of the schedules.
    Coordinator { request: usize, attempt: u32, purpose: Purpose, until: Moment, planned: Option<LedgerVersion> },
    /// Another participant, which asks for the outcome of an attempt in a round of its ledger's questions.
    Participant { from: usize, attempt: AttemptId, round: u32 },
}

/// Schedules of another site that were confirmed directly.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// When the answer arrived.
    pub at: Moment,
    /// The moment at the other site that the answer shows.
    pub as_of: Moment,
}

/// What a node remembers of others until it stops, by site.
#[derive(Debug, Default)]
pub struct Contacts {
    /// Until when sites that did not answer are left out.
    pub silent: BTreeMap<usize, Moment>,
    /// Sites whose schedules are being fetched because a change was missed.
    pub wanted: BTreeSet<usize>,
    /// What other sites have answered directly.
    pub touched: BTreeMap<usize, Touch>,
    /// When the last direct message went to another or came from it.
    pub contacted: BTreeMap<usize, Moment>,
}

/// A site with its node.
#[derive(Debug)]
pub struct Site {
    pub id: SiteId,
    /// With nothing of their owner on them.
    pub hosts: Vec<(Host, Schedule)>,
    pub advert: Advert,
    /// The size of the advert in its envelope.
    pub advert_bytes: u64,
    /// The size of its schedules on the wire, when it last published a change.
    pub schedules_bytes: u64,
    /// The shard that its gossip belongs to.
    pub shard: usize,
    /// The shards that its node takes part in, ascending.
    pub subscribed: Vec<usize>,
    /// The ledger and the negotiations, while the node runs.
    pub machines: Option<Machines<Asker>>,
    pub disk: Disk,
    /// Until when the disk is busy.
    pub disk_free_at: Moment,
    /// Counts starts: what was under way before the last one does not happen.
    pub run: u64,
    /// The site has left in order.
    pub has_left: bool,
    pub history: History,
    pub contacts: Contacts,
    /// Changes that wait to be published.
    pending: PendingChanges,
    pacer: Pacer,
    is_publishing: bool,
}

/// Makes the hosts of a site a class of which the first gives the description.
pub fn make_alike(hosts: &mut [(Host, Schedule)]) {
    let Some((first, _)) = hosts.first().cloned() else { return };
    let names = hosts_of_class(&first.id, hosts.len() as u64, HOSTS_PER_SITE_MAX);
    let names = names.expect("as many as a site may have, of short names");
    hosts.iter_mut().zip(names).for_each(|((host, _), id)| *host = Host { id, ..first.clone() });
}

impl Site {
    /// The site at this position; its node runs.
    pub fn new(settings: &Settings, position: usize, hosts: Vec<(Host, Schedule)>) -> Site {
        let key = testing::public(FIRST_SITE_KEY + position as u64);
        let id = peer_of_key(key.as_bytes())
            .and_then(|peer| site_of_peer(&peer))
            .expect("the public half of a signing key is a key, and its peer id a short text");
        let time_to_live = settings.advert_time_to_live();
        let addresses = addresses(position);
        let advert = Advert {
            site: id.clone(),
            name: format!("site-{position:05}"),
            sequence: SOME_TIME_MS,
            time_to_live_s: u32::try_from(time_to_live.as_secs()).unwrap_or(u32::MAX),
            contact: None,
            hosts: hosts.iter().map(|(host, _)| host.clone()).collect(),
            uplink: None,
            quotes: false,
            addresses: addresses.iter().map(|address| format!("{address}/p2p/{id}")).collect(),
            features: Features::own(),
            offer: Default::default(),
        };
        let payload = Payload::Advert(advert.clone());
        let shard = usize::from(index::head_of(&id)) % settings.shards;
        let gossip_interval = (Moment::default() + settings.intervals.gossip).millis();
        let mut site = Site {
            advert_bytes: sizes::envelope_bytes(&settings.grid, payload, (Moment::default() + time_to_live).millis()),
            advert,
            schedules_bytes: 0,
            shard,
            subscribed: subscriptions(settings, position, shard),
            hosts,
            machines: None,
            disk: Disk::default(),
            disk_free_at: BEGIN,
            run: 0,
            has_left: false,
            history: History::default(),
            contacts: Contacts::default(),
            pending: PendingChanges::new(settings.limits.changes_pending_max),
            pacer: Pacer::new(gossip_interval, settings.limits.gossip_budget_per_s),
            is_publishing: false,
            id,
        };
        site.start(&settings.run, BEGIN);
        site
    }

    /// Starts the node with what is on its disk.
    pub fn start(&mut self, run: &RunArgs, at: Moment) {
        self.disk.incarnation = at.ms();
        self.disk_free_at = at;
        let setup = Setup {
            site: self.id.clone(),
            hosts: self.hosts.clone(),
            class: run.alike.then(|| numbered(&self.hosts.first()?.0.id)).flatten().map(|(class, _)| class),
            gate: testing::open_gate().into(),
            limits: LedgerLimits::default(),
            negotiation: NegotiationSettings::default(),
            receipts: None,
            book_fault: None,
        };
        let seed_of = |place| drawn([run.seed, at.0 as u64, place]);
        let (machines, misfits) = Machines::open(setup, &self.disk, self.disk.kept(), true, seed_of, clocks(at));
        debug_assert!(misfits.is_empty(), "the hosts of a site stay as they are");
        let base = machines.ledger.snapshot(clocks(at));
        self.machines = Some(machines);
        self.measure_schedules(at);
        self.history.start(at, self.has_left, base);
        self.has_left = false;
    }

    /// Stops the node; in order when the site `leaves`.
    pub fn stop(&mut self, at: Moment, leaves: bool) {
        self.machines = None;
        self.run += 1;
        self.has_left = leaves;
        self.history.stop(at);
        self.contacts = Contacts::default();
        self.is_publishing = false;
        self.pending.take();
    }

    /// Whether the node runs.
    pub fn is_up(&self) -> bool {
        self.machines.is_some()
    }

    /// The ledger, while the node runs.
    pub fn ledger(&self) -> Option<&SiteLedger> {
        self.machines.as_ref().map(|machines| &machines.ledger)
    }

    /// The negotiation of a request, while the node that coordinates it runs.
    pub fn negotiation(&self, id: &RequestId) -> Option<&Negotiation> {
        self.machines.as_ref()?.negotiations.get(id)
    }

    /// A host with its schedule in a snapshot of this site's ledger.
    pub fn found_host(&self, host: usize, snapshot: &ScheduleSnapshot, left: &mut ClassesLeft) -> FoundHost {
        let host = self.hosts[host].0.clone();
        let (site, schedule) = (self.id.clone(), snapshot.schedules.next_of(&host, left));
        FoundHost { site, host, schedule, version: snapshot.version, offer: Default::default(), standing: None }
    }

    /// The ledger has changed. Returns when the site publishes that, unless it is going to publish anyway.
    pub fn change(&mut self, at: Moment, parts: ScheduleUpdateParts, received_per_s: u64) -> Option<Moment> {
        let update = ScheduleUpdate { site: self.id.clone(), from: parts.from, changes: parts.changes.clone() };
        self.pending.push(update);
        self.history.change(at, parts);
        let is_planned = std::mem::replace(&mut self.is_publishing, true);
        (!is_planned).then(|| Moment::of_ms(self.pacer.due_when(received_per_s).0))
    }

    /// Publishes what has changed in one message called `name`. Returns its size in a bundle, and whether it is the first
    /// since the node started again.
    pub fn publish(&mut self, grid: &GridId, at: Moment, name: u64) -> Option<(u64, bool)> {
        self.is_publishing = false;
        let (from, changes) = self.pending.take()?;
        self.pacer.sent(at.millis());
        self.measure_schedules(at);
        let count = changes.len();
        let mut update = ScheduleUpdate { site: self.id.clone(), from, changes };
        let mut bytes = sizes::update_bytes(grid, update.clone());
        if bytes == 0 {
            // Too large for a message: an empty one shows that something is missing.
            update = ScheduleUpdate { from: advance(from, count), changes: Vec::new(), ..update };
            bytes = sizes::update_bytes(grid, update.clone());
        }
        let is_first = self.history.publish(Published { at, name, update });
        Some((bundled_bytes(bytes as usize) as u64, is_first))
    }

    fn measure_schedules(&mut self, at: Moment) {
        if let Some(ledger) = self.ledger() {
            self.schedules_bytes = sizes::answer_bytes(&sizes::first_part(&ledger.snapshot(clocks(at))));
        }
    }
}

/// Addresses that a node listens on: TCP and QUIC.
pub fn addresses(position: usize) -> [Multiaddr; 2] {
    let (high, low) = (position / 250 % 250, position % 250 + 1);
    ["tcp/7420", "udp/7420/quic-v1"].map(|port| {
        let address = format!("/ip4/198.18.{high}.{low}/{port}");
        address.parse().expect("all numbers are below 256")
    })
}

/// The shards that a node takes part in: its own, so that it can publish, and others by chance, ascending.
fn subscriptions(settings: &Settings, position: usize, own: usize) -> Vec<usize> {
    let mut others: Vec<usize> = (0..settings.shards).filter(|shard| *shard != own).collect();
    others.sort_by_key(|shard| drawn([settings.run.seed, SHARDS, position as u64, *shard as u64]));
    others.truncate(settings.subscriptions() - 1);
    others.push(own);
    others.sort_unstable();
    others
}
