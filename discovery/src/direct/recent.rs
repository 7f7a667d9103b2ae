//! The latest changes of this site's schedules: who has an earlier version needs only these. Pure.
//!
//! Invariant: they are consecutive and end at the latest version published; at most [`CHANGES_KEPT`] are kept.

use std::collections::VecDeque;

use broker::protocol::{LedgerVersion, ScheduleChange, ScheduleUpdate};

use crate::wire::SinceThen;

/// Changes that are kept; at some 200 bytes each, 0.8 MiB.
const CHANGES_KEPT: usize = 4096;
/// Changes in one answer, which have room there with the longest names of the most resources.
const CHANGES_AT_ONCE: usize = 100;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RecentChanges {
    /// The version before the first; none while nothing was published.
    from: Option<LedgerVersion>,
    changes: VecDeque<ScheduleChange>,
}

impl RecentChanges {
    /// Takes in changes, in the order of their versions. What does not follow begins anew.
    pub(crate) fn push(&mut self, update: &ScheduleUpdate) {
        if self.from.map(|from| advance(from, self.changes.len())) != Some(update.from) {
            self.from = Some(update.from);
            self.changes.clear();
        }
        self.changes.extend(update.changes.iter().cloned());
        let too_many = self.changes.len().saturating_sub(CHANGES_KEPT);
        self.changes.drain(..too_many);
        self.from = self.from.map(|from| advance(from, too_many));
    }

    /// What has changed since a version; none when it is too old, or of another start of the node.
    pub(crate) fn since(&self, known: LedgerVersion) -> Option<SinceThen> {
        let from = self.from.filter(|from| from.incarnation == known.incarnation)?;
        let passed = usize::try_from(known.change.checked_sub(from.change)?).ok()?;
        let left = self.changes.len().checked_sub(passed)?;
        let changes = self.changes.iter().skip(passed).take(CHANGES_AT_ONCE).cloned().collect();
        Some(SinceThen { from: known, changes, is_complete: left <= CHANGES_AT_ONCE })
    }
}

impl SinceThen {
    /// Whether there is something, and it is all, or not all, up to this version.
    pub(crate) fn leads_to(&self, version: LedgerVersion) -> bool {
        !self.changes.is_empty() && (!self.is_complete || advance(self.from, self.changes.len()) == version)
    }
}

fn advance(version: LedgerVersion, count: usize) -> LedgerVersion {
    LedgerVersion { change: version.change.saturating_add(count as u64), ..version }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{HostId, SiteId},
        protocol::{ChangeKind, HostChange},
        resources::Amounts,
        time::{Time, Window},
    };

    use super::*;

    fn version(change: u64) -> LedgerVersion {
        LedgerVersion { incarnation: 5, change }
    }

    fn update(from: u64, count: u64) -> ScheduleUpdate {
        let change = |number| {
            let window = Window { start: Time(number), end: Time(number + 1) };
            let host = HostId::new("h").unwrap();
            ScheduleChange::Host(HostChange { host, window, amounts: Amounts::new(), kind: ChangeKind::Added })
        };
        let changes = (from..from + count).map(|number| change(number.cast_signed())).collect();
        ScheduleUpdate { site: SiteId::new("s").unwrap(), from: version(from), changes }
    }

    #[test]
    fn what_has_changed_is_told_as_far_back_as_it_is_kept() {
        let mut recent = RecentChanges::default();
        assert_eq!(recent.since(version(0)), None);
        recent.push(&update(10, 5));
        recent.push(&update(15, 3));
        let since = |recent: &RecentChanges, known| recent.since(version(known)).map(|told| told.changes);
        assert_eq!(since(&recent, 9), None);
        assert_eq!(since(&recent, 12), Some(update(12, 6).changes));
        assert_eq!((since(&recent, 18), since(&recent, 19)), (Some(Vec::new()), None));
        assert_eq!(recent.since(LedgerVersion { incarnation: 4, change: 12 }), None, "of an earlier start");
        assert!(recent.since(version(12)).unwrap().leads_to(version(18)));
        assert!(!recent.since(version(12)).unwrap().leads_to(version(19)), "one is not published yet");
        recent.push(&update(30, 1));
        assert_eq!((since(&recent, 18), since(&recent, 30)), (None, Some(update(30, 1).changes)), "all was told anew");
        recent.push(&update(31, 2 * CHANGES_KEPT as u64));
        assert_eq!(recent.changes.len(), CHANGES_KEPT);
        let some = recent.since(version(31 + CHANGES_KEPT as u64)).unwrap();
        assert_eq!((some.changes.len(), some.is_complete), (CHANGES_AT_ONCE, false));
        assert_eq!(some.changes, update(31 + CHANGES_KEPT as u64, CHANGES_AT_ONCE as u64).changes);
    }
}
