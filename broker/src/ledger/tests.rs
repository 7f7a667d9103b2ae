//! The ledger's answers one by one, and that what it publishes is what it has. How ledgers and negotiations stand
//! together against losses and crashes is simulated by `kolo-sim faults`.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    amount::Amount,
    host::{Host, Speed},
    ids::{RequestId, SeatNumber},
    plan::Place,
    protocol::{Advert, Grant, HoldRequest, HostChange, RefusalReason, ScheduleChange, SiteAnswer, SiteRequest},
    resources::{Amounts, ResourceName},
    time::{Span, Window},
    trust::{Authorization, testing},
    view::SiteView,
};

pub(super) fn id(text: &str) -> SiteId {
    SiteId::new(text).unwrap()
}

pub(super) fn cpu(amount: u64) -> Amounts {
    Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
}

pub(super) fn host(name: &str) -> Host {
    Host {
        id: HostId::new(name).unwrap(),
        capacity: cpu(4000),
        attributes: BTreeMap::new(),
        speed: Speed::REFERENCE,
        tariff: Default::default(),
    }
}

pub(super) fn at(milliseconds: u64) -> Now {
    Now { monotonic: Millis(milliseconds), utc: Time(1_000 + i64::try_from(milliseconds / 1000).unwrap()) }
}

pub(super) fn of_host(change: &ScheduleChange) -> &HostChange {
    let ScheduleChange::Host(change) = change else { panic!("{change:?}") };
    change
}

pub(super) fn grant(seat: u32, host: &str, window: Window, amount: u64) -> Grant {
    let place = Place::Host(HostId::new(host).unwrap());
    Grant { seat: SeatNumber(seat), place, window, amounts: cpu(amount), agreed: Default::default() }
}

pub(super) fn ledger() -> Ledger {
    let slower = Host { speed: Speed::try_from(500).unwrap(), ..host("h2") };
    let hosts = vec![(host("h1"), Schedule::default()), (slower, Schedule::default())];
    Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, Vec::new(), at(0)).0
}

pub(super) fn attempt(request: &str, attempt: u32) -> AttemptId {
    AttemptId { entry_point: id("entry"), request: RequestId::new(request).unwrap(), attempt }
}

pub(super) fn hold(attempt: AttemptId, start: i64, amount: u64) -> SiteRequest {
    let authorization = authorization(&attempt.request);
    SiteRequest::Hold(HoldRequest {
        variant: Default::default(),
        attempt,
        grants: vec![grant(0, "h1", Window::starting(Time(start), Span(100)), amount)],
        participants: vec![id("site"), id("other")],
        hold_for: Millis(5_000),
        may_substitute: false,
        authorization,
    })
}

/// Two seats for 100 s of work, one of them on the slower host.
pub(super) fn hold_work(attempt: AttemptId, start: i64, amount: u64) -> SiteRequest {
    let asked = serde_json::from_str(r#"{"hosts":2,"work":100,"total":{"cpu":9000}}"#).unwrap();
    let authorization = Arc::new(testing::authorize(1, &id("entry"), &attempt.request, &asked));
    let window = |length| Window::starting(Time(start), Span(length));
    let grants = vec![grant(0, "h2", window(200), amount), grant(1, "h1", window(100), amount)];
    let (participants, hold_for) = (vec![id("site")], Millis(5_000));
    SiteRequest::Hold(HoldRequest {
        attempt,
        variant: Default::default(),
        grants,
        participants,
        hold_for,
        may_substitute: false,
        authorization,
    })
}

/// User 1 has signed a request of this name for one host with at most 4,500 millicores for 100 s at any time.
fn authorization(request: &RequestId) -> Arc<Authorization> {
    thread_local! {
        static SIGNED: RefCell<BTreeMap<RequestId, Arc<Authorization>>> = const { RefCell::new(BTreeMap::new()) };
    }
    let sign = || {
        let asked = serde_json::from_str(r#"{"hosts":1,"duration":100,"total":{"cpu":4500}}"#).unwrap();
        Arc::new(testing::authorize(1, &id("entry"), request, &asked))
    };
    SIGNED.with_borrow_mut(|signed| signed.entry(request.clone()).or_insert_with(sign).clone())
}

/// Asks and returns the answer and everything that had to be written before it.
pub(super) fn ask(ledger: &mut Ledger, now: Now, from: &str, request: SiteRequest) -> (SiteAnswer, Vec<Record>) {
    ledger.handle(now, Event::Request { from: id(from), network: None, token: ReplyToken(1), request });
    let mut records = Vec::new();
    loop {
        match ledger.poll_output().expect("every request is answered") {
            Output::Persist(record) => records.push(record),
            Output::Reply { answer, .. } => return (answer, records),
            _ => {}
        }
    }
}

pub(super) fn reason(answer: SiteAnswer) -> RefusalReason {
    match answer {
        SiteAnswer::Refused(refusal) => refusal.reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub(super) fn confirm(attempt: AttemptId) -> SiteRequest {
    SiteRequest::Confirm { attempt, held_in: 7 }
}

#[test]
fn each_seat_has_its_own_window_in_force_published_and_given_back() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold_work(attempt("r", 1), 1_000, 4_000));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    ledger.sanity_check().unwrap();
    let next = |start| hold(attempt("s", u32::try_from(start).unwrap()), start, 4_000);
    assert!(matches!(reason(ask(&mut ledger, at(0), "entry", next(1_099)).0), RefusalReason::NotEnough { .. }));
    let after = ask(&mut ledger, at(0), "entry", next(1_100)).0;
    assert!(matches!(after, SiteAnswer::Held { .. }), "the faster host is free again: {after:?}");
    // At 1,150 s the seat on the faster host is over, and the booking is not.
    ledger.forget_past(at(150_000));
    while ledger.poll_output().is_some() {}
    ledger.handle(
        at(150_000),
        Event::Request {
            from: id("entry"),
            network: None,
            token: ReplyToken(1),
            request: SiteRequest::Release(attempt("r", 1)),
        },
    );
    let published: Vec<(String, Window)> = std::iter::from_fn(|| ledger.poll_output())
        .filter_map(|output| match output {
            Output::Publish(parts) => Some(parts.changes),
            _ => None,
        })
        .flatten()
        .map(|change| (of_host(&change).host.to_string(), change.window()))
        .collect();
    assert_eq!(published, [("h2".to_owned(), Window { start: Time(1_150), end: Time(1_200) })]);
    ledger.sanity_check().unwrap();
}

#[test]
fn a_hold_is_answered_twice_and_granted_once() {
    let mut ledger = ledger();
    for expected in [5_000, 4_000] {
        let now = at(5_000 - expected);
        let (answer, records) = ask(&mut ledger, now, "entry", hold(attempt("r", 1), 2_000, 3_000));
        assert_eq!(
            answer,
            SiteAnswer::Held { version: ledger.version(), hold_for: Millis(expected), places: Vec::new() }
        );
        assert!(records.is_empty(), "holds are not kept on disk");
    }
    let (answer, _) = ask(&mut ledger, at(1_000), "entry", hold(attempt("s", 1), 2_000, 1_001));
    assert!(matches!(reason(answer), RefusalReason::HeldByAnother { .. }));
    let (answer, _) = ask(&mut ledger, at(1_000), "entry", hold(attempt("s", 2), 2_000, 1_000));
    assert!(matches!(answer, SiteAnswer::Held { .. }));
    ledger.sanity_check().unwrap();
}

fn book(attempt: AttemptId, participants: &[&str], incarnation: u64) -> SiteRequest {
    let SiteRequest::Hold(mut hold) = hold(attempt, 2_000, 3_000) else { panic!() };
    hold.participants = participants.iter().map(|site| id(site)).collect();
    SiteRequest::Book { hold, incarnation }
}

#[test]
fn a_booking_in_one_round_is_written_before_it_is_answered_and_only_at_the_only_site() {
    let mut ledger = ledger();
    let first = attempt("r", 1);
    let (answer, records) = ask(&mut ledger, at(0), "entry", book(first.clone(), &["other", "site"], 7));
    assert!(matches!(reason(answer), RefusalReason::Malformed(_)) && records.is_empty());
    let (answer, records) = ask(&mut ledger, at(0), "entry", book(first.clone(), &["site"], 6));
    assert_eq!(
        (reason(answer), records.len()),
        (RefusalReason::NoSuchHold, 0),
        "it may have forgotten the attempt's end"
    );
    let (answer, records) = ask(&mut ledger, at(0), "entry", book(first.clone(), &["site"], 7));
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }));
    assert!(matches!(&records[..], [Record::Put(kept)] if kept.attempt == first && !kept.settled));
    for incarnation in [7, 6] {
        let (answer, records) = ask(&mut ledger, at(10), "entry", book(first.clone(), &["site"], incarnation));
        assert!(matches!(answer, SiteAnswer::Confirmed { .. }) && records.is_empty(), "once more changes nothing");
    }
    let (answer, _) = ask(&mut ledger, at(10), "entry", book(attempt("s", 1), &["site"], 7));
    assert!(matches!(reason(answer), RefusalReason::NotEnough { .. }));
    ask(&mut ledger, at(20), "entry", SiteRequest::Release(first.clone()));
    let (answer, _) = ask(&mut ledger, at(30), "entry", book(first, &["site"], 7));
    assert_eq!(reason(answer), RefusalReason::AttemptIsOver);
    ledger.sanity_check().unwrap();
}

#[test]
fn a_confirm_is_written_before_it_is_answered_and_only_valid_for_a_live_hold() {
    let mut ledger = ledger();
    let first = attempt("r", 1);
    let (answer, _) = ask(&mut ledger, at(0), "entry", confirm(first.clone()));
    assert_eq!(reason(answer), RefusalReason::NoSuchHold);
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(first.clone(), 2_000, 3_000));
    assert_eq!(reason(answer), RefusalReason::AttemptIsOver, "the refused confirm has ended the attempt");

    let second = attempt("r", 2);
    ask(&mut ledger, at(0), "entry", hold(second.clone(), 2_000, 3_000));
    let stale = SiteRequest::Confirm { attempt: second.clone(), held_in: 6 };
    let (answer, records) = ask(&mut ledger, at(10), "entry", stale);
    assert_eq!((reason(answer), records.len()), (RefusalReason::NoSuchHold, 0));
    let (answer, records) = ask(&mut ledger, at(10), "entry", confirm(second.clone()));
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }));
    assert!(matches!(&records[..], [Record::Put(kept)] if kept.attempt == second && !kept.settled));
    let (answer, records) = ask(&mut ledger, at(20), "entry", confirm(second));
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }) && records.is_empty(), "once more changes nothing");

    let late = attempt("late", 1);
    ask(&mut ledger, at(20), "entry", hold(late.clone(), 2_000, 500));
    let (answer, _) = ask(&mut ledger, at(5_020), "entry", confirm(late));
    assert_eq!(reason(answer), RefusalReason::NoSuchHold, "the deadline has passed, whether a timer fired or not");
}

#[test]
fn only_the_entry_point_changes_an_attempt() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 3_000));
    for request in [confirm(attempt("r", 1)), SiteRequest::Release(attempt("r", 1)), hold(attempt("q", 1), 0, 1)] {
        let (answer, records) = ask(&mut ledger, at(0), "stranger", request);
        assert!(matches!(reason(answer), RefusalReason::NotYours) && records.is_empty());
    }
    assert_eq!(ledger.bookings().count(), 1);
}

#[test]
fn windows_and_numbers_of_holds_are_bounded() {
    let mut ledger = ledger();
    ledger.limits.max_holds_per_entry_point = 2;
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("past", 1), 800, 1));
    assert_eq!(reason(answer), RefusalReason::WindowPassed);
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("far", 1), 1_000 + 366 * 86_400, 1));
    assert!(matches!(reason(answer), RefusalReason::TooFarAhead(_)));
    for request in ["a", "b"] {
        ask(&mut ledger, at(0), "entry", hold(attempt(request, 1), 2_000, 1));
    }
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("c", 1), 2_000, 1));
    assert_eq!(reason(answer), RefusalReason::TooManyHolds(2));
    ledger.handle_timeout(at(5_000));
    assert_eq!(ledger.bookings().count(), 0, "holds lapse");
    let (answer, _) = ask(&mut ledger, at(5_000), "entry", hold(attempt("c", 2), 2_000, 1));
    assert!(matches!(answer, SiteAnswer::Held { .. }));
}

#[test]
fn what_a_crash_leaves_is_in_force_again() {
    let mut before = ledger();
    ask(&mut before, at(0), "entry", hold(attempt("r", 1), 2_000, 3_000));
    let (_, records) = ask(&mut before, at(0), "entry", confirm(attempt("r", 1)));
    let [Record::Put(kept)] = &records[..] else { panic!("one record") };
    let hosts = vec![(host("h1"), Schedule::default())];
    let (mut after, misfits) =
        Ledger::open(id("site"), LedgerLimits::default(), 8, testing::open_gate(), hosts, vec![kept.clone()], at(0));
    assert!(misfits.is_empty());
    let (answer, _) = ask(&mut after, at(0), "entry", hold(attempt("s", 1), 2_050, 1_001));
    assert!(matches!(reason(answer), RefusalReason::NotEnough { free: Amount(1_000), .. }));
    // The owner has taken the host away meanwhile: the promise is kept and reported.
    let (_, misfits) = Ledger::open(
        id("site"),
        LedgerLimits::default(),
        9,
        testing::open_gate(),
        Vec::new(),
        records_of(&records),
        at(0),
    );
    assert_eq!(misfits.len(), 1);
}

fn records_of(records: &[Record]) -> Vec<BookingRecord> {
    records.iter().flat_map(Record::put).cloned().collect()
}

#[test]
fn what_has_begun_stays_when_the_owner_takes_capacity_away_and_nothing_else_does() {
    let mut ledger = ledger();
    // Two that begin now and one that begins before their end. One of the first fits into what is left by itself.
    for (number, start, amount) in [(0, 1_000, 1_000), (1, 1_000, 1_500), (2, 1_050, 1_500)] {
        let attempt = attempt(&format!("r{number}"), 1);
        ask(&mut ledger, at(0), "entry", hold(attempt.clone(), start, amount));
        ask(&mut ledger, at(0), "entry", confirm(attempt));
    }
    let on_disk: Vec<BookingRecord> = ledger.bookings().map(Booking::to_booking_record).collect();
    let smaller = Host { capacity: cpu(1_500), ..host("h1") };
    let open = |reservations| {
        let hosts = vec![(smaller.clone(), Schedule::default())];
        Ledger::open(id("site"), LedgerLimits::default(), 8, testing::open_gate(), hosts, reservations, at(10_000))
    };
    // In whichever order the disk has them.
    let reversed = on_disk.iter().rev().cloned().collect();
    for (mut ledger, misfits) in [open(on_disk.clone()), open(reversed)] {
        ledger.sanity_check().unwrap();
        assert_eq!(misfits.len(), 2, "the owner learns of them");
        let granted: Vec<usize> = ledger.bookings().map(|booking| booking.grants.len()).collect();
        assert_eq!(granted, [1, 1, 0], "what has not begun gives way");
        let (answer, _) = ask(&mut ledger, at(10_000), "entry", hold(attempt("r3", 1), 1_050, 1));
        assert!(matches!(reason(answer), RefusalReason::NotEnough { free, .. } if free == Amount::ZERO));
        for begun in ["r0", "r1"] {
            ask(&mut ledger, at(10_000), "entry", SiteRequest::Release(attempt(begun, 1)));
            ledger.sanity_check().unwrap();
        }
        let (answer, _) = ask(&mut ledger, at(10_000), "entry", hold(attempt("r3", 1), 1_050, 1_500));
        assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
    }
}

#[test]
fn a_release_while_it_runs_gives_back_the_rest_even_when_the_clock_goes_back() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 1_000, 3_000));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    ledger.forget_past(at(50_000));
    while ledger.poll_output().is_some() {}
    let back = Now { monotonic: Millis(51_000), utc: Time(1_010) };
    let (_, records) = ask(&mut ledger, back, "entry", SiteRequest::Release(attempt("r", 1)));
    assert!(matches!(&records[..], [Record::Remove(_)]));
    let h1 = ledger.hosts().next().unwrap();
    let rest = Window { start: Time(1_050), end: Time(2_000) };
    assert_eq!(h1.reserved().peak(&ResourceName::new("cpu").unwrap(), rest), Amount::ZERO);
    ledger.sanity_check().unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Hold { request: u8, start: u8, amount: u64, seats: u8 },
    Confirm(u8),
    Release(u8),
    Pass(u64),
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u8, 0..40_u8, 1..4_500_u64, 1..3_u8)
            .prop_map(|(request, start, amount, seats)| Step::Hold { request, start, amount, seats }),
        3 => (0..12_u8).prop_map(Step::Confirm),
        2 => (0..12_u8).prop_map(Step::Release),
        1 => (1..4_000_u64).prop_map(Step::Pass),
        1 => Just(Step::Forget),
    ]
}

proptest! {
    /// Whatever is asked: no host is over-committed, and a view that hears every update shows exactly the ledger.
    #[test]
    fn a_view_that_hears_everything_shows_the_ledger(steps in prop::collection::vec(step(), 1..80)) {
        let mut ledger = ledger();
        let advert = Advert {
            site: id("site"), name: String::new(), sequence: 1, time_to_live_s: 9, contact: None, hosts: Default::default(),
            uplink: None, quotes: false, addresses: Vec::new(),
            features: Default::default(),
            offer: Default::default(),
        };
        let mut view = SiteView::new(advert, Millis(0), Millis(1));
        view.receive_snapshot(ledger.snapshot(at(0)), Millis(0));
        let mut time = 0;
        for step in steps {
            let request = match step {
                Step::Hold { request, start, amount, seats } => {
                    let (attempt, start) = (attempt(&request.to_string(), 1), 1_050 + i64::from(start) * 10);
                    Some(if seats == 1 { hold(attempt, start, amount) } else { hold_work(attempt, start, amount) })
                }
                Step::Confirm(request) => Some(confirm(attempt(&request.to_string(), 1))),
                Step::Release(request) => Some(SiteRequest::Release(attempt(&request.to_string(), 1))),
                Step::Pass(milliseconds) => {
                    time += milliseconds;
                    ledger.handle_timeout(at(time));
                    None
                }
                Step::Forget => {
                    ledger.forget_past(at(time));
                    None
                }
            };
            if let Some(request) = request {
                ledger.handle(at(time), Event::Request { from: id("entry"), network: None, token: ReplyToken(0), request });
            }
            while let Some(output) = ledger.poll_output() {
                if let Output::Publish(parts) = output {
                    let update = crate::protocol::ScheduleUpdate { site: id("site"), from: parts.from, changes: parts.changes };
                    prop_assert_eq!(view.receive_update(&update, Millis(time)), crate::view::Received::Applied);
                }
            }
            prop_assert_eq!(ledger.sanity_check(), Ok(()));
        }
        view.forget_before(at(time).utc);
        let known = view.fresh_schedules(Millis(time), Millis(u64::MAX)).expect("no gap").clone();
        prop_assert_eq!(known.version, ledger.version());
        prop_assert_eq!(known.schedules, ledger.snapshot(at(time)).schedules);
    }
}

#[test]
fn reservations_are_told_in_pages_and_holds_are_not() {
    let mut ledger = ledger();
    let mut expected = Vec::new();
    for number in 0..3 {
        let attempt = attempt(&format!("r{number}"), 1);
        assert!(matches!(
            ask(&mut ledger, at(0), "entry", hold(attempt.clone(), 2_000, 100)).0,
            SiteAnswer::Held { .. }
        ));
        if number != 1 {
            ask(&mut ledger, at(0), "entry", confirm(attempt.clone()));
            expected.push(attempt);
        }
    }
    let mut tell =
        |after: Option<AttemptId>| match ask(&mut ledger, at(0), "stranger", SiteRequest::Bookings { after }).0 {
            SiteAnswer::Bookings { bookings, is_complete: true, .. } => {
                bookings.into_iter().map(|booking| booking.attempt).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
    assert_eq!(tell(None), expected);
    assert_eq!(tell(Some(expected[0].clone())), expected[1..]);
    assert_eq!(tell(Some(expected[1].clone())), []);
}
