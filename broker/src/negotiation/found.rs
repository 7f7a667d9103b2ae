//! The hosts that phase I found, as discovery knows them.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use crate::{
    host::Host, ids::SiteId, phases::Settings, protocol::LedgerVersion, reason::CutCounts, schedule::Schedule,
    time::Time, uplinks::Uplinks,
};

/// A host that phase I found, with its schedule as known.
#[derive(Debug, Clone)]
pub struct FoundHost {
    /// Its site.
    pub site: SiteId,
    /// The host.
    pub host: Host,
    /// Its schedule, shared with the view that it comes from.
    pub schedule: Arc<Schedule>,
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
    /// Hosts that satisfy the minima and attributes, whatever their schedules: all that are known with a schedule.
    pub hosts: Vec<FoundHost>,
    /// The links of their sites, with what was used of them no earlier than the schedules show; only for a demand with traffic.
    pub uplinks: Uplinks,
    /// Those of their sites that give quotes.
    pub quoting: BTreeSet<SiteId>,
    /// Hosts known in all.
    pub known_hosts: usize,
    /// Hosts that fit, but whose schedules could not be fetched.
    pub without_schedule: usize,
    /// Hosts that fit and were not looked at: their schedules are not known, and were not asked for.
    pub left_out: usize,
    /// What each constraint cut.
    pub cut: CutCounts,
}

impl Found {
    /// How many times as many hosts as seats to ask for when these give no plan, after `m` times as many, which were `asked`; none when all
    /// that can be known was looked at, or asked often enough.
    #[must_use]
    pub fn next_m(&self, m: u32, asked: usize, settings: &Settings) -> Option<u32> {
        if self.left_out > 0 {
            return settings.next_m(m);
        }
        // There may be more beyond what is known.
        Some(settings.m_max).filter(|most| *most > m && self.hosts.len() >= asked)
    }

    /// The schedules of its hosts with what their owners do not promise to anybody who asks at `now`.
    #[must_use]
    pub fn offered(&self, now: Time) -> Vec<Cow<'_, Schedule>> {
        self.hosts.iter().map(|found| found.offered(now)).collect()
    }
}
