//! What a run does between the start of the nodes and their end, scenario by scenario.
//!
//! Invariant: whatever the scenario, all ledgers are checked at the end, with all nodes up.

use std::{
    io,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use broker::request::Request;

use super::{
    aftermath,
    args::Checked,
    cluster::{Cluster, Launch},
    crashes::{Crashes, Pattern},
    drive,
    error::GridError,
    findings::Findings,
    hostile::{self, Attackers, Phase, PhaseFigures},
    knowledge,
    live::{self, Pulse},
    load::{self, Load, Pace, Placed},
    load_figures::Before,
    memory,
    network::{HALVES, Network},
    newcomers::Newcomers,
    partition::{Cut, PartitionFigures},
    process::system,
    progress::Progress,
    rest,
    scenario::Scenario,
    search::RateSearch,
    settle,
};

/// How long the load runs before a cut, so that some reservations reach across it.
const BEFORE_CUT: Duration = Duration::from_secs(3);

/// A formed or forming grid and what is to be done with it.
pub struct Run<'a> {
    /// The nodes.
    pub cluster: &'a Cluster,
    /// How they were started, with what is to be started later.
    pub launch: &'a Launch<'a>,
    /// What was asked for.
    pub checked: &'a Checked,
    /// The requests, in the time of the run.
    pub requests: &'a [Request],
    /// What can be cut, where the scenario needs that.
    pub network: Option<&'a Network>,
    /// Name of the grid.
    pub grid: &'a str,
    /// Shows how far it is.
    pub progress: &'a Progress,
}

impl Run<'_> {
    /// Waits for the grid to form, drives it through the scenario, and checks what is left.
    ///
    /// # Errors
    /// [`GridError`] when something ends the run early; what was found until then is in `findings`.
    pub fn drive_and_check(&self, findings: &mut Findings) -> Result<(), GridError> {
        self.progress.stage("forming the grid", self.checked.nodes);
        findings.formation = knowledge::formation(self.cluster, findings.hosts, |known| self.progress.at(known))?;
        match self.checked.scenario {
            Scenario::Rounds => self.rounds(findings)?,
            Scenario::Crashes { kills } => self.crashes(kills, findings)?,
            Scenario::Partition { cut } => self.partition(cut, findings)?,
            Scenario::Hostile { attackers, per_second, duration } => {
                self.hostile(attackers, Pace::Open { per_second }, duration, findings)?;
            }
            Scenario::Open { per_second, duration, churn } => {
                let placed = self.open("load", per_second, duration, churn, findings)?;
                self.examine(placed, findings)?;
            }
            Scenario::FindRate { first, duration, p99 } => self.find_rate(first, duration, p99, findings)?,
        }
        findings.memory = Some(memory::measure(&self.cluster.pids(), self.cluster.nodes.len()));
        Ok(())
    }

    fn rounds(&self, findings: &mut Findings) -> Result<(), GridError> {
        let (cluster, checked) = (self.cluster, self.checked);
        self.progress.stage("requests", self.requests.len());
        let at = |done| self.progress.at(done);
        drive::drive(cluster, self.requests, checked.at_once, checked.seed, &mut findings.driven, at)?;
        self.progress.stage("checking ledgers", checked.nodes);
        findings.violations = settle::check_ledgers(cluster, &findings.driven.answers)?;
        Ok(())
    }

    fn crashes(&self, kills: usize, findings: &mut Findings) -> Result<(), GridError> {
        self.progress.stage("kills under load", kills);
        let newcomers = Newcomers::new(self.cluster, self.launch);
        let crashes = Crashes::new(self.cluster, Pattern::kills(kills), &newcomers);
        let (seed, never) = (self.checked.seed, AtomicBool::new(false));
        let kill = || crashes.run(seed, &never, |done| self.progress.at(done));
        let (placed, recoveries) = self.under_load("load", self.users(), kill)?;
        findings.recoveries = Some(recoveries);
        self.examine(placed, findings)
    }

    fn partition(&self, cut: Duration, findings: &mut Findings) -> Result<(), GridError> {
        let missing = || system("cannot cut the grid")(io::Error::other("its nodes share one network"));
        let network = self.network.ok_or_else(missing)?;
        self.progress.stage("cut in two under load", self.checked.nodes);
        let (placed, cut) = self.under_load("load", self.users(), || {
            self.cluster.pass(BEFORE_CUT)?;
            network.cut(&HALVES)?;
            let begun = Instant::now();
            self.cluster.pass(cut)?;
            network.heal(&HALVES)?;
            let healed = Instant::now();
            let agreed = knowledge::agreement(self.cluster, healed)?;
            Ok(Cut { begun, healed, agreed })
        })?;
        let figures = PartitionFigures::new(&cut, &placed, self.checked.nodes);
        findings.failed_checks.extend(figures.failed_checks());
        findings.partition = Some(figures);
        self.examine(placed, findings)
    }

    fn hostile(
        &self,
        attackers: usize,
        pace: Pace,
        duration: Duration,
        findings: &mut Findings,
    ) -> Result<(), GridError> {
        self.wait_for_rest(findings)?;
        let mut all = Vec::new();
        for phase in Phase::ALL {
            self.progress.stage(phase.name(), self.checked.nodes);
            let attackers = Attackers::start(self.cluster, self.grid, phase, attackers, &self.checked.attacks)?;
            let attack = || hostile::watch(self.cluster, attackers, duration);
            let (mut placed, measured) = self.under_load(phase.name(), pace, attack)?;
            findings.hostile.push(PhaseFigures::new(phase, &placed, measured, findings.hostile.first()));
            // The next phase finds the grid as this one did.
            load::take_all_back(self.cluster, &mut placed)?;
            all.extend(placed);
        }
        self.examine(all, findings)
    }

    /// A load at `per_second` for `duration`, on a grid that is at rest.
    fn open(
        &self,
        name: &str,
        per_second: f64,
        duration: Duration,
        churn: bool,
        findings: &mut Findings,
    ) -> Result<Vec<Placed>, GridError> {
        self.wait_for_rest(findings)?;
        self.progress.stage(&format!("open load, {per_second:.1} a second"), self.checked.nodes);
        let before = Before::look(self.cluster);
        let newcomers = Newcomers::new(self.cluster, self.launch);
        let (placed, recoveries) = self.under_load(name, Pace::Open { per_second }, || {
            if !churn {
                return self.cluster.pass(duration).map(|()| None);
            }
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let crashes = Crashes::new(self.cluster, Pattern::churn(), &newcomers);
                let churning = scope.spawn(|| crashes.run(self.checked.seed, &over, |_| ()));
                let passed = self.cluster.pass(duration);
                over.store(true, Ordering::Relaxed);
                let recoveries = churning.join().unwrap_or_else(|panic| resume_unwind(panic))?;
                passed.map(|()| Some(recoveries))
            })
        })?;
        findings.loads.push(before.figures(self.cluster, per_second, &placed));
        findings.joins = recoveries.is_some().then(|| newcomers.into_joins());
        findings.recoveries = recoveries;
        Ok(placed)
    }

    fn wait_for_rest(&self, findings: &mut Findings) -> Result<(), GridError> {
        self.progress.stage("waiting for rest", self.checked.nodes);
        findings.rest = Some(rest::wait(self.cluster)?);
        Ok(())
    }

    fn find_rate(
        &self,
        first: f64,
        duration: Duration,
        p99: Duration,
        findings: &mut Findings,
    ) -> Result<(), GridError> {
        let mut search = RateSearch::new(first);
        let mut all = Vec::new();
        while let Some(rate) = search.next() {
            let name = format!("step-{}", findings.loads.len() + 1);
            let mut placed = self.open(&name, rate, duration, false, findings)?;
            load::take_all_back(self.cluster, &mut placed)?;
            all.extend(placed);
            search.tried(rate, findings.loads.last().is_some_and(|load| load.has_kept_up(p99)));
        }
        findings.highest_rate = search.highest();
        self.examine(all, findings)
    }

    /// As many users as requests go out at the same moment in a run without faults.
    fn users(&self) -> Pace {
        Pace::Closed { users: self.checked.at_once }
    }

    /// Keeps users busy for as long as `happening` lasts.
    fn under_load<T>(
        &self,
        name: &str,
        pace: Pace,
        happening: impl FnOnce() -> Result<T, GridError>,
    ) -> Result<(Vec<Placed>, T), GridError> {
        let (cluster, requests, seed) = (self.cluster, self.requests, self.checked.seed);
        let pulse = Pulse::new();
        let standing_max = 2 * self.checked.nodes;
        let load = Load { cluster, requests, name, seed, pace, standing_max, pulse: &pulse };
        let (over, is_answered) = (AtomicBool::new(false), AtomicBool::new(false));
        let (placed, happened) = thread::scope(|scope| {
            scope.spawn(|| live::show(&pulse, cluster, self.progress, &is_answered));
            let users = scope.spawn(|| load.run(&over));
            let happened = happening();
            over.store(true, Ordering::Relaxed);
            let placed = users.join();
            is_answered.store(true, Ordering::Relaxed);
            (placed.unwrap_or_else(|panic| resume_unwind(panic)), happened)
        });
        // What happened to the grid says more than what the users saw of it.
        let happened = happened?;
        Ok((placed?, happened))
    }

    fn examine(&self, mut placed: Vec<Placed>, findings: &mut Findings) -> Result<(), GridError> {
        self.progress.stage("checking promises and ledgers", self.checked.nodes);
        let examined = aftermath::examine(self.cluster, &mut placed);
        findings.driven.answers.extend(placed.into_iter().map(|one| one.answer));
        let examined = examined?;
        findings.aftermath = Some(examined.aftermath);
        findings.violations = examined.violations;
        findings.failed_checks.extend(examined.failed_checks);
        knowledge::agreement(self.cluster, Instant::now()).map(|_| ())
    }
}
