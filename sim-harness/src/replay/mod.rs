//! `kolo-sim replay`: a whole workload trace in virtual time under a scheduling policy, with the metrics of the field.
//!
//! Invariant: the same trace, machines, flags and seed give the same starts and ends on every machine; the only clock that
//! is read measures the replay itself.

pub mod args;
mod cluster;
mod engine;
mod growth;
mod job;
mod lines;
mod machines;
mod metrics;
mod output;
mod page;
mod policy;
mod record;
mod rules;
mod series;
mod synthetic;
#[cfg(test)]
mod tests;
mod trace;

use std::{process::ExitCode, time::Instant};

use anyhow::Context;

use self::{
    args::ReplayArgs,
    cluster::ClusterSpec,
    engine::Run,
    growth::{Point, Speed},
    job::Job,
    output::{Cost, Document, Setting},
    policy::Setup,
    rules::Rules,
    series::Series,
    trace::Trace,
};
use crate::{error::BadUsage, progress::Progress, report::check_places, usage};

/// Jobs between two looks at the display.
const SHOWN_EVERY: usize = 256;

/// Runs the command.
///
/// # Errors
/// Bad usage when a file cannot be used; else when the policy is broken or the result cannot be printed.
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    check_places(args.jobs_csv.iter().chain(&args.report)).map_err(BadUsage::new)?;
    let clusters = machines::read(&args.machines)?;
    let setting = setting(args);
    let trace = trace_of(args, &clusters, &setting.rules)?;
    eprint!("{}", output::findings(&trace.findings));
    let mut growth = Vec::new();
    if args.growth {
        for jobs in growth::sizes_below(trace.jobs.len()) {
            let speed = growth::fastest(|| play(args, &trace.jobs[..jobs], &clusters).map(|(_, speed)| speed))?;
            growth.push(Point { jobs, speed });
        }
    }
    let (runs, speed) = play(args, &trace.jobs, &clusters)?;
    if args.growth {
        growth.push(Point { jobs: runs.len(), speed });
    }
    let metrics = metrics::measure(&trace, &runs, &clusters);
    if let Some(path) = &args.jobs_csv {
        output::write_jobs(path, &trace, &runs, &clusters).with_context(|| BadUsage::new(path.display()))?;
    }
    if let Some(path) = &args.report {
        let series = Series::of(&trace.jobs, &runs);
        let page = page::page(&metrics, &setting, &series, &growth, metrics::processors_of(&clusters));
        page.write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    let cost = Cost { speed, memory_mib_max: usage::peak_mib(), growth };
    let document = Document { metrics: &metrics, setting: &setting, cost: &cost };
    args.output.print(|| output::table(&metrics, &setting, &cost), &document).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The jobs of the trace's file, or made-up ones.
fn trace_of(args: &ReplayArgs, clusters: &[ClusterSpec], rules: &Rules) -> anyhow::Result<Trace> {
    if let Some(path) = &args.trace {
        return trace::read(path, clusters, rules);
    }
    let jobs = args.synthetic.into_iter().chain(args.limit).min().unwrap_or_default();
    Ok(trace::of_records(synthetic::records(args.seed, jobs as usize, clusters), clusters, rules))
}

/// Replays these jobs; how long that took.
fn play(args: &ReplayArgs, jobs: &[Job], clusters: &[ClusterSpec]) -> anyhow::Result<(Vec<Run>, Speed)> {
    // The name was checked when the flags were read.
    let setup = Setup { clusters, seed: args.seed };
    let Some(mut policy) = policy::named(&args.policy, &setup) else { return Ok((Vec::new(), Speed::default())) };
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
    let runs = replayed.with_context(|| format!("policy {}", args.policy))?;
    let speed = Speed { replay_seconds, jobs_per_second: runs.len() as f64 / replay_seconds.max(1e-9) };
    Ok((runs, speed))
}

fn setting(args: &ReplayArgs) -> Setting {
    Setting {
        trace: match &args.trace {
            Some(path) => path.display().to_string(),
            None => format!("{} made-up jobs", args.synthetic.unwrap_or_default()),
        },
        machines: args.machines.display().to_string(),
        policy: args.policy.clone(),
        rules: Rules {
            runtimes: args.runtimes,
            overrun: args.overrun,
            teardown_s: args.teardown,
            ignores_tags: args.ignore_tags,
            jobs_max: args.limit.map(|jobs| jobs as usize),
        },
        seed: args.seed,
    }
}
