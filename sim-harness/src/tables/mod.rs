//! `kolo-sim tables`: the source's tables 3.2 to 3.4 and its parameter study, planned by Kolo's core, by the textbook
//! version and by any policy named, in the same run.
//!
//! Invariant: nothing is printed as ours but what was measured in this run, and only times differ between two runs with
//! the same arguments; bad input names the file and line.

pub mod args;
mod error;
mod exhaustive;
mod measure;
mod page;
mod present;
mod source;
mod study;
mod summary;
#[cfg(test)]
mod tests;
mod workload;

use std::{
    io,
    path::{Path, PathBuf},
};

use broker::phases::Settings;
use serde::Serialize;

use self::{
    args::TablesArgs,
    error::TablesError,
    measure::{Case, EXHAUSTIVE_HOSTS, Method},
    study::Study,
    summary::{Comparison, Optimality, Row, Version},
    workload::{Question, Workload},
};
use crate::{
    placement,
    progress::Progress,
    report::{PlaceError, check_places, write_whole},
    stats::Spread,
};

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub struct Tables {
    /// Where the cases come from.
    pub origin: String,
    /// Hosts of the grid.
    pub grid_hosts: usize,
    /// The seed.
    pub seed: u64,
    /// One row for every N, collective requests.
    pub collective: Vec<Row>,
    /// One row for every N, simple requests.
    pub simple: Option<Vec<Row>>,
    /// Kolo's answers to the same requests in both kinds.
    pub comparison: Option<Comparison>,
    /// Names of the policies, in the order of their figures.
    pub policies: Vec<String>,
    /// Each version's figures that go over both kinds or over all N.
    pub versions: Vec<VersionTables>,
    /// The parameter study.
    pub study: Option<Study>,
}

/// Tables 3.2, 3.3 and 3.4 of one version.
#[derive(Debug, Serialize)]
pub struct VersionTables {
    /// Its name.
    pub version: String,
    /// Table 3.2: by N, then over all.
    pub table_3_2: Vec<Comparison>,
    /// By how many hours the collective request starts earlier, for each pair that both solve, ascending.
    pub start_gains_hours: Vec<f64>,
    /// Table 3.3, collective.
    pub table_3_3: Option<Optimality>,
    /// Table 3.3, simple.
    pub table_3_3_simple: Option<Optimality>,
    /// Table 3.4: phases II to V of the collective requests for 5 hosts, in microseconds.
    pub table_3_4_us: Option<Spread>,
}

/// Plans everything and prints the tables.
///
/// # Errors
/// [`TablesError`] names the file and what is wrong with it.
pub fn run(args: &TablesArgs) -> Result<(), TablesError> {
    let places = [&args.plans, &args.plans_simple, &args.html].into_iter().flatten();
    check_places(places).map_err(|PlaceError { path, source }| TablesError::File { path, source })?;
    let (tables, plans) = make(args)?;
    for (path, lines) in [(&args.plans, plans.collective), (&args.plans_simple, plans.simple)] {
        if let Some(path) = path {
            write(path, lines.as_bytes())?;
        }
    }
    if let Some(path) = &args.html {
        write(path, page::page(&tables).html().as_bytes())?;
    }
    args.output.print(|| present::text(&tables), &tables)?;
    Ok(())
}

/// The plan lines of both kinds.
struct Plans {
    collective: String,
    simple: String,
}

fn make(args: &TablesArgs) -> Result<(Tables, Plans), TablesError> {
    let workload = Workload::new(args)?;
    let settings = Settings { effort: args.effort.into(), ..Settings::default() };
    let policies = args.policy.iter().filter_map(|name| Some((name.clone(), placement::named(name)?)));
    let method = Method {
        settings,
        seed: args.seed,
        repeats: args.repeats,
        with_textbook: !args.no_textbook,
        policies: policies.collect(),
    };
    let requests = workload.collective.len() + workload.simple.as_ref().map_or(0, Vec::len);
    let bar = Progress::new("requests", requests as u64);
    let plan = |questions: &[Question], path: &Option<PathBuf>, exact: &Option<PathBuf>| {
        let path = path.clone().unwrap_or_else(|| "generated requests".into());
        measure::measure(&workload, questions, &path, &measure::read_exact(exact.as_deref())?, &method, &bar)
    };
    let collective = plan(&workload.collective, &args.collective, &args.exact)?;
    let simple = match &workload.simple {
        Some(questions) => Some(plan(questions, &args.simple, &args.exact_simple)?),
        None => None,
    };
    bar.end();
    let study = (!args.no_study).then(|| run_study(args, &workload, settings));
    let plans = Plans { collective: lines(&collective)?, simple: lines(simple.as_deref().unwrap_or(&[]))? };
    let count = method.policies.len();
    let named = [("Kolo", Version::Kolo), ("textbook", Version::Textbook)].into_iter();
    let others = args.policy.iter().enumerate().map(|(at, name)| (name.as_str(), Version::Policy(at)));
    let tables = Tables {
        origin: workload.origin.clone(),
        grid_hosts: workload.grid.hosts.len(),
        seed: args.seed,
        collective: summary::rows(&collective, count),
        simple: simple.as_deref().map(|simple| summary::rows(simple, count)),
        comparison: simple.as_deref().map(|simple| summary::compare(&collective, simple, None, Version::Kolo)),
        policies: args.policy.clone(),
        versions: named
            .filter(|(_, version)| method.with_textbook || *version == Version::Kolo)
            .chain(others)
            .map(|(name, version)| version_tables(name, version, &collective, simple.as_deref()))
            .collect(),
        study,
    };
    Ok((tables, plans))
}

fn version_tables(name: &str, version: Version, collective: &[Case], simple: Option<&[Case]>) -> VersionTables {
    let numbers = summary::by_hosts(collective).into_keys().map(Some).chain([None]);
    VersionTables {
        version: name.to_owned(),
        table_3_2: simple.map_or(Vec::new(), |simple| {
            numbers.map(|hosts| summary::compare(collective, simple, hosts, version)).collect()
        }),
        start_gains_hours: simple.map_or(Vec::new(), |simple| summary::start_gains(collective, simple, version)),
        table_3_3: summary::optimality(collective, version),
        table_3_3_simple: simple.and_then(|simple| summary::optimality(simple, version)),
        table_3_4_us: summary::times(collective, EXHAUSTIVE_HOSTS, version),
    }
}

fn run_study(args: &TablesArgs, workload: &Workload, settings: Settings) -> Study {
    let requests = study::questions(&workload.collective);
    let runs = requests.len() * study::STEPS * args.study_runs as usize;
    let bar = Progress::new("runs of the parameter study", runs as u64);
    let pool = placement::pool(&workload.grid);
    let study = study::study(&requests, &pool, settings, args.study_runs, args.seed, &bar);
    bar.end();
    study
}

/// The plan lines of the cases, one a line.
fn lines(cases: &[Case]) -> Result<String, TablesError> {
    let mut text = String::new();
    for case in cases {
        text += &serde_json::to_string(&case.line).map_err(io::Error::from)?;
        text.push('\n');
    }
    Ok(text)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), TablesError> {
    write_whole(path, |file| file.write_all(bytes))
        .map_err(|source| TablesError::File { path: path.to_owned(), source })
}
