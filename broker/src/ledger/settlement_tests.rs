//! How a site learns the outcome of an attempt: from its coordinator, from all participants, or from one that never confirmed; and what
//! it answers others that ask.

use super::{
    tests::{ask, at, attempt, confirm, hold, hold_work, host, id, ledger},
    *,
};
use crate::{
    protocol::{AttemptStatus, SiteAnswer, SiteRequest},
    trust::testing,
};

/// Site `site` has confirmed an attempt with the participants `site`, `a` and `b`, and does not know its outcome.
pub(super) fn confirmed_with_others() -> Ledger {
    let mut ledger = ledger();
    let SiteRequest::Hold(mut held) = hold(attempt("r", 1), 2_000, 1_000) else { panic!() };
    held.participants = vec![id("a"), id("b"), id("site")];
    ask(&mut ledger, at(0), "entry", SiteRequest::Hold(held));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    ledger
}

/// What a participant answers to this round of questions; whether others are asked again at once.
pub(super) fn answers(ledger: &mut Ledger, from: &str, round: u32, booking: AttemptStatus) -> bool {
    let (from, attempt) = (id(from), attempt("r", 1));
    ledger.handle(at(100), Event::StatusReceived { from, attempt, round, decision: None, booking });
    ledger.sanity_check().unwrap();
    let mut asks = false;
    while let Some(output) = ledger.poll_output() {
        asks |= matches!(output, Output::Inquire { .. });
    }
    asks
}

fn is_settled(ledger: &Ledger) -> bool {
    ledger.bookings().any(|booking| booking.state.is_settled())
}

#[test]
fn that_all_have_confirmed_at_some_time_settles_nothing() {
    let mut ledger = confirmed_with_others();
    assert!(!answers(&mut ledger, "a", 1, AttemptStatus::Confirmed));
    // Since then "a" may have been told to give its part back, and only then did "b" confirm.
    assert!(answers(&mut ledger, "b", 1, AttemptStatus::Confirmed), "all are asked once more");
    assert!(!is_settled(&ledger));
    answers(&mut ledger, "a", 0, AttemptStatus::Confirmed);
    answers(&mut ledger, "b", 2, AttemptStatus::Confirmed);
    assert!(!is_settled(&ledger), "a late answer says nothing of now");
    let mut other = confirmed_with_others();
    for (from, round) in [("a", 1), ("b", 1), ("a", 2), ("b", 2)] {
        answers(&mut other, from, round, AttemptStatus::Confirmed);
    }
    assert!(is_settled(&other));
    answers(&mut ledger, "a", 2, AttemptStatus::Aborted);
    assert_eq!(ledger.bookings().count(), 0);
}

#[test]
fn what_the_coordinator_says_is_committed_stays_whatever_a_participant_has_forgotten() {
    let mut ledger = confirmed_with_others();
    let (from, decision) = (id("entry"), Some(AttemptStatus::Confirmed));
    let booking = AttemptStatus::Aborted;
    ledger.handle(at(100), Event::StatusReceived { from, attempt: attempt("r", 1), round: 1, decision, booking });
    assert!(is_settled(&ledger), "the coordinator's own site had no part in it");
    // "a" was replaced since, gave its part back, and has forgotten in a restart that all had confirmed.
    answers(&mut ledger, "a", 1, AttemptStatus::Aborted);
    assert!(is_settled(&ledger));
}

/// What the ledger answers to a participant that asks for the outcome.
fn outcome(ledger: &mut Ledger, now: Now) -> AttemptStatus {
    match ask(ledger, now, "a", SiteRequest::Inquire(attempt("r", 1))).0 {
        SiteAnswer::Status { decision: None, booking } => booking,
        other => panic!("{other:?}"),
    }
}

#[test]
fn that_an_attempt_was_complete_is_known_until_its_window_ends_although_it_was_given_back() {
    for (is_settled, expected) in [(true, AttemptStatus::Confirmed), (false, AttemptStatus::Aborted)] {
        let mut before = confirmed_with_others();
        if is_settled {
            ask(&mut before, at(0), "entry", SiteRequest::Settle(attempt("r", 1)));
        }
        let (_, records) = ask(&mut before, at(0), "entry", SiteRequest::Release(attempt("r", 1)));
        assert_eq!(outcome(&mut before, at(0)), expected);
        let gone = match &records[..] {
            [Record::Gone(record)] => vec![record.clone()],
            [Record::Remove(_)] => Vec::new(),
            other => panic!("one record takes the booking's place on disk: {other:?}"),
        };
        let kept = Kept { gone, ..Kept::default() };
        let (hosts, limits) = (vec![(host("h1"), Schedule::default())], LedgerLimits::default());
        let (mut after, _) = Ledger::open(id("site"), limits, 8, testing::open_gate(), hosts, kept, at(0));
        assert_eq!(outcome(&mut after, at(0)), expected);
        assert_eq!(after.bookings().count(), 0);
        let (answer, _) = ask(&mut after, at(0), "entry", hold(attempt("r", 1), 2_000, 1_000));
        assert_eq!(matches!(answer, SiteAnswer::Refused(_)), is_settled, "an attempt that is over begins no more");
    }
    let mut ledger = confirmed_with_others();
    ask(&mut ledger, at(0), "entry", SiteRequest::Settle(attempt("r", 1)));
    ask(&mut ledger, at(0), "entry", SiteRequest::Release(attempt("r", 1)));
    while ledger.poll_output().is_some() {}
    // The window ends at 2,100 s, and clocks differ by a minute; the clock began at 1,000 s.
    ledger.forget_past(at(1_159_000));
    assert_eq!((ledger.poll_output(), outcome(&mut ledger, at(1_159_000))), (None, AttemptStatus::Confirmed));
    ledger.forget_past(at(1_160_000));
    assert_eq!(ledger.poll_output(), Some(Output::Persist(Record::Remove(attempt("r", 1)))));
    assert_eq!(outcome(&mut ledger, at(1_160_000)), AttemptStatus::Aborted);
}

#[test]
fn a_seat_that_has_ended_is_remembered_while_one_on_a_slower_host_may_last() {
    let mut ledger = ledger();
    let SiteRequest::Hold(mut held) = hold_work(attempt("r", 1), 1_000, 4_000) else { panic!() };
    held.grants.remove(0);
    held.participants.push(id("other"));
    ask(&mut ledger, at(0), "entry", SiteRequest::Hold(held));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    while ledger.poll_output().is_some() {}
    // The seat ends at 1,100 s. The work may take a slow host 2,000 s from 1,000 s on.
    ledger.forget_past(at(100_000));
    let Some(Output::Persist(Record::Gone(record))) = ledger.poll_output() else { panic!("it is remembered") };
    assert_eq!((record.until, ledger.bookings().count()), (Time(3_060), 0));
    assert_eq!(outcome(&mut ledger, at(100_000)), AttemptStatus::Confirmed);
    assert!(record.ended.is_some(), "the clock may be wrong");
    // A day after its end it is told only that it was there, then nothing.
    ledger.forget_past(at(2_060_000));
    assert_eq!((ledger.poll_output(), outcome(&mut ledger, at(2_060_000))), (None, AttemptStatus::Aborted));
    ledger.forget_past(at(86_499_000));
    assert_eq!(ledger.poll_output(), None);
    ledger.forget_past(at(86_500_000));
    assert_eq!(ledger.poll_output(), Some(Output::Persist(Record::Remove(attempt("r", 1)))));
}
