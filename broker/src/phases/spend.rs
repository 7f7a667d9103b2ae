//! N hosts that reach the totals at the least cost: branch and bound over the hosts of one start.
//!
//! With a price for every total, a host is worth what it gives at these prices less what that costs; the N hosts that are worth most
//! bound what any N cost. The prices are sought by subgradient steps, in floating point; the bound is computed in whole numbers and
//! cannot round. A node takes a host, or leaves it out. Where links limit how many hosts of a site there may be ([`Caps`]), the N worthiest are
//! those within these limits: the least of one site first, then the best of all others up to their most. Of sets so large that their shares are
//! not settled to the rounding, none is sought that would only round better.
//!
//! Invariant: [`Outcome::bound`] is never above the cost of any N hosts that reach the totals.

use std::collections::BTreeSet;

use super::{
    links::Caps,
    market::{Market, Shares},
};
use crate::cost::PARTS;

/// Steps of the search for prices at the first node, where shares are settled and where they are not, and at each other one.
const STEPS_FIRST: u32 = 60;
const STEPS_UNSETTLED: u32 = 20;
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
    /// What proves the bound of the first of them.
    pub duals: Option<Duals>,
}

/// What bounds the cost of any N hosts, as [`super::cost_guard`] has it.
pub(crate) struct Duals {
    /// Of a base unit of each total, in parts.
    pub prices: Vec<i128>,
    /// The N worthiest are worth no more, in parts.
    pub threshold: i128,
    /// For each host of a site, in parts; empty without limits of sites.
    pub charges: Vec<i128>,
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
    caps: Option<&'m Caps>,
    /// Taken hosts of each site, if they have limits.
    taken_at: Vec<usize>,
    /// Parts for a base unit of each total.
    prices: Vec<f64>,
    choices: Vec<Choice>,
    taken: usize,
    /// What each host adds to the bound at the present prices.
    worth: Vec<i128>,
    /// The open hosts that may still be taken, those in front that the bound takes.
    order: Vec<u32>,
    /// Open hosts beyond what their site may have.
    beyond: Vec<u32>,
    /// Only what costs less is of interest.
    below: i64,
    /// Only nodes with a lower bound are.
    worth_it: i64,
    /// The search ends with a set that costs no more.
    enough: i64,
    found: Option<(Vec<u32>, Shares)>,
    duals: Option<Duals>,
    /// The least that sets cost whose shares were not settled.
    unsettled: i64,
    /// Sets whose shares were looked at.
    tried: BTreeSet<Vec<u32>>,
}

/// The cheapest N hosts, within the limits of sites, that cost at most `most`, or any that cost at most `enough`.
pub(crate) fn cheapest(
    (market, caps): (&Market, Option<&Caps>),
    (most, enough): (i64, i64),
    prices: &mut Prices,
    nodes_max: u64,
) -> Outcome {
    if market.len() < market.pick {
        return Outcome { found: None, bound: i64::MAX, nodes: 0, duals: None };
    }
    if prices.0.len() != market.binding.len() {
        prices.0 = first_prices(market);
    }
    let mut tree = Tree::new((market, caps), std::mem::take(&mut prices.0), (most, enough));
    if tree.begin_well() {
        let duals = tree.duals();
        prices.0 = tree.prices;
        return Outcome { found: None, bound: most.saturating_add(1), nodes: 1, duals };
    }
    let (bound, nodes) = tree.search(nodes_max, prices);
    Outcome { found: tree.found, bound: bound.max(0), nodes, duals: tree.duals }
}

/// No N hosts of a market cost less, in thousandths of a credit; `i64::MAX` when there are no N. One look, so another bound may be higher.
pub(crate) fn least(market: &Market) -> i64 {
    let mut tree = Tree::new((market, None), first_prices(market), (i64::MAX, i64::MIN));
    tree.bound(market.pick).map_or(i64::MAX, |bound| in_thousandths(bound).max(0))
}

/// Thousandths, rounded up.
pub(crate) fn in_thousandths(parts: i128) -> i64 {
    i64::try_from(parts / PARTS + i128::from(parts % PARTS > 0)).unwrap_or(i64::MAX)
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

impl<'m> Tree<'m> {
    fn new((market, caps): (&'m Market, Option<&'m Caps>), prices: Vec<f64>, (most, enough): (i64, i64)) -> Tree<'m> {
        Tree {
            market,
            caps,
            taken_at: vec![0; caps.map_or(0, |caps| caps.most.len())],
            prices,
            choices: vec![Choice::Open; market.len()],
            taken: 0,
            worth: vec![0; market.len()],
            order: Vec::with_capacity(market.len()),
            beyond: Vec::new(),
            below: most.saturating_add(1),
            worth_it: most.saturating_add(1),
            enough,
            found: None,
            duals: None,
            unsettled: i64::MAX,
            tried: BTreeSet::new(),
        }
    }

    /// Whether the prices of another start exclude all sets here; they may as well be out of all proportion, and then others are taken.
    fn begin_well(&mut self) -> bool {
        let Some(as_given) = self.bound(self.market.pick) else { return false };
        if in_thousandths(as_given) >= self.worth_it {
            return true;
        }
        let given = std::mem::replace(&mut self.prices, first_prices(self.market));
        if self.bound(self.market.pick).is_none_or(|first| first < as_given) {
            self.prices = given;
        }
        false
    }

    /// Searches; the bound of all sets, and the nodes it took. `first` keeps the prices of the first node.
    fn search(&mut self, nodes_max: u64, first: &mut Prices) -> (i64, u64) {
        let mut branches: Vec<Branch> = Vec::new();
        let steps_first = if self.market.is_settled() { STEPS_FIRST } else { STEPS_UNSETTLED };
        let mut nodes = 0;
        loop {
            nodes += 1;
            let bound = self.node(if nodes == 1 { steps_first } else { STEPS });
            if nodes == 1 {
                first.0.clone_from(&self.prices);
                self.duals = self.duals();
            }
            let is_done = self.found.as_ref().is_some_and(|(_, shares)| shares.cost <= self.enough);
            if nodes >= nodes_max || is_done {
                let open = branches.iter().filter(|branch| !branch.is_turned).map(|branch| branch.bound);
                let least = open.fold(bound.min(self.unsettled), i64::min);
                return (least.min(self.below), nodes);
            }
            if bound < self.worth_it
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
                if branch.is_turned || branch.bound >= self.worth_it {
                    branches.pop();
                } else {
                    branch.is_turned = true;
                    self.decide(host, if was == Choice::Taken { Choice::Left } else { Choice::Taken });
                    break;
                }
            }
        }
    }

    /// At the first node; none where nothing is open.
    fn duals(&self) -> Option<Duals> {
        let pick = self.market.pick;
        let worth = |at: &u32| self.worth[*at as usize];
        let threshold = self.order.get(..pick)?.iter().map(worth).max()?;
        let mut charges = vec![0; self.caps.map_or(0, |caps| caps.most.len())];
        if let Some(caps) = self.caps.filter(|caps| caps.least.is_none()) {
            let site = |at: &u32| caps.of[*at as usize] as usize;
            let mut left = caps.most.clone();
            self.order[..pick].iter().for_each(|at| left[site(at)] -= 1);
            for at in self.order[pick..].iter().filter(|at| left[site(at)] == 0) {
                let charge: &mut i128 = &mut charges[site(at)];
                *charge = (*charge).max(threshold - worth(at));
            }
        }
        Some(Duals { prices: self.prices.iter().map(|price| *price as i128).collect(), threshold, charges })
    }

    fn decide(&mut self, host: u32, choice: Choice) {
        self.choices[host as usize] = choice;
        if choice == Choice::Taken {
            self.taken += 1;
            self.caps.iter().for_each(|caps| self.taken_at[caps.of[host as usize] as usize] += 1);
        }
    }

    fn reopen(&mut self, host: u32) {
        if self.choices[host as usize] == Choice::Taken {
            self.taken -= 1;
            self.caps.iter().for_each(|caps| self.taken_at[caps.of[host as usize] as usize] -= 1);
        }
        self.choices[host as usize] = Choice::Open;
    }

    /// The bound of a node, after some steps towards better prices; sets that the prices suggest are tried.
    fn node(&mut self, steps: u32) -> i64 {
        let Some(left) = self.market.pick.checked_sub(self.taken) else { return i64::MAX };
        let Some(mut bound) = self.bound(left) else { return i64::MAX };
        if left == 0 || left == self.order.len() {
            // Nothing is left to decide.
            self.try_first(left);
            return i64::MAX;
        }
        let (mut best, mut best_prices) = (i128::MIN, self.prices.clone());
        let (mut pace, mut without_gain, mut steps_left) = (1.0, 0, steps);
        loop {
            without_gain += 1;
            if bound > best {
                (best, without_gain) = (bound, 0);
                best_prices.clone_from(&self.prices);
            } else if without_gain == PATIENCE {
                (pace, without_gain) = (pace / 2.0, 0);
            }
            let is_enough = best > i128::from(self.worth_it - 1) * PARTS || steps_left == 0;
            if is_enough || !self.step(bound, &self.short(left), pace) {
                break;
            }
            steps_left -= 1;
            // Prices do not change how many hosts there are.
            bound = self.bound(left).unwrap_or(best);
        }
        if self.prices != best_prices {
            self.prices = best_prices;
            self.bound(left);
        }
        let best = in_thousandths(best);
        if best < self.below {
            self.try_first(left);
        }
        best
    }

    /// Tries those that are taken with the first of the order.
    fn try_first(&mut self, left: usize) {
        let taken = (0..self.market.len() as u32).filter(|at| self.choices[*at as usize] == Choice::Taken);
        let set = taken.chain(self.order[..left].iter().copied()).collect();
        self.try_set(set);
    }

    /// The bound at the present prices; none when there are too few hosts. They are left in [`Tree::order`], those that it takes first.
    fn bound(&mut self, left: usize) -> Option<i128> {
        let market = self.market;
        let kinds = market.binding.len();
        let prices: Vec<i128> = self.prices.iter().map(|price| *price as i128).collect();
        let mut bound: i128 = prices.iter().zip(&market.asked).map(|(price, asked)| price * i128::from(*asked)).sum();
        for at in 0..market.len() {
            let cells = at * kinds..(at + 1) * kinds;
            let offers = market.per_unit[cells.clone()].iter().zip(&market.room[cells]).zip(&prices);
            let gain: i128 = offers.map(|((cost, room), price)| (cost - price).min(0) * i128::from(*room)).sum();
            self.worth[at] = market.fixed[at] + gain;
            if self.choices[at] == Choice::Taken {
                bound += self.worth[at];
            }
        }
        let first = self.gather(left)?;
        let worth = &self.worth;
        if (first + 1..self.order.len()).contains(&left) {
            let key = |at: &u32| (worth[*at as usize], *at);
            self.order[first..].select_nth_unstable_by_key(left - 1 - first, key);
        }
        bound += self.order[..left].iter().map(|at| worth[*at as usize]).sum::<i128>();
        self.order.append(&mut self.beyond);
        Some(bound)
    }

    /// Puts the open hosts in order, in front those that the site with a least number must have, and all beyond the most of a site aside; how
    /// many are in front. None when they do not make N.
    fn gather(&mut self, left: usize) -> Option<usize> {
        let is_open = |at: &u32| self.choices[*at as usize] == Choice::Open;
        self.order.clear();
        self.beyond.clear();
        let Some(caps) = self.caps else {
            self.order.extend((0..self.market.len() as u32).filter(is_open));
            return (self.order.len() >= left).then_some(0);
        };
        let (worth, mut first) = (&self.worth, 0);
        let key = |at: &u32| (worth[*at as usize], *at);
        let mut begin = 0;
        for (site, most) in caps.most.iter().enumerate() {
            let end = begin + caps.of[begin..].partition_point(|of| *of as usize == site);
            let begun = self.order.len();
            let room = most.saturating_sub(self.taken_at[site]);
            if room > 0 {
                self.order.extend((begin as u32..end as u32).filter(is_open));
            }
            begin = end;
            if self.order.len() - begun > room {
                self.order[begun..].select_nth_unstable_by_key(room, key);
                self.beyond.extend(self.order.drain(begun + room..));
            }
            if let Some((_, least)) = caps.least.filter(|(home, _)| *home == site) {
                let forced = least.saturating_sub(self.taken_at[site]);
                if self.order.len() - begun < forced {
                    return None;
                }
                if (1..self.order.len() - begun).contains(&forced) {
                    self.order[begun..].select_nth_unstable_by_key(forced - 1, key);
                }
                (0..forced).for_each(|at| self.order.swap(at, begun + at));
                first = forced;
            }
        }
        (first <= left && self.order.len() >= left).then_some(first)
    }

    /// By how much of each total the hosts that the bound takes fall short.
    fn short(&self, left: usize) -> Vec<f64> {
        let market = self.market;
        let kinds = market.binding.len();
        let mut short: Vec<f64> = market.asked.iter().map(|asked| *asked as f64).collect();
        let taken = (0..market.len()).filter(|at| self.choices[*at] == Choice::Taken);
        for at in taken.chain(self.order[..left].iter().map(|at| *at as usize)) {
            for (kind, short) in short.iter_mut().enumerate() {
                if market.per_unit[at * kinds + kind] < self.prices[kind] as i128 {
                    *short -= market.room[at * kinds + kind] as f64;
                }
            }
        }
        short
    }

    /// A step of the length that would reach what is of interest; false when there is no direction.
    fn step(&mut self, bound: i128, gradient: &[f64], pace: f64) -> bool {
        let goal =
            if self.below == i64::MAX { bound + bound.abs() / 16 + PARTS } else { i128::from(self.worth_it) * PARTS };
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
        let left = self.market.pick.checked_sub(self.taken).filter(|left| (1..self.order.len()).contains(left))?;
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
            self.worth_it = if self.market.is_settled() { shares.cost } else { shares.bound };
            self.found = Some((set, shares.clone()));
        }
        if shares.bound < shares.cost {
            self.unsettled = self.unsettled.min(shares.bound);
        }
    }
}
