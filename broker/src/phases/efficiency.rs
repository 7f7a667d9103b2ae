//! An upper bound for the efficiency factor at one start, and the proof that a set is the best one.
//!
//! The logarithm of the factor is `sum_i log(e_i + Z_i) - log r_i` in the sums over the set. The first part is concave,
//! so a tangent lies above it; the second is convex, so inside a box `lo <= r_i <= hi` the chord lies above it. Both are
//! linear in the sums, hence a weight for every host: the N largest weights bound every set in the box. Multipliers for
//! the totals and the sides of the box tighten it, tangents and multipliers are moved by subgradient steps, and boxes
//! with the loosest bound are split. For small pools the same weights prune an enumeration of all sets.
//!
//! Invariant: whatever the steps do, every bound is valid; a margin above the rounding errors is added.

use super::{
    bounds::Picker,
    field::{Field, Sums},
    optimize::Best,
};

/// Added to every logarithm of a bound: far above the rounding of sums in double precision.
const MARGIN: f64 = 1e-9;
/// Subgradient steps for the first box and for each one after it.
const STEPS_ROOT: u32 = 24;
const STEPS_BOX: u32 = 10;
/// How heavily a missed total weighs against a set that attains a bound.
const PROMISE_PENALTY: f64 = 8.0;
/// A box whose bound is within this part of the best factor is not split further.
const CLOSE_ENOUGH: f64 = 1e-6;

/// Ranges of the capacity sums, and the multipliers that bound best there.
#[derive(Debug, Clone)]
struct Piece<const LANES: usize> {
    low: [f64; LANES],
    high: [f64; LANES],
    /// Slopes of the tangents, relative to the best set's.
    tangent: [f64; LANES],
    /// Multipliers of the totals and of the two sides of the box.
    total: [f64; LANES],
    above: [f64; LANES],
    below: [f64; LANES],
    /// Logarithm of the bound.
    bound: f64,
    /// Capacity sums of the set that attains it.
    at: [f64; LANES],
}

/// The bounds at one start.
pub(crate) struct Proof<'f, const LANES: usize> {
    field: &'f Field<LANES>,
    /// Where the tangents touch at first: `e_i + Z_i` of the best set.
    touch: [f64; LANES],
    root: Piece<LANES>,
    /// The boxes that are not split yet; together they hold every set that may be better than the best one.
    open: Vec<Piece<LANES>>,
    weights: Vec<f64>,
    chosen: Vec<u32>,
    /// The set among those that attained a bound that promises most, and what it promises.
    promising: (f64, Vec<u32>),
}

impl<'f, const LANES: usize> Proof<'f, LANES> {
    /// Bounds the first box, which holds every set; `best` is a feasible set, replaced when a better one turns up.
    pub fn new(field: &'f Field<LANES>, best: &mut Best, picker: &mut Picker) -> Self {
        let sums = field.sums(&best.chosen);
        let mut low = [1.0; LANES];
        let mut high = [1.0; LANES];
        for lane in 0..field.width {
            (low[lane], high[lane]) = capacity_range(field, lane);
        }
        let root = Piece {
            low,
            high,
            tangent: [1.0; LANES],
            total: [0.0; LANES],
            above: [0.0; LANES],
            below: [0.0; LANES],
            bound: 0.0,
            at: sums.capacity,
        };
        let promising = (0.0, best.chosen.clone());
        let (touch, open) = (sums.placed, Vec::new());
        let mut proof = Proof { field, touch, root, open, weights: Vec::new(), chosen: Vec::new(), promising };
        if best.factor > 0.0 {
            let mut root = proof.root.clone();
            proof.tighten(&mut root, STEPS_ROOT, best, picker);
            proof.open.push(root.clone());
            proof.root = root;
        }
        proof
    }

    /// Looks at every set that the first box's weights do not exclude. The bound when that was done within `nodes_max`
    /// nodes: then `best` is the best set there is.
    pub fn enumerate(&mut self, best: &mut Best, nodes_max: u32) -> Option<f64> {
        if best.factor <= 0.0 {
            return None;
        }
        if self.root.bound <= best.factor.ln() {
            return Some(best.factor);
        }
        let field = self.field;
        let constant = self.set_weights(&self.root.clone()) + MARGIN;
        let mut order: Vec<u32> = (0..field.hosts.len() as u32).collect();
        order.sort_by(|a, b| self.weights[*b as usize].total_cmp(&self.weights[*a as usize]));
        let mut before = vec![0.0];
        let mut sum = 0.0;
        for at in &order {
            sum += self.weights[*at as usize];
            before.push(sum);
        }
        let mut levels: Vec<(usize, f64, Sums<LANES>)> = vec![(0, constant, field.empty)];
        let mut chosen: Vec<u32> = Vec::with_capacity(field.pick);
        let mut least = best.factor.ln();
        for _ in 0..nodes_max {
            let Some((next, weight, sums)) = levels.last_mut() else { return Some(best.factor) };
            let left = field.pick - chosen.len();
            let is_cut = *next + left > order.len() || *weight + before[*next + left] - before[*next] <= least;
            if left == 0 || is_cut {
                if left == 0 && sums.is_feasible() && sums.factor() > best.factor {
                    best.factor = sums.factor();
                    best.chosen.clone_from(&chosen);
                    least = best.factor.ln();
                }
                levels.pop();
                chosen.pop();
                continue;
            }
            let at = order[*next];
            *next += 1;
            let level = (*next, *weight + self.weights[at as usize], sums.with(&field.hosts[at as usize]));
            chosen.push(at);
            levels.push(level);
        }
        None
    }

    /// Gives the most promising set seen, and forgets it; it may miss totals.
    pub fn take_promising(&mut self) -> Vec<u32> {
        self.promising.0 = 0.0;
        self.promising.1.clone()
    }

    /// Splits boxes until `boxes_max` more were looked at or nothing is left above the best factor.
    pub fn bound(&mut self, best: &mut Best, boxes_max: u32, picker: &mut Picker) -> f64 {
        if best.factor <= 0.0 {
            // A feasible set never exceeds 1 in any resource, and a factor of 0 has no logarithm to start from.
            return 1.0;
        }
        let mut open = std::mem::take(&mut self.open);
        for _ in 0..boxes_max {
            let loosest = (0..open.len()).max_by(|a, b| open[*a].bound.total_cmp(&open[*b].bound));
            let Some(loosest) = loosest.filter(|at| open[*at].bound > best.factor.ln() + CLOSE_ENOUGH) else { break };
            let piece = open.swap_remove(loosest);
            let Some((lane, middle)) = self.split(&piece) else {
                open.push(piece);
                break;
            };
            for is_upper in [false, true] {
                let mut half = piece.clone();
                if is_upper {
                    half.low[lane] = middle;
                } else {
                    half.high[lane] = middle;
                }
                self.tighten(&mut half, STEPS_BOX, best, picker);
                half.bound = half.bound.min(piece.bound);
                if half.bound > best.factor.ln() {
                    open.push(half);
                }
            }
        }
        let loosest = open.iter().map(|piece| piece.bound).fold(f64::NEG_INFINITY, f64::max);
        self.open = open;
        loosest.exp().min(1.0).max(best.factor)
    }

    /// Where the chord is farthest from the logarithm at the set that attains the bound.
    fn split(&self, piece: &Piece<LANES>) -> Option<(usize, f64)> {
        let mut best = None;
        let mut widest = 1e-12;
        for lane in 0..self.field.width {
            let (low, high) = (piece.low[lane], piece.high[lane]);
            if high <= low {
                continue;
            }
            let at = piece.at[lane].clamp(low, high);
            let gap = at.ln() - low.ln() - slope(low, high) * (at - low);
            if gap > widest {
                widest = gap;
                let inner = 0.1 * (high - low);
                best = Some((lane, at.clamp(low + inner, high - inner)));
            }
        }
        best
    }

    /// Moves the multipliers of `piece` towards its tightest bound.
    fn tighten(&mut self, piece: &mut Piece<LANES>, steps: u32, best: &mut Best, picker: &mut Picker) {
        let mut trial = piece.clone();
        piece.bound = f64::INFINITY;
        for step in 0..steps {
            let constant = self.set_weights(&trial);
            let (sums, bound) = self.attain(constant, picker);
            trial.bound = bound;
            trial.at = sums.capacity;
            let factor = sums.factor();
            let promise = factor / (1.0 + PROMISE_PENALTY * sums.missing(&self.field.per_total));
            if promise > self.promising.0 {
                self.promising.0 = promise;
                self.promising.1.clone_from(&self.chosen);
            }
            if sums.is_feasible() && factor > best.factor {
                best.factor = factor;
                best.chosen.clone_from(&self.chosen);
            }
            if bound < piece.bound {
                piece.clone_from(&trial);
            }
            let gap = bound - best.factor.ln();
            if gap <= 0.0 || !self.step(&mut trial, &sums, gap / (1.0 + 0.1 * f64::from(step))) {
                return;
            }
        }
    }

    /// Weights such that, for every set in the box, the logarithm of its factor is at most the constant returned plus the
    /// set's weights.
    fn set_weights(&mut self, piece: &Piece<LANES>) -> f64 {
        let field = self.field;
        let (mut used, mut capacity, mut free) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let mut constant = 0.0;
        for lane in 0..field.width {
            let (low, high) = (piece.low[lane], piece.high[lane]);
            let needed = field.empty.placed[lane];
            let tangent = piece.tangent[lane] / self.touch[lane];
            let chord = slope(low, high);
            let sides = (piece.above[lane] - piece.below[lane]) / high;
            constant += tangent * needed - tangent.ln() - 1.0 - (low.ln() - chord * low);
            constant += piece.above[lane] - piece.below[lane] * low / high;
            used[lane] = tangent;
            capacity[lane] = -chord - sides;
        }
        for lane in (0..field.columns).filter(|lane| field.is_binding[*lane]) {
            free[lane] = piece.total[lane] / field.needed[lane];
            constant -= piece.total[lane];
        }
        self.weights.clear();
        self.weights.extend(field.hosts.iter().map(|host| {
            let mut weight = 0.0;
            for lane in 0..LANES {
                weight +=
                    used[lane] * host.used[lane] + capacity[lane] * host.capacity[lane] + free[lane] * host.free[lane];
            }
            weight
        }));
        constant
    }

    /// The set with the largest weights, and the bound it attains.
    fn attain(&mut self, constant: f64, picker: &mut Picker) -> (Sums<LANES>, f64) {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for weight in &self.weights {
            least = weight.min(least);
            most = weight.max(most);
        }
        // Weights are compared as whole numbers; what that rounds off is added to the bound.
        let spread = (most - least).max(f64::MIN_POSITIVE);
        let scale = (1_u64 << 45) as f64 / spread;
        let values = self.weights.iter().map(|weight| ((weight - least) * scale) as i64);
        let (chosen, _) = picker.largest(self.field.pick, values);
        self.chosen.clear();
        self.chosen.extend(chosen);
        let weight: f64 = self.chosen.iter().map(|at| self.weights[*at as usize]).sum();
        let rounding = self.field.pick as f64 * spread * f64::EPSILON * 512.0;
        (self.field.sums(&self.chosen), constant + weight + MARGIN + rounding)
    }

    /// One subgradient step of the length that would close `gap`; false when there is no direction left.
    #[expect(clippy::needless_range_loop, reason = "a lane runs through ten arrays at once")]
    fn step(&self, piece: &mut Piece<LANES>, sums: &Sums<LANES>, gap: f64) -> bool {
        let field = self.field;
        let mut gradients = [[0.0; LANES]; 4];
        let mut length = 0.0;
        for lane in 0..field.columns {
            if field.is_binding[lane] {
                gradients[1][lane] = sums.spare[lane] / field.needed[lane];
            }
            if lane < field.width {
                let high = piece.high[lane];
                gradients[0][lane] = sums.placed[lane] / self.touch[lane] - 1.0 / piece.tangent[lane];
                gradients[2][lane] = 1.0 - sums.capacity[lane] / high;
                gradients[3][lane] = (sums.capacity[lane] - piece.low[lane]) / high;
            }
            for (kind, value) in [(1, piece.total[lane]), (2, piece.above[lane]), (3, piece.below[lane])] {
                // A multiplier at zero does not go below it.
                if value <= 0.0 && gradients[kind][lane] > 0.0 {
                    gradients[kind][lane] = 0.0;
                }
            }
            length += gradients.iter().map(|gradient| gradient[lane] * gradient[lane]).sum::<f64>();
        }
        if length <= 1e-20 {
            return false;
        }
        let step = gap / length;
        for lane in 0..field.columns {
            piece.tangent[lane] = (piece.tangent[lane] - step * gradients[0][lane]).clamp(0.2, 5.0);
            piece.total[lane] = (piece.total[lane] - step * gradients[1][lane]).max(0.0);
            piece.above[lane] = (piece.above[lane] - step * gradients[2][lane]).max(0.0);
            piece.below[lane] = (piece.below[lane] - step * gradients[3][lane]).max(0.0);
        }
        true
    }
}

/// The slope of the chord of the logarithm between `low` and `high`, both at least 1.
fn slope(low: f64, high: f64) -> f64 {
    if high > low { (high / low).ln() / (high - low) } else { 1.0 / low }
}

/// The range that the capacity sum of a feasible set can have in one lane.
fn capacity_range<const LANES: usize>(field: &Field<LANES>, lane: usize) -> (f64, f64) {
    let mut capacities: Vec<f64> = field.hosts.iter().map(|host| host.capacity[lane]).collect();
    capacities.sort_by(f64::total_cmp);
    let pick = field.pick;
    let low: f64 = capacities[..pick].iter().sum();
    let high: f64 = capacities[capacities.len() - pick..].iter().sum();
    let mut used: Vec<f64> = field.hosts.iter().map(|host| host.used[lane]).collect();
    used.sort_by(f64::total_cmp);
    // The totals are reached beside what is used, so the capacity is at least both together.
    let placed = field.empty.placed[lane] + used[..pick].iter().sum::<f64>();
    (low.max(placed).max(1.0) * (1.0 - f64::EPSILON * 4.0), high.max(1.0) * (1.0 + f64::EPSILON * 4.0))
}
