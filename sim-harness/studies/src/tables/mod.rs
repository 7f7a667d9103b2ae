//! `kolo-study tables`: the source's tables 3.2 to 3.4 and its parameter study, planned by Kolo's core, by the textbook
//! version and by any policy named, in the same run.
//!
//! Invariant: nothing is printed as ours but what was measured in this run, and only times differ between two runs with
//! the same arguments; bad input names the file and line.

pub mod args;
mod clusters;
mod colocation;
mod exhaustive;
mod late_binding;
mod measure;
mod page;
mod parallel;
mod present;
mod quality;
mod source;
mod study;
mod summary;
#[cfg(test)]
mod tests;
mod windows;
mod workload;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use broker::phases::Settings;
use serde::Serialize;
use sim_kit::{
    error::BadUsage,
    progress::Progress,
    report::{check_places, write_whole},
};

use self::{
    args::{OtherStudy, TablesArgs},
    measure::{Case, EXHAUSTIVE_HOSTS, Method, Version},
    study::Study,
    summary::{Comparison, Row, VersionTables},
    workload::{Question, Workload},
};
use crate::placement;

/// Everything that is printed.
#[derive(Debug, Serialize)]
struct Tables {
    /// Where the cases come from.
    origin: String,
    /// Hosts of the grid.
    grid_hosts: usize,
    seed: u64,
    /// One row for every N, collective requests.
    collective: Vec<Row>,
    /// One row for every N, simple requests.
    simple: Option<Vec<Row>>,
    /// Kolo's answers to the same requests in both kinds.
    comparison: Option<Comparison>,
    /// Names of the policies, in the order of their figures.
    policies: Vec<String>,
    /// The figures of each version that go over both kinds or over all N.
    versions: Vec<VersionTables>,
    study: Option<Study>,
}

/// Plans everything and prints the tables.
///
/// # Errors
/// Bad usage with file and line; else when a policy is broken or the result cannot be printed.
pub fn run(args: &TablesArgs) -> anyhow::Result<ExitCode> {
    match args.study {
        Some(OtherStudy::Windows) => return windows::run(args, args.experiments.unwrap_or(5000)),
        Some(OtherStudy::Clusters) => return clusters::run(args, args.experiments.unwrap_or(20)),
        Some(OtherStudy::LateBinding) => return late_binding::run(args, args.experiments.unwrap_or(100)),
        Some(OtherStudy::Quality) => return quality::run(args, args.experiments.unwrap_or(3)),
        Some(OtherStudy::Colocation) => return colocation::run(args, args.experiments.unwrap_or(4)),
        None => {}
    }
    check_places([&args.plans, &args.plans_simple, &args.html].into_iter().flatten())?;
    let (tables, plans) = make(args)?;
    for (path, lines) in [&args.plans, &args.plans_simple].into_iter().zip(plans) {
        write(path.as_deref(), || lines)?;
    }
    write(args.html.as_deref(), || page::page(&tables).html())?;
    args.output.print(|| present::text(&tables), &tables).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The tables, and the plan lines of both kinds.
fn make(args: &TablesArgs) -> anyhow::Result<(Tables, [String; 2])> {
    let workload = Workload::new(args)?;
    let settings = Settings { effort: args.effort, ..Settings::default() };
    let textbook = (!args.no_textbook).then(|| ("textbook".to_owned(), Version::Textbook));
    let policies = args.policy.iter().filter_map(|name| Some((name.clone(), Version::Policy(placement::named(name)?))));
    let others = textbook.into_iter().chain(policies).collect();
    let method = Method { settings, seed: args.seed, repeats: args.repeats, others };
    let requests = workload.collective.len() + workload.simple.as_ref().map_or(0, Vec::len);
    let bar = Progress::new("requests", requests as u64);
    let plan = |questions: &[Question], path: &Option<PathBuf>, exact: &Option<PathBuf>| {
        let name = path.as_ref().map_or("generated requests".to_owned(), |path| path.display().to_string());
        measure::measure(&workload, questions, &name, &measure::read_exact(exact.as_deref())?, &method, &bar)
    };
    let collective = plan(&workload.collective, &args.collective, &args.exact)?;
    let simple = workload.simple.as_ref().map(|questions| plan(questions, &args.simple, &args.exact_simple));
    let simple = simple.transpose()?;
    bar.end();
    let study = (!args.no_study).then(|| study::study(args, &workload, settings));
    let plans = [lines(&collective)?, lines(simple.as_deref().unwrap_or(&[]))?];
    let names = ["Kolo"].into_iter().chain(method.others.iter().map(|(name, _)| name.as_str()));
    let version = |(number, name)| VersionTables::of(number, name, &collective, simple.as_deref(), EXHAUSTIVE_HOSTS);
    let tables = Tables {
        origin: workload.origin.clone(),
        grid_hosts: workload.grid.hosts.len(),
        seed: args.seed,
        collective: summary::rows(&collective, !args.no_textbook),
        simple: simple.as_deref().map(|simple| summary::rows(simple, !args.no_textbook)),
        comparison: simple.as_deref().map(|simple| summary::compare(&summary::pairs(&collective, simple, 0), None)),
        policies: args.policy.clone(),
        versions: names.enumerate().map(version).collect(),
        study,
    };
    Ok((tables, plans))
}

/// The plan lines of the cases, one a line.
fn lines(cases: &[Case]) -> anyhow::Result<String> {
    let lines: Result<Vec<String>, _> =
        cases.iter().map(|case| Ok(serde_json::to_string(&case.line)? + "\n")).collect();
    lines.map(|lines| lines.concat())
}

/// Writes a file where a path is given.
fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    write_whole(path, |file| file.write_all(text().as_bytes())).with_context(|| BadUsage::new(path.display()))
}
