//! The choice where alternatives collide: set packing, by branch and bound from the best answer known.
//!
//! First parts of the batch are searched with the rest held fast, until no part gets better; then the whole, as far as the work limit
//! allows. The bound is that of the choice as if nothing collided. Invariant: the answer fits into the room, and is never worse than the
//! one that was known.

use super::{
    Aim, knapsack,
    lagrange::{Prices, postponed_least, relax},
    latest,
    question::{Choice, Question, Worth},
};

/// Requests of a part.
const PART: usize = 6;
/// Nodes of the search of a part.
const PART_NODES: u64 = 5_000;
/// Most requests of a whole that is searched: each is a call inside another, and more cannot be finished anyway.
const WHOLE_MAX: usize = 500;
/// What a node costs beside a state of a front: it asks the room.
const NODE_WORK: u64 = 64;

/// What has been chosen so far, and whether more fits beside it.
pub trait Room {
    /// Takes an alternative of a request when it fits beside all that is taken.
    fn take(&mut self, request: usize, item: usize) -> bool;
    /// Gives back what was taken.
    fn give_back(&mut self, request: usize, item: usize);
    /// The objective of what is taken; smaller is better.
    fn value(&self) -> i64;
}

/// See [`super::choose_in`].
pub(super) fn best(question: &Question<'_>, aim: Aim, room: &mut dyn Room, known: Option<&[Option<usize>]>) -> Choice {
    let relaxed = match aim {
        Aim::Sum => Some(knapsack::best(question)),
        Aim::Latest => Some(latest::earliest(question)),
        Aim::Together => None,
    };
    let mut search = Search::new(question, aim, room);
    search.begin(known);
    if let Some(ideal) = relaxed.as_ref() {
        search.try_all(&ideal.picks);
    }
    let is_ideal = |best: &Worth| relaxed.as_ref().is_some_and(|ideal| ideal.is_optimal() && ideal.worth == *best);
    let mut is_whole = is_ideal(&search.best.1);
    if !is_whole {
        search.parts();
        is_whole = search.whole();
    }
    search.clear();
    let (picks, worth) = search.best;
    let of_relaxed = relaxed.filter(|ideal| ideal.worth.postponed == worth.postponed).and_then(|ideal| ideal.bound);
    let at_least = if aim == Aim::Together && worth.postponed == 0 { Some(0) } else { of_relaxed };
    Choice { bound: if is_whole { Some(worth.value) } else { at_least }, picks, worth }
}

struct Search<'a, 'r> {
    question: &'a Question<'a>,
    aim: Aim,
    room: &'r mut dyn Room,
    limit: i64,
    prices: Prices,
    work: u64,
    best: (Vec<Option<usize>>, Worth),
    /// What is taken of each request.
    picks: Vec<Option<usize>>,
    /// By request: its items, those first that are best at the prices.
    order: Vec<Vec<usize>>,
}

/// What is chosen on the way to a node.
#[derive(Clone, Copy)]
struct Chosen {
    postponed: usize,
    cost: i64,
    end: i64,
}

/// What the free requests from a depth on take at least, if all of them are placed.
#[derive(Clone, Copy, Default)]
struct Rest {
    /// Requests that have no item.
    postponed: usize,
    cost: i64,
    value: i64,
    /// At the prices.
    worth: i128,
    /// The largest of the least values.
    latest: i64,
}

impl<'a, 'r> Search<'a, 'r> {
    fn new(question: &'a Question<'a>, aim: Aim, room: &'r mut dyn Room) -> Search<'a, 'r> {
        let limit = question.limit();
        let placeable: Vec<_> = question.items.iter().filter(|items| !items.is_empty()).cloned().collect();
        let prices = relax(&placeable, limit, postponed_least(&placeable, limit)).prices;
        let sorted = |items: &Vec<_>| {
            let mut order: Vec<usize> = (0..items.len()).collect();
            order.sort_by_key(|at| (prices.of(&items[*at]), items[*at].end));
            order
        };
        let order = question.items.iter().map(sorted).collect();
        let picks = vec![None; question.items.len()];
        let best = (picks.clone(), question.worth(&picks));
        Search { question, aim, room, limit, prices, work: question.work / NODE_WORK, best, picks, order }
    }

    /// Takes what is known to fit; else each request in turn takes the best that fits.
    fn begin(&mut self, known: Option<&[Option<usize>]>) {
        let mut left = self.limit;
        for request in 0..self.picks.len() {
            let items = &self.question.items[request];
            let pick = match known {
                Some(known) => known[request].filter(|at| self.room.take(request, *at)),
                None => {
                    let mut order = self.order[request].iter().copied();
                    order.find(|at| items[*at].cost <= left && self.room.take(request, *at))
                }
            };
            left -= pick.map_or(0, |at| items[at].cost);
            self.picks[request] = pick;
        }
        debug_assert!(known.is_none_or(|known| known == self.picks), "what is known to fit does not");
        self.best = (self.picks.clone(), self.worth());
    }

    fn leave(&mut self, request: usize) {
        if let Some(at) = self.picks[request].take() {
            self.room.give_back(request, at);
        }
    }

    fn clear(&mut self) {
        (0..self.picks.len()).for_each(|request| self.leave(request));
    }

    /// Takes these on top of what is taken; says whether all fit.
    fn take(&mut self, picks: impl Iterator<Item = (usize, Option<usize>)>) -> bool {
        picks.filter_map(|(request, pick)| Some((request, pick?))).all(|(request, at)| {
            let is_taken = self.room.take(request, at);
            self.picks[request] = is_taken.then_some(at);
            is_taken
        })
    }

    /// The worth of what is taken.
    fn worth(&self) -> Worth {
        Worth { value: self.room.value(), ..self.question.worth(&self.picks) }
    }

    /// Takes a choice as the best one when it fits and is better.
    fn try_all(&mut self, picks: &[Option<usize>]) {
        self.clear();
        if self.take(picks.iter().copied().enumerate()) && self.worth() < self.best.1 {
            self.best = (self.picks.clone(), self.worth());
        }
        self.clear();
        let best = self.best.0.clone();
        self.take(best.into_iter().enumerate());
    }

    /// Improves parts of the best choice until none gets better, with half of the work.
    fn parts(&mut self) {
        let reserve = self.work / 2;
        let requests = self.picks.len();
        let mut before = None;
        while before != Some(self.best.1) && requests > PART {
            before = Some(self.best.1);
            for first in (0..requests).step_by(PART / 2) {
                if self.work <= reserve {
                    return;
                }
                let free: Vec<usize> = (first..requests.min(first + PART)).collect();
                self.search(&free, PART_NODES.min(self.work - reserve));
            }
        }
    }

    /// Searches the whole; says whether the answer is the best there is.
    fn whole(&mut self) -> bool {
        let free: Vec<usize> = (0..self.picks.len()).collect();
        free.len() <= WHOLE_MAX && self.search(&free, self.work)
    }

    /// Searches all choices of the free requests beside the others of the best choice. Says whether none was left out.
    fn search(&mut self, free: &[usize], nodes: u64) -> bool {
        free.iter().for_each(|request| self.leave(*request));
        let rests = self.rests(free);
        let kept = self.question.worth(&self.picks);
        let taken = self.picks.iter().zip(self.question.items).filter_map(|(pick, items)| Some(items[(*pick)?].cost));
        let chosen = Chosen { postponed: kept.postponed - free.len(), cost: taken.sum(), end: kept.end };
        let others = self.work - nodes;
        self.work = nodes;
        self.descend(free, &rests, chosen);
        let is_complete = self.work > 0;
        self.work += others;
        let best: Vec<_> = free.iter().map(|request| (*request, self.best.0[*request])).collect();
        self.take(best.into_iter());
        is_complete
    }

    fn rests(&self, free: &[usize]) -> Vec<Rest> {
        let mut rests = vec![Rest::default(); free.len() + 1];
        for (depth, request) in free.iter().enumerate().rev() {
            let items = &self.question.items[*request];
            let after = rests[depth + 1];
            let value = items.iter().map(|item| item.value).min().unwrap_or(0);
            rests[depth] = Rest {
                postponed: after.postponed + usize::from(items.is_empty()),
                cost: after.cost + items.iter().map(|item| item.cost).min().unwrap_or(0),
                value: after.value + value,
                worth: after.worth + items.iter().map(|item| self.prices.of(item)).min().unwrap_or(0),
                latest: after.latest.max(value),
            };
        }
        rests
    }

    /// No choice below the node that places all the rest has a smaller value.
    fn bound(&self, chosen: Chosen, rest: &Rest) -> i64 {
        let value = self.room.value();
        match self.aim {
            Aim::Sum => {
                let paid = self.prices.cost * i128::from(chosen.cost - self.limit) + rest.worth;
                let paid = i128::from(value) + paid.div_euclid(self.prices.scale);
                (value + rest.value).max(i64::try_from(paid).unwrap_or(0))
            }
            Aim::Latest => value.max(rest.latest),
            Aim::Together => value,
        }
    }

    fn is_hopeless(&self, chosen: Chosen, rest: &Rest) -> bool {
        let best = &self.best.1;
        let postponed = chosen.postponed + rest.postponed;
        if postponed != best.postponed {
            return postponed > best.postponed;
        }
        let (bound, cost) = (self.bound(chosen, rest), chosen.cost + rest.cost);
        cost > self.limit || (bound, chosen.end) >= (best.value, best.end)
    }

    fn descend(&mut self, free: &[usize], rests: &[Rest], chosen: Chosen) {
        self.work = self.work.saturating_sub(1);
        if self.work == 0 || self.is_hopeless(chosen, &rests[0]) {
            return;
        }
        let Some((request, free)) = free.split_first() else {
            self.best = (self.picks.clone(), self.worth());
            return;
        };
        let question = self.question;
        for place in 0..self.order[*request].len() {
            let at = self.order[*request][place];
            let item = question.items[*request][at];
            let with = Chosen { cost: chosen.cost + item.cost, end: chosen.end.max(item.end), ..chosen };
            if with.cost <= self.limit && self.room.take(*request, at) {
                self.picks[*request] = Some(at);
                self.descend(free, &rests[1..], with);
                self.leave(*request);
            }
        }
        self.descend(free, &rests[1..], Chosen { postponed: chosen.postponed + 1, ..chosen });
    }
}
