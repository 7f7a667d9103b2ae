//! Prices and conditions of hosts as the API shows them.
//!
//! Invariant: what is shown of prices is the list in force and the next one; all of them would make lists of hosts large.

use broker::{
    cost::{PriceList, Prices},
    tariff::{Before, Conditions, Parts},
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Prices from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextPrices {
    /// For starts from then on.
    pub from: Time,
    /// As `prices` of the host.
    #[schema(value_type = std::collections::BTreeMap<String, u32>)]
    pub prices: PriceList,
}

/// The prices for a start at `now`, and the next ones.
pub fn present_and_next(prices: &Prices, now: Time) -> (PriceList, Option<NextPrices>) {
    match prices {
        Prices::Always(list) => (list.clone(), None),
        Prices::From(steps) => {
            let next = steps.partition_point(|(from, _)| *from <= now);
            let present = next.checked_sub(1).map(|index| steps[index].1.clone());
            let next = steps.get(next).map(|(from, prices)| NextPrices { from: *from, prices: prices.clone() });
            (present.unwrap_or_default(), next)
        }
    }
}

/// On which conditions a host's owner promises it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ConditionsView {
    /// What is added for a start within such a time; the first that is true counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub surcharges: Vec<BeforeView>,
    /// What a cancellation so long before the start gives back; the last that is true counts. Everything, when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refunds: Vec<BeforeView>,
    /// No end later than this from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon_s: Option<u64>,
    /// No start earlier than this from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice_s: Option<u64>,
    /// Thousandths of each resource that are promised at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
}

/// A part that counts from, or up to, a time before the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BeforeView {
    /// The time before the start.
    pub before_s: u64,
    /// Thousandths of the cost.
    pub part: u32,
}

impl ConditionsView {
    /// None where there are none.
    pub fn of(conditions: &Conditions) -> Option<ConditionsView> {
        let steps = |steps: &[Before]| {
            steps.iter().map(|step| BeforeView { before_s: step.start.0, part: step.part.0 }).collect()
        };
        (!conditions.is_empty()).then(|| ConditionsView {
            surcharges: steps(&conditions.surcharges),
            refunds: steps(&conditions.refunds),
            horizon_s: conditions.horizon.map(|span| span.0),
            notice_s: Some(conditions.notice_min.0).filter(|notice| *notice > 0),
            share: conditions.share_max.map(|Parts(share)| share),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prices_in_force_and_the_next_ones_are_shown() {
        let shown = |prices: &str, now| {
            let (present, next) = present_and_next(&serde_json::from_str(prices).unwrap(), Time(now));
            serde_json::to_string(&(present, next)).unwrap()
        };
        assert_eq!(shown(r#"{"cpu":5}"#, 0), r#"[{"cpu":5},null]"#);
        let steps = r#"[[10,{"cpu":1}],[20,{"cpu":2}]]"#;
        assert_eq!(shown(steps, 9), r#"[{},{"from":10,"prices":{"cpu":1}}]"#);
        assert_eq!(shown(steps, 10), r#"[{"cpu":1},{"from":20,"prices":{"cpu":2}}]"#);
        assert_eq!(shown(steps, 20), r#"[{"cpu":2},null]"#);
        assert_eq!(shown("[]", 0), "[{},null]");
    }

    #[test]
    fn conditions_are_shown_where_there_are_some() {
        assert_eq!(ConditionsView::of(&Conditions::default()), None);
        let text =
            r#"{"surcharges":[{"start":60,"part":500}],"refunds":[],"horizon":90,"notice_min":0,"share_max":250}"#;
        let view = ConditionsView::of(&serde_json::from_str(text).unwrap());
        let expected = r#"{"surcharges":[{"before_s":60,"part":500}],"horizon_s":90,"share":250}"#;
        assert_eq!(serde_json::to_string(&view).unwrap(), expected);
    }
}
