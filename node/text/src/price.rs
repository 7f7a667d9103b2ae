//! What a plan costs and what a larger budget would do, in words.
//!
//! Invariant: that more money changes nothing is said only where it is proven.

use broker::{
    cost::Cost,
    negotiation::{Round, WithoutBudget},
    plan::{ObjectiveValue, Plan},
    request::ObjectiveKind,
    time::{Span, Time},
};

use super::{time::format_span, words::utc_text};

/// What a plan costs, and what more money would do, by the round that has made it; none where neither a price nor a budget is part of it.
pub fn price_text(plan: &Plan, budget: Option<Cost>, round: Option<&Round>) -> Option<String> {
    let (cost, objective) = (plan.cost(), plan.objective);
    let best = round.and_then(|round| round.without_budget);
    let Some(budget) = budget else {
        let text = format!("it costs {cost} credits; without a budget no host was left out for its price");
        return (!cost.is_zero()).then_some(text);
    };
    let more = match (objective.kind, best) {
        (ObjectiveKind::Cost, _) if objective.bound == Some(objective.value) => {
            "it is the cheapest, so a larger budget changes nothing".to_owned()
        }
        (ObjectiveKind::Cost, _) => "a cheaper one may exist, and a larger budget changes nothing".to_owned(),
        (_, Some(best)) => would(objective, best),
        // Nothing costs anything.
        (_, None) if cost.is_zero() => return None,
        (_, None) if objective.bound == Some(objective.value) => {
            "nothing within the budget is better; a larger one may give more".to_owned()
        }
        (_, None) => "something better may exist, within this budget or a larger one".to_owned(),
    };
    Some(format!("it costs {cost} credits of a budget of {budget}: {more}"))
}

/// What the best plan without a budget would do, beside one that is worth this.
fn would(plan: ObjectiveValue, best: WithoutBudget) -> String {
    let WithoutBudget { objective: ObjectiveValue { value, bound, .. }, cost } = best;
    if value >= plan.value {
        let is_proven = bound.is_some_and(|bound| bound >= plan.value);
        return if is_proven { "more money changes nothing" } else { "nothing better was found for more money" }
            .to_owned();
    }
    let span = || format_span(Span(value.unsigned_abs()));
    let what = match plan.kind {
        ObjectiveKind::Start => format!("start at {}", utc_text(Time(value))),
        ObjectiveKind::Finish => format!("end at {}", utc_text(Time(value))),
        ObjectiveKind::Runtime => format!("run for {}", span()),
        ObjectiveKind::HostTime => format!("use {} of host time", span()),
        ObjectiveKind::Cost => format!("cost {}", Cost(value.unsigned_abs())),
    };
    format!("with {cost} credits it would {what}")
}

#[cfg(test)]
mod tests {
    use broker::{negotiation::RoundOutcome, reason::CutCounts};

    use super::*;

    fn plan(kind: ObjectiveKind, cost: u64, bound: Option<i64>) -> Plan {
        let seat = format!(
            r#"{{"number":0,"site":"s","place":{{"host":"h"}},"window":{{"start":0,"end":9}},"amounts":{{}},"agreed":{{"cost":{cost},"refunds":[]}}}}"#
        );
        Plan {
            shape: Default::default(),
            start: Time(0),
            traffic: None,
            scale: Default::default(),
            seats: vec![serde_json::from_str(&seat).unwrap()],
            objective: ObjectiveValue { kind, value: 5_000, bound },
            efficiency: 1.0,
            efficiency_bound: 1.0,
            start_proven: true,
        }
    }

    fn round(kind: ObjectiveKind, value: i64, bound: Option<i64>, cost: u64) -> Round {
        Round {
            multiplier: 3,
            asked_hosts: 3,
            found_hosts: 3,
            known_hosts: 3,
            without_schedule: 0,
            left_out: 0,
            cut: CutCounts::default(),
            outcome: RoundOutcome::Planned(Time(0)),
            without_budget: Some(WithoutBudget { objective: ObjectiveValue { kind, value, bound }, cost: Cost(cost) }),
            quotes: Vec::new(),
        }
    }

    #[test]
    fn what_more_money_would_do_is_told_where_there_are_prices() {
        use ObjectiveKind::{Cost as Cheapest, Finish, HostTime, Start};
        let told = |kind, cost, bound, budget: Option<u64>, round: Option<Round>| {
            price_text(&plan(kind, cost, bound), budget.map(Cost), round.as_ref()).unwrap_or_default()
        };
        assert_eq!(told(Start, 0, None, None, None), "");
        assert_eq!(told(Start, 0, None, Some(0), None), "");
        assert!(told(Start, 1500, None, None, None).starts_with("it costs 1.50 credits; without a budget"));
        for (kind, bound, without, expected) in [
            (Cheapest, Some(5_000), None, "it is the cheapest, so a larger budget changes nothing"),
            (Cheapest, Some(4_000), None, "a cheaper one may exist, and a larger budget changes nothing"),
            (Finish, Some(5_000), None, "nothing within the budget is better; a larger one may give more"),
            (Finish, None, None, "something better may exist, within this budget or a larger one"),
            (
                Start,
                Some(5_000),
                Some((1_400, None, 3_000)),
                "with 3.00 credits it would start at 1970-01-01T00:23:20Z",
            ),
            (Finish, None, Some((4_999, None, 3_000)), "with 3.00 credits it would end at 1970-01-01T01:23:19Z"),
            (HostTime, None, Some((3_600, None, 9_000)), "with 9.00 credits it would use 1h of host time"),
            (Start, Some(5_000), Some((5_000, Some(5_000), 2_000)), "more money changes nothing"),
            (Finish, None, Some((5_000, Some(4_000), 2_000)), "nothing better was found for more money"),
        ] {
            let round = without.map(|(value, bound, cost)| round(kind, value, bound, cost));
            let text = told(kind, 1500, bound, Some(2_000), round);
            assert_eq!(text, format!("it costs 1.50 credits of a budget of 2.00: {expected}"));
        }
    }
}
