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
    protocol::{LedgerVersion, Standing},
    reason::CutCounts,
    schedule::{Occupancy, Schedule},
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
    /// Its schedule.
    pub schedule: Schedule,
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
        let mut longest = offer.longest;
        if let Some(standing) = standing {
            standing.restrict(host, schedule.to_mut(), self.now);
            let forever = Time(2 * Time::MAX.0);
            windows.extend(standing.reach.map(|reach| Window { start: self.now + reach, end: forever }));
            longest = [longest, standing.longest].into_iter().flatten().min();
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

impl Found {
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
        let mut denied = BTreeMap::new();
        let mut hosts = 0;
        self.hosts.retain(|found| match found.standing.as_ref().and_then(|standing| standing.denial.clone()) {
            Some(denial) => {
                denied.insert(found.site.clone(), denial);
                hosts += 1;
                false
            }
            None => true,
        });
        self.cut.users += hosts;
        denied
    }
}
