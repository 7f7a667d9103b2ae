//! Money: what the use of a host costs, and how its owner states it.
//!
//! Source: `formats.md`, version 2 (`prices`, and the cost of a seat). Invariant: a [`Cost`] is at most [`Cost::MAX`], so the costs of
//! all seats of a request add up inside 63 bits; a cost that would be larger counts as that, which no budget reaches.

use std::{collections::BTreeMap, fmt, iter};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor, value},
};

use crate::model::{
    amount::Amount,
    resources::{Amounts, ResourceName},
    time::{Span, Time},
};

/// An amount of money, in thousandths of a credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub u64);

impl Cost {
    /// Nothing.
    pub const ZERO: Cost = Cost(0);
    /// The largest cost of one seat, and one more than the largest budget.
    pub const MAX: Cost = Cost((1 << 48) - 1);

    /// Whether it is nothing, which is left out where it is written down.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Cost::ZERO
    }

    /// What so many parts of a thousandth of a credit come to, rounded up.
    pub(crate) fn of_parts(parts: i128) -> Cost {
        let thousandths = u64::try_from(parts.saturating_add(PARTS - 1) / PARTS).unwrap_or(u64::MAX);
        Cost(thousandths).min(Cost::MAX)
    }
}

impl iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        Cost(costs.fold(0, |sum, cost| sum.saturating_add(cost.0)))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000) {
            (whole, parts) if parts % 10 == 0 => write!(f, "{whole}.{:02}", parts / 10),
            (whole, parts) => write!(f, "{whole}.{parts:03}"),
        }
    }
}

/// A thousandth of a credit in the parts that costs are computed in: whole for any amount of any priced unit and any number of seconds.
pub(crate) const PARTS: i128 = 3600 * LARGEST_UNITS;
/// A multiple of every priced unit's size.
const LARGEST_UNITS: i128 = 128_000;

/// Thousandths of a credit for one priced unit for one hour. Priced units: a core, a GiB, one of anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(pub u32);

impl Price {
    /// What one base unit of this resource costs for one second, in [`PARTS`].
    pub(crate) fn of_base_unit(self, resource: &ResourceName) -> i128 {
        let units_in_priced_unit = match resource.as_str() {
            "cpu" => 1000,
            "memory" | "disk" => 1024,
            _ => 1,
        };
        i128::from(self.0) * LARGEST_UNITS / units_in_priced_unit
    }
}

/// Most steps of the prices of one host: two years of days of twelve tariffs.
const STEPS_MAX: usize = 10_000;

/// A price by resource; what is not named is free.
pub type PriceList = BTreeMap<ResourceName, Price>;

/// The prices of a host: one list, or lists that hold from a time on. What counts for a seat is the list in force at its start.
///
/// A document has a map or a list of steps; a message says first which it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prices {
    /// At all times.
    Always(PriceList),
    /// Each from its time on, until the next; before the first everything is free. The times rise.
    From(Vec<(Time, PriceList)>),
}

impl Default for Prices {
    fn default() -> Prices {
        Prices::Always(PriceList::new())
    }
}

/// [`Prices`] as they are in messages.
#[derive(Serialize, Deserialize)]
enum InMessage<A, S> {
    Always(A),
    From(S),
}

impl Serialize for Prices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, serializer.is_human_readable()) {
            (Prices::Always(list), true) => list.serialize(serializer),
            (Prices::From(steps), true) => steps.serialize(serializer),
            (Prices::Always(list), false) => InMessage::<_, ()>::Always(list).serialize(serializer),
            (Prices::From(steps), false) => InMessage::<(), _>::From(steps).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Prices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prices, D::Error> {
        if !deserializer.is_human_readable() {
            return Ok(match InMessage::deserialize(deserializer)? {
                InMessage::Always(list) => Prices::Always(list),
                InMessage::From(steps) => Prices::From(steps),
            });
        }
        struct MapOrSteps;
        impl<'de> Visitor<'de> for MapOrSteps {
            type Value = Prices;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("prices by resource, or a list of [time, prices]")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Prices, A::Error> {
                PriceList::deserialize(value::MapAccessDeserializer::new(map)).map(Prices::Always)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, steps: A) -> Result<Prices, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(steps)).map(Prices::From)
            }
        }
        deserializer.deserialize_any(MapOrSteps)
    }
}

impl Prices {
    /// Whether everything is free.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Prices::Always(list) => list.is_empty(),
            Prices::From(steps) => steps.is_empty(),
        }
    }

    /// Whether the times of the steps rise and are in range, and there are not too many.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        match self {
            Prices::Always(_) => true,
            Prices::From(steps) => {
                steps.len() <= STEPS_MAX
                    && steps.is_sorted_by(|(a, _), (b, _)| a < b)
                    && steps.iter().all(|(from, _)| from.is_in_range())
            }
        }
    }

    /// The lists in force, each with the first start that it counts for, in order; the first one counts from the beginning of time.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (Time, Option<&PriceList>)> {
        let (always, steps) = match self {
            Prices::Always(list) => (Some(list), [].as_slice()),
            Prices::From(steps) => (None, steps.as_slice()),
        };
        iter::once((Time(i64::MIN), always)).chain(steps.iter().map(|(from, list)| (*from, Some(list))))
    }

    /// What a seat with these amounts costs that begins at `start` and lasts so long.
    #[must_use]
    pub fn of_seat(&self, start: Time, length: Span, amounts: &Amounts) -> Cost {
        Cost::of_parts(self.parts_of_seat(start, length, amounts))
    }

    /// The same in parts.
    pub(crate) fn parts_of_seat(&self, start: Time, length: Span, amounts: &Amounts) -> i128 {
        let list = self.steps().take_while(|(from, _)| *from <= start).last().and_then(|(_, list)| list);
        let amounts = amounts.iter().map(|(name, amount)| (name, *amount));
        list.map_or(0, |list| parts_of_seat(list, length, amounts))
    }
}

/// The parts of a seat with these amounts.
pub(crate) fn parts_of_seat<'a>(
    list: &PriceList,
    length: Span,
    amounts: impl Iterator<Item = (&'a ResourceName, Amount)>,
) -> i128 {
    let priced = amounts.filter_map(|(name, amount)| Some((list.get(name)?.of_base_unit(name), amount)));
    // Prices have 32 bits, amounts 48 and units 17; of a host's resources there are fewer than 2^28.
    let each_second: i128 = priced.map(|(price, amount)| price * i128::from(amount.0.min(Amount::MAX.0))).sum();
    each_second.saturating_mul(i128::from(length.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(amounts: &[(&str, u64)]) -> Amounts {
        amounts.iter().map(|(name, amount)| (ResourceName::new(name).unwrap(), Amount(*amount))).collect()
    }

    fn prices(text: &str) -> Prices {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_seat_costs_what_the_format_says_rounded_up() {
        let of = |text, start, seconds, given: &[(&str, u64)]| {
            prices(text).of_seat(Time(start), Span(seconds), &amounts(given)).0
        };
        assert_eq!(of(r#"{"cpu":6000}"#, 0, 3600, &[("cpu", 500)]), 3000);
        assert_eq!(of(r#"{"cpu":6000}"#, 0, 1, &[("cpu", 1)]), 1, "rounded up");
        assert_eq!(of(r#"{"memory":1024,"gpu":2}"#, 0, 7200, &[("memory", 3), ("gpu", 5), ("cpu", 9)]), 26);
        let steps = r#"[[10,{"gpu":1}],[20,{"gpu":3}],[30,{}]]"#;
        let at = |start| of(steps, start, 3600, &[("gpu", 1)]);
        assert_eq!([9, 10, 19, 20, 29, 30].map(at), [0, 1, 1, 3, 3, 0], "the step in force at the start");
    }

    #[test]
    fn a_cost_beyond_all_bounds_is_the_largest() {
        let dear = prices(r#"{"x":4294967295}"#).of_seat(Time(0), Span(u64::MAX), &amounts(&[("x", u64::MAX)]));
        assert_eq!((dear, Cost::of_parts(i128::MAX)), (Cost::MAX, Cost::MAX));
        assert_eq!([12_034, 12_500, 7].map(|cost| Cost(cost).to_string()), ["12.034", "12.50", "0.007"]);
    }

    #[test]
    fn prices_are_written_as_they_were_read() {
        for text in [r#"{"cpu":5}"#, r#"[[0,{"cpu":1}],[9,{}]]"#] {
            assert_eq!(serde_json::to_string(&prices(text)).unwrap(), text);
        }
        for (text, expected) in
            [("7", "expected prices by resource"), (r#"{"cpu":-1}"#, "-1"), (r#"{"cpu":4294967296}"#, "u32")]
        {
            let error = serde_json::from_str::<Prices>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
