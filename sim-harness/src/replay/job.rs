//! One job of a trace, as the engine and the policies see it.
//!
//! Invariant: every job fits at least one cluster when that is empty, so every job is started in the end; run times and
//! limits are at least one second.

/// Position of a job in the replayed trace: jobs are ordered by submission, then as they stand in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIndex(pub u32);

impl JobIndex {
    /// The index as a position in an array.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// What a job needs of every host it gets; all its hosts belong to one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Hosts, at least 1.
    pub hosts: u32,
    /// Processors on each host, at least 1.
    pub processors_per_host: u32,
    /// Memory on each host, in KiB.
    pub memory_per_host_kib: u64,
}

impl Shape {
    /// Processors on all hosts together.
    pub fn processors(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.processors_per_host)
    }
}

/// A job that is replayed.
#[derive(Debug, Clone)]
pub struct Job {
    /// The trace's number for it.
    pub id: i64,
    /// Where it stands in the trace, from 1.
    pub line: u32,
    /// When it is submitted, in seconds after the first submission.
    pub submit_s: i64,
    /// How long it holds its hosts, in seconds; the limit has already cut it where limits kill.
    pub held_s: i64,
    /// How long a reservation for it must be, as far as the scheduler knows, in seconds: with the teardown.
    pub planned_s: i64,
    /// What it holds its hosts for after it has ended, in seconds.
    pub teardown_s: i64,
    /// By what the shortest job is found, in seconds: the run time, or the limit if the scheduler knows no more, but no
    /// less than the run time. Unlike the planned time it knows nothing of the limit's cut.
    pub length_s: i64,
    /// The user's limit, in seconds.
    pub limit_s: i64,
    /// What it needs.
    pub shape: Shape,
    /// Whether the limit ends it.
    pub is_killed: bool,
}

impl Job {
    /// How long a queue's scheduler expects it to run, in seconds: the run time or the limit. What comes after that he
    /// does not know.
    pub fn expected_s(&self) -> i64 {
        self.planned_s - self.teardown_s
    }
}
