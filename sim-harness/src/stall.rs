//! `kolo-sim stall`: whether a node goes on answering while it plans.
//!
//! A real `kolo node` process knows the hosts of some sites of this process. One of these asks it over the network for the status of an
//! attempt, again and again: first while the node does nothing else, then while it plans on all hosts in a loop. Not
//! deterministic. Invariant: each question is asked when it is due and its time counts from there, so that a node that
//! stalls is seen by all questions of that while.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use broker::{
    amount::Amount,
    ids::{RequestId, SiteId},
    protocol::{AttemptId, LedgerVersion, ScheduleSnapshot, SiteRequest, SiteSchedules},
    request::{Request, RequestDocument},
    snapshot::{GridSnapshot, SnapshotHost},
    time::{Millis, Span, Time, Window},
};
use clap::builder::RangedU64ValueParser;
use discovery::{Discovery, DiscoveryConfig, GridId, Identity, Inbound, Offer, ScheduleSource};
use serde::Serialize;
use sim_kit::{duration, generate, print::OutputForm, report::Table, stats::Sample};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use crate::grid::{
    args::find_kolo,
    nodes::{
        client::Client,
        cluster::Cluster,
        launch::{Launch, NodeSetup, NodeTiming},
        machine::{make_run_dir, seconds_since_epoch},
        place::{PROXIES, Place, own_loopback},
        wait::{Interrupt, Wait},
        wire::Freshness,
    },
};

/// Hosts of one site, somewhat below what a site may have.
const HOSTS_PER_SITE: usize = 1000;
/// Between two questions; a node lets one peer ask 500 times a second.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// How long an answer is waited for.
const PATIENCE: Millis = Millis(10_000);
/// Longest wait until the node knows all hosts.
const KNOWN_LIMIT: Duration = Duration::from_secs(60);
const KNOWN_PAUSE: Duration = Duration::from_millis(100);
/// Most sites, of the most hosts.
const SITES_MAX: usize = 10;
/// A grid that has just formed publishes all once more after a quarter of a minute.
const SETTLED_AFTER: Duration = Duration::from_secs(20);
/// How long questions are asked before any counts.
const WARM_UP: Duration = Duration::from_secs(1);
/// The seed of the hosts.
const SEED: u64 = 1;

/// Ask a real node questions, with and without planning beside, and compare how long the answers take.
#[derive(Debug, clap::Args)]
pub struct StallArgs {
    /// Hosts to plan on.
    #[arg(long, default_value = "10000", value_parser = RangedU64ValueParser::<usize>::new().range(100..=10_000))]
    hosts: usize,
    /// How long questions are asked, with planning and without.
    #[arg(long, default_value = "10s", value_parser = duration::within(Duration::from_secs(1)..=Duration::from_secs(3600)))]
    duration: Duration,
    /// Longest time that 99 of 100 questions may take beside planning; above it the exit code is 1.
    #[arg(long, default_value = "20ms", value_parser = duration::parse)]
    p99: Duration,
    /// What is printed on standard output.
    #[arg(long, value_enum, default_value = "table")]
    output: OutputForm,
    /// The `kolo` binary [default: the one beside this binary].
    #[arg(long, value_name = "PATH")]
    kolo: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Answers {
    asked: usize,
    failed: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

#[derive(Debug, Serialize)]
struct Document {
    hosts: usize,
    alone: Answers,
    beside_planning: Answers,
    plans: usize,
    plan_ms: f64,
}

/// Runs the command. The exit code is 0 when the answers came in time, otherwise 1.
pub fn run(args: &StallArgs) -> anyhow::Result<ExitCode> {
    let run_dir = make_run_dir()?;
    let grid = format!("kolo-sim-stall-{}-{}", seconds_since_epoch(), std::process::id());
    let launch = Launch {
        kolo: find_kolo(args.kolo.as_deref())?,
        run_dir: run_dir.path().to_owned(),
        nodes: vec![NodeSetup {
            name: "node-001".to_owned(),
            place: Place::loopback(0),
            hosts: generate::free_grid(SEED, 1),
        }],
        in_process: false,
        timing: NodeTiming { gossip: Duration::from_millis(200), losses: None, asking: None },
        epoch: Span(seconds_since_epoch()),
        grid: grid.clone(),
        is_closed: false,
        limits_strangers: false,
        uplink_mbps: None,
    };
    let cluster = Cluster::new(launch, Interrupt::install()?);
    cluster.start(1, |_| ())?;
    let measured = measure(args, &cluster, &grid);
    let bad_ends = cluster.stop();
    let document = measured?;
    ensure!(bad_ends.is_empty(), bad_ends.join("; "));
    args.output.print(|| text(&document), &document)?;
    let in_time = Duration::from_secs_f64(document.beside_planning.p99_ms / 1000.0) <= args.p99;
    let is_good = in_time && document.beside_planning.failed == 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(args: &StallArgs, cluster: &Cluster, grid: &str) -> anyhow::Result<Document> {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    // Threads of its own, so that what the sites do stalls no question.
    let (of_sites, runtime) = (runtime()?, runtime()?);
    let node = cluster.node(0);
    let client = node.client();
    let hosts = generate::free_grid(SEED, args.hosts);
    let sites = of_sites.block_on(start_sites(&hosts, grid, &node.address))?;
    wait_until_known(cluster, &client, sites.len())?;
    cluster.pass(SETTLED_AFTER)?;
    let (asker, _inbound) = runtime.block_on(start_site(&[], grid, (SITES_MAX, &node.address)))?;
    let target: SiteId = node.site.parse()?;
    runtime.block_on(ask(&asker, &target, WARM_UP))?;
    let alone = runtime.block_on(ask(&asker, &target, args.duration))?;
    let request = request_of_all(args.hosts)?;
    let is_over = AtomicBool::new(false);
    let (beside_planning, (plans, plan_ms)) = thread::scope(|scope| {
        let planning = scope.spawn(|| plan_until(&is_over, &client, &request, args.hosts));
        let asked = runtime.block_on(ask(&asker, &target, args.duration));
        is_over.store(true, Ordering::Relaxed);
        let planned = planning.join().map_err(|_| anyhow::anyhow!("the planning thread has panicked"))?;
        anyhow::Ok((asked?, planned?))
    })?;
    Ok(Document { hosts: args.hosts, alone, beside_planning, plans, plan_ms })
}

/// Starts the sites that have the hosts, in touch with the node at `address`.
async fn start_sites(hosts: &GridSnapshot, grid: &str, address: &str) -> anyhow::Result<Vec<(Discovery, Inbound)>> {
    let mut sites = Vec::new();
    for (number, entries) in hosts.hosts.chunks(HOSTS_PER_SITE).enumerate() {
        sites.push(start_site(entries, grid, (number, address)).await?);
    }
    Ok(sites)
}

/// Starts a site with some hosts; one without only asks.
async fn start_site(
    entries: &[SnapshotHost],
    grid: &str,
    (number, address): (usize, &str),
) -> anyhow::Result<(Discovery, Inbound)> {
    let identity = Identity::generate()?;
    let books = Books::of(identity.site_id().clone(), entries);
    let mut config = DiscoveryConfig::new(GridId::new(grid)?, Arc::new(books));
    config.listen = vec![format!("/ip4/{}/tcp/0", own_loopback(PROXIES, number)).parse()?];
    config.bootstrap = vec![address.parse()?];
    config.gossip = !entries.is_empty();
    let (discovery, inbound) = discovery::start(identity, config).await?;
    if !entries.is_empty() {
        let hosts = entries.iter().map(|entry| entry.host.clone()).collect();
        discovery.publish_advert(Offer { name: format!("site-{number}"), hosts, ..Offer::default() })?;
    }
    Ok((discovery, inbound))
}

/// What the hosts of a site are busy with: an hour of all that each has, at a time of its own within the day to come.
struct Books(ScheduleSnapshot);

impl Books {
    fn of(site: SiteId, entries: &[SnapshotHost]) -> Books {
        let now = i64::try_from(seconds_since_epoch()).unwrap_or(i64::MAX);
        let busy = |(number, entry): (i64, &SnapshotHost)| {
            let start = Time(now + number * 7919 % generate::DAY_S);
            let mut schedule = entry.schedule.clone();
            schedule.add(Window { start, end: Time(start.0 + 3600) }, &entry.host.capacity);
            (entry.host.id.clone(), schedule)
        };
        let version = LedgerVersion { incarnation: 1, change: 0 };
        Books(ScheduleSnapshot { site, version, schedules: SiteSchedules::new((0..).zip(entries).map(busy), []) })
    }
}

impl ScheduleSource for Books {
    fn snapshot(&self) -> ScheduleSnapshot {
        self.0.clone()
    }

    fn version(&self) -> LedgerVersion {
        self.0.version
    }
}

fn wait_until_known(cluster: &Cluster, client: &Client, sites: usize) -> anyhow::Result<()> {
    let wait = Wait { what: "the node to know all hosts", limit: KNOWN_LIMIT, pause: KNOWN_PAUSE };
    wait.until(
        || cluster.check(),
        || {
            let others = client.sites()?.into_iter().filter(|site| !site.this_node);
            let current = others.filter(|site| matches!(site.schedule, Freshness::Current)).count();
            if current == sites { Ok(()) } else { Err(format!("it knows {current} of {sites} sites")) }
        },
    )
}

/// A request for which all hosts are looked at: a third of them, all at once.
fn request_of_all(hosts: usize) -> anyhow::Result<Request> {
    let seats = u32::try_from(hosts.div_ceil(3) + 1).context("too many hosts")?;
    let per_host = [("cpu".parse()?, Amount(500))].into();
    let document = RequestDocument { hosts: seats, duration: Some(3600), per_host, ..RequestDocument::default() };
    Ok(Request::try_from(document)?)
}

/// Lets the node plan until it is over; how many plans there were, and the median of their times in milliseconds.
fn plan_until(is_over: &AtomicBool, client: &Client, request: &Request, hosts: usize) -> anyhow::Result<(usize, f64)> {
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let plan = client.plan(request)?;
        if plan.hosts_seen < hosts {
            bail!("the node planned on {} hosts, not on {hosts}: {}", plan.hosts_seen, plan.outcome);
        }
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    let plans = times.len();
    Ok((plans, times.into_iter().collect::<Sample>().median()))
}

/// Asks the node for a while about an attempt that it does not know.
async fn ask(asker: &Discovery, target: &SiteId, how_long: Duration) -> anyhow::Result<Answers> {
    let attempt = AttemptId { entry_point: asker.site_id().clone(), request: RequestId::new("none")?, attempt: 1 };
    let mut every = tokio::time::interval(ASK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let until = Instant::now() + how_long;
    let mut answers = JoinSet::new();
    loop {
        let due = every.tick().await;
        if due >= until {
            break;
        }
        let (asker, target, request) = (asker.clone(), target.clone(), SiteRequest::Inquire(attempt.clone()));
        answers.spawn(async move { asker.ask(&target, request, PATIENCE).await.ok().map(|_| due.elapsed()) });
    }
    let taken: Vec<Option<Duration>> = answers.join_all().await;
    let sample: Sample = taken.iter().flatten().map(|taken| taken.as_secs_f64() * 1000.0).collect();
    Ok(Answers {
        asked: taken.len(),
        failed: taken.iter().filter(|taken| taken.is_none()).count(),
        p50_ms: sample.percentile(50),
        p99_ms: sample.percentile(99),
        max_ms: sample.percentile(100),
    })
}

fn text(document: &Document) -> String {
    let Document { hosts, alone, beside_planning, plans, plan_ms } = document;
    let mut table = Table::new(["questions to a node", "asked", "failed", "p50 ms", "p99 ms", "most ms"]);
    for (name, answers) in [("alone", alone), ("beside planning", beside_planning)] {
        let counts = [answers.asked, answers.failed].map(|count| count.to_string());
        let times = [answers.p50_ms, answers.p99_ms, answers.max_ms].map(|ms| format!("{ms:.1}"));
        table.row(name, counts.into_iter().chain(times));
    }
    format!("{}\n{plans} plans on {hosts} hosts, {plan_ms:.0} ms each (median)\n", table.text())
}
