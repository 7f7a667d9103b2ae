//! Proofs that no N of the available hosts reach every total.
//!
//! For any non-negative weights `w_i`, N hosts that reach every `e_i` are together worth at least `sum_i w_i e_i`, where
//! a host is worth `sum_i w_i min(a_ij, e_i)`. So the N worthiest hosts being worth less excludes a start. The best
//! weights give exactly the bound of the linear relaxation, since "N of the hosts" is an integral polytope; they are
//! sought by subgradient steps in floating point, but the proof itself is made of whole numbers and cannot round.
//!
//! Invariant: worths are at most 2^44 and a pool has at most 2^17 hosts, so every sum here stays inside 62 bits.

use super::problem::{MAX_POOL, Problem, Slot};

/// The largest worth of a host; a little above it by the rounding of multipliers.
const WORTH_MAX: i64 = (1 << 44) + (1 << 10);
/// The largest value that [`Picker::largest`] can pack beside a position.
const PICKED_MAX: i64 = 1 << 46;
/// All multipliers together, in the fixed-point form of [`Weights`].
const SCALE: f64 = (1_u64 << 44) as f64;
/// Bits of a packed key that hold the host's position.
const POSITION_BITS: u32 = MAX_POOL.trailing_zeros();

/// Weights of the totals, and what N hosts must be worth under them.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    per_unit: Vec<i64>,
    /// `sum_i w_i e_i`.
    pub target: i64,
}

impl Weights {
    /// Weights in the proportion of `multipliers`, which are not negative and sum up to 1; a multiplier speaks of the
    /// whole of its total.
    pub fn new(problem: &Problem<'_>, multipliers: &[f64]) -> Weights {
        let mut weights = Weights { per_unit: Vec::with_capacity(multipliers.len()), target: 0 };
        for (resource, multiplier) in multipliers.iter().enumerate() {
            let needed = problem.needed[resource];
            // Any whole weight is valid, so rounding down costs strength at most, never truth.
            let per_unit = if problem.is_binding[resource] { (multiplier * SCALE / needed as f64) as i64 } else { 0 };
            weights.target += per_unit * needed;
            weights.per_unit.push(per_unit);
        }
        weights
    }

    /// What a host with these free amounts is worth.
    pub fn worth(&self, problem: &Problem<'_>, free: &[i64]) -> i64 {
        let amounts = free.iter().zip(&problem.needed);
        let worth = self.per_unit.iter().zip(amounts).map(|(weight, (free, needed))| weight * free.min(needed)).sum();
        debug_assert!((0..=WORTH_MAX).contains(&worth), "a worth of {worth}");
        worth
    }
}

/// Picks the `count` largest of the values given in order of position.
#[derive(Default)]
pub(crate) struct Picker {
    keys: Vec<u64>,
    values: Vec<i64>,
    picked_sum: i64,
}

impl Picker {
    /// The positions of the `count` largest values, in no particular order, and their sum; ties go to later positions.
    /// `values` are not negative, at most 2^46, and there are at least `count` of them.
    pub fn largest(&mut self, count: usize, values: impl Iterator<Item = i64>) -> (impl Iterator<Item = u32>, i64) {
        self.keys.clear();
        self.keys.extend(values.enumerate().map(|(at, value)| {
            debug_assert!((0..=PICKED_MAX).contains(&value), "a value of {value}");
            value.cast_unsigned() << POSITION_BITS | at as u64
        }));
        debug_assert!(count <= self.keys.len() && self.keys.len() <= MAX_POOL, "{count} of {}", self.keys.len());
        let cut = self.keys.len() - count;
        if cut > 0 && count > 0 {
            self.keys.select_nth_unstable(cut);
        }
        let chosen = &self.keys[cut..];
        let sum = chosen.iter().map(|key| (key >> POSITION_BITS).cast_signed()).sum();
        self.picked_sum = sum;
        (chosen.iter().map(|key| (key & (MAX_POOL as u64 - 1)) as u32), sum)
    }

    /// The sum of the `count` largest values, of any size; zero when there are fewer.
    pub fn sum_of_largest(&mut self, count: usize, values: impl Iterator<Item = i64>) -> i64 {
        self.values.clear();
        self.values.extend(values);
        let Some(cut) = self.values.len().checked_sub(count) else { return 0 };
        if cut > 0 && count > 0 {
            self.values.select_nth_unstable(cut);
        }
        self.values[cut..].iter().sum()
    }

    /// The smallest of the values last summed up; there were at least `count`.
    pub fn smallest_of_sum(&self, count: usize) -> i64 {
        self.values[self.values.len() - count]
    }

    /// The smallest of the values last picked.
    pub fn smallest_picked(&self, count: usize) -> i64 {
        self.keys.get(self.keys.len() - count).map_or(0, |key| (key >> POSITION_BITS).cast_signed())
    }
}

/// What the bounds say of one start.
pub(crate) enum Verdict {
    /// No N available hosts reach every total: N hosts are worth less than the target, for the threshold given.
    Excluded(Weights, i64),
    /// These positions do.
    Reached(Vec<u32>),
    /// Neither.
    Open(Open),
}

/// What is known of a start that is neither excluded nor shown to be feasible.
pub(crate) struct Open {
    /// The weights under which N hosts are worth least beyond the target.
    pub weights: Weights,
    /// The positions that miss least of the totals.
    pub nearest: Vec<u32>,
}

/// Judges starts, one after another; what excluded one is tried first on the next.
#[derive(Default)]
pub(crate) struct Judge {
    /// Room for selections.
    pub picker: Picker,
    /// Multipliers of the last search; empty before the first.
    multipliers: Vec<f64>,
}

impl Judge {
    /// Judges a start at which at least N hosts are available, with at most `steps_max` steps of search.
    pub fn judge(&mut self, problem: &Problem<'_>, slot: &Slot, steps_max: u32) -> Verdict {
        let width = problem.width();
        let binding: Vec<usize> = (0..width).filter(|resource| problem.is_binding[*resource]).collect();
        if binding.is_empty() {
            return Verdict::Reached((0..problem.pick as u32).collect());
        }
        if self.multipliers.is_empty() {
            self.multipliers = vec![0.0; width];
            for resource in &binding {
                self.multipliers.fill(0.0);
                self.multipliers[*resource] = 1.0;
                let weights = Weights::new(problem, &self.multipliers);
                let (_, sum) = pick_worthiest(problem, slot, &weights, &mut self.picker);
                if sum < weights.target {
                    return Verdict::Excluded(weights, self.picker.smallest_picked(problem.pick));
                }
            }
            binding.iter().for_each(|resource| self.multipliers[*resource] = 1.0 / binding.len() as f64);
        }
        self.search(problem, slot, &binding, steps_max)
    }

    /// How much of their target the hosts last picked reach.
    pub fn reach(&self, weights: &Weights) -> f64 {
        self.picker.picked_sum as f64 / weights.target.max(1) as f64
    }

    fn search(&mut self, problem: &Problem<'_>, slot: &Slot, binding: &[usize], steps_max: u32) -> Verdict {
        let width = problem.width();
        let mut nearest = (f64::INFINITY, Vec::new());
        let mut tightest = (f64::INFINITY, Weights::new(problem, &self.multipliers));
        let mut gaps = vec![0.0; width];
        for _ in 0..steps_max.max(1) {
            let weights = Weights::new(problem, &self.multipliers);
            let (chosen, sum) = pick_worthiest(problem, slot, &weights, &mut self.picker);
            if sum < weights.target {
                return Verdict::Excluded(weights, self.picker.smallest_picked(problem.pick));
            }
            // How much of each total the chosen hosts miss, in parts of it; the proof is about clamped amounts.
            let mut violation = 0.0;
            for resource in binding {
                let needed = problem.needed[*resource];
                let free = |at: &u32| slot.free[*at as usize * width + resource].min(needed) as f64;
                gaps[*resource] = 1.0 - chosen.iter().map(free).sum::<f64>() / needed as f64;
                violation += gaps[*resource].max(0.0);
            }
            if violation <= 1e-9 && slot.is_feasible(problem, &chosen) {
                return Verdict::Reached(chosen);
            }
            let surplus = (sum - weights.target) as f64 / SCALE;
            if violation < nearest.0 {
                nearest = (violation, chosen);
            }
            if surplus < tightest.0 {
                tightest = (surplus, weights);
            }
            if !step_towards_proof(&mut self.multipliers, &gaps, surplus) {
                break;
            }
        }
        if nearest.1.is_empty() {
            nearest.1 = (0..problem.pick as u32).collect();
        }
        Verdict::Open(Open { weights: tightest.1, nearest: nearest.1 })
    }
}

fn pick_worthiest(problem: &Problem<'_>, slot: &Slot, weights: &Weights, picker: &mut Picker) -> (Vec<u32>, i64) {
    let worths = slot.free.chunks_exact(problem.width()).map(|free| weights.worth(problem, free));
    let (chosen, sum) = picker.largest(problem.pick, worths);
    (chosen.collect(), sum)
}

/// Polyak's step towards a bound a little below the target. False when it leads nowhere.
fn step_towards_proof(multipliers: &mut [f64], gaps: &[f64], surplus: f64) -> bool {
    const OVERSHOOT: f64 = 0.002;
    let length: f64 = gaps.iter().map(|gap| gap * gap).sum();
    if length <= 1e-18 {
        return false;
    }
    let step = (surplus + OVERSHOOT) / length;
    let mut sum = 0.0;
    for (multiplier, gap) in multipliers.iter_mut().zip(gaps) {
        *multiplier = (*multiplier + step * gap).max(0.0);
        sum += *multiplier;
    }
    if sum <= 1e-12 {
        return false;
    }
    multipliers.iter_mut().for_each(|multiplier| *multiplier /= sum);
    true
}

/// A bound kept up to date while hosts change: `N threshold + sum over hosts of max(worth - threshold, 0)` is never below
/// the worth of the N worthiest, whatever the threshold, and equal to it at the N-th largest worth.
pub(crate) struct Guard {
    weights: Weights,
    threshold: i64,
    excess: Vec<i64>,
    sum: i64,
}

impl Guard {
    /// A guard that knows of no available host yet.
    pub fn new(problem: &Problem<'_>, weights: Weights, threshold: i64) -> Guard {
        Guard { weights, threshold, excess: vec![0; problem.hosts.len()], sum: 0 }
    }

    /// Notes what `host` has free now; `None` when it is not available.
    pub fn update(&mut self, problem: &Problem<'_>, host: usize, free: Option<&[i64]>) {
        let excess = free.map_or(0, |free| (self.weights.worth(problem, free) - self.threshold).max(0));
        self.sum += excess - self.excess[host];
        self.excess[host] = excess;
    }

    /// How much of the target the available hosts can reach at most; below 1 the start is excluded.
    pub fn reach(&self, problem: &Problem<'_>) -> f64 {
        let bound = problem.pick.cast_signed() as i64 * self.threshold + self.sum;
        if bound < self.weights.target { bound as f64 / self.weights.target as f64 } else { 1.0 }
    }
}
