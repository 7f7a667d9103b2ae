//! What was really so, whatever nodes believe: what the ledger of each site showed at each of its versions, and which attempts
//! all participants had confirmed at some time.
//!
//! Invariant: filled from ledgers and disks only, never from a view or an answer.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    ids::{HostId, RequestId, SeatNumber, SiteId},
    ledger::{QueueOrder, ScheduleUpdateParts},
    negotiation::RequestRecord,
    plan::Seat,
    protocol::{AttemptId, Grant, LedgerVersion, SiteSchedules},
    time::{Now, Span, Time, Window},
};

use super::{lapses::Lapses, names, node::Node};
use crate::engine::{Disk, SiteLedger};

/// What one site showed of its own jobs that wait, and of its bookings, when its ledger last changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Jobs that wait, with whether each is planned to end after its deadline.
    pub waits: BTreeMap<AttemptId, bool>,
    /// Bookings.
    pub booked: BTreeMap<AttemptId, Vec<Grant>>,
    /// Those of them that are only held.
    pub held: BTreeSet<AttemptId>,
}

impl Shown {
    /// The grants of all bookings that are not only held, with their requests.
    pub fn confirmed(&self) -> impl Iterator<Item = (&RequestId, &Grant)> {
        let confirmed = self.booked.iter().filter(|(attempt, _)| !self.held.contains(*attempt));
        confirmed.flat_map(|(attempt, grants)| grants.iter().map(|grant| (&attempt.request, grant)))
    }
}

/// Clocks differ by less; before this much after the true time nothing is compared, since each may have forgotten it.
pub const FORGOTTEN: Span = Span(60);

/// Schedules without what is before a time.
pub fn after(schedules: &SiteSchedules, time: Time) -> SiteSchedules {
    let mut schedules = schedules.clone();
    schedules.forget_before(time);
    schedules
}

/// Seats, each from when to when.
pub type SeatWindows = Vec<(SeatNumber, Window)>;

/// What was really so in a run.
#[derive(Debug, Default)]
pub struct Truth {
    by_version: BTreeMap<(usize, LedgerVersion), SiteSchedules>,
    complete: BTreeSet<AttemptId>,
    /// Seats of requests that the owners of their hosts have taken away, each with its site, and its host or class.
    lost: BTreeSet<(RequestId, SeatNumber, usize, HostId)>,
    /// Bookings that the owner of a site takes back, until that is on its disk.
    evicting: BTreeMap<(usize, AttemptId), Vec<Grant>>,
    /// Bookings of which the owner of a site was told that they are taken back.
    evicted: BTreeSet<(usize, AttemptId)>,
    /// What a site had promised when its owner began to empty it.
    standing: BTreeMap<usize, BTreeMap<AttemptId, Vec<Grant>>>,
    /// What a site had promised when it found that its disk lacks room.
    lacking: BTreeMap<usize, BTreeMap<AttemptId, Vec<Grant>>>,
    /// Requests of which a disk has lost something that it had told was written.
    lied_about: BTreeSet<RequestId>,
    /// Attempts that the ledger of a site had a booking of.
    seen: BTreeSet<(usize, AttemptId)>,
    /// Own jobs that owners have ordered, by the site and the name of the order.
    ordered: BTreeMap<(usize, u64), AttemptId>,
    /// Own jobs that were acknowledged and that nobody has taken out or ended, and that have not ended on their site's disk.
    own_jobs: BTreeSet<(usize, AttemptId)>,
    /// Own jobs that are gone from their site's disk.
    ended_jobs: BTreeSet<(usize, AttemptId)>,
    /// Own jobs that may be stopped while they run, as their owners have ordered them.
    may_stop: BTreeSet<AttemptId>,
    /// What each site showed of its own jobs when its ledger last changed.
    shown: BTreeMap<usize, Shown>,
    /// The hosts of seats that were bound, as the disk of their site had them.
    bound: BTreeMap<(usize, AttemptId, SeatNumber), HostId>,
    /// The seats of bookings with their windows, as the disk of their site had them first, and how much later they begin since.
    windows: BTreeMap<(usize, AttemptId), (SeatWindows, Span)>,
    /// What lapsed at each site.
    lapses: BTreeMap<usize, Lapses>,
}

impl Truth {
    /// Notes what the ledger of a site shows now.
    pub fn note(&mut self, node: usize, ledger: &SiteLedger, now: Now) {
        self.by_version.entry((node, ledger.version())).or_insert_with(|| ledger.snapshot(now).schedules);
    }

    /// Notes a version that the ledger of a site had in between: one event may publish several. What is wrong with it, in words: where it
    /// was seen to show something else from a time on.
    pub fn note_published(&mut self, node: usize, update: &ScheduleUpdateParts, from: Time) -> Result<(), String> {
        let to = LedgerVersion { change: update.from.change + update.changes.len() as u64, ..update.from };
        if update.changes.is_empty() && self.by_version.contains_key(&(node, to)) {
            return Ok(());
        }
        let known = self.by_version.get(&(node, update.from)).cloned();
        let mut schedules =
            known.ok_or_else(|| format!("publishes changes of {:?}, which it never had", update.from))?;
        if let Some(change) = update.changes.iter().find(|change| !schedules.apply(change, Time::ZERO)) {
            return Err(format!("publishes that what was not taken is given back: {change:?}"));
        }
        match self.by_version.get(&(node, to)) {
            Some(shown) if after(shown, from) != after(&schedules, from) => {
                Err(format!("publishes otherwise than it shows at {to:?}"))
            }
            Some(_) => Ok(()),
            None => {
                self.by_version.insert((node, to), schedules);
                Ok(())
            }
        }
    }

    /// What the ledger of a site showed at a version, if it ever had it.
    pub fn at(&self, site: usize, version: LedgerVersion) -> Option<&SiteSchedules> {
        self.by_version.get(&(site, version))
    }

    /// Notes that an attempt is on the disks of all its participants if it is: its last one has just written it.
    pub fn note_confirmed(&mut self, nodes: &[Node], attempt: &AttemptId, participants: &[SiteId]) {
        let mut sites = participants.iter().filter_map(names::index_of);
        if sites.all(|site| nodes[site].disk.reservations.contains_key(attempt)) {
            self.complete.insert(attempt.clone());
        }
    }

    /// Notes what a node that has taken a request over has decided to commit.
    pub fn note_takeover(&mut self, record: &RequestRecord) {
        if let Some(reservation) = record.reservation.as_ref().filter(|_| record.commits_takeover) {
            let names = reservation.parts.iter().filter_map(|part| record.taken_over.get(&part.attempt));
            self.complete.extend(names.cloned());
        }
    }

    /// Notes that the owner of a host at `site` has taken it away from a seat.
    pub fn note_lost(&mut self, request: &RequestId, site: usize, grant: &Grant) {
        self.lost.insert((request.clone(), grant.seat, site, grant.place.promised().clone()));
    }

    /// Notes that the owner of a site takes these seats of an attempt back.
    pub fn note_evicting(&mut self, site: usize, attempt: AttemptId, grants: Vec<Grant>) {
        self.evicting.insert((site, attempt), grants);
    }

    /// A booking goes from the disk of a site: if its owner has taken it back, its seats are lost.
    pub fn note_gone(&mut self, site: usize, attempt: &AttemptId) {
        for grant in self.evicting.remove(&(site, attempt.clone())).into_iter().flatten() {
            self.note_lost(&attempt.request, site, &grant);
        }
    }

    /// Notes what the owner of a site orders.
    pub fn note_order(&mut self, site: usize, name: u64, order: &QueueOrder) {
        match order {
            QueueOrder::Add(jobs) => {
                self.ordered.extend(jobs.first().map(|job| ((site, name), job.attempt.clone())));
                self.may_stop.extend(jobs.iter().filter(|job| job.preempt).map(|job| job.attempt.clone()));
            }
            QueueOrder::Remove(id) | QueueOrder::Done(id) => {
                self.own_jobs.retain(|(at, attempt)| *at != site || attempt.request != *id);
            }
            QueueOrder::Extend(..) => {}
        }
    }

    /// The own job that was added by the order of this name.
    pub fn take_order(&mut self, site: usize, name: u64) -> Option<AttemptId> {
        self.ordered.remove(&(site, name))
    }

    /// Notes that the owner of a site was told that it has this job.
    pub fn note_acknowledged_job(&mut self, site: usize, attempt: AttemptId) {
        if !self.has_ended(site, &attempt) {
            self.own_jobs.insert((site, attempt));
        }
    }

    /// Notes that an own job is gone from the disk of its site.
    pub fn note_job_ended(&mut self, site: usize, attempt: &AttemptId) {
        self.own_jobs.remove(&(site, attempt.clone()));
        self.ended_jobs.insert((site, attempt.clone()));
    }

    /// Whether an own job is gone from the disk of its site.
    pub fn has_ended(&self, site: usize, attempt: &AttemptId) -> bool {
        self.ended_jobs.contains(&(site, attempt.clone()))
    }

    /// The own jobs that a site must have.
    pub fn own_jobs_at(&self, site: usize) -> impl Iterator<Item = &AttemptId> {
        self.own_jobs.iter().filter(move |(at, _)| *at == site).map(|(_, attempt)| attempt)
    }

    /// Whether the owner allows an own job to be stopped while it runs.
    pub fn may_stop(&self, attempt: &AttemptId) -> bool {
        self.may_stop.contains(attempt)
    }

    /// What a site showed of its own jobs when its ledger last changed.
    pub fn shown_at(&self, site: usize) -> Option<&Shown> {
        self.shown.get(&site)
    }

    /// Forgets what a site showed: it starts with what is on its disk.
    pub fn forget_shown(&mut self, site: usize) {
        self.shown.remove(&site);
    }

    /// Notes what a site shows of its own jobs.
    pub fn note_shown(&mut self, site: usize, shown: Shown) {
        self.shown.insert(site, shown);
    }

    /// Whether the ledger of a site had a booking of this attempt before.
    pub fn has_seen(&self, site: usize, attempt: &AttemptId) -> bool {
        self.seen.contains(&(site, attempt.clone()))
    }

    /// Notes that it has one.
    pub fn note_seen(&mut self, site: usize, attempt: AttemptId) {
        self.seen.insert((site, attempt));
    }

    /// Notes that a seat is bound on the disk of its site; the host that it was bound to first.
    pub fn note_bound(&mut self, site: usize, attempt: &AttemptId, seat: SeatNumber, host: &HostId) -> (bool, HostId) {
        let key = (site, attempt.clone(), seat);
        let is_new = !self.bound.contains_key(&key);
        (is_new, self.bound.entry(key).or_insert_with(|| host.clone()).clone())
    }

    /// The host that a seat was bound to on the disk of its site, if it was.
    pub fn bound_to(&self, site: usize, attempt: &AttemptId, seat: SeatNumber) -> Option<&HostId> {
        self.bound.get(&(site, attempt.clone(), seat))
    }

    /// Notes the windows of a booking on the disk of its site; those that were noted first, and how much later they begin since.
    pub fn note_windows(&mut self, site: usize, attempt: &AttemptId, windows: SeatWindows) -> (SeatWindows, Span) {
        self.windows.entry((site, attempt.clone())).or_insert((windows, Span::default())).clone()
    }

    /// Notes how much later a booking begins than it did first.
    pub fn note_wait(&mut self, site: usize, attempt: &AttemptId, wait: Span) {
        if let Some((_, waited)) = self.windows.get_mut(&(site, attempt.clone())) {
            *waited = wait;
        }
    }

    /// What lapsed at a site; whoever takes it gives it back.
    pub fn take_lapses(&mut self, site: usize) -> Lapses {
        self.lapses.remove(&site).unwrap_or_default()
    }

    /// Keeps it.
    pub fn keep_lapses(&mut self, site: usize, lapses: Lapses) {
        self.lapses.insert(site, lapses);
    }

    /// Notes that the owner of a site begins to empty it, where this is promised; without it, that this is over.
    pub fn note_draining(&mut self, site: usize, standing: Option<BTreeMap<AttemptId, Vec<Grant>>>) {
        match standing {
            Some(standing) => self.standing.insert(site, standing),
            None => self.standing.remove(&site),
        };
    }

    /// What a site had promised when its owner began to empty it; none when it is not being emptied.
    pub fn standing_at(&self, site: usize) -> Option<&BTreeMap<AttemptId, Vec<Grant>>> {
        self.standing.get(&site)
    }

    /// Notes that a site has found that its disk lacks room, where this is promised; without it, that the disk has room again.
    pub fn note_lack(&mut self, site: usize, standing: Option<BTreeMap<AttemptId, Vec<Grant>>>) {
        match standing {
            Some(standing) => self.lacking.insert(site, standing),
            None => self.lacking.remove(&site),
        };
    }

    /// What a site had promised when it found that its disk lacks room; none when it has enough as far as it knows.
    pub fn standing_in_lack(&self, site: usize) -> Option<&BTreeMap<AttemptId, Vec<Grant>>> {
        self.lacking.get(&site)
    }

    /// Notes that the disk of a site is as it was before the last records about these attempts: what was known of it by them counts no
    /// longer.
    pub fn note_lie(&mut self, site: usize, disk: &Disk, attempts: &BTreeSet<AttemptId>) {
        self.lied_about.extend(attempts.iter().map(|attempt| attempt.request.clone()));
        let is_lost = |at: usize, attempt: &AttemptId| at == site && attempts.contains(attempt);
        self.bound.retain(|(at, attempt, _), _| !is_lost(*at, attempt));
        self.windows.retain(|(at, attempt), _| !is_lost(*at, attempt));
        self.own_jobs.retain(|(at, attempt)| !is_lost(*at, attempt) || disk.queue.contains_key(attempt));
        self.ended_jobs.retain(|(at, attempt)| !is_lost(*at, attempt) || !disk.queue.contains_key(attempt));
        self.evicted.retain(|(at, attempt)| !is_lost(*at, attempt) || !disk.reservations.contains_key(attempt));
        // What was given back before is promised again.
        let back = || attempts.iter().filter_map(|attempt| disk.reservations.get(attempt));
        for standing in [self.standing.get_mut(&site), self.lacking.get_mut(&site)].into_iter().flatten() {
            for record in back() {
                standing.entry(record.attempt.clone()).or_default().extend(record.grants.iter().cloned());
            }
        }
    }

    /// Whether a disk has lost something of a request that it had told was written.
    pub fn is_lied_about(&self, request: &RequestId) -> bool {
        self.lied_about.contains(request)
    }

    /// Notes that the owner of a site was told that these bookings are taken back.
    pub fn note_evicted(&mut self, site: usize, attempts: Vec<AttemptId>) {
        self.evicted.extend(attempts.into_iter().map(|attempt| (site, attempt)));
    }

    /// Bookings of which the owner of this site was told that they are taken back.
    pub fn evicted_at(&self, site: usize) -> impl Iterator<Item = &AttemptId> {
        self.evicted.iter().filter(move |(at, _)| *at == site).map(|(_, attempt)| attempt)
    }

    /// Whether the owner of a seat's host has taken it away from it.
    pub fn is_lost(&self, request: &RequestId, site: usize, seat: &Seat) -> bool {
        self.lost.contains(&(request.clone(), seat.number, site, seat.place.promised().clone()))
    }

    /// Whether all participants of an attempt had confirmed it at some time, or a node that had taken it over had decided to
    /// commit it.
    pub fn was_complete(&self, attempt: &AttemptId) -> bool {
        self.complete.contains(attempt)
    }
}
