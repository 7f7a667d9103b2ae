//! What phase V computes with: the numbers of the available hosts in fixed lanes, and sums over a host set that a swap
//! updates in a few operations.
//!
//! Invariant: unused lanes are neutral (a factor of 1, never short), so they change no result. Sums of whole numbers below
//! 2^53 are exact; whoever needs more asks [`super::problem::Slot::is_feasible`] again.

use super::problem::{Problem, Slot};

/// One host: `Z_ij` and `r_ij`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<const LANES: usize> {
    /// Largest use in the window.
    pub used: [f64; LANES],
    /// Capacity.
    pub capacity: [f64; LANES],
    /// `a_ij`: their difference, and for a column that is no resource what the host adds to its total.
    pub free: [f64; LANES],
}

/// Sums over a host set with the request placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums<const LANES: usize> {
    /// `e_i + sum Z_ij`.
    pub placed: [f64; LANES],
    /// `sum r_ij`.
    pub capacity: [f64; LANES],
    /// `sum a_ij - e_i`.
    pub spare: [f64; LANES],
}

/// The available hosts at one start.
pub(crate) struct Field<const LANES: usize> {
    /// N.
    pub pick: usize,
    /// Lanes of resources; they come first.
    pub width: usize,
    /// Lanes in use.
    pub columns: usize,
    /// Hosts by position.
    pub hosts: Vec<Load<LANES>>,
    /// Sums over no host at all.
    pub empty: Sums<LANES>,
    /// `e_i`.
    pub needed: [f64; LANES],
    /// `1 / e_i` of the binding totals, else 0.
    pub per_total: [f64; LANES],
    /// Lanes whose total asks more than the minima give.
    pub is_binding: [bool; LANES],
}

impl<const LANES: usize> Sums<LANES> {
    /// The factor `product_i (e_i + sum Z_ij) / sum r_ij`. A capacity of zero counts as one unit.
    pub fn factor(&self) -> f64 {
        let mut product = 1.0;
        for lane in 0..LANES {
            product *= self.placed[lane] / self.capacity[lane].max(1.0);
        }
        product
    }

    /// By how much the totals are missed, in parts of them.
    pub fn missing(&self, per_total: &[f64; LANES]) -> f64 {
        self.spare.iter().zip(per_total).map(|(spare, per_total)| -spare.min(0.0) * per_total).sum()
    }

    /// Whether every total is reached.
    pub fn is_feasible(&self) -> bool {
        self.spare.iter().all(|spare| *spare >= 0.0)
    }

    /// The sums without `member` and with `outsider`.
    #[inline]
    pub fn swapped(&self, member: &Load<LANES>, outsider: &Load<LANES>) -> Sums<LANES> {
        let mut sums = *self;
        for lane in 0..LANES {
            sums.placed[lane] += outsider.used[lane] - member.used[lane];
            sums.capacity[lane] += outsider.capacity[lane] - member.capacity[lane];
            sums.spare[lane] += outsider.free[lane] - member.free[lane];
        }
        sums
    }

    /// The sums with one more host.
    #[inline]
    pub fn with(&self, host: &Load<LANES>) -> Sums<LANES> {
        let mut sums = *self;
        for lane in 0..LANES {
            sums.placed[lane] += host.used[lane];
            sums.capacity[lane] += host.capacity[lane];
            sums.spare[lane] += host.free[lane];
        }
        sums
    }
}

impl<const LANES: usize> Field<LANES> {
    /// The numbers of `slot`.
    pub fn new(problem: &Problem<'_>, slot: &Slot) -> Field<LANES> {
        let (width, columns) = (problem.resources.len(), problem.width());
        let mut empty = Sums { placed: [1.0; LANES], capacity: [1.0; LANES], spare: [f64::INFINITY; LANES] };
        let mut is_binding = [false; LANES];
        let mut per_total = [0.0; LANES];
        let mut totals = [1.0; LANES];
        for column in 0..columns {
            let needed = problem.needed[column] as f64;
            totals[column] = needed;
            if column < width {
                empty.placed[column] = needed;
                empty.capacity[column] = 0.0;
            }
            is_binding[column] = problem.is_binding[column];
            if problem.is_binding[column] {
                empty.spare[column] = -needed;
                per_total[column] = 1.0 / needed;
            }
        }
        let neutral = Load { used: [0.0; LANES], capacity: [0.0; LANES], free: [0.0; LANES] };
        let mut hosts = vec![neutral; slot.len()];
        for (at, load) in hosts.iter_mut().enumerate() {
            let cell = slot.hosts[at] as usize * columns;
            for column in 0..columns {
                let (capacity, free) = (problem.capacity[cell + column], slot.free[at * columns + column]);
                load.free[column] = free as f64;
                if column < width {
                    load.capacity[column] = capacity as f64;
                    load.used[column] = (capacity - free) as f64;
                }
            }
        }
        Field { pick: problem.pick, width, columns, hosts, empty, needed: totals, per_total, is_binding }
    }

    /// Sums over the `chosen` positions.
    pub fn sums(&self, chosen: &[u32]) -> Sums<LANES> {
        chosen.iter().fold(self.empty, |sums, at| sums.with(&self.hosts[*at as usize]))
    }
}
