//! The figures of the source (dissertation, section 3.4), for the columns beside ours.
//!
//! Invariant: nothing here is measured by us, and nothing of it enters a figure of ours.

/// N of the columns of table 3.2.
pub const HOSTS: [usize; 6] = [2, 5, 10, 15, 30, 60];

/// A row of table 3.2: one count for each N of [`HOSTS`].
pub type Counts = [usize; 6];

/// Requests of each kind for each N.
pub const CASES: Counts = [90; 6];
/// Solved as simple requests.
pub const SOLVED_SIMPLE: Counts = [28, 27, 24, 19, 27, 21];
/// Solved as collective requests.
pub const SOLVED_COLLECTIVE: Counts = [49, 59, 56, 55, 54, 49];
/// The collective request starts earlier, three hours on average.
pub const COLLECTIVE_EARLIER: Counts = [4, 7, 1, 7, 5, 2];
/// Hours by which it starts earlier, mean.
pub const HOURS_EARLIER: f64 = 3.0;
/// Both start at the same time.
pub const SAME_START: Counts = [24, 20, 23, 12, 22, 19];
/// Then the simple one has the better factor.
pub const SIMPLE_BETTER: Counts = [0, 2, 4, 5, 6, 4];
/// Then the collective one has the better factor.
pub const COLLECTIVE_BETTER: Counts = [7, 13, 15, 7, 16, 15];
/// By this part on average.
pub const COLLECTIVE_GAIN: f64 = 0.085;

/// A column of table 3.3.
#[derive(Debug, Clone, Copy)]
pub struct Optimality {
    /// Cases that exhaustive search solves.
    pub solvable: usize,
    /// Cases solved.
    pub solved: usize,
    /// Starts later than the earliest possible.
    pub late: usize,
    /// Hours by which they are, mean.
    pub delay_hours: f64,
    /// The factor as a part of the best one, at the earliest start, mean.
    pub factor_share: f64,
    /// Cases with more than 0.99 of it.
    pub above_99: usize,
}

/// Table 3.3, collective.
pub const OPTIMALITY_COLLECTIVE: Optimality =
    Optimality { solvable: 59, solved: 59, late: 3, delay_hours: 1.5, factor_share: 0.92, above_99: 22 };
/// Table 3.3, simple.
pub const OPTIMALITY_SIMPLE: Optimality =
    Optimality { solvable: 59, solved: 27, late: 7, delay_hours: 2.5, factor_share: 0.84, above_99: 4 };

/// Table 3.4, phases II to V on a 2.2 GHz Opteron of 2005, in milliseconds: least, most, mean, standard deviation.
pub const TIMES_MS: [f64; 4] = [0.008, 9.167, 1.004, 1.664];
/// Table 3.4, phases I to VI over 15 machines, in milliseconds, in the same order.
pub const TIMES_OVER_NETWORK_MS: [f64; 4] = [126.4, 324.9, 169.8, 29.4];
