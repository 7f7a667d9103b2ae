//! What hosts give towards the totals at one start, and at what cost; and how a set of them shares the totals most cheaply.
//!
//! Each resource by itself goes to the cheapest hosts first. What is left is that every seat's cost is rounded up: a few units moved
//! from one host to another may save a thousandth. Those moves are searched, as far as their cost and the rounding that is left stay
//! below the best shares known.
//!
//! Invariant: costs are in parts ([`PARTS`]) and whole; no seat takes more of a resource than costs fit.

use std::ops::Range;

use super::{
    costs::Costs,
    problem::{Problem, Slot},
};
use crate::cost::{Cost, PARTS};

/// No amount is counted that would cost more than this by itself.
const PARTS_MAX: i128 = PARTS << 48;
/// Ways to share that are looked at for one seat, and for all seats of a set.
const WAYS_MAX: usize = 400;
const STEPS_MAX: u32 = 4_000;
/// Sets larger than this are shared by the cheapest first alone.
pub(crate) const SEATS_MAX: usize = 32;

/// The hosts of a slot, by position.
pub(crate) struct Market {
    /// N.
    pub pick: usize,
    /// See [`Problem::settled_max`].
    settled_max: usize,
    /// The columns that must reach something together.
    pub binding: Vec<usize>,
    /// What is asked of each of them beyond the minima.
    pub asked: Vec<i64>,
    /// What each host gives beyond the minimum, at most what is asked; indexed `position * binding + column`.
    pub room: Vec<i64>,
    /// What a base unit of it costs.
    pub per_unit: Vec<i128>,
    /// What a seat with the minima costs.
    pub fixed: Vec<i128>,
}

/// How a set shares the totals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shares {
    /// What all seats cost, in thousandths of a credit.
    pub cost: i64,
    /// The set costs no less, however it shares.
    pub bound: i64,
    /// What each member gives beyond the minimum, indexed `member * binding + column`.
    pub beyond: Vec<i64>,
}

impl Market {
    /// The market of `slot`; `costs` are those of the hosts, and columns after the resources cost nothing.
    pub fn new(problem: &Problem<'_>, costs: &Costs, slot: &Slot) -> Market {
        let mut market = Market::empty(problem);
        for (at, host) in slot.hosts.iter().enumerate() {
            let step = costs.step_at(*host as usize, slot.start.0);
            market.add(problem, costs, slot.free_at(problem.width(), at), step..step + 1);
        }
        market
    }

    /// The market of all hosts that may be there at some start, as if all of each was free and cost what it costs when it is cheapest.
    pub fn at_best(problem: &Problem<'_>, costs: &Costs) -> Market {
        let mut market = Market::empty(problem);
        let width = problem.width();
        for host in (0..problem.hosts.len()).filter(|host| problem.latest(*host) > i64::MIN) {
            market.add(problem, costs, &problem.capacity[host * width..][..width], costs.steps(host));
        }
        market
    }

    /// The totals, without any host.
    pub fn empty(problem: &Problem<'_>) -> Market {
        let binding: Vec<usize> = (0..problem.width()).filter(|column| problem.is_binding[*column]).collect();
        let pick = problem.pick.cast_signed() as i64;
        let asked = binding.iter().map(|column| problem.needed[*column] - pick * problem.minimum[*column]).collect();
        Market {
            pick: problem.pick,
            settled_max: problem.settled_max,
            binding,
            asked,
            room: Vec::new(),
            per_unit: Vec::new(),
            fixed: Vec::new(),
        }
    }

    /// Adds a host that has this free, at its least costs in any of these steps.
    fn add(&mut self, problem: &Problem<'_>, costs: &Costs, free: &[i64], steps: Range<usize>) {
        self.fixed.push(steps.clone().map(|step| minima(costs, step)).min().unwrap_or(0));
        for (column, asked) in self.binding.iter().zip(&self.asked) {
            let price = steps.clone().map(|step| price(costs, step, *column)).min().unwrap_or(0);
            self.room.push(room(free[*column] - problem.minimum[*column], *asked, price));
            self.per_unit.push(price);
        }
    }

    /// What a host that has this free costs in a step, in parts, less what it gives beyond the minima at these prices of the totals.
    pub fn worth(&self, problem: &Problem<'_>, costs: &Costs, (free, step): (&[i64], usize), prices: &[i128]) -> i128 {
        let gain = |((column, asked), paid): ((&usize, &i64), &i128)| {
            let price = price(costs, step, *column);
            let beyond = free[*column] - problem.minimum[*column];
            if price < *paid { (price - paid) * i128::from(room(beyond, *asked, price)) } else { 0 }
        };
        minima(costs, step) + self.binding.iter().zip(&self.asked).zip(prices).map(gain).sum::<i128>()
    }

    /// Whether sets are small enough for their shares to be settled to the rounding.
    pub fn is_settled(&self) -> bool {
        self.pick <= self.settled_max
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.fixed.len()
    }

    /// The parts that the set costs at least, with what each member gives; none when it does not reach the totals.
    fn cheapest_first(&self, set: &[u32]) -> Option<(i128, Vec<i64>, Vec<usize>)> {
        let kinds = self.binding.len();
        let mut beyond = vec![0; set.len() * kinds];
        let mut parts: i128 = set.iter().map(|at| self.fixed[*at as usize]).sum();
        let mut marginal = Vec::with_capacity(kinds);
        let mut order: Vec<usize> = (0..set.len()).collect();
        for kind in 0..kinds {
            let cell = |member: &usize| set[*member] as usize * kinds + kind;
            order.sort_by_key(|member| (self.per_unit[cell(member)], *member));
            let (mut left, mut last) = (self.asked[kind], order[0]);
            for member in &order {
                let given = self.room[cell(member)].min(left);
                beyond[member * kinds + kind] = given;
                parts += self.per_unit[cell(member)] * i128::from(given);
                left -= given;
                if given > 0 {
                    last = *member;
                }
            }
            if left > 0 {
                return None;
            }
            marginal.push(last);
        }
        Some((parts, beyond, marginal))
    }

    /// The least cost of a set before rounding, in thousandths of a credit; none when it does not reach the totals.
    pub fn least(&self, set: &[u32]) -> Option<i64> {
        self.cheapest_first(set).map(|(parts, ..)| Cost::of_parts(parts.max(0)).0.cast_signed())
    }

    /// The cheapest shares of a set that were found; none when it does not reach the totals.
    pub fn shares(&self, set: &[u32]) -> Option<Shares> {
        let (parts, beyond, marginal) = self.cheapest_first(set)?;
        let least = div_ceil(parts);
        let mut sharing = Sharing::new(self, set, parts, beyond, marginal);
        if sharing.best > least && self.is_settled() {
            sharing.search();
        }
        let bound = if sharing.is_exact { sharing.best } else { least };
        Some(Shares { cost: clamp(sharing.best), bound: clamp(bound), beyond: sharing.best_beyond })
    }
}

/// What a seat with the minima costs in a step. Where a seat costs no more than that, it is rounded up by itself.
fn minima(costs: &Costs, step: usize) -> i128 {
    if costs.has_shares() { costs.fixed(step) } else { i128::from(costs.of_minima(step)) * PARTS }
}

/// What one more base unit of a column costs in a step.
fn price(costs: &Costs, step: usize, column: usize) -> i128 {
    costs.per_unit(step).and_then(|prices| prices.get(column)).copied().unwrap_or(0)
}

/// How much a host with so much beyond the minimum gives at most, at this price.
fn room(beyond: i64, asked: i64, price: i128) -> i64 {
    let payable = if price > 0 { PARTS_MAX / price } else { i128::MAX };
    // The smaller one of the two has 64 bits.
    i128::from(beyond.min(asked)).min(payable) as i64
}

/// Thousandths, rounded up.
fn div_ceil(parts: i128) -> i128 {
    parts / PARTS + i128::from(parts % PARTS > 0)
}

fn clamp(thousandths: i128) -> i64 {
    i64::try_from(thousandths).unwrap_or(i64::MAX)
}

/// One way in which a seat differs from the cheapest shares.
struct Way {
    /// What it adds to the cost, with the rounding where that is known.
    parts: i128,
    /// What it gives more or less of each column.
    change: Vec<i64>,
}

/// The search for the cheapest shares of one set.
struct Sharing<'m> {
    market: &'m Market,
    set: &'m [u32],
    /// What the cheapest shares cost before rounding.
    parts: i128,
    beyond: Vec<i64>,
    /// The member that takes what the others leave, by column.
    marginal: Vec<usize>,
    /// The best cost so far, in thousandths.
    best: i128,
    best_beyond: Vec<i64>,
    ways: Vec<Vec<Way>>,
    /// What the seats from each one on add at least.
    least_after: Vec<i128>,
    steps_left: u32,
    /// Nothing was left out.
    is_exact: bool,
}

impl<'m> Sharing<'m> {
    fn new(market: &'m Market, set: &'m [u32], parts: i128, beyond: Vec<i64>, marginal: Vec<usize>) -> Sharing<'m> {
        let mut sharing = Sharing {
            market,
            set,
            parts,
            best: 0,
            best_beyond: beyond.clone(),
            beyond,
            marginal,
            ways: Vec::new(),
            least_after: Vec::new(),
            steps_left: STEPS_MAX,
            is_exact: true,
        };
        sharing.best = sharing.rounded(&sharing.beyond);
        // With the cheapest shares nothing is left to gain but the rounding.
        sharing.is_exact = sharing.best == div_ceil(parts);
        sharing
    }

    fn kinds(&self) -> usize {
        self.market.binding.len()
    }

    fn seat(&self, member: usize, beyond: &[i64]) -> i128 {
        let (kinds, at) = (self.kinds(), self.set[member] as usize);
        let prices = &self.market.per_unit[at * kinds..][..kinds];
        let given = &beyond[member * kinds..][..kinds];
        self.market.fixed[at] + prices.iter().zip(given).map(|(price, given)| price * i128::from(*given)).sum::<i128>()
    }

    fn rounded(&self, beyond: &[i64]) -> i128 {
        (0..self.set.len()).map(|member| div_ceil(self.seat(member, beyond))).sum()
    }

    /// What shares may cost beyond the cheapest ones and still be better than the best.
    fn gap(&self) -> i128 {
        (self.best - 1) * PARTS - self.parts
    }

    fn search(&mut self) {
        self.is_exact = true;
        self.ways = (0..self.set.len()).map(|member| self.ways_of(member)).collect();
        self.least_after = vec![0; self.set.len() + 1];
        for member in (0..self.set.len()).rev() {
            let least = self.ways[member].first().map_or(0, |way| way.parts);
            self.least_after[member] = self.least_after[member + 1] + least;
        }
        let mut beyond = self.beyond.clone();
        self.choose(0, 0, &mut beyond);
        self.is_exact &= self.steps_left > 0;
    }

    /// The ways of a seat that are worth their cost, the cheapest first.
    fn ways_of(&mut self, member: usize) -> Vec<Way> {
        let (kinds, gap) = (self.kinds(), self.gap());
        let is_marginal = self.marginal.contains(&member);
        let (mut ways, mut tries_left) = (Vec::new(), WAYS_MAX);
        let mut change = vec![0; kinds];
        let mut beyond = self.beyond.clone();
        loop {
            (0..kinds)
                .for_each(|kind| beyond[member * kinds + kind] = self.beyond[member * kinds + kind] + change[kind]);
            let moved: i128 = (0..kinds).map(|kind| self.dearer(member, kind) * i128::from(change[kind].abs())).sum();
            let seat = self.seat(member, &beyond);
            let parts = moved + if is_marginal { 0 } else { div_ceil(seat) * PARTS - seat };
            if parts <= gap {
                ways.push(Way { parts, change: change.clone() });
            }
            tries_left -= 1;
            if tries_left == 0 {
                self.is_exact = false;
                break;
            }
            // The next combination of changes, as an odometer; a column turns over where it costs too much.
            let Some(kind) = (0..kinds).find(|kind| self.turn(member, *kind, &mut change, gap)) else { break };
            change[..kind].fill(0);
        }
        ways.sort_by_key(|way| way.parts);
        ways
    }

    /// What a unit of a column moved between this member and the marginal one costs.
    fn dearer(&self, member: usize, kind: usize) -> i128 {
        let price = |member: usize| self.market.per_unit[self.set[member] as usize * self.kinds() + kind];
        (price(member) - price(self.marginal[kind])).abs()
    }

    /// Changes a column of a seat by one unit more; false when that is not possible, or costs more than it may.
    fn turn(&self, member: usize, kind: usize, change: &mut [i64], gap: i128) -> bool {
        let kinds = self.kinds();
        let price = |member: usize| self.market.per_unit[self.set[member] as usize * kinds + kind];
        // What is free for both may be moved at will and changes nothing.
        if self.marginal[kind] == member || (price(member) == 0 && price(self.marginal[kind]) == 0) {
            return false;
        }
        let (given, room) =
            (self.beyond[member * kinds + kind], self.market.room[self.set[member] as usize * kinds + kind]);
        let next = change[kind].abs() + 1;
        if next > given.max(room - given) || self.dearer(member, kind) * i128::from(next) > gap {
            return false;
        }
        // Before the marginal member hosts give all they have, behind it nothing.
        change[kind] = if given > 0 { -next } else { next };
        true
    }

    fn choose(&mut self, member: usize, spent: i128, beyond: &mut Vec<i64>) {
        if member == self.set.len() {
            self.finish(beyond);
            return;
        }
        let kinds = self.kinds();
        for way in 0..self.ways[member].len() {
            let spent = spent + self.ways[member][way].parts;
            if spent + self.least_after[member + 1] > self.gap() || self.steps_left == 0 {
                return;
            }
            self.steps_left -= 1;
            let shift = |beyond: &mut Vec<i64>, sharing: &Self, sign: i64| {
                for (kind, change) in sharing.ways[member][way].change.iter().enumerate() {
                    beyond[member * kinds + kind] += sign * change;
                    beyond[sharing.marginal[kind] * kinds + kind] -= sign * change;
                }
            };
            shift(beyond, self, 1);
            self.choose(member + 1, spent, beyond);
            shift(beyond, self, -1);
        }
    }

    fn finish(&mut self, beyond: &[i64]) {
        let kinds = self.kinds();
        let fits = (0..kinds).all(|kind| {
            let member = self.marginal[kind];
            (0..=self.market.room[self.set[member] as usize * kinds + kind]).contains(&beyond[member * kinds + kind])
        });
        let cost = if fits { self.rounded(beyond) } else { self.best };
        if cost < self.best {
            self.best = cost;
            self.best_beyond = beyond.to_vec();
        }
    }
}
