//! The hosts that phase I found, as discovery knows them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    amount::Amount,
    host::Host,
    ids::SiteId,
    offered::Offered,
    phases::Settings,
    protocol::{LedgerVersion, Standing},
    reason::{CutCounts, Reason},
    schedule::{Longest, Occupancy, Schedule},
    time::{Time, Window},
    trust::Denial,
    uplinks::Uplinks,
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
    /// When, how long and how far ahead the site offers it.
    pub offer: Arc<Offered>,
    /// What its owner's rules about users leave to the one who asks, where that is known.
    pub standing: Option<Arc<Standing>>,
}

impl FoundHost {
    /// Its schedule with what its owner does not promise to anybody who asks at `now`.
    #[must_use]
    pub fn offered(&self, now: Time) -> Cow<'_, Schedule> {
        Owners::at(now).restrict(Cow::Borrowed(&self.schedule), &self.host, (&self.offer, self.standing.as_deref()))
    }
}

/// What owners do not promise to anybody who asks at one time; hosts with the same rules share it.
pub(super) struct Owners {
    now: Time,
    closings: Vec<Closing>,
}

struct Closing {
    offer: Arc<Offered>,
    /// Of the conditions of the tariff.
    windows: Vec<Window>,
    closed: Option<Arc<Occupancy>>,
}

impl Owners {
    /// Of whoever asks at `now`.
    pub(super) fn at(now: Time) -> Owners {
        Owners { now, closings: Vec::new() }
    }

    /// The schedule of a host with what its owner does not promise.
    pub(super) fn restrict<'s>(
        &mut self,
        mut schedule: Cow<'s, Schedule>,
        host: &Host,
        (offer, standing): (&Arc<Offered>, Option<&Standing>),
    ) -> Cow<'s, Schedule> {
        let conditions = &host.tariff.conditions;
        if let Some(above) = conditions.above_share(&host.capacity) {
            schedule.to_mut().add(Window { start: self.now, end: Time::MAX }, &above);
        }
        let mut windows: Vec<Window> = conditions.closed(self.now).collect();
        let mut longest = offer.longest.map(Longest::OfOwner);
        if let Some(standing) = standing {
            standing.restrict(host, schedule.to_mut(), self.now);
            let forever = Time(2 * Time::MAX.0);
            windows.extend(standing.reach.map(|reach| Window { start: self.now + reach, end: forever }));
            longest =
                [longest, standing.longest.map(Longest::OfUser)].into_iter().flatten().min_by_key(|one| one.span());
        }
        let closed = self.closed(offer, windows);
        if closed.is_some() || longest.is_some() {
            schedule.to_mut().close(closed, longest);
        }
        schedule
    }

    fn closed(&mut self, offer: &Arc<Offered>, windows: Vec<Window>) -> Option<Arc<Occupancy>> {
        let is_it = |known: &&Closing| Arc::ptr_eq(&known.offer, offer) && known.windows == windows;
        if let Some(known) = self.closings.iter().find(is_it) {
            return known.closed.clone();
        }
        let mut closed = Occupancy::default();
        for window in offer.closed(self.now).into_iter().chain(windows.iter().copied()) {
            closed.add(window, Amount(1));
        }
        let closed = (!closed.is_empty()).then(|| Arc::new(closed));
        self.closings.push(Closing { offer: offer.clone(), windows, closed: closed.clone() });
        closed
    }
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
    /// Hosts that were looked at and fit, but whose schedules are not known.
    pub without_schedule: usize,
    /// Hosts that fit and were not looked at: their schedules are not known, and were not asked for.
    pub left_out: usize,
    /// What each constraint cut.
    pub cut: CutCounts,
    /// The hosts of which the user gets nothing, by rules about users.
    pub denied: Vec<FoundHost>,
}

impl Found {
    /// Why there is no plan on its hosts, in view of those whose schedules are not known.
    #[must_use]
    pub fn reason(&self, reason: Reason) -> Reason {
        reason.beside_unknown(self.without_schedule as u64)
    }

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
        let mut owners = Owners::at(now);
        let hosts = self.hosts.iter();
        let one = |found| {
            let FoundHost { schedule, host, offer, standing, .. }: &FoundHost = found;
            owners.restrict(Cow::Borrowed(schedule), host, (offer, standing.as_deref()))
        };
        hosts.map(one).collect()
    }

    /// Leaves out the hosts of which the user gets nothing, by the owner's rules about users; the sites, with the rule.
    pub fn leave_out_denied(&mut self) -> BTreeMap<SiteId, Denial> {
        let denial = |found: &FoundHost| found.standing.as_ref().and_then(|standing| standing.denial.clone());
        let denied: Vec<FoundHost> = self.hosts.extract_if(.., |found| denial(found).is_some()).collect();
        self.cut.users += denied.len() as u64;
        let sites = denied.iter().filter_map(|found| Some((found.site.clone(), denial(found)?))).collect();
        self.denied.extend(denied);
        sites
    }
}
