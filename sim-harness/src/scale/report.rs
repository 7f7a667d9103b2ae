//! The figures of all runs as people read them.
//!
//! Invariant: nothing is printed here that is not in the JSON as well.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{compare::Comparison, figures::Figures};
use crate::{
    report::{Axis, Page, Plot, Table},
    stats::Percentiles,
};

/// A remark that belongs to every result.
const NOTE: &str = "A node of today has one shard. Runs with more show a node that takes part in the shards of its view only, \
                    which is a plan.";

/// The object on the last line.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// A remark about shards.
    pub note: &'static str,
    /// One object a run.
    pub runs: &'a [Figures],
    /// How a real grid differs, if one was compared.
    pub comparison: Option<&'a Comparison>,
}

impl Document<'_> {
    /// The result of all runs.
    pub fn new<'a>(runs: &'a [Figures], comparison: Option<&'a Comparison>) -> Document<'a> {
        Document { note: NOTE, runs, comparison }
    }
}

const BYTES_IN_KB: f64 = 1000.0;

/// A row of the table: its name, and what it says of a run.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: [Row; 23] = [
    ("shards that a node takes part in", |run| run.subscribed_shards.to_string()),
    ("sites that a node knows", |run| run.view_sites.to_string()),
    ("requests", |run| run.totals.requests.to_string()),
    ("reserved / rejected / failed", |run| {
        format!("{} / {} / {}", run.totals.reserved, run.totals.rejected, run.totals.failed)
    }),
    ("reserved at the first attempt, %", |run| percent(run.first_try_share)),
    ("holds refused, %", |run| percent(run.conflict_rate)),
    ("hosts planned on that had changed, %", |run| percent(run.stale_hosts_share)),
    ("age of what was planned on, s", |run| pair(run.view_age_ms, 1000.0)),
    ("schedules fetched a request", |run| format!("{:.2}", run.fetches_per_request)),
    ("submit to confirmed, s", |run| pair(run.latency_ms, 1000.0)),
    ("  in round trips", |run| pair(run.latency_round_trips, 1.0)),
    ("gossip to a node, ms", |run| pair(run.gossip_delay_ms, 1.0)),
    ("gossip to the last node, ms", |run| pair(run.gossip_ms, 1.0)),
    ("gossip that misses a node, %", |run| percent(run.gossip_missed_share)),
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

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// Median and 99 %.
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

/// What is shown, piece by piece.
enum Piece {
    Text(String),
    Heading(&'static str),
    Table(Table),
}

/// All runs side by side, how holds fared by what their plans had not seen, and the real grid beside them.
fn pieces(runs: &[Figures], comparison: Option<&Comparison>) -> Vec<Piece> {
    let mut side_by_side = Table::new(heading(runs));
    for (name, of) in ROWS {
        side_by_side.push(std::iter::once(name.to_owned()).chain(runs.iter().map(of)));
    }
    let mut pieces = vec![
        Piece::Text(format!("Median / 99 % of all nodes or requests. {NOTE}")),
        Piece::Table(side_by_side),
        Piece::Heading("Holds refused, %, by how long a change had been unseen"),
        Piece::Table(by_lag(runs)),
    ];
    if let Some(comparison) = comparison {
        pieces.push(Piece::Heading("Beside the real grid"));
        pieces.push(Piece::Table(compared(comparison)));
        pieces.extend(comparison.rows.iter().map(|row| Piece::Text(format!("{}: {}.", row.figure, row.why))));
    }
    pieces
}

/// A column for each run.
fn heading(runs: &[Figures]) -> impl Iterator<Item = String> {
    let names = runs.iter().map(|run| format!("{} / {}", run.sites, run.shards));
    std::iter::once("sites / shards".to_owned()).chain(names)
}

fn by_lag(runs: &[Figures]) -> Table {
    let mut table = Table::new(heading(runs));
    let classes = runs.first().map_or(&[][..], |run| &run.staleness);
    for (class, lag) in classes.iter().enumerate() {
        let cells = runs.iter().map(|run| {
            let lag = &run.staleness[class];
            if lag.holds == 0 { "-".to_owned() } else { format!("{} of {}", percent(lag.conflict_rate), lag.holds) }
        });
        table.push(std::iter::once(lag.unseen_for.clone()).chain(cells));
    }
    table
}

fn compared(comparison: &Comparison) -> Table {
    let mut table = Table::new(["", "real grid", "simulated", "difference"]);
    for row in &comparison.rows {
        let difference = row.difference_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.0} %"));
        table.push([row.figure.to_owned(), number(row.real), number(row.simulated), difference]);
    }
    table
}

/// For a terminal.
pub fn for_people(runs: &[Figures], comparison: Option<&Comparison>) -> String {
    let texts = pieces(runs, comparison).into_iter().map(|piece| match piece {
        Piece::Text(text) => text,
        Piece::Heading(text) => format!("\n{text}:"),
        Piece::Table(table) => table.text(),
    });
    texts.collect::<Vec<_>>().join("\n") + "\n"
}

/// The same as a page.
pub fn page(runs: &[Figures], comparison: Option<&Comparison>) -> Page {
    let mut page = Page::new("Large grids");
    for piece in pieces(runs, comparison) {
        match piece {
            Piece::Text(text) => page.text(&text),
            Piece::Heading(text) => page.heading(text),
            Piece::Table(table) => page.table(&table),
        }
    }
    add_growth(&mut page, runs);
    page
}

/// A figure by the number of sites, a line for each number of shards.
struct Growth {
    title: &'static str,
    unit: &'static str,
    caption: &'static str,
    of: fn(&Figures) -> Option<f64>,
}

const GROWTHS: [Growth; 3] = [
    Growth {
        title: "Gossip that a node receives",
        unit: "KB/s",
        caption: "The median of all nodes. A level line means that a node's cost does not grow with the grid.",
        of: |run| Some(run.traffic[0].received_bytes_per_s?.p50 / BYTES_IN_KB),
    },
    Growth {
        title: "Memory of a node",
        unit: "MiB",
        caption: "Worked out from what it keeps; a process and its connections are the same for every size.",
        of: |run| Some(run.memory.total_mib),
    },
    Growth {
        title: "Gossip to the last node",
        unit: "ms",
        caption: "The median of all messages.",
        of: |run| Some(run.gossip_ms?.p50),
    },
];

/// How a node's cost grows with the grid, if there are several sizes.
fn add_growth(page: &mut Page, runs: &[Figures]) {
    let sizes: BTreeSet<usize> = runs.iter().map(|run| run.sites).collect();
    if sizes.len() < 2 {
        return;
    }
    page.heading("By the size of the grid");
    let shards: BTreeSet<usize> = runs.iter().map(|run| run.shards).collect();
    for Growth { title, unit, caption, of } in GROWTHS {
        let mut plot = Plot::new(title, Axis::log("sites"), Axis::log(unit));
        for shards in &shards {
            let of_shards = runs.iter().filter(|run| run.shards == *shards);
            let mut points: Vec<(f64, f64)> = of_shards.filter_map(|run| Some((run.sites as f64, of(run)?))).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            let name = if *shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") };
            plot = plot.line(&name, points);
        }
        page.plot(&plot, caption);
    }
}
