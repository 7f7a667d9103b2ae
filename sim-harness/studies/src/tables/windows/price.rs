//! One owner's price against what his host is used and earns, while all others ask the market's.
//!
//! Source: chapter 4, figure 6. The host has the speed whose market price is the source's, 6, and another place in every cycle. Invariant:
//! every price sees the same cycles.

use broker::batch::BatchObjective;
use serde::Serialize;
use sim_kit::{progress::Progress, stats::mean};

use super::{
    super::parallel,
    setup::{self, CYCLE, HOSTS, Owner},
    slicing::sliced,
};

/// Parts of the batch.
pub(super) const PARTS: usize = 5;
/// Local load, in thousandths: with less the fast hosts serve nearly the whole batch.
pub(super) const LOAD: u32 = 300;
/// The source's prices for a unit.
const PRICES: std::ops::RangeInclusive<u32> = 2..=10;
/// The price that the market asks for the host.
pub(super) const MARKET: u32 = 6;

/// What is best for the batch. The source does not say what it was.
const OBJECTIVES: [(&str, BatchObjective); 2] =
    [("host_time", BatchObjective::HostTime), ("cost", BatchObjective::Cost)];

/// The prices with one objective of the batch.
#[derive(Debug, Serialize)]
pub(super) struct Prices {
    /// The objective.
    pub(super) objective: &'static str,
    pub(super) points: Vec<Point>,
}

/// What a price brings.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) price: u32,
    /// The part of the cycle in which the host works for the batch.
    pub(super) load: f64,
    /// The price times the units of that.
    pub(super) profit: f64,
}

/// Runs the experiments.
///
/// # Errors
/// See [`setup::cycle`].
pub(super) fn prices(seed: u64, experiments: u64, progress: &Progress) -> anyhow::Result<Vec<Prices>> {
    let by =
        |(name, objective)| Ok(Prices { objective: name, points: points(seed, experiments, objective, progress)? });
    OBJECTIVES.into_iter().map(by).collect()
}

fn points(seed: u64, experiments: u64, objective: BatchObjective, progress: &Progress) -> anyhow::Result<Vec<Point>> {
    let count = experiments * PRICES.count() as u64;
    progress.begin("cycles with another price of one owner", count);
    let used = parallel::all(count, progress, |number| {
        let (experiment, price) = (number / PRICES.count() as u64, number % PRICES.count() as u64);
        let host = (experiment % HOSTS as u64) as usize;
        let price = 1000 * (PRICES.start() + price as u32);
        let cycle = setup::cycle(seed, experiment, LOAD, Some(Owner { host, speed: 1000 * MARKET, price }))?;
        let name = &cycle.grid.hosts[host].host.id;
        let answer = sliced(&cycle, PARTS, objective)?;
        let seats = answer.lines.iter().filter_map(|line| line.outcome.plan()).flat_map(|plan| &plan.seats);
        let used: u64 = seats.filter(|seat| seat.host() == name).map(|seat| seat.window.duration().0).sum();
        Ok(setup::units(used as f64))
    })?;
    let point = |(at, price): (usize, u32)| {
        let used = mean(used.iter().skip(at).step_by(PRICES.count()).copied());
        Point { price, load: used / CYCLE as f64, profit: f64::from(price) * used }
    };
    Ok(PRICES.enumerate().map(point).collect())
}
