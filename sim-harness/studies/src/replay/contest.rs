//! One trace under several policies, for tables that compare them.
//!
//! Invariant: all policies see the same jobs with the same deadlines.

use std::path::Path;

use super::{
    args::Rules,
    cluster::ClusterSpec,
    deadlines, machines,
    metrics::{self, Metrics},
    play,
    trace::{self, Trace},
};

/// A trace, and the clusters that it is replayed on.
pub(crate) struct Contest {
    trace: Trace,
    clusters: Vec<ClusterSpec>,
}

impl Contest {
    /// Reads both.
    ///
    /// # Errors
    /// Bad usage with file and line.
    pub fn read(trace: &Path, machines: &Path, rules: &Rules) -> anyhow::Result<Contest> {
        let clusters = machines::read(machines)?;
        Ok(Contest { trace: trace::read(trace, &clusters, rules)?, clusters })
    }

    /// The metrics under a policy; deadlines are drawn from the seed.
    ///
    /// # Errors
    /// When the policy is broken.
    pub fn measure(&mut self, policy: &str, search: u32, seed: u64) -> anyhow::Result<Metrics> {
        deadlines::draw(&mut self.trace.jobs, &deadlines::FACTORS, seed);
        let (runs, _) = play((policy, search, seed), &self.trace.jobs, &self.clusters)?;
        Ok(metrics::measure(&self.trace, &runs, &self.clusters))
    }
}
