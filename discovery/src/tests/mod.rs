//! Whole nodes in one process, over the in-memory transport where TCP is not the point. These tests run against real
//! timers and are not deterministic; they wait for conditions with a deadline, never for a time.

mod ban;
mod dht;
mod direct;
mod golden;
mod gossip;
mod gossip_checks;
mod large;
mod links;
mod membership;
mod next_version;
mod runs;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use broker::{
    amount::Amount,
    demand::Demand,
    features::Features,
    host::Host,
    ids::{HostId, RequestId, SiteId},
    protocol::{
        Advert, AttemptId, ChangeKind, HostChange, LedgerVersion, ScheduleChange, ScheduleSnapshot, ScheduleUpdate,
        SiteAnswer, SiteRequest, SiteSchedules,
    },
    request::{Request, RequestDocument},
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Millis, Time, Window},
};
use libp2p::Multiaddr;

use crate::{
    Discovery, DiscoveryConfig, GridId, Identity, Inbound, Query, ScheduleSource, TransportKind,
    counters::{Counter, Counters},
    dissemination::{fetch_queue::FetchQueue, outbox::Offer},
    health::PeerHealth,
    shared::Shared,
    start,
    view::SharedView,
    wire::{self, Dialect, Payload, Stamp},
};

const DEADLINE: Duration = Duration::from_secs(120);

/// A ledger that only counts.
pub(crate) struct TestLedger {
    site: SiteId,
    state: Mutex<(LedgerVersion, BTreeMap<HostId, Schedule>)>,
}

impl ScheduleSource for TestLedger {
    fn snapshot(&self) -> ScheduleSnapshot {
        let state = self.state.lock().unwrap();
        let hosts = state.1.iter().map(|(host, schedule)| (host.clone(), schedule.clone()));
        ScheduleSnapshot { site: self.site.clone(), version: state.0, schedules: SiteSchedules::new(hosts, []) }
    }

    fn version(&self) -> LedgerVersion {
        TestLedger::version(self)
    }
}

impl TestLedger {
    /// Occupies `cpu` of the host for an hour and returns the update that tells of it.
    fn occupy(&self, host: &str, cpu: u64) -> ScheduleUpdate {
        let mut state = self.state.lock().unwrap();
        let change = HostChange {
            host: HostId::new(host).unwrap(),
            window: hour(),
            amounts: amounts(cpu),
            kind: ChangeKind::Added,
        };
        let from = state.0;
        state.0.change += 1;
        state.1.entry(change.host.clone()).or_default().add(change.window, &change.amounts);
        ScheduleUpdate { site: self.site.clone(), from, changes: vec![ScheduleChange::Host(change)] }
    }

    fn version(&self) -> LedgerVersion {
        self.state.lock().unwrap().0
    }
}

/// A window in the far future, since the past is forgotten.
fn hour() -> Window {
    Window { start: Time(4_000_000_000), end: Time(4_000_003_600) }
}

fn cpu() -> ResourceName {
    ResourceName::new("cpu").unwrap()
}

fn amounts(amount: u64) -> Amounts {
    Amounts::from([(cpu(), Amount(amount))])
}

fn host(id: &str, cores: u64, arch: &str) -> Host {
    Host {
        id: HostId::new(id).unwrap(),
        capacity: amounts(cores * 1000),
        attributes: BTreeMap::from([("arch".to_owned(), arch.to_owned())]),
        speed: broker::host::Speed::REFERENCE,
        tariff: Default::default(),
    }
}

pub(crate) struct Node {
    pub(crate) discovery: Discovery,
    pub(crate) inbound: Inbound,
    ledger: Arc<TestLedger>,
}

/// Settings for one process full of nodes: everything happens sooner.
pub(crate) fn config(identity: &Identity) -> (DiscoveryConfig, Arc<TestLedger>) {
    let state = Mutex::new((LedgerVersion { incarnation: 1, change: 0 }, BTreeMap::new()));
    let ledger = Arc::new(TestLedger { site: identity.site_id().clone(), state });
    let mut config = DiscoveryConfig::new(GridId::new("test").unwrap(), Arc::clone(&ledger) as _);
    config.transport = TransportKind::Memory;
    config.listen = vec!["/memory/0".parse().unwrap()];
    config.intervals.gossip = Duration::from_millis(50);
    config.limits.gossip_per_author_in_10_s = 200;
    config.intervals.dht_put_pause = Duration::from_millis(5);
    config.intervals.housekeeping = Duration::from_millis(100);
    config.intervals.repair_jitter = Duration::from_millis(10);
    config.intervals.repair_patience = Duration::from_millis(300);
    config.intervals.request = Duration::from_secs(5);
    (config, ledger)
}

/// What a node without a swarm knows.
pub(crate) fn shared_alone() -> Arc<Shared> {
    let identity = Identity::generate().unwrap();
    let (config, _) = config(&identity);
    let counters = Arc::new(Counters::default());
    let wanted = FetchQueue::new(PeerHealth::default(), 10, Duration::ZERO, Duration::ZERO);
    let view = SharedView::new(identity.site_id().clone(), (10, 10), wanted, Arc::clone(&counters));
    let settings = (config, Dialect::default(), Arc::default());
    Arc::new(Shared::new(identity, settings, view, PeerHealth::default(), counters))
}

pub(crate) async fn node_with(bootstrap: &[Multiaddr], adjust: impl FnOnce(&mut DiscoveryConfig)) -> Node {
    let identity = Identity::generate().unwrap();
    let (mut config, ledger) = config(&identity);
    config.bootstrap = bootstrap.to_vec();
    adjust(&mut config);
    let (discovery, inbound) = start(identity, config).await.unwrap();
    Node { discovery, inbound, ledger }
}

async fn node(bootstrap: &[Multiaddr]) -> Node {
    node_with(bootstrap, |_| ()).await
}

/// Nodes that find each other through the first one, each with one host named after its place in the list.
async fn grid(count: usize, adjust: impl Fn(&mut DiscoveryConfig)) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for number in 0..count {
        let bootstrap = nodes.first().map(|first| first.discovery.listen_addresses()).unwrap_or_default();
        let node = node_with(&bootstrap, &adjust).await;
        let arch = if number % 2 == 0 { "x86_64" } else { "aarch64" };
        node.discovery
            .publish_advert(offer(format!("site {number}"), vec![host(&format!("h{number}"), 4, arch)]))
            .unwrap();
        nodes.push(node);
    }
    nodes
}

/// Waits until `holds`; fails with `what` at the deadline.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn demand(document: RequestDocument) -> Demand {
    let document = RequestDocument { hosts: document.hosts.max(1), duration: Some(60), ..document };
    Request::try_from(document).unwrap().demand().clone()
}

fn query(count: usize) -> Query {
    Query {
        count,
        enough: count,
        demand: demand(RequestDocument { per_host: amounts(1000), ..RequestDocument::default() }),
        max_schedule_age: Millis(60_000),
        ask_after: Millis(60_000),
        timeout: Millis(5_000),
        exclude: Default::default(),
    }
}

fn inquiry(of: &Node) -> SiteRequest {
    SiteRequest::Inquire(AttemptId {
        entry_point: of.discovery.site_id().clone(),
        request: RequestId::new("r1").unwrap(),
        attempt: 1,
    })
}

fn counter(node: &Node, counter: Counter) -> u64 {
    node.discovery.status().counters[counter.name()]
}

async fn answer_next(node: &mut Node, answer: SiteAnswer) -> SiteId {
    let request = tokio::time::timeout(DEADLINE, node.inbound.next()).await.unwrap().unwrap();
    request.reply.answer(answer);
    request.from
}

pub(crate) fn offer(name: String, hosts: Vec<Host>) -> Offer {
    Offer { name, hosts: hosts.into_iter().collect(), ..Offer::default() }
}

pub(crate) fn advert(of: &Identity, sequence: u64) -> Advert {
    Advert {
        site: of.site_id().clone(),
        name: "stranger".to_owned(),
        sequence,
        time_to_live_s: 60,
        contact: None,
        hosts: [host("h1", 4, "x86_64")].into_iter().collect(),
        uplink: None,
        quotes: false,
        addresses: Vec::new(),
        features: Features::own(),
        offer: Default::default(),
    }
}

pub(crate) fn sealed(by: &Identity, grid: &str, sent_ms: u64, advert: Advert) -> Vec<u8> {
    let stamp = Stamp { sequence: advert.sequence, sent_ms, time_to_live: Millis(60_000) };
    wire::seal(by, &GridId::new(grid).unwrap(), stamp, Payload::Advert(advert)).unwrap()
}
