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
use sim_kit::progress::Progress;

use super::{
    args::{Experiment, GridArgs},
    checks::aftermath,
    faults::{
        attack::{Attackers, PHASES, PhaseFigures, take_back},
        churn::{Churn, Pattern},
        partition::{Cut, PartitionFigures},
    },
    load::{
        answer::{Answer, milliseconds, times_ms},
        batch::{self, Asks, BatchFigures},
        figures::{LoadFigures, Used},
        live::{self, Pulse},
        rounds,
        search::highest_rate,
        user::cancel_all,
        users::{Load, Pace},
    },
    nodes::{
        cluster::Cluster,
        knowledge,
        network::{HALVES, Network},
    },
    report::findings::Findings,
};

/// How long the load runs before a cut, so that some reservations reach across it.
const BEFORE_CUT: Duration = Duration::from_secs(3);

/// A forming grid and what is to be done with it.
pub struct Run<'a> {
    pub cluster: &'a Cluster,
    /// What was asked for.
    pub args: &'a GridArgs,
    /// The requests, in the time of the run.
    pub requests: Vec<Request>,
    /// What can be cut, where the experiment needs that.
    pub network: Option<&'a Network>,
    /// Shows how far it is.
    pub progress: &'a Progress,
}

impl Run<'_> {
    /// Waits for the grid to form, drives it through the experiment, and checks what is left.
    pub fn drive_and_check(&self, experiment: Experiment, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("forming the grid", self.args.nodes);
        let formation = knowledge::formation(self.cluster, findings.figures.hosts, |known| self.at(known))?;
        findings.figures.formation_ms = times_ms(formation);
        match experiment {
            Experiment::Rounds => self.rounds(findings)?,
            Experiment::Batch => self.batch(findings)?,
            Experiment::Crashes { kills } => self.crashes(kills, findings)?,
            Experiment::Partition { cut } => self.partition(cut, findings)?,
            Experiment::Hostile { attackers, per_second, duration } => {
                self.hostile(attackers, Pace::Open { per_second }, duration, findings)?;
            }
            Experiment::Open { per_second, duration, churn } => {
                let answers = self.open("load", per_second, duration, churn, findings)?;
                self.examine(answers, findings)?;
            }
            Experiment::FindRate { first, duration, p99 } => self.find_rate(first, duration, p99, findings)?,
        }
        findings.figures.measure_memory(self.cluster);
        Ok(())
    }

    fn rounds(&self, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("requests", self.requests.len());
        let found = (&mut findings.answers, &mut findings.spreads);
        let requests = (&self.requests[..], self.args.at_once());
        rounds::drive(self.cluster, requests, self.args.seed, found, |done| self.at(done))?;
        self.stage("checking ledgers", self.args.nodes);
        findings.violations = aftermath::check_ledgers(self.cluster, &findings.answers)?;
        Ok(())
    }

    fn batch(&self, findings: &mut Findings) -> anyhow::Result<()> {
        self.wait_for_rest(findings)?;
        self.stage("each by itself", self.requests.len());
        let before = Asks::of(self.cluster);
        let mut answers = batch::singly(self.cluster, &self.requests)?;
        let singly_asks = Asks::of(self.cluster).since(before);
        // The batch finds the grid as they did.
        cancel_all(self.cluster, &mut answers)?;
        self.wait_for_rest(findings)?;
        self.stage("as a batch", self.requests.len());
        let before = Asks::of(self.cluster);
        let batch = batch::as_batch(self.cluster, &self.requests)?;
        let asks = [singly_asks, Asks::of(self.cluster).since(before)];
        findings.figures.batch = Some(BatchFigures::new(&answers, &batch, asks));
        answers.extend(batch.answers);
        self.examine(answers, findings)
    }

    fn crashes(&self, kills: usize, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("kills under load", kills);
        let churn = Churn::new(self.cluster, Pattern::kills(kills));
        let (seed, never) = (self.args.seed, AtomicBool::new(false));
        let kill = || churn.run(seed, &never, |done| self.at(done));
        let (answers, churned) = self.under_load("load", self.users(), kill)?;
        findings.figures.crashes_caused = Some(churned.crash_figures());
        self.examine(answers, findings)
    }

    fn partition(&self, cut: Duration, findings: &mut Findings) -> anyhow::Result<()> {
        let network = self.network.context("cannot cut the grid: its nodes share one network")?;
        self.stage("cut in two under load", self.args.nodes);
        let (answers, cut) = self.under_load("load", self.users(), || {
            self.cluster.pass(BEFORE_CUT)?;
            network.cut(&HALVES)?;
            let begun = Instant::now();
            self.cluster.pass(cut)?;
            network.heal(&HALVES)?;
            let healed = Instant::now();
            let agreed = knowledge::agreement(self.cluster, healed)?;
            Ok(Cut { begun, healed, agreed })
        })?;
        let figures = PartitionFigures::new(&cut, &answers, self.args.nodes);
        findings.failed_checks.extend(figures.failed_checks());
        findings.figures.partition = Some(figures);
        self.examine(answers, findings)
    }

    fn hostile(&self, attackers: usize, pace: Pace, duration: Duration, findings: &mut Findings) -> anyhow::Result<()> {
        let mut all = Vec::new();
        for (name, manner) in PHASES {
            self.wait_for_rest(findings)?;
            self.stage(name, self.args.nodes);
            let attackers = Attackers::start(self.cluster, manner, attackers, &self.args.attack)?;
            let attack = || attackers.watch(self.cluster, duration);
            let (mut answers, costs) = self.under_load(name, pace, attack)?;
            let phases = &mut findings.figures.hostile;
            phases.push(PhaseFigures::new(name, &answers, costs, phases.first()));
            // The next phase finds the grid as this one did.
            cancel_all(self.cluster, &mut answers)?;
            take_back(self.cluster)?;
            all.extend(answers);
        }
        self.examine(all, findings)
    }

    /// A load at `per_second` for `duration`, on a grid that is at rest.
    fn open(
        &self,
        name: &str,
        per_second: f64,
        duration: Duration,
        churns: bool,
        findings: &mut Findings,
    ) -> anyhow::Result<Vec<Answer>> {
        self.wait_for_rest(findings)?;
        self.stage(&format!("open load, {per_second:.1} a second"), self.args.nodes);
        let before = Used::look(self.cluster);
        let (answers, churned) = self.under_load(name, Pace::Open { per_second }, || {
            if !churns {
                return self.cluster.pass(duration).map(|()| None);
            }
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let churn = Churn::new(self.cluster, Pattern::churn());
                let churning = scope.spawn(|| churn.run(self.args.seed, &over, |_| ()));
                let passed = self.cluster.pass(duration);
                over.store(true, Ordering::Relaxed);
                let churned = churning.join().unwrap_or_else(|panic| resume_unwind(panic))?;
                passed.map(|()| Some(churned))
            })
        })?;
        let figures = &mut findings.figures;
        figures.loads.push(LoadFigures::new(&before, self.cluster, per_second, &answers));
        figures.joins = churned.as_ref().map(|churned| churned.join_figures(&answers));
        figures.crashes_caused = churned.map(|churned| churned.crash_figures());
        Ok(answers)
    }

    fn wait_for_rest(&self, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("waiting for rest", self.args.nodes);
        findings.figures.rest_ms = Some(milliseconds(self.cluster.rest()?));
        Ok(())
    }

    fn find_rate(&self, first: f64, duration: Duration, p99: Duration, findings: &mut Findings) -> anyhow::Result<()> {
        let mut all = Vec::new();
        let found = highest_rate(first, |rate| {
            let name = format!("step-{}", findings.figures.loads.len() + 1);
            let mut answers = self.open(&name, rate, duration, false, findings)?;
            cancel_all(self.cluster, &mut answers)?;
            all.extend(answers);
            Ok(findings.figures.loads.last().is_some_and(|load| load.has_kept_up(p99)))
        });
        findings.figures.highest_rate = found?;
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
    ) -> anyhow::Result<(Vec<Answer>, T)> {
        let (cluster, requests, seed) = (self.cluster, &self.requests[..], self.args.seed);
        let pulse = Pulse::default();
        let reservations_max = 2 * self.args.nodes;
        let load = Load { cluster, requests, name, seed, pace, reservations_max, pulse: &pulse };
        let (over, is_answered) = (AtomicBool::new(false), AtomicBool::new(false));
        let (answers, happened) = thread::scope(|scope| {
            scope.spawn(|| live::show(&pulse, cluster, self.progress, &is_answered));
            let users = scope.spawn(|| load.run(&over));
            let happened = happening();
            over.store(true, Ordering::Relaxed);
            let answers = users.join();
            is_answered.store(true, Ordering::Relaxed);
            (answers.unwrap_or_else(|panic| resume_unwind(panic)), happened)
        });
        // What happened to the grid says more than what the users saw of it.
        let happened = happened?;
        Ok((answers?, happened))
    }

    fn examine(&self, mut answers: Vec<Answer>, findings: &mut Findings) -> anyhow::Result<()> {
        self.stage("checking reservations and ledgers", self.args.nodes);
        let examined = aftermath::examine(self.cluster, &mut answers, &mut findings.failed_checks);
        findings.answers.extend(answers);
        let (aftermath, violations) = examined?;
        findings.figures.aftermath = Some(aftermath);
        findings.violations = violations;
        knowledge::agreement(self.cluster, Instant::now()).map(|_| ())
    }
}
