//! The ledger's answers one by one, and that what it publishes is what it has. How ledgers and negotiations stand
//! together against losses and crashes is simulated by `kolo-sim faults`.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    amount::Amount,
    host::Speed,
    ids::{RequestId, SeatNumber},
    plan::Place,
    protocol::{Advert, AttemptStatus, HoldRequest, RefusalReason, SiteAnswer, SiteRequest, TakeOverStep},
    resources::{Amounts, ResourceName},
    time::Span,
    trust::{Authorization, RequestStatement, testing},
    view::SiteView,
};

pub(super) fn id(text: &str) -> SiteId {
    SiteId::new(text).unwrap()
}

pub(super) fn cpu(amount: u64) -> Amounts {
    Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
}

pub(super) fn host(name: &str) -> Host {
    Host { id: HostId::new(name).unwrap(), capacity: cpu(4000), attributes: BTreeMap::new(), speed: Speed::REFERENCE }
}

pub(super) fn at(milliseconds: u64) -> Now {
    Now { monotonic: Millis(milliseconds), utc: Time(1_000 + i64::try_from(milliseconds / 1000).unwrap()) }
}

pub(super) fn grant(seat: u32, host: &str, window: Window, amount: u64) -> Grant {
    let place = Place::Host(HostId::new(host).unwrap());
    Grant { seat: SeatNumber(seat), place, window, amounts: cpu(amount) }
}

fn ledger() -> Ledger {
    let slower = Host { speed: Speed::try_from(500).unwrap(), ..host("h2") };
    let hosts = vec![(host("h1"), Schedule::default()), (slower, Schedule::default())];
    Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, Vec::new(), at(0)).0
}

fn attempt(request: &str, attempt: u32) -> AttemptId {
    AttemptId { entry_point: id("entry"), request: RequestId::new(request).unwrap(), attempt }
}

fn hold(attempt: AttemptId, start: i64, amount: u64) -> SiteRequest {
    let authorization = authorization(&attempt.request);
    SiteRequest::Hold(HoldRequest {
        attempt,
        grants: vec![grant(0, "h1", Window::starting(Time(start), Span(100)), amount)],
        participants: vec![id("site"), id("other")],
        hold_for: Millis(5_000),
        authorization,
    })
}

/// Two seats for 100 s of work, one of them on the slower host.
fn hold_work(attempt: AttemptId, start: i64, amount: u64) -> SiteRequest {
    let asked = serde_json::from_str(r#"{"hosts":2,"work":100,"total":{"cpu":9000}}"#).unwrap();
    let authorization = Arc::new(testing::authorize(1, &id("entry"), &attempt.request, &asked));
    let window = |length| Window::starting(Time(start), Span(length));
    let grants = vec![grant(0, "h2", window(200), amount), grant(1, "h1", window(100), amount)];
    let participants = vec![id("site")];
    SiteRequest::Hold(HoldRequest { attempt, grants, participants, hold_for: Millis(5_000), authorization })
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
    ledger.handle(now, Event::Request { from: id(from), token: ReplyToken(1), request });
    let mut records = Vec::new();
    loop {
        match ledger.poll_output().expect("every request is answered") {
            Output::Persist(record) => records.push(record),
            Output::Reply { answer, .. } => return (answer, records),
            Output::Publish(_) | Output::Inquire { .. } | Output::FeedApplied { .. } => {}
        }
    }
}

pub(super) fn reason(answer: SiteAnswer) -> RefusalReason {
    match answer {
        SiteAnswer::Refused(refusal) => refusal.reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn confirm(attempt: AttemptId) -> SiteRequest {
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
        Event::Request { from: id("entry"), token: ReplyToken(1), request: SiteRequest::Release(attempt("r", 1)) },
    );
    let published: Vec<(String, Window)> = std::iter::from_fn(|| ledger.poll_output())
        .filter_map(|output| match output {
            Output::Publish(parts) => Some(parts.changes),
            _ => None,
        })
        .flatten()
        .map(|change| (change.host.to_string(), change.window))
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
        assert_eq!(answer, SiteAnswer::Held { version: ledger.version(), hold_for: Millis(expected) });
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
    let put = |record: &Record| match record {
        Record::Put(kept) => Some(kept.clone()),
        Record::Gone(_) | Record::Remove(_) => None,
    };
    records.iter().filter_map(put).collect()
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
    let on_disk: Vec<BookingRecord> = ledger
        .bookings()
        .filter_map(|booking| match booking.to_record() {
            Record::Put(reservation) => Some(reservation),
            Record::Gone(_) | Record::Remove(_) => None,
        })
        .collect();
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
            site: id("site"), name: String::new(), sequence: 1, time_to_live_s: 9, contact: None, hosts: Vec::new(), addresses: Vec::new(),
            features: Default::default(),
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
                ledger.handle(at(time), Event::Request { from: id("entry"), token: ReplyToken(0), request });
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
        for (name, schedule) in ledger.snapshot(at(time)).hosts {
            prop_assert_eq!(&known.by_host[&name], &schedule);
        }
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

#[test]
fn of_two_nodes_that_the_user_went_to_the_one_of_the_higher_term_acts_for_every_try() {
    let take_in = |term, node: &str, number| SiteRequest::TakeOver {
        attempt: attempt("r", number),
        authorization: word_in(term, 1, node),
        step: TakeOverStep::Prepare,
    };
    let word = |node: &str| word_of(1, node);
    let take = |node: &str, number| take_in(term_of(node), node, number);
    let mut ledger = ledger();
    for number in [1, 2] {
        ask(&mut ledger, at(0), "entry", hold(attempt("r", number), 2_000, 1_000));
        ask(&mut ledger, at(0), "entry", confirm(attempt("r", number)));
    }
    assert!(matches!(ask(&mut ledger, at(1), "f", take("f", 1)).0, SiteAnswer::Booked { .. }));
    // "g" knows only the first attempt, "d" only the second.
    let (answer, _) = ask(&mut ledger, at(2), "g", take("g", 1));
    let SiteAnswer::Booked { before, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(before, Some(id("f")), "who acted so far must hear of it");
    let (answer, _) = ask(&mut ledger, at(2), "g", take("g", 1));
    let SiteAnswer::Booked { before, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(before, Some(id("f")), "also when the first answer was lost");
    let last = Arc::new(word("g").request.clone());
    for term in [term_of("g") - 1, term_of("g")] {
        let (answer, records) = ask(&mut ledger, at(3), "d", take_in(term, "d", 2));
        assert_eq!((reason(answer), records.len()), (RefusalReason::HandedOver(last.clone()), 0));
    }
    let (answer, _) = ask(&mut ledger, at(3), "f", SiteRequest::Inspect(attempt("r", 1)));
    assert_eq!(reason(answer), RefusalReason::HandedOver(last.clone()), "with the words that show it");
    ledger.sanity_check().unwrap();
    // What is in a node's hands already it can still give back.
    assert_eq!(ledger.refusal_of_takeover(&attempt("r", 1), &id("g"), last.clone()), None);
    assert!(ledger.refusal_of_takeover(&attempt("r", 1), &id("f"), last).is_some());
}

#[test]
fn a_site_that_has_any_part_of_a_request_knows_the_later_of_two_nodes_after_a_crash_too() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 1_000));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let take = |node, number| SiteRequest::TakeOver {
        attempt: attempt("r", number),
        authorization: word_of(1, node),
        step: TakeOverStep::Prepare,
    };
    ask(&mut ledger, at(1), "g", take("g", 1));
    let on_disk = ledger.bookings().map(|booking| match booking.to_record() {
        Record::Put(reservation) => reservation,
        other => panic!("{other:?}"),
    });
    let kept: Vec<BookingRecord> = on_disk.collect();
    let hosts = vec![(host("h1"), Schedule::default()), (host("h2"), Schedule::default())];
    let (site, limits) = (id("site"), LedgerLimits::default());
    let (mut ledger, misfits) = Ledger::open(site, limits, 8, testing::open_gate(), hosts, kept, at(2));
    assert_eq!(misfits, []);
    // Attempts that another node has made, or that never were: "f" comes with an earlier word than "g", "h" with a later one.
    for number in [2, 3] {
        let (answer, records) = ask(&mut ledger, at(3), "f", take("f", number));
        let later = RefusalReason::HandedOver(Arc::new(word_of(1, "g").request.clone()));
        assert_eq!((reason(answer), records.len()), (later, 0));
    }
    // It hears of all that is here of the request, until it coordinates it.
    let (answer, _) = ask(&mut ledger, at(4), "h", take("h", 3));
    let SiteAnswer::Booked { before, others, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((before, others), (Some(id("g")), vec![attempt("r", 1)]));
    for (number, seats_here) in [(1, 1), (2, 0)] {
        let (answer, _) = ask(&mut ledger, at(4), "h", take("h", number));
        let SiteAnswer::Booked { seats, others, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((seats.len(), others), (seats_here, Vec::new()));
    }
}

/// The term in which users sign for a node: a higher one for each letter from `e` on.
fn term_of(node: &str) -> u64 {
    RequestStatement::FIRST_TERM + node.bytes().next().map_or(0, |letter| u64::from(letter.saturating_sub(b'e')))
}

/// The words of a user about request `r`, for a node.
fn word_of(user: u64, node: &str) -> Arc<Authorization> {
    word_in(term_of(node), user, node)
}

fn word_in(term: u64, user: u64, node: &str) -> Arc<Authorization> {
    let asked = serde_json::from_str(r#"{"hosts":1,"duration":100,"total":{"cpu":4500}}"#).unwrap();
    Arc::new(testing::authorize_in(term, user, &id(node), &attempt("r", 1).request, &asked))
}

/// Site `site` has confirmed an attempt with the participants `site`, `a` and `b`, and does not know its outcome.
fn confirmed_with_others() -> Ledger {
    let mut ledger = ledger();
    let SiteRequest::Hold(mut held) = hold(attempt("r", 1), 2_000, 1_000) else { panic!() };
    held.participants = vec![id("a"), id("b"), id("site")];
    ask(&mut ledger, at(0), "entry", SiteRequest::Hold(held));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    ledger
}

/// What a participant answers to this round of questions; whether others are asked again at once.
fn answers(ledger: &mut Ledger, from: &str, round: u32, booking: AttemptStatus) -> bool {
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
    ledger.forget_past(at(2_060_000));
    assert_eq!(ledger.poll_output(), Some(Output::Persist(Record::Remove(attempt("r", 1)))));
}

#[test]
fn a_takeover_leaves_the_outcome_open_until_its_node_commits() {
    let take = |step| SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word_of(1, "f"), step };
    for (steps, is_kept) in
        [(&[TakeOverStep::Prepare][..], false), (&[TakeOverStep::Prepare, TakeOverStep::Commit], true)]
    {
        let mut ledger = confirmed_with_others();
        for step in steps {
            let (answer, _) = ask(&mut ledger, at(1), "f", take(*step));
            let SiteAnswer::Booked { seats, is_settled, .. } = answer else { panic!("{answer:?}") };
            assert_eq!((seats.len(), is_settled), (1, *step == TakeOverStep::Commit));
        }
        // The new node is gone before it has reported anything. "b" never confirmed.
        answers(&mut ledger, "b", 1, AttemptStatus::Aborted);
        assert_eq!(ledger.bookings().count(), usize::from(is_kept), "{steps:?}");
    }
    let mut ledger = confirmed_with_others();
    let (answer, records) = ask(&mut ledger, at(1), "f", take(TakeOverStep::Abort));
    assert!(matches!(answer, SiteAnswer::Booked { seats, .. } if seats.is_empty()), "at once, and nothing is settled");
    assert!(matches!(records.last(), Some(Record::Remove(_))) && ledger.bookings().count() == 0);
}

#[test]
fn who_knows_the_name_of_a_request_alone_ends_no_try_of_it() {
    let mut ledger = ledger();
    let held = hold(attempt("r", 1), 2_000, 1_000);
    assert!(matches!(ask(&mut ledger, at(0), "entry", held.clone()).0, SiteAnswer::Held { .. }));
    let (_, before) =
        (ask(&mut ledger, at(0), "stranger", SiteRequest::Lookup(attempt("r", 1).request)), ledger.version());
    for number in [1, 2, u32::MAX] {
        let question = SiteRequest::Inquire(attempt("r", number));
        ask(&mut ledger, at(0), "stranger", question);
        let takeover = SiteRequest::TakeOver {
            attempt: attempt("r", number),
            authorization: word_of(2, "stranger"),
            step: TakeOverStep::Prepare,
        };
        ask(&mut ledger, at(0), "stranger", takeover);
    }
    assert_eq!(ledger.version(), before);
    assert!(matches!(ask(&mut ledger, at(0), "entry", held).0, SiteAnswer::Held { .. }), "not another user's");
    assert!(matches!(ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1))).0, SiteAnswer::Confirmed { .. }));
    ask(&mut ledger, at(0), "entry", SiteRequest::Release(attempt("r", 1)));
    let next = hold(attempt("r", 2), 2_000, 1_000);
    assert!(matches!(ask(&mut ledger, at(0), "entry", next).0, SiteAnswer::Held { .. }), "nor a question");
    // The user's own word ends an attempt that is not confirmed yet: who acts now goes by the answer.
    let takeover =
        SiteRequest::TakeOver { attempt: attempt("r", 2), authorization: word_of(1, "f"), step: TakeOverStep::Prepare };
    let (answer, _) = ask(&mut ledger, at(1), "f", takeover);
    assert!(matches!(answer, SiteAnswer::Booked { seats, .. } if seats.is_empty()));
    let (answer, _) = ask(&mut ledger, at(1), "entry", confirm(attempt("r", 2)));
    assert_eq!(reason(answer), RefusalReason::NoSuchHold);
}

#[test]
fn a_request_that_was_taken_over_is_still_used_once() {
    let mut ledger = ledger();
    let by = |node: &str, number, start| {
        let SiteRequest::Hold(mut hold) = hold(attempt("r", number), start, 1_000) else { panic!() };
        hold.authorization = word_of(1, node);
        hold.attempt.entry_point = id(node);
        SiteRequest::Hold(hold)
    };
    assert!(matches!(ask(&mut ledger, at(0), "entry", by("entry", 1, 2_000)).0, SiteAnswer::Held { .. }));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let takeover =
        SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word_of(1, "f"), step: TakeOverStep::Commit };
    assert!(matches!(ask(&mut ledger, at(1), "f", takeover).0, SiteAnswer::Booked { .. }));
    for (node, number, start) in [("f", 7, 2_000), ("f", 8, 4_000), ("entry", 2, 2_000), ("entry", 3, 4_000)] {
        let (answer, _) = ask(&mut ledger, at(2), node, by(node, number, start));
        let RefusalReason::NotAllowed(denial) = reason(answer) else { panic!("{node} {number}") };
        assert_eq!(denial.rule, crate::trust::Rule::HostCount);
    }
    let give_back =
        SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word_of(1, "f"), step: TakeOverStep::Abort };
    ask(&mut ledger, at(3), "f", give_back);
    assert!(matches!(ask(&mut ledger, at(3), "f", by("f", 9, 2_000)).0, SiteAnswer::Held { .. }));
}

#[test]
fn what_was_taken_over_is_given_back_by_the_word_that_holds_and_no_earlier_one() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 1_000));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let of = |node: &str, term| word_in(term, 1, node);
    let take =
        |word| SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word, step: TakeOverStep::Prepare };
    let give =
        |word| SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word, step: TakeOverStep::Abort };
    for (node, issued) in [("f", 2), ("g", 3), ("f", 4)] {
        assert!(matches!(ask(&mut ledger, at(1), node, take(of(node, issued))).0, SiteAnswer::Booked { .. }));
    }
    let last = RefusalReason::HandedOver(Arc::new(of("f", 4).request.clone()));
    for (node, late, expected) in [
        ("f", give(of("f", 2)), RefusalReason::NotYours),
        ("f", SiteRequest::Release(attempt("r", 1)), RefusalReason::NotYours),
        ("g", give(of("g", 3)), last.clone()),
        ("entry", SiteRequest::Release(attempt("r", 1)), last),
    ] {
        let (answer, records) = ask(&mut ledger, at(2), node, late);
        assert_eq!((reason(answer), records.len()), (expected, 0));
    }
    for _ in 0..2 {
        let (answer, _) = ask(&mut ledger, at(3), "f", give(of("f", 4)));
        assert!(matches!(answer, SiteAnswer::Booked { seats, .. } if seats.is_empty()));
    }
    assert_eq!(ledger.bookings().count(), 0);
}
