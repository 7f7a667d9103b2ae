//! Phase IV: N of the available hosts that reach every total.
//!
//! The source selects hosts with much free of each resource in turn. Here the bounds of [`super::bounds`] come first:
//! they exclude the start, or name the N hosts that are worth most for all totals at once; where those miss a total, hosts
//! are swapped as in the source (no unsatisfied total gets worse, no satisfied one becomes unsatisfied), the best of the
//! swaps looked at instead of the first. Invariant: positions that are returned reach every total.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    bounds::Picker,
    problem::{Problem, Slot},
};

/// Outsiders and members looked at for one swap.
const OUTSIDERS_TRIED: usize = 48;
const MEMBERS_TRIED: usize = 96;

/// Swaps hosts of `chosen` until every total is reached; `None` when no swap helps or after `swaps_max` swaps.
pub(crate) fn swap_until_feasible(
    problem: &Problem<'_>,
    slot: &Slot,
    mut chosen: Vec<u32>,
    swaps_max: usize,
    random: &mut Xoshiro256PlusPlus,
    picker: &mut Picker,
) -> Option<Vec<u32>> {
    let width = problem.width();
    let mut is_chosen = vec![false; slot.len()];
    chosen.iter().for_each(|at| is_chosen[*at as usize] = true);
    let free = |at: u32| &slot.free[at as usize * width..][..width];
    let mut sums: Vec<i64> = (0..width).map(|resource| chosen.iter().map(|at| free(*at)[resource]).sum()).collect();
    for _ in 0..swaps_max {
        let Some(worst) = worst_resource(problem, &sums) else { return Some(chosen) };
        let amounts = (0..slot.len() as u32).map(|at| match is_chosen[at as usize] {
            true => 0,
            // Scaled into the range of the picker; only the order counts.
            false => (free(at)[worst] >> 4) + 1,
        });
        let tried = OUTSIDERS_TRIED.min(slot.len() - chosen.len());
        let outsiders: Vec<u32> = picker.largest(tried, amounts).0.collect();
        let skip = random.random_range(0..chosen.len());
        let mut best: Option<(f64, usize, u32)> = None;
        for outsider in outsiders {
            for turn in 0..chosen.len().min(MEMBERS_TRIED) {
                let index = (skip + turn) % chosen.len();
                let gain = gain(problem, &sums, free(chosen[index]), free(outsider));
                if gain > best.map_or(0.0, |(most, _, _)| most) {
                    best = Some((gain, index, outsider));
                }
            }
        }
        let (_, index, outsider) = best?;
        let member = std::mem::replace(&mut chosen[index], outsider);
        is_chosen[member as usize] = false;
        is_chosen[outsider as usize] = true;
        for (sum, (gives, takes)) in sums.iter_mut().zip(free(outsider).iter().zip(free(member))) {
            *sum += gives - takes;
        }
    }
    worst_resource(problem, &sums).is_none().then_some(chosen)
}

/// The resource whose total is missed by the largest part of it.
fn worst_resource(problem: &Problem<'_>, sums: &[i64]) -> Option<usize> {
    let part = |resource: &usize| sums[*resource] as f64 / problem.needed[*resource] as f64;
    (0..sums.len())
        .filter(|resource| sums[*resource] < problem.needed[*resource])
        .min_by(|a, b| part(a).total_cmp(&part(b)))
}

/// How much of the missed totals a swap adds, in parts of them; nothing when it is not allowed.
fn gain(problem: &Problem<'_>, sums: &[i64], member: &[i64], outsider: &[i64]) -> f64 {
    let mut gain = 0.0;
    for (resource, sum) in sums.iter().enumerate() {
        let needed = problem.needed[resource];
        let after = sum + outsider[resource] - member[resource];
        if after < needed.min(*sum) {
            return 0.0;
        }
        if *sum < needed {
            gain += (after.min(needed) - sum) as f64 / needed as f64;
        }
    }
    gain
}
