//! A queue in the order of a number: the job with the smallest starts first, and no other passes it while it does not fit.
//!
//! Invariant: equal numbers keep the order of submission.

use std::collections::BTreeSet;

use super::view::{Policy, Start, View};
use crate::replay::job::{JobIndex, Known};

/// A queue in ascending order of a rank.
#[derive(Debug)]
pub struct Ordered {
    rank: fn(&Known) -> i64,
    waiting: BTreeSet<(i64, JobIndex)>,
}

impl Ordered {
    fn by(rank: fn(&Known) -> i64) -> Ordered {
        Ordered { rank, waiting: BTreeSet::new() }
    }

    /// First come, first served.
    pub fn fcfs() -> Ordered {
        Ordered::by(|_| 0)
    }

    /// Shortest job first, by the run time that the scheduler expects.
    pub fn sjf() -> Ordered {
        Ordered::by(|job| job.length_s)
    }

    /// Earliest deadline first.
    pub fn edf() -> Ordered {
        Ordered::by(|job| job.deadline_s)
    }
}

impl Policy for Ordered {
    fn submitted(&mut self, job: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
        self.waiting.insert(((self.rank)(view.job(job)), job));
        Ok(())
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let (_, job) = *self.waiting.first()?;
        let cluster = view.cluster_for(job)?;
        self.waiting.pop_first();
        Some(Start { job, cluster, hosts: None })
    }
}
