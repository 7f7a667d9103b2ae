//! A tariff: the prices of a host, and on which conditions its owner promises it: what a short lead time costs besides, what a
//! cancellation gives back, and how far ahead and how much is promised at all.
//!
//! Invariant: steps are in order of their times, and a part is at most [`Parts::MOST`]; [`Conditions::check`] says whether that is so.

use serde::{Deserialize, Serialize};

use crate::model::{
    cost::{Cost, Prices},
    time::{Span, Time, Window},
};

/// What the use of a host costs, and on which conditions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tariff {
    /// What its use costs.
    pub prices: Prices,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// Thousandths of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Parts(pub u32);

impl Parts {
    /// All of it.
    pub const WHOLE: Parts = Parts(1000);
    /// The largest surcharge: a hundred times the price.
    pub const MOST: Parts = Parts(100_000);

    /// This part of a cost, rounded up.
    #[must_use]
    pub fn of(self, cost: Cost) -> Cost {
        // A cost has 48 bits and a part 17.
        Cost((cost.0 * u64::from(self.0.min(Parts::MOST.0))).div_ceil(1000)).min(Cost::MAX)
    }
}

/// A part that counts from, or up to, some time before the start of a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// The time before the start.
    pub start: Span,
    /// The part.
    pub part: Parts,
}

/// Most steps of one list.
const STEPS_MAX: usize = 16;

/// See the module. Without any of it nothing is added, a cancellation gives all back, and everything may be promised.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// What is added to the cost of a seat that is asked for less than this long before its start; the first that is true counts. The
    /// times rise.
    pub surcharges: Vec<Before>,
    /// What a cancellation gives back that comes at least this long before the start; the last that is true counts, and none gives
    /// nothing back. The times rise. No list at all gives all back.
    pub refunds: Vec<Before>,
    /// No seat starts later than this from now.
    pub horizon: Option<Span>,
    /// No seat starts earlier than this from now.
    pub notice_min: Span,
    /// How much of each resource of the host may be promised; none: all of it.
    pub share_max: Option<Parts>,
}

/// Conditions are not as they must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct ConditionsError {
    /// The key that is wrong.
    pub key: &'static str,
    /// What is wrong with it.
    pub what: String,
}

impl Conditions {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }

    /// Whether the invariant holds.
    ///
    /// # Errors
    /// [`ConditionsError`] with the key that is wrong.
    pub fn check(&self) -> Result<(), ConditionsError> {
        let wrong = |key, what: &str| Err(ConditionsError { key, what: what.to_owned() });
        let lists = [("surcharge", &self.surcharges, Parts::MOST), ("refund", &self.refunds, Parts::WHOLE)];
        for (key, list, most) in lists {
            if list.len() > STEPS_MAX {
                return wrong(key, &format!("expected at most {STEPS_MAX} steps, got {}", list.len()));
            }
            if !list.is_sorted_by(|a, b| a.start < b.start) {
                return wrong(key, "the times must rise, and none may be named twice");
            }
            if let Some(step) = list.iter().find(|step| step.part > most) {
                return wrong(key, &format!("expected at most {} %, got {} %", most.0 / 10, step.part.0 / 10));
            }
        }
        if self.horizon.is_some_and(|horizon| horizon < self.notice_min) {
            return wrong("horizon", "it is below the least notice, so nothing could be reserved");
        }
        match self.share_max {
            Some(share) if share == Parts(0) || share > Parts::WHOLE => wrong("share", "expected 1 % to 100 %"),
            _ => Ok(()),
        }
    }

    /// What a seat of this price costs that is asked for at `now` and starts at `start`.
    #[must_use]
    pub fn with_surcharge(&self, price: Cost, now: Time, start: Time) -> Cost {
        let lead = Span(start.0.saturating_sub(now.0).max(0).unsigned_abs());
        match self.surcharges.iter().find(|step| lead < step.start) {
            Some(step) => Parts(1000 + step.part.0.min(Parts::MOST.0 - 1000)).of(price),
            None => price,
        }
    }

    /// What stays to be paid of a seat that was agreed at this cost when its user gives it back at `now`: nothing of what was not begun
    /// where all is given back, all of it where nothing is. Of a seat that has begun, the part of the time that is over is paid in any
    /// case, and the rest is treated as a cancellation without notice.
    #[must_use]
    pub fn after_cancellation(&self, agreed: Cost, window: Window, now: Time) -> Cost {
        let notice = Span(window.start.0.saturating_sub(now.0).max(0).unsigned_abs());
        let given_back = match self.refunds.as_slice() {
            [] => Parts::WHOLE,
            steps => steps
                .iter()
                .rev()
                .find(|step| step.start <= notice)
                .map_or(Parts(0), |step| step.part.min(Parts::WHOLE)),
        };
        let length = u128::from(window.duration().0.max(1));
        let used = u128::from(now.0.saturating_sub(window.start.0).max(0).unsigned_abs()).min(length);
        // At most the cost itself, which has 48 bits.
        let of_used = Cost((u128::from(agreed.0) * used).div_ceil(length) as u64);
        Cost(of_used.0 + Parts(1000 - given_back.0).of(Cost(agreed.0 - of_used.0)).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(steps: &[(u64, u32)]) -> Vec<Before> {
        steps.iter().map(|(start, part)| Before { start: Span(*start), part: Parts(*part) }).collect()
    }

    #[test]
    fn a_short_lead_time_costs_more() {
        let conditions = Conditions { surcharges: before(&[(60, 500), (3600, 1)]), ..Conditions::default() };
        let at = |start| conditions.with_surcharge(Cost(101), Time(1000), Time(start)).0;
        assert_eq!([at(0), at(1059), at(1060), at(4599), at(4600)], [152, 152, 102, 102, 101]);
        assert_eq!(Conditions::default().with_surcharge(Cost(7), Time(0), Time(0)), Cost(7));
        let dear = Conditions { surcharges: before(&[(60, u32::MAX)]), ..Conditions::default() };
        assert_eq!(dear.with_surcharge(Cost::MAX, Time(0), Time(0)), Cost::MAX, "no overflow");
    }

    #[test]
    fn a_cancellation_costs_what_the_notice_leaves() {
        let window = Window { start: Time(1000), end: Time(1100) };
        let free = Conditions::default();
        let paid = |conditions: &Conditions, now| conditions.after_cancellation(Cost(200), window, Time(now)).0;
        assert_eq!([paid(&free, 0), paid(&free, 1000), paid(&free, 1025), paid(&free, 2000)], [0, 0, 50, 200]);
        let rules = Conditions { refunds: before(&[(10, 250), (100, 1000)]), ..Conditions::default() };
        assert_eq!([paid(&rules, 900), paid(&rules, 901), paid(&rules, 990), paid(&rules, 991)], [0, 150, 150, 200]);
        assert_eq!([paid(&rules, 1000), paid(&rules, 1050), paid(&rules, 9999)], [200, 200, 200], "begun: no notice");
    }

    #[test]
    fn what_is_out_of_order_or_range_is_named() {
        assert_eq!(Conditions::default().check(), Ok(()));
        for (conditions, key) in [
            (Conditions { surcharges: before(&[(9, 1), (9, 2)]), ..Conditions::default() }, "surcharge"),
            (Conditions { refunds: before(&[(9, 1001)]), ..Conditions::default() }, "refund"),
            (Conditions { refunds: before(&[(0, 1); 17]), ..Conditions::default() }, "refund"),
            (Conditions { horizon: Some(Span(1)), notice_min: Span(2), ..Conditions::default() }, "horizon"),
            (Conditions { share_max: Some(Parts(0)), ..Conditions::default() }, "share"),
        ] {
            assert_eq!(conditions.check().unwrap_err().key, key);
        }
    }
}
