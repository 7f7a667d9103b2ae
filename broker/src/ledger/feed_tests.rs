//! The feed against an obvious oracle: second by second, it has what it tells as far as others were not promised it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    super::{
        BookingRecord, Event, LedgerLimits, Output, Record, ReplyToken,
        tests::{at, cpu, host, id},
    },
    *,
};
use crate::{
    resources::ResourceName,
    time::{Millis, Span},
    trust::testing,
};

/// The capacity of the test host.
const CAPACITY: u64 = 4000;
/// Seconds looked at, from the start of the clock.
const SECONDS: i64 = 60;

/// The ledger at a start of its node; every start has a number of its own.
fn open(incarnation: u64, reservations: Vec<BookingRecord>) -> Ledger {
    let hosts = vec![(host("h1"), Schedule::default()), (host("h2"), Schedule::default())];
    let limits = LedgerLimits::default();
    Ledger::open(id("site"), limits, incarnation, testing::open_gate(), hosts, reservations, at(0)).0
}

/// Work on a host, its times in seconds from the start of the clock.
fn work(name: &str, host: &str, start: i64, end: i64, amount: u64) -> LocalWork {
    let window = Window { start: Time(1000 + start), end: Time(1000 + end) };
    LocalWork { id: RequestId::new(name).unwrap(), host: HostId::new(host).unwrap(), window, amounts: cpu(amount) }
}

/// What a ledger has written, as the disk keeps it.
type Disk = BTreeMap<AttemptId, BookingRecord>;

fn drain(ledger: &mut Ledger, disk: &mut Disk) -> (Option<FeedReport>, usize) {
    ledger.sanity_check().unwrap();
    let (mut told, mut written) = (None, 0);
    while let Some(output) = ledger.poll_output() {
        match output {
            Output::Persist(Record::Put(reservation)) => {
                written += 1;
                disk.insert(reservation.attempt.clone(), reservation);
            }
            Output::Persist(Record::Remove(attempt)) => {
                written += 1;
                disk.remove(&attempt);
            }
            Output::Persist(record) => panic!("{record:?}: nobody asks about own work, and it costs nothing"),
            Output::FeedApplied { report, .. } => told = Some(report),
            Output::Publish(_) | Output::Reply { .. } => {}
            Output::Inquire { .. } | Output::QueueChanged { .. } => panic!("nobody has to be asked"),
        }
    }
    (told, written)
}

fn feed(ledger: &mut Ledger, now: Now, works: &[LocalWork], disk: &mut Disk) -> (FeedReport, usize) {
    ledger.handle(now, Event::Feed { token: ReplyToken(1), works: works.to_vec(), queue: Vec::new() });
    let (report, written) = drain(ledger, disk);
    (report.unwrap(), written)
}

fn by_hand(ledger: &mut Ledger, now: Now, work: LocalWork, disk: &mut Disk) {
    ledger.handle(now, Event::Local { token: ReplyToken(2), work });
    drain(ledger, disk);
}

fn used(ledger: &Ledger, host: &str, second: i64) -> u64 {
    let name = ResourceName::new("cpu").unwrap();
    let host = ledger.hosts().find(|ledger| ledger.host().id.as_str() == host).unwrap();
    host.reserved().occupancy(&name).map_or(0, |occupancy| occupancy.used_at(Time(1000 + second)).0)
}

#[test]
fn work_comes_changes_and_goes_as_the_feed_tells() {
    let (mut ledger, mut disk) = (open(7, Vec::new()), Disk::new());
    by_hand(&mut ledger, at(0), work("local-1", "h1", 10, 20, 1000), &mut disk);
    let told = [work("7", "h1", 0, 30, 2000), work("8", "h2", 5, 9, 9000), work("9", "h9", 5, 9, 1)];
    let (report, written) = feed(&mut ledger, at(0), &told, &mut disk);
    let expected = FeedReport { pieces: 2, entered: 2, elsewhere: 1, ..FeedReport::default() };
    assert_eq!((report, written), (expected, 2), "more than a host has is all of it");
    assert_eq!([5, 15, 25].map(|second| used(&ledger, "h1", second)), [2000, 3000, 2000]);
    assert_eq!([4, 5, 9].map(|second| used(&ledger, "h2", second)), [0, CAPACITY, 0]);

    let (report, written) = feed(&mut ledger, at(0), &told, &mut disk);
    assert_eq!((report.entered, report.taken_out, written), (0, 0, 0), "the same again");
    ledger.forget_past(at(12_000));
    drain(&mut ledger, &mut disk);
    let (report, written) = feed(&mut ledger, at(12_000), &told, &mut disk);
    assert_eq!((report.entered, report.taken_out, written), (0, 0, 0), "what has begun stays as it is");

    let mut again = open(8, disk.values().cloned().collect());
    let (report, _) = feed(&mut again, at(12_000), &[work("7", "h1", 0, 18, 2000)], &mut disk);
    assert_eq!((report.pieces, report.entered, report.taken_out), (1, 1, 1), "known after a restart, and shorter now");
    assert_eq!([15, 18, 19].map(|second| used(&again, "h1", second)), [3000, 1000, 1000]);
    feed(&mut again, at(12_000), &[], &mut disk);
    assert_eq!(used(&again, "h1", 15), 1000, "what was entered by hand stays");
    assert_eq!(disk.len(), 1);
}

#[test]
fn what_others_were_promised_stays_and_what_is_free_beside_it_is_taken() {
    let (mut ledger, mut disk) = (open(7, Vec::new()), Disk::new());
    by_hand(&mut ledger, at(0), work("promised", "h1", 10, 20, 3000), &mut disk);
    let (report, _) = feed(&mut ledger, at(0), &[work("7", "h1", 0, 30, 2000)], &mut disk);
    assert_eq!((report.pieces, report.short), (3, 1));
    assert_eq!([5, 15, 25].map(|second| used(&ledger, "h1", second)), [2000, CAPACITY, 2000]);
    let promised = ledger.local_work().find(|booking| booking.attempt.request.as_str() == "promised").unwrap();
    let (site, attempt) = (id("site"), promised.attempt.clone());
    let release = crate::protocol::SiteRequest::Release(attempt);
    ledger.handle(at(0), Event::Request { from: site, network: None, token: ReplyToken(3), request: release });
    drain(&mut ledger, &mut disk);
    let (report, _) = feed(&mut ledger, at(0), &[work("7", "h1", 0, 30, 2000)], &mut disk);
    assert_eq!((report.pieces, report.short, report.taken_out), (1, 0, 3), "in one piece when there is room");
}

#[test]
fn there_is_an_end_to_what_is_entered() {
    let (mut ledger, mut disk) = (open(7, Vec::new()), Disk::new());
    let most = i64::try_from(ENTRIES_MAX).unwrap();
    let many: Vec<LocalWork> = (0..most + 5).map(|n| work("many", "h1", n, n + 1, 1)).collect();
    let (report, _) = feed(&mut ledger, at(0), &many, &mut disk);
    assert_eq!((report.pieces, report.left_out), (ENTRIES_MAX, 5));
    assert_eq!((used(&ledger, "h1", 0), used(&ledger, "h1", most)), (1, 0), "the first first");
    let far = Time(1000 + i64::try_from(LedgerLimits::default().farthest_future.0).unwrap());
    let mut endless = work("endless", "h2", 0, 1, 1);
    endless.window.end = far + Span(1);
    let mut later = endless.clone();
    later.window.start = far;
    let (report, _) = feed(&mut ledger, at(0), &[endless, later], &mut disk);
    assert_eq!((report.pieces, report.left_out), (1, 2), "as far as promises reach");
}

#[test]
fn what_runs_is_never_left_out_however_much_it_is() {
    let (mut ledger, mut disk) = (open(7, Vec::new()), Disk::new());
    by_hand(&mut ledger, at(0), work("promised", "h1", 10, 20, 1000), &mut disk);
    // Planned work comes first in the report, and is left out for it.
    let planned = (0..5_000).map(|n| work("planned", "h2", 10 + n, 11 + n, 1));
    let running = (0..12_000_i64).map(|n| work("job", "h1", -(n % 7), 30 - n % 3, 1));
    let one = work("alone", "h2", 0, 5, 2500);
    let told: Vec<LocalWork> = planned.chain(running).chain([one]).collect();
    let (report, _) = feed(&mut ledger, at(0), &told, &mut disk);
    assert_eq!([0, 15, 29].map(|second| used(&ledger, "h1", second)), [CAPACITY; 3], "all that runs, {report:?}");
    assert_eq!([0, 4, 5, 10].map(|second| used(&ledger, "h2", second)), [2500, 2500, 0, 1]);
    assert_eq!((report.left_out, report.short), (0, 1), "{report:?}");
    let (report, written) = feed(&mut ledger, at(0), &told, &mut disk);
    assert_eq!((report.entered, report.taken_out, written), (0, 0, 0), "the same again");
}

/// One step of a random life.
#[derive(Debug, Clone)]
enum Step {
    Feed(Vec<(u8, i64, i64, u64)>),
    Promise(i64, i64, u64),
    Break(usize),
    Wait(u64),
    Forget,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let job = (0..4_u8, 0..SECONDS, 1..40_i64, 1..CAPACITY + 1000);
    let job = job.prop_map(|(name, start, length, amount)| (name, start, start + length, amount));
    prop_oneof![
        5 => proptest::collection::vec(job, 0..5).prop_map(Step::Feed),
        3 => (0..SECONDS, 1..30_i64, 1..CAPACITY).prop_map(|(start, length, amount)| Step::Promise(start, start + length, amount)),
        1 => (0..4_usize).prop_map(Step::Break),
        2 => (1..8_u64).prop_map(Step::Wait),
        1 => Just(Step::Forget),
        1 => Just(Step::Restart),
    ]
}

/// What is promised to others at a second.
fn promised(ledger: &Ledger, second: i64) -> u64 {
    let at = Time(1000 + second);
    let others = ledger.bookings().filter(|booking| booking.fed_as.is_none());
    let others = others.filter(|booking| booking.window.start <= at && at < booking.window.end);
    others.flat_map(|booking| &booking.grants).flat_map(|grant| grant.amounts.values()).map(|amount| amount.0).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_stands_is_what_was_told_beside_what_was_promised(steps in proptest::collection::vec(step(), 1..25)) {
        let (mut ledger, mut disk) = (open(7, Vec::new()), Disk::new());
        let (mut now, mut promises, mut incarnation) = (at(0), 0, 7);
        for step in steps {
            match step {
                Step::Feed(jobs) => {
                    let works: Vec<LocalWork> =
                        jobs.iter().map(|(name, start, end, amount)| work(&name.to_string(), "h1", *start, *end, *amount)).collect();
                    let before: Vec<AttemptId> =
                        ledger.bookings().filter(|booking| booking.fed_as.is_none()).map(|b| b.attempt.clone()).collect();
                    feed(&mut ledger, now, &works, &mut disk);
                    let present = now.utc.max(ledger.forgotten).0 - 1000;
                    for second in present..SECONDS + 50 {
                        let asked: u64 = jobs.iter().filter(|(_, start, end, _)| (*start..*end).contains(&second)).map(|job| job.3).sum();
                        let others = promised(&ledger, second);
                        prop_assert_eq!(used(&ledger, "h1", second), others + asked.min(CAPACITY - others), "second {}", second);
                    }
                    let after = ledger.bookings().filter(|booking| booking.fed_as.is_none());
                    prop_assert!(after.map(|booking| &booking.attempt).eq(before.iter()), "the rest is untouched");
                    let (report, written) = feed(&mut ledger, now, &works, &mut disk);
                    prop_assert_eq!((report.entered, report.taken_out, written), (0, 0, 0));
                }
                Step::Promise(start, end, amount) => {
                    promises += 1;
                    by_hand(&mut ledger, now, work(&format!("local-{promises}"), "h1", start, end, amount), &mut disk);
                }
                Step::Break(which) => {
                    let chosen = ledger.bookings().filter(|booking| booking.fed_as.is_none()).nth(which);
                    if let Some(attempt) = chosen.map(|booking| booking.attempt.clone()) {
                        let release = crate::protocol::SiteRequest::Release(attempt);
                        ledger.handle(now, Event::Request { from: id("site"), network: None, token: ReplyToken(3), request: release });
                        drain(&mut ledger, &mut disk);
                    }
                }
                Step::Wait(seconds) => {
                    now = Now { monotonic: now.monotonic + Millis(seconds * 1000), utc: now.utc + Span(seconds) };
                }
                Step::Forget => {
                    ledger.forget_past(now);
                    drain(&mut ledger, &mut disk);
                }
                Step::Restart => {
                    incarnation += 1;
                    ledger = open(incarnation, disk.values().cloned().collect());
                    drain(&mut ledger, &mut disk);
                }
            }
        }
    }
}
