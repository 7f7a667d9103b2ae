//! Reads a `.machines` file: one cluster a line, tab separated `id name nodes cpus_per_node speed memory_per_node_KiB`.
//!
//! Invariant: at least one cluster, at most [`HOSTS_MAX`] hosts, no id twice; clusters come out with the most processors first,
//! which is the order in which they are tried (equal ones in the order of the file).

use std::{cmp::Reverse, collections::BTreeSet, path::Path};

use anyhow::{Context, bail, ensure};
use broker::amount::Amount;
use csv::{ErrorKind, StringRecord, Trim};
use serde::Deserialize;

use super::cluster::ClusterSpec;
use crate::error::BadUsage;

/// Most hosts of all clusters together, the planner's largest pool.
const HOSTS_MAX: u64 = 1 << 17;
/// The columns.
const COLUMNS: [&str; 6] = ["id", "name", "nodes", "cpus_per_node", "speed", "memory_per_node_KiB"];

/// One line.
#[derive(Deserialize)]
struct Row {
    id: String,
    name: String,
    nodes: u32,
    cpus_per_node: u32,
    speed: f64,
    memory_per_node_kib: u64,
}

/// Reads the clusters.
///
/// # Errors
/// Bad usage with file and line for anything that is not as described above.
pub fn read(path: &Path) -> anyhow::Result<Vec<ClusterSpec>> {
    clusters(path).with_context(|| BadUsage::new(path.display()))
}

fn clusters(path: &Path) -> anyhow::Result<Vec<ClusterSpec>> {
    let mut builder = csv::ReaderBuilder::new();
    builder.delimiter(b'\t').comment(Some(b';')).has_headers(false).flexible(true).trim(Trim::All);
    let mut rows = builder.from_path(path)?;
    let mut clusters: Vec<ClusterSpec> = Vec::new();
    let (mut hosts, mut ids) = (0, BTreeSet::new());
    for row in rows.records() {
        let row = row?;
        let line = row.position().map_or(0, csv::Position::line);
        let (id, cluster) = cluster(&row).with_context(|| format!("line {line}"))?;
        ensure!(!ids.contains(&id), "line {line}: id: {id} is that of a cluster above; ids are unique");
        ids.insert(id);
        hosts += u64::from(cluster.hosts);
        ensure!(hosts <= HOSTS_MAX, "line {line}: more than {HOSTS_MAX} hosts in all");
        clusters.push(cluster);
    }
    ensure!(!clusters.is_empty(), "no cluster; expected lines of {}, tab separated", COLUMNS.join(", "));
    clusters.sort_by_key(|cluster| Reverse(cluster.processors()));
    Ok(clusters)
}

/// A cluster and its id.
fn cluster(row: &StringRecord) -> anyhow::Result<(String, ClusterSpec)> {
    let (expected, got) = (COLUMNS.len(), row.len());
    ensure!(got == expected, "expected {expected} fields ({}), tab separated, got {got}", COLUMNS.join(", "));
    let row: Row = row.deserialize(None).map_err(|error| match error.kind() {
        ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|field| COLUMNS.get(usize::try_from(field).ok()?));
            anyhow::anyhow!("{}: {}", column.unwrap_or(&"a field"), err.kind())
        }
        _ => error.into(),
    })?;
    for (column, count) in [("nodes", row.nodes), ("cpus_per_node", row.cpus_per_node)] {
        ensure!(count > 0, "{column}: expected at least 1, got 0");
    }
    if row.speed != 1.0 {
        bail!("speed: only clusters of equal speed (1) can be replayed, got {}", row.speed);
    }
    let (memory, most) = (row.memory_per_node_kib, Amount::MAX.0);
    ensure!(memory <= most, "memory_per_node_KiB: expected at most {most}, got {memory}");
    let spec = ClusterSpec {
        name: row.name,
        hosts: row.nodes,
        processors_per_host: row.cpus_per_node,
        memory_per_host_kib: memory,
    };
    Ok((row.id, spec))
}
