//! A queue in the order of a number: the job with the smallest starts first, and while it does not fit nobody passes it.
//!
//! Invariant: equal numbers keep the order of submission.

use std::collections::BTreeSet;

use super::{Policy, Start, View};
use crate::replay::job::{Job, JobIndex};

/// See the module.
#[derive(Debug)]
pub struct Ordered {
    rank: fn(&Job) -> i64,
    waiting: BTreeSet<(i64, JobIndex)>,
}

impl Ordered {
    /// A queue in ascending order of `rank`.
    pub fn by(rank: fn(&Job) -> i64) -> Ordered {
        Ordered { rank, waiting: BTreeSet::new() }
    }
}

impl Policy for Ordered {
    fn submitted(&mut self, job: JobIndex, view: &View<'_>) {
        self.waiting.insert(((self.rank)(view.job(job)), job));
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let (_, job) = *self.waiting.first()?;
        let cluster = view.cluster_for(job)?;
        self.waiting.pop_first();
        Some(Start { job, cluster, hosts: None })
    }
}
