//! A feed: another program of the site reports the owner's own work, all that runs and is planned, again and again.
//!
//! Its last report is in the ledger beside the work that was entered by hand. Where other bookings had the capacity before, the
//! work is cut into pieces around them: no booking is taken away, and the capacity that is left is kept for the work.
//!
//! Invariants: after a report, the ledger has the reported work of each host at each time, less what other bookings leave no room
//! for, and everything else is unchanged. The same report again changes nothing. Every piece has gone through the one admission
//! function. A report is applied in one step, so no other request comes between two pieces. Where there is more work than entries,
//! what is planned last is left out, and what runs is entered as one piece for each host: it is never left out.

use std::collections::{BTreeMap, BTreeSet};

use super::{Books, Ledger, LocalWork, Output, QueuedJob, ReplyToken, local::ENTRIES_MAX};
use crate::{
    amount::Amount,
    ids::{HostId, RequestId},
    protocol::AttemptId,
    resources::{Amounts, amount_of},
    schedule::Schedule,
    time::{Now, Time, Window},
};

/// Longest name of a piece of work in bytes: the entry's name has a number of its own behind it.
pub const FEED_NAME_BYTES_MAX: usize = 64;

/// The result of one report of a feed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeedReport {
    /// Pieces in the ledger now.
    pub pieces: usize,
    /// Pieces of these that are new.
    pub entered: usize,
    /// Pieces that were removed.
    pub taken_out: usize,
    /// Work on hosts that this site does not offer, or that has ended.
    pub elsewhere: usize,
    /// Work that lacks capacity which other bookings had before.
    pub short: usize,
    /// Work that was not entered whole, because there are too many entries of own work or it ends too far ahead.
    pub left_out: usize,
    /// Jobs that wait in the own queue now.
    pub queued: usize,
}

/// A piece of work on one host; equal ones are the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    host: HostId,
    name: String,
    start: Time,
    end: Time,
    amounts: Amounts,
}

impl Piece {
    fn window(&self) -> Window {
        Window { start: self.start, end: self.end }
    }
}

/// The feed's pieces in the ledger, by host.
type FedPieces = BTreeMap<HostId, Vec<(Piece, AttemptId)>>;

/// One host while pieces are cut for it.
struct Bench<'a, B> {
    host: &'a B,
    /// All other bookings.
    others: Schedule,
    /// The pieces cut so far.
    fed: Schedule,
}

impl<B: Books> Bench<'_, B> {
    /// The times in `window`, with its start and end, at which the free amounts of these resources may change.
    fn steps(&self, window: Window, amounts: &Amounts) -> Vec<Time> {
        let mut times = BTreeSet::from([window.start, window.end]);
        for occupancy in [&self.others, &self.fed].into_iter().flat_map(|schedule| {
            let named = move |name| schedule.occupancy(name);
            amounts.keys().filter_map(named)
        }) {
            times.extend(occupancy.segments(window).map(|(time, _)| time));
        }
        times.into_iter().collect()
    }

    /// How much of `asked` is free at `time`, and whether more were free without the other bookings.
    fn free_at(&self, time: Time, asked: &Amounts) -> (Amounts, bool) {
        let used = |schedule: &Schedule, name| {
            schedule.occupancy(name).map_or(Amount::ZERO, |occupancy| occupancy.used_at(time))
        };
        let (mut free, mut is_short) = (Amounts::new(), false);
        for (name, asked) in asked {
            let beside_feed = amount_of(&self.host.host().capacity, name).saturating_sub(used(&self.fed, name));
            let granted = (*asked).min(beside_feed.saturating_sub(used(&self.others, name)));
            is_short |= granted < (*asked).min(beside_feed);
            if granted > Amount::ZERO {
                free.insert(name.clone(), granted);
            }
        }
        (free, is_short)
    }

    /// Cuts work into pieces that fit into the free amounts, at most `room` of them.
    fn cut(&mut self, work: &LocalWork, window: Window, room: usize) -> Cut {
        let mut cut = Cut::default();
        let steps = self.steps(window, &work.amounts);
        for (start, end) in steps.iter().copied().zip(steps.iter().copied().skip(1)) {
            let (amounts, is_short) = self.free_at(start, &work.amounts);
            cut.is_short |= is_short;
            let is_full = cut.pieces.len() == room;
            match cut.pieces.last_mut() {
                _ if amounts.is_empty() => {}
                Some(last) if last.end == start && last.amounts == amounts => last.end = end,
                _ if is_full => cut.is_full = true,
                _ => {
                    let (host, name) = (work.host.clone(), work.id.as_str().to_owned());
                    cut.pieces.push(Piece { host, name, start, end, amounts });
                }
            }
        }
        for piece in &cut.pieces {
            self.fed.add(piece.window(), &piece.amounts);
        }
        cut
    }
}

/// One piece of work, cut.
#[derive(Default)]
struct Cut {
    pieces: Vec<Piece>,
    is_short: bool,
    is_full: bool,
}

impl<B: Books> Ledger<B> {
    /// Applies a report: enters what is new in it and removes what is missing from it.
    pub(super) fn on_feed(
        &mut self,
        now: Now,
        token: ReplyToken,
        (mut works, queue): (Vec<LocalWork>, Vec<QueuedJob>),
    ) {
        let present = now.utc.max(self.forgotten);
        let room = ENTRIES_MAX.saturating_sub(self.local_work().filter(|booking| booking.fed_as.is_none()).count());
        let is_running = |work: &&LocalWork| work.window.start <= present && present < work.window.end;
        // Bookings of others may cut each in two.
        if works.iter().filter(is_running).count() > room / 2 {
            works = with_one_running_a_host(works, present);
        }
        // The earliest first, should there not be room for all.
        works.sort_by(|a, b| (a.window.start, &a.id, &a.host).cmp(&(b.window.start, &b.id, &b.host)));
        let present_pieces = self.fed_pieces(present);
        let mut report = FeedReport::default();
        let mut wanted = self.cut_all(present, (&works, room), &present_pieces, &mut report);
        let mut gone = Vec::new();
        for (piece, attempt) in present_pieces.into_values().flatten() {
            match wanted.get_mut(&piece) {
                Some(count) if *count > 0 => *count -= 1,
                _ => gone.push(attempt),
            }
        }
        report.taken_out = gone.len();
        for attempt in gone {
            // Its name is never used again, so no late message can mean it.
            self.put_back(now, &attempt);
        }
        for (piece, count) in wanted {
            for _ in 0..count {
                if self.enter_piece(&piece) {
                    report.entered += 1;
                } else {
                    report.left_out += 1;
                    report.pieces -= 1;
                }
            }
        }
        let without_place = self.feed_queue(now, queue);
        report.queued = self.fed_jobs();
        report.left_out += without_place;
        self.outputs.push_back(Output::FeedApplied { token, report });
    }

    /// The feed's pieces in the ledger from `present` on.
    fn fed_pieces(&self, present: Time) -> FedPieces {
        let fed = self.bookings.values().filter(|booking| booking.window.end > present);
        let piece = |booking: &super::Booking| {
            let name = booking.fed_as.as_deref()?.to_owned();
            let grant = booking.grants.first()?;
            let piece = Piece {
                host: grant.host().clone(),
                name,
                start: grant.window.start.max(present),
                end: grant.window.end,
                amounts: grant.amounts.clone(),
            };
            Some((piece, booking.attempt.clone()))
        };
        let mut present_pieces = FedPieces::new();
        for (piece, attempt) in fed.filter_map(piece) {
            present_pieces.entry(piece.host.clone()).or_default().push((piece, attempt));
        }
        present_pieces
    }

    /// The pieces that the ledger is to have, with the number of times for each.
    fn cut_all(
        &self,
        present: Time,
        (works, room): (&[LocalWork], usize),
        present_pieces: &FedPieces,
        report: &mut FeedReport,
    ) -> BTreeMap<Piece, usize> {
        let latest = present + self.limits.farthest_future;
        let mut benches = BTreeMap::new();
        let mut wanted: BTreeMap<Piece, usize> = BTreeMap::new();
        for work in works {
            let window = Window { start: work.window.start.max(present), end: work.window.end.min(latest) };
            let Some(host) = self.hosts.get(&work.host).filter(|_| window.start < work.window.end) else {
                report.elsewhere += 1;
                continue;
            };
            report.left_out += usize::from(work.window.end > latest);
            if window.start >= latest {
                continue;
            }
            let room = room.saturating_sub(report.pieces);
            if room == 0 {
                report.left_out += usize::from(work.window.end <= latest);
                continue;
            }
            let bench = benches.entry(work.host.clone()).or_insert_with(|| bench(host, present_pieces));
            let cut = bench.cut(work, window, room);
            report.short += usize::from(cut.is_short);
            report.left_out += usize::from(cut.is_full && work.window.end <= latest);
            report.pieces += cut.pieces.len();
            for piece in cut.pieces {
                *wanted.entry(piece).or_default() += 1;
            }
        }
        wanted
    }

    fn enter_piece(&mut self, piece: &Piece) -> bool {
        // The version is a new one with every entry, and in every life of the ledger.
        let number = format!("{}.{}", self.version.incarnation, self.version.change);
        let Ok(id) = RequestId::new(&format!("{}-{number}", piece.name)) else { return false };
        let work = LocalWork { id, host: piece.host.clone(), window: piece.window(), amounts: piece.amounts.clone() };
        self.enter_own(self.own_attempt(&work.id), work, Some(piece.name.as_str().into())).is_ok()
    }
}

/// The same work with one piece for all that runs on a host, until the last of it ends: more than there is at a time, never less.
fn with_one_running_a_host(works: Vec<LocalWork>, present: Time) -> Vec<LocalWork> {
    let Ok(id) = RequestId::new("running") else { return works };
    let (running, mut kept): (Vec<_>, Vec<_>) = works.into_iter().partition(|work| work.window.start <= present);
    let mut by_host: BTreeMap<HostId, LocalWork> = BTreeMap::new();
    for work in running.into_iter().filter(|work| present < work.window.end) {
        let window = Window { start: present, end: present };
        let (id, host) = (id.clone(), work.host.clone());
        let sum = by_host.entry(work.host).or_insert_with(|| LocalWork { id, host, window, amounts: Amounts::new() });
        sum.window.end = sum.window.end.max(work.window.end);
        for (name, amount) in work.amounts {
            let before = sum.amounts.entry(name).or_insert(Amount::ZERO);
            *before = Amount(before.0.saturating_add(amount.0)).min(Amount::MAX);
        }
    }
    kept.extend(by_host.into_values());
    kept
}

/// A host without the feed's pieces.
fn bench<'a, B: Books>(host: &'a B, present_pieces: &FedPieces) -> Bench<'a, B> {
    let mut others = host.promised().clone();
    for (piece, _) in present_pieces.get(&host.host().id).into_iter().flatten() {
        let taken = others.remove(piece.window(), &piece.amounts);
        debug_assert!(taken.is_ok(), "a piece takes back what it has put in");
    }
    Bench { host, others, fed: Schedule::default() }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
