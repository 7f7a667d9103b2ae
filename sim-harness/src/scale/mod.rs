//! `kolo-sim scale`: discovery and negotiation of grids that no machine can run as processes, in virtual time.
//!
//! What runs is the product's core: the real ledger of every site, the real negotiation and planner of every request, the
//! real rules of a view. What is modelled is libp2p (the mesh of gossip, the DHT), the wide-area network and the disk;
//! sizes, fan-outs, timers and limits are read from the code of a node.
//!
//! Invariant: the same flags give the same figures, wall times excepted.

pub mod args;
mod belief;
mod chance;
mod churn;
mod compare;
mod costs;
mod counts;
mod figures;
mod geography;
mod gossip;
mod memory;
mod mesh;
mod nodes;
mod report;
mod requests;
mod rounds;
mod search;
mod settings;
mod setup;
mod site;
#[cfg(test)]
mod tests;
mod topic;
mod traffic;
mod upkeep;
mod world;

use std::{process::ExitCode, time::Instant};

use anyhow::Context as _;

use self::{
    args::ScaleArgs,
    compare::RealGrid,
    figures::Figures,
    settings::{Pace, Settings},
};
use crate::{error::BadUsage, print::OutputForm, progress::Progress, report::check_places};

/// Runs the command.
///
/// # Errors
/// [`BadUsage`] when the flags name what cannot be read, written or simulated.
pub fn run(args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    check_places(&args.html).map_err(BadUsage::new)?;
    let real = args.compare.as_deref().map(RealGrid::read).transpose()?;
    let plans = match &real {
        Some(real) => vec![real.settings(args.entry_points, args.gossip)?],
        None => plans(args)?,
    };
    let progress = Progress::new("thousandths of the virtual time", 1000);
    let mut runs = Vec::with_capacity(plans.len());
    for settings in plans {
        let Settings { sites, shards, .. } = settings;
        progress.begin(&format!("{sites} sites, shards: {shards}; thousandths of the virtual time"), 1000);
        runs.push(simulate(settings, |passed| progress.at(passed))?);
    }
    progress.end();
    let comparison = real.as_ref().zip(runs.first()).map(|(real, figures)| real.compare(figures));
    if let Some(path) = &args.html {
        report::page(&runs, comparison.as_ref()).write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    let text = report::for_people(&runs, comparison.as_ref());
    if args.output == OutputForm::Json {
        eprint!("{text}");
    }
    args.output.print(|| text, &report::Document::new(&runs, comparison.as_ref()))?;
    Ok(ExitCode::SUCCESS)
}

/// One run for each size and number of shards, the small ones first.
fn plans(args: &ScaleArgs) -> anyhow::Result<Vec<Settings>> {
    let mut plans = Vec::new();
    for sites in &args.sites {
        for shards in &args.shards {
            let mut settings = Settings::new(*sites, sites * args.hosts_per_site)?;
            settings.shards = *shards;
            settings.view_hosts = args.view_hosts;
            settings.duration = args.duration;
            settings.seed = args.seed;
            settings.pace = Pace::Open { per_second: args.rate * *sites as f64 / 3_600.0 };
            settings.hosts_per_request = args.hosts_per_request;
            settings.network = args.network;
            settings.loss_ppm = args.loss;
            settings.disk = args.disk;
            settings.churn_percent = args.churn;
            settings.intervals.gossip = args.gossip.unwrap_or(settings.intervals.gossip);
            plans.push(settings);
        }
    }
    Ok(plans)
}

fn simulate(settings: Settings, at: impl FnMut(u64)) -> anyhow::Result<Figures> {
    let begun = Instant::now();
    let mut world = setup::world(settings)?;
    world.run(at);
    Ok(world.figures(begun.elapsed().as_secs_f64()))
}
