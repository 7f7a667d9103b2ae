//! The owner's policy: rules of one site, beside the limits in the grid's credentials.
//!
//! Invariant: what is not about certain users is in [`OwnerPolicy::offered`], which everybody is told; the rest is told to nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Limits, PublicKey};
use crate::{
    offered::{Offered, Spans},
    resources::ResourceName,
    time::{Span, Time},
};

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
    /// When reservations may run, as far as `max_reach` is laid out.
    pub spans: Option<Arc<Spans>>,
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
            spans: None,
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

    /// Whether any rule is about certain users, or about what each may have, beside the limits that all sites have.
    fn is_about_users(&self) -> bool {
        let has_lists = self.allow.is_some() || !self.deny.is_empty();
        let has_shares =
            !self.user_share_percent.is_empty() || self.site_share_percent.is_some_and(|share| share < 100);
        has_lists || has_shares || self.limits != OwnerPolicy::default().limits
    }

    /// The rules that name nobody, where nothing is promised beyond `farthest`.
    #[must_use]
    pub fn offered(&self, farthest: Option<Span>) -> Offered {
        let reach = [self.max_reach, farthest].into_iter().flatten().min();
        let asks = self.is_about_users();
        Offered { spans: self.spans.clone(), longest: self.max_duration, reach, asks, ..Offered::default() }
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

/// Whether a promise that ends at `end` is further than `reach` from `now`.
pub(crate) fn is_beyond(end: Time, now: Time, reach: Span) -> bool {
    end > now + reach
}
