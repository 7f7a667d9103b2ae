//! The experiments: what pairing gains by scenario, what its two thresholds do, and what it takes.
//!
//! Invariant: all policies of an experiment plan the same batches.

use std::time::Instant;

use broker::batch::{
    self, BatchLine, ColocationForm, Given, Order, Policy, Thresholds, Watch, colocation, pairings_tried, policy_named,
};
use serde::Serialize;
use sim_kit::{
    progress::Progress,
    stats::{Spread, mean, spread},
};

use super::setup::{self, Batch, Scenario};
use crate::tables::parallel;

/// The forms under study.
pub(super) const FORMS: [(&str, ColocationForm); 3] =
    [("set", ColocationForm::Set), ("partition", ColocationForm::Partition), ("best", ColocationForm::Best)];
/// Values of alpha, in per cent, with the source's W.
pub(super) const ALPHAS: [u64; 6] = [0, 5, 10, 20, 35, 50];
/// Values of W, in per cent, with the source's alpha.
const SIZES: [u64; 6] = [110, 125, 150, 175, 250, 500];
/// Whose turn it is first: with the 32 kinds of batches the source's 64 scenarios.
pub(super) const ORDERS: [(&str, Order); 2] = [("LJF", Order::Lpt), ("HDF", Order::Hdf)];
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
    pub(super) last_end_hours: Spread,
    /// Batches with an earlier last end.
    pub(super) earlier: usize,
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
            last_end_hours: spread(gains.iter().map(|gain| gain.last_end_hours)),
            earlier: gains.iter().filter(|gain| gain.last_end_hours > 0.0).count(),
            improved: count(|gain| gain > 0.0),
            equal: count(|gain| gain == 0.0),
            worse: count(|gain| gain < 0.0),
        }
    }
}

/// A batch: its requests, and by order what no schedule gains more than, in per cent, and the gain of each form.
struct Made {
    requests: usize,
    by_order: [(f64, [Gain; 3]); 2],
}

/// A scenario: the gains of each form, batch by batch, and how far below the order without pairs the bound lies.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) scenario: Scenario,
    /// Whose turn it is first, in the forms and without pairs.
    pub(super) order: &'static str,
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
    /// Pairs of requests that the source's pairing scales to each other.
    pub(super) pairings: u64,
    pub(super) requests: usize,
    pub(super) hosts: usize,
    pub(super) seconds: [f64; 3],
}

/// Plans a batch in this order.
pub(super) fn planned(batch: &Batch, policy: &dyn Policy, order: Order) -> anyhow::Result<BatchLine> {
    let options = Given { order: Some(order), ..Given::default() }.options(policy)?;
    let started = Instant::now();
    Ok(batch::plan(policy, &batch.planner, &batch.requests, &options, Watch::timed(&|| started.elapsed()))?.batch)
}

/// The same without pairs.
pub(super) fn plain(batch: &Batch, order: Order) -> anyhow::Result<BatchLine> {
    planned(batch, &*policy_named("in-order")?, order)
}

/// What each form does with a batch.
pub(super) fn by_form(batch: &Batch, order: Order) -> anyhow::Result<[BatchLine; 3]> {
    let [one, two, three] = FORMS.map(|(_, form)| planned(batch, &*colocation(form, Thresholds::default()), order));
    Ok([one?, two?, three?])
}

/// By how much the bound lies below a run time, in per cent.
pub(super) fn room_percent(plain: &BatchLine, lines: &[BatchLine; 3]) -> f64 {
    100.0 * (1.0 - lines[0].objective.bound.unwrap_or(0) as f64 / plain.run_time as f64)
}

/// The scenarios in which thresholds are varied.
fn threshold_scenarios() -> Vec<Scenario> {
    setup::scenarios().into_iter().filter(|scenario| scenario.hosts <= THRESHOLD_HOSTS).collect()
}

/// How many batches are drawn, so many of each scenario.
pub(super) fn drawn(batches: u64) -> u64 {
    batches * (setup::scenarios().len() + threshold_scenarios().len()) as u64
}

/// What each form gains in each scenario, over the same order without pairs.
pub(super) fn by_scenario(
    seed: u64,
    batches: u64,
    scenarios: &[Scenario],
    progress: &Progress,
) -> anyhow::Result<Vec<Row>> {
    let made = parallel::all(batches * scenarios.len() as u64, progress, |number| {
        let batch = setup::batch(seed, scenarios[(number / batches) as usize], number % batches)?;
        let [longest, highest] = ORDERS.map(|(_, order)| {
            let (plain, lines) = (plain(&batch, order)?, by_form(&batch, order)?);
            anyhow::Ok((room_percent(&plain, &lines), lines.map(|line| Gain::of(&plain, &line))))
        });
        anyhow::Ok(Made { requests: batch.requests.len(), by_order: [longest?, highest?] })
    })?;
    let row = |(scenario, made): (&Scenario, &[Made]), at: usize| Row {
        scenario: *scenario,
        order: ORDERS[at].0,
        requests: mean(made.iter().map(|made| made.requests as f64)),
        room_percent: mean(made.iter().map(|made| made.by_order[at].0)),
        gains: [0, 1, 2].map(|form| made.iter().map(|made| made.by_order[at].1[form]).collect()),
    };
    let rows = scenarios.iter().zip(made.chunks(batches as usize));
    Ok(rows.flat_map(|one| [0, 1].map(|at| row(one, at))).collect())
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
        let plain = plain(&batch, Order::Lpt)?;
        let gain = |form, thresholds| {
            anyhow::Ok(Gain::of(&plain, &planned(&batch, &*colocation(form, thresholds), Order::Lpt)?))
        };
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
        let seconds = by_form(&batch, Order::Lpt)?.map(|line| line.us as f64 / 1e6);
        let pairings = pairings_tried(&batch.planner, &batch.requests, Thresholds::default()).unwrap_or(0);
        Ok(Timed { pairings, requests: batch.requests.len(), hosts: *hosts, seconds })
    };
    hosts.iter().map(timed).collect()
}
