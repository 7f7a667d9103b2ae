//! What a run does between the start of the nodes and their end, experiment by experiment.
//!
//! Invariant: whatever the experiment, all ledgers are checked at the end, with all nodes up.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use broker::request::Request;

use super::{
    args::GridArgs,
    checks::aftermath,
    experiment::Experiment,
    faults::{
        attack::{self, Attackers, Phase, PhaseFigures},
        crashes::{Crashes, Pattern},
        newcomers::Newcomers,
        partition::{Cut, PartitionFigures},
    },
    load::{
        figures::Before,
        live::{self, Pulse},
        rounds,
        search::RateSearch,
        users::{self, Load, Pace, Placed},
    },
    nodes::{
        cluster::Cluster,
        knowledge,
        launch::Launch,
        network::{HALVES, Network},
    },
    report::findings::{Findings, Memory},
};
use crate::hostile::Attack;
use crate::progress::Progress;

/// How long the load runs before a cut, so that some reservations reach across it.
const BEFORE_CUT: Duration = Duration::from_secs(3);

/// A formed or forming grid and what is to be done with it.
pub struct Run<'a> {
    pub cluster: &'a Cluster,
    /// How they were started, with what is to be started later.
    pub launch: &'a Launch<'a>,
    /// What was asked for.
    pub args: &'a GridArgs,
    pub experiment: &'a Experiment,
    /// The requests, in the time of the run.
    pub requests: &'a [Request],
    /// What can be cut, where the experiment needs that.
    pub network: Option<&'a Network>,
    pub grid: &'a str,
    /// Shows how far it is.
    pub progress: &'a Progress,
}

impl Run<'_> {
    /// Waits for the grid to form, drives it through the experiment, and checks what is left.
    pub fn drive_and_check(&self, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("forming the grid", self.args.nodes);
        findings.formation = knowledge::formation(self.cluster, findings.hosts, |known| self.at(known))?;
        match self.experiment {
            Experiment::Rounds => self.rounds(findings)?,
            Experiment::Crashes { kills } => self.crashes(*kills, findings)?,
            Experiment::Partition { cut } => self.partition(*cut, findings)?,
            Experiment::Hostile { attackers, attacks, per_second, duration } => {
                let pace = Pace::Open { per_second: *per_second };
                self.hostile((*attackers, attacks), pace, *duration, findings)?;
            }
            Experiment::Open { per_second, duration, churn } => {
                let placed = self.open("load", *per_second, *duration, *churn, findings)?;
                self.examine(placed, findings)?;
            }
            Experiment::FindRate { first, duration, p99 } => self.find_rate(*first, *duration, *p99, findings)?,
        }
        findings.memory = Some(Memory::measure(&self.cluster.pids(), self.cluster.nodes.len()));
        Ok(())
    }

    fn rounds(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let (cluster, args) = (self.cluster, self.args);
        self.stage("requests", self.requests.len());
        let at = |done| self.at(done);
        rounds::drive(cluster, self.requests, args.at_once(), args.seed, &mut findings.driven, at)?;
        self.stage("checking ledgers", args.nodes);
        findings.violations = aftermath::check_ledgers(cluster, &findings.driven.answers)?;
        Ok(())
    }

    fn crashes(&self, kills: usize, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("kills under load", kills);
        let newcomers = Newcomers::new(self.cluster, self.launch);
        let crashes = Crashes::new(self.cluster, Pattern::kills(kills), &newcomers);
        let (seed, never) = (self.args.seed, AtomicBool::new(false));
        let kill = || crashes.run(seed, &never, |done| self.at(done));
        let (placed, recoveries) = self.under_load("load", self.users(), kill)?;
        findings.recoveries = Some(recoveries);
        self.examine(placed, findings)
    }

    fn partition(&self, cut: Duration, findings: &mut Findings) -> anyhow::Result<()> {
        let network = self.network.context("cannot cut the grid: its nodes share one network")?;
        self.stage("cut in two under load", self.args.nodes);
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
        let figures = PartitionFigures::new(&cut, &placed, self.args.nodes);
        findings.failed_checks.extend(figures.failed_checks());
        findings.partition = Some(figures);
        self.examine(placed, findings)
    }

    fn hostile(
        &self,
        (attackers, attacks): (usize, &[Attack]),
        pace: Pace,
        duration: Duration,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        self.wait_for_rest(findings)?;
        let mut all = Vec::new();
        for phase in Phase::ALL {
            self.stage(phase.name(), self.args.nodes);
            let attackers = Attackers::start(self.cluster, self.grid, phase, attackers, attacks)?;
            let attack = || attack::watch(self.cluster, attackers, duration);
            let (mut placed, measured) = self.under_load(phase.name(), pace, attack)?;
            findings.hostile.push(PhaseFigures::new(phase, &placed, measured, findings.hostile.first()));
            // The next phase finds the grid as this one did.
            users::cancel_all(self.cluster, &mut placed)?;
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
    ) -> anyhow::Result<Vec<Placed>> {
        self.wait_for_rest(findings)?;
        self.stage(&format!("open load, {per_second:.1} a second"), self.args.nodes);
        let before = Before::look(self.cluster);
        let newcomers = Newcomers::new(self.cluster, self.launch);
        let (placed, recoveries) = self.under_load(name, Pace::Open { per_second }, || {
            if !churn {
                return self.cluster.pass(duration).map(|()| None);
            }
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let crashes = Crashes::new(self.cluster, Pattern::churn(), &newcomers);
                let churning = scope.spawn(|| crashes.run(self.args.seed, &over, |_| ()));
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

    fn wait_for_rest(&self, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("waiting for rest", self.args.nodes);
        findings.rest = Some(self.cluster.rest()?);
        Ok(())
    }

    fn find_rate(&self, first: f64, duration: Duration, p99: Duration, findings: &mut Findings) -> anyhow::Result<()> {
        let mut search = RateSearch::new(first);
        let mut all = Vec::new();
        while let Some(rate) = search.next() {
            let name = format!("step-{}", findings.loads.len() + 1);
            let mut placed = self.open(&name, rate, duration, false, findings)?;
            users::cancel_all(self.cluster, &mut placed)?;
            all.extend(placed);
            search.tried(rate, findings.loads.last().is_some_and(|load| load.has_kept_up(p99)));
        }
        findings.highest_rate = search.highest();
        self.examine(all, findings)
    }

    /// As many users as a run without faults has requests at the same moment.
    fn users(&self) -> Pace {
        Pace::Closed { users: self.args.at_once() }
    }

    fn stage(&self, name: &str, steps: usize) {
        self.progress.begin(name, steps as u64);
    }

    fn at(&self, done: usize) {
        self.progress.at(done as u64);
    }

    /// Keeps users busy for as long as `happening` lasts.
    fn under_load<T>(
        &self,
        name: &str,
        pace: Pace,
        happening: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Vec<Placed>, T)> {
        let (cluster, requests, seed) = (self.cluster, self.requests, self.args.seed);
        let pulse = Pulse::new();
        let standing_max = 2 * self.args.nodes;
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

    fn examine(&self, mut placed: Vec<Placed>, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("checking reservations and ledgers", self.args.nodes);
        let examined = aftermath::examine(self.cluster, &mut placed);
        findings.driven.answers.extend(placed.into_iter().map(|one| one.answer));
        let examined = examined?;
        findings.aftermath = Some(examined.aftermath);
        findings.violations = examined.violations;
        findings.failed_checks.extend(examined.failed_checks);
        knowledge::agreement(self.cluster, Instant::now()).map(|_| ())
    }
}
