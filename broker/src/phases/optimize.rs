//! Phase V: a better host set at the start found, and how good it is.
//!
//! Steepest swaps lead to a local optimum; from there a few random swaps and another climb, as often as the work limit
//! allows, keep the best set seen. [`super::efficiency`] bounds what any set can reach and, for small pools, proves the
//! best one. Invariant: the set stays feasible, and its factor never falls below that of the set phase IV found.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    bounds::Picker,
    efficiency,
    field::{Field, Load, Sums},
    limits::Limits,
    problem::{Problem, Slot},
    sweep::Solution,
};
use crate::request::MAX_NAMES;

/// For each unit of `L2`, every swap of a member for an outsider is tried this often on average.
const ROUNDS_PER_L2: u64 = 2;
/// The first climb may try every swap this often.
const FIRST_ROUNDS: u64 = 16;
/// Most swaps tried in one planning run, however large the pool.
const TRIES_MAX: u64 = 1 << 26;
/// While the bound is above the best factor by more than this, the search goes on as far as the limits allow.
const FAR: f64 = 1.01;
/// A factor must rise by this part to count as better; smaller differences are rounding.
const LEAST_GAIN: f64 = 1e-12;
/// Most random swaps before a new climb.
const KICKS_MAX: usize = 6;
/// Every second time up to this part of a large set may be swapped, to leave a region that small steps do not.
const KICKED_PART: usize = 5;
/// How heavily a missed total weighs. A climb over sets that miss a little gets past the places where every single swap
/// would break a total; the one after it, with the strict penalty, leads back to sets that miss nothing.
const PENALTIES: [f64; 3] = [2.0, 5.0, 20.0];
const STRICT: f64 = 1e7;

/// Columns of the largest problem: all resources that a request may name, and three more.
pub(crate) const LANES_MAX: usize = 64;
const _: () = assert!(MAX_NAMES + 3 <= LANES_MAX);

/// The result of phase V.
pub(crate) struct Optimum {
    /// Positions of the best set.
    pub chosen: Vec<u32>,
    /// Its factor.
    pub factor: f64,
    /// No feasible set has a larger factor.
    pub bound: f64,
}

/// The factor of a host set as it is.
pub(crate) fn factor(problem: &Problem<'_>, slot: &Slot, chosen: &[u32]) -> f64 {
    let mut hosts: Vec<u32> = chosen.iter().map(|at| slot.hosts[*at as usize]).collect();
    hosts.sort_unstable();
    let slot = slot.filtered(problem.width(), |host| hosts.binary_search(&host).is_ok());
    let all: Vec<u32> = (0..slot.len() as u32).collect();
    match problem.width() {
        0..=4 => Field::<4>::new(problem, &slot).sums(&all).factor(),
        _ => Field::<LANES_MAX>::new(problem, &slot).sums(&all).factor(),
    }
}

/// Improves the host set of `solution`.
pub(crate) fn optimize(
    problem: &Problem<'_>,
    solution: &Solution,
    limits: &Limits,
    random: &mut Xoshiro256PlusPlus,
    picker: &mut Picker,
) -> Optimum {
    match problem.width() {
        0..=4 => optimize_in::<4>(problem, solution, limits, random, picker),
        5..=8 => optimize_in::<8>(problem, solution, limits, random, picker),
        _ => optimize_in::<LANES_MAX>(problem, solution, limits, random, picker),
    }
}

fn optimize_in<const LANES: usize>(
    problem: &Problem<'_>,
    solution: &Solution,
    limits: &Limits,
    random: &mut Xoshiro256PlusPlus,
    picker: &mut Picker,
) -> Optimum {
    let field = Field::<LANES>::new(problem, &solution.slot);
    let first = field.sums(&solution.chosen).factor();
    // No host gives more than it has, so a factor of 1 cannot be exceeded.
    if solution.slot.len() == problem.pick || first >= 1.0 {
        return Optimum { chosen: solution.chosen.clone(), factor: first, bound: first };
    }
    let mut climber = Climber::new(&field, &solution.chosen);
    let swaps = problem.pick as u64 * climber.outside.len() as u64;
    climber.tries_left = swaps.saturating_mul(FIRST_ROUNDS).min(TRIES_MAX);
    climber.climb(STRICT);
    let mut proof = efficiency::Proof::new(&field, &mut climber.best, picker);
    if let Some(bound) = proof.enumerate(&mut climber.best, limits.enumeration_nodes) {
        return finish(problem, solution, climber.best, bound, first);
    }
    climber.tries_left = (u64::from(limits.l2) * ROUNDS_PER_L2).saturating_mul(swaps).min(TRIES_MAX);
    climber.move_to(&proof.take_promising());
    climber.climb(STRICT);
    let mut bound = f64::INFINITY;
    for escalation in 0..=limits.escalations {
        bound = proof.bound(&mut climber.best, limits.bound_boxes << escalation, picker).min(bound);
        climber.move_to(&proof.take_promising());
        climber.climb(STRICT);
        climber.explore(random);
        if bound <= climber.best.factor * FAR {
            break;
        }
        climber.tries_left = (u64::from(limits.l2 << escalation) * ROUNDS_PER_L2).saturating_mul(swaps).min(TRIES_MAX);
    }
    finish(problem, solution, climber.best, bound, first)
}

/// Sums beyond 2^53 are rounded in the fields, so whole numbers have the last word, and a bound that may have missed a
/// feasible set by rounding gives way to the one that always holds.
fn finish(problem: &Problem<'_>, solution: &Solution, best: Best, bound: f64, first: f64) -> Optimum {
    let largest = problem.capacity.iter().copied().max().unwrap_or(0);
    let is_rounded = largest.saturating_mul(problem.pick.cast_signed() as i64) >= 1 << 53;
    let bound = if is_rounded { bound.max(1.0) } else { bound };
    if solution.slot.is_feasible(problem, &best.chosen) {
        Optimum { chosen: best.chosen, factor: best.factor, bound: bound.max(best.factor) }
    } else {
        Optimum { chosen: solution.chosen.clone(), factor: first, bound: bound.max(first) }
    }
}

/// The best feasible set so far.
#[derive(Debug, Clone)]
pub(crate) struct Best {
    /// Its positions.
    pub chosen: Vec<u32>,
    /// Its factor.
    pub factor: f64,
}

/// A set that moves by swaps.
struct Climber<'f, const LANES: usize> {
    field: &'f Field<LANES>,
    chosen: Vec<u32>,
    outside: Vec<u32>,
    is_chosen: Vec<bool>,
    sums: Sums<LANES>,
    best: Best,
    tries_left: u64,
}

impl<'f, const LANES: usize> Climber<'f, LANES> {
    fn new(field: &'f Field<LANES>, chosen: &[u32]) -> Self {
        let best = Best { chosen: chosen.to_vec(), factor: field.sums(chosen).factor() };
        let is_chosen = vec![false; field.hosts.len()];
        let (sums, tries_left) = (field.empty, 0);
        let mut climber = Climber { field, chosen: Vec::new(), outside: Vec::new(), is_chosen, sums, best, tries_left };
        climber.move_to(chosen);
        climber
    }

    /// Swaps each member in turn for the best outsider, until no swap helps any of them.
    fn climb(&mut self, penalty: f64) {
        let (mut member, mut without_gain) = (0, 0);
        let mut value = self.value(&self.sums, penalty);
        while without_gain < self.chosen.len() && self.tries_left > 0 {
            self.tries_left = self.tries_left.saturating_sub(self.outside.len() as u64);
            match self.best_outsider(member, value, penalty) {
                Some((outsider, better)) => {
                    self.swap(member, outsider);
                    value = better;
                    without_gain = 0;
                }
                None => without_gain += 1,
            }
            member = (member + 1) % self.chosen.len();
        }
        // Sums drift by rounding where amounts are large; a fresh sum keeps the comparison of factors honest.
        self.sums = self.field.sums(&self.chosen);
        let factor = self.sums.factor();
        if factor > self.best.factor && self.sums.is_feasible() {
            self.best.factor = factor;
            self.best.chosen.clone_from(&self.chosen);
        }
    }

    /// The factor, less for missed totals.
    #[inline]
    fn value(&self, sums: &Sums<LANES>, penalty: f64) -> f64 {
        sums.factor() / (1.0 + penalty * sums.missing(&self.field.per_total))
    }

    /// The outsider (an index into `outside`) that raises the value most in place of a member, and the value then.
    fn best_outsider(&self, member: usize, value: f64, penalty: f64) -> Option<(usize, f64)> {
        let leaving = &self.field.hosts[self.chosen[member] as usize];
        let mut best = None;
        let mut most = value * (1.0 + LEAST_GAIN);
        for (index, outsider) in self.outside.iter().enumerate() {
            let value = self.value(&self.sums.swapped(leaving, &self.field.hosts[*outsider as usize]), penalty);
            if value > most {
                most = value;
                best = Some((index, value));
            }
        }
        best
    }

    fn swap(&mut self, member: usize, outsider: usize) {
        let (leaving, entering): (&Load<LANES>, &Load<LANES>) =
            (&self.field.hosts[self.chosen[member] as usize], &self.field.hosts[self.outside[outsider] as usize]);
        self.sums = self.sums.swapped(leaving, entering);
        std::mem::swap(&mut self.chosen[member], &mut self.outside[outsider]);
    }

    /// Kicks and climbs until the tries are used up.
    fn explore(&mut self, random: &mut Xoshiro256PlusPlus) {
        let mut round = 0;
        while self.tries_left > 0 {
            self.move_to(&self.best.chosen.clone());
            let most = if round % 2 == 1 { KICKS_MAX.max(self.chosen.len() / KICKED_PART) } else { KICKS_MAX };
            for _ in 0..=random.random_range(0..most) {
                let member = random.random_range(0..self.chosen.len());
                let outsider = random.random_range(0..self.outside.len());
                self.swap(member, outsider);
            }
            self.climb(PENALTIES[round % PENALTIES.len()]);
            self.climb(STRICT);
            round += 1;
        }
    }

    fn move_to(&mut self, chosen: &[u32]) {
        self.is_chosen.fill(false);
        chosen.iter().for_each(|at| self.is_chosen[*at as usize] = true);
        self.chosen.clear();
        self.chosen.extend_from_slice(chosen);
        self.outside.clear();
        self.outside.extend((0..self.field.hosts.len() as u32).filter(|at| !self.is_chosen[*at as usize]));
        self.sums = self.field.sums(&self.chosen);
    }
}
