//! Floating seats: what is promised is kept through moves, restarts and hosts that go; what is bound stays; whole hosts are exact.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    super::{
        Event, GoneRecord, HostLedger, JobStage, LedgerLimits, LocalWork, QueueOrder, QueuedJob, ReplyToken,
        tests::{ask, at, attempt, cpu, grant, host, id, reason},
    },
    *,
};
use crate::{
    amount::Amount,
    binding::{Answer, Need, Seat, Witness},
    ids::SeatNumber,
    protocol::{ClassesLeft, HoldRequest, RefusalReason, SiteAnswer, SiteRequest},
    request::Request,
    resources::ResourceName,
    schedule::Schedule,
    time::{Span, Window},
    trust::testing,
};

fn class() -> HostId {
    HostId::new("n").unwrap()
}

/// Hosts n-0, n-1, ... of one class.
pub(in crate::ledger) fn books(numbers: impl IntoIterator<Item = usize>) -> Vec<HostLedger> {
    let one = |number: usize| HostLedger::new(host(&format!("n-{number}")), Schedule::default());
    numbers.into_iter().map(|number| one(number).in_class(Some(class()))).collect()
}

pub(in crate::ledger) fn open(
    hosts: Vec<HostLedger>,
    incarnation: u64,
    kept: Vec<BookingRecord>,
    now: Now,
) -> (Ledger, Vec<BookingRecord>) {
    let opened =
        Ledger::open_with(id("site"), LedgerLimits::default(), incarnation, testing::open_gate(), hosts, kept, now);
    assert_eq!(opened.0.version().change, 0, "what moves while it opens is no change of a version that others know");
    opened
}

/// A hold of seats on these hosts, `amount` on each, for `length` seconds.
pub(in crate::ledger) fn hold_on(
    of: &str,
    hosts: &[usize],
    (start, length): (i64, u64),
    amount: u64,
    may_substitute: bool,
) -> HoldRequest {
    let asked = format!(r#"{{"hosts":{},"duration":{length},"per_host":{{"cpu":{amount}}}}}"#, hosts.len());
    let asked: Request = serde_json::from_str(&asked).unwrap();
    let window = Window::starting(Time(start), Span(length));
    let attempt = attempt(of, 1);
    HoldRequest {
        variant: Default::default(),
        grants: (0..).zip(hosts).map(|(seat, host)| grant(seat, &format!("n-{host}"), window, amount)).collect(),
        participants: vec![id("site")],
        hold_for: Millis(60_000),
        may_substitute,
        authorization: testing::authorize(1, &id("entry"), &attempt.request, &asked).into(),
        attempt,
    }
}

pub(in crate::ledger) fn hold(of: &str, host: usize, window: (i64, u64), amount: u64) -> HoldRequest {
    hold_on(of, &[host], window, amount, true)
}

/// What is on disk.
pub(super) type Disk = BTreeMap<AttemptId, BookingRecord>;

pub(super) fn write(disk: &mut Disk, record: &Record) {
    disk.extend(record.put().iter().map(|booking| (booking.attempt.clone(), booking.clone())));
    if let Record::Gone(GoneRecord { attempt, .. }) | Record::Remove(attempt) = record {
        disk.remove(attempt);
    }
}

pub(super) fn told(ledger: &mut Ledger, disk: &mut Disk, now: Now, request: SiteRequest) -> SiteAnswer {
    let (answer, records) = ask(ledger, now, "entry", request);
    records.iter().for_each(|record| write(disk, record));
    drain(ledger, disk);
    answer
}

pub(super) fn drain(ledger: &mut Ledger, disk: &mut Disk) {
    while let Some(output) = ledger.poll_output() {
        if let Output::Persist(record) = output {
            write(disk, &record);
        }
    }
}

pub(super) fn book(ledger: &mut Ledger, disk: &mut Disk, now: Now, hold: HoldRequest) -> SiteAnswer {
    let incarnation = ledger.version().incarnation;
    told(ledger, disk, now, SiteRequest::Book { hold, incarnation })
}

pub(in crate::ledger) fn place(ledger: &Ledger, of: &str) -> Place {
    let booking = ledger.bookings().find(|booking| booking.attempt.request.as_str() == of).unwrap();
    booking.grants[0].place.clone()
}

pub(super) fn floating(host: usize) -> Place {
    Place::Floating { class: class(), host: HostId::new(&format!("n-{host}")).unwrap() }
}

pub(super) fn bound(host: usize) -> Place {
    Place::Bound { class: class(), host: HostId::new(&format!("n-{host}")).unwrap() }
}

#[test]
fn a_seat_in_the_way_moves_is_written_with_what_needs_its_room_and_is_bound_at_its_start() {
    let (mut ledger, _) = open(books(0..2), 7, Vec::new(), at(0));
    let mut disk = Disk::new();
    for (of, host, window) in [("a", 0, (1_100, 100)), ("b", 1, (1_300, 100))] {
        let answer = book(&mut ledger, &mut disk, at(0), hold(of, host, window, 4_000));
        assert!(matches!(&answer, SiteAnswer::Confirmed { places, .. } if places.len() == 1), "{answer:?}");
        assert_eq!(place(&ledger, of), floating(host));
    }
    // [1,150, 1,350) has room on no host until one of them moves.
    let asked = SiteRequest::Hold(hold("c", 0, (1_150, 200), 4_000));
    let answer = told(&mut ledger, &mut disk, at(0), asked);
    let SiteAnswer::Held { version, .. } = answer else { panic!("{answer:?}") };
    ledger.sanity_check().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|of| place(&ledger, of).host().clone());
    assert!(a == b && a != c, "{a} {b} {c}");
    let is_moved = |record: &BookingRecord| record.grants[0].place == place(&ledger, record.attempt.request.as_str());
    assert_eq!(disk.values().filter(|record| is_moved(record)).count(), 1, "a hold writes nothing");
    let confirm = SiteRequest::Confirm { attempt: attempt("c", 1), held_in: version.incarnation };
    let (answer, records) = ask(&mut ledger, at(0), "entry", confirm);
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }));
    assert!(matches!(&records[..], [Record::PutAll(all)] if all.len() == 2), "{records:?}");
    records.iter().for_each(|record| write(&mut disk, record));

    let (again, misfits) = open(books(0..2), 8, disk.values().cloned().collect(), at(0));
    assert!(misfits.is_empty(), "{misfits:?}");
    again.sanity_check().unwrap();
    assert!(["a", "b", "c"].iter().all(|of| place(&again, of) == place(&ledger, of)));

    for of in ["a", "b", "c"] {
        told(&mut ledger, &mut disk, at(0), SiteRequest::Settle(attempt(of, 1)));
    }
    assert_eq!(ledger.poll_timeout(), Some(Millis(100_000)));
    ledger.handle_timeout(at(100_000));
    drain(&mut ledger, &mut disk);
    assert!(matches!(place(&ledger, "a"), Place::Bound { .. }) && place(&ledger, "c").is_floating());
    assert_eq!(disk[&attempt("a", 1)].grants[0].place, place(&ledger, "a"), "on disk when it begins");
    let answer = told(&mut ledger, &mut disk, at(100_000), SiteRequest::Inspect(attempt("a", 1)));
    let expected = vec![(SeatNumber(0), place(&ledger, "a"))];
    assert!(matches!(answer, SiteAnswer::Booked { places, .. } if places == expected));
}

#[test]
fn hosts_that_were_named_stay_and_what_floats_makes_room_for_them() {
    let (mut ledger, _) = open(books(0..2), 7, Vec::new(), at(0));
    let mut disk = Disk::new();
    book(&mut ledger, &mut disk, at(0), hold("a", 0, (1_100, 100), 4_000));
    let named = hold_on("b", &[0], (1_100, 100), 4_000, false);
    assert!(matches!(book(&mut ledger, &mut disk, at(0), named), SiteAnswer::Confirmed { .. }));
    assert_eq!(place(&ledger, "a"), floating(1));
    assert_eq!(place(&ledger, "b"), Place::Host(HostId::new("n-0").unwrap()));
    ledger.sanity_check().unwrap();
    let own = |host: &str| LocalWork {
        id: RequestId::new("own").unwrap(),
        host: HostId::new(host).unwrap(),
        window: Window { start: Time(1_150), end: Time(1_160) },
        amounts: cpu(1),
    };
    ledger.handle(at(0), Event::Local { token: ReplyToken(1), work: own("n-1") });
    drain(&mut ledger, &mut disk);
    assert_eq!(ledger.bookings().count(), 2, "nothing is left that could move");
    // What begins now is bound to the host that is named.
    book(&mut ledger, &mut disk, at(0), hold("d", 1, (1_000, 50), 4_000));
    assert_eq!(place(&ledger, "d"), Place::Host(HostId::new("n-1").unwrap()));
    let mut floats = hold("e", 0, (1_500, 50), 1);
    floats.grants[0].place = floating(0);
    let refused = reason(told(&mut ledger, &mut disk, at(0), SiteRequest::Hold(floats)));
    assert!(matches!(refused, RefusalReason::Malformed(_)), "{refused}");
}

#[test]
fn hosts_that_go_cost_nothing_while_others_are_left_and_then_the_fewest() {
    let (mut ledger, _) = open(books(0..3), 7, Vec::new(), at(0));
    let mut disk = Disk::new();
    for (of, host, window) in
        [("long", 0, (1_100, 300)), ("x", 1, (1_100, 100)), ("y", 1, (1_200, 100)), ("now", 2, (1_000, 500))]
    {
        book(&mut ledger, &mut disk, at(0), hold(of, host, window, 4_000));
    }
    // n-0 goes, n-9 comes and is used at once.
    assert_eq!(ledger.replace_hosts(at(1_000), books([1, 2, 9])), Vec::new());
    drain(&mut ledger, &mut disk);
    assert_eq!(place(&ledger, "long"), floating(9));
    ledger.sanity_check().unwrap();
    // One host is left for what floats: the two short ones fit there, the long one does not.
    let misfits = ledger.replace_hosts(at(2_000), books([2, 9]));
    drain(&mut ledger, &mut disk);
    assert_eq!(misfits.iter().map(|one| one.attempt.request.as_str()).collect::<Vec<_>>(), ["long"]);
    assert_eq!((place(&ledger, "x"), place(&ledger, "y")), (floating(9), floating(9)));
    assert_eq!(place(&ledger, "now"), Place::Host(HostId::new("n-2").unwrap()), "what has begun stays");
    ledger.sanity_check().unwrap();
    // The disk is behind by a move that nothing rests on yet.
    let (again, lost) = open(books([2, 9]), 8, disk.values().cloned().collect(), at(2_000));
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!((place(&again, "x"), place(&again, "y")), (floating(9), floating(9)));
    // Where classes are bound early, what floats stays on its host.
    let early =
        vec![HostLedger::new(host("n-9"), Schedule::default()), HostLedger::new(host("n-2"), Schedule::default())];
    let (again, lost) = open(early, 9, again.bookings().map(Booking::to_booking_record).collect(), at(2_000));
    assert!(lost.is_empty());
    assert_eq!(place(&again, "x"), bound(9));
}

#[test]
fn what_moves_is_written_in_records_of_bounded_size() {
    let (hosts, seats) = (2 * MOVES_MAX + 2, MOVES_MAX + 1);
    let (mut ledger, _) = open(books(0..hosts), 7, Vec::new(), at(0));
    let mut disk = Disk::new();
    for number in 0..seats {
        book(&mut ledger, &mut disk, at(0), hold(&format!("r{number}"), number, (1_100, 100), 4_000));
    }
    let named: Vec<usize> = (0..seats).collect();
    let many = SiteRequest::Hold(hold_on("many", &named, (1_100, 100), 4_000, false));
    let refused = reason(told(&mut ledger, &mut disk, at(0), many));
    assert!(matches!(refused, RefusalReason::NotEnough { .. }), "{refused}");
    let fewer = SiteRequest::Hold(hold_on("fewer", &named[1..], (1_100, 100), 4_000, false));
    assert!(matches!(told(&mut ledger, &mut disk, at(0), fewer), SiteAnswer::Held { .. }));
    // What has moved for the hold is not on disk; with one more it would be too many.
    let one = SiteRequest::Hold(hold_on("one", &[0], (1_100, 100), 4_000, false));
    let (answer, records) = ask(&mut ledger, at(0), "entry", one);
    assert!(matches!(answer, SiteAnswer::Held { .. }));
    let sizes = |records: &[Record]| records.iter().map(|record| record.put().len()).collect::<Vec<_>>();
    assert_eq!(sizes(&records), [MOVES_MAX]);
    ledger.sanity_check().unwrap();

    while ledger.poll_output().is_some() {}
    assert_eq!(ledger.replace_hosts(at(0), books(1_000..1_000 + seats)), Vec::new());
    let outputs = std::iter::from_fn(|| ledger.poll_output());
    let records: Vec<Record> =
        outputs.filter_map(|output| if let Output::Persist(record) = output { Some(record) } else { None }).collect();
    assert_eq!(sizes(&records), [MOVES_MAX, 1]);
}

#[test]
fn a_seat_shares_no_host_with_one_of_its_request_that_floats() {
    let (mut ledger, _) = open(books(0..2), 7, Vec::new(), at(0));
    let mut disk = Disk::new();
    let both = hold_on("r", &[0, 1], (1_100, 100), 1_000, true);
    let one = |seat, number| {
        let grants = vec![grant(seat, "n-0", both.grants[0].window, 1_000)];
        HoldRequest { attempt: attempt("r", number), grants, ..both.clone() }
    };
    book(&mut ledger, &mut disk, at(0), one(0, 1));
    let answer = told(&mut ledger, &mut disk, at(0), SiteRequest::Hold(one(1, 2)));
    let expected = vec![(SeatNumber(1), floating(1))];
    assert!(matches!(&answer, SiteAnswer::Held { places, .. } if *places == expected), "{answer:?}");
}

#[test]
fn what_lengthens_a_reservation_is_on_the_hosts_that_its_seats_have_come_to() {
    let (mut ledger, _) = open(books(0..2), 7, Vec::new(), at(0));
    let mut disk = Disk::new();
    let longer = |of: &str, host| {
        let asked = r#"{"hosts":1,"duration":100,"per_host":{"cpu":4000},"extends":"base"}"#;
        let asked: Request = serde_json::from_str(asked).unwrap();
        let hold = hold(of, host, (1_200, 100), 4_000);
        let authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
        HoldRequest { authorization, ..hold }
    };
    book(&mut ledger, &mut disk, at(0), hold("base", 0, (1_100, 100), 4_000));
    book(&mut ledger, &mut disk, at(0), hold_on("named", &[0], (1_100, 100), 4_000, false));
    assert_eq!(place(&ledger, "base"), floating(1), "it has moved");
    let refused = reason(book(&mut ledger, &mut disk, at(0), longer("more", 0)));
    assert_eq!(
        refused.to_string(),
        "refused by rule `candidates`: host n-0 is not one of request base, which it lengthens and which is on n-1"
    );
    assert_eq!(place(&ledger, "base"), bound(1), "so that the next one can be right");
    assert!(matches!(book(&mut ledger, &mut disk, at(0), longer("more", 1)), SiteAnswer::Confirmed { .. }));
    assert_eq!(place(&ledger, "more"), Place::Host(HostId::new("n-1").unwrap()));
    let again = reason(book(&mut ledger, &mut disk, at(0), longer("again", 1)));
    assert!(matches!(again, RefusalReason::NotEnough { .. }), "another host is none that it could have: {again}");
}

#[test]
fn seats_that_make_room_cost_the_own_queue_nothing_that_it_had_not_before() {
    let (mut ledger, _) = open(books(0..2), 7, Vec::new(), at(0));
    let mut disk = Disk::new();
    book(&mut ledger, &mut disk, at(0), hold("floats", 0, (1_100, 100), 4_000));
    let job = QueuedJob {
        attempt: AttemptId { entry_point: id("site"), request: RequestId::new("job").unwrap(), attempt: 0 },
        arrival: Time::ZERO,
        length: Span(150),
        deadline: None,
        hosts: 2,
        amounts: cpu(4_000),
        preempt: false,
        first_begun: None,
    };
    ledger.handle(at(0), Event::Queue { token: ReplyToken(1), order: QueueOrder::Add(vec![job]) });
    drain(&mut ledger, &mut disk);
    let start = |ledger: &Ledger| match ledger.own_jobs().next().unwrap().stage {
        JobStage::Waits(planned) => planned.start,
        JobStage::Runs(_) => None,
    };
    assert_eq!(start(&ledger), Some(Time(1_200)), "both hosts are free from then on");
    // Between the host that the seat leaves and the one that it goes to, the job could begin at once.
    let named = hold_on("named", &[0], (1_100, 100), 4_000, false);
    let answer = book(&mut ledger, &mut disk, at(0), named);
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
    assert_eq!((place(&ledger, "floats"), start(&ledger)), (floating(1), Some(Time(1_200))));
    ledger.sanity_check().unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Book { hosts: Vec<usize>, start: i64, length: u64, amount: u64, floats: bool },
    Hold { host: usize, start: i64, length: u64, amount: u64 },
    Release(usize),
    Own { host: usize, start: i64, length: u64, amount: u64 },
    Later(u64),
    Restart,
    Hosts(Vec<usize>),
    HookFails { host: usize, may_move: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let hosts = prop::collection::btree_set(0_usize..4, 1..3).prop_map(|hosts| hosts.into_iter().collect::<Vec<_>>());
    let amount = prop_oneof![Just(4_000_u64), 1_000_u64..4_001];
    let window = || (0_i64..300, 5_u64..120);
    prop_oneof![
        8 => (hosts, window(), amount.clone(), prop::bool::weighted(0.9)).prop_map(
            |(hosts, (start, length), amount, floats)| Step::Book { hosts, start, length, amount, floats }),
        2 => (0_usize..4, window(), amount.clone()).prop_map(
            |(host, (start, length), amount)| Step::Hold { host, start, length, amount }),
        2 => (0_usize..30).prop_map(Step::Release),
        2 => (0_usize..4, window(), amount).prop_map(
            |(host, (start, length), amount)| Step::Own { host, start, length, amount }),
        2 => (1_u64..60).prop_map(Step::Later),
        2 => Just(Step::Restart),
        2 => (0_usize..4, prop::bool::weighted(0.8)).prop_map(|(host, may_move)| Step::HookFails { host, may_move }),
        1 => prop::collection::btree_set(0_usize..5, 3..5).prop_map(|hosts| Step::Hosts(hosts.into_iter().collect())),
    ]
}

struct Site {
    ledger: Ledger,
    disk: Disk,
    hosts: Vec<usize>,
    seconds: u64,
    incarnation: u64,
    bound: BTreeMap<(AttemptId, SeatNumber), HostId>,
}

impl Site {
    fn now(&self) -> Now {
        at(self.seconds * 1_000)
    }

    fn take(&mut self, number: usize, step: Step) {
        let now = self.now();
        let from_now = |start: i64| now.utc.0 + start;
        let name = format!("r{number}");
        match step {
            Step::Book { hosts, start, length, amount, floats } => {
                let hold = hold_on(&name, &hosts, (from_now(start), length), amount, floats);
                book(&mut self.ledger, &mut self.disk, now, hold);
            }
            Step::Hold { host, start, length, amount } => {
                let hold = SiteRequest::Hold(hold(&name, host, (from_now(start), length), amount));
                told(&mut self.ledger, &mut self.disk, now, hold);
            }
            Step::Release(of) => {
                let release = SiteRequest::Release(attempt(&format!("r{of}"), 1));
                told(&mut self.ledger, &mut self.disk, now, release);
            }
            Step::Own { host, start, length, amount } => {
                let work = LocalWork {
                    id: RequestId::new(&name).unwrap(),
                    host: HostId::new(&format!("n-{host}")).unwrap(),
                    window: Window::starting(Time(from_now(start)), Span(length)),
                    amounts: cpu(amount),
                };
                self.ledger.handle(now, Event::Local { token: ReplyToken(1), work });
            }
            Step::Later(seconds) => {
                self.seconds += seconds;
                let now = self.now();
                self.ledger.handle_timeout(now);
                self.ledger.forget_past(now);
            }
            Step::Restart => {
                self.incarnation += 1;
                let kept = self.disk.values().cloned().collect();
                let (ledger, misfits) = open(books(self.hosts.clone()), self.incarnation, kept, now);
                // What has begun stays, also on a host that is gone.
                let lost: Vec<_> = misfits.iter().filter(|one| one.window.start > now.utc).collect();
                assert!(lost.is_empty(), "{lost:?}");
                self.ledger = ledger;
            }
            Step::Hosts(hosts) => {
                self.hosts = hosts;
                self.ledger.replace_hosts(now, books(self.hosts.clone()));
                // What has begun on a host that is gone has nothing to be checked against.
                self.bound.clear();
            }
            Step::HookFails { host, may_move } => self.hook_fails(now, &bound(host), may_move),
        }
        drain(&mut self.ledger, &mut self.disk);
        self.check();
    }

    /// The hook fails for the first seat that is bound there: no seat of its booking is there any more, and none is forgotten.
    fn hook_fails(&mut self, now: Now, place: &Place, may_move: bool) {
        let is_there = |grant: &Grant| grant.place == *place && grant.window.end > now.utc;
        let there = self.ledger.bookings().find(|one| !one.is_held() && one.grants.iter().any(is_there)).cloned();
        let Some(before) = there else { return };
        let unusable = Unusable { attempt: before.attempt.clone(), hosts: [place.host().clone()].into(), may_move };
        self.ledger.handle(now, Event::Unusable { token: ReplyToken(1), unusable });
        let after = self.ledger.bookings().find(|one| one.attempt == before.attempt).unwrap();
        assert!(!after.grants.iter().any(is_there));
        assert_eq!(after.grants.len() + after.lost.len(), before.grants.len() + before.lost.len());
        self.bound.retain(|(attempt, _), _| *attempt != before.attempt);
    }

    fn check(&mut self) {
        self.ledger.sanity_check().unwrap();
        let mut there = BTreeSet::new();
        for booking in self.ledger.bookings() {
            for grant in &booking.grants {
                let seat = (booking.attempt.clone(), grant.seat);
                if grant.place.is_floating() {
                    assert!(grant.window.start > self.now().utc, "{seat:?} has begun");
                    continue;
                }
                let host = self.bound.entry(seat.clone()).or_insert_with(|| grant.host().clone());
                assert_eq!(host, grant.host(), "{seat:?} has moved");
                there.insert(seat);
            }
        }
        self.bound.retain(|seat, _| there.contains(seat));
    }
}

proptest! {
    /// Whatever is booked, moved, restarted: the books hold, what is bound stays, and the disk keeps every promise.
    #[test]
    fn promises_are_kept(steps in prop::collection::vec(step(), 1..40)) {
        let (ledger, _) = open(books(0..4), 7, Vec::new(), at(0));
        let hosts = (0..4).collect();
        let mut site = Site { ledger, disk: Disk::new(), hosts, seconds: 0, incarnation: 7, bound: BTreeMap::new() };
        for (number, step) in steps.into_iter().enumerate() {
            site.take(number, step);
        }
    }

    /// Whole hosts of one class: the ledger books whatever can be booked, and nothing else.
    #[test]
    fn whole_hosts_are_booked_by_count(
        asked in prop::collection::vec((1_i64..200, 5_u64..90, 0_usize..3), 1..25),
        hosts in 1_usize..4,
    ) {
        let mut witness = Witness::new((0..hosts).map(|number| host(&format!("n-{number}")))).unwrap();
        let (mut ledger, _) = open(books(0..hosts), 7, Vec::new(), at(0));
        let mut disk = Disk::new();
        for (number, (start, length, named)) in asked.into_iter().enumerate() {
            let hold = hold(&format!("r{number}"), named % hosts, (1_000 + start, length), 4_000);
            let seat = Seat {
                request: hold.attempt.request.clone(),
                number: SeatNumber(0),
                window: hold.grants[0].window,
                need: Need { amounts: cpu(4_000), is_exclusive: true, ..Need::default() },
            };
            let expected = matches!(witness.admit(&[seat]).unwrap(), Answer::Yes(_));
            let answer = book(&mut ledger, &mut disk, at(0), hold);
            prop_assert_eq!(matches!(answer, SiteAnswer::Confirmed { .. }), expected, "{:?}", answer);
            ledger.sanity_check().unwrap();
        }
    }
}

/// The hosts of a class as a coordinator's planner sees them.
fn shown(ledger: &Ledger, now: Now) -> Vec<(HostId, Schedule)> {
    let (schedules, mut left) = (ledger.snapshot(now).schedules, ClassesLeft::default());
    let hosts = ledger.hosts().map(HostLedger::host);
    hosts.map(|host| (host.id.clone(), Schedule::clone(&schedules.next_of(host, &mut left)))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// What a planner sees free of a class is what its ledger gives: so many whole hosts for a window as are never needed in it together,
    /// whichever are named, and not one more.
    #[test]
    fn a_ledger_gives_what_it_shows_by_count(
        steps in prop::collection::vec((0_u8..8, 1_usize..5, 0_i64..60, 1_u64..40), 1..30),
    ) {
        let hosts = 4;
        let (mut ledger, _) = open(books(0..hosts), 7, Vec::new(), at(0));
        let mut disk = Disk::new();
        // When each booking is, and of how many hosts.
        let mut booked: BTreeMap<String, (Window, usize)> = BTreeMap::new();
        let mut now = at(0);
        for (number, (kind, count, start, length)) in steps.into_iter().enumerate() {
            match kind {
                0 => {
                    now = at((now.utc.0 - 1_000).unsigned_abs() * 1_000 + length * 1_000);
                    ledger.handle_timeout(now);
                    drain(&mut ledger, &mut disk);
                }
                1 => {
                    let Some(of) = booked.keys().nth(count).cloned() else { continue };
                    told(&mut ledger, &mut disk, now, SiteRequest::Release(attempt(&of, 1)));
                    if let Some((window, count)) = booked.remove(&of).filter(|(window, _)| window.start < now.utc) {
                        booked.insert(of, (Window { end: window.end.min(now.utc), ..window }, count));
                    }
                }
                _ => {
                    let window = Window::starting(now.utc + Span(start.unsigned_abs()), Span(length));
                    let used = |second: i64| {
                        let there = booked.values().filter(|(window, _)| (window.start.0..window.end.0).contains(&second));
                        there.map(|(_, count)| count).sum::<usize>()
                    };
                    let most = (window.start.0..window.end.0).map(used).max().unwrap();
                    let shown = shown(&ledger, now);
                    let name = ResourceName::new("cpu").unwrap();
                    let is_free = |(_, schedule): &&(HostId, Schedule)| schedule.peak(&name, window) == Amount::ZERO;
                    let free: Vec<usize> = (0..hosts).filter(|at| is_free(&&shown[*at])).collect();
                    prop_assert_eq!(free.len(), hosts - most);
                    // The free ones, and others where there are too few.
                    let taken = (0..hosts).filter(|at| !free.contains(at));
                    let named: Vec<usize> = free.iter().copied().chain(taken).take(count).collect();
                    let of = format!("r{number}");
                    let hold = hold_on(&of, &named, (window.start.0, length), 4_000, true);
                    let answer = book(&mut ledger, &mut disk, now, hold);
                    let is_given = matches!(answer, SiteAnswer::Confirmed { .. });
                    prop_assert_eq!(is_given, count <= free.len(), "{:?}", answer);
                    if is_given {
                        booked.insert(of, (window, count));
                    }
                }
            }
            prop_assert_eq!(ledger.sanity_check(), Ok(()));
        }
    }
}
