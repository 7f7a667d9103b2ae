//! What the disk keeps of a booking that is over: that it was there, for as long as another participant may ask for its outcome; and, for a
//! day after its end, all of it. The clock by which it has ended may have been wrong (up to a day is believed at a start,
//! [`wall_clock`](crate::wall_clock)), and what was promised would be lost for good.
//!
//! Invariant: the disk has a record of every attempt that is remembered here, and of no other that is over. A booking begins anew only when a
//! ledger is opened before its end, and only where its room was given to nobody else since.

use super::{Booking, BookingRecord, Books, Expiring, GoneRecord, Ledger, Output, Record};
use crate::{
    protocol::AttemptId,
    time::{Now, Span, Time},
    trust::{RequestStatement, asked::CLOCKS_DIFFER},
};

/// For so long after its end a booking can begin anew.
const KEPT_FOR: Span = Span(86_400);
/// Most bookings that are kept whole; beyond it the first to end is not.
const WHOLE_MAX: usize = 4_096;
/// Most seats of a booking that is kept whole, and most bytes of what its user has signed: with this one has at most 32 KiB on disk.
const WHOLE_SEATS_MAX: usize = 64;
const WHOLE_STATEMENT_BYTES_MAX: usize = 8_192;

/// Attempts that are over and are on disk.
#[derive(Debug)]
pub(super) struct Ended {
    /// Attempts that may have been complete although their booking is gone: replaced, cancelled, or over before those of other sites. A
    /// participant that has not learnt the outcome must not hear that the attempt was aborted.
    asked_about: Expiring<AttemptId, Time, ()>,
    /// Attempts of which the disk has the whole booking.
    whole: Expiring<AttemptId, Time, ()>,
}

impl Ended {
    /// A memory of no attempt yet, with places for `limit` attempts whose outcome is asked about.
    pub(super) fn new(limit: usize) -> Ended {
        Ended { asked_about: Expiring::new(limit), whole: Expiring::new(WHOLE_MAX) }
    }

    /// Whether the attempt may have been complete, and another participant may still ask for its outcome.
    pub(super) fn may_be_asked_about(&self, attempt: &AttemptId) -> bool {
        self.asked_about.get(attempt).is_some()
    }

    /// Record that takes the place of a whole booking on disk: that the attempt is gone, or nothing once nobody asks about it.
    fn rest_of(&self, attempt: AttemptId) -> Record {
        match self.asked_about.until(&attempt) {
            Some(until) => Record::Gone(GoneRecord { attempt, until, ended: None }),
            None => Record::Remove(attempt),
        }
    }
}

impl<B: Books> Ledger<B> {
    /// Writes that a booking was given back. A record that its attempt may have been complete stays while another site may ask for that.
    pub(super) fn forget_on_disk(&mut self, now: Now, booking: &Booking, may_be_complete: bool) {
        let until = self.asked_about_until(booking);
        if may_be_complete && until > now.utc {
            self.keep_gone(now, GoneRecord { attempt: booking.attempt.clone(), until, ended: None });
        } else {
            self.outputs.push_back(Output::Persist(Record::Remove(booking.attempt.clone())));
        }
    }

    /// Writes that a booking was kept to its end. Own work is not kept whole, since its owner says anew what there is, nor what is large.
    pub(super) fn keep_ended(&mut self, now: Now, booking: &Booking) {
        if self.is_local(&booking.attempt) || is_large(booking) {
            // It was confirmed to its end, so nobody who asks may hear that it was not.
            return self.forget_on_disk(now, booking, true);
        }
        let (attempt, until) = (booking.attempt.clone(), self.asked_about_until(booking));
        self.keep_gone(now, GoneRecord { attempt, until, ended: Some(Box::new(booking.to_booking_record())) });
    }

    fn keep_gone(&mut self, now: Now, record: GoneRecord) {
        self.outputs.push_back(Output::Persist(Record::Gone(record.clone())));
        self.remember_ended(now, record);
    }

    /// Until when another participant may ask for the outcome: seats on slower hosts end later, and clocks differ.
    fn asked_about_until(&self, booking: &Booking) -> Time {
        if booking.participants.iter().all(|participant| *participant == self.site) {
            return Time::ZERO;
        }
        let statement = booking.statement.as_ref().and_then(|signed| signed.open::<RequestStatement>().ok());
        let latest = statement.map(|statement| statement.request.latest_end(booking.window.start));
        // No site books a seat that ends later than this.
        let farthest = booking.window.start + self.limits.farthest_future;
        let latest = latest.map(|latest| latest.min(farthest));
        booking.window.end.max(latest.unwrap_or_default()) + CLOCKS_DIFFER
    }

    /// Remembers what is on disk of a booking that is over.
    fn remember_ended(&mut self, now: Now, GoneRecord { attempt, until, ended }: GoneRecord) {
        let whole_until = ended.map(|booking| booking.window.end + KEPT_FOR);
        let is_asked_about = until > now.utc || whole_until.is_none();
        let first = whole_until.and_then(|until| self.ended.whole.insert(attempt.clone(), until, ()));
        first.into_iter().for_each(|first| self.forget_whole(first));
        let first = is_asked_about.then(|| self.ended.asked_about.insert(attempt, until, ())).flatten();
        first.into_iter().for_each(|first| self.forget_asked_about(first));
    }

    /// Enters what is on disk of bookings that are over, after all others: one whose end is still to come begins anew where it has room.
    pub(super) fn take_in_ended(&mut self, now: Now, gone: Vec<GoneRecord>) {
        for record in gone {
            match &record.ended {
                Some(booking) if booking.window.end > now.utc && self.has_room_for(booking, now) => {
                    self.replay(booking, now);
                    self.note_unwritten(&booking.attempt);
                }
                _ => self.remember_ended(now, record),
            }
        }
    }

    /// Whether all hosts of a booking that is over have room for it from the present on.
    fn has_room_for(&self, booking: &BookingRecord, now: Now) -> bool {
        let load = self.load_of(booking.talk.as_deref().copied(), booking.grants.len(), booking.window);
        let mut beside = Vec::new();
        booking.grants.iter().chain(&load).all(|grant| {
            let fits = self.fits_beside(&beside, grant, now);
            beside.push(grant.clone());
            fits
        })
    }

    /// Others were told that nothing is left of an attempt: its booking begins no more.
    pub(super) fn forbid_anew(&mut self, attempt: &AttemptId) {
        if self.ended.whole.remove(attempt) {
            self.forget_whole(attempt.clone());
        }
    }

    /// Forgets what nobody asks about any more, and bookings that ended a day ago.
    pub(super) fn forget_ended(&mut self, now: Now) {
        while let Some(attempt) = self.ended.asked_about.pop_due(now.utc) {
            self.forget_asked_about(attempt);
        }
        while let Some(attempt) = self.ended.whole.pop_due(now.utc) {
            self.forget_whole(attempt);
        }
    }

    fn forget_asked_about(&mut self, attempt: AttemptId) {
        if self.ended.whole.get(&attempt).is_none() {
            self.outputs.push_back(Output::Persist(Record::Remove(attempt)));
        }
    }

    fn forget_whole(&mut self, attempt: AttemptId) {
        self.outputs.push_back(Output::Persist(self.ended.rest_of(attempt)));
    }
}

fn is_large(booking: &Booking) -> bool {
    let statement = booking.statement.as_ref().map_or(0, |signed| signed.text.len());
    booking.grants.len() + booking.lost.len() > WHOLE_SEATS_MAX || statement > WHOLE_STATEMENT_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Kept, LedgerLimits, tests::*},
        *,
    };
    use crate::{
        ids::HostId,
        protocol::{SiteAnswer, SiteRequest},
        schedule::Schedule,
        trust::testing,
    };

    /// The last record of each attempt, as a disk has them.
    fn written(ledger: &mut Ledger) -> Vec<Record> {
        let mut last: Vec<Record> = Vec::new();
        while let Some(output) = ledger.poll_output() {
            let Output::Persist(record) = output else { continue };
            last.retain(|one| one.attempts().ne(record.attempts()));
            last.push(record);
        }
        last
    }

    fn open(kept: Kept, now: Now) -> Ledger {
        let hosts = vec![(host("h1"), Schedule::default())];
        Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, kept, now).0
    }

    /// A ledger with a booking of all of h1 from 1,500 s to 1,600 s, confirmed and settled.
    fn booked() -> Ledger {
        let mut ledger = open(Kept::default(), at(0));
        for request in
            [hold(attempt("r", 1), 1_500, 4_000), confirm(attempt("r", 1)), SiteRequest::Settle(attempt("r", 1))]
        {
            ask(&mut ledger, at(0), "entry", request);
        }
        ledger
    }

    fn kept_of(records: Vec<Record>) -> Kept {
        let gone = |record| if let Record::Gone(gone) = record { Some(gone) } else { None };
        Kept { gone: records.into_iter().filter_map(gone).collect(), ..Kept::default() }
    }

    fn free(ledger: &Ledger) -> bool {
        let books = ledger.hosts().find(|books| books.host().id == HostId::new("h1").unwrap()).unwrap();
        books.promised().is_empty()
    }

    #[test]
    fn what_a_wrong_clock_has_ended_begins_anew_when_a_start_shows_the_right_one() {
        let mut ledger = booked();
        drop(written(&mut ledger));
        // A clock that is hours ahead.
        ledger.forget_past(at(20_000_000));
        assert!(ledger.bookings().next().is_none() && free(&ledger));
        let disk = written(&mut ledger);
        let mut right = open(kept_of(disk.clone()), at(100_000));
        right.sanity_check().unwrap();
        assert_eq!(right.bookings().count(), 1);
        assert!(matches!(written(&mut right).as_slice(), [Record::Put(_)]), "the disk has it as a booking again");
        let taken = hold(attempt("s", 1), 1_500, 1_000);
        assert!(matches!(ask(&mut right, at(100_000), "entry", taken).0, SiteAnswer::Refused(_)));
        // It ends when its time has come.
        right.forget_past(at(600_000));
        assert!(right.bookings().next().is_none() && matches!(written(&mut right).as_slice(), [Record::Gone(_)]));
        // Where the clock was right it stays over, and a day after its end the disk has nothing of it.
        let mut still = open(kept_of(disk), at(600_000));
        assert!(still.bookings().next().is_none() && free(&still));
        still.forget_past(at(86_999_000));
        assert_eq!(written(&mut still), []);
        still.forget_past(at(87_000_000));
        assert_eq!(written(&mut still), [Record::Remove(attempt("r", 1))]);
    }

    #[test]
    fn what_is_given_back_after_a_wrong_end_does_not_begin_anew() {
        let mut ledger = booked();
        ledger.forget_past(at(20_000_000));
        let mut disk = written(&mut ledger);
        let (_, records) = ask(&mut ledger, at(20_000_000), "entry", SiteRequest::Release(attempt("r", 1)));
        assert!(!records.is_empty());
        disk.extend(records);
        let last = kept_of(disk.split_off(disk.len() - 1));
        assert_eq!(open(last, at(100_000)).bookings().count(), 0);
    }

    #[test]
    fn what_was_given_to_others_since_is_not_taken_from_them() {
        let mut ledger = booked();
        drop(written(&mut ledger));
        ledger.forget_past(at(20_000_000));
        let gone = kept_of(written(&mut ledger)).gone;
        let mut other = open(Kept::default(), at(0));
        ask(&mut other, at(0), "entry", hold(attempt("s", 1), 1_550, 1_000));
        let (_, records) = ask(&mut other, at(0), "entry", confirm(attempt("s", 1)));
        let bookings = records.iter().flat_map(Record::put).cloned().collect();
        let right = open(Kept { bookings, gone, ..Kept::default() }, at(100_000));
        right.sanity_check().unwrap();
        let names: Vec<AttemptId> = right.bookings().map(|booking| booking.attempt.clone()).collect();
        assert_eq!(names, [attempt("s", 1)]);
    }

    #[test]
    fn of_too_many_the_first_to_end_are_not_kept_whole() {
        let mut ledger = open(Kept::default(), at(0));
        let mut booking = kept_of({
            let mut one = booked();
            drop(written(&mut one));
            one.forget_past(at(20_000_000));
            written(&mut one)
        });
        let record = booking.gone.remove(0);
        let now = at(20_000_000);
        for number in 0..=WHOLE_MAX {
            let mut ended = record.ended.clone().unwrap();
            ended.window.end = ended.window.end + Span(number as u64);
            let attempt = attempt(&format!("r{number}"), 1);
            ledger.remember_ended(now, GoneRecord { attempt, ended: Some(ended), ..record.clone() });
        }
        assert_eq!(written(&mut ledger), [Record::Remove(attempt("r0", 1))]);
    }
}
