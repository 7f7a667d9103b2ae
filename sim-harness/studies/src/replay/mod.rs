//! `kolo-study replay`: a whole workload trace in virtual time under a scheduling policy, with the metrics of the field.
//!
//! Invariant: the same trace, machines, flags and seed give the same starts and ends on every machine; the only clock that
//! is read measures the replay itself.

pub mod args;
mod cluster;
pub(crate) mod contest;
mod deadlines;
mod engine;
mod growth;
mod job;
mod lines;
mod machines;
mod metrics;
mod output;
mod page;
mod policy;
pub mod record;
mod series;
pub(crate) mod spanning;
mod spanning_page;
mod synthetic;
#[cfg(test)]
mod tests;
mod trace;

use std::{process::ExitCode, time::Instant};

use anyhow::Context;
use sim_kit::{error::BadUsage, progress::Progress, report::check_places, usage};

use self::{
    args::ReplayArgs,
    cluster::ClusterSpec,
    engine::Run,
    growth::{Point, Speed},
    job::Job,
    output::Outcome,
    policy::Setup,
    series::Series,
};

/// Jobs between two looks at the display.
const SHOWN_EVERY: usize = 256;

/// Runs the command.
///
/// # Errors
/// Bad usage when a file cannot be used; else when the policy is broken or the result cannot be printed.
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    if let Some(mbps) = args.uplink_mbps {
        return spanning::run(args, &args.spanning, mbps);
    }
    check_places(args.jobs_csv.iter().chain(&args.report))?;
    let clusters = machines::read(&args.machines)?;
    let made_up = args.synthetic.unwrap_or_default();
    let mut trace = match &args.trace {
        Some(path) => trace::read(path, &clusters, &args.rules)?,
        None => {
            let jobs = made_up.min(args.rules.jobs_max.unwrap_or(made_up));
            trace::of_records(synthetic::records(args.seed, jobs as usize, &clusters), &clusters, &args.rules)
        }
    };
    eprint!("{}", output::findings(&trace.findings));
    deadlines::draw(&mut trace.jobs, &args.slack, args.seed);
    let setup = (args.policy.as_str(), args.search, args.seed);
    let mut growth = Vec::new();
    if args.growth {
        for jobs in growth::sizes_below(trace.jobs.len()) {
            let speed = growth::fastest(|| play(setup, &trace.jobs[..jobs], &clusters).map(|(_, speed)| speed))?;
            growth.push(Point { jobs, speed });
        }
    }
    let (runs, speed) = play(setup, &trace.jobs, &clusters)?;
    growth.extend(args.growth.then_some(Point { jobs: runs.len(), speed }));
    if let Some(path) = &args.jobs_csv {
        output::write_jobs(path, &trace, &runs, &clusters).with_context(|| BadUsage::new(path.display()))?;
    }
    let outcome = Outcome {
        metrics: metrics::measure(&trace, &runs, &clusters),
        trace: args.trace.as_ref().map_or(format!("{made_up} made-up jobs"), |path| path.display().to_string()),
        machines: args.machines.display().to_string(),
        policy: args.policy.clone(),
        rules: args.rules,
        seed: args.seed,
        slack: args.slack.clone(),
        search: (args.policy == policy::PLANNED).then_some(args.search),
        speed,
        memory_mib_max: usage::peak_mib(),
        growth,
    };
    if let Some(path) = &args.report {
        let page = page::page(&outcome, &Series::of(&trace.jobs, &runs), metrics::processors_of(&clusters));
        page.write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    args.output.print(|| output::table(&outcome), &outcome).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Replays these jobs under a policy with its search and seed; how long that took.
fn play(
    (name, search, seed): (&str, u32, u64),
    jobs: &[Job],
    clusters: &[ClusterSpec],
) -> anyhow::Result<(Vec<Run>, Speed)> {
    let mut policy = policy::named(name, &Setup { clusters, seed, search })
        .with_context(|| BadUsage::new(format_args!("policy {name}: only with --uplink-mbps")))?;
    let progress = Progress::new("jobs", jobs.len() as u64);
    let watch = |ended: usize| {
        if ended.is_multiple_of(SHOWN_EVERY) {
            progress.at(ended as u64);
        }
    };
    let started = Instant::now();
    let replayed = engine::replay(jobs, clusters, policy.as_mut(), watch);
    let replay_seconds = started.elapsed().as_secs_f64();
    progress.end();
    let runs = replayed.with_context(|| format!("policy {name}"))?;
    let speed = Speed { replay_seconds, jobs_per_second: runs.len() as f64 / replay_seconds.max(1e-9) };
    Ok((runs, speed))
}
