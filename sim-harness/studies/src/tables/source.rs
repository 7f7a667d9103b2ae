//! The figures of the source (dissertation, section 3.4), for the columns beside ours.
//!
//! Invariant: nothing here is measured by us, and nothing of it enters a figure of ours.

/// N of the columns of table 3.2.
pub(super) const HOSTS: [u32; 6] = [2, 5, 10, 15, 30, 60];

/// A row of table 3.2: one count for each N of [`HOSTS`].
pub(super) type Counts = [usize; 6];

/// Requests of each kind for each N.
pub(super) const CASES: Counts = [90; 6];
/// Solved as simple requests.
pub(super) const SOLVED_SIMPLE: Counts = [28, 27, 24, 19, 27, 21];
/// Solved as collective requests.
pub(super) const SOLVED_COLLECTIVE: Counts = [49, 59, 56, 55, 54, 49];
/// The collective request starts earlier, three hours on average.
pub(super) const COLLECTIVE_EARLIER: Counts = [4, 7, 1, 7, 5, 2];
/// Both start at the same time.
pub(super) const SAME_START: Counts = [24, 20, 23, 12, 22, 19];
/// Then the simple one has the better factor.
pub(super) const SIMPLE_BETTER: Counts = [0, 2, 4, 5, 6, 4];
/// Then the collective one has the better factor, by 8.5 % on average.
pub(super) const COLLECTIVE_BETTER: Counts = [7, 13, 15, 7, 16, 15];

/// Table 3.3, collective: solvable, solved, late, mean delay in hours, mean part of the best factor, above 0.99 of it.
pub(super) const OPTIMALITY_COLLECTIVE: [&str; 6] = ["59", "59", "3", "1.5", "0.9200", "22"];
/// Table 3.3, simple, in the same order.
pub(super) const OPTIMALITY_SIMPLE: [&str; 6] = ["59", "27", "7", "2.5", "0.8400", "4"];

/// Table 3.4, phases II to V on a 2.2 GHz Opteron of 2005, in milliseconds: least, most, mean, standard deviation.
pub(super) const TIMES_MS: [f64; 4] = [0.008, 9.167, 1.004, 1.664];
/// Table 3.4, phases I to VI over 15 machines, in milliseconds, in the same order.
pub(super) const TIMES_OVER_NETWORK_MS: [f64; 4] = [126.4, 324.9, 169.8, 29.4];

/// The count for `hosts` hosts, where the source has one.
pub(super) fn count(counts: Counts, hosts: usize) -> Option<usize> {
    HOSTS.iter().position(|known| *known as usize == hosts).map(|at| counts[at])
}
