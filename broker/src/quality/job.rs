//! Jobs that a plan holds, and where they are in it.
//!
//! Times are whole seconds on any one clock.

/// Most resources of a host.
pub const RESOURCES_MAX: usize = 4;
/// A shorter job counts as one of so many seconds in its slowdown, which else says nothing but how short it is.
const SLOWDOWN_LEAST_S: i64 = 10;
/// Slowdowns are whole millionths, so that sums do not depend on their order.
const MILLION: u128 = 1_000_000;

/// An amount of each resource, in base units; what is not used is zero.
pub type Amounts = [u64; RESOURCES_MAX];

/// A job's name, given by who hands it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey(pub u64);

/// A job that waits or runs: like amounts on each of several hosts of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// When it was handed in.
    pub arrival_s: i64,
    /// How long it is planned, at least a second.
    pub length_s: i64,
    /// When it should have ended; `None` when it is never late.
    pub deadline_s: Option<i64>,
    /// Hosts, at least 1.
    pub hosts: usize,
    /// What it takes of each.
    pub amounts: Amounts,
    /// Whether its hosts are empty when it starts; then it shares them.
    pub starts_alone: bool,
    /// It is never planned to start before this second.
    pub not_before_s: i64,
    /// Clusters that have the properties that it needs, by number; ascending.
    pub clusters: Box<[usize]>,
}

impl Job {
    /// What a start at that second is worth.
    #[must_use]
    pub fn quality_at(&self, start_s: i64) -> Quality {
        let end_s = start_s.saturating_add(self.length_s);
        let response_s = u128::from(end_s.saturating_sub(self.arrival_s).max(0).cast_unsigned());
        let least_s = u128::from(self.length_s.max(SLOWDOWN_LEAST_S).cast_unsigned());
        Quality {
            late: u64::from(self.deadline_s.is_some_and(|deadline_s| end_s > deadline_s)),
            slowdown_millionths: (response_s * MILLION / least_s).max(MILLION),
        }
    }
}

/// Where and when a job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// When it starts.
    pub start_s: i64,
    /// The cluster's number.
    pub cluster: usize,
    /// Its hosts by number, ascending; numbers run over all clusters.
    pub hosts: Box<[usize]>,
}

impl Place {
    /// That of a job which has none until a host comes back.
    pub(super) fn never() -> Place {
        Place { start_s: i64::MAX, cluster: usize::MAX, hosts: Box::default() }
    }
}

/// What plans are compared by: fewer jobs late is better, then a smaller sum of slowdowns. Less is better.
///
/// A sum over the same jobs orders plans as a mean does. Slowdown: response by length, at least 1, as if no job were shorter than ten
/// seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quality {
    /// Jobs that end after their deadline.
    pub late: u64,
    /// Sum of all slowdowns, in millionths.
    pub slowdown_millionths: u128,
}

impl std::ops::AddAssign for Quality {
    fn add_assign(&mut self, other: Quality) {
        self.late += other.late;
        self.slowdown_millionths += other.slowdown_millionths;
    }
}

impl std::ops::SubAssign for Quality {
    fn sub_assign(&mut self, other: Quality) {
        self.late -= other.late;
        self.slowdown_millionths -= other.slowdown_millionths;
    }
}
