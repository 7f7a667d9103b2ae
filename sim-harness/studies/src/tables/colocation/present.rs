//! The tables of the study as people read them, on a terminal and on a page.
//!
//! Invariant: the source's figures are called so.

use serde::Serialize;
use sim_kit::{
    report::{Axis, Page, Plot, Table},
    stats::mean,
};

use super::experiments::{ALPHAS, FORMS, Gain, Gains, ORDERS, Row, Threshold, Timed};

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
/// job ends earlier, mean and deviation; batches in which it does.
const SOURCE: [(&str, [&str; 8]); 2] = [
    ("set", ["115", "3", "10", "8.0", "6.0", "1.75", "2.33", "103"]),
    ("partition", ["120", "2", "6", "8.2", "5.3", "2.23", "1.72", "116"]),
];
const SOURCE_SCENARIOS: &str = "The source's means by scenario: set 7 to 13 % with jobs of one seat, 1 to 11 % with jobs of several; partition 4 to 12 %.";
const SOURCE_TIMES: &str =
    "The source's pairing with a generic optimiser: 100 pairings 1 minute, 700 pairings 8, 4,200 pairings 50.";
const SOURCE_THRESHOLDS: &str = "The source chose alpha = 10 % and W = 175 %.";
const OVERALL: &str = "All batches in both orders: gain of run time over the same order without pairs";
const SCENARIOS: &str = "Mean gain by scenario: of run time in per cent, and by how many hours the last end is earlier";
const THRESHOLDS: &str = "Mean gain of run time by alpha and W, at most 30 hosts, in per cent";
const TIMES: &str = "Time to plan a batch, in seconds";

fn overall(study: &Colocation) -> Table {
    let mut table = Table::new([
        "form",
        "improved",
        "equal",
        "worse",
        "mean %",
        "deviation",
        "last end, hours earlier",
        "deviation",
        "ends earlier",
    ]);
    for (at, (name, _)) in FORMS.iter().enumerate() {
        let all: Vec<Gain> = study.scenarios.iter().flat_map(|row| row.gains[at].iter().copied()).collect();
        let Gains { run_time_percent, last_end_hours, earlier, improved, equal, worse } = Gains::of(&all);
        let counts = [improved, equal, worse].map(|count| count.to_string());
        let figures = [run_time_percent.mean, run_time_percent.sd].map(|figure| format!("{figure:.1}"));
        let last_end = [last_end_hours.mean, last_end_hours.sd].map(|figure| format!("{figure:.2}"));
        table.row(*name, counts.into_iter().chain(figures).chain(last_end).chain([earlier.to_string()]));
    }
    for (name, figures) in SOURCE {
        table.row(format!("{name} (source)"), figures);
    }
    table
}

fn by_scenario(study: &Colocation) -> Table {
    let begin = ["hosts", "seats", "balanced %", "order", "requests"].map(str::to_owned);
    let end = FORMS.map(|(name, _)| format!("{name}, last end"));
    let middle = FORMS.map(|(name, _)| name.to_owned()).into_iter().chain(["room by the bound".to_owned()]);
    let mut table = Table::new(begin.into_iter().chain(middle).chain(end));
    for row in &study.scenarios {
        let seats = if row.scenario.is_parallel { "several" } else { "one" };
        let gains = (0..FORMS.len()).map(|form| RUN_TIME.of(row, form));
        let figures = gains.chain([row.room_percent]).map(|figure| format!("{figure:.1}"));
        let ends = (0..FORMS.len()).map(|form| format!("{:.2}", LAST_END.of(row, form)));
        let begin = [seats.to_owned(), row.scenario.balanced_percent.to_string(), row.order.to_owned()];
        let begin = begin.into_iter().chain([format!("{:.0}", row.requests)]);
        table.row(row.scenario.hosts.to_string(), begin.chain(figures).chain(ends));
    }
    table
}

/// What of a gain is shown.
struct Shown {
    axis: &'static str,
    value: fn(&Gain) -> f64,
}

const RUN_TIME: Shown = Shown { axis: "gain of run time, %", value: |gain| gain.run_time_percent };
const LAST_END: Shown = Shown { axis: "last end, hours earlier", value: |gain| gain.last_end_hours };

impl Shown {
    fn of(&self, row: &Row, form: usize) -> f64 {
        mean(row.gains[form].iter().map(self.value))
    }
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
    let mut table = Table::new(["requests", "hosts", "pairings tried", "set", "partition", "best"]);
    for row in &study.times {
        let seconds = row.seconds.map(|seconds| format!("{seconds:.4}"));
        table.row(
            row.requests.to_string(),
            [row.hosts.to_string(), row.pairings.to_string()].into_iter().chain(seconds),
        );
    }
    table
}

/// The tables, each with its title and what the source says.
fn tables(study: &Colocation) -> [(&'static str, Table, &'static str); 4] {
    [
        (OVERALL, overall(study), ""),
        (SCENARIOS, by_scenario(study), SOURCE_SCENARIOS),
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

fn scenario_plot(study: &Colocation, is_parallel: bool, order: &str, shown: &Shown) -> Plot {
    let is_of = |row: &&Row| row.scenario.is_parallel == is_parallel && row.order == order;
    let rows: Vec<&Row> = study.scenarios.iter().filter(is_of).collect();
    let names = rows.iter().map(|row| format!("{}, {} %", row.scenario.hosts, row.scenario.balanced_percent));
    let title = format!("Jobs of {}, {order}", if is_parallel { "several seats" } else { "one seat" });
    let plot = Plot::new(&title, Axis::names("hosts, balanced jobs", names), Axis::linear(shown.axis));
    FORMS.iter().enumerate().fold(plot, |plot, (form, (name, _))| {
        plot.bars(name, rows.iter().enumerate().map(|(at, row)| (at as f64, shown.of(row, form))))
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
    for (shown, is_parallel) in [(&RUN_TIME, false), (&RUN_TIME, true), (&LAST_END, false), (&LAST_END, true)] {
        ORDERS.iter().for_each(|(order, _)| page.plot(&scenario_plot(study, is_parallel, order, shown), SCENARIOS));
    }
    page.heading(third.0);
    page.text(third.2);
    let (alphas, sizes) = study.thresholds.split_at(ALPHAS.len());
    page.plot(&threshold_plot("alpha", alphas, |row| row.alpha_percent), third.0);
    page.plot(&threshold_plot("W", sizes, |row| row.size_percent), third.0);
    page.table(&third.1);
    page.heading(fourth.0);
    page.text(fourth.2);
    let plot = Plot::new(TIMES, Axis::log("pairings tried"), Axis::log("seconds"));
    let plot = FORMS.iter().enumerate().fold(plot, |plot, (at, (name, _))| {
        plot.line(name, study.times.iter().map(|row| (row.pairings.max(1) as f64, row.seconds[at].max(1e-6))))
    });
    page.plot(&plot, "One processor, one batch each.");
    page.table(&fourth.1);
    page
}
