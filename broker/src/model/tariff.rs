//! A tariff: what the owner of a host asks for it. Prices, and conditions: what a seat costs more that is asked for shortly before its start,
//! what a cancellation gives back, how far ahead a seat may end, and how much of the host may be reserved.
//!
//! Invariant: steps are in order of their times, and a part is at most [`Parts::MOST`]; [`Conditions::check`] says whether that is so.

use serde::{Deserialize, Serialize};

use crate::model::{
    amount::Amount,
    cost::{Cost, Prices},
    resources::Amounts,
    time::{Span, Time, Window},
};

/// What the use of a host costs, and on which conditions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tariff {
    /// What its use costs.
    pub prices: Prices,
    /// The conditions.
    pub conditions: Conditions,
}

impl Tariff {
    /// Whether everything is free, without conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty() && self.conditions.is_empty()
    }

    /// What a seat with these amounts is had for. `asked_at`: when it is asked for, which a surcharge depends on; without it none
    /// counts.
    #[must_use]
    pub fn agreement(&self, asked_at: Option<Time>, window: Window, amounts: &Amounts) -> Agreement {
        let parts = self.prices.parts_of_seat(window.start, window.duration(), amounts);
        let multiplier = asked_at.map_or(1000, |now| self.conditions.multiplier(now, window.start));
        let cost = Cost::of_parts(surcharged(parts, multiplier));
        let refunds = if cost.is_zero() { Vec::new() } else { self.conditions.refunds.clone() };
        Agreement { cost, refunds }
    }
}

/// The parts of a cost with what a surcharge adds to them, rounded up.
pub(crate) fn surcharged(parts: i128, multiplier: i128) -> i128 {
    if multiplier == 1000 { parts } else { (parts.saturating_mul(multiplier).saturating_add(999)) / 1000 }
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
#[serde(deny_unknown_fields)]
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
    /// No seat ends later than this from now.
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
        if !self.refunds.is_sorted_by(|a, b| a.part <= b.part) {
            return wrong("refund", "a cancellation with longer notice gives back less: the percents must not fall");
        }
        if self.horizon.is_some_and(|horizon| horizon < self.notice_min) {
            return wrong("horizon", "it is below the least notice, so nothing could be reserved");
        }
        match self.share_max {
            Some(share) if share == Parts(0) || share > Parts::WHOLE => wrong("share", "expected 1 % to 100 %"),
            _ => Ok(()),
        }
    }

    /// What the owner of a host with this capacity never promises of it; none without a share.
    #[must_use]
    pub fn above_share(&self, capacity: &Amounts) -> Option<Amounts> {
        let share = self.share_max?;
        let rest = |amount: &Amount| {
            let given = u128::from(amount.0) * u128::from(share.0.min(1000)) / 1000;
            // At most the amount itself.
            Amount(amount.0 - given as u64)
        };
        Some(capacity.iter().map(|(name, amount)| (name.clone(), rest(amount))).collect())
    }

    /// When nobody who asks at `now` can have a host: before the least notice, and after the horizon.
    pub fn closed(&self, now: Time) -> impl Iterator<Item = Window> {
        let before = Window { start: now, end: now + self.notice_min };
        let after = self.horizon.map(|horizon| Window { start: now + horizon, end: Time(2 * Time::MAX.0) });
        [Some(before), after].into_iter().flatten().filter(|window| window.start < window.end)
    }

    /// In thousandths, what a seat costs of its price when it is asked for at `now` and starts at `start`.
    pub(crate) fn multiplier(&self, now: Time, start: Time) -> i128 {
        let lead = Span(start.0.saturating_sub(now.0).max(0).unsigned_abs());
        let surcharge =
            self.surcharges.iter().find(|step| lead < step.start).map_or(0, |step| step.part.min(Parts::MOST).0);
        1000 + i128::from(surcharge)
    }
}

/// What was agreed of one seat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Agreement {
    /// What it costs.
    pub cost: Cost,
    /// What its cancellation gives back; see [`Conditions::refunds`].
    pub refunds: Vec<Before>,
}

impl Agreement {
    /// Whether it costs nothing.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.cost.is_zero()
    }

    /// Whether a site is content with this that asks for `least`, and for `most` if clocks differ.
    #[must_use]
    pub fn is_between(&self, least: &Agreement, most: &Agreement) -> bool {
        let is_cost = least.cost <= self.cost && self.cost <= most.cost;
        is_cost && (self.is_free() || self.refunds == most.refunds)
    }

    /// Whether a message may carry it.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.cost <= Cost::MAX && self.refunds.len() <= STEPS_MAX
    }

    /// What stays to be paid of a seat that its user gives back at `now`. Of one that has begun the part of the time that is over is
    /// paid in any case; the rest is a cancellation without notice.
    #[must_use]
    pub fn after_cancellation(&self, window: Window, now: Time) -> Cost {
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
        let agreed = self.cost.min(Cost::MAX);
        // At most the cost itself, which has 48 bits.
        let of_used = Cost((u128::from(agreed.0) * used).div_ceil(length) as u64);
        Cost(of_used.0 + Parts(1000 - given_back.0).of(Cost(agreed.0 - of_used.0)).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::ResourceName;

    fn before(steps: &[(u64, u32)]) -> Vec<Before> {
        steps.iter().map(|(start, part)| Before { start: Span(*start), part: Parts(*part) }).collect()
    }

    fn priced(conditions: Conditions) -> Tariff {
        let prices = serde_json::from_str(r#"{"gpu":101}"#).unwrap();
        Tariff { prices, conditions }
    }

    #[test]
    fn a_short_lead_time_costs_more() {
        let gpu = |amount| Amounts::from([(ResourceName::new("gpu").unwrap(), Amount(amount))]);
        let at = |tariff: &Tariff, asked_at, start, amount| {
            let window = Window::starting(Time(start), Span(3600));
            tariff.agreement(asked_at, window, &gpu(amount)).cost.0
        };
        let tariff = priced(Conditions { surcharges: before(&[(60, 500), (3600, 1)]), ..Conditions::default() });
        let costs = [1000, 1059, 1060, 4599, 4600].map(|start| at(&tariff, Some(Time(1000)), start, 1));
        assert_eq!(costs, [152, 152, 102, 102, 101]);
        assert_eq!(at(&tariff, None, 1000, 1), 101);
        let dear = priced(Conditions { surcharges: before(&[(60, u32::MAX)]), ..Conditions::default() });
        assert_eq!(at(&dear, Some(Time(0)), 0, u64::MAX), Cost::MAX.0, "no overflow");
    }

    #[test]
    fn a_site_is_content_with_its_price_on_its_own_conditions() {
        let agreement = |cost, refunds: &[(u64, u32)]| Agreement { cost: Cost(cost), refunds: before(refunds) };
        let (least, most) = (agreement(5, &[(10, 500)]), agreement(6, &[(10, 500)]));
        let is_taken = |offered: Agreement| offered.is_between(&least, &most);
        assert!(is_taken(agreement(5, &[(10, 500)])) && is_taken(agreement(6, &[(10, 500)])));
        assert!(
            !is_taken(agreement(4, &[(10, 500)]))
                && !is_taken(agreement(7, &[(10, 500)]))
                && !is_taken(agreement(5, &[]))
        );
        assert!(Agreement::default().is_between(&agreement(0, &[]), &most), "free, as long as it is");
    }

    #[test]
    fn a_cancellation_costs_what_the_notice_leaves() {
        let window = Window { start: Time(1000), end: Time(1100) };
        let agreed = |refunds: &[(u64, u32)]| Agreement { cost: Cost(200), refunds: before(refunds) };
        let paid = |agreed: &Agreement, now| agreed.after_cancellation(window, Time(now)).0;
        let free = agreed(&[]);
        assert_eq!([paid(&free, 0), paid(&free, 1000), paid(&free, 1025), paid(&free, 2000)], [0, 0, 50, 200]);
        let rules = agreed(&[(10, 250), (100, 1000)]);
        assert_eq!([paid(&rules, 900), paid(&rules, 901), paid(&rules, 990), paid(&rules, 991)], [0, 150, 150, 200]);
        assert_eq!([paid(&rules, 1000), paid(&rules, 1050), paid(&rules, 9999)], [200, 200, 200], "begun: no notice");
        // What has waited costs no more than what its receipt says.
        for (refunds, now, wait) in [&free, &rules]
            .into_iter()
            .flat_map(|refunds| (850..1_200).flat_map(move |now| (0..120).map(move |wait| (refunds, now, Span(wait)))))
        {
            assert!(refunds.after_cancellation(window.later(wait), Time(now)).0 <= paid(refunds, now), "{now} {wait}");
        }
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
