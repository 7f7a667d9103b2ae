//! The owner's own work on the site's hosts, entered and taken out while the node runs; and hosts that the owner takes back.
//!
//! It is a booking of the site itself whose attempt has number 0, which no attempt of a request ever has; so it is kept on disk,
//! published, and dropped at its end as all bookings are, and removed by a release.
//! Invariants: it goes through the one admission function, so it never takes what another booking has; the owner's rules for users
//! do not bind the owner; it can come from the site itself only.

use super::{Booking, BookingState, Books, Ledger, LocalWork, floating::Wanted};
use crate::{
    cost::Cost,
    ids::{HostId, RequestId, SeatNumber},
    plan::Place,
    protocol::{AttemptId, Grant, Places, RefusalReason, SiteAnswer},
    resources::Amounts,
    tariff::Agreement,
    time::{Millis, Now, Span, Window},
    variant::Variant,
};

/// Most entries of own work at a time.
pub(super) const ENTRIES_MAX: usize = 10_000;
/// The user that is shown for it.
const OWNER: &str = "owner";

impl<B: Books> Ledger<B> {
    /// The attempt that own work of this name is booked under.
    #[must_use]
    pub fn own_attempt(&self, id: &RequestId) -> AttemptId {
        AttemptId { entry_point: self.site.clone(), request: id.clone(), attempt: 0 }
    }

    /// Reservations that are the owner's own work.
    pub fn local_work(&self) -> impl Iterator<Item = &Booking> {
        self.bookings.values().filter(|booking| self.is_local(&booking.attempt))
    }

    /// What users have of this site: holds, and reservations that have not lost all their hosts.
    pub fn of_users(&self) -> impl Iterator<Item = &Booking> {
        self.bookings.values().filter(|booking| !self.is_local(&booking.attempt) && !booking.grants.is_empty())
    }

    /// Whether an attempt is the owner's own work, which has no other node to ask for an outcome.
    #[must_use]
    pub fn is_local(&self, attempt: &AttemptId) -> bool {
        attempt.entry_point == self.site && attempt.attempt == 0
    }

    /// Enters own work; entering the same again changes nothing. What has begun already counts from now on.
    pub(super) fn on_local(&mut self, now: Now, work: LocalWork) -> SiteAnswer {
        let attempt = self.own_attempt(&work.id);
        if self.has_job(&attempt) {
            return self.refusal(RefusalReason::Malformed("there is an own job of this name".to_owned()));
        }
        if self.bookings.contains_key(&attempt) {
            return self.confirmed(Places::new(), None);
        }
        if self.tombstones.is_buried(&attempt) {
            return self.refusal(RefusalReason::AttemptIsOver);
        }
        let window = Window { start: work.window.start.max(now.utc), end: work.window.end };
        if window.end <= window.start {
            return self.refusal(RefusalReason::WindowPassed);
        }
        if let Some(reason) = self.window_error(window, now.utc) {
            return self.refusal(reason);
        }
        if self.local_work().count() >= ENTRIES_MAX {
            return self.refusal(RefusalReason::Malformed(format!("{ENTRIES_MAX} entries of own work stand already")));
        }
        match self.enter_own(attempt, LocalWork { window, ..work }, None) {
            Ok(()) => self.confirmed(Places::new(), None),
            Err(reason) => self.refusal(reason),
        }
    }

    /// Takes the site's hosts back from a request. Its coordinator learns so when it asks next, and looks for hosts elsewhere: until the
    /// booking would have ended (or the site restarts), the site holds nothing more for this request of the user, whoever coordinates it.
    ///
    /// While the outcome of an attempt is not known here it may have been reported as a success that rests on this site's word; that is
    /// [`RefusalReason::Busy`].
    pub(super) fn on_evict(&mut self, now: Now, request: &RequestId) -> SiteAnswer {
        let is_promise = |booking: &&Booking| !booking.is_held() && !self.is_local(&booking.attempt);
        let found: Vec<Booking> = self.of_name(request).filter(is_promise).cloned().collect();
        if found.is_empty() {
            return self.refusal(RefusalReason::NoSuchHold);
        }
        if found.iter().any(|booking| !booking.state.is_settled()) {
            return self.refusal(RefusalReason::Busy);
        }
        // A hold of another attempt would become a booking.
        let holds = self.of_name(request).filter(|booking| booking.is_held() && !self.is_local(&booking.attempt));
        let holds: Vec<AttemptId> = holds.map(|booking| booking.attempt.clone()).collect();
        holds.iter().for_each(|attempt| self.give_back(now, attempt));
        for Booking { attempt, window, user_key, .. } in found {
            // What the owner takes back costs nothing.
            self.amend(&attempt, |booking| {
                booking.grants.iter_mut().for_each(|grant| grant.agreed = Agreement::default());
            });
            self.give_back(now, &attempt);
            let left = Millis(window.end.since(now.utc).0.saturating_mul(1_000));
            let until = now.monotonic + left.max(self.limits.tombstone_life);
            let key = (user_key, attempt.request);
            let until = self.evicted.until(&key).map_or(until, |before| before.max(until));
            self.evicted.insert(key, until, ());
        }
        SiteAnswer::Released { version: self.version, charged: Cost::ZERO }
    }

    /// Books own work if there is room for it; work of the feed with the feed's name for it.
    pub(super) fn enter_own(
        &mut self,
        attempt: AttemptId,
        LocalWork { host, window, amounts, .. }: LocalWork,
        fed_as: Option<Box<str>>,
    ) -> Result<(), RefusalReason> {
        let grant = own_grant((0, host), window, amounts);
        self.book_own(attempt, vec![grant], fed_as)
    }

    /// Books the owner's own work of these grants if there is room for it.
    pub(super) fn book_own(
        &mut self,
        attempt: AttemptId,
        grants: Vec<Grant>,
        fed_as: Option<Box<str>>,
    ) -> Result<(), RefusalReason> {
        let wanted = Wanted { grants: &grants, request: None, floats: false };
        let (_, window) = self.admit((&wanted, None), None, None)?;
        let booking = Booking {
            attempt,
            variant: Variant::default(),
            window,
            grants,
            participants: vec![self.site.clone()],
            user: OWNER.to_owned(),
            user_key: None,
            account: None,
            lineage: None,
            network: None,
            statement: None,
            state: BookingState::Settled,
            coordinator: None,
            fed_as,
            is_substituted: false,
            confirmed: None,
            lost: Vec::new(),
            talk: None,
            slack: Span::default(),
            wait: Span::default(),
        };
        let (attempt, is_shown) = (booking.attempt.clone(), self.is_shown(&booking));
        self.begin(booking);
        self.persist(&attempt);
        if is_shown {
            self.tell_booking(&attempt);
        }
        Ok(())
    }
}

/// What the owner takes of a host, as the seat of this number.
pub(super) fn own_grant((seat, host): (u32, HostId), window: Window, amounts: Amounts) -> Grant {
    Grant { seat: SeatNumber(seat), place: Place::Host(host), window, amounts, agreed: Agreement::default() }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Event, LedgerLimits, Output, Record, ReplyToken,
            tests::{ask, at, attempt, confirm, cpu, hold, host, id},
        },
        *,
    };
    use crate::{
        protocol::{AttemptStatus, HoldRequest, Refusal, SiteRequest},
        schedule::Schedule,
        time::{Span, Time},
        trust::{RequestStatement, testing},
    };

    fn open(reservations: Vec<crate::ledger::BookingRecord>) -> Ledger {
        let hosts = vec![(host("h1"), Schedule::default())];
        let limits = LedgerLimits::default();
        Ledger::open(id("site"), limits, 7, testing::open_gate(), hosts, reservations, at(0)).0
    }

    fn work(name: &str, start: i64, amount: u64) -> LocalWork {
        LocalWork {
            id: RequestId::new(name).unwrap(),
            host: HostId::new("h1").unwrap(),
            window: Window::starting(Time(start), Span(100)),
            amounts: cpu(amount),
        }
    }

    fn enter(ledger: &mut Ledger, work: LocalWork) -> (SiteAnswer, Vec<Record>, usize) {
        ledger.handle(at(0), Event::Local { token: ReplyToken(1), work });
        ledger.sanity_check().unwrap();
        let (mut answer, mut records, mut published) = (None, Vec::new(), 0);
        while let Some(output) = ledger.poll_output() {
            match output {
                Output::Persist(record) => records.push(record),
                Output::Publish(parts) => published += parts.changes.len(),
                Output::Reply { answer: told, .. } => answer = Some(told),
                _ => panic!("nobody has to be asked"),
            }
        }
        (answer.unwrap(), records, published)
    }

    fn reason(answer: SiteAnswer) -> RefusalReason {
        match answer {
            SiteAnswer::Refused(Refusal { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn own_work_takes_its_place_survives_a_restart_and_is_taken_out() {
        let mut ledger = open(Vec::new());
        let (answer, records, published) = enter(&mut ledger, work("w1", 2000, 3000));
        assert!(matches!(answer, SiteAnswer::Confirmed { .. }));
        assert_eq!((records.len(), published), (1, 1), "on disk, and told to others");
        let (answer, records, published) = enter(&mut ledger, work("w1", 2000, 3000));
        assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "the same again");
        assert_eq!((records.len(), published), (0, 0));
        let short = reason(enter(&mut ledger, work("w2", 2050, 2000)).0);
        assert!(matches!(short, RefusalReason::NotEnough { free, .. } if free.0 == 1000), "{short}");

        let kept = ledger.local_work().map(Booking::to_booking_record);
        let mut again = open(kept.collect());
        assert_eq!(again.local_work().count(), 1);
        assert_eq!(again.poll_timeout(), None, "nobody is asked whether it is still wanted");
        assert!(matches!(reason(enter(&mut again, work("w2", 2050, 2000)).0), RefusalReason::NotEnough { .. }));
        let attempt = again.own_attempt(&work("w1", 0, 0).id);
        let (answer, _) = ask(&mut again, at(0), "stranger", SiteRequest::Release(attempt.clone()));
        assert!(matches!(reason(answer), RefusalReason::NotYours));
        let (answer, records) = ask(&mut again, at(0), "site", SiteRequest::Release(attempt));
        assert!(matches!(answer, SiteAnswer::Released { .. }) && records.len() == 1);
        again.sanity_check().unwrap();
        assert!(matches!(enter(&mut again, work("w2", 2050, 2000)).0, SiteAnswer::Confirmed { .. }));
    }

    #[test]
    fn what_is_over_or_unknown_or_too_far_is_refused() {
        let mut ledger = open(Vec::new());
        // The clock shows 1,000 s.
        assert!(matches!(reason(enter(&mut ledger, work("w", 500, 1)).0), RefusalReason::WindowPassed));
        let (answer, ..) = enter(&mut ledger, work("begun", 950, 1));
        assert!(matches!(answer, SiteAnswer::Confirmed { .. }));
        assert_eq!(ledger.local_work().next().unwrap().window.start, Time(1000), "the past is not booked");
        assert!(matches!(reason(enter(&mut ledger, work("w", 99_999_999_999, 1)).0), RefusalReason::TooFarAhead(_)));
        let elsewhere = LocalWork { host: HostId::new("h9").unwrap(), ..work("w", 2000, 1) };
        assert!(matches!(reason(enter(&mut ledger, elsewhere).0), RefusalReason::UnknownHost(_)));
    }

    #[test]
    fn an_owner_takes_hosts_back_for_good_once_the_outcome_is_known() {
        let mut ledger = open(Vec::new());
        let evict = |ledger: &mut Ledger, name: &str| {
            ledger.handle(at(0), Event::Evict { token: ReplyToken(1), request: RequestId::new(name).unwrap() });
            ledger.sanity_check().unwrap();
            let outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll_output()).collect();
            let published = outputs.iter().filter(|output| matches!(output, Output::Publish(_))).count();
            let answer = outputs.into_iter().find_map(|output| match output {
                Output::Reply { answer, .. } => Some(answer),
                _ => None,
            });
            (answer.unwrap(), published)
        };
        assert!(matches!(reason(evict(&mut ledger, "r").0), RefusalReason::NoSuchHold));
        ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 4_000));
        assert!(matches!(reason(evict(&mut ledger, "r").0), RefusalReason::NoSuchHold), "a hold lapses by itself");
        ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
        assert!(matches!(reason(evict(&mut ledger, "r").0), RefusalReason::Busy), "others may rely on it");
        ask(&mut ledger, at(0), "entry", SiteRequest::Settle(attempt("r", 1)));
        let (answer, published) = evict(&mut ledger, "r");
        assert!(matches!(answer, SiteAnswer::Released { .. }) && published == 1 && ledger.bookings().count() == 0);
        let (answer, _) = ask(&mut ledger, at(0), "other", SiteRequest::Inquire(attempt("r", 1)));
        assert!(matches!(answer, SiteAnswer::Status { booking: AttemptStatus::Confirmed, .. }), "it was complete");
        let (answer, _) = ask(&mut ledger, at(0), "entry", SiteRequest::Inspect(attempt("r", 1)));
        let is_lost = matches!(&answer, SiteAnswer::Booked { seats, .. } if seats.is_empty());
        assert!(is_lost, "its coordinator learns of it: {answer:?}");
        let later = at(LedgerLimits::default().tombstone_life.0 + 1);
        ledger.forget_past(later);
        let (answer, _) = ask(&mut ledger, later, "entry", hold(attempt("r", 2), 2_000, 4_000));
        assert!(matches!(reason(answer), RefusalReason::AttemptIsOver), "its coordinator looks elsewhere");
        let SiteRequest::Hold(again) = hold(attempt("r", 1), 2_000, 4_000) else { panic!() };
        let asked = again.authorization.request.open::<RequestStatement>().unwrap().request;
        let third = AttemptId { entry_point: id("third"), ..attempt("r", 1) };
        let authorization = testing::authorize(1, &third.entry_point, &third.request, &asked).into();
        let again = SiteRequest::Hold(HoldRequest { attempt: third, authorization, ..again });
        let (answer, _) = ask(&mut ledger, later, "third", again);
        assert!(matches!(reason(answer), RefusalReason::AttemptIsOver), "nor does another coordinator get anything");
        let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("s", 1), 2_000, 4_000));
        assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
        enter(&mut ledger, work("w", 5_000, 1));
        assert!(matches!(reason(evict(&mut ledger, "w").0), RefusalReason::NoSuchHold), "own work is removed");
    }
}
