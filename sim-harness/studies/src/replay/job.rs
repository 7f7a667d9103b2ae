//! One job of a trace: what a scheduler knows of it, and what it does.
//!
//! Invariant: every job fits at least one cluster when that is empty, so every job is started in the end; run times and
//! limits are at least one second.

/// Position of a job in the replayed trace: jobs are ordered by submission, then by their place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIndex(pub u32);

impl JobIndex {
    /// The index as a position in an array.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// Number of a cluster, in the order in which clusters are tried: most processors first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterIndex(pub u32);

impl ClusterIndex {
    /// The number as a position in an array.
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
    /// Whether it starts only while as many hosts as it has are empty, on whichever hosts it is then.
    pub is_exclusive: bool,
}

impl Shape {
    /// Processors on all hosts together.
    pub fn processors(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.processors_per_host)
    }
}

/// What a scheduler knows of a job once the job has been submitted.
#[derive(Debug, Clone)]
pub struct Known {
    /// When it is submitted, in seconds after the first submission.
    pub submit_s: i64,
    /// How long a reservation for it must be, as far as the scheduler knows, in seconds; includes the teardown.
    pub planned_s: i64,
    /// How long it holds its hosts after it has ended, in seconds.
    pub teardown_s: i64,
    /// The length by which shortest-job-first orders, in seconds: the run time where that is known, else the limit. A limit that
    /// the job runs past does not cut it, which is what the simulator does whose figures are compared.
    pub length_s: i64,
    /// The user's limit, in seconds.
    pub limit_s: i64,
    /// When it should have ended, in seconds after the first submission.
    pub deadline_s: i64,
    /// What it needs.
    pub shape: Shape,
    /// Clusters that its tags exclude.
    pub excluded: Box<[ClusterIndex]>,
}

impl Known {
    /// How long the scheduler expects it to run without its teardown, in seconds.
    pub fn expected_s(&self) -> i64 {
        self.planned_s - self.teardown_s
    }

    /// Whether its tags allow this cluster.
    pub fn may_run_on(&self, cluster: ClusterIndex) -> bool {
        !self.excluded.contains(&cluster)
    }
}

/// A job that is replayed.
#[derive(Debug, Clone)]
pub struct Job {
    /// The trace's number for it.
    pub id: i64,
    /// Its line in the trace, from 1.
    pub line: u32,
    /// What a scheduler knows of it.
    pub known: Known,
    /// How long it holds its hosts, in seconds: until its end, or its limit where limits kill, and the teardown.
    pub held_s: i64,
    /// Whether the limit ends it.
    pub is_killed: bool,
}
