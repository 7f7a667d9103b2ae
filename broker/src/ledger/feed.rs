//! The owner's own work as another program of the site tells it again and again: all that is running and planned there.
//!
//! What it has told last stands in the ledger beside the work that was entered by hand. Where the grid was promised something
//! before, the work is entered around it, cut into pieces if need be: nothing promised is taken away, and what is still free
//! beside it is not given away.
//!
//! Invariants: after a word of the feed, what stands of it on a host at any time is what it has told for that time, as far as
//! others were not promised it; all else is as it was. The same word again changes nothing. Every piece has gone through the
//! one admission function; the change from one word to the next is one step, so nobody gets in between.

use std::collections::{BTreeMap, BTreeSet};

use super::{Books, Ledger, LocalWork, Output, ReplyToken, local::ENTRIES_MAX};
use crate::{
    amount::Amount,
    ids::{HostId, RequestId},
    protocol::AttemptId,
    resources::{Amounts, amount_of},
    schedule::Schedule,
    time::{Now, Time, Window},
};

/// What an entry's name begins with.
const PREFIX: &str = "feed-";
/// Longest name of a piece of work in bytes: the entry's name has a number of its own behind it.
pub const FEED_NAME_BYTES_MAX: usize = 64;

/// What came of a word of the feed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeedReport {
    /// Pieces that stand now.
    pub pieces: usize,
    /// Pieces of these that did not stand before.
    pub entered: usize,
    /// Pieces that stood before and do not now.
    pub taken_out: usize,
    /// Work on hosts that this site does not offer, or that is over.
    pub elsewhere: usize,
    /// Work of which a part was promised to others before.
    pub short: usize,
    /// Work of which not all could be entered, because there are too many entries of own work or it ends too far ahead.
    pub left_out: usize,
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

/// What stands of the feed, by host.
type Standing = BTreeMap<HostId, Vec<(Piece, AttemptId)>>;

/// One host while pieces are cut for it.
struct Bench<'a, B> {
    host: &'a B,
    /// What others were promised.
    others: Schedule,
    /// What pieces take.
    fed: Schedule,
}

impl<B: Books> Bench<'_, B> {
    /// The times in `window` at which it may change what is free of the resources of `amounts`, its start and end included.
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

    /// What of `asked` is free at `time`, and whether it were more without what others were promised.
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

    /// Cuts work into pieces of what is free, at most `room` of them.
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

/// What became of one piece of work.
#[derive(Default)]
struct Cut {
    pieces: Vec<Piece>,
    is_short: bool,
    is_full: bool,
}

impl<B: Books> Ledger<B> {
    /// Whether an attempt is own work that the feed has told.
    fn is_fed(&self, attempt: &AttemptId) -> bool {
        self.is_local(attempt) && attempt.request.as_str().starts_with(PREFIX)
    }

    /// Makes what stands of the feed what it tells now.
    pub(super) fn on_feed(&mut self, now: Now, token: ReplyToken, mut works: Vec<LocalWork>) {
        // The first first, should there not be room for all.
        works.sort_by(|a, b| (a.window.start, &a.id, &a.host).cmp(&(b.window.start, &b.id, &b.host)));
        let present = now.utc.max(self.forgotten);
        let standing = self.fed_pieces(present);
        let mut report = FeedReport::default();
        let mut wanted = self.cut_all(present, &works, &standing, &mut report);
        let mut gone = Vec::new();
        for (piece, attempt) in standing.into_values().flatten() {
            match wanted.get_mut(&piece) {
                Some(count) if *count > 0 => *count -= 1,
                _ => gone.push(attempt),
            }
        }
        report.taken_out = gone.len();
        for attempt in gone {
            // Its name is never used again, so nobody can be late with a message about it.
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
        self.outputs.push_back(Output::FeedApplied { token, report });
    }

    /// What stands of the feed from `present` on.
    fn fed_pieces(&self, present: Time) -> Standing {
        let fed =
            self.bookings.values().filter(|booking| self.is_fed(&booking.attempt) && booking.window.end > present);
        let piece = |booking: &super::Booking| {
            let name = booking.attempt.request.as_str().strip_prefix(PREFIX)?;
            let (name, _) = name.rsplit_once('-')?;
            let grant = booking.grants.first()?;
            let piece = Piece {
                host: grant.host.clone(),
                name: name.to_owned(),
                start: booking.window.start.max(present),
                end: booking.window.end,
                amounts: grant.amounts.clone(),
            };
            Some((piece, booking.attempt.clone()))
        };
        let mut standing = Standing::new();
        for (piece, attempt) in fed.filter_map(piece) {
            standing.entry(piece.host.clone()).or_default().push((piece, attempt));
        }
        standing
    }

    /// The pieces that are to stand, with how many times each.
    fn cut_all(
        &self,
        present: Time,
        works: &[LocalWork],
        standing: &Standing,
        report: &mut FeedReport,
    ) -> BTreeMap<Piece, usize> {
        let by_hand = self.local_work().filter(|booking| !self.is_fed(&booking.attempt)).count();
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
            let bench = benches.entry(work.host.clone()).or_insert_with(|| bench(host, standing));
            let cut = bench.cut(work, window, ENTRIES_MAX.saturating_sub(by_hand + report.pieces));
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
        let Ok(id) = RequestId::new(&format!("{PREFIX}{}-{number}", piece.name)) else { return false };
        let work = LocalWork { id, host: piece.host.clone(), window: piece.window(), amounts: piece.amounts.clone() };
        self.enter_own(self.local_attempt(&work), work).is_ok()
    }
}

/// A host without what stands of the feed.
fn bench<'a, B: Books>(host: &'a B, standing: &Standing) -> Bench<'a, B> {
    let mut others = host.promised().clone();
    for (piece, _) in standing.get(&host.host().id).into_iter().flatten() {
        let taken = others.remove(piece.window(), &piece.amounts);
        debug_assert!(taken.is_ok(), "what stands has been put in");
    }
    Bench { host, others, fed: Schedule::default() }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
