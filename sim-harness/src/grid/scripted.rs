//! Plays scenario files on real `kolo` processes: each site is a node, and where links are cut each has a network
//! namespace of its own.
//!
//! Not deterministic, as everything real. Invariant: nothing waits for a fixed time and hopes; every look has a deadline in
//! the scenario or here, and looks for crashes first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use broker::{
    request::Request,
    schedule::Schedule,
    snapshot::{GridSnapshot, SnapshotHost},
    time::Span,
};

use super::{
    Files, allow_open_files,
    args::find_kolo,
    client::ClientError,
    cluster::{Cluster, Launch, Node},
    error::GridError,
    interrupt::Interrupt,
    invariants::{self, Told, Violation},
    network::{self, Network},
    place::Place,
    process::{LossTiming, NodeTiming, system, without_own_settings},
    seconds_since_epoch,
    wait::{Look, wait_until},
    wire::{BookingState, Freshness, Ledger, RequestState, RequestView, SiteRow},
    workload::shifted_request,
};
use crate::scenario::{
    play::{self, Bookings, Outcomes, Played, Sight, WorldError},
    step::{Action, Asked, GridSettings, Outcome, ScenarioFile, Site, Submission},
};

/// Least time between two gossip messages of a node: scenarios are short and want news soon.
const GOSSIP: Duration = Duration::from_millis(100);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a user's command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// How long requests may take in the end until nothing more happens to them: a node's default patience twice over.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// How long something may stay in a ledger of which no user was told: the longest hold that a site grants by default, and
/// the time in which a site that has come back learns what was decided without it.
const LEFTOVERS_LIMIT: Duration = Duration::from_secs(120);
/// Exit code of `kolo repair` when it acts for the request and has not yet found what is lost.
const STILL_DEGRADED: i32 = 2;

/// Plays a scenario. When something did not come true, data and logs of the nodes are kept; where.
///
/// # Errors
/// [`GridError`] when there is nothing to play it on, or the run is interrupted.
pub fn play(
    file: &ScenarioFile,
    kolo: Option<PathBuf>,
    tell: &impl Fn(&Played),
) -> Result<(Outcomes, Option<PathBuf>), GridError> {
    let kolo = find_kolo(kolo)?;
    if file.has_cuts() {
        network::enter()?;
    }
    allow_open_files();
    let files = Files::make(None)?;
    let interrupt = Interrupt::install()?;
    let order = file.starting_order();
    let network = file.has_cuts().then(|| Network::make(order.len())).transpose()?;
    let parts: Vec<usize> = (0..order.len()).collect();
    let places = match &network {
        Some(network) => network.places(&parts)?,
        None => parts.iter().map(|index| Place::loopback(*index)).collect(),
    };
    let epoch = seconds_since_epoch();
    let (names, nodes): (Vec<String>, Vec<GridSnapshot>) =
        order.iter().map(|site| (site.to_string(), snapshot(&file.grid, *site))).unzip();
    let losses = LossTiming { check: file.grid.check, lost_after: file.grid.lost_after };
    let launch = Launch {
        kolo: &kolo,
        places: &places,
        in_process: false,
        timing: NodeTiming { gossip: GOSSIP, losses: Some(losses), asking: None },
        run_dir: files.run_dir.path(),
        log_dir: files.log_dir(),
        nodes: &nodes,
        names: &names,
        epoch: Span(epoch),
        grid: &format!("kolo-sim-{epoch}-{}", std::process::id()),
        is_closed: false,
    };
    let mut processes = Processes {
        launch: &launch,
        network: network.as_ref(),
        positions: order.into_iter().zip(parts).collect(),
        cut: BTreeSet::new(),
        cluster: Cluster::empty(nodes.len(), None, &interrupt),
        requests: BTreeMap::new(),
        begun: Instant::now(),
    };
    let played = play::play(file, &mut processes, tell);
    let bad_ends = processes.cluster.stop();
    let mut outcomes = played?;
    outcomes.violations.extend(bad_ends);
    let kept = (!outcomes.is_good()).then(|| files.run_dir.keep());
    Ok((outcomes, kept))
}

fn snapshot(settings: &GridSettings, site: Site) -> GridSnapshot {
    let id = GridSettings::site_id(site);
    let entry = |host| SnapshotHost { site: id.clone(), host, schedule: Schedule::default() };
    GridSnapshot { hosts: settings.hosts(site).into_iter().map(entry).collect() }
}

/// A request that was submitted.
struct Submitted {
    /// The request, in the time of the run.
    request: Request,
    /// What the entry point calls it.
    id: String,
    /// The entry point that its user is with.
    with: Site,
    /// What its user signs with.
    key: PathBuf,
    /// What a node said that would not take it over.
    refused: Option<String>,
}

/// Real nodes that do what a scenario says.
struct Processes<'a> {
    launch: &'a Launch<'a>,
    network: Option<&'a Network>,
    /// Where each site is among the nodes, and among the parts of the network.
    positions: BTreeMap<Site, usize>,
    /// Links that are cut.
    cut: BTreeSet<(usize, usize)>,
    cluster: Cluster,
    requests: BTreeMap<Asked, Submitted>,
    begun: Instant,
}

impl Processes<'_> {
    /// The node of a site that has been started.
    fn node(&self, site: Site) -> &Node {
        // A file in which a site is used before its start is refused when it is read.
        &self.cluster.nodes[self.positions[&site]]
    }

    fn running(&self) -> impl Iterator<Item = &Node> {
        self.cluster.nodes.iter().filter(|node| node.process.is_running())
    }

    fn start(&mut self, sites: &[Site]) -> Result<(), GridError> {
        let ever = self.cluster.nodes.len();
        let positions: Vec<usize> = sites.iter().map(|site| self.positions[site]).collect();
        for position in positions.iter().filter(|position| **position < ever) {
            self.cluster.revive(*position)?;
        }
        let more = positions.iter().filter(|position| **position >= ever).count();
        let bootstrap: Vec<String> = self.running().map(Node::address).collect();
        self.cluster.grow(self.launch, ever + more, &bootstrap, |_| ())
    }

    fn leave(&self, site: Site) -> Result<(), WorldError> {
        self.cluster.leave(self.positions[&site])?;
        self.node(site).process.bad_end().map_or(Ok(()), |what| Err(WorldError::Violated(what)))
    }

    fn submit(&mut self, all: &[Submission]) -> Result<(), GridError> {
        let barrier = Barrier::new(all.len());
        let now = Span(seconds_since_epoch());
        let this = &*self;
        let submit = |submission: &Submission| {
            let node = this.node(submission.through);
            // Opens the connection, so that all are as ready as each other. If it cannot, the submission tells why.
            let _ = node.client().status();
            barrier.wait();
            let request = shifted_request(&submission.request, now);
            let view = node.client().submit(&request).map_err(asking(node))?;
            let key = node.data_dir.join("user.key");
            let submitted = Submitted { request, id: view.id, with: submission.through, key, refused: None };
            Ok((submission.asked.clone(), submitted))
        };
        let submitted: Vec<Result<_, GridError>> = thread::scope(|scope| {
            let users: Vec<_> = all.iter().map(|one| scope.spawn(|| submit(one))).collect();
            users.into_iter().map(|user| user.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        for one in submitted {
            let (asked, submitted) = one?;
            self.requests.insert(asked, submitted);
        }
        Ok(())
    }

    fn cancel(&mut self, asked: &Asked) -> Result<(), GridError> {
        let Some(submitted) = self.requests.get(asked) else { return Ok(()) };
        let node = self.node(submitted.with);
        node.client().cancel(&submitted.id).map(|_| ()).map_err(asking(node))
    }

    /// The user of a request turns to another node, with the key that signed it.
    fn repair(&mut self, asked: &Asked, through: Site) -> Result<(), GridError> {
        let Some(submitted) = self.requests.get(asked) else { return Ok(()) };
        let log = self.launch.log_dir.join(format!("repair-{}-{through}.log", asked.number));
        let arguments = ["repair", &submitted.id, "--output", "json", "--key"];
        let code = self.kolo(through, &arguments, &submitted.key, &log)?;
        if let Some(submitted) = self.requests.get_mut(asked) {
            if matches!(code, Some(0 | STILL_DEGRADED)) {
                (submitted.with, submitted.refused) = (through, None);
            } else {
                submitted.refused = Some(format!("{through} did not take it over, see {}", log.display()));
            }
        }
        Ok(())
    }

    /// Runs `kolo` against a node; its exit code.
    fn kolo(&self, site: Site, arguments: &[&str], key: &Path, log: &Path) -> Result<Option<i32>, GridError> {
        let failed = || system("cannot run kolo");
        let node = self.node(site);
        let out = File::create(log).map_err(failed())?;
        let mut command = Command::new(self.launch.kolo);
        without_own_settings(&mut command);
        command.args(arguments).arg(key).args(["--api", node.client().address()]);
        command.arg("--token-file").arg(node.data_dir.join("api.token"));
        command.stdin(Stdio::null()).stdout(out.try_clone().map_err(failed())?).stderr(out);
        let mut child = command.spawn().map_err(failed())?;
        let ended = wait_until(
            "the end of kolo",
            COMMAND_LIMIT,
            PAUSE,
            || self.cluster.check(),
            || {
                let status = child.try_wait().map_err(failed())?;
                Ok(status.map_or_else(|| Look::NotYet("running".to_owned()), Look::Done))
            },
        );
        if ended.is_err() {
            // Whatever ended the wait says more than a failure to end the command.
            let _ = child.kill();
            let _ = child.wait();
        }
        ended.map(|status| status.code())
    }

    fn cut(&mut self, part: &[Site], one_way: bool) -> Result<(), GridError> {
        let inside: BTreeSet<usize> = part.iter().filter_map(|site| self.positions.get(site)).copied().collect();
        let mut links = BTreeSet::new();
        for from in &inside {
            for to in self.positions.values().filter(|to| !inside.contains(to)) {
                links.insert((*from, *to));
                if !one_way {
                    links.insert((*to, *from));
                }
            }
        }
        let links: Vec<(usize, usize)> = links.difference(&self.cut).copied().collect();
        self.network.map_or(Ok(()), |network| network.cut(&links))?;
        self.cut.extend(links);
        Ok(())
    }

    fn heal(&mut self) -> Result<(), GridError> {
        let links: Vec<(usize, usize)> = self.cut.iter().copied().collect();
        self.network.map_or(Ok(()), |network| network.heal(&links))?;
        self.cut.clear();
        Ok(())
    }

    /// What the entry point of a request shows; in words, why it shows nothing.
    fn view(&self, submitted: &Submitted) -> Result<RequestView, String> {
        let node = self.node(submitted.with);
        if !node.process.is_running() {
            return Err("its entry point does not run".to_owned());
        }
        node.client().find(&submitted.id).map_err(|error| error.to_string())
    }

    /// Waits until nothing more happens to a request. In words, what still does when the time for that is over.
    fn unsettled(&self, asked: &Asked, submitted: &Submitted) -> Result<Option<String>, GridError> {
        let what = format!("the end of {asked}");
        let look = || {
            Ok(match self.view(submitted) {
                Ok(view) if view.state.is_final() => Look::Done(()),
                Ok(view) => Look::NotYet(words(view.state)),
                Err(why) => Look::NotYet(why),
            })
        };
        match wait_until(&what, SETTLE_LIMIT, PAUSE, || self.cluster.check(), look) {
            Ok(()) => Ok(None),
            Err(error @ GridError::Deadline { .. }) => Ok(Some(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Holds what users are told against the ledgers of the nodes that run.
    fn violations(&self) -> Result<Vec<Violation>, GridError> {
        let views: Vec<(&Request, RequestView)> = self
            .requests
            .values()
            .filter_map(|submitted| Some((&submitted.request, self.view(submitted).ok()?)))
            .collect();
        let told: Vec<Told<'_>> = views.iter().map(|(request, view)| Told { request, view }).collect();
        let now = i64::try_from(seconds_since_epoch()).unwrap_or(i64::MAX);
        Ok(invariants::check(&ledgers(self.running())?, &told, now))
    }

    /// What does not hold when what only takes its time has had it.
    fn settled_violations(&self) -> Result<Vec<Violation>, GridError> {
        let begun = Instant::now();
        loop {
            let may_pass = begun.elapsed() < LEFTOVERS_LIMIT;
            match self.violations() {
                // A node that does not answer may answer when asked again.
                Err(GridError::Client { .. }) if may_pass => {}
                Ok(found) if may_pass && !found.is_empty() && found.iter().all(Violation::may_pass) => {}
                found => return found,
            }
            self.cluster.pass(PAUSE)?;
        }
    }
}

/// The ledgers of nodes; the first error where one does not answer.
fn ledgers<'a>(nodes: impl Iterator<Item = &'a Node>) -> Result<Vec<Ledger>, GridError> {
    nodes.map(|node| node.client().ledger().map_err(asking(node))).collect()
}

/// An error of asking a node.
fn asking(node: &Node) -> impl FnOnce(ClientError) -> GridError {
    let node = node.name.clone();
    move |source| GridError::Client { node, source }
}

fn words(state: RequestState) -> String {
    format!("{state:?}").to_lowercase()
}

impl play::World for Processes<'_> {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn pass(&mut self, until: Duration) -> Result<(), WorldError> {
        Ok(self.cluster.pass(until.saturating_sub(self.begun.elapsed()).min(PAUSE))?)
    }

    fn act(&mut self, action: &Action) -> Result<(), WorldError> {
        match action {
            Action::Start(sites) => self.start(sites)?,
            Action::Stop(sites) => sites.iter().try_for_each(|site| self.leave(*site))?,
            Action::Shrink { site, hosts } => {
                self.leave(*site)?;
                let position = self.positions[site];
                let mut left = self.launch.nodes[position].clone();
                left.hosts.truncate(*hosts);
                self.launch.write_hosts(position, &left)?;
                self.cluster.revive(position)?;
            }
            Action::Kill(sites) => sites.iter().for_each(|site| self.node(*site).process.kill()),
            Action::Submit(all) => self.submit(all)?,
            Action::Cancel(asked) => self.cancel(asked)?,
            Action::Repair { asked, through } => self.repair(asked, *through)?,
            Action::Cut { part, one_way } => self.cut(part, *one_way)?,
            Action::Heal => self.heal()?,
        }
        Ok(self.cluster.check()?)
    }

    fn sight(&mut self, asked: &Asked) -> Result<Sight, WorldError> {
        let Some(submitted) = self.requests.get(asked) else { return Ok(Sight::UnderWay("never asked".to_owned())) };
        if let Some(refused) = &submitted.refused {
            return Ok(Sight::UnderWay(refused.clone()));
        }
        Ok(match self.view(submitted) {
            Err(why) => Sight::UnderWay(why),
            Ok(view) => match view.state {
                RequestState::Confirmed | RequestState::Active | RequestState::Ended => {
                    Sight::Decided(Outcome::Reserved)
                }
                RequestState::Rejected => Sight::Decided(Outcome::Rejected),
                RequestState::Refused | RequestState::Failed => Sight::Decided(Outcome::Failed),
                // Its sites are still to be told, which dead ones cannot be.
                RequestState::Cancelled | RequestState::Cancelling => Sight::Decided(Outcome::Cancelled),
                RequestState::Degraded => Sight::Decided(Outcome::Degraded),
                state => Sight::UnderWay(words(state)),
            },
        })
    }

    fn bookings(&mut self, asked: Option<&Asked>, at: &[Site]) -> Result<Bookings, WorldError> {
        let id = asked.and_then(|asked| self.requests.get(asked)).map(|submitted| submitted.id.as_str());
        let mut found = Bookings::default();
        for booking in ledgers(at.iter().map(|site| self.node(*site)))?.iter().flat_map(|ledger| &ledger.bookings) {
            if asked.is_none() || Some(booking.request.as_str()) == id {
                match booking.state {
                    BookingState::Held => found.held += booking.grants.len(),
                    BookingState::Confirmed => found.confirmed += booking.grants.len(),
                }
            }
        }
        Ok(found)
    }

    fn missing_knowledge(&mut self, at: &[Site], sites: &[Site]) -> Result<Option<String>, WorldError> {
        let mut versions = Vec::new();
        for site in sites {
            let node = self.node(*site);
            versions.push((*site, &node.site, node.client().status().map_err(asking(node))?.ledger_version));
        }
        for one in at {
            let node = self.node(*one);
            let rows = node.client().sites().map_err(asking(node))?.sites;
            for (other, id, version) in versions.iter().filter(|(other, ..)| other != one) {
                let is_known = |row: &SiteRow| {
                    let is_new = row.ledger_version.is_some_and(|known| known >= *version);
                    row.site == **id && row.schedule == Freshness::Current && is_new
                };
                if !rows.iter().any(is_known) {
                    return Ok(Some(format!("{one} does not know {other} as it is")));
                }
            }
        }
        Ok(None)
    }

    fn violation(&mut self) -> Result<Option<String>, WorldError> {
        Ok(self.violations()?.first().map(ToString::to_string))
    }

    fn settle(&mut self) -> Result<Vec<String>, WorldError> {
        self.heal()?;
        let nodes = self.cluster.nodes.iter().enumerate();
        let down: Vec<usize> =
            nodes.filter(|(_, node)| !node.process.is_running()).map(|(position, _)| position).collect();
        down.into_iter().try_for_each(|position| self.cluster.revive(position))?;
        let mut wrong = Vec::new();
        for (asked, submitted) in &self.requests {
            wrong.extend(self.unsettled(asked, submitted)?);
        }
        // What goes on for ever leaves something in the ledgers, which would be told a second time.
        if wrong.is_empty() {
            wrong.extend(self.settled_violations()?.iter().map(ToString::to_string));
        }
        Ok(wrong)
    }
}
