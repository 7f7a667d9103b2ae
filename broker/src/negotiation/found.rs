//! The hosts that phase I found, as discovery knows them.

use std::{borrow::Cow, collections::BTreeSet};

use crate::{
    host::Host, ids::SiteId, protocol::LedgerVersion, reason::CutCounts, resources::Amounts, schedule::Schedule,
    tariff::Conditions, time::Time, uplinks::Uplinks,
};

/// A host that phase I found, with its schedule as known.
#[derive(Debug, Clone)]
pub struct FoundHost {
    /// Its site.
    pub site: SiteId,
    /// The host.
    pub host: Host,
    /// Its schedule.
    pub schedule: Schedule,
    /// The site's version that the schedule shows.
    pub version: LedgerVersion,
}

impl FoundHost {
    /// Its schedule with what its owner does not promise to anybody who asks at `now`.
    #[must_use]
    pub fn offered(&self, now: Time) -> Cow<'_, Schedule> {
        without_kept_back(Cow::Borrowed(&self.schedule), &self.host.tariff.conditions, (&self.host.capacity, now))
    }
}

/// The schedule of a host with this capacity, with what its owner keeps back from who asks at `now`.
pub(super) fn without_kept_back<'s>(
    mut schedule: Cow<'s, Schedule>,
    conditions: &Conditions,
    (capacity, now): (&Amounts, Time),
) -> Cow<'s, Schedule> {
    for (window, amounts) in conditions.kept_back(capacity, now) {
        schedule.to_mut().add(window, &amounts);
    }
    schedule
}

/// The answer of phase I.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Hosts that satisfy the minima and attributes, whatever their schedules.
    pub hosts: Vec<FoundHost>,
    /// The links of their sites, with what was used of them no earlier than the schedules show; only for a demand with traffic.
    pub uplinks: Uplinks,
    /// Those of their sites that give quotes.
    pub quoting: BTreeSet<SiteId>,
    /// Hosts known in all.
    pub known_hosts: usize,
    /// Hosts that fit, but whose schedules could not be fetched.
    pub without_schedule: usize,
    /// What each constraint cut.
    pub cut: CutCounts,
}
