//! The view of one other site: its advert and its schedules, each with version and age.
//!
//! A view is a hint. It is fed by gossip, DHT records and direct answers in any order, repeated or lost; only the
//! site's ledger grants anything. Invariant: versions only grow; a schedule is either exactly what the site had at
//! `version`, the latest known to exist, or marked as having a gap.

use crate::{
    ids::HostId,
    protocol::{Advert, LedgerVersion, ScheduleSnapshot, ScheduleUpdate, SiteSchedules},
    schedule::Schedule,
    time::{Millis, Time},
    uplinks::Uplink,
};

/// The schedules of a site as far as known.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedules {
    /// None was received yet.
    Unknown,
    /// Known at a version.
    Known(KnownSchedules),
}

/// Schedules at a version.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownSchedules {
    /// The site's version that `schedules` shows.
    pub version: LedgerVersion,
    /// When the version was last confirmed to be the present one, on our monotonic clock.
    pub learnt: Millis,
    /// A later version is known to exist: changes in between were missed.
    pub has_gap: bool,
    /// The schedules.
    pub schedules: SiteSchedules,
    /// What was before this time is forgotten.
    forgotten: Time,
}

/// One site in the view.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteView {
    advert: Advert,
    /// When the advert stops being believed, on our monotonic clock.
    expires: Millis,
    schedules: Schedules,
    /// The latest version of the site's ledger that any message has named.
    newest: LedgerVersion,
}

/// The effect of a received message on the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It was new and is now believed.
    Applied,
    /// It is known already, or older than what is known.
    Old,
    /// Something between what is known and this was missed: ask the site.
    Gap,
}

impl SiteView {
    /// Starts a view with the first advert of a site. `remaining` is what is left of its time to live.
    #[must_use]
    pub fn new(advert: Advert, now: Millis, remaining: Millis) -> SiteView {
        SiteView { advert, expires: now + remaining, schedules: Schedules::Unknown, newest: LedgerVersion::default() }
    }

    /// The advert believed.
    #[must_use]
    pub fn advert(&self) -> &Advert {
        &self.advert
    }

    /// The site's uplink with what is known to be used of it; none when it has no limit.
    #[must_use]
    pub fn uplink(&self) -> Option<Uplink> {
        let known = match &self.schedules {
            Schedules::Known(known) => known.schedules.host(&HostId::uplink()),
            Schedules::Unknown => None,
        };
        self.advert.uplink.map(|mbps| Uplink::with_schedule(mbps, known.unwrap_or(&Schedule::default())))
    }

    /// The schedules as far as known.
    #[must_use]
    pub fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// When the advert stops being believed.
    #[must_use]
    pub fn expires(&self) -> Millis {
        self.expires
    }

    /// The schedules, unless they are unknown, have a gap, or were learnt longer than `max_age` ago.
    #[must_use]
    pub fn fresh_schedules(&self, now: Millis, max_age: Millis) -> Option<&KnownSchedules> {
        match &self.schedules {
            Schedules::Known(known) if !known.has_gap && now - known.learnt <= max_age => Some(known),
            _ => None,
        }
    }

    /// The schedules as they were at some moment since `since`, although later changes may be known to exist.
    #[must_use]
    pub fn schedules_since(&self, since: Millis) -> Option<&KnownSchedules> {
        match &self.schedules {
            Schedules::Known(known) if known.learnt >= since => Some(known),
            _ => None,
        }
    }

    /// Receives an advert of the same site.
    pub fn receive_advert(&mut self, advert: Advert, now: Millis, remaining: Millis) -> Received {
        if advert.sequence <= self.advert.sequence {
            return Received::Old;
        }
        self.advert = advert;
        self.expires = now + remaining;
        Received::Applied
    }

    /// Receives all schedules of the site at one version. When a later version is known to exist, they are believed, but the gap
    /// stays.
    pub fn receive_snapshot(&mut self, snapshot: ScheduleSnapshot, now: Millis) -> Received {
        if let Schedules::Known(known) = &self.schedules
            && snapshot.version < known.version
        {
            return Received::Old;
        }
        self.newest = self.newest.max(snapshot.version);
        let has_gap = snapshot.version < self.newest;
        self.schedules = Schedules::Known(KnownSchedules {
            version: snapshot.version,
            learnt: now,
            has_gap,
            schedules: snapshot.schedules,
            forgotten: Time::ZERO,
        });
        if has_gap { Received::Gap } else { Received::Applied }
    }

    /// Receives consecutive changes. Those that are known already are skipped, so overlapping updates do no harm.
    pub fn receive_update(&mut self, update: &ScheduleUpdate, now: Millis) -> Received {
        let end = end_of(update);
        self.newest = self.newest.max(end);
        let Schedules::Known(known) = &mut self.schedules else {
            return Received::Gap;
        };
        if end < known.version || (end == known.version && !update.changes.is_empty()) {
            return Received::Old;
        }
        if update.from.incarnation != known.version.incarnation || update.from.change > known.version.change {
            known.has_gap = true;
            return Received::Gap;
        }
        let skip = usize::try_from(known.version.change - update.from.change).unwrap_or(usize::MAX);
        for change in update.changes.iter().skip(skip) {
            if !known.schedules.apply(change, known.forgotten) {
                known.has_gap = true;
                return Received::Gap;
            }
            known.version.change += 1;
        }
        known.learnt = now;
        known.has_gap = known.version < self.newest;
        if known.has_gap { Received::Gap } else { Received::Applied }
    }

    /// Receives, in a direct answer of the site, its present version.
    pub fn receive_version(&mut self, version: LedgerVersion, now: Millis) -> Received {
        self.newest = self.newest.max(version);
        match &mut self.schedules {
            Schedules::Unknown => Received::Gap,
            Schedules::Known(known) if version > known.version => {
                known.has_gap = true;
                Received::Gap
            }
            Schedules::Known(known) if version == known.version => {
                known.learnt = now;
                Received::Applied
            }
            Schedules::Known(_) => Received::Old,
        }
    }

    /// Forgets what is known of the schedules, so that they must be asked for again.
    pub fn forget_schedules(&mut self) {
        self.schedules = Schedules::Unknown;
    }

    /// Forgets the past of all schedules.
    pub fn forget_before(&mut self, now: Time) {
        if let Schedules::Known(known) = &mut self.schedules {
            known.schedules.forget_before(now);
            known.forgotten = known.forgotten.max(now);
        }
    }
}

/// The version after the last change of an update.
fn end_of(update: &ScheduleUpdate) -> LedgerVersion {
    LedgerVersion { change: update.from.change.saturating_add(update.changes.len() as u64), ..update.from }
}

#[cfg(test)]
pub(crate) mod tests;
