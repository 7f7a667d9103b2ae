//! The tables of the study as people read them, on a terminal and on a page.
//!
//! Invariant: the source's figures are called so.

use serde::Serialize;

use super::experiments::{ALPHAS, FORMS, Gain, Gains, Row, Threshold, Timed};
use crate::{
    report::{Axis, Page, Plot, Table},
    stats::mean,
};

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub(super) struct Colocation {
    pub(super) seed: u64,
    pub(super) batches: u64,
    pub(super) scenarios: Vec<Row>,
    pub(super) thresholds: Vec<Threshold>,
    pub(super) times: Vec<Timed>,
}

/// The source's figures over all of its 128 batches: improved, equal, worse; mean and deviation of the gain in per cent; hours that the last
/// job ends earlier.
const SOURCE: [(&str, [&str; 6]); 2] =
    [("set", ["115", "3", "10", "8.0", "6.0", "1.75"]), ("partition", ["120", "2", "6", "8.2", "5.3", "2.23"])];
const SOURCE_TIMES: &str =
    "The source's pairing with a generic optimiser: 100 pairings 1 minute, 700 pairings 8, 4,200 pairings 50.";
const SOURCE_THRESHOLDS: &str = "The source chose alpha = 10 % and W = 175 %.";
const OVERALL: &str = "All batches: gain of run time over longest first without pairs";
const SCENARIOS: &str = "Mean gain of run time by scenario, in per cent";
const THRESHOLDS: &str = "Mean gain of run time by alpha and W, at most 30 hosts, in per cent";
const TIMES: &str = "Time to plan a batch, in seconds";

fn overall(study: &Colocation) -> Table {
    let mut table =
        Table::new(["form", "improved", "equal", "worse", "mean %", "deviation", "last end, hours earlier"]);
    for (at, (name, _)) in FORMS.iter().enumerate() {
        let all: Vec<Gain> = study.scenarios.iter().flat_map(|row| row.gains[at].iter().copied()).collect();
        let Gains { run_time_percent, last_end_hours, improved, equal, worse } = Gains::of(&all);
        let counts = [improved, equal, worse].map(|count| count.to_string());
        let figures = [run_time_percent.mean, run_time_percent.sd].map(|figure| format!("{figure:.1}"));
        table.row(*name, counts.into_iter().chain(figures).chain([format!("{last_end_hours:.2}")]));
    }
    for (name, figures) in SOURCE {
        table.row(format!("{name} (source)"), figures);
    }
    table
}

fn by_scenario(study: &Colocation) -> Table {
    let header = ["hosts", "seats", "balanced %", "requests", "set", "partition", "best", "room by the bound"];
    let mut table = Table::new(header);
    for row in &study.scenarios {
        let seats = if row.scenario.is_parallel { "several" } else { "one" };
        let gains = row.gains.iter().map(|gains| mean(gains.iter().map(|gain| gain.run_time_percent)));
        let figures = gains.chain([row.room_percent]).map(|figure| format!("{figure:.1}"));
        let begin = [seats.to_owned(), row.scenario.balanced_percent.to_string(), format!("{:.0}", row.requests)];
        table.row(row.scenario.hosts.to_string(), begin.into_iter().chain(figures));
    }
    table
}

fn by_threshold(study: &Colocation) -> Table {
    let mut table = Table::new(["alpha, W in %", "set", "partition"]);
    for row in &study.thresholds {
        let gains = row.gains.map(|gains| format!("{:.2}", gains.run_time_percent.mean));
        table.row(format!("{}, {}", row.alpha_percent, row.size_percent), gains);
    }
    table
}

fn times(study: &Colocation) -> Table {
    let mut table = Table::new(["requests", "hosts", "set", "partition", "best"]);
    for row in &study.times {
        let seconds = row.seconds.map(|seconds| format!("{seconds:.4}"));
        table.row(row.requests.to_string(), [row.hosts.to_string()].into_iter().chain(seconds));
    }
    table
}

/// The tables, each with its title and what the source says.
fn tables(study: &Colocation) -> [(&'static str, Table, &'static str); 4] {
    [
        (OVERALL, overall(study), ""),
        (SCENARIOS, by_scenario(study), ""),
        (THRESHOLDS, by_threshold(study), SOURCE_THRESHOLDS),
        (TIMES, times(study), SOURCE_TIMES),
    ]
}

/// All tables as text.
pub(super) fn text(study: &Colocation) -> String {
    let mut text = format!("{} batches of each scenario, seed {}\n", study.batches, study.seed);
    for (title, table, source) in tables(study) {
        text += &format!("\n{title}\n{}\n", table.text());
        if !source.is_empty() {
            text += &format!("{source}\n");
        }
    }
    text
}

fn scenario_plot(study: &Colocation, is_parallel: bool) -> Plot {
    let rows: Vec<&Row> = study.scenarios.iter().filter(|row| row.scenario.is_parallel == is_parallel).collect();
    let names = rows.iter().map(|row| format!("{}, {} %", row.scenario.hosts, row.scenario.balanced_percent));
    let title = if is_parallel { "Jobs of several seats" } else { "Jobs of one seat" };
    let plot = Plot::new(title, Axis::names("hosts, balanced jobs", names), Axis::linear("gain of run time, %"));
    FORMS.iter().enumerate().fold(plot, |plot, (at, (name, _))| {
        let gain = |row: &&Row| mean(row.gains[at].iter().map(|gain| gain.run_time_percent));
        plot.bars(name, rows.iter().map(gain).enumerate().map(|(at, gain)| (at as f64, gain)))
    })
}

fn threshold_plot(title: &str, rows: &[Threshold], value: fn(&Threshold) -> u64) -> Plot {
    let plot = Plot::new(title, Axis::linear("per cent"), Axis::linear("gain of run time, %"));
    FORMS.iter().take(2).enumerate().fold(plot, |plot, (at, (name, _))| {
        plot.line(name, rows.iter().map(|row| (value(row) as f64, row.gains[at].run_time_percent.mean)))
    })
}

/// The page.
pub(super) fn page(study: &Colocation) -> Page {
    let mut page = Page::new("Co-location");
    page.text(
        "Jobs that complement each other share hosts, at factors at which they fill them: as in the source (set, partition), and improved by \
         search (best). The gain is that over longest first, without pairs and factors, of the last ends of all hosts together.",
    );
    page.text(&format!("{} batches of each scenario, seed {}.", study.batches, study.seed));
    let [first, second, third, fourth] = tables(study);
    for (title, table, source) in [first, second] {
        page.heading(title);
        page.text(source);
        page.table(&table);
    }
    for is_parallel in [false, true] {
        page.plot(&scenario_plot(study, is_parallel), SCENARIOS);
    }
    page.heading(third.0);
    page.text(third.2);
    let (alphas, sizes) = study.thresholds.split_at(ALPHAS.len());
    page.plot(&threshold_plot("alpha", alphas, |row| row.alpha_percent), third.0);
    page.plot(&threshold_plot("W", sizes, |row| row.size_percent), third.0);
    page.table(&third.1);
    page.heading(fourth.0);
    page.text(fourth.2);
    let plot = Plot::new(TIMES, Axis::log("requests"), Axis::log("seconds"));
    let plot = FORMS.iter().enumerate().fold(plot, |plot, (at, (name, _))| {
        plot.line(name, study.times.iter().map(|row| (row.requests as f64, row.seconds[at].max(1e-6))))
    });
    page.plot(&plot, "One processor, one batch each.");
    page.table(&fourth.1);
    page
}
