//! How many parts a batch is best cut into, by the load, and against plain backfilling.
//!
//! Source: chapter 4, figure 3 and the comparison with backfilling. The load is what the share Y of cycles says that are not wholly
//! placed with k = 1; the local load that gives it is searched. Invariant: host times are compared over the cycles that both place whole.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use broker::{
    batch::{self, BatchAnswer, BatchObjective, Options, Watch, policy_named},
    offline::OfflinePlanner,
    phases::Settings,
    request::{ObjectiveKind, Request},
};
use serde::Serialize;
use sim_kit::{progress::Progress, stats::mean};

use super::{
    super::parallel,
    criteria::ratio,
    setup::{self, Cycle, JOBS, LOAD_MAX},
};

/// The source's numbers of parts.
pub(super) const PARTS: [usize; 7] = [1, 2, 3, 5, 6, 10, 20];
/// The source's levels of load: the share Y of cycles that are not wholly placed.
const LEVELS: [(&str, f64); 3] = [("high", 0.3), ("middle", 0.03), ("low", 0.0002)];
/// What is best for a batch.
const OBJECTIVE: BatchObjective = BatchObjective::HostTime;
/// Steps of the search for a load: to less than a thousandth.
const HALVINGS: u32 = 10;
/// Cycles of one step, at most; the share of the whole run is what is printed.
const SEARCH_MAX: u64 = 1_000;

/// One level of load.
#[derive(Debug, Serialize)]
pub(super) struct Level {
    pub(super) name: &'static str,
    /// The share that was looked for.
    pub(super) wanted: f64,
    /// The local load that gives it, in thousandths.
    pub(super) load_thousandths: u32,
    /// Plain backfilling.
    pub(super) backfilling: Plain,
    /// Batches cut into parts.
    pub(super) slices: Vec<Slices>,
}

/// The figures of backfilling.
#[derive(Debug, Serialize)]
pub(super) struct Plain {
    /// The share of cycles that are not wholly placed.
    pub(super) unplaced: f64,
    /// Mean start of a job, over the cycles placed whole.
    pub(super) start: f64,
    /// Mean host time of a job, over the same.
    pub(super) host_time: f64,
}

/// The figures of batches cut into so many parts.
#[derive(Debug, Serialize)]
pub(super) struct Slices {
    pub(super) parts: usize,
    /// The share of cycles that are not wholly placed.
    pub(super) unplaced: f64,
    /// Alternatives of a job.
    pub(super) alternatives: f64,
    /// Cycles that backfilling places whole as well; what follows is over these.
    pub(super) both: usize,
    /// Means of a job, in units.
    pub(super) start: f64,
    pub(super) host_time: f64,
    pub(super) host_time_of_backfilling: f64,
    /// The host time of backfilling divided by the own one.
    pub(super) gain: f64,
}

impl Level {
    /// The slices with the least host time against backfilling.
    pub(super) fn best(&self) -> Option<&Slices> {
        self.slices.iter().max_by(|one, other| one.gain.total_cmp(&other.gain))
    }
}

/// What a policy made of a cycle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Batch {
    /// Whether every job has a place.
    pub(super) is_whole: bool,
    /// Alternatives found, of all jobs.
    pub(super) alternatives: usize,
    /// Means of a job.
    pub(super) start: f64,
    pub(super) host_time: f64,
}

/// What all policies made of a cycle.
pub(super) struct Planned {
    pub(super) backfilling: Batch,
    /// In the order of [`PARTS`].
    pub(super) slices: Vec<Batch>,
}

/// Runs the experiments of all levels.
///
/// # Errors
/// See [`setup::cycle`].
pub(super) fn levels(seed: u64, experiments: u64, progress: &Progress) -> anyhow::Result<Vec<Level>> {
    let level = |(name, wanted): (&'static str, f64)| {
        let load = search(seed, experiments, wanted, progress)?;
        progress.begin(&format!("cycles under {name} load"), experiments);
        let cycles = parallel::all(experiments, progress, |number| planned(&setup::cycle(seed, number, load, None)?))?;
        Ok(figures((name, wanted), load, &cycles))
    };
    LEVELS.into_iter().map(level).collect()
}

/// The largest local load at which no larger share of cycles than this is not wholly placed with k = 1.
fn search(seed: u64, experiments: u64, wanted: f64, progress: &Progress) -> anyhow::Result<u32> {
    // So few failures need every cycle.
    let count = if wanted * (SEARCH_MAX as f64) < 1.0 { experiments } else { experiments.min(SEARCH_MAX) };
    let most = (wanted * count as f64) as u64;
    progress.begin(&format!("cycles in search of a load with Y = {wanted}"), count * u64::from(HALVINGS));
    let (mut low, mut high) = (0, LOAD_MAX);
    for _ in 0..HALVINGS {
        let load = u32::midpoint(low, high);
        let failed = AtomicU64::new(0);
        parallel::all(count, progress, |number| {
            // Whether there are too many is all that is asked.
            if failed.load(Ordering::Relaxed) <= most {
                let cycle = setup::cycle(seed, number, load, None)?;
                failed.fetch_add(u64::from(sliced(&cycle, 1, OBJECTIVE)?.batch.postponed > 0), Ordering::Relaxed);
            }
            Ok(())
        })?;
        if failed.into_inner() <= most { low = load } else { high = load }
    }
    Ok(low)
}

/// The answer of `slices:K`.
///
/// # Errors
/// None that a batch of requests could have.
pub(super) fn sliced(cycle: &Cycle, parts: usize, objective: BatchObjective) -> anyhow::Result<BatchAnswer> {
    answer(cycle, &cycle.jobs, &format!("slices:{parts}"), objective)
}

fn answer(cycle: &Cycle, jobs: &[Request], policy: &str, objective: BatchObjective) -> anyhow::Result<BatchAnswer> {
    let planner = OfflinePlanner::new(cycle.grid.clone(), Settings::default(), 1, false);
    let asked = jobs.iter().enumerate().map(setup::asked).collect::<anyhow::Result<Vec<_>>>()?;
    let options = Options { objective, ..Options::default() };
    batch::plan(&*policy_named(policy)?, &planner, &asked, &options, Watch::NOBODY).context("a batch")
}

fn planned(cycle: &Cycle) -> anyhow::Result<Planned> {
    let jobs = cycle.jobs.iter().map(|job| setup::with_objective(job, ObjectiveKind::Start));
    let jobs = jobs.collect::<anyhow::Result<Vec<_>>>()?;
    let slices = PARTS.into_iter().map(|parts| Ok(batch_of(&sliced(cycle, parts, OBJECTIVE)?)));
    Ok(Planned {
        backfilling: batch_of(&answer(cycle, &jobs, "in-order", OBJECTIVE)?),
        slices: slices.collect::<anyhow::Result<_>>()?,
    })
}

fn batch_of(answer: &BatchAnswer) -> Batch {
    let plans = answer.lines.iter().filter_map(|line| line.outcome.plan());
    Batch {
        is_whole: answer.batch.postponed == 0,
        alternatives: answer.alternatives.len(),
        start: mean(plans.map(|plan| setup::units(plan.start.0 as f64))),
        host_time: setup::units(answer.batch.host_time as f64) / answer.batch.placed.max(1) as f64,
    }
}

/// The figures of a level.
pub(super) fn figures((name, wanted): (&'static str, f64), load: u32, cycles: &[Planned]) -> Level {
    let unplaced = |is_whole: &dyn Fn(&Planned) -> bool| {
        cycles.iter().filter(|cycle| !is_whole(cycle)).count() as f64 / cycles.len().max(1) as f64
    };
    let plain = || cycles.iter().map(|cycle| cycle.backfilling).filter(|batch| batch.is_whole);
    let slices = |(at, parts): (usize, usize)| {
        let both: Vec<(Batch, Batch)> = cycles
            .iter()
            .map(|cycle| (cycle.slices[at], cycle.backfilling))
            .filter(|(own, plain)| own.is_whole && plain.is_whole)
            .collect();
        let host_time = mean(both.iter().map(|(own, _)| own.host_time));
        let host_time_of_backfilling = mean(both.iter().map(|(_, plain)| plain.host_time));
        Slices {
            parts,
            unplaced: unplaced(&|cycle| cycle.slices[at].is_whole),
            alternatives: mean(cycles.iter().map(|cycle| cycle.slices[at].alternatives as f64 / JOBS as f64)),
            both: both.len(),
            start: mean(both.iter().map(|(own, _)| own.start)),
            host_time,
            host_time_of_backfilling,
            gain: ratio(host_time_of_backfilling, host_time),
        }
    };
    Level {
        name,
        wanted,
        load_thousandths: load,
        backfilling: Plain {
            unplaced: unplaced(&|cycle| cycle.backfilling.is_whole),
            start: mean(plain().map(|batch| batch.start)),
            host_time: mean(plain().map(|batch| batch.host_time)),
        },
        slices: PARTS.into_iter().enumerate().map(slices).collect(),
    }
}
