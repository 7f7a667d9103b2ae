//! The schedules of a site as it tells them to others, and their changes.
//!
//! A host is told by its name, or counted in its class: hosts of a class whose seats are bound late are told by how many of them have what
//! in use, so that a thousand of them take no more room than one, and a seat that moves from one to another changes nothing. Invariant: a
//! host that has a schedule of its own is not counted in its class; a host that is neither named nor of a class is free.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::LedgerVersion;
use crate::{
    amount::Amount,
    classes::{Members, class_and_number, numbered},
    host::Host,
    ids::{HostId, SiteId},
    resources::Amounts,
    schedule::{ClassOccupancy, Schedule},
    time::{Time, Window},
};

/// One change of a site's schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScheduleChange {
    /// Of a host that is told by its name, or of the uplink.
    Host(HostChange),
    /// Of hosts that are counted in their class.
    Class(ClassChange),
}

/// More or less of a host is occupied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostChange {
    /// The host, or the uplink ([`HostId::uplink`]).
    pub host: HostId,
    /// From when to when.
    pub window: Window,
    /// The amounts.
    pub amounts: Amounts,
    /// Whether it was added or removed.
    pub kind: ChangeKind,
}

/// Something else is used of so many hosts of a class, whichever they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassChange {
    /// The class.
    pub class: HostId,
    /// From when to when.
    pub window: Window,
    /// How many hosts.
    pub hosts: u32,
    /// What was used of each of them, without what is zero. Where it is nothing, these hosts were not counted, or are no more with `after`.
    pub before: Amounts,
    /// What is used of each of them now, without what is zero.
    pub after: Amounts,
}

/// Whether occupancy was added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// More is occupied.
    Added,
    /// Less is occupied.
    Removed,
}

/// Consecutive changes of a site's schedules, gossiped as a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleUpdate {
    /// The site.
    pub site: SiteId,
    /// The version before the first change; each change counts one.
    pub from: LedgerVersion,
    /// The changes in order.
    pub changes: Vec<ScheduleChange>,
}

/// All schedules of a site at one version, fetched from it directly.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSnapshot {
    /// The site.
    pub site: SiteId,
    /// The version shown.
    pub version: LedgerVersion,
    /// The schedules, from the site's present on.
    pub schedules: SiteSchedules,
}

/// The hosts of a class that are told by count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassSchedules {
    /// The hosts of the class, those that are told by name included.
    pub members: Members,
    /// What is used of those that are not.
    pub used: ClassOccupancy,
}

/// The schedules of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteSchedules {
    /// That of the uplink is under [`HostId::uplink`]. Shared with the plans that rest on them.
    by_host: BTreeMap<HostId, Arc<Schedule>>,
    by_class: BTreeMap<HostId, ClassSchedules>,
    /// From when on the classes show more than is used.
    coarse_from: Option<Time>,
}

/// What the hosts of each class have that were not looked at yet; see [`SiteSchedules::next_of`].
#[derive(Debug, Clone, Default)]
pub struct ClassesLeft(BTreeMap<HostId, Left>);

#[derive(Debug, Clone, Default)]
struct Left {
    /// How many of these hosts are free at all times.
    free: usize,
    /// The schedules of the others, the freest last.
    used: Vec<Schedule>,
}

impl SiteSchedules {
    /// Of hosts that are told by name, and of classes.
    #[must_use]
    pub fn new(
        hosts: impl IntoIterator<Item = (HostId, Schedule)>,
        classes: impl IntoIterator<Item = (HostId, ClassSchedules)>,
    ) -> SiteSchedules {
        let used = hosts.into_iter().filter(|(_, schedule)| !schedule.is_empty());
        let by_host = used.map(|(host, schedule)| (host, Arc::new(schedule))).collect();
        SiteSchedules { by_host, by_class: classes.into_iter().collect(), coarse_from: None }
    }

    /// The hosts with a schedule of their own, and the uplink.
    pub fn hosts(&self) -> impl Iterator<Item = (&HostId, &Schedule)> {
        self.by_host.iter().map(|(host, schedule)| (host, &**schedule))
    }

    /// The schedule of a host that is told by its name, or of the uplink.
    #[must_use]
    pub fn host(&self, host: &HostId) -> Option<&Schedule> {
        self.by_host.get(host).map(|schedule| &**schedule)
    }

    /// The classes that are told by count.
    pub fn classes(&self) -> impl Iterator<Item = (&HostId, &ClassSchedules)> {
        self.by_class.iter()
    }

    /// Those of hosts and those of classes, to be changed without making any of them empty.
    pub(super) fn parts_mut(
        &mut self,
    ) -> (&mut BTreeMap<HostId, Arc<Schedule>>, &mut BTreeMap<HostId, ClassSchedules>) {
        (&mut self.by_host, &mut self.by_class)
    }

    /// Notes that more may be shown as used from this time on than is.
    pub fn mark_coarse(&mut self, from: Time) {
        self.by_host.values_mut().for_each(|schedule| Arc::make_mut(schedule).mark_coarse(from));
        self.coarse_from = Some(from);
    }

    /// How many steps all schedules have. A set of amounts of a class counts as [`USE_STEPS`] more, and as many for each amount, since it
    /// takes as much memory.
    #[must_use]
    pub fn len(&self) -> usize {
        let of_hosts =
            self.by_host.values().flat_map(|schedule| schedule.occupancies()).map(|(_, occupancy)| occupancy.len());
        let of_uses = |class: &ClassSchedules| class.used.uses().map(|(used, _)| steps_of_use(used)).sum::<usize>();
        let of_classes = self.by_class.values().map(|class| class.used.len() + of_uses(class));
        of_hosts.chain(of_classes).sum()
    }

    /// Whether nothing is known to be used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty() && self.by_class.values().all(|class| class.used.is_empty())
    }

    /// The schedule of a host. Of one that is counted in its class it is that of the freest host of it that was not looked at before, since
    /// any of them can be that one as long as its seats have not begun.
    #[must_use]
    pub fn next_of(&self, host: &Host, left: &mut ClassesLeft) -> Arc<Schedule> {
        if let Some(own) = self.by_host.get(&host.id) {
            return own.clone();
        }
        let Some(left) = self.left_of(host, left) else { return Arc::default() };
        if left.free > 0 {
            left.free -= 1;
            return Arc::default();
        }
        let mut schedule = left.used.pop().unwrap_or_default();
        if let Some(from) = self.coarse_from {
            schedule.mark_coarse(from);
        }
        Arc::new(schedule)
    }

    /// Leaves out a host that is known to be in use; of one that is counted in its class the schedule of which most is used.
    pub fn pass_over(&self, host: &Host, left: &mut ClassesLeft) {
        let Some(left) = self.left_of(host, left).filter(|_| !self.by_host.contains_key(&host.id)) else { return };
        if left.used.is_empty() {
            left.free = left.free.saturating_sub(1);
        } else {
            left.used.remove(0);
        }
    }

    /// What is left of the class of a host; none when nothing of one is in use.
    fn left_of<'l>(&self, host: &Host, left: &'l mut ClassesLeft) -> Option<&'l mut Left> {
        let (name, class) = self.class_of(&host.id).filter(|(_, class)| !class.used.is_empty())?;
        if !left.0.contains_key(name) {
            let hosts = self.counted_in(name, class);
            let used = class.used.spread(&host.capacity, hosts);
            left.0.insert(name.clone(), Left { free: hosts - used.len(), used });
        }
        left.0.get_mut(name)
    }

    /// How many hosts of the class are told by count.
    fn counted_in(&self, name: &HostId, class: &ClassSchedules) -> usize {
        let is_member = |host: &&HostId| {
            class_and_number(host).is_some_and(|(of, number)| of == name.as_str() && class.members.contains(number))
        };
        let named = self.by_host.keys().filter(is_member).count();
        (class.members.count as usize).saturating_sub(named)
    }

    fn class_of(&self, host: &HostId) -> Option<(&HostId, &ClassSchedules)> {
        let (class, number) = numbered(host)?;
        let (name, class) = self.by_class.get_key_value(&class)?;
        class.members.contains(number).then_some((name, class))
    }

    /// Takes in what a change says of the time from `from` on, before which all is forgotten; whether it can be. A site that takes away what
    /// it never had contradicts itself: what we believe of it is worth nothing.
    pub fn apply(&mut self, change: &ScheduleChange, from: Time) -> bool {
        let window = Window { start: change.window().start.max(from), ..change.window() };
        if window.start >= window.end {
            return true;
        }
        match change {
            ScheduleChange::Host(HostChange { host, amounts, kind, .. }) => {
                let schedule = Arc::make_mut(self.by_host.entry(host.clone()).or_default());
                let is_possible = match kind {
                    ChangeKind::Added => {
                        schedule.add(window, amounts);
                        true
                    }
                    ChangeKind::Removed => schedule.remove(window, amounts).is_ok(),
                };
                if schedule.is_empty() {
                    self.by_host.remove(host);
                }
                is_possible
            }
            ScheduleChange::Class(ClassChange { class, hosts, before, after, .. }) => {
                let hosts = Amount(u64::from(*hosts));
                let known = self.by_class.get_mut(class);
                known.is_some_and(|class| class.used.exchange(window, hosts, (before, after)).is_ok())
            }
        }
    }

    /// Drops what is before `time`.
    pub fn forget_before(&mut self, time: Time) {
        self.by_host.retain(|_, schedule| {
            // What has nothing to forget stays shared.
            if schedule.has_before(time) {
                Arc::make_mut(schedule).forget_before(time);
            }
            !schedule.is_empty()
        });
        self.by_class.values_mut().for_each(|class| class.used.forget_before(time));
    }
}

/// See [`SiteSchedules::len`].
pub const USE_STEPS: usize = 16;

fn steps_of_use(used: &Amounts) -> usize {
    USE_STEPS * (1 + used.len())
}

impl ScheduleChange {
    /// By how much a change makes [`SiteSchedules::len`] larger at most.
    #[must_use]
    pub fn len_max(&self) -> usize {
        match self {
            ScheduleChange::Host(change) => 2 * change.amounts.len(),
            ScheduleChange::Class(change) => 2 + 2 + steps_of_use(&change.after),
        }
    }

    /// From when to when.
    #[must_use]
    pub fn window(&self) -> Window {
        match self {
            ScheduleChange::Host(HostChange { window, .. }) | ScheduleChange::Class(ClassChange { window, .. }) => {
                *window
            }
        }
    }
}
