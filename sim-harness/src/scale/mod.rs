//! `kolo-sim scale`: discovery and negotiation of grids that no machine can run as processes, in virtual time.
//!
//! What runs is the product's core: the real ledger of every site, the real negotiation and planner of every request, the
//! real rules of a view. What is modelled is libp2p (the mesh of gossip, the DHT), the wide-area network and the disk;
//! sizes, fan-outs, timers and limits are read from the code of a node.
//!
//! Invariant: the same flags give the same figures, wall times excepted.

mod chance;
mod compare;
mod estimate;
mod figures;
mod geography;
mod gossip;
mod grid;
mod history;
mod mesh;
pub mod options;
mod report;
mod rounds;
mod search;
mod site;
mod sizes;
#[cfg(test)]
mod tests;
mod traffic;
mod views;
mod world;

use std::{process::ExitCode, time::Instant};

use anyhow::Context as _;
use sim_kit::{error::BadUsage, print::OutputForm, progress::Progress, report::check_places};

use self::{
    compare::RealGrid,
    options::{ScaleArgs, Settings},
    report::Report,
    world::World,
};

/// Runs the command.
///
/// # Errors
/// [`BadUsage`] when the flags name what cannot be read, written or simulated.
pub fn run(args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    check_places(&args.html).map_err(BadUsage::new)?;
    let real = args.compare.as_deref().map(RealGrid::read).transpose()?;
    let plans = match &real {
        Some(real) => vec![real.settings(args)?],
        None => args.plans()?,
    };
    let progress = Progress::new("thousandths of the virtual time", 1000);
    let mut runs = Vec::with_capacity(plans.len());
    for settings in plans {
        let Settings { sites, shards, .. } = settings;
        progress.begin(&format!("{sites} sites, shards: {shards}; thousandths of the virtual time"), 1000);
        let begun = Instant::now();
        let mut world = World::new(settings)?;
        world.run(|passed| progress.at(passed));
        runs.push(world.grid.figures(begun.elapsed().as_secs_f64()));
    }
    progress.end();
    let comparison = real.as_ref().zip(runs.first()).map(|(real, figures)| real.compare(figures));
    let report = Report::new(&runs, comparison.as_ref());
    if let Some(path) = &args.html {
        report.page().write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    if args.output == OutputForm::Json {
        eprint!("{}", report.text());
    }
    args.output.print(|| report.text(), &report)?;
    Ok(ExitCode::SUCCESS)
}
