//! The uplink's books: what a booking takes of it, who is refused, what a restart with another link leaves, and that all of it is what a
//! slow sum over the bookings says.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;

use super::{
    super::{
        BookingRecord, Event, LedgerLimits, LocalWork, Output, ReplyToken,
        tests::{ask, at, attempt, cpu, grant, host, id, of_host, reason},
    },
    *,
};
use crate::{
    ids::RequestId,
    protocol::{AttemptId, HoldRequest, Refusal, RefusalReason, SiteAnswer, SiteRequest, TakeOverStep},
    resources::ResourceName,
    schedule::Schedule,
    time::{Millis, Now, Span, Time},
    trust::{OwnerPolicy, RequestStatement, testing},
    uplinks::unit_of,
};

const HOSTS: usize = 6;

/// A ledger with an uplink of so many Mbit/s; 0 is none.
fn open(mbps: u64, incarnation: u64, kept: Vec<BookingRecord>, now: Now) -> (Ledger, Vec<BookingRecord>) {
    let hosts = (0..HOSTS).map(|at| (host(&format!("h{at}")), Schedule::default()));
    let uplink = (mbps > 0).then(|| (unit_of(Amount(mbps)), Schedule::default()));
    let hosts = hosts.chain(uplink).collect();
    Ledger::open(id("site"), LedgerLimits::default(), incarnation, testing::open_gate(), hosts, kept, now)
}

/// Seats on hosts one after the other, of a request for `all` hosts that each send `mbps`, which last 100 s from `start` on.
fn hold(attempt: AttemptId, (mbps, all): (u64, u32), start: i64, hosts: std::ops::Range<usize>) -> SiteRequest {
    let text = format!(r#"{{"hosts":{all},"work":100,"per_host":{{"cpu":1000}},"traffic":{{"mbps":{mbps}}}}}"#);
    let asked = serde_json::from_str(&text).unwrap();
    let authorization = Arc::new(testing::authorize(1, &id("entry"), &attempt.request, &asked));
    let window = Window::starting(Time(start), Span(100));
    let grants = (0..).zip(hosts).map(|(seat, host)| grant(seat, &format!("h{host}"), window, 1000));
    SiteRequest::Hold(HoldRequest {
        attempt,
        variant: Default::default(),
        grants: grants.collect(),
        participants: vec![id("site"), id("other")],
        hold_for: Millis(5_000),
        may_substitute: false,
        authorization,
    })
}

fn confirm(ledger: &Ledger, attempt: AttemptId) -> SiteRequest {
    SiteRequest::Confirm { attempt, held_in: ledger.version().incarnation }
}

fn book(ledger: &mut Ledger, attempt: AttemptId, talk: (u64, u32), start: i64, hosts: std::ops::Range<usize>) {
    let (answer, _) = ask(ledger, at(0), "entry", hold(attempt.clone(), talk, start, hosts));
    assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
    let request = confirm(ledger, attempt.clone());
    ask(ledger, at(0), "entry", request);
    ask(ledger, at(0), "entry", SiteRequest::Settle(attempt));
    ledger.sanity_check().unwrap();
}

fn records(ledger: &Ledger) -> Vec<BookingRecord> {
    let kept = ledger.bookings().filter(|booking| !booking.is_held());
    kept.map(Booking::to_booking_record).collect()
}

fn used(schedule: &Schedule, at: i64) -> u64 {
    schedule.occupancy(&ResourceName::mbps()).map_or(0, |occupancy| occupancy.used_at(Time(at)).0)
}

#[test]
fn what_talks_takes_its_share_of_the_uplink_until_it_is_given_back() {
    let (mut ledger, _) = open(1000, 7, Vec::new(), at(0));
    // 2 of 4: 2 * 300 * 2 / 3.
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), (300, 4), 2_000, 0..2));
    assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
    // 1 of 2.
    let next = |number| hold(attempt("s", number), (601, 2), 2_099, 2..3);
    let (answer, _) = ask(&mut ledger, at(0), "entry", next(1));
    let is_held = matches!(&answer, SiteAnswer::Refused(Refusal { reason: RefusalReason::HeldByAnother { host, .. }, .. })
        if host.is_uplink());
    assert!(is_held, "{answer:?}");
    let request = confirm(&ledger, attempt("r", 1));
    ledger.handle(at(0), Event::Request { from: id("entry"), network: None, token: ReplyToken(1), request });
    let published: Vec<_> = std::iter::from_fn(|| ledger.poll_output())
        .filter_map(|output| if let Output::Publish(parts) = output { Some(parts.changes) } else { None })
        .flatten()
        .map(|change| of_host(&change).clone())
        .map(|change| (change.host.to_string(), change.amounts.into_values().map(|amount| amount.0).sum::<u64>()))
        .collect();
    assert_eq!(published, [("h0".to_owned(), 1000), ("h1".to_owned(), 1000), ("uplink".to_owned(), 400)]);
    let (answer, _) = ask(&mut ledger, at(0), "entry", next(2));
    let SiteAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
    assert_eq!(refusal.reason.to_string(), "the site's uplink: 601 Mbit/s asked, 600 Mbit/s free");
    assert!(refusal.shows_what_is_free());
    let shown: Vec<_> =
        refusal.hosts.iter().map(|state| (state.host.to_string(), used(&state.schedule, 2_000))).collect();
    assert_eq!(shown, [("h2".to_owned(), 0), ("uplink".to_owned(), 400)]);
    let snapshot = ledger.snapshot(at(0)).schedules;
    assert_eq!(
        snapshot.hosts().last().map(|(unit, schedule)| (unit.is_uplink(), used(schedule, 2_000))),
        Some((true, 400))
    );
    assert_eq!(ledger.hosts().count(), HOSTS, "it is no host");
    book(&mut ledger, attempt("s", 3), (600, 2), 2_099, 2..3);
    assert!(matches!(
        reason(ask(&mut ledger, at(0), "entry", hold(attempt("t", 1), (1, 2), 2_099, 3..4)).0),
        RefusalReason::UplinkFull { asked: Amount(1), free: Amount(0) }
    ));
    book(&mut ledger, attempt("t", 2), (900, 2), 2_099, 3..5);
    ask(&mut ledger, at(0), "entry", SiteRequest::Release(attempt("r", 1)));
    ledger.sanity_check().unwrap();
    book(&mut ledger, attempt("u", 1), (400, 2), 2_050, 0..1);
}

#[test]
fn without_a_limit_everything_has_room_and_a_limit_counts_what_was_booked_before() {
    let (mut ledger, _) = open(0, 7, Vec::new(), at(0));
    book(&mut ledger, attempt("r", 1), (Amount::MAX.0, 4), 2_000, 0..2);
    book(&mut ledger, attempt("s", 1), (500, 2), 2_000, 2..3);
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("t", 1), (1, 2), 2_000, 3..4));
    assert!(matches!(answer, SiteAnswer::Held { .. }) && ledger.uplink().is_none());
    let kept = records(&ledger);
    let json = serde_json::to_string(&kept[1]).unwrap();
    assert!(json.ends_with(r#""talk":{"traffic":{"mbps":500},"seats":2}}"#), "{json}");
    assert_eq!(serde_json::from_str::<BookingRecord>(&json).unwrap(), kept[1]);
    let (mut ledger, misfits) = open(800, 8, kept, at(0));
    ledger.sanity_check().unwrap();
    assert_eq!(misfits.len(), 1, "more than any link");
    let full = reason(ask(&mut ledger, at(0), "entry", hold(attempt("t", 2), (301, 2), 2_000, 3..4)).0);
    assert!(matches!(full, RefusalReason::UplinkFull { free: Amount(300), .. }), "{full}");
}

#[test]
fn of_a_smaller_link_what_has_begun_keeps_its_share_and_the_rest_is_lost() {
    let (mut ledger, _) = open(1000, 7, Vec::new(), at(0));
    for (name, start, hosts) in [("r0", 1_000, 0..1), ("r1", 1_050, 1..2), ("r2", 1_050, 2..3), ("r3", 1_200, 3..4)] {
        book(&mut ledger, attempt(name, 1), (300, 2), start, hosts);
    }
    for reverse in [false, true] {
        let mut kept = records(&ledger);
        if reverse {
            kept.reverse();
        }
        // r0 has begun, and only one more has room beside it.
        let (ledger, misfits) = open(600, 8, kept, at(10_000));
        ledger.sanity_check().unwrap();
        assert_eq!(misfits.len(), 1);
        let granted: usize = ledger.bookings().map(|booking| booking.grants.len()).sum();
        assert_eq!(granted, 3, "the fourth begins later");
        assert_eq!(ledger.bookings().filter(|booking| booking.lost.len() == 1).count(), 1);
        let (ledger, misfits) = open(100, 8, records(&ledger), at(10_000));
        ledger.sanity_check().unwrap();
        assert_eq!((misfits.len(), used(ledger.uplink().unwrap().reserved(), 1_060)), (3, 300), "it stays");
    }
}

#[test]
fn seats_that_are_left_may_load_the_link_more_than_all_did() {
    // All 6 here load nothing; 5 of them load it as 1 does.
    let (mut ledger, _) = open(300, 7, Vec::new(), at(0));
    book(&mut ledger, attempt("r", 1), (300, 6), 2_000, 0..6);
    assert_eq!(used(ledger.uplink().unwrap().reserved(), 2_000), 0);
    for (mbps, left, load) in [(300, 5, 300), (299, 0, 0)] {
        let hosts = (1..HOSTS).map(|at| (host(&format!("h{at}")), Schedule::default()));
        let hosts = hosts.chain([(unit_of(Amount(mbps)), Schedule::default())]).collect();
        let (limits, kept) = (LedgerLimits::default(), records(&ledger));
        let (ledger, misfits) = Ledger::open(id("site"), limits, 8, testing::open_gate(), hosts, kept, at(0));
        ledger.sanity_check().unwrap();
        let booking = ledger.bookings().next().unwrap();
        assert_eq!((misfits.len(), booking.grants.len(), booking.lost.len()), (1, left, 6 - left));
        assert_eq!(used(ledger.uplink().unwrap().reserved(), 2_000), load);
        for books in ledger.hosts() {
            assert_eq!(
                books.reserved().peak(&"cpu".parse().unwrap(), booking.window).0,
                if left > 0 { 1000 } else { 0 }
            );
        }
    }
}

#[test]
fn a_lost_seat_of_a_request_for_one_site_is_replaced_there_whatever_its_link_bears() {
    let (mut ledger, _) = open(1, 7, Vec::new(), at(0));
    let asked = |number, hosts| {
        let SiteRequest::Hold(mut hold) = hold(attempt("r", number), (300, 4), 2_000, hosts) else { panic!() };
        let text = r#"{"hosts":4,"work":100,"per_host":{"cpu":1000},"traffic":{"mbps":300},"sites_max":1}"#;
        let signed = serde_json::from_str(text).unwrap();
        hold.authorization = Arc::new(testing::authorize(1, &id("entry"), &hold.attempt.request, &signed));
        assert!(
            matches!(
                reason(ask(&mut open(1, 7, Vec::new(), at(0)).0, at(0), "entry", SiteRequest::Hold(hold.clone())).0),
                RefusalReason::NotAllowed(_)
            ),
            "with another site beside it"
        );
        hold.participants = vec![id("site")];
        SiteRequest::Hold(hold)
    };
    for (number, hosts) in [(1, 0..4), (2, 4..5)] {
        let (answer, _) = ask(&mut ledger, at(0), "entry", asked(number, hosts));
        assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
        let request = confirm(&ledger, attempt("r", number));
        ask(&mut ledger, at(0), "entry", request);
        ask(&mut ledger, at(0), "entry", SiteRequest::Settle(attempt("r", number)));
        if number == 1 {
            // A host is gone after a restart.
            let hosts = (1..HOSTS).map(|at| (host(&format!("h{at}")), Schedule::default()));
            let hosts = hosts.chain([(unit_of(Amount(1)), Schedule::default())]).collect();
            let (limits, kept) = (LedgerLimits::default(), records(&ledger));
            ledger = Ledger::open(id("site"), limits, 8, testing::open_gate(), hosts, kept, at(0)).0;
            assert_eq!(ledger.bookings().map(|booking| booking.grants.len()).collect::<Vec<_>>(), [3]);
        }
    }
    ledger.sanity_check().unwrap();
    assert_eq!(used(ledger.uplink().unwrap().promised(), 2_000), 0);
}

#[test]
fn the_owner_may_take_of_the_link_and_nobody_asks_for_it_as_a_host() {
    let (mut ledger, _) = open(1000, 7, Vec::new(), at(0));
    let window = Window::starting(Time(2_000), Span(100));
    let work = LocalWork {
        id: RequestId::new("w").unwrap(),
        host: HostId::uplink(),
        window,
        amounts: amounts_of(Amount(900)),
    };
    ledger.handle(at(0), Event::Local { token: ReplyToken(1), work });
    while ledger.poll_output().is_some() {}
    ledger.sanity_check().unwrap();
    let full = reason(ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), (101, 2), 2_000, 0..1)).0);
    assert!(matches!(full, RefusalReason::UplinkFull { free: Amount(100), .. }), "{full}");
    let (again, misfits) = open(1000, 8, records(&ledger), at(0));
    again.sanity_check().unwrap();
    assert_eq!((misfits.len(), used(again.uplink().unwrap().reserved(), 2_000)), (0, 900));
    let SiteRequest::Hold(asked) = hold(attempt("r", 2), (1, 2), 2_000, 0..1) else { panic!() };
    let grants = vec![Grant { place: Place::Host(HostId::uplink()), amounts: cpu(1000), ..asked.grants[0].clone() }];
    let (answer, _) = ask(&mut ledger, at(0), "entry", SiteRequest::Hold(HoldRequest { grants, ..asked }));
    assert!(matches!(reason(answer), RefusalReason::Malformed(what) if what.contains("the uplink is no host")));
}

#[test]
fn a_node_that_takes_over_finds_the_link_booked() {
    let (mut ledger, _) = open(1000, 7, Vec::new(), at(0));
    book(&mut ledger, attempt("r", 1), (300, 4), 2_000, 0..2);
    let asked = r#"{"hosts":4,"work":100,"per_host":{"cpu":1000},"traffic":{"mbps":300}}"#;
    let (asked, attempt) = (serde_json::from_str(asked).unwrap(), attempt("r", 1));
    let term = RequestStatement::FIRST_TERM + 1;
    let words = Arc::new(testing::authorize_in(term, 1, &id("f"), &attempt.request, &asked));
    for step in [TakeOverStep::Prepare, TakeOverStep::Commit] {
        let take = SiteRequest::TakeOver { attempt: attempt.clone(), authorization: words.clone(), step };
        let (answer, _) = ask(&mut ledger, at(1), "f", take);
        assert!(matches!(&answer, SiteAnswer::Booked { seats, .. } if seats.len() == 2), "{answer:?}");
        ledger = open(1000, 8, records(&ledger), at(1)).0;
        assert_eq!(used(ledger.uplink().unwrap().reserved(), 2_000), 400, "after a restart too");
    }
    ledger.sanity_check().unwrap();
}

#[test]
fn a_user_has_no_more_of_the_link_than_of_the_site() {
    let (mut ledger, _) = open(1000, 7, Vec::new(), at(0));
    let policy = OwnerPolicy { site_share_percent: Some(50), ..OwnerPolicy::default() };
    ledger.gate.lock().set_policy(policy);
    book(&mut ledger, attempt("r", 1), (300, 2), 2_000, 0..1);
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("s", 1), (201, 2), 2_000, 1..2));
    let SiteAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
    assert!(
        refusal.reason.to_string().contains("would have 501 of mbps at a time, 500 are allowed"),
        "{}",
        refusal.reason
    );
    let shown: Vec<_> = refusal.hosts.iter().map(|state| (state.host.as_str(), used(&state.schedule, 2_000))).collect();
    assert_eq!(shown, [("h1", 0), ("uplink", 1300)], "none of it is left, as far as this user goes");
    book(&mut ledger, attempt("s", 2), (200, 2), 2_000, 1..2);
    ask(&mut ledger, at(0), "entry", SiteRequest::Release(attempt("r", 1)));
    book(&mut ledger, attempt("t", 1), (300, 2), 2_000, 2..3);
}

/// What each seat of the requests sends, and how many seats they have.
const TALKS: [(u64, u32); 5] = [(60, 2), (40, 4), (35, 6), (90, 3), (0, 2)];

#[derive(Debug, Clone)]
enum Step {
    Hold { request: usize, attempt: u32, first: usize, seats: usize },
    Confirm(usize, u32),
    Settle(usize, u32),
    Release(usize, u32),
    Evict(usize),
    Pass(u64),
    Forget,
    Restart(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let of = || (0..TALKS.len(), 1..4_u32);
    prop_oneof![
        6 => (of(), 0..HOSTS, 1..5_usize)
            .prop_map(|((request, attempt), first, seats)| Step::Hold { request, attempt, first, seats }),
        5 => of().prop_map(|(request, attempt)| Step::Confirm(request, attempt)),
        4 => of().prop_map(|(request, attempt)| Step::Settle(request, attempt)),
        2 => of().prop_map(|(request, attempt)| Step::Release(request, attempt)),
        1 => (0..TALKS.len()).prop_map(Step::Evict),
        2 => (1..40_000_u64).prop_map(Step::Pass),
        1 => Just(Step::Forget),
        1 => (0..150_u64).prop_map(Step::Restart),
    ]
}

/// By the formula, one second after the other.
fn check_against_sums(ledger: &Ledger, now: Now, mbps: u64, begun: &BTreeSet<AttemptId>) {
    let Some(uplink) = ledger.uplink() else { return };
    let load = |seats: usize, (mbps, all): (u64, u32)| {
        let (here, all) = (seats as u64, u64::from(all));
        (here * mbps * (all - here)).div_ceil(all - 1)
    };
    for second in (now.utc.0..1_400).step_by(7) {
        let here: Vec<_> = ledger
            .bookings()
            .filter(|booking| (booking.window.start.0..booking.window.end.0).contains(&second))
            .collect();
        let talk = |booking: &Booking| TALKS[booking.attempt.request.as_str().parse::<usize>().unwrap()];
        let sum = |some: &dyn Fn(&Booking) -> bool| {
            here.iter()
                .filter(|booking| some(booking))
                .map(|booking| load(booking.grants.len(), talk(booking)))
                .sum::<u64>()
        };
        assert_eq!(used(uplink.promised(), second), sum(&|_| true), "promised at {second}");
        assert_eq!(used(uplink.reserved(), second), sum(&|booking| !booking.is_held()), "reserved at {second}");
        assert!(sum(&|_| true) <= mbps.max(sum(&|booking| begun.contains(&booking.attempt))), "too much at {second}");
        for (request, talk) in TALKS.iter().enumerate() {
            let is_of = |booking: &Booking| booking.attempt.request.as_str() == request.to_string();
            let seats = here.iter().filter(|booking| is_of(booking)).map(|booking| booking.grants.len()).sum();
            assert!(sum(&is_of) >= load(seats, *talk), "less than request {request} loads it");
        }
    }
}

proptest! {
    #[test]
    fn the_books_are_what_a_sum_over_the_bookings_says(steps in prop::collection::vec(step(), 1..60)) {
        let named = |request: usize, number| attempt(&request.to_string(), number);
        let (mut mbps, mut time, mut begun) = (100, 0, BTreeSet::new());
        let (mut ledger, _) = open(mbps, 1, Vec::new(), at(0));
        for step in steps {
            let now = at(time);
            let request = match step {
                Step::Hold { request, attempt, first, seats } => {
                    let last = (first + seats.min(TALKS[request].1 as usize)).min(HOSTS);
                    Some(hold(named(request, attempt), TALKS[request], 1_030 + 25 * i64::try_from(request).unwrap(), first..last))
                }
                Step::Confirm(request, number) => Some(confirm(&ledger, named(request, number))),
                Step::Settle(request, number) => Some(SiteRequest::Settle(named(request, number))),
                Step::Release(request, number) => Some(SiteRequest::Release(named(request, number))),
                Step::Evict(request) => {
                    let request = RequestId::new(&request.to_string()).unwrap();
                    ledger.handle(now, Event::Evict { token: ReplyToken(1), request });
                    None
                }
                Step::Pass(milliseconds) => {
                    time += milliseconds;
                    ledger.handle_timeout(at(time));
                    None
                }
                Step::Forget => {
                    ledger.forget_past(now);
                    None
                }
                Step::Restart(other) => {
                    mbps = other;
                    let kept = records(&ledger);
                    let has_begun = kept.iter().filter(|record| record.window.start <= now.utc);
                    begun = has_begun.map(|record| record.attempt.clone()).collect();
                    ledger = open(mbps, ledger.version().incarnation + 1, kept, now).0;
                    None
                }
            };
            if let Some(request) = request {
                ledger.handle(now, Event::Request { from: id("entry"), network: None, token: ReplyToken(0), request });
            }
            while ledger.poll_output().is_some() {}
            prop_assert_eq!(ledger.sanity_check(), Ok(()));
            check_against_sums(&ledger, at(time), mbps, &begun);
        }
    }
}
