//! `kolo-sim scale`: discovery and negotiation of grids that no machine can run as processes, in virtual time.
//!
//! What runs is the product's core: the real ledger of every site, the real negotiation and planner of every request, the
//! real rules of a view. What is modelled is libp2p (the mesh of gossip, the DHT), the wide-area network and the disk;
//! sizes, fan-outs, timers and limits are read from the code of a node.
//!
//! Invariant: the same flags give the same figures, wall times excepted.

pub mod args;
mod belief;
mod churn;
mod compare;
mod counts;
mod entry;
mod error;
mod figures;
mod geography;
mod gossip;
mod kademlia;
mod ledger;
mod memory;
mod mesh;
mod progress;
mod report;
mod rounds;
mod search;
mod settings;
mod setup;
mod site;
#[cfg(test)]
mod tests;
mod traffic;
mod upkeep;
mod world;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use self::{
    args::ScaleArgs,
    compare::RealGrid,
    error::ScaleError,
    figures::Figures,
    progress::Progress,
    settings::{Pace, Settings},
};
use crate::{
    error::BAD_USAGE,
    print::OutputForm,
    report::{PlaceError, check_places},
};

/// Runs the command.
pub fn run(args: &ScaleArgs) -> ExitCode {
    match all(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kolo-sim scale: {error}");
            ExitCode::from(BAD_USAGE)
        }
    }
}

fn all(args: &ScaleArgs) -> Result<(), ScaleError> {
    check_places(&args.html).map_err(|PlaceError { path, source }| ScaleError::Write { path, source })?;
    let real = args.compare.as_deref().map(RealGrid::read).transpose()?;
    let plans = match &real {
        Some(real) => {
            let times = args.check()?;
            vec![real.settings(args.entry_points, times.gossip)?]
        }
        None => plans(args)?,
    };
    let progress = Progress::new(&plans);
    let mut runs = Vec::with_capacity(plans.len());
    for (number, settings) in plans.into_iter().enumerate() {
        runs.push(simulate(settings, |passed| progress.at(number, passed))?);
    }
    progress.end();
    let comparison = match (&real, runs.first()) {
        (Some(real), Some(figures)) => Some(real.compare(figures)),
        _ => None,
    };
    if let Some(path) = &args.html {
        let page = report::page(&runs, comparison.as_ref());
        page.write(path).map_err(|source| ScaleError::Write { path: path.clone(), source })?;
    }
    let text = report::for_people(&runs, comparison.as_ref());
    // When the terminal is gone there is nobody to tell.
    let _ = match args.output {
        OutputForm::Table => io::stdout().lock().write_all(text.as_bytes()),
        OutputForm::Json => print_json(&text, &report::Document::new(&runs, comparison.as_ref())),
    };
    Ok(())
}

fn print_json(text: &str, document: &report::Document<'_>) -> io::Result<()> {
    io::stderr().lock().write_all(text.as_bytes())?;
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, document)?;
    out.write_all(b"\n")
}

/// One run for each size and number of shards, the small ones first.
fn plans(args: &ScaleArgs) -> Result<Vec<Settings>, ScaleError> {
    let times = args.check()?;
    let mut plans = Vec::new();
    for sites in &args.sites {
        for shards in &args.shards {
            let mut settings = Settings::new(*sites, sites * args.hosts_per_site)?;
            settings.shards = *shards;
            settings.view_hosts = args.view_hosts;
            settings.duration_us = times.duration_us;
            settings.seed = args.seed;
            settings.pace = Pace::Open { per_second: args.rate * *sites as f64 / 3_600.0 };
            settings.hosts_per_request = args.hosts_per_request;
            settings.network = args.network;
            settings.loss_ppm = args.loss;
            settings.disk_us = times.disk_us;
            settings.churn_percent = args.churn;
            settings.intervals.gossip = times.gossip.unwrap_or(settings.intervals.gossip);
            plans.push(settings);
        }
    }
    Ok(plans)
}

fn simulate(settings: Settings, at: impl FnMut(u64)) -> Result<Figures, ScaleError> {
    let begun = Instant::now();
    let mut world = setup::world(settings)?;
    world.run(at);
    Ok(world.figures(begun.elapsed().as_secs_f64()))
}
