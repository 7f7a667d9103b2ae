//! The choice against exhaustive search, and what the work limit does.

use proptest::prelude::*;

use super::*;

/// Requests whose alternatives collide where they use the same slot of a small table.
struct Table<'a> {
    question: &'a Question<'a>,
    slots: &'a [Vec<u8>],
    taken: Vec<(usize, usize)>,
    aim: Aim,
}

impl Room for Table<'_> {
    fn take(&mut self, request: usize, item: usize) -> bool {
        let slot = self.slots[request][item];
        let is_free = slot == 0 || self.taken.iter().all(|(request, item)| self.slots[*request][*item] != slot);
        if is_free {
            self.taken.push((request, item));
        }
        is_free
    }
    fn give_back(&mut self, request: usize, item: usize) {
        self.taken.retain(|taken| *taken != (request, item));
    }
    fn value(&self) -> i64 {
        let values = self.taken.iter().map(|(request, item)| self.question.items[*request][*item].value);
        match self.aim {
            Aim::Sum => values.sum(),
            Aim::Latest => values.max().unwrap_or(0),
            // The last value at each slot, as the ends of hosts are.
            Aim::Together => {
                let at =
                    |slot| self.taken.iter().filter(move |(request, item)| self.slots[*request][*item] % 3 == slot);
                let last = |slot| at(slot).map(|(request, item)| self.question.items[*request][*item].value).max();
                (0..3).filter_map(last).sum()
            }
        }
    }
}

/// Every choice there is, the best of them; `slots` all 0 collide nowhere.
fn exhaustive(question: &Question<'_>, aim: Aim, slots: &[Vec<u8>]) -> Worth {
    let mut picks = vec![None; question.items.len()];
    let mut best = Worth { postponed: usize::MAX, value: 0, end: 0 };
    loop {
        let mut room = Table { question, slots, taken: Vec::new(), aim };
        let mut taken = picks.iter().enumerate().filter_map(|(request, pick)| Some((request, (*pick)?)));
        let fits = taken.all(|(request, item)| room.take(request, item));
        let cost: i64 = picks.iter().zip(question.items).filter_map(|(pick, items)| Some(items[(*pick)?].cost)).sum();
        if fits && question.budget.is_none_or(|budget| cost as u64 <= budget) {
            let worth = question.worth(&picks);
            let value = if aim == Aim::Latest { worth.end } else { room.value() };
            best = best.min(Worth { value, ..worth });
        }
        let Some(next) = (0..picks.len()).find(|at| picks[*at].map_or(0, |pick| pick + 1) < question.items[*at].len())
        else {
            return best;
        };
        picks[..next].fill(None);
        picks[next] = Some(picks[next].map_or(0, |pick| pick + 1));
    }
}

fn batches() -> impl Strategy<Value = (Vec<Vec<Item>>, Option<u64>, i64)> {
    let item = (0_i64..12, 0_u64..9, 0_i64..6).prop_map(|(value, cost, end)| Item::new(value, cost, end));
    let items = prop::collection::vec(prop::collection::vec(item, 0..4), 0..7);
    (items, prop::option::weighted(0.8, 0_u64..30), 0_i64..4)
}

/// Ends are what a search for the latest end compares.
fn as_ends(items: &[Vec<Item>]) -> Vec<Vec<Item>> {
    items.iter().map(|items| items.iter().map(|item| Item { value: item.end, ..*item }).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_choice_without_collisions_is_the_best_there_is((items, budget, floor) in batches()) {
        let slots: Vec<Vec<u8>> = items.iter().map(|items| vec![0; items.len()]).collect();
        let question = Question { items: &items, budget, floor, work: WORK_MAX };
        for aim in [Aim::Sum, Aim::Latest] {
            let found = choose(&question, aim);
            prop_assert_eq!(found.worth, exhaustive(&question, aim, &slots));
            prop_assert!(found.is_optimal());
            let again = question.worth(&found.picks);
            prop_assert_eq!((again.postponed, again.end), (found.worth.postponed, found.worth.end));
            let cost: i64 = found.picks.iter().zip(&items).filter_map(|(pick, items)| Some(items[(*pick)?].cost)).sum();
            prop_assert!(budget.is_none_or(|budget| cost as u64 <= budget));
        }
    }

    #[test]
    fn a_choice_with_collisions_is_the_best_there_is(
        (items, budget, floor) in batches(),
        slots in prop::collection::vec(prop::collection::vec(0_u8..4, 4), 7),
    ) {
        for aim in [Aim::Sum, Aim::Latest, Aim::Together] {
            let items = if aim == Aim::Latest { as_ends(&items) } else { items.clone() };
            let question = Question { items: &items, budget, floor, work: WORK_MAX };
            let mut room = Table { question: &question, slots: &slots, taken: Vec::new(), aim };
            let found = choose_in(&question, aim, &mut room, None);
            prop_assert!(room.taken.is_empty() && found.is_optimal());
            let best = exhaustive(&question, aim, &slots);
            let value = if aim == Aim::Latest { found.worth.value.max(floor) } else { found.worth.value };
            prop_assert_eq!(Worth { value, ..found.worth }, best);
        }
    }

    #[test]
    fn with_little_work_a_choice_is_feasible_and_its_bound_valid((items, budget, floor) in batches(), work in 0_u64..400) {
        let slots: Vec<Vec<u8>> = items.iter().map(|items| vec![0; items.len()]).collect();
        let question = Question { items: &items, budget, floor, work };
        let best = exhaustive(&question, Aim::Sum, &slots);
        let mut room = Table { question: &question, slots: &slots, taken: Vec::new(), aim: Aim::Sum };
        for found in [choose(&question, Aim::Sum), choose_in(&question, Aim::Sum, &mut room, None)] {
            prop_assert_eq!(question.worth(&found.picks), found.worth);
            prop_assert!(found.worth >= best);
            prop_assert!(found.bound.is_none_or(|bound| bound <= best.value || found.worth.postponed > best.postponed));
        }
    }
}

/// Alternatives whose value falls as the cost rises, all along one line: the hardest that there are.
fn correlated(requests: usize) -> Vec<Vec<Item>> {
    let mut state = 1_u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let item = |cost: u64| Item::new(2_100 - cost.cast_signed(), cost, 0);
    (0..requests).map(|_| (0..10).map(|_| item(draw(1_000))).collect()).collect()
}

#[test]
fn at_the_work_limit_the_bound_is_valid_and_near() {
    let items = correlated(40);
    let budget = Some(40 * 400 + 7);
    let ask = |work| choose(&Question { items: &items, budget, floor: 0, work }, Aim::Sum);
    let (full, cut) = (ask(WORK_MAX), ask(10));
    assert!(full.is_optimal());
    let bound = cut.bound.unwrap();
    assert!(bound <= full.worth.value && full.worth.value <= cut.worth.value, "{bound} {full:?} {cut:?}");
    assert!(cut.worth.value - bound <= full.worth.value / 100, "{bound} {cut:?}");
}

#[test]
fn known_answers_are_never_made_worse_and_large_batches_do_not_overflow() {
    let items = vec![vec![Item::new(i64::MAX, u64::MAX, i64::MAX), Item::new(3, u64::MAX, 2)]; 2_000];
    let question = Question { items: &items, budget: Some(u64::MAX), floor: 0, work: 1_000 };
    assert_eq!(choose(&question, Aim::Sum).worth, Worth { postponed: 0, value: 6_000, end: 2 });
    let slots = vec![vec![1, 2]; 2_000];
    let mut room = Table { question: &question, slots: &slots, taken: Vec::new(), aim: Aim::Sum };
    let mut known = vec![None; 2_000];
    known[7] = Some(0);
    let found = choose_in(&question, Aim::Sum, &mut room, Some(&known));
    assert_eq!(found.worth.postponed, 1_998);
}
