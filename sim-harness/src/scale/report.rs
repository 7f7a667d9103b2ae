//! The figures of all runs as people read them.
//!
//! Invariant: nothing is printed here that is not in the JSON as well.

use std::collections::BTreeSet;

use serde::Serialize;
use sim_kit::{
    report::{Axis, Page, Plot, Table},
    stats::{Percentiles, percentiles},
};

use super::{compare::Comparison, figures::Figures};

/// A remark that belongs to every result.
const NOTE: &str = "A node of today has one shard. Runs with more show a node that takes part in the shards of its view only, \
                    which is a plan.";
const BYTES_IN_KB: f64 = 1000.0;

/// A row of the table: its name, and its cell for a run.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: [Row; 23] = [
    ("shards that a node takes part in", |run| run.subscribed_shards.to_string()),
    ("sites that a node knows", |run| run.view_sites.to_string()),
    ("requests", |run| run.counts.requests.to_string()),
    ("reserved / rejected / failed", |run| {
        format!("{} / {} / {}", run.counts.reserved, run.counts.rejected, run.counts.failed)
    }),
    ("reserved at the first attempt, %", |run| percent(run.counts.first_try_share.value())),
    ("holds refused, %", |run| percent(run.counts.conflict_rate.value())),
    ("hosts planned on that had changed, %", |run| percent(run.counts.stale_hosts_share.value())),
    ("age of what was planned on, s", |run| sample(&run.counts.view_age_ms, 1000.0)),
    ("schedules fetched a request", |run| format!("{:.2}", run.counts.fetches_per_request.value())),
    ("submit to confirmed, s", |run| sample(&run.counts.latency_ms, 1000.0)),
    ("  in round trips", |run| sample(&run.counts.latency_round_trips, 1.0)),
    ("gossip to a node, ms", |run| sample(&run.counts.gossip_delay_ms, 1.0)),
    ("gossip to the last node, ms", |run| sample(&run.counts.gossip_ms, 1.0)),
    ("gossip that misses a node, %", |run| percent(run.counts.gossip_missed_share.value())),
    ("gossip received, KB/s", |run| pair(run.traffic[0].received_bytes_per_s, BYTES_IN_KB)),
    ("  messages/s", |run| pair(run.traffic[0].messages_per_s, 1.0)),
    ("direct requests received, KB/s", |run| pair(run.traffic[1].received_bytes_per_s, BYTES_IN_KB)),
    ("upkeep received, KB/s", |run| pair(run.traffic[2].received_bytes_per_s, BYTES_IN_KB)),
    ("DHT received, KB/s", |run| pair(run.traffic[3].received_bytes_per_s, BYTES_IN_KB)),
    ("connections", |run| format!("{:.0}", run.connections)),
    ("memory, MiB", |run| format!("{:.1}", run.memory.total_mib)),
    ("  of it the view, MiB", |run| format!("{:.2}", run.memory.view_mib)),
    ("wall time, s", |run| format!("{:.1}", run.wall_s)),
];

/// How a node's cost grows with the grid: title, unit, caption, and the figure of a run.
type Growth = (&'static str, &'static str, &'static str, fn(&Figures) -> Option<f64>);

const GROWTHS: [Growth; 3] = [
    (
        "Gossip that a node receives",
        "KB/s",
        "The median of all nodes. A level line means that a node's cost does not grow with the grid.",
        |run| Some(run.traffic[0].received_bytes_per_s?.p50 / BYTES_IN_KB),
    ),
    (
        "Memory of a node",
        "MiB",
        "Worked out from what it keeps; a process and its connections are the same for every size.",
        |run| Some(run.memory.total_mib),
    ),
    ("Gossip to the last node", "ms", "The median of all messages.", |run| {
        Some(percentiles(&run.counts.gossip_ms)?.p50)
    }),
];

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// Median and 99 % of a sample.
fn sample(values: &[f64], unit: f64) -> String {
    pair(percentiles(values), unit)
}

fn pair(row: Option<Percentiles>, unit: f64) -> String {
    row.map_or_else(|| "-".to_owned(), |row| format!("{} / {}", number(row.p50 / unit), number(row.p99 / unit)))
}

fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The result of all runs: the object on the last line.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// A remark about shards.
    note: &'static str,
    /// One object a run.
    runs: &'a [Figures],
    /// How a real grid differs, if one was compared.
    comparison: Option<&'a Comparison>,
}

impl Report<'_> {
    /// The result of all runs.
    pub fn new<'a>(runs: &'a [Figures], comparison: Option<&'a Comparison>) -> Report<'a> {
        Report { note: NOTE, runs, comparison }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let [side_by_side, by_lag] = [self.side_by_side(), self.by_lag()].map(|table| table.text());
        let mut text = format!("{}\n{side_by_side}\n\n{BY_LAG}:\n{by_lag}\n", explanation());
        if let Some((table, reasons)) = self.compared() {
            text += &format!("\n{COMPARED}:\n{}\n{}\n", table.text(), reasons.join("\n"));
        }
        text
    }

    /// The same as a page, with plots if there are several sizes.
    pub fn page(&self) -> Page {
        let mut page = Page::new("Large grids");
        page.text(&explanation());
        page.table(&self.side_by_side());
        page.heading(BY_LAG);
        page.table(&self.by_lag());
        if let Some((table, reasons)) = self.compared() {
            page.heading(COMPARED);
            page.table(&table);
            reasons.iter().for_each(|reason| page.text(reason));
        }
        self.add_growth(&mut page);
        page
    }

    /// A table with a column for each run.
    fn table(&self) -> Table {
        let names = self.runs.iter().map(|run| format!("{} / {}", run.sites, run.shards));
        Table::new(std::iter::once("sites / shards".to_owned()).chain(names))
    }

    fn side_by_side(&self) -> Table {
        let mut table = self.table();
        for (name, of) in ROWS {
            table.push(std::iter::once(name.to_owned()).chain(self.runs.iter().map(of)));
        }
        table
    }

    /// How holds fared by what their plans had not seen.
    fn by_lag(&self) -> Table {
        let mut table = self.table();
        let classes = self.runs.first().map_or(&[][..], |run| &run.counts.staleness);
        for (class, of_class) in classes.iter().enumerate() {
            let cells = self.runs.iter().map(|run| {
                let of = &run.counts.staleness[class];
                let cell = || format!("{} of {}", percent(of.conflict_rate.value()), of.holds);
                if of.holds == 0 { "-".to_owned() } else { cell() }
            });
            table.push(std::iter::once(of_class.unseen_for.clone()).chain(cells));
        }
        table
    }

    /// The real grid beside the simulation, and what each difference comes from.
    fn compared(&self) -> Option<(Table, Vec<String>)> {
        let rows = &self.comparison?.rows;
        let mut table = Table::new(["", "real grid", "simulated", "difference"]);
        for row in rows {
            let difference =
                row.difference_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.0} %"));
            table.push([row.figure.to_owned(), number(row.real), number(row.simulated), difference]);
        }
        Some((table, rows.iter().map(|row| format!("{}: {}.", row.figure, row.why)).collect()))
    }

    /// A plot for each growth, with a line for each number of shards.
    fn add_growth(&self, page: &mut Page) {
        let sizes: BTreeSet<usize> = self.runs.iter().map(|run| run.sites).collect();
        if sizes.len() < 2 {
            return;
        }
        page.heading("By the size of the grid");
        let shards: BTreeSet<usize> = self.runs.iter().map(|run| run.shards).collect();
        for (title, unit, caption, of) in GROWTHS {
            let mut plot = Plot::new(title, Axis::log("sites"), Axis::log(unit));
            for shards in &shards {
                let of_shards = self.runs.iter().filter(|run| run.shards == *shards);
                let mut points: Vec<(f64, f64)> =
                    of_shards.filter_map(|run| Some((run.sites as f64, of(run)?))).collect();
                points.sort_by(|one, other| one.0.total_cmp(&other.0));
                let name = if *shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") };
                plot = plot.line(&name, points);
            }
            page.plot(&plot, caption);
        }
    }
}

const BY_LAG: &str = "Holds refused, %, by how long a change had been unseen";
const COMPARED: &str = "Beside the real grid";

fn explanation() -> String {
    format!("Median / 99 % of all nodes or requests. {NOTE}")
}
