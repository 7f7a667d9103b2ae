//! The experiments: what pairing gains by scenario, what its two thresholds do, and what it takes.
//!
//! Invariant: all policies of an experiment plan the same batches.

use std::time::Instant;

use broker::batch::{
    self, BatchLine, ColocationForm, Given, Order, Policy, Thresholds, Watch, colocation, policy_named,
};
use serde::Serialize;

use super::setup::{self, Batch, Scenario};
use crate::{
    progress::Progress,
    stats::{Spread, mean, spread},
    tables::parallel,
};

/// The forms under study.
pub(super) const FORMS: [(&str, ColocationForm); 3] =
    [("set", ColocationForm::Set), ("partition", ColocationForm::Partition), ("best", ColocationForm::Best)];
/// Values of alpha, in per cent, with the source's W.
pub(super) const ALPHAS: [u64; 6] = [0, 5, 10, 20, 35, 50];
/// Values of W, in per cent, with the source's alpha.
const SIZES: [u64; 6] = [110, 125, 150, 175, 250, 500];
/// The most hosts of the scenarios in which thresholds are varied.
const THRESHOLD_HOSTS: usize = 30;

/// What a form gains over the order without pairs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Gain {
    /// Of the run time, in per cent.
    pub(super) run_time_percent: f64,
    /// Of the last end, in hours.
    pub(super) last_end_hours: f64,
}

impl Gain {
    pub(super) fn of(plain: &BatchLine, own: &BatchLine) -> Gain {
        let (plain_time, own_time) = (plain.run_time as f64, own.run_time as f64);
        Gain {
            run_time_percent: 100.0 * (1.0 - own_time / plain_time),
            last_end_hours: (plain.makespan - own.makespan) as f64 / 3600.0,
        }
    }
}

/// The gains of a form in many batches.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Gains {
    /// Of the run time, in per cent.
    pub(super) run_time_percent: Spread,
    /// Of the last end, in hours.
    pub(super) last_end_hours: f64,
    /// Batches with a smaller run time, the same, a larger one.
    pub(super) improved: usize,
    pub(super) equal: usize,
    pub(super) worse: usize,
}

impl Gains {
    pub(super) fn of(gains: &[Gain]) -> Gains {
        let count = |is_so: fn(f64) -> bool| gains.iter().filter(|gain| is_so(gain.run_time_percent)).count();
        Gains {
            run_time_percent: spread(gains.iter().map(|gain| gain.run_time_percent)),
            last_end_hours: mean(gains.iter().map(|gain| gain.last_end_hours)),
            improved: count(|gain| gain > 0.0),
            equal: count(|gain| gain == 0.0),
            worse: count(|gain| gain < 0.0),
        }
    }
}

/// A batch: its requests, what no schedule gains more than, in per cent, and the gain of each form.
struct Made {
    requests: usize,
    room_percent: f64,
    gains: Vec<Gain>,
}

/// A scenario: the gains of each form, batch by batch, and how far below the order without pairs the bound lies.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) scenario: Scenario,
    /// Requests of a batch, mean.
    pub(super) requests: f64,
    /// What no schedule gains more than, in per cent, mean.
    pub(super) room_percent: f64,
    /// By form, then by batch.
    pub(super) gains: [Vec<Gain>; 3],
}

/// A value of a threshold and the gains of the two forms of the source.
#[derive(Debug, Serialize)]
pub(super) struct Threshold {
    pub(super) alpha_percent: u64,
    pub(super) size_percent: u64,
    pub(super) gains: [Gains; 2],
}

/// How long planning took, in seconds, by form.
#[derive(Debug, Serialize)]
pub(super) struct Timed {
    pub(super) requests: usize,
    pub(super) hosts: usize,
    pub(super) seconds: [f64; 3],
}

/// Plans a batch, longest first.
pub(super) fn planned(batch: &Batch, policy: &dyn Policy) -> anyhow::Result<BatchLine> {
    let options = Given { order: Some(Order::Lpt), ..Given::default() }.options(policy)?;
    let started = Instant::now();
    Ok(batch::plan(policy, &batch.planner, &batch.requests, &options, Watch::timed(&|| started.elapsed()))?.batch)
}

/// The same without pairs.
pub(super) fn plain(batch: &Batch) -> anyhow::Result<BatchLine> {
    planned(batch, &*policy_named("in-order")?)
}

/// The scenarios in which thresholds are varied.
fn threshold_scenarios() -> Vec<Scenario> {
    setup::scenarios().into_iter().filter(|scenario| scenario.hosts <= THRESHOLD_HOSTS).collect()
}

/// How many batches are drawn, so many of each scenario.
pub(super) fn drawn(batches: u64) -> u64 {
    batches * (setup::scenarios().len() + threshold_scenarios().len()) as u64
}

/// What each form gains in each scenario.
pub(super) fn by_scenario(seed: u64, batches: u64, progress: &Progress) -> anyhow::Result<Vec<Row>> {
    let scenarios = setup::scenarios();
    let made = parallel::all(batches * scenarios.len() as u64, progress, |number| {
        let batch = setup::batch(seed, scenarios[(number / batches) as usize], number % batches)?;
        let plain = plain(&batch)?;
        let lines = FORMS.map(|(_, form)| planned(&batch, &*colocation(form, Thresholds::default())));
        let bound = lines[0].as_ref().ok().and_then(|line| line.objective.bound).unwrap_or(0);
        let mut gains = Vec::with_capacity(FORMS.len());
        for line in lines {
            gains.push(Gain::of(&plain, &line?));
        }
        let room_percent = 100.0 * (1.0 - bound as f64 / plain.run_time as f64);
        anyhow::Ok(Made { requests: batch.requests.len(), room_percent, gains })
    })?;
    let row = |(scenario, made): (&Scenario, &[Made])| Row {
        scenario: *scenario,
        requests: mean(made.iter().map(|made| made.requests as f64)),
        room_percent: mean(made.iter().map(|made| made.room_percent)),
        gains: [0, 1, 2].map(|form| made.iter().map(|made| made.gains[form]).collect()),
    };
    Ok(scenarios.iter().zip(made.chunks(batches as usize)).map(row).collect())
}

/// What alpha does, then what W does, in the scenarios of few hosts.
pub(super) fn by_threshold(seed: u64, batches: u64, progress: &Progress) -> anyhow::Result<Vec<Threshold>> {
    let scenarios = threshold_scenarios();
    let source = Thresholds::default();
    let alphas = ALPHAS.map(|alpha_percent| Thresholds { alpha_percent, ..source });
    let varied: Vec<Thresholds> =
        alphas.into_iter().chain(SIZES.map(|size_percent| Thresholds { size_percent, ..source })).collect();
    let made = parallel::all(batches * scenarios.len() as u64, progress, |number| {
        let batch = setup::batch(seed, scenarios[(number / batches) as usize], number % batches)?;
        let plain = plain(&batch)?;
        let gain = |form, thresholds| anyhow::Ok(Gain::of(&plain, &planned(&batch, &*colocation(form, thresholds))?));
        let both = |thresholds: &Thresholds| {
            anyhow::Ok([gain(ColocationForm::Set, *thresholds)?, gain(ColocationForm::Partition, *thresholds)?])
        };
        varied.iter().map(both).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let threshold = |(at, thresholds): (usize, &Thresholds)| Threshold {
        alpha_percent: thresholds.alpha_percent,
        size_percent: thresholds.size_percent,
        gains: [0, 1].map(|form| Gains::of(&made.iter().map(|gains| gains[at][form]).collect::<Vec<_>>())),
    };
    Ok(varied.iter().enumerate().map(threshold).collect())
}

/// How long each form takes, one after the other, with so many hosts.
pub(super) fn times(seed: u64, hosts: &[usize]) -> anyhow::Result<Vec<Timed>> {
    let timed = |hosts: &usize| {
        let scenario = Scenario { hosts: *hosts, balanced_percent: 33, is_parallel: false };
        let batch = setup::batch(seed, scenario, 0)?;
        let mut seconds = [0.0; 3];
        for (seconds, (_, form)) in seconds.iter_mut().zip(FORMS) {
            *seconds = planned(&batch, &*colocation(form, Thresholds::default()))?.us as f64 / 1e6;
        }
        Ok(Timed { requests: batch.requests.len(), hosts: *hosts, seconds })
    };
    hosts.iter().map(timed).collect()
}
