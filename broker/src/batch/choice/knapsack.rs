//! The choice where no two alternatives collide: a multiple-choice knapsack, by dynamic programming over Pareto fronts.
//!
//! Source: Pisinger's minimal core (1995), with the Lagrange bound in the place of the linear one. From the relaxed choice on, the
//! requests are let free one after another, those first for which a change costs least; a front holds what the free ones can be, and
//! whatever cannot beat the best answer known goes. Invariant: without a state dropped at the work limit, the answer is optimal.

use super::{
    lagrange::{Relaxed, postponed_least, relax},
    question::{Choice, Item, Question},
};

/// States kept of a front once the work limit is met.
const BEAM: usize = 256;
/// A state whose request takes what the relaxed choice took.
const SAME: u32 = u32::MAX;
/// The item of a request that is postponed.
const NONE: u32 = u32::MAX - 1;

/// The best choice of as many requests as can be paid for.
pub(super) fn best(question: &Question<'_>) -> Choice {
    let places: Vec<usize> = (0..question.items.len()).filter(|at| !question.items[*at].is_empty()).collect();
    let items: Vec<Vec<Item>> = places.iter().map(|at| question.items[*at].clone()).collect();
    let mut work = question.work;
    let limit = question.limit();
    let postponed = postponed_least(&items, limit);
    let mut search = Search { items: &items, limit, postponed, below: i64::MAX, stops_at_first: false };
    let (found, bound) = search.run(&mut work);
    let mut picks = found.unwrap_or_else(|| vec![None; items.len()]);
    let value = value_of(&items, &picks);
    if bound == value {
        search.below = value + 1;
        work = work.max(question.work / 8);
        search.end_earlier(&mut picks, question.floor, &mut work);
    }
    let mut all = vec![None; question.items.len()];
    places.iter().zip(picks).for_each(|(place, pick)| all[*place] = pick);
    Choice { worth: question.worth(&all), picks: all, bound: Some(bound) }
}

fn value_of(items: &[Vec<Item>], picks: &[Option<usize>]) -> i64 {
    items.iter().zip(picks).filter_map(|(items, pick)| pick.map(|pick| items[pick].value)).sum()
}

fn end_of(items: &[Vec<Item>], picks: &[Option<usize>]) -> Option<i64> {
    items.iter().zip(picks).filter_map(|(items, pick)| pick.map(|pick| items[pick].end)).max()
}

type Picks = Vec<Option<usize>>;

/// One search; every request has an item, and so many can be paid for that `postponed` are left.
struct Search<'a> {
    items: &'a [Vec<Item>],
    limit: i64,
    postponed: usize,
    /// Only values below this are looked for.
    below: i64,
    stops_at_first: bool,
}

/// What the free requests can be, with all others as in the relaxed choice.
#[derive(Clone, Copy)]
struct State {
    postponed: usize,
    cost: i64,
    value: i64,
    /// Above the bound, multiplied by the scale of the prices.
    reduced: i128,
    /// The last change, from 1; 0 for none.
    change: u32,
    /// The item of the request let free last.
    item: u32,
}

/// What one item of a request changes.
struct Deviation {
    postponed: isize,
    cost: i64,
    value: i64,
    reduced: i128,
    item: u32,
}

/// The most that the requests which are not free yet can lower.
#[derive(Clone, Copy, Default)]
struct Rest {
    cost: i64,
    reduced: i128,
}

/// A change from the relaxed choice, and the one before it.
struct Change {
    before: u32,
    request: u32,
    item: u32,
}

impl Search<'_> {
    /// The best choice below the limit of values, if there is one, and a bound on what was looked for.
    fn run(&self, work: &mut u64) -> (Option<Picks>, i64) {
        let relaxed = relax(self.items, self.limit, self.postponed);
        let begun = self.filled(&relaxed, relaxed.prices.scale / (self.items.len() as i128 + 1));
        let mut below = self.below;
        let mut best = None;
        let mut offer = |picks: Picks| {
            let value = value_of(self.items, &picks);
            if value < below {
                (below, best) = (value, Some(picks));
            }
        };
        offer(self.filled(&relaxed, i128::MAX));
        if best.is_some() && self.stops_at_first {
            return (best, below);
        }
        let mut fronts = Fronts::new(self, &relaxed, begun, below);
        fronts.run(work);
        let bound = fronts.bound();
        if let Some(change) = fronts.best {
            best = Some(fronts.picks(change));
        }
        (best, bound)
    }

    /// The relaxed choice, with what is left of the budget spent where it saves most, by items that are at the prices at most so
    /// much worse than the relaxed ones.
    fn filled(&self, relaxed: &Relaxed, excess: i128) -> Picks {
        let mut picks = relaxed.picks.clone();
        let mut left = self.limit - relaxed.spent;
        let mut swaps: Vec<(i64, usize, usize)> = Vec::new();
        for (request, pick) in picks.iter().enumerate() {
            let Some(now) = pick.map(|pick| self.items[request][pick]) else { continue };
            let most = relaxed.prices.of(&now).saturating_add(excess);
            let is_better = |item: &Item| item.value < now.value && relaxed.prices.of(item) <= most;
            let better = self.items[request].iter().enumerate().filter(|(_, item)| is_better(item));
            swaps.extend(better.map(|(at, item)| (item.value - now.value, request, at)));
        }
        swaps.sort_unstable();
        for (_, request, at) in swaps {
            let Some(pick) = picks[request] else { continue };
            let (now, item) = (self.items[request][pick], self.items[request][at]);
            if item.value < now.value && item.cost - now.cost <= left {
                left -= item.cost - now.cost;
                picks[request] = Some(at);
            }
        }
        picks
    }

    /// Of the choices of this value one that ends as early as any, by bisection over the ends that still matter.
    fn end_earlier(&self, picks: &mut Picks, floor: i64, work: &mut u64) {
        let Some(mut end) = end_of(self.items, picks).filter(|end| *end > floor) else { return };
        let relaxed = relax(self.items, self.limit, self.postponed);
        let most = relaxed.prices.scale * i128::from(self.below - 1) - relaxed.bound;
        let of_request = |(items, least): (&Vec<Item>, &i128)| -> Vec<i64> {
            let matters = items.iter().filter(|item| relaxed.prices.of(item) - least <= most);
            matters.map(|item| item.end).collect()
        };
        let ends: Vec<Vec<i64>> = self.items.iter().zip(&relaxed.least).map(of_request).collect();
        let needed = ends.iter().filter_map(|ends| ends.iter().min()).max();
        let first = needed.filter(|_| self.postponed == 0).map_or(floor, |needed| floor.max(*needed));
        let mut ends: Vec<i64> = ends.into_iter().flatten().filter(|to| (first..end).contains(to)).collect();
        ends.push(first);
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|to| *to < end);
        while !ends.is_empty() && *work > 0 {
            let middle = ends.len() / 2;
            match self.within(ends[middle], work) {
                Some(found) => {
                    *picks = found;
                    end = end_of(self.items, picks).unwrap_or(floor).max(floor);
                    ends.truncate(middle);
                    ends.retain(|to| *to < end);
                }
                None => drop(ends.drain(..=middle)),
            }
        }
    }

    /// A choice as good, with no end after this.
    fn within(&self, end: i64, work: &mut u64) -> Option<Picks> {
        let mut places: Vec<Vec<usize>> = Vec::with_capacity(self.items.len());
        let (mut kept, mut items) = (Vec::new(), Vec::new());
        for (request, of_one) in self.items.iter().enumerate() {
            let early: Vec<usize> = (0..of_one.len()).filter(|at| of_one[*at].end <= end).collect();
            if early.is_empty() {
                continue;
            }
            items.push(early.iter().map(|at| of_one[*at]).collect::<Vec<Item>>());
            kept.push(request);
            places.push(early);
        }
        let postponed = self.postponed.checked_sub(self.items.len() - items.len())?;
        if postponed_least(&items, self.limit) > postponed {
            return None;
        }
        let search = Search { items: &items, postponed, stops_at_first: true, ..*self };
        let found = search.run(work).0?;
        let mut picks = vec![None; self.items.len()];
        for ((request, places), pick) in kept.iter().zip(&places).zip(found) {
            picks[*request] = pick.map(|pick| places[pick]);
        }
        Some(picks)
    }
}

/// The front and what it came from.
struct Fronts<'a> {
    search: &'a Search<'a>,
    relaxed: &'a Relaxed,
    /// What every request takes that is not free yet: nearly the relaxed choice.
    begun: Picks,
    /// Values below this are still looked for.
    below: i64,
    /// The change that leads to the best value found here.
    best: Option<u32>,
    changes: Vec<Change>,
    front: Vec<State>,
    /// The least that was dropped at the work limit.
    dropped: Option<i128>,
}

impl<'a> Fronts<'a> {
    fn new(search: &'a Search<'a>, relaxed: &'a Relaxed, begun: Picks, below: i64) -> Fronts<'a> {
        let mut fronts =
            Fronts { search, relaxed, begun, below, best: None, changes: Vec::new(), front: vec![], dropped: None };
        let taken = fronts.begun.iter().zip(search.items).filter_map(|(pick, items)| Some(&items[(*pick)?]));
        let (cost, value) = taken.fold((0, 0), |sums, item| (sums.0 + item.cost, sums.1 + item.value));
        let state = State {
            postponed: fronts.begun.iter().filter(|pick| pick.is_none()).count(),
            cost,
            value,
            reduced: (0..fronts.begun.len()).map(|request| fronts.debt(request)).sum(),
            change: 0,
            item: SAME,
        };
        fronts.keep(state, usize::MAX);
        fronts
    }

    /// What a request that is not free yet takes above its least.
    fn debt(&self, request: usize) -> i128 {
        let taken = self.begun[request].map(|at| self.relaxed.prices.of(&self.search.items[request][at]));
        taken.unwrap_or(self.relaxed.prices.postponing) - self.relaxed.least[request]
    }

    /// What a state may be above the bound and still lead to a better value.
    fn gap(&self) -> i128 {
        i128::from(self.below - 1) * self.relaxed.prices.scale - self.relaxed.bound
    }

    fn is_done(&self) -> bool {
        self.gap() < 0 || (self.search.stops_at_first && self.best.is_some())
    }

    fn run(&mut self, work: &mut u64) {
        let mut order: Vec<(i128, usize)> = (0..self.search.items.len())
            .filter_map(|request| {
                Some((
                    self.deviations(request).iter().map(|change| change.reduced).min()? + self.debt(request),
                    request,
                ))
            })
            .collect();
        order.sort_unstable();
        let mut rests = vec![Rest::default(); order.len() + 1];
        for (at, (_, request)) in order.iter().enumerate().rev() {
            let most = self.deviations(*request).iter().map(|change| -change.cost).max().unwrap_or(0).max(0);
            rests[at] = Rest { cost: rests[at + 1].cost + most, reduced: rests[at + 1].reduced + self.debt(*request) };
        }
        for (at, (least, request)) in order.into_iter().enumerate() {
            if self.is_done() || least > self.gap() {
                break;
            }
            let deviations = self.deviations(request);
            if self.front.len() as u64 * (deviations.len() as u64 + 1) > *work {
                self.cut(rests[at]);
            }
            let looked_at = self.expand(request, &deviations, rests[at + 1]);
            *work = work.saturating_sub(looked_at);
        }
    }

    /// Keeps the most promising of the front, for which there is work whatever has been done.
    fn cut(&mut self, rest: Rest) {
        if self.front.len() <= BEAM {
            return;
        }
        self.front.sort_unstable_by_key(|state| (state.reduced, state.cost));
        let least = self.front[BEAM].reduced - rest.reduced;
        self.dropped = Some(self.dropped.map_or(least, |dropped| dropped.min(least)));
        self.front.truncate(BEAM);
        self.front.sort_unstable_by_key(|state| (state.postponed, state.cost, state.value));
    }

    /// What the items of a request change, as far as that may lead to a better value; the item taken is not among them.
    fn deviations(&self, request: usize) -> Vec<Deviation> {
        let (prices, least) = (self.relaxed.prices, self.relaxed.least[request]);
        let items = &self.search.items[request];
        let (taken, debt) = (self.begun[request], self.debt(request));
        let now = taken.map_or(Item { value: 0, cost: 0, end: 0 }, |at| items[at]);
        let gap = self.gap();
        let change = |(at, item): (usize, &Item)| Deviation {
            postponed: -isize::from(taken.is_none()),
            cost: item.cost - now.cost,
            value: item.value - now.value,
            reduced: prices.of(item) - least - debt,
            item: at as u32,
        };
        let mut changes: Vec<Deviation> = items
            .iter()
            .enumerate()
            .filter(|(at, item)| taken != Some(*at) && prices.of(item) - least <= gap)
            .map(change)
            .collect();
        if self.search.postponed > 0 && taken.is_some() && prices.postponing - least <= gap {
            let reduced = prices.postponing - least - debt;
            changes.push(Deviation { postponed: 1, cost: -now.cost, value: -now.value, reduced, item: NONE });
        }
        changes
    }

    /// Lets a request free. Says how many states there were.
    fn expand(&mut self, request: usize, deviations: &[Deviation], rest: Rest) -> u64 {
        let (gap, limit) = (self.gap() + rest.reduced, self.search.limit + rest.cost);
        let mut states = Vec::with_capacity(self.front.len() * (deviations.len() + 1));
        let fits = |state: &State| state.cost <= limit;
        states.extend(self.front.iter().map(|state| State { item: SAME, ..*state }).filter(fits));
        for change in deviations {
            states.extend(self.front.iter().filter(|state| state.reduced + change.reduced <= gap).filter_map(
                |state| {
                    let postponed = state.postponed.checked_add_signed(change.postponed)?;
                    let (cost, value) = (state.cost + change.cost, state.value + change.value);
                    let reduced = state.reduced + change.reduced;
                    let state = State { postponed, cost, value, reduced, item: change.item, ..*state };
                    fits(&state).then_some(state)
                },
            ));
        }
        let looked_at = states.len() as u64;
        // A merge: the states of each change are sorted already.
        states.sort_by_key(|state| (state.postponed, state.cost, state.value));
        self.front.clear();
        for state in states {
            let is_worse =
                self.front.last().is_some_and(|last| last.postponed == state.postponed && last.value <= state.value);
            if !is_worse && state.reduced <= self.gap() + rest.reduced {
                self.keep(state, request);
            }
        }
        looked_at
    }

    /// Puts a state at the end of the front, and takes it as the best answer when it is one.
    fn keep(&mut self, mut state: State, request: usize) {
        if state.item != SAME {
            self.changes.push(Change { before: state.change, request: request as u32, item: state.item });
            state.change = self.changes.len() as u32;
        }
        if state.value < self.below && state.cost <= self.search.limit && state.postponed <= self.search.postponed {
            (self.below, self.best) = (state.value, Some(state.change));
        }
        self.front.push(state);
    }

    /// The choice after a change and all before it.
    fn picks(&self, mut change: u32) -> Picks {
        let mut picks = self.begun.clone();
        while let Some(Change { before, request, item }) = change.checked_sub(1).map(|at| &self.changes[at as usize]) {
            picks[*request as usize] = (*item != NONE).then_some(*item as usize);
            change = *before;
        }
        picks
    }

    /// No value looked for is below this.
    fn bound(&self) -> i64 {
        let Some(dropped) = self.dropped else { return self.below };
        let (scaled, scale) = (self.relaxed.bound + dropped, self.relaxed.prices.scale);
        let bound = scaled.div_euclid(scale) + i128::from(scaled.rem_euclid(scale) > 0);
        i64::try_from(bound).unwrap_or(0).clamp(0, self.below)
    }
}
