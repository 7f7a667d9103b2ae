//! The choice whose last end is earliest: the least threshold within which as many requests as possible can be paid for.
//!
//! Invariant: exact. Within a threshold the cheapest alternative of each request is best.

use super::question::{Choice, Item, Question};

/// The best choice.
pub(super) fn earliest(question: &Question<'_>) -> Choice {
    let mut ends: Vec<i64> = question.items.iter().flatten().map(|item| item.end.max(question.floor)).collect();
    ends.sort_unstable();
    ends.dedup();
    let placed = |end| cheapest(question, end).iter().flatten().count();
    let most = placed(i64::MAX);
    let end = ends.get(ends.partition_point(|end| placed(*end) < most)).copied().unwrap_or(question.floor);
    let picks = cheapest(question, end);
    let mut worth = question.worth(&picks);
    worth.value = worth.end;
    Choice { picks, worth, bound: Some(worth.end) }
}

/// The cheapest alternatives that end by then, of as many requests as can be paid for.
fn cheapest(question: &Question<'_>, end: i64) -> Vec<Option<usize>> {
    let best = |items: &Vec<Item>| {
        let early = items.iter().enumerate().filter(|(_, item)| item.end <= end);
        early.map(|(at, item)| (item.cost, item.end, at)).min()
    };
    let found: Vec<_> = question.items.iter().map(best).collect();
    let mut order: Vec<usize> = (0..found.len()).filter(|request| found[*request].is_some()).collect();
    order.sort_by_key(|request| found[*request]);
    let mut left = question.limit();
    let mut picks = vec![None; found.len()];
    for request in order {
        let Some((cost, _, at)) = found[request] else { continue };
        left -= cost;
        if left < 0 {
            break;
        }
        picks[request] = Some(at);
    }
    picks
}
