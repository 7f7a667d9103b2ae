//! Phase II: whether the hosts have enough capacity at all, whatever their schedules.
//!
//! Invariant: a request that fails here has no feasible start on these hosts (the N largest hold less than `e_i`).

use super::{bounds::Picker, problem::Problem};
use crate::{amount::Amount, reason::Reason};

/// What the N largest hosts have of every resource, in the order of the resources.
///
/// # Errors
/// The reason for a rejection: too few hosts, or the first resource whose capacity does not do.
pub(crate) fn check(problem: &Problem<'_>, picker: &mut Picker) -> Result<Vec<i64>, Reason> {
    let (found, asked) = (problem.hosts.len() as u64, problem.pick as u64);
    if found < asked {
        return Err(Reason::TooFewHosts { found, asked, cut: problem.cut.clone().into() });
    }
    let width = problem.width();
    let mut largest = Vec::with_capacity(width);
    for resource in 0..width {
        let needed = problem.needed[resource];
        let capacities = problem.capacity.iter().skip(resource).step_by(width).copied();
        let best = picker.sum_of_largest(problem.pick, capacities);
        if best < needed {
            return Err(Reason::Capacity {
                resource: problem.resources[resource].clone(),
                needed: Amount(needed.cast_unsigned()),
                best: Amount(best.cast_unsigned()),
            });
        }
        largest.push(best);
    }
    Ok(largest)
}
