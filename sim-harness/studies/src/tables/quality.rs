//! `kolo-study tables --study quality`: a trace with deadlines under the disciplines of queues and under a plan.
//!
//! Invariant: as of all tables; every policy sees the same jobs and deadlines, which depend on the seed alone.

use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use sim_kit::{
    error::BadUsage,
    progress::Progress,
    report::{Axis, Page, Plot, Table, check_places},
};

use super::args::TablesArgs;
use crate::replay::{
    args::{Overrun, Rules, Runtimes},
    contest::Contest,
};

/// The policies, with how many other plans each looks at in a search.
const POLICIES: [(&str, &str, u32); 6] = [
    ("FCFS", "fcfs", 0),
    ("EDF", "edf", 0),
    ("EASY", "easy", 0),
    ("plan, K = 0", "qos-plan", 0),
    ("plan, K = 30", "qos-plan", 30),
    ("plan, K = 100", "qos-plan", 100),
];
const RUNTIMES: [(&str, Runtimes); 2] = [("true run times", Runtimes::True), ("limits", Runtimes::Estimates)];

/// Means over all draws of deadlines.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Figures {
    in_time_percent: f64,
    weighted_response_s: f64,
    wait_s: f64,
    bounded_slowdown: f64,
    makespan_s: f64,
}

type Figure = fn(&Figures) -> f64;
const FIGURES: [(&str, Figure); 5] = [
    ("jobs in time, %", |of| of.in_time_percent),
    ("weighted response, s", |of| of.weighted_response_s),
    ("wait, s", |of| of.wait_s),
    ("bounded slowdown", |of| of.bounded_slowdown),
    ("makespan, s", |of| of.makespan_s),
];

#[derive(Debug, Serialize)]
struct Part {
    runtimes: &'static str,
    /// In the order of the policies.
    figures: Vec<Figures>,
}

#[derive(Debug, Serialize)]
struct Quality {
    trace: String,
    seed: u64,
    draws: u64,
    policies: Vec<&'static str>,
    parts: Vec<Part>,
}

/// Runs the study and prints its tables.
///
/// # Errors
/// When a file cannot be read or written, or a policy is broken.
pub(super) fn run(args: &TablesArgs, draws: u64) -> anyhow::Result<ExitCode> {
    check_places(args.html.iter())?;
    let (Some(trace), Some(machines)) = (&args.trace, &args.machines) else {
        return Err(BadUsage::new("--study quality: expected --trace and --machines").into());
    };
    let runs = (POLICIES.len() * RUNTIMES.len()) as u64 * draws;
    let (progress, mut done) = (Progress::new("replays", runs), 0);
    let mut parts = Vec::new();
    for (name, runtimes) in RUNTIMES {
        let rules = Rules { runtimes, overrun: Overrun::Kill, teardown_s: 1, ignores_tags: false, jobs_max: None };
        let mut contest = Contest::read(trace, machines, &rules)?;
        let mut figures = vec![Figures::default(); POLICIES.len()];
        for (of, (_, policy, search)) in figures.iter_mut().zip(POLICIES) {
            for draw in 0..draws {
                let metrics = contest.measure(policy, search, args.seed.wrapping_add(draw))?;
                let part = 1.0 / draws as f64;
                of.in_time_percent += part * 100.0 * metrics.in_time as f64 / metrics.jobs.max(1) as f64;
                of.weighted_response_s += part * metrics.weighted_response_s;
                of.wait_s += part * metrics.wait_s.mean;
                of.bounded_slowdown += part * metrics.bounded_slowdown.mean;
                of.makespan_s += part * metrics.makespan_s;
                done += 1;
                progress.at(done);
            }
        }
        parts.push(Part { runtimes: name, figures });
    }
    progress.end();
    let policies = POLICIES.map(|(name, ..)| name).to_vec();
    let study = Quality { trace: trace.display().to_string(), seed: args.seed, draws, policies, parts };
    if let Some(path) = &args.html {
        page(&study).write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    args.output.print(|| text(&study), &study).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn table(part: &Part) -> Table {
    let mut table = Table::new([part.runtimes].into_iter().chain(FIGURES.map(|(name, _)| name)));
    for ((name, ..), of) in POLICIES.into_iter().zip(&part.figures) {
        table.row(name.to_owned(), FIGURES.map(|(_, figure)| format!("{:.1}", figure(of))));
    }
    table
}

fn text(study: &Quality) -> String {
    let Quality { trace, seed, draws, parts, .. } = study;
    let tables: Vec<String> = parts.iter().map(|part| table(part).text()).collect();
    format!("{trace}, {draws} draws of deadlines from seed {seed}\n\n{}\n", tables.join("\n\n"))
}

fn page(study: &Quality) -> Page {
    let mut page = Page::new("Deadlines and quality of service");
    page.text(
        "A trace with deadlines (submission and the limit times 1.5, 2 or 4) under first come first served, earliest deadline first, EASY \
         backfilling, and a plan of all jobs that wait: the source's (K = 0), and improved by a local search of K other plans.",
    );
    page.text(&format!("{}; means of {} draws of deadlines from seed {}.", study.trace, study.draws, study.seed));
    for (name, figure) in FIGURES {
        let mut plot = Plot::new(name, Axis::names("policy", POLICIES.map(|(name, ..)| name)), Axis::linear(name));
        for part in &study.parts {
            plot = plot.line(part.runtimes, part.figures.iter().enumerate().map(|(at, of)| (at as f64, figure(of))));
        }
        page.plot(&plot, name);
    }
    study.parts.iter().for_each(|part| page.table(&table(part)));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_named_once_and_every_figure_has_a_column() {
        let part = Part { runtimes: "limits", figures: vec![Figures { wait_s: 7.25, ..Figures::default() }; 6] };
        let text = table(&part).text();
        assert!(POLICIES.iter().all(|(name, ..)| text.matches(name).count() == 1), "{text}");
        assert!(FIGURES.iter().all(|(name, _)| text.contains(name)) && text.contains("7.2"), "{text}");
    }
}
