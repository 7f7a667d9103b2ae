//! Plays scenario files on real `kolo` processes: each site is a node, and where links are cut each has a network
//! namespace of its own.
//!
//! Not deterministic, as everything real. Invariant: nothing waits for a fixed time and hopes; every look has a deadline in
//! the scenario or here, and looks for crashes first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use broker::{
    request::Request,
    schedule::Schedule,
    snapshot::{GridSnapshot, SnapshotHost},
    time::Span,
};

use super::{
    play::{self, Bookings, Outcomes, Played, Sight},
    step::{Action, Asked, GridSettings, ScenarioFile, Site, Submission, What},
};
use crate::{
    grid::{
        args::find_kolo,
        checks::invariants::{self, Reported, Violation},
        nodes::{
            client::ClientError,
            cluster::{Cluster, Node},
            launch::{Launch, LossTiming, NodeSetup, NodeTiming},
            machine::{allow_open_files, make_run_dir, seconds_since_epoch},
            network::{self, Network},
            place::Place,
            process::without_own_settings,
            wait::{Deadline, Interrupt, Wait, on_threads},
            wire::{BookingState, Freshness, Ledger, RequestState, RequestView, SiteRow},
        },
    },
    shift::shifted_request,
};

/// Least time between two gossip messages of a node: scenarios are short and want news soon.
const GOSSIP: Duration = Duration::from_millis(100);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a user's command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// How long requests may take in the end until nothing more happens to them: a node's default patience twice over.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// How long something may stay in a ledger that was acknowledged to no user: the longest hold that a site grants by default, and
/// the time in which a site that has come back learns the outcome of what was decided without it.
const LEFTOVERS_LIMIT: Duration = Duration::from_secs(120);
/// Exit code of `kolo repair` when the node is the coordinator and has not yet replaced what is lost.
const STILL_DEGRADED: i32 = 2;

/// Plays a scenario. When something did not come true, data and logs of the nodes are kept; where.
pub fn play(
    file: &ScenarioFile,
    kolo: Option<&Path>,
    progress: &impl Fn(&Played),
) -> anyhow::Result<(Outcomes, Option<PathBuf>)> {
    let kolo = find_kolo(kolo)?;
    if file.has_cuts() {
        network::enter()?;
    }
    allow_open_files();
    let run_dir = make_run_dir()?;
    let interrupt = Interrupt::install()?;
    let order = file.starting_order();
    let network = file.has_cuts().then(|| Network::make(order.len())).transpose()?;
    let parts: Vec<usize> = (0..order.len()).collect();
    let places = match &network {
        Some(network) => network.places(&parts)?,
        None => parts.iter().map(|index| Place::loopback(*index)).collect(),
    };
    let epoch = Span(seconds_since_epoch());
    let setup =
        |(site, place): (&Site, Place)| NodeSetup { name: site.to_string(), place, hosts: snapshot(&file.grid, *site) };
    let losses = LossTiming { check: file.grid.check, lost_after: file.grid.lost_after };
    let launch = Launch {
        kolo,
        run_dir: run_dir.path().to_owned(),
        nodes: order.iter().zip(places).map(setup).collect(),
        in_process: false,
        timing: NodeTiming { gossip: GOSSIP, losses: Some(losses), asking: None },
        epoch,
        grid: format!("kolo-sim-{}-{}", epoch.0, std::process::id()),
        is_closed: false,
        limits_strangers: false,
        uplink_mbps: None,
    };
    let mut processes = Processes {
        network: network.as_ref(),
        positions: order.into_iter().zip(parts).collect(),
        cut: BTreeSet::new(),
        cluster: Cluster::new(launch, interrupt),
        requests: BTreeMap::new(),
        begun: Instant::now(),
    };
    let played = play::play(file, &mut processes, progress);
    let bad_ends = processes.cluster.stop();
    let mut outcomes = played?;
    outcomes.violations.extend(bad_ends);
    let kept = (!outcomes.is_good()).then(|| run_dir.keep());
    Ok((outcomes, kept))
}

fn snapshot(settings: &GridSettings, site: Site) -> GridSnapshot {
    let id = GridSettings::site_id(site);
    let entry = |host| SnapshotHost { site: id.clone(), host, schedule: Schedule::default() };
    GridSnapshot { hosts: settings.hosts(site).into_iter().map(entry).collect(), ..GridSnapshot::default() }
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
    /// Why a node would not take it over.
    refused: Option<String>,
}

/// Real nodes that do what a scenario says.
struct Processes<'a> {
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
    fn node(&self, site: Site) -> Arc<Node> {
        // A file in which a site is used before its start is refused when it is read.
        self.cluster.node(self.positions[&site])
    }

    fn running(&self) -> Vec<Arc<Node>> {
        self.cluster.nodes().into_iter().filter(|node| node.process.is_running()).collect()
    }

    fn start(&mut self, sites: &[Site]) -> anyhow::Result<()> {
        let ever = self.cluster.len();
        let positions: Vec<usize> = sites.iter().map(|site| self.positions[site]).collect();
        for position in positions.iter().filter(|position| **position < ever) {
            self.cluster.revive(*position)?;
        }
        let more = positions.iter().filter(|position| **position >= ever).count();
        let bootstrap: Vec<String> = self.running().iter().map(|node| node.address.clone()).collect();
        self.cluster.grow(ever + more, &bootstrap, |_| ())
    }

    fn leave(&self, site: Site) -> anyhow::Result<()> {
        self.cluster.leave(self.positions[&site])?;
        if let Some(what) = self.node(site).process.bad_end() {
            bail!("violated: {what}");
        }
        Ok(())
    }

    fn submit(&mut self, all: &[Submission]) -> anyhow::Result<()> {
        let barrier = Barrier::new(all.len());
        let now = Span(seconds_since_epoch());
        let this = &*self;
        let submit = |submission: &Submission| {
            let node = this.node(submission.through);
            // Opens the connection, so that all are equally ready. If that fails, the submission says why.
            let _ = node.client().status();
            barrier.wait();
            let request = shifted_request(&submission.request, now);
            let view = node.client().submit(&request).with_context(|| node.name.clone())?;
            let key = node.data_dir.join("user.key");
            let submitted = Submitted { request, id: view.id, with: submission.through, key, refused: None };
            Ok((submission.asked.clone(), submitted))
        };
        let submitted: Vec<anyhow::Result<_>> = on_threads(all.len(), |number| submit(&all[number]));
        for one in submitted {
            let (asked, submitted) = one?;
            self.requests.insert(asked, submitted);
        }
        Ok(())
    }

    fn cancel(&mut self, asked: &Asked) -> anyhow::Result<()> {
        let Some(submitted) = self.requests.get(asked) else { return Ok(()) };
        let node = self.node(submitted.with);
        node.client().cancel(&submitted.id).map(|_| ()).with_context(|| node.name.clone())
    }

    /// The user of a request turns to another node, with the key that signed it.
    fn repair(&mut self, asked: &Asked, through: Site) -> anyhow::Result<()> {
        let Some(submitted) = self.requests.get(asked) else { return Ok(()) };
        let log = self.cluster.launch.run_dir.join(format!("repair-{}-{through}.log", asked.number));
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
    fn kolo(&self, site: Site, arguments: &[&str], key: &Path, log: &Path) -> anyhow::Result<Option<i32>> {
        let node = self.node(site);
        let out = File::create(log).context("cannot run kolo")?;
        let mut command = Command::new(&self.cluster.launch.kolo);
        without_own_settings(&mut command);
        command.args(arguments).arg(key).args(["--api", node.client().address()]);
        command.arg("--token-file").arg(node.data_dir.join("api.token"));
        command.stdin(Stdio::null()).stdout(out.try_clone().context("cannot run kolo")?).stderr(out);
        let mut child = command.spawn().context("cannot run kolo")?;
        let wait = Wait { what: "the end of kolo", limit: COMMAND_LIMIT, pause: PAUSE };
        let look = || match child.try_wait() {
            Ok(None) => Err("running".to_owned()),
            ended => Ok(ended),
        };
        let ended = wait.until(|| self.cluster.check(), look);
        if ended.is_err() {
            // Whatever ended the wait says more than a failure to end the command.
            let _ = child.kill();
            let _ = child.wait();
        }
        Ok(ended?.context("cannot run kolo")?.and_then(|status| status.code()))
    }

    fn cut(&mut self, part: &[Site], one_way: bool) -> anyhow::Result<()> {
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

    fn heal(&mut self) -> anyhow::Result<()> {
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
    fn unsettled(&self, asked: &Asked, submitted: &Submitted) -> anyhow::Result<Option<String>> {
        let what = format!("the end of {asked}");
        let look = || match self.view(submitted)? {
            view if view.state.is_final() => Ok(()),
            view => Err(words(view.state)),
        };
        match (Wait { what: &what, limit: SETTLE_LIMIT, pause: PAUSE }).until(|| self.cluster.check(), look) {
            Err(error) if error.is::<Deadline>() => Ok(Some(error.to_string())),
            settled => settled.map(|()| None),
        }
    }

    /// Compares what entry points report with the ledgers of the nodes that run.
    fn violations(&self) -> anyhow::Result<Vec<Violation>> {
        let views: Vec<(&Request, RequestView)> = self
            .requests
            .values()
            .filter_map(|submitted| Some((&submitted.request, self.view(submitted).ok()?)))
            .collect();
        let reported: Vec<Reported<'_>> = views.iter().map(|(request, view)| Reported { request, view }).collect();
        let now = i64::try_from(seconds_since_epoch()).unwrap_or(i64::MAX);
        Ok(invariants::check(&ledgers(&self.running())?, &self.cluster.sites(), &reported, now))
    }

    /// What does not hold once everything that only takes time has had its time.
    fn settled_violations(&self) -> anyhow::Result<Vec<Violation>> {
        let begun = Instant::now();
        loop {
            let may_pass = begun.elapsed() < LEFTOVERS_LIMIT;
            match self.violations() {
                // A node that does not answer may answer when asked again.
                Err(error) if may_pass && error.is::<ClientError>() => {}
                Ok(found) if may_pass && !found.is_empty() && found.iter().all(Violation::may_pass) => {}
                found => return found,
            }
            self.cluster.pass(PAUSE)?;
        }
    }
}

/// The ledgers of nodes; the first error where one does not answer.
fn ledgers(nodes: &[Arc<Node>]) -> anyhow::Result<Vec<Ledger>> {
    nodes.iter().map(|node| node.client().ledger().with_context(|| node.name.clone())).collect()
}

fn words(state: RequestState) -> String {
    format!("{state:?}").to_lowercase()
}

impl play::World for Processes<'_> {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn pass(&mut self, until: Duration) -> anyhow::Result<()> {
        self.cluster.pass(until.saturating_sub(self.begun.elapsed()).min(PAUSE))
    }

    fn act(&mut self, action: &Action, _: &str) -> anyhow::Result<()> {
        match action {
            Action::Start { start } => self.start(start)?,
            Action::Stop { stop } => stop.iter().try_for_each(|site| self.leave(*site))?,
            Action::Shrink { shrink: site, hosts } => {
                self.leave(*site)?;
                let position = self.positions[site];
                let mut left = self.cluster.launch.nodes[position].hosts.clone();
                left.hosts.truncate(*hosts);
                self.cluster.launch.write_hosts(position, &left)?;
                self.cluster.revive(position)?;
            }
            Action::Kill { kill } => kill.iter().for_each(|site| self.node(*site).process.kill()),
            Action::Submit(all) => self.submit(all)?,
            Action::Cancel { cancel } => self.cancel(cancel)?,
            Action::Repair { repair, through } => self.repair(repair, *through)?,
            Action::Cut { cut, one_way } => self.cut(cut, one_way.unwrap_or_default())?,
            Action::Heal { .. } => self.heal()?,
        }
        self.cluster.check()
    }

    fn sight(&mut self, asked: &Asked) -> anyhow::Result<Sight> {
        let Some(submitted) = self.requests.get(asked) else { return Ok(Sight::UnderWay("never asked".to_owned())) };
        if let Some(refused) = &submitted.refused {
            return Ok(Sight::UnderWay(refused.clone()));
        }
        Ok(match self.view(submitted) {
            Err(why) => Sight::UnderWay(why),
            Ok(view) => match view.state {
                RequestState::Confirmed | RequestState::Active | RequestState::Ended => Sight::Decided(What::Reserved),
                RequestState::Rejected => Sight::Decided(What::Rejected),
                RequestState::Refused | RequestState::Failed => Sight::Decided(What::Failed),
                // Its sites still have to release their parts, which dead ones cannot.
                RequestState::Cancelled | RequestState::Cancelling => Sight::Decided(What::Cancelled),
                RequestState::Degraded => Sight::Decided(What::Degraded),
                state => Sight::UnderWay(words(state)),
            },
        })
    }

    fn bookings(&mut self, asked: Option<&Asked>, at: &[Site]) -> anyhow::Result<Bookings> {
        let id = asked.and_then(|asked| self.requests.get(asked)).map(|submitted| submitted.id.as_str());
        let nodes: Vec<Arc<Node>> = at.iter().map(|site| self.node(*site)).collect();
        let mut found = Bookings::default();
        for booking in ledgers(&nodes)?.iter().flat_map(|ledger| &ledger.bookings) {
            if asked.is_none() || Some(booking.request.as_str()) == id {
                match booking.state {
                    BookingState::Held => found.held += booking.grants.len(),
                    BookingState::Confirmed => found.confirmed += booking.grants.len(),
                }
            }
        }
        Ok(found)
    }

    fn missing_knowledge(&mut self, at: &[Site], sites: &[Site]) -> anyhow::Result<Option<String>> {
        let mut versions = Vec::new();
        for site in sites {
            let node = self.node(*site);
            let version = node.client().status().with_context(|| node.name.clone())?.ledger_version;
            versions.push((*site, node.site.clone(), version));
        }
        for one in at {
            let node = self.node(*one);
            let rows = node.client().sites().with_context(|| node.name.clone())?;
            for (other, id, version) in versions.iter().filter(|(other, ..)| other != one) {
                let is_known = |row: &SiteRow| {
                    let is_new = row.ledger_version.is_some_and(|known| known >= *version);
                    row.site == *id && row.schedule == Freshness::Current && is_new
                };
                if !rows.iter().any(is_known) {
                    return Ok(Some(format!("{one} does not know {other} as it is")));
                }
            }
        }
        Ok(None)
    }

    fn violation(&mut self) -> anyhow::Result<Option<String>> {
        Ok(self.violations()?.first().map(ToString::to_string))
    }

    fn settle(&mut self) -> anyhow::Result<Vec<String>> {
        self.heal()?;
        let nodes = self.cluster.nodes();
        let mut down = nodes.iter().filter(|node| !node.process.is_running());
        down.try_for_each(|node| self.cluster.revive(node.position))?;
        let mut wrong = Vec::new();
        for (asked, submitted) in &self.requests {
            wrong.extend(self.unsettled(asked, submitted)?);
        }
        // What goes on for ever leaves something in the ledgers, which would be reported a second time.
        if wrong.is_empty() {
            wrong.extend(self.settled_violations()?.iter().map(ToString::to_string));
        }
        Ok(wrong)
    }
}
