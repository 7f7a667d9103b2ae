//! The outbox: this site's own changes, kept until the swarm task sends them. Pure.
//!
//! Invariant: however fast the ledger changes, at most `changes_max` changes wait; what waits is always consecutive and
//! ends at the latest version published. Changes that had to be dropped leave an update that begins after them: receivers see
//! the gap and ask, so nothing is wrong, only slower.

use std::{collections::BTreeSet, sync::Arc};

use broker::{
    amount::Amount,
    classes::Hosts,
    features::Images,
    needs::Need,
    offered::Offered,
    protocol::{LedgerVersion, ScheduleChange, ScheduleUpdate},
    time::Millis,
};

use super::pace::Pace;

/// The offer in a site's advert.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// The site's name, for display.
    pub name: String,
    /// How users reach the hosts.
    pub contact: Option<String>,
    /// The hosts.
    pub hosts: Hosts,
    /// When, how long and how far ahead they are to be had.
    pub offered: Arc<Offered>,
    /// What the site's link to all others carries, in Mbit/s; none when it sets no limit.
    pub uplink: Option<Amount>,
    /// What the owner allows of users' commands.
    pub allows: BTreeSet<Need>,
    /// The images that these run in; none where they run without.
    pub images: Images,
}

/// Consecutive changes that wait to be sent.
#[derive(Debug)]
pub struct PendingChanges {
    changes_max: usize,
    waiting: Option<(LedgerVersion, Vec<ScheduleChange>)>,
}

impl PendingChanges {
    /// An empty outbox, which keeps at most `changes_max` changes.
    #[must_use]
    pub fn new(changes_max: usize) -> PendingChanges {
        PendingChanges { changes_max, waiting: None }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_none()
    }

    /// Adds an update; returns how many changes were dropped for it.
    pub fn push(&mut self, update: ScheduleUpdate) -> usize {
        let mut dropped = 0;
        let (from, mut changes) = self.waiting.take().unwrap_or((update.from, Vec::new()));
        let end = advance(from, changes.len());
        let update_end = advance(update.from, update.changes.len());
        if update_end < end {
            self.waiting = Some((from, changes));
            return 0;
        }
        if update.from.incarnation == end.incarnation && update.from <= end {
            let known = usize::try_from(end.change - update.from.change).unwrap_or(usize::MAX);
            changes.extend(update.changes.into_iter().skip(known));
            self.waiting = Some((from, changes));
        } else {
            dropped += changes.len();
            self.waiting = Some((update.from, update.changes));
        }
        if let Some((from, changes)) = &mut self.waiting
            && changes.len() > self.changes_max
        {
            dropped += changes.len();
            *from = advance(*from, changes.len());
            changes.clear();
        }
        dropped
    }

    /// Takes the waiting changes and the version before them. Without changes it is the present version alone.
    pub fn take(&mut self) -> Option<(LedgerVersion, Vec<ScheduleChange>)> {
        self.waiting.take()
    }
}

/// The version `count` changes after `version`.
#[must_use]
pub fn advance(version: LedgerVersion, count: usize) -> LedgerVersion {
    LedgerVersion { change: version.change.saturating_add(count as u64), ..version }
}

/// When the next changes may be sent: see [`Pace`]; less often, and only gathered, while this node receives more gossip than its
/// budget.
#[derive(Debug)]
pub struct Pacer {
    interval: Millis,
    pace: Pace,
    budget_per_s: u64,
    last_sent: Option<Millis>,
    second: u64,
    received_this_second: u64,
    received_last_second: u64,
}

/// However busy gossip is, changes wait at most this many intervals.
const STRETCH_MAX: u64 = 8;

impl Pacer {
    /// One batch an interval on average; fewer when more than `budget_per_s` messages a second are received.
    #[must_use]
    pub fn new(interval: Millis, budget_per_s: u32) -> Pacer {
        let budget_per_s = u64::from(budget_per_s.max(1));
        Pacer {
            interval,
            pace: Pace::new(interval),
            budget_per_s,
            last_sent: None,
            second: 0,
            received_this_second: 0,
            received_last_second: 0,
        }
    }

    /// Notes a received gossip message.
    pub fn received(&mut self, now: Millis) {
        let second = now.0 / 1000;
        if second != self.second {
            self.received_last_second = if second == self.second + 1 { self.received_this_second } else { 0 };
            self.received_this_second = 0;
            self.second = second;
        }
        self.received_this_second += 1;
    }

    /// When the next batch may be sent.
    #[must_use]
    pub fn due(&self) -> Millis {
        let busiest = self.received_last_second.max(self.received_this_second);
        self.due_when(busiest)
    }

    /// When the next batch may be sent, if `received_per_s` messages a second are received.
    #[must_use]
    pub fn due_when(&self, received_per_s: u64) -> Millis {
        let stretch = (received_per_s / self.budget_per_s).clamp(1, STRETCH_MAX);
        match self.last_sent {
            Some(last) if stretch > 1 => last + Millis(self.interval.0.saturating_mul(stretch)),
            _ => self.pace.due(),
        }
    }

    /// Notes that a batch was sent.
    pub fn sent(&mut self, now: Millis) {
        self.last_sent = Some(now);
        self.pace.sent(now);
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{HostId, SiteId},
        protocol::{ChangeKind, HostChange},
        resources::Amounts,
        time::{Time, Window},
    };
    use proptest::prelude::*;

    use super::{super::pace::BURST, *};

    /// A change that can be told from its neighbours by its start.
    fn change(number: u64) -> ScheduleChange {
        let start = Time(i64::try_from(number).unwrap());
        ScheduleChange::Host(HostChange {
            host: HostId::new("h").unwrap(),
            window: Window { start, end: Time(start.0 + 1) },
            amounts: Amounts::new(),
            kind: ChangeKind::Added,
        })
    }

    fn update(from: u64, to: u64) -> ScheduleUpdate {
        ScheduleUpdate {
            site: SiteId::new("s").unwrap(),
            from: LedgerVersion { incarnation: 1, change: from },
            changes: (from..to).map(change).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_waits_is_consecutive_bounded_and_ends_at_the_latest_version(
            updates in proptest::collection::vec((0_u64..40, 0_u64..8), 1..30)
        ) {
            let mut pending = PendingChanges::new(10);
            let mut latest = 0;
            for (from, count) in updates {
                latest = latest.max(from + count);
                pending.push(update(from, from + count));
                let (start, changes) = pending.waiting.clone().unwrap();
                prop_assert!(changes.len() <= 10);
                prop_assert_eq!(start.change + changes.len() as u64, latest);
                for (offset, waiting) in changes.iter().enumerate() {
                    prop_assert_eq!(waiting, &change(start.change + offset as u64));
                }
            }
            prop_assert!(pending.take().is_some() && pending.is_empty());
        }
    }

    #[test]
    fn dropped_changes_are_told_by_their_absence() {
        let mut pending = PendingChanges::new(3);
        assert_eq!(pending.push(update(0, 3)), 0);
        assert_eq!(pending.push(update(3, 4)), 4);
        assert_eq!(pending.take(), Some((LedgerVersion { incarnation: 1, change: 4 }, Vec::new())));
        pending.push(update(4, 5));
        assert_eq!(pending.push(update(7, 8)), 1);
        assert_eq!(pending.take().map(|(from, changes)| (from.change, changes.len())), Some((7, 1)));
    }

    #[test]
    fn a_busy_grid_stretches_the_interval_and_a_quiet_one_restores_it() {
        let mut pacer = Pacer::new(Millis(1000), 10);
        assert_eq!(pacer.due(), Millis(0));
        (0..BURST).for_each(|_| pacer.sent(Millis(5000)));
        assert_eq!(pacer.due(), Millis(6000));
        (0..30).for_each(|_| pacer.received(Millis(5100)));
        assert_eq!(pacer.due(), Millis(8000));
        (0..10_000).for_each(|_| pacer.received(Millis(6100)));
        assert_eq!(pacer.due(), Millis(13_000));
        pacer.received(Millis(9000));
        assert_eq!(pacer.due(), Millis(6000));
    }
}
