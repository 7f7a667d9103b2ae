//! N hosts that reach the totals at the least cost: branch and bound over the hosts of one start.
//!
//! With a price for every total, a host is worth what it gives at these prices less what that costs; the N hosts that are worth most
//! bound what any N cost. The prices are sought by subgradient steps, in floating point; the bound is computed in whole numbers and
//! cannot round. A node takes a host, or leaves it out.
//!
//! Invariant: [`Outcome::bound`] is never above the cost of any N hosts that reach the totals.

use std::collections::BTreeSet;

use super::market::{Market, Shares};
use crate::cost::PARTS;

/// Steps of the search for prices at the first node, and at each other one.
const STEPS_FIRST: u32 = 60;
const STEPS: u32 = 6;
/// After so many steps without a better bound they become shorter.
const PATIENCE: u32 = 3;
/// The largest price of a unit of a total, in parts.
const PRICE_MAX: f64 = (1_u64 << 56) as f64;

/// What is known of the hosts at one start.
pub(crate) struct Outcome {
    /// The cheapest N that are not above what was asked.
    pub found: Option<(Vec<u32>, Shares)>,
    /// No N cost less, in thousandths of a credit; `i64::MAX` when none reach the totals.
    pub bound: i64,
    /// Nodes looked at.
    pub nodes: u64,
}

/// What is decided of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Open,
    Taken,
    Left,
}

/// A decision that can be turned round.
struct Branch {
    host: u32,
    /// The bound of the node at which it was made.
    bound: i64,
    is_turned: bool,
}

/// The search; it keeps its prices from one start to the next.
#[derive(Default)]
pub(crate) struct Prices(Vec<f64>);

struct Tree<'m> {
    market: &'m Market,
    /// Parts for a base unit of each total.
    prices: Vec<f64>,
    choices: Vec<Choice>,
    taken: usize,
    open: usize,
    /// What each host adds to the bound at the present prices.
    worth: Vec<i128>,
    order: Vec<u32>,
    /// Only what costs less is of interest.
    below: i64,
    /// The search ends with a set that costs no more.
    enough: i64,
    found: Option<(Vec<u32>, Shares)>,
    /// The least that sets cost whose shares were not settled.
    unsettled: i64,
    /// Sets whose shares were looked at.
    tried: BTreeSet<Vec<u32>>,
}

/// The cheapest N hosts that cost at most `most`, or any that cost at most `enough`.
pub(crate) fn cheapest(market: &Market, (most, enough): (i64, i64), prices: &mut Prices, nodes_max: u64) -> Outcome {
    if market.len() < market.pick {
        return Outcome { found: None, bound: i64::MAX, nodes: 0 };
    }
    if prices.0.len() != market.binding.len() {
        prices.0 = first_prices(market);
    }
    let mut tree = Tree {
        market,
        prices: std::mem::take(&mut prices.0),
        choices: vec![Choice::Open; market.len()],
        taken: 0,
        open: market.len(),
        worth: vec![0; market.len()],
        order: Vec::new(),
        below: most.saturating_add(1),
        enough,
        found: None,
        unsettled: i64::MAX,
        tried: BTreeSet::new(),
    };
    tree.begin_well();
    let (bound, nodes) = tree.search(nodes_max, prices);
    Outcome { found: tree.found, bound: bound.max(0), nodes }
}

/// For each total the price at which the cheapest hosts give it all.
fn first_prices(market: &Market) -> Vec<f64> {
    let kinds = market.binding.len();
    let of_kind = |kind: usize| {
        let mut offers: Vec<(i128, i64)> = market
            .per_unit
            .iter()
            .zip(&market.room)
            .skip(kind)
            .step_by(kinds)
            .map(|(price, room)| (*price, *room))
            .collect();
        offers.sort_unstable();
        let mut left = market.asked[kind];
        let last = offers.iter().find(|(_, room)| {
            left = left.saturating_sub(*room);
            left <= 0
        });
        last.or(offers.last()).map_or(0.0, |(price, _)| *price as f64)
    };
    (0..kinds).map(of_kind).collect()
}

impl Tree<'_> {
    /// Prices of another start may be out of all proportion here.
    fn begin_well(&mut self) {
        let (as_given, _) = self.bound(self.market.pick);
        let given = std::mem::replace(&mut self.prices, first_prices(self.market));
        if self.bound(self.market.pick).0 < as_given {
            self.prices = given;
        }
    }

    /// Searches; the bound of all sets, and the nodes it took. `first` keeps the prices of the first node.
    fn search(&mut self, nodes_max: u64, first: &mut Prices) -> (i64, u64) {
        let mut branches: Vec<Branch> = Vec::new();
        let mut nodes = 0;
        loop {
            nodes += 1;
            let bound = self.node(if nodes == 1 { STEPS_FIRST } else { STEPS });
            if nodes == 1 {
                first.0.clone_from(&self.prices);
            }
            let is_done = self.found.as_ref().is_some_and(|(_, shares)| shares.cost <= self.enough);
            if nodes >= nodes_max || is_done {
                let open = branches.iter().filter(|branch| !branch.is_turned).map(|branch| branch.bound);
                let least = open.fold(bound.min(self.unsettled), i64::min);
                return (least.min(self.below), nodes);
            }
            if bound < self.below
                && let Some(host) = self.next_host()
            {
                // The better side first: what the bound takes is taken.
                let choice = if self.order[..self.market.pick - self.taken].contains(&host) {
                    Choice::Taken
                } else {
                    Choice::Left
                };
                self.decide(host, choice);
                branches.push(Branch { host, bound, is_turned: false });
                continue;
            }
            // Back to the last decision that has another side.
            loop {
                let Some(branch) = branches.last_mut() else {
                    return (self.unsettled.min(self.below), nodes);
                };
                let (host, was) = (branch.host, self.choices[branch.host as usize]);
                self.reopen(host);
                if branch.is_turned || branch.bound >= self.below {
                    branches.pop();
                } else {
                    branch.is_turned = true;
                    self.decide(host, if was == Choice::Taken { Choice::Left } else { Choice::Taken });
                    break;
                }
            }
        }
    }

    fn decide(&mut self, host: u32, choice: Choice) {
        self.choices[host as usize] = choice;
        self.open -= 1;
        self.taken += usize::from(choice == Choice::Taken);
    }

    fn reopen(&mut self, host: u32) {
        self.taken -= usize::from(self.choices[host as usize] == Choice::Taken);
        self.choices[host as usize] = Choice::Open;
        self.open += 1;
    }

    /// The bound of a node, after some steps towards better prices; sets that the prices suggest are tried.
    fn node(&mut self, steps: u32) -> i64 {
        let left = self.market.pick.checked_sub(self.taken);
        let Some(left) = left.filter(|left| *left <= self.open) else { return i64::MAX };
        if left == 0 || left == self.open {
            let wanted = |at: &u32| match self.choices[*at as usize] {
                Choice::Taken => true,
                Choice::Open => left > 0,
                Choice::Left => false,
            };
            let set: Vec<u32> = (0..self.market.len() as u32).filter(wanted).collect();
            // Nothing is left to decide.
            self.try_set(set);
            return i64::MAX;
        }
        let (mut best, mut best_prices) = (i128::MIN, self.prices.clone());
        let (mut pace, mut without_gain) = (1.0, 0);
        for _ in 0..=steps {
            let (bound, gradient) = self.bound(left);
            without_gain += 1;
            if bound > best {
                (best, without_gain) = (bound, 0);
                best_prices.clone_from(&self.prices);
            } else if without_gain == PATIENCE {
                (pace, without_gain) = (pace / 2.0, 0);
            }
            if best > i128::from(self.below - 1) * PARTS || !self.step(bound, &gradient, pace) {
                break;
            }
        }
        if self.prices != best_prices {
            self.prices = best_prices;
            self.bound(left);
        }
        let best = i64::try_from(best / PARTS + i128::from(best % PARTS > 0)).unwrap_or(i64::MAX);
        if best < self.below {
            let mut set: Vec<u32> =
                (0..self.market.len() as u32).filter(|at| self.choices[*at as usize] == Choice::Taken).collect();
            set.extend(&self.order[..left]);
            self.try_set(set);
        }
        best
    }

    /// The bound at the present prices, and by how much of each total the hosts that it takes fall short. The hosts are left in
    /// [`Tree::order`], those taken first.
    fn bound(&mut self, left: usize) -> (i128, Vec<f64>) {
        let market = self.market;
        let kinds = market.binding.len();
        let prices: Vec<i128> = self.prices.iter().map(|price| *price as i128).collect();
        let mut bound: i128 = prices.iter().zip(&market.asked).map(|(price, asked)| price * i128::from(*asked)).sum();
        self.order.clear();
        for at in 0..market.len() {
            let cells = at * kinds..(at + 1) * kinds;
            let offers = market.per_unit[cells.clone()].iter().zip(&market.room[cells]).zip(&prices);
            let gain: i128 = offers.map(|((cost, room), price)| (cost - price).min(0) * i128::from(*room)).sum();
            self.worth[at] = market.fixed[at] + gain;
            match self.choices[at] {
                Choice::Open => self.order.push(at as u32),
                Choice::Taken => bound += self.worth[at],
                Choice::Left => {}
            }
        }
        let worth = &self.worth;
        self.order.select_nth_unstable_by_key(left - 1, |at| (worth[*at as usize], *at));
        bound += self.order[..left].iter().map(|at| worth[*at as usize]).sum::<i128>();
        let mut gradient: Vec<f64> = market.asked.iter().map(|asked| *asked as f64).collect();
        let taken = (0..market.len()).filter(|at| self.choices[*at] == Choice::Taken);
        for at in taken.chain(self.order[..left].iter().map(|at| *at as usize)) {
            for (kind, short) in gradient.iter_mut().enumerate() {
                if market.per_unit[at * kinds + kind] < prices[kind] {
                    *short -= market.room[at * kinds + kind] as f64;
                }
            }
        }
        (bound, gradient)
    }

    /// A step of the length that would reach what is of interest; false when there is no direction.
    fn step(&mut self, bound: i128, gradient: &[f64], pace: f64) -> bool {
        let goal =
            if self.below == i64::MAX { bound + bound.abs() / 16 + PARTS } else { i128::from(self.below) * PARTS };
        // Totals have units of their own, so each counts in parts of what is asked.
        let part = |kind: usize| {
            let part = gradient[kind] / self.market.asked[kind].max(1) as f64;
            if self.prices[kind] <= 0.0 && part < 0.0 { 0.0 } else { part }
        };
        let parts: Vec<f64> = (0..gradient.len()).map(part).collect();
        let length: f64 = parts.iter().map(|part| part * part).sum();
        if length <= 1e-18 {
            return false;
        }
        let step = pace * (goal - bound).max(PARTS / 8) as f64 / length;
        for (kind, price) in self.prices.iter_mut().enumerate() {
            let change = step * parts[kind] / self.market.asked[kind].max(1) as f64;
            *price = (*price + change).clamp(0.0, PRICE_MAX);
        }
        true
    }

    /// The open host that the bound is least sure of.
    fn next_host(&self) -> Option<u32> {
        let left = self.market.pick.checked_sub(self.taken).filter(|left| (1..self.open).contains(left))?;
        let worth = |at: &u32| self.worth[*at as usize];
        let last = self.order[..left].iter().map(worth).max()?;
        let next = self.order[left..].iter().map(worth).min()?;
        let middle = last + (next - last) / 2;
        self.order.iter().copied().min_by_key(|at| ((worth(at) - middle).abs(), *at))
    }

    /// Keeps a set that is cheaper than the best so far.
    fn try_set(&mut self, mut set: Vec<u32>) {
        set.sort_unstable();
        if self.market.least(&set).is_none_or(|least| least >= self.below) || !self.tried.insert(set.clone()) {
            return;
        }
        let Some(shares) = self.market.shares(&set) else { return };
        if shares.cost < self.below {
            self.below = shares.cost;
            self.found = Some((set, shares.clone()));
        }
        if shares.bound < shares.cost {
            self.unsettled = self.unsettled.min(shares.bound);
        }
    }
}
