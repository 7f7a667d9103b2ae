//! The hosts that phase I found, as discovery knows them.

use std::{borrow::Cow, collections::BTreeSet};

use crate::{
    host::Host,
    ids::SiteId,
    protocol::LedgerVersion,
    reason::{CutCounts, Reason},
    schedule::Schedule,
    time::Time,
    uplinks::Uplinks,
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
        without_kept_back(Cow::Borrowed(&self.schedule), &self.host, now)
    }
}

/// The schedule of a host with what its owner keeps back from who asks at `now`.
fn without_kept_back<'s>(mut schedule: Cow<'s, Schedule>, host: &Host, now: Time) -> Cow<'s, Schedule> {
    for (window, amounts) in host.tariff.conditions.kept_back(&host.capacity, now) {
        schedule.to_mut().add(window, &amounts);
    }
    schedule
}

/// The schedules of hosts with what their owners do not promise to anybody who asks at `now`.
pub(super) fn offered<'s>(
    hosts: &[(&SiteId, &Host)],
    schedules: Vec<Cow<'s, Schedule>>,
    now: Time,
) -> Vec<Cow<'s, Schedule>> {
    let offered = schedules.into_iter().zip(hosts);
    offered.map(|(schedule, (_, host))| without_kept_back(schedule, host, now)).collect()
}

/// The answer of phase I.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Hosts that satisfy the minima and attributes, and whose schedules are known.
    pub hosts: Vec<FoundHost>,
    /// The links of their sites, with what was used of them no earlier than the schedules show; only for a demand with traffic.
    pub uplinks: Uplinks,
    /// Those of their sites that give quotes.
    pub quoting: BTreeSet<SiteId>,
    /// Hosts known in all.
    pub known_hosts: usize,
    /// Hosts that were looked at and fit, but whose schedules are not known.
    pub without_schedule: usize,
    /// What each constraint cut.
    pub cut: CutCounts,
}

impl Found {
    /// Why there is no plan on its hosts, in view of those whose schedules are not known.
    #[must_use]
    pub fn reason(&self, reason: Reason) -> Reason {
        reason.beside_unknown(self.without_schedule as u64)
    }

    /// The schedules of its hosts with what their owners do not promise to anybody who asks at `now`.
    #[must_use]
    pub fn offered(&self, now: Time) -> Vec<Cow<'_, Schedule>> {
        self.hosts.iter().map(|found| found.offered(now)).collect()
    }
}
