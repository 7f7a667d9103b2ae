//! Reads a `.machines` file: one cluster a line, tab separated `id name nodes cpus_per_node speed memory_per_node_KiB`.
//!
//! Invariant: at least one cluster, at most [`HOSTS_MAX`] hosts, no id twice; clusters come out with the most processors first,
//! which is the order in which they are tried (equal ones in the order of the file).

use std::{cmp::Reverse, collections::BTreeSet, error::Error, path::Path, str::FromStr};

use anyhow::{Context, ensure};
use broker::amount::Amount;
use csv::{StringRecord, Trim};
use sim_kit::error::BadUsage;

use super::cluster::ClusterSpec;

/// Most hosts of all clusters together, the planner's largest pool.
const HOSTS_MAX: u64 = 1 << 17;
/// The least and the greatest speed.
const SPEED_MIN: f64 = 0.001;
/// See [`SPEED_MIN`].
const SPEED_MAX: f64 = 1000.0;
/// The columns.
const COLUMNS: [&str; 6] = ["id", "name", "nodes", "cpus_per_node", "speed", "memory_per_node_KiB"];

/// Reads the clusters.
///
/// # Errors
/// Bad usage with file and line for anything that is not as described above.
pub fn read(path: &Path) -> anyhow::Result<Vec<ClusterSpec>> {
    clusters(path, true).with_context(|| BadUsage::new(path.display()))
}

/// Reads clusters of any speed.
///
/// # Errors
/// As [`read`].
pub fn read_of_any_speed(path: &Path) -> anyhow::Result<Vec<ClusterSpec>> {
    clusters(path, false).with_context(|| BadUsage::new(path.display()))
}

fn clusters(path: &Path, is_equal: bool) -> anyhow::Result<Vec<ClusterSpec>> {
    let mut builder = csv::ReaderBuilder::new();
    builder.delimiter(b'\t').comment(Some(b';')).has_headers(false).flexible(true).trim(Trim::All);
    let mut rows = builder.from_path(path)?;
    let mut clusters: Vec<ClusterSpec> = Vec::new();
    let (mut hosts, mut ids) = (0, BTreeSet::new());
    for row in rows.records() {
        let row = row?;
        let line = row.position().map_or(0, csv::Position::line);
        let cluster = cluster(&row, is_equal).with_context(|| format!("line {line}"))?;
        let id = &row[0];
        ensure!(ids.insert(id.to_owned()), "line {line}: id: {id} is that of a cluster above; ids are unique");
        hosts += u64::from(cluster.hosts);
        ensure!(hosts <= HOSTS_MAX, "line {line}: more than {HOSTS_MAX} hosts in all");
        clusters.push(cluster);
    }
    ensure!(!clusters.is_empty(), "no cluster; expected lines of {}, tab separated", COLUMNS.join(", "));
    clusters.sort_by_key(|cluster| Reverse(cluster.processors()));
    Ok(clusters)
}

fn cluster(row: &StringRecord, is_equal: bool) -> anyhow::Result<ClusterSpec> {
    let (expected, got) = (COLUMNS.len(), row.len());
    ensure!(got == expected, "expected {expected} fields ({}), tab separated, got {got}", COLUMNS.join(", "));
    let [hosts, processors_per_host] = [number(row, 2)?, number(row, 3)?];
    for (column, count) in [("nodes", hosts), ("cpus_per_node", processors_per_host)] {
        ensure!(count > 0, "{column}: expected at least 1, got 0");
    }
    let speed: f64 = number(row, 4)?;
    ensure!(!is_equal || speed == 1.0, "speed: only clusters of equal speed (1) can be replayed, got {speed}");
    ensure!((SPEED_MIN..=SPEED_MAX).contains(&speed), "speed: expected {SPEED_MIN} to {SPEED_MAX}, got {speed}");
    let speed_thousandths = (speed * 1000.0).round() as u32;
    let (memory_per_host_kib, most) = (number(row, 5)?, Amount::MAX.0);
    ensure!(memory_per_host_kib <= most, "memory_per_node_KiB: expected at most {most}, got {memory_per_host_kib}");
    Ok(ClusterSpec { name: row[1].to_owned(), hosts, processors_per_host, memory_per_host_kib, speed_thousandths })
}

fn number<N: FromStr<Err: Error + Send + Sync + 'static>>(row: &StringRecord, column: usize) -> anyhow::Result<N> {
    row[column].parse().context(COLUMNS[column])
}
