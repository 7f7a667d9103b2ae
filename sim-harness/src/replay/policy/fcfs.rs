//! First come, first served: jobs start in the order of submission, and a job that does not fit holds up all others.
//!
//! Invariant: no job starts before one that was submitted earlier.

use std::collections::VecDeque;

use super::{Policy, Start, View};
use crate::replay::job::JobIndex;

/// See the module.
#[derive(Debug, Default)]
pub struct Fcfs {
    waiting: VecDeque<JobIndex>,
}

impl Policy for Fcfs {
    fn submitted(&mut self, job: JobIndex, _: &View<'_>) {
        self.waiting.push_back(job);
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let job = *self.waiting.front()?;
        let cluster = view.cluster_for(job)?;
        self.waiting.pop_front();
        Some(Start { job, cluster, hosts: None })
    }
}
