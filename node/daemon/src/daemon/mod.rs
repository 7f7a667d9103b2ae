//! The daemon of a site: puts storage, ledger, discovery, requests and the local API together, and takes them apart
//! again in order.
//!
//! Invariant: what the disk remembers is in force before the first message is answered, and a disk that fails, or
//! a task that ends, stops the node.

mod clock_watch;
mod doors;
mod error;
mod room_watch;
mod runs;

use std::{
    collections::BTreeSet,
    io, mem,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    time::{Duration, Instant},
};

use broker::{
    ids::{RequestId, SiteId},
    ledger::{Kept, Ledger},
    trust::{Gate, SharedGate},
};
use discovery::{Discovery, DiscoveryConfig, GridId, Identity, Inbound, Limits, TransportKind};
use kolo_api::batch_run::RunQuestion;
use kolo_config::{ConfigSource, LogFormat, NodeConfig, Settings};
use kolo_runtime::{
    changes::Changes,
    clock::{Clock, clock_doubt, since_start, unix_ms, unix_time},
    metrics::Metrics,
    open_files::{self, Shares},
};
use kolo_storage::{
    Change, Remembered, Store, StoreError, StoreSettings,
    activation::{ActivationEvent, ActivationRecord},
    data_dir::{API_TOKEN_FILE, DataDir, DataDirError},
    notice::NoticeRecord,
};
use kolo_trust::GridFile;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};
use tracing::{info, warn};

pub use self::error::DaemonError;
use self::{clock_watch::watch_clock, doors::Doors};
use crate::{
    api::{
        batch_run::run_batches,
        events::watch_sites,
        operator_token::OperatorToken,
        sessions::Sessions,
        state::{ApiState, Strangers},
        tls::Tls,
        upkeep::Upkeep,
    },
    entry::{
        bookings::Bookings,
        driver::Coordinator,
        losses::look_for_losses,
        planning::Planning,
        requests::{Observers, Requests},
        waiting::Waiting,
    },
    net::{membership::Membership, roots_watch},
    notices::Teller,
    site::{
        activation::{Activations, Activator, Surroundings},
        feed::Feed,
        taken_back,
        task::{OwnSite, SharedLedger, SiteTask, own_site, warn_of},
        usable::Usable,
    },
};

/// How often the addresses of peers are looked at, and written down if they have changed: a node that crashes soon after
/// its start must find its grid again.
const REMEMBER_PEERS_EVERY: Duration = Duration::from_secs(5);
/// With so many written down they are only written again in every [`PEERS_LAST_TICKS`]-th round: each time costs a write to disk, and
/// in a large grid they change all the time.
const PEERS_ENOUGH: usize = 8;
/// See [`PEERS_ENOUGH`].
const PEERS_LAST_TICKS: u64 = 12;
/// Most addresses written down.
const REMEMBERED_PEERS_MAX: usize = 64;
/// How often it is seen whether another day has begun, whose prices are published then.
const RENEW_PRICES_EVERY: Duration = Duration::from_hours(1);
/// How long open API calls may go on when the node stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long each of what runs beside the site and discovery may take to end after that.
const CLOSE_GRACE: Duration = Duration::from_secs(3);

/// Runs a node until a signal to stop (SIGINT, SIGTERM) or its disk fails.
///
/// # Errors
/// [`DaemonError`] when it cannot start or has to stop.
pub async fn run(config: NodeConfig, source: ConfigSource) -> Result<(), DaemonError> {
    start_log(&config)?;
    let open_files = open_files::raise();
    Box::pin(run_from(config, Some(source), open_files, stop_signal(), |_| ())).await
}

/// Runs a node until `stop` or until its disk fails; calls `is_up` when it has started, with what it meets the grid through.
/// `open_files` is the limit that the process has.
///
/// # Errors
/// [`DaemonError`] when it cannot start or has to stop.
pub async fn run_until(
    config: NodeConfig,
    open_files: u64,
    stop: impl Future<Output = Result<(), DaemonError>>,
    is_up: impl FnOnce(Discovery),
) -> Result<(), DaemonError> {
    run_from(config, None, open_files, stop, is_up).await
}

/// [`run_until`], with a configuration that can be read again from `source`.
async fn run_from(
    config: NodeConfig,
    source: Option<ConfigSource>,
    open_files: u64,
    stop: impl Future<Output = Result<(), DaemonError>>,
    is_up: impl FnOnce(Discovery),
) -> Result<(), DaemonError> {
    let (clock, data_dir) = clock_watch::open(&config.data_dir)?;
    let grid = data_dir.grid(config.grid.clone())?;
    let (tokens, identity, token) = (data_dir.tokens()?, data_dir.identity()?, operator_token(&data_dir)?);
    let (store, mut remembered, waiting) = open_store(&config, &data_dir, identity.site_id(), clock).await?;
    let shares = shares_of(open_files);
    let doors = Doors::open(&config, &data_dir, shares).await?;
    let (site_id, gate) = (identity.site_id().clone(), open_gate(&config, &grid, &data_dir));
    let ledger = open_ledger(&config, &gate, &identity, remembered.incarnation, take_kept(&mut remembered), clock);
    let Remembered { requests: records, tied, activations, notices, known_peers, .. } = remembered;
    let membership = Arc::new(Membership::open(&data_dir, &site_id, grid.clone(), gate.clone(), clock)?);
    let discovery_config = discovery_config(&config, &grid, &known_peers, &ledger, &membership, shares)?;
    let (discovery, mut inbound) = discovery::start(identity, discovery_config).await?;
    let ((own_site, queue), (failed, failures)) = (own_site(site_id.clone()), mpsc::channel(1));
    let coordinator = coordinator(&discovery, &grid, own_site, &store, clock, &failed);
    let (changes, shown, usable) = (Changes::default(), Activations::default(), Usable::default());
    let metrics = Arc::new(Metrics::new(store.figures(), &ActivationEvent::ALL.map(ActivationEvent::name)));
    let observers = Observers { changes: changes.clone(), metrics: metrics.clone() };
    let books = (ledger.clone(), gate.clone());
    let feed = Feed::new(&config, coordinator.own_site.clone(), books, clock, metrics.clone());
    let requests = Arc::new(Requests::new(site_id, config.negotiation.clone(), clock, store.clone(), observers));
    let upkeep = upkeep((&config, &grid), source, doors.tls(), (data_dir, gate, ledger.clone(), discovery.clone()));
    let (runs, audit) = runs::site(&config, (&discovery, &grid), (&ledger, &usable, clock), shares.runs)?;
    let runs = upkeep.with_runs(runs);
    let api = Arc::new(ApiState {
        activations: shown.clone(),
        discovery: discovery.clone(),
        ledger: ledger.clone(),
        requests: requests.clone(),
        waiting,
        batch_runs: watch::Sender::new((config.settings.batch.every, RunQuestion::default())),
        bookings: Bookings::default(),
        coordinator: coordinator.clone(),
        feed: feed.state(),
        token,
        tokens,
        sessions: Sessions::default(),
        strangers: Strangers::new(Instant::now()).map_err(DataDirError::from)?,
        run_site: runs.clone(),
        audit,
        metrics: metrics.clone(),
        changes,
        name: config.name.clone(),
        membership,
        upkeep: upkeep.clone(),
        started: unix_ms() / 1000,
        port: doors.port.clone(),
        names: config.remote.as_ref().map(|remote| remote.names.clone()).unwrap_or_default(),
    });
    feed.begin().await;
    room_watch::look(&upkeep, &store);
    upkeep.advertise().map_err(|error| DaemonError::Value { key: "hosts", detail: error.to_string() })?;
    requests.resume(&coordinator, records, tied);
    doors.tell(&upkeep.data_dir)?;
    greet(&config, &grid, &discovery, &doors.port.address().to_string());
    is_up(discovery.clone());

    let around = surroundings(&coordinator, &ledger, &metrics, (shown, usable.clone()));
    let mut beside = start_activation(&config, activations, around, failed);
    start_notices(&config, &api, notices, &mut beside)?;
    let peers = watch_peers(&discovery, &store, !config.settings.bootstrap.is_empty());
    let site = SiteTask::new(queue, ledger, clock, store.clone(), discovery.clone(), requests, metrics);
    beside.spawn(feed.run(offering(upkeep.clone())));
    beside.spawn(runs.serve(inbound.take_runs()));
    beside.spawn(keep_up(api.clone(), clock)?);
    let end = (failures, first_to_end(discovery.ended(), &mut beside));
    let site = site.with_usable(usable).noting_use(runs::use_directory(&config).as_deref());
    let result = serve((site, inbound), doors, api, end, peers, stop).await;
    close(beside, discovery, &store).await;
    result
}

/// Takes out what the ledger has remembered.
fn take_kept(remembered: &mut Remembered) -> Kept {
    Kept {
        bookings: mem::take(&mut remembered.reservations),
        gone: mem::take(&mut remembered.gone),
        charges: mem::take(&mut remembered.charges),
        queue: mem::take(&mut remembered.queue),
    }
}

/// Ends what runs beside the site, and discovery last; what does not end in time is cut off.
async fn close(mut beside: JoinSet<()>, discovery: Discovery, store: &Store) {
    let of_peers = async {
        remember_peers(&discovery, store, Vec::new()).await;
        discovery.shutdown().await;
    };
    let are_over =
        [timeout(CLOSE_GRACE, beside.shutdown()).await.is_ok(), timeout(CLOSE_GRACE, of_peers).await.is_ok()];
    if are_over == [true; 2] {
        info!("stopped");
    } else {
        warn!("stopped; what did not end in time is cut off");
    }
}

fn coordinator(
    discovery: &Discovery,
    grid: &GridFile,
    own_site: OwnSite,
    store: &Store,
    clock: Clock,
    failed: &mpsc::Sender<String>,
) -> Coordinator {
    let (discovery, store, failed) = (discovery.clone(), store.clone(), failed.clone());
    Coordinator { discovery, grid: grid.id.clone(), own_site, store, clock, planning: Planning::default(), failed }
}

/// What the limit of open files leaves to each kind of connection.
fn shares_of(open_files: u64) -> Shares {
    let peers_max = Limits::default().connections_max;
    let shares = Shares::of(open_files, peers_max);
    if shares.is_short(peers_max) {
        warn!(
            open_files,
            local = shares.local,
            remote = shares.remote,
            peers = shares.peers,
            runs = shares.runs,
            "the limit of open files is low, so fewer connections are taken; raise it (ulimit -n, LimitNOFILE) for a large grid"
        );
    }
    shares
}

fn open_ledger(
    config: &NodeConfig,
    gate: &SharedGate,
    identity: &Identity,
    incarnation: u64,
    kept: Kept,
    clock: Clock,
) -> SharedLedger {
    let charges = kept.charges.clone();
    let (site, limits) = (identity.site_id().clone(), config.ledger.clone());
    let now = clock.now();
    let (mut ledger, misfits) = Ledger::open_with(site, limits, incarnation, gate.clone(), config.units(), kept, now);
    ledger.sign_receipts(identity.signing_key());
    warn_of(&misfits, now.utc);
    clock_watch::believe_where_nothing_is_lost(&ledger, gate);
    SharedLedger::new(ledger, clock, charges)
}

/// What telling the owner's hook needs of the node.
fn surroundings(
    coordinator: &Coordinator,
    ledger: &SharedLedger,
    metrics: &Arc<Metrics>,
    (shown, usable): (Activations, Usable),
) -> Surroundings {
    let (store, own_site) = (coordinator.store.clone(), coordinator.own_site.clone());
    let (ledger, metrics) = (ledger.clone(), metrics.clone());
    Surroundings { ledger, clock: coordinator.clock, store, metrics, shown, own_site, usable }
}

/// Starts to tell the owner's hook of reservations, if there is one; it stops with what is returned.
fn start_activation(
    config: &NodeConfig,
    records: Vec<ActivationRecord>,
    around: Surroundings,
    failed: mpsc::Sender<String>,
) -> JoinSet<()> {
    let mut task = JoinSet::new();
    if let Some(activator) = Activator::new(config, records, around) {
        task.spawn(lasting(activator.run(), failed));
    }
    task
}

/// Starts to tell whom the operator has named of requests, if anybody.
fn start_notices(
    config: &NodeConfig,
    api: &Arc<ApiState>,
    records: Vec<NoticeRecord>,
    beside: &mut JoinSet<()>,
) -> Result<(), DaemonError> {
    let coordinator = &api.coordinator;
    let teller = Teller::new(config, api.clone(), coordinator.store.clone(), records);
    let failed = coordinator.failed.clone();
    if let Some(teller) = teller.map_err(|detail| DaemonError::Value { key: "notices.url", detail })? {
        beside.spawn(lasting(teller.run(), failed));
    }
    Ok(())
}

/// Stops the node when the disk has failed for `task`.
async fn lasting(task: impl Future<Output = Result<(), StoreError>>, failed: mpsc::Sender<String>) {
    if let Err(error) = task.await {
        // One that failed before has stopped the node already.
        let _ = failed.try_send(error.to_string());
        // The node stops for that reason, and not because this task has ended.
        std::future::pending::<()>().await;
    }
}

async fn open_store(
    config: &NodeConfig,
    data_dir: &DataDir,
    site: &SiteId,
    clock: Clock,
) -> Result<(Store, Remembered, Waiting), StoreError> {
    let site = Some(site.clone());
    let settings =
        StoreSettings { history_keep: config.settings.storage.history_keep, site, ..StoreSettings::default() };
    let (store, mut remembered) = Store::open(&data_dir.ledger_path(), unix_ms(), settings)?;
    let requests: BTreeSet<&RequestId> = remembered.requests.iter().map(|record| &record.id).collect();
    let (waiting, policy) = (mem::take(&mut remembered.waiting), config.settings.batch.policy.clone());
    let is_request = |id: &RequestId| requests.contains(id);
    let waiting = Waiting::open(store.clone(), policy, waiting, clock.now().utc, is_request).await?;
    Ok((store, remembered, waiting))
}

/// Everything that goes on while the node is up; ends with the first part that ends.
async fn serve(
    (site, inbound): (SiteTask, Inbound),
    doors: Doors,
    api: Arc<ApiState>,
    (mut failures, task_ended): (mpsc::Receiver<String>, impl Future<Output = String>),
    peers: impl Future<Output = ()>,
    stop_signal: impl Future<Output = Result<(), DaemonError>>,
) -> Result<(), DaemonError> {
    let (stop, stopped) = watch::channel(false);
    let mut watching = tokio::spawn(watch_sites(api.clone()));
    let (mut doors, changes) = (doors.serve(&api, &stopped), api.changes.clone());
    // A task of the worker threads, as all that talks to it: the main thread only waits.
    let mut site = tokio::spawn(site.run(inbound));
    let result = tokio::select! {
        result = &mut site => match result {
            Ok(result) => result.map_err(DaemonError::from),
            Err(error) => Err(DaemonError::Stopped(format!("the site's task failed: {error}"))),
        },
        Some(what) = failures.recv() => Err(DaemonError::Stopped(what)),
        what = task_ended => Err(DaemonError::Stopped(what)),
        _ = &mut watching => Err(DaemonError::Stopped("the watch over the sites has ended".to_owned())),
        Some(_) = doors.join_next() => Err(DaemonError::Stopped("the API has ended".to_owned())),
        () = peers => Ok(()),
        result = stop_signal => result,
    };
    info!("stopping");
    site.abort();
    watching.abort();
    stop.send_replace(true);
    changes.stop();
    if timeout(STOP_GRACE, doors.join_all()).await.is_err() {
        info!("calls that were still open are cut off");
    }
    result
}

/// Waits until a task has ended that lasts as long as the node; says which.
async fn first_to_end(of_discovery: impl Future<Output = &'static str>, beside: &mut JoinSet<()>) -> String {
    let name = tokio::select! {
        name = of_discovery => name,
        Some(_) = beside.join_next() => "activation, notices, feed, runs, reload, batches or what is taken back",
    };
    format!("the task {name:?} has ended; what it said is above")
}

/// Waits for SIGINT or SIGTERM; from the call on these do not end the process by themselves.
///
/// # Errors
/// [`DaemonError`] when the process cannot wait for signals.
pub fn stop_signal() -> impl Future<Output = Result<(), DaemonError>> {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        let failed = |source: io::Error| DaemonError::Stopped(format!("cannot wait for signals: {source}"));
        let [interrupt, terminate] = signals;
        let (mut interrupt, mut terminate) = (interrupt.map_err(failed)?, terminate.map_err(failed)?);
        tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    }
}

/// Remembers peers while the node is up, and says so when one that wants to join a grid meets nobody.
async fn watch_peers(discovery: &Discovery, store: &Store, joins: bool) {
    let mut every = tokio::time::interval(REMEMBER_PEERS_EVERY);
    every.tick().await;
    let mut written = Vec::new();
    let mut is_lonely = false;
    for round in 0_u64.. {
        every.tick().await;
        let is_alone = joins && discovery.is_alone();
        if is_alone && !is_lonely {
            warn!(
                "no node of the grid answers at the bootstrap addresses; still trying. Check that they are right, that a \
                 node runs there, and that it belongs to the same grid"
            );
        } else if is_lonely && !is_alone {
            info!("the grid answers again");
        }
        is_lonely = is_alone;
        if written.len() < PEERS_ENOUGH || round % PEERS_LAST_TICKS == 0 {
            written = remember_peers(discovery, store, written).await;
        }
    }
}

/// Writes the addresses of peers down unless they are those in `written`; tells which are written now.
async fn remember_peers(discovery: &Discovery, store: &Store, written: Vec<String>) -> Vec<String> {
    let mut peers: Vec<String> = discovery.addresses_worth_remembering().iter().map(ToString::to_string).collect();
    peers.sort();
    peers.truncate(REMEMBERED_PEERS_MAX);
    // With nobody around, those met before are still the best to try.
    if peers.is_empty() || peers == written {
        return written;
    }
    match store.commit(vec![Change::KnownPeers(peers.clone())]).await {
        Ok(()) => peers,
        Err(error) => {
            warn!(%error, "the addresses of peers are not remembered");
            written
        }
    }
}

fn operator_token(data_dir: &DataDir) -> Result<OperatorToken, DataDirError> {
    Ok(OperatorToken::new(data_dir.path().join(API_TOKEN_FILE), data_dir.token()?))
}

fn open_gate(config: &NodeConfig, grid: &GridFile, data_dir: &DataDir) -> SharedGate {
    let mut gate = Gate::new(grid.trust(), config.policy.clone());
    gate.set_draining(data_dir.is_draining());
    gate.set_clock_believed(clock_doubt().is_none());
    let (allowed, images) = config.allowed();
    gate.set_allowed(allowed, images);
    gate.into()
}

fn upkeep(
    (config, grid): (&NodeConfig, &GridFile),
    source: Option<ConfigSource>,
    tls: Option<Tls>,
    (data_dir, gate, ledger, discovery): (DataDir, SharedGate, SharedLedger, Discovery),
) -> Arc<Upkeep> {
    // As it would be read now: at the first start of a node that makes a grid of its own nothing named the grid.
    let settings = Settings { grid: Some(grid.id.clone()), ..config.settings.clone() };
    let config = Mutex::new(NodeConfig { settings, ..config.clone() });
    let lacks_room = AtomicBool::default();
    Arc::new(Upkeep { data_dir, gate, ledger, discovery, tls, config, source, runs: OnceLock::new(), lacks_room })
}

/// Reads the configuration again with every SIGHUP. In a terminal that signal says that the terminal is gone, and ends the node.
fn reload_on_signal(upkeep: Arc<Upkeep>) -> Result<impl Future<Output = ()>, DaemonError> {
    let is_in_terminal = io::IsTerminal::is_terminal(&io::stdin());
    let hangup = (!is_in_terminal).then(|| signal(SignalKind::hangup())).transpose();
    let hangup = hangup.map_err(|source| DaemonError::Stopped(format!("cannot wait for signals: {source}")))?;
    Ok(async move {
        let Some(mut hangup) = hangup else { return std::future::pending().await };
        while hangup.recv().await.is_some() {
            let upkeep = upkeep.clone();
            // What it says is in the log.
            let _ = tokio::task::spawn_blocking(move || upkeep.reload_and_log()).await;
        }
    })
}

/// Keeps configuration, prices, clock, roots and the ledger's room up to date, looks for losses, takes back what revocations say, and runs
/// batches.
fn keep_up(api: Arc<ApiState>, clock: Clock) -> Result<impl Future<Output = ()>, DaemonError> {
    let upkeep = api.upkeep.clone();
    let reload = reload_on_signal(upkeep.clone())?;
    let room = room_watch::watch(upkeep.clone(), api.coordinator.store.clone());
    let losses = look_for_losses(api.requests.clone(), api.discovery.clone(), clock);
    let take_back = taken_back::run(api.ledger.clone(), api.membership.clone(), api.coordinator.own_site.clone());
    let roots = roots_watch::run(api.membership.clone(), api.discovery.clone());
    Ok(async move {
        let renewed = renew(upkeep.clone(), clock);
        tokio::join!(reload, renewed, watch_clock(upkeep), room, take_back, roots, losses, run_batches(api));
    })
}

/// Tells the grid what the site has, now that it may.
fn offering(upkeep: Arc<Upkeep>) -> impl Fn() {
    move || match upkeep.advertise() {
        Ok(()) => info!("the owner's own work is known: the site is offered to the grid"),
        Err(error) => warn!(%error, "the site is not offered"),
    }
}

/// Publishes the prices of one more day with every day.
async fn renew(upkeep: Arc<Upkeep>, clock: Clock) {
    let mut every = tokio::time::interval(RENEW_PRICES_EVERY);
    loop {
        every.tick().await;
        let (upkeep, now) = (upkeep.clone(), clock.now().utc);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || upkeep.renew(now)).await {
            warn!(%error, "the prices of the next days are not published; those of before stay in force");
        }
    }
}

fn greet(config: &NodeConfig, grid: &GridFile, discovery: &Discovery, api: &str) {
    let (name, hosts, form) = (&config.name, config.hosts.len(), grid.form());
    info!(site = %discovery.site_id(), name, grid = grid.id, form, hosts, api, "node is up");
    for address in discovery.listen_addresses() {
        if grid.root.is_some() {
            info!("listening on {address}");
        } else {
            info!("join this grid with: kolo node --grid {} --bootstrap {address}", grid.id);
        }
    }
}

/// Starts the log of the process as the node wants it.
///
/// # Errors
/// [`DaemonError`] when it has one already.
pub fn start_log(config: &NodeConfig) -> Result<(), DaemonError> {
    let config = &config.settings.log;
    let filter = tracing_subscriber::EnvFilter::try_new(&config.filter)
        .map_err(|error| DaemonError::Value { key: "log.filter", detail: error.to_string() })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let result = match config.format {
        LogFormat::Human => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    result.map_err(|error| DaemonError::Stopped(format!("cannot start the log: {error}")))
}

/// Addresses inside the process have a transport of their own.
fn transport(listen: &[String]) -> Result<TransportKind, DaemonError> {
    match listen.iter().filter(|address| address.starts_with("/memory/")).count() {
        0 => Ok(TransportKind::TcpAndQuic),
        inside if inside == listen.len() => Ok(TransportKind::Memory),
        _ => {
            let detail = "expected addresses inside the process (/memory/PORT) or of the network, not both".to_owned();
            Err(DaemonError::Value { key: "listen", detail })
        }
    }
}

fn discovery_config(
    config: &NodeConfig,
    grid: &GridFile,
    known_peers: &[String],
    ledger: &SharedLedger,
    membership: &Arc<Membership>,
    shares: Shares,
) -> Result<DiscoveryConfig, DaemonError> {
    let addresses = |key: &'static str, texts: &[String]| {
        let parse = |text: &String| {
            text.parse().map_err(|error| DaemonError::Value { key, detail: format!("{text:?}: {error}") })
        };
        texts.iter().map(parse).collect::<Result<Vec<discovery::Multiaddr>, DaemonError>>()
    };
    let grid = GridId::new(&grid.id).map_err(|error| DaemonError::Value { key: "grid", detail: error.to_string() })?;
    let mut discovery = DiscoveryConfig::new(grid, Arc::new(ledger.clone()));
    discovery.membership = Arc::<Membership>::clone(membership);
    discovery.present = unix_time;
    discovery.since_start = since_start;
    discovery.listen = addresses("listen", &config.settings.listen)?;
    discovery.announce = addresses("announce", &config.settings.announce)?;
    discovery.transport = transport(&config.settings.listen)?;
    if discovery.transport == TransportKind::TcpAndQuic {
        discovery.limits.connections_max = shares.peers;
    }
    let block = |text: &String| {
        text.parse().map_err(|error| DaemonError::Value { key: "dial_ranges", detail: format!("{text:?}: {error}") })
    };
    discovery.dial_ranges = config.settings.dial_ranges.iter().map(block).collect::<Result<_, DaemonError>>()?;
    discovery.bootstrap = addresses("bootstrap", &config.settings.bootstrap)?;
    // An address that an earlier version wrote and this one does not understand is no reason not to start.
    discovery.known_peers = known_peers.iter().filter_map(|text| text.parse().ok()).collect();
    discovery.link_tests = config.settings.uplink_tests;
    discovery.intervals.gossip = config.settings.gossip.interval;
    discovery.intervals.recheck = config.settings.gossip.recheck;
    discovery.limits.sites_eager_max = config.settings.gossip.asked_when_met;
    Ok(discovery)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lasting_task_that_ends_ends_the_node() {
        let mut beside = JoinSet::new();
        beside.spawn(std::future::pending());
        let ended = first_to_end(async { "swarm" }, &mut beside).await;
        assert!(ended.contains("\"swarm\""), "{ended}");
        beside.spawn(async { panic!("on purpose") });
        let ended = first_to_end(std::future::pending(), &mut beside).await;
        assert!(ended.contains("activation, notices, feed, runs, reload, batches or what is taken back"), "{ended}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_whose_swarm_has_ended_ends_with_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("site.toml");
        let data = directory.path().join("data");
        let text = format!(
            "data_dir = {data:?}\nname = \"alpha\"\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\napi = \"127.0.0.1:0\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let config = kolo_config::load_in_process(file).unwrap();
        let nobody_stops_it = std::future::pending();
        let node = run_until(config, 1024, nobody_stops_it, |discovery| drop(tokio::spawn(discovery.shutdown())));
        let ended = timeout(Duration::from_secs(60), Box::pin(node)).await.unwrap();
        assert!(matches!(&ended, Err(DaemonError::Stopped(why)) if why.contains("\"swarm\"")), "{ended:?}");
    }
}
