//! The figures of all runs as people read them.
//!
//! Invariant: nothing is printed here that is not in the JSON as well.

use serde::Serialize;

use super::{compare::Comparison, figures::Figures};
use crate::{
    grid::measure::Percentiles,
    report::{Page, Table},
};

/// What is said of every result.
const NOTE: &str = "Gossip by shard is a plan, not yet a part of the node: with 1 shard the simulation does what a node does, \
                    with more what one would do that takes part in the shards of its view.";

/// The object on the last line.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// What the shards are.
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

/// A row of the table: its name, and what it says of a run.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: [Row; 23] = [
    ("shards that a node takes part in", |run| run.subscribed_shards.to_string()),
    ("sites that a node knows", |run| run.view_sites.to_string()),
    ("requests", |run| run.requests.to_string()),
    ("reserved / rejected / failed", |run| format!("{} / {} / {}", run.reserved, run.rejected, run.failed)),
    ("reserved at the first try, %", |run| percent(run.first_try_share)),
    ("holds refused, %", |run| percent(run.conflict_rate)),
    ("hosts planned on that had changed, %", |run| percent(run.stale_hosts_share)),
    ("age of what was planned on, s", |run| pair(run.view_age_ms, 1000.0)),
    ("schedules fetched a request", |run| format!("{:.2}", run.fetches_per_request)),
    ("submit to confirmed, ms", |run| pair(run.latency_ms, 1.0)),
    ("  in round trips", |run| pair(run.latency_round_trips, 1.0)),
    ("gossip to a node, ms", |run| pair(run.gossip_delay_ms, 1.0)),
    ("gossip to the last node, ms", |run| pair(run.gossip_ms, 1.0)),
    ("gossip that misses a node, %", |run| percent(run.gossip_missed_share)),
    ("gossip received, bytes/s", |run| pair(run.traffic[0].received_bytes_per_s, 1.0)),
    ("  messages/s", |run| pair(run.traffic[0].messages_per_s, 1.0)),
    ("direct requests received, bytes/s", |run| pair(run.traffic[1].received_bytes_per_s, 1.0)),
    ("upkeep received, bytes/s", |run| pair(run.traffic[2].received_bytes_per_s, 1.0)),
    ("DHT received, bytes/s", |run| pair(run.traffic[3].received_bytes_per_s, 1.0)),
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
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// What is shown, piece by piece.
enum Piece {
    Text(String),
    Heading(&'static str),
    Table(Table),
}

/// All runs side by side, how holds fared by what their plans had not seen, and the real grid beside them.
fn pieces(runs: &[Figures], comparison: Option<&Comparison>) -> Vec<Piece> {
    let headings = runs.iter().map(|run| format!("{} sites, {} shards", run.sites, run.shards));
    let mut side_by_side = Table::new(std::iter::once(String::new()).chain(headings));
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

fn by_lag(runs: &[Figures]) -> Table {
    let headings = runs.iter().map(|run| format!("{} / {}", run.sites, run.shards));
    let mut table = Table::new(std::iter::once(String::new()).chain(headings));
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
    page
}
