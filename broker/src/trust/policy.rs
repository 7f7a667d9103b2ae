//! The owner's policy: rules of one site, beside the limits in the grid's credentials.
//!
//! Invariant: a [`DailyHours`] is never empty and at most a day long.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Limits, PublicKey};
use crate::{
    resources::ResourceName,
    time::{Span, Time, Window},
};

const DAY_S: u32 = 86_400;

/// The owner's rules. The default allows everybody, within default limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerPolicy {
    /// When given, only these users: names that an admin gave, or keys or fingerprints of users or accounts, those of accounts
    /// also as in `NAME@FINGERPRINT`.
    pub allow: Option<BTreeSet<String>>,
    /// Never these users, named likewise, even when they are allowed.
    pub deny: BTreeSet<String>,
    /// Longest reservation.
    pub max_duration: Option<Span>,
    /// No reservation ends later than this from now.
    pub max_reach: Option<Span>,
    /// When reservations may run.
    pub hours: Option<DailyHours>,
    /// How much of each host's capacity, in percent, one user may have at any time.
    pub user_share_percent: BTreeMap<ResourceName, u8>,
    /// How much of the site, in percent, one user, one node with all its users, or one network with all its nodes may have: at any
    /// time, and of all that there is until `max_reach`. It is never less than one host for the longest reservation. The owner's own
    /// requests are not bound by it.
    pub site_share_percent: Option<u8>,
    /// The limits of users whose credentials have none.
    pub limits: Limits,
    /// How much, in percent, all holds together may cost the owner's own jobs that wait: of the jobs in time, and of the mean slowdown.
    pub quality_loss_percent: u32,
    /// Own jobs that would begin within this time count for that.
    pub quality_horizon: Span,
    /// Whether the bookings are published with their users; otherwise the grid sees only how much is free.
    pub publishes_bookings: bool,
}

impl Default for OwnerPolicy {
    fn default() -> OwnerPolicy {
        OwnerPolicy {
            allow: None,
            deny: BTreeSet::new(),
            max_duration: None,
            max_reach: None,
            hours: None,
            user_share_percent: BTreeMap::new(),
            site_share_percent: None,
            limits: Limits {
                max_holds: Some(64),
                max_reservations: Some(1_000),
                max_host_hours: None,
                max_credits: None,
                max_reach_s: None,
            },
            quality_loss_percent: 10,
            quality_horizon: Span(7 * 86_400),
            publishes_bookings: true,
        }
    }
}

impl OwnerPolicy {
    /// The default in an open grid, where anybody may book, and may make any number of keys.
    #[must_use]
    pub fn of_open_grid() -> OwnerPolicy {
        OwnerPolicy {
            max_duration: Some(Span(12 * 3600)),
            max_reach: Some(Span(7 * 86_400)),
            site_share_percent: Some(25),
            ..OwnerPolicy::default()
        }
    }

    /// Whether `list` names a user, by name, or by the key or fingerprint of the user or of the account, which may stand behind a chosen
    /// name: whoever joins again with the same invitation has another key and perhaps another such name.
    pub(super) fn names(list: &BTreeSet<String>, name: &str, (user, account): (&PublicKey, &PublicKey)) -> bool {
        let of_account = account.fingerprint();
        let is_account = |entry: &String| entry.rsplit_once('@').is_some_and(|(_, behind)| behind == of_account);
        let is_key = |key: &PublicKey| list.contains(&key.fingerprint()) || list.contains(&key.to_string());
        list.contains(name) || is_key(user) || is_key(account) || list.iter().any(is_account)
    }
}

/// The hours of every day (UTC) in which reservations may run; may pass midnight. A reservation must lie inside one
/// day's stretch as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailyHours {
    /// Second of the day at which the stretch begins.
    start_s: u32,
    /// Seconds that it lasts.
    length_s: u32,
}

/// The hours are not within a day, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("hours: expected two different times of day from 00:00 to 24:00, such as 18:00-08:00")]
pub struct DailyHoursError;

impl DailyHours {
    /// The hours from `start_s` to `end_s` (seconds after midnight, UTC), through midnight when the end is earlier.
    ///
    /// # Errors
    /// [`DailyHoursError`] when the two are the same, or not inside a day. `end_s` may be midnight, 86,400.
    pub fn new(start_s: u32, end_s: u32) -> Result<DailyHours, DailyHoursError> {
        if start_s >= DAY_S || end_s > DAY_S || start_s == end_s {
            return Err(DailyHoursError);
        }
        let length_s = if end_s > start_s { end_s - start_s } else { DAY_S - start_s + end_s };
        Ok(DailyHours { start_s, length_s })
    }

    /// Second of the day (UTC) at which the stretch begins.
    #[must_use]
    pub fn start_s(self) -> u32 {
        self.start_s
    }

    /// Second of the day (UTC) at which the stretch ends; midnight is 86,400.
    #[must_use]
    pub fn end_s(self) -> u32 {
        let end_s = self.start_s + self.length_s;
        if end_s > DAY_S { end_s - DAY_S } else { end_s }
    }

    /// Whether the whole of `window` lies inside one stretch.
    #[must_use]
    pub fn contain(self, window: Window) -> bool {
        let into_stretch = (window.start.0 - i64::from(self.start_s)).rem_euclid(i64::from(DAY_S)).unsigned_abs();
        into_stretch.saturating_add(window.duration().0) <= u64::from(self.length_s)
    }
}

impl std::fmt::Display for DailyHours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let clock = |s: u32| format!("{:02}:{:02}", s / 3600, s / 60 % 60);
        write!(f, "{}-{} UTC", clock(self.start_s), clock(self.end_s()))
    }
}

/// Whether a promise that ends at `end` is further than `reach` from `now`.
pub(crate) fn is_beyond(end: Time, now: Time, reach: Span) -> bool {
    end > now + reach
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hours_are_written_as_they_are_read() {
        let night = DailyHours::new(18 * 3600, 8 * 3600).unwrap();
        assert_eq!(night.to_string(), "18:00-08:00 UTC");
        assert_eq!(DailyHours::new(0, DAY_S).unwrap().to_string(), "00:00-24:00 UTC");
        assert_eq!(DailyHours::new(18 * 3600, 0).unwrap().to_string(), "18:00-24:00 UTC");
        for (start_s, end_s) in [(5, 5), (DAY_S, 3), (0, DAY_S + 1)] {
            assert_eq!(DailyHours::new(start_s, end_s), Err(DailyHoursError));
        }
    }

    proptest! {
        /// Against asking every minute of the window, in days cut into minutes.
        #[test]
        fn a_window_is_inside_when_each_of_its_minutes_is_and_it_crosses_no_end(
            start in 0..1440_u32, end in 0..=1440_u32, first in 0..4000_i64, minutes in 1..1500_i64,
        ) {
            prop_assume!(start != end);
            let hours = DailyHours::new(start * 60, end * 60).unwrap();
            let window = Window { start: Time(first * 60), end: Time((first + minutes) * 60) };
            let inside = |minute: i64| {
                let of_day = u32::try_from(minute.rem_euclid(1440)).unwrap();
                if start < end { (start..end).contains(&of_day) } else { of_day >= start || of_day < end }
            };
            let begins_anew = |minute: i64| minute.rem_euclid(1440) == i64::from(start);
            let expected = (first..first + minutes).all(inside) && !(first + 1..first + minutes).any(begins_anew);
            prop_assert_eq!(hours.contain(window), expected);
        }
    }
}
