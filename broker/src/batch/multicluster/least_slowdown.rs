//! MESD: always the job that loses least against the empty grid.
//!
//! Source: the thesis, algorithm 2; its line 11 has the comparison reversed, the text and the example say the smallest difference.
//! Invariant: hosts are freed only when no job that is left can have any.

/// Rule by which MESD chooses the hosts of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Algorithm 3: the fastest ones, moved to the slowest cluster among them, whatever that puts on links.
    Literal,
    /// The shortest run that the links carry, of those the one on the slowest hosts.
    Carried,
}

/// Clusters at a moment of time, from which jobs take hosts.
pub trait Grid {
    /// How much longer a job lasts than on the empty grid.
    type Loss: PartialOrd;
    /// The hosts of a job.
    type Hosts;

    /// Drops the jobs that cannot begin any more.
    fn keep(&mut self, _left: &mut Vec<usize>) {}
    /// The hosts of a job that would begin now, if there are any.
    fn allocate(&mut self, job: usize) -> Option<(Self::Loss, Self::Hosts)>;
    /// Begins a job on these hosts.
    fn begin(&mut self, job: usize, hosts: Self::Hosts);
    /// Moves to the next time at which hosts become free; false when there is none.
    fn free_next(&mut self) -> bool;
}

/// Begins the jobs of a call (in the order of arrival) one after the other, until none is left or nothing that is left can ever begin.
pub fn least_slowdown_first(mut left: Vec<usize>, grid: &mut impl Grid) {
    loop {
        grid.keep(&mut left);
        let loss = |(at, job): (usize, &usize)| grid.allocate(*job).map(|(loss, hosts)| (loss, at, hosts));
        let losses = left.iter().enumerate().filter_map(loss);
        let least = losses.reduce(|least, other| if other.0 < least.0 { other } else { least });
        if let Some((_, at, hosts)) = least {
            grid.begin(left.remove(at), hosts);
        } else if left.is_empty() || !grid.free_next() {
            return;
        }
    }
}
