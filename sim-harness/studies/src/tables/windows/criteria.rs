//! Table 1 of the source: what jobs get by their own criterion, beside the first window.
//!
//! The source has no jobs whose criterion is the host time; here those by run time plan once more in that way. Invariant: all searches see
//! the same cycles; means are over the jobs that have a window.

use broker::request::{ObjectiveKind, Request};
use serde::Serialize;
use sim_kit::{progress::Progress, stats::mean};

use super::{
    super::parallel,
    scheme::{Measured, Search, Served, alone, served},
    setup::{self, Cycle},
};

/// Parts of the batch: 5 of 4 jobs, as the source has it where there is room. Its 10.6 to 12.9 alternatives of each of 20 jobs do not fit
/// beside each other into one cycle, those of 4 jobs do.
const PARTS: usize = 5;
/// Local loads, in thousandths: at the first one the first window finds as many alternatives as in the source.
const LOADS: [u32; 2] = [70, 300];

/// The table.
#[derive(Debug, Serialize)]
pub(super) struct Criteria {
    pub(super) parts: usize,
    /// Local load, in thousandths.
    pub(super) load_thousandths: u32,
    /// One row a criterion.
    pub(super) rows: Vec<Row>,
    /// All jobs, by the first window.
    pub(super) first: Means,
}

/// A criterion.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) criterion: &'static str,
    pub(super) own: Means,
    /// The first window's figure divided by this one's; more than 1 is a gain.
    pub(super) gains: Measured,
    /// The gain by this criterion if each job were alone in the domain: no window of it is better, by proof. Zero: without limit.
    pub(super) gain_alone: f64,
}

/// Means over jobs.
#[derive(Debug, Default, Serialize)]
pub(super) struct Means {
    pub(super) jobs: usize,
    /// Those that have a window.
    pub(super) placed: usize,
    pub(super) alternatives: f64,
    pub(super) window: Measured,
}

impl Means {
    fn of<'a>(served: impl Iterator<Item = &'a Served>) -> Means {
        let served: Vec<&Served> = served.collect();
        let windows: Vec<Measured> = served.iter().filter_map(|job| job.window).collect();
        Means {
            jobs: served.len(),
            placed: windows.len(),
            alternatives: mean(served.iter().map(|job| job.alternatives as f64)),
            window: Measured::each(|figure| mean(windows.iter().map(figure))),
        }
    }
}

/// What came of the jobs of a cycle.
#[derive(Debug, PartialEq)]
pub(super) struct Compared {
    pub(super) own: Vec<Served>,
    pub(super) first: Vec<Served>,
    pub(super) alone: Vec<Served>,
}

impl Compared {
    /// Plans a cycle in all ways.
    ///
    /// # Errors
    /// See [`served`].
    pub(super) fn of(cycle: &Cycle) -> anyhow::Result<Compared> {
        let by_host_time = |job: &Request| match job.objective() {
            ObjectiveKind::Runtime => setup::with_objective(job, ObjectiveKind::HostTime),
            _ => Ok(job.clone()),
        };
        let jobs = cycle.jobs.iter().map(by_host_time).collect::<anyhow::Result<_>>()?;
        let other = Cycle { grid: cycle.grid.clone(), jobs };
        let is_other = |job: &Served| job.criterion == ObjectiveKind::HostTime;
        let mut own = served(cycle, PARTS, Search::Kolo)?;
        own.extend(served(&other, PARTS, Search::Kolo)?.into_iter().filter(is_other));
        let mut each = alone(cycle);
        each.extend(alone(&other).into_iter().filter(is_other));
        Ok(Compared { own, first: served(cycle, PARTS, Search::First)?, alone: each })
    }
}

/// Runs the experiments.
///
/// # Errors
/// See [`setup::cycle`].
pub(super) fn criteria(seed: u64, experiments: u64, progress: &Progress) -> anyhow::Result<Vec<Criteria>> {
    let at_load = |load| {
        progress.begin(&format!("cycles by criterion, local load {load}/1000"), experiments);
        let cycles =
            parallel::all(experiments, progress, |number| Compared::of(&setup::cycle(seed, number, load, None)?))?;
        Ok(table(load, &cycles))
    };
    LOADS.into_iter().map(at_load).collect()
}

/// The table of these cycles.
pub(super) fn table(load_thousandths: u32, cycles: &[Compared]) -> Criteria {
    let first = Means::of(cycles.iter().flat_map(|cycle| &cycle.first));
    let row = |criterion: ObjectiveKind| {
        let means = |each: fn(&Compared) -> &Vec<Served>| {
            Means::of(cycles.iter().flat_map(each).filter(|job| job.criterion == criterion))
        };
        let (own, alone) = (means(|cycle| &cycle.own), means(|cycle| &cycle.alone));
        let criterion = criterion.name();
        Row {
            criterion,
            gains: Measured::each(|figure| ratio(figure(&first.window), figure(&own.window))),
            gain_alone: ratio(first.window.by(criterion), alone.window.by(criterion)),
            own,
        }
    };
    let criteria = setup::CRITERIA.into_iter().chain([ObjectiveKind::HostTime]);
    let rows = criteria.map(row).collect();
    Criteria { parts: PARTS, load_thousandths, rows, first }
}

/// How often the second goes into the first; zero where that has no answer.
pub(super) fn ratio(one: f64, other: f64) -> f64 {
    if other > 0.0 { one / other } else { 0.0 }
}
