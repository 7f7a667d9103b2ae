//! A run of the simulation beside a run of the real grid: what differs, and why.
//!
//! Invariant: both sides had the same sites, hosts, requests and seed; every figure that both have is shown.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use sim_kit::{
    error::BadUsage,
    stats::{Percentiles, percentiles},
};

use super::{
    figures::Figures,
    geography::NetworkKind,
    options::{DURATION_MAX, HOSTS_PER_SITE_MAX, Pace, RunArgs, SITES_MAX, ScaleArgs, Settings},
};

/// Most requests of a compared run; they take some minutes.
const REQUESTS_MAX: usize = 100_000;
/// Between two gossip messages of a site in the real grid, by default.
const GOSSIP: Duration = Duration::from_millis(200);

/// What is used of the result of `kolo-sim grid --output json`.
#[derive(Debug, Clone, Deserialize)]
pub struct RealGrid {
    nodes: usize,
    hosts: usize,
    requests: usize,
    reserved: u64,
    attempts: u64,
    conflicts: u64,
    seed: u64,
    latency_ms: Option<Percentiles>,
    gossip_ms: Option<Percentiles>,
    memory_proportional_mib: Option<Percentiles>,
}

/// One figure on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub figure: &'static str,
    pub real: f64,
    pub simulated: f64,
    /// How much larger the simulation's is, of the real one's; none where that is zero.
    pub difference_percent: Option<f64>,
    /// What a difference comes from.
    pub why: &'static str,
}

/// All figures that both sides have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub rows: Vec<Row>,
}

impl RealGrid {
    /// Reads a result: the last line that is not empty.
    ///
    /// # Errors
    /// [`BadUsage`] naming the file, and what in it is missing or too large.
    pub fn read(path: &Path) -> anyhow::Result<RealGrid> {
        let named = || BadUsage::new(format!("--compare {}", path.display()));
        let text = fs::read_to_string(path).with_context(named)?;
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let real: RealGrid = serde_json::from_str(line)
            .context("the last line is not the result of `kolo-sim grid --output json`")
            .with_context(named)?;
        for (key, got, least, most) in [
            ("nodes", real.nodes, 1, SITES_MAX),
            ("hosts", real.hosts, real.nodes, SITES_MAX * HOSTS_PER_SITE_MAX),
            ("requests", real.requests, 1, REQUESTS_MAX),
        ] {
            let expected =
                BadUsage::new(format!("--compare {}: {key}: expected {least} to {most}, got {got}", path.display()));
            ensure!((least..=most).contains(&got), expected);
        }
        Ok(real)
    }

    /// The same run for the simulation, on one machine. It ends as soon as all requests are settled.
    ///
    /// # Errors
    /// When no node could start.
    pub fn settings(&self, args: &ScaleArgs) -> anyhow::Result<Settings> {
        let run = RunArgs {
            seed: self.seed,
            network: NetworkKind::Loopback,
            duration: DURATION_MAX,
            gossip: args.run.gossip.or(Some(GOSSIP)),
            loss: 0,
            churn: 0,
            alike: false,
            ..args.run.clone()
        };
        let pace = Pace::Rounds { at_once: args.entry_points.min(self.nodes), requests: self.requests };
        Ok(Settings::new(self.nodes, self.hosts, pace, run)?)
    }

    /// Sets the figures of both sides beside each other.
    pub fn compare(&self, simulated: &Figures) -> Comparison {
        let (counts, memory) = (&simulated.counts, simulated.memory.total_mib);
        let mut rows = Vec::new();
        let mut row = |figure, real: f64, simulated: f64, why| {
            let difference_percent = (real != 0.0).then(|| (simulated / real - 1.0) * 100.0);
            rows.push(Row { figure, real, simulated, difference_percent, why });
        };
        for (figure, real, simulated, why) in [
            (
                "reserved",
                self.reserved,
                counts.reserved,
                "the same requests on the same free hosts; samples of hosts differ, since a node draws its own seeds",
            ),
            ("attempts", self.attempts, counts.attempts, "follows from the conflicts"),
            (
                "conflicts",
                self.conflicts,
                counts.conflicts,
                "requests of a round meet by chance, so small numbers differ from run to run; where processes wait for \
                 processors the requests of a round come one after the other and meet less",
            ),
        ] {
            row(figure, real as f64, simulated as f64, why);
        }
        for (figures, real, simulated, why) in [
            (
                ["submit to confirmed, ms, median", "submit to confirmed, ms, 99 %"],
                self.latency_ms,
                percentiles(&counts.latency_ms),
                "all processes share the processors of one machine and wait for each other; the simulation counts the \
                 network and the disk only",
            ),
            (
                ["change to known everywhere, ms, median", "change to known everywhere, ms, 99 %"],
                self.gossip_ms,
                percentiles(&counts.spread_ms),
                "both begin with the submission of a request that is alone; the real figure includes the pause between two \
                 looks at every node, and what the nodes wait for processors",
            ),
            (
                ["memory a node, MiB, median", "memory a node, MiB, 99 %"],
                self.memory_proportional_mib,
                percentiles(&[memory]),
                "a process and a connection weigh what was measured once; the rest is worked out",
            ),
        ] {
            if let (Some(real), Some(simulated)) = (real, simulated) {
                row(figures[0], real.p50, simulated.p50, why);
                row(figures[1], real.p99, simulated.p99, why);
            }
        }
        Comparison { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RealGrid, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid.json");
        fs::write(&path, text).unwrap();
        RealGrid::read(&path).map_err(|error| format!("{error:#}"))
    }

    fn result(nodes: u64, hosts: u64, requests: u64) -> String {
        format!(
            "words\n{{\"nodes\":{nodes},\"hosts\":{hosts},\"requests\":{requests},\"reserved\":1,\"attempts\":1,\
             \"conflicts\":0,\"seed\":1,\"latency_ms\":null,\"gossip_ms\":null,\"memory_proportional_mib\":null}}\n\n"
        )
    }

    #[test]
    fn a_result_that_cannot_be_simulated_is_refused() {
        assert!(read(&result(50, 200, 100)).is_ok());
        for (text, expected) in [
            (result(0, 200, 100), "grid.json: nodes: expected 1 to 20000, got 0"),
            (result(5_000_000_000, 200, 100), "nodes: expected 1 to 20000, got 5000000000"),
            (result(50, 49, 100), "hosts: expected 50 to"),
            (result(50, 200, 0), "requests: expected 1 to 100000, got 0"),
            (result(50, 200, 100_000_000), "requests: expected 1 to"),
            ("{\"nodes\":3}".to_owned(), "missing field"),
            (String::new(), "the last line is not the result"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
