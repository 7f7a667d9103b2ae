//! Reads a `.machines` file: one cluster a line, tab separated `id name nodes cpus_per_node speed memory_per_node_KiB`.
//!
//! Invariant: at least one cluster, at most [`HOSTS_MAX`] hosts, no id twice; clusters come out with the most processors first, which
//! is the order in which they are tried (equal ones as they stand in the file).

use std::{collections::BTreeSet, path::Path};

use broker::amount::Amount;

use super::{cluster::ClusterSpec, lines::Lines};

/// Most hosts of all clusters together, the planner's largest pool.
pub const HOSTS_MAX: u64 = 1 << 17;

/// Reads the clusters.
///
/// # Errors
/// Bad usage with file and line for anything that is not as described above.
pub fn read(path: &Path) -> anyhow::Result<Vec<ClusterSpec>> {
    let mut lines = Lines::open(path)?;
    let mut clusters: Vec<ClusterSpec> = Vec::new();
    let (mut hosts, mut ids) = (0, BTreeSet::new());
    while let Some((text, _)) = lines.next()? {
        if text.is_empty() || text.starts_with(b";") {
            continue;
        }
        let (id, cluster) = parse(text).map_err(|message| lines.wrong(message))?;
        if !ids.insert(id.clone()) {
            return Err(lines.wrong(format!("id: {id} is that of a cluster above; ids are unique")));
        }
        hosts += u64::from(cluster.hosts);
        if hosts > HOSTS_MAX {
            return Err(lines.wrong(format!("more than {HOSTS_MAX} hosts in all")));
        }
        clusters.push(cluster);
    }
    if clusters.is_empty() {
        return Err(
            lines.unusable("no cluster; expected lines `id name nodes cpus_per_node speed memory_per_node_KiB`")
        );
    }
    clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.processors()));
    Ok(clusters)
}

/// A cluster and its id.
fn parse(line: &[u8]) -> Result<(String, ClusterSpec), String> {
    let text = std::str::from_utf8(line).map_err(|_| "not a text")?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [id, name, hosts, processors, speed, memory] = fields[..] else {
        return Err(format!(
            "expected 6 fields (id name nodes cpus_per_node speed memory_per_node_KiB), got {}",
            fields.len()
        ));
    };
    let positive = |key: &str, value: &str, most: u64| {
        let number = value.parse::<u32>().ok().filter(|number| *number > 0 && u64::from(*number) <= most);
        number.ok_or_else(|| format!("{key}: expected a whole number from 1 to {most}, got {value}"))
    };
    if speed.parse::<f64>().is_ok_and(|speed| speed != 1.0) || speed.parse::<f64>().is_err() {
        return Err(format!("speed: only clusters of equal speed (1) can be replayed, got {speed}"));
    }
    let memory_per_host_kib = match memory.parse::<u64>() {
        Ok(kib) if kib <= Amount::MAX.0 => kib,
        _ => return Err(format!("memory_per_node_KiB: expected 0 to {}, got {memory}", Amount::MAX.0)),
    };
    let cluster = ClusterSpec {
        name: name.to_owned(),
        hosts: positive("nodes", hosts, HOSTS_MAX)?,
        processors_per_host: positive("cpus_per_node", processors, u64::from(u32::MAX))?,
        memory_per_host_kib,
    };
    Ok((id.to_owned(), cluster))
}
