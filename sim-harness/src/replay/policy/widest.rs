//! Widest job first, the worked example of docs/dev/replay.md: of all waiting jobs that fit now, the one with the most
//! processors starts.
//!
//! Invariant: at every start, no waiting job that fits has more processors. Narrow jobs may wait for very long.

use std::{cmp::Reverse, collections::BTreeSet};

use super::view::{Policy, Start, View};
use crate::replay::job::JobIndex;

/// Waiting jobs by width.
#[derive(Debug, Default)]
pub struct Widest {
    /// Widest first, then in the order of submission.
    waiting: BTreeSet<(Reverse<u64>, JobIndex)>,
}

impl Policy for Widest {
    fn submitted(&mut self, job: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
        self.waiting.insert((Reverse(view.job(job).shape.processors()), job));
        Ok(())
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let fitting = |(rank, job): &(Reverse<u64>, JobIndex)| Some((*rank, *job, view.cluster_for(*job)?));
        let (rank, job, cluster) = self.waiting.iter().find_map(fitting)?;
        self.waiting.remove(&(rank, job));
        Some(Start { job, cluster, hosts: None })
    }
}
