//! The strategies that are measured beside Kolo's own, and the judge of their answers.
//!
//! `kolo-study tables --policy NAME` measures a [`broker::strategy::Strategy`] beside Kolo's and the textbook on the source's cases; `kolo-study replay
//! --policy NAME` lets it place a whole workload, each job the moment it is submitted. A new one is one file and one line in
//! [`COMPARATORS`]; docs/dev/placement-policies.md walks through `roomiest.rs`.
//! Invariant: an answer is judged by [`Asked::judge`], never by the strategy's own word.

mod roomiest;
mod scan;
pub mod textbook;

use broker::{
    phases::{Candidate, Job},
    plan::{Plan, Seat},
    resources::{ResourceName, amount_of},
    snapshot::GridSnapshot,
    strategy::{Phases, Strategy},
    time::{Time, Window},
};

/// A job, and what there is to choose from.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The job.
    pub job: Job<'a>,
    /// The hosts to choose from, ordered by site and name. All could serve the job if they were empty.
    pub candidates: &'a [Candidate<'a>],
}

/// Makes a strategy for one run.
pub type MakeStrategy = fn() -> Box<dyn Strategy>;

/// The strategies that are only compared with.
pub const COMPARATORS: [(&str, MakeStrategy); 4] = [
    ("scan", || Box::new(scan::SlotScan { shifts: false })),
    ("scan-shift", || Box::new(scan::SlotScan { shifts: true })),
    ("roomiest", || Box::new(roomiest::Roomiest)),
    ("textbook", || Box::new(textbook::Textbook)),
];

/// All strategies by their names on the command line.
pub fn strategies() -> impl Iterator<Item = (&'static str, MakeStrategy)> {
    let kolo: (_, MakeStrategy) = ("kolo", || Box::new(Phases));
    [kolo].into_iter().chain(COMPARATORS)
}

/// The strategy of that name.
pub fn named(name: &str) -> Option<MakeStrategy> {
    strategies().find(|(known, _)| *known == name).map(|(_, make)| make)
}

/// All hosts of a grid as candidates, in their order.
pub fn pool(grid: &GridSnapshot) -> Vec<Candidate<'_>> {
    let hosts = grid.hosts.iter();
    let mut pool: Vec<Candidate<'_>> =
        hosts.map(|entry| Candidate { site: &entry.site, host: &entry.host, schedule: &entry.schedule }).collect();
    pool.sort_by(|a, b| (a.site, &a.host.id).cmp(&(b.site, &b.host.id)));
    pool
}

/// A candidate that meets every per-host minimum through the window of some start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeHost {
    /// Position among the candidates.
    pub at: usize,
    /// What it has free through the whole window, in the order of the request's resources.
    pub free: Vec<u64>,
    /// What it has at all, in the same order.
    pub capacity: Vec<u64>,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The start is not allowed.
    #[error("start {0} is outside the request's window")]
    Start(i64),
    /// Not N distinct candidates.
    #[error("{chosen} distinct candidates chosen instead of {asked}")]
    Count {
        /// Distinct candidates chosen.
        chosen: usize,
        /// N.
        asked: usize,
    },
    /// A host that is not free.
    #[error("{0} lacks a per-host minimum during the window")]
    NotFree(String),
    /// The hosts together have too little.
    #[error("the chosen hosts together have too little free")]
    TooLittle,
}

impl Asked<'_> {
    /// Starts worth looking at, ascending: the earliest, and every moment at which something is given back.
    pub fn starts(&self) -> Vec<Time> {
        let names = self.job.demand.resources();
        let whole = Window { start: self.job.earliest, end: Time(self.job.latest.0 + 1) };
        let mut starts = vec![self.job.earliest];
        for candidate in self.candidates {
            for occupancy in names.iter().filter_map(|name| candidate.schedule.occupancy(name)) {
                let steps: Vec<_> = occupancy.segments(whole).collect();
                starts.extend(steps.windows(2).filter(|pair| pair[1].1 < pair[0].1).map(|pair| pair[1].0));
            }
        }
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// The candidates that meet every per-host minimum during the window of that start.
    pub fn free_at(&self, start: Time) -> Vec<FreeHost> {
        let names = self.job.demand.resources();
        (0..self.candidates.len()).filter_map(|at| self.free_on(at, start, &names)).collect()
    }

    /// Whether these hosts together have what is asked in sum.
    pub fn is_met_by(&self, hosts: &[FreeHost]) -> bool {
        self.needed().into_iter().enumerate().all(|(resource, needed)| {
            let free: u128 = hosts.iter().map(|host| u128::from(host.free[resource])).sum();
            free >= needed
        })
    }

    /// The efficiency factor (3.2) of these hosts with the request placed on them.
    pub fn factor(&self, hosts: &[FreeHost]) -> f64 {
        let part = |(resource, needed): (usize, u128)| {
            let hosts = hosts.iter().map(|host| (host.free[resource], host.capacity[resource]));
            let (free, capacity) =
                hosts.fold((0_u128, 0_u128), |sums, host| (sums.0 + u128::from(host.0), sums.1 + u128::from(host.1)));
            (needed + capacity.saturating_sub(free)) as f64 / capacity.max(1) as f64
        };
        self.needed().into_iter().enumerate().map(part).product()
    }

    /// The efficiency factor of an answer.
    ///
    /// # Errors
    /// [`ChoiceError`] when it is no solution of the request.
    pub fn judge(&self, plan: &Plan) -> Result<f64, ChoiceError> {
        let place = |seat: &Seat| {
            let of = |candidate: &Candidate<'_>| (candidate.site, &candidate.host.id).cmp(&(&seat.site, seat.host()));
            self.candidates.binary_search_by(of).ok()
        };
        let hosts: Vec<usize> = plan.seats.iter().filter_map(place).collect();
        self.judge_hosts(plan.start, &hosts)
    }

    fn judge_hosts(&self, start: Time, hosts: &[usize]) -> Result<f64, ChoiceError> {
        if !(self.job.earliest..=self.job.latest).contains(&start) {
            return Err(ChoiceError::Start(start.0));
        }
        let mut chosen: Vec<usize> = hosts.iter().copied().filter(|at| *at < self.candidates.len()).collect();
        chosen.sort_unstable();
        chosen.dedup();
        if chosen.len() != hosts.len() || chosen.len() != self.job.demand.seats() {
            return Err(ChoiceError::Count { chosen: chosen.len(), asked: self.job.demand.seats() });
        }
        let names = self.job.demand.resources();
        let hosts = chosen.into_iter().map(|at| {
            let lacks = || ChoiceError::NotFree(self.candidates[at].host.id.to_string());
            self.free_on(at, start, &names).ok_or_else(lacks)
        });
        let hosts = hosts.collect::<Result<Vec<FreeHost>, ChoiceError>>()?;
        if self.is_met_by(&hosts) { Ok(self.factor(&hosts)) } else { Err(ChoiceError::TooLittle) }
    }

    fn free_on(&self, at: usize, start: Time, names: &[ResourceName]) -> Option<FreeHost> {
        let (candidate, window) =
            (&self.candidates[at], Window::starting(start, self.job.demand.length().at_reference()));
        let capacity: Vec<u64> = names.iter().map(|name| amount_of(&candidate.host.capacity, name).0).collect();
        let left = |(name, capacity): (&ResourceName, &u64)| {
            let free = capacity.checked_sub(candidate.schedule.peak(name, window).0)?;
            (free >= self.job.demand.minimum_on_each(name).0).then_some(free)
        };
        let free = names.iter().zip(&capacity).map(left).collect::<Option<Vec<u64>>>()?;
        Some(FreeHost { at, free, capacity })
    }

    /// What the hosts must have in sum of each of the request's resources, per-host minima included.
    pub fn needed(&self) -> Vec<u128> {
        self.job.demand.resources().iter().map(|name| u128::from(self.job.demand.needed_in_sum(name).0)).collect()
    }
}

#[cfg(test)]
mod tests;
