//! Bookings that wait for own jobs, one by one.

use std::sync::Arc;

use super::{
    preempt_properties::open,
    tests::{Disk, drain, job, second},
    *,
};
use crate::{
    ledger::{
        Event, Kept, LedgerLimits,
        floating::tests::{books, hold_on},
        tests::{ask, attempt, cpu, id, reason},
    },
    protocol::{HoldRequest, SiteAnswer, SiteRequest},
    receipt::Receipt,
    request::Request,
    tariff::{Conditions, Parts, Tariff},
    trust::{Limits, OwnerPolicy, testing},
};

const WHOLE: u64 = 4_000;

/// A hold of whole hosts for a request with these keys as well.
pub(super) fn patient(of: &str, hosts: &[usize], window: (i64, u64), keys: &str) -> HoldRequest {
    let hold = hold_on(of, hosts, window, WHOLE, true);
    let (seats, length) = (hosts.len(), window.1);
    let asked = format!(r#"{{"hosts":{seats},"duration":{length},"per_host":{{"cpu":{WHOLE}}},{keys}}}"#);
    let asked: Request = serde_json::from_str(&asked).unwrap();
    let authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
    HoldRequest { authorization, ..hold }
}

/// A site of so many whole hosts, at 1,000 s, with jobs that may be stopped, of these lengths.
fn site(hosts: usize, lengths: &[u64]) -> (Ledger, Disk) {
    let (mut ledger, mut disk) = (open(hosts, Kept::default(), second(1_000)), Disk::default());
    ledger.sign_receipts(Arc::new(testing::key(9)));
    for (number, length) in lengths.iter().enumerate() {
        add(&mut ledger, &mut disk, QueuedJob { preempt: true, ..job(&format!("j{number}"), *length, 1, WHOLE) });
    }
    (ledger, disk)
}

fn add(ledger: &mut Ledger, disk: &mut Disk, job: QueuedJob) {
    ledger.handle(second(1_000), Event::Queue { token: ReplyToken(1), order: QueueOrder::Add(vec![job]) });
    drain(ledger, disk).unwrap().unwrap();
}

fn told(ledger: &mut Ledger, disk: &mut Disk, now: u64, request: SiteRequest) -> SiteAnswer {
    let (answer, records) = ask(ledger, second(now), "entry", request);
    records.into_iter().for_each(|record| disk.apply(record));
    drain(ledger, disk);
    answer
}

fn book(ledger: &mut Ledger, disk: &mut Disk, hold: HoldRequest) -> SiteAnswer {
    let incarnation = ledger.version().incarnation;
    told(ledger, disk, 1_000, SiteRequest::Book { hold, incarnation })
}

fn passes(ledger: &mut Ledger, disk: &mut Disk, now: u64) {
    assert!(ledger.poll_timeout().is_some_and(|at| at <= second(now).monotonic));
    ledger.handle_timeout(second(now));
    drain(ledger, disk);
}

/// Its window, slack and wait.
fn seen(ledger: &Ledger, of: &str) -> (i64, i64, u64, u64) {
    let booking = ledger.bookings().find(|booking| booking.attempt == attempt(of, 1)).unwrap();
    assert!(booking.grants.iter().all(|grant| grant.window == booking.window));
    (booking.window.start.0, booking.window.end.0, booking.slack.0, booking.wait.0)
}

/// The ends of the jobs that run, in the order of their names.
fn ends(ledger: &Ledger) -> Vec<i64> {
    let end = |own: OwnJob<'_>| match own.stage {
        JobStage::Runs(booking) => Some(booking.window.end.0),
        JobStage::Waits(_) => None,
    };
    ledger.own_jobs().filter_map(end).collect()
}

#[test]
fn seats_wait_until_the_job_ends_whole_and_all_is_on_disk_at_once() {
    let (mut ledger, mut disk) = site(1, &[150]);
    let answer = book(&mut ledger, &mut disk, patient("r", &[0], (1_100, 50), r#""slack":60"#));
    let SiteAnswer::Confirmed { receipt: Some(receipt), .. } = answer else { panic!("{answer:?}") };
    assert_eq!((ends(&ledger), seen(&ledger, "r")), (vec![1_100], (1_100, 1_150, 60, 0)));
    let version = ledger.version();

    ledger.handle_timeout(second(1_100));
    ledger.sanity_check().unwrap();
    let records: Vec<Record> = std::iter::from_fn(|| ledger.poll_output())
        .filter_map(|output| match output {
            Output::Persist(record) => Some(record),
            _ => None,
        })
        .collect();
    let written: Vec<usize> = records.iter().map(|record| record.put().len()).collect();
    assert_eq!(written, [2], "the job has its time again if and only if the booking has left it");
    records.into_iter().for_each(|record| disk.apply(record));
    assert_eq!((ends(&ledger), seen(&ledger, "r")), (vec![1_150], (1_150, 1_200, 0, 50)));
    assert!(ledger.version() > version && ledger.queue.plan.is_none() && ledger.queue.cut.is_empty());
    let told_of = told(&mut ledger, &mut disk, 1_101, SiteRequest::Inspect(attempt("r", 1)));
    assert!(matches!(told_of, SiteAnswer::Booked { wait: Span(50), .. }), "{told_of:?}");

    let mut again = open(1, disk.kept(), second(1_120));
    again.sign_receipts(Arc::new(testing::key(9)));
    for ledger in [&mut ledger, &mut again] {
        assert_eq!((ends(ledger), seen(ledger, "r")), (vec![1_150], (1_150, 1_200, 0, 50)));
        let booking = ledger.bookings().find(|booking| booking.attempt == attempt("r", 1)).unwrap();
        assert_eq!(ledger.receipt_for(booking), Some(receipt.clone()), "what was promised, bit for bit");
        passes(ledger, &mut disk, 1_150);
        ledger.forget_past(second(1_150));
        let grant = &ledger.bookings().next().unwrap().grants[0];
        assert!(ledger.own_jobs().count() == 0 && !grant.place.is_floating());
    }
    let said = Receipt::open(&receipt, |_| Some(testing::public(9))).unwrap();
    assert_eq!(said.grants()[0].window, Window { start: Time(1_100), end: Time(1_150) });
}

#[test]
fn what_begins_at_once_waits_too() {
    for (slack, end, window) in [(140, vec![1_150], (1_150, 1_200, 0, 140)), (139, vec![], (1_010, 1_060, 0, 0))] {
        let (mut ledger, mut disk) = site(1, &[150]);
        let hold = patient("r", &[0], (1_010, 50), &format!(r#""slack":{slack}"#));
        let incarnation = ledger.version().incarnation;
        let answer = told(&mut ledger, &mut disk, 1_010, SiteRequest::Book { hold, incarnation });
        assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
        assert_eq!((ends(&ledger), seen(&ledger, "r")), (end, window), "{slack}");
    }
}

#[test]
fn too_little_slack_spares_no_job_and_is_spent_at_the_start() {
    let (mut ledger, mut disk) = site(1, &[150]);
    book(&mut ledger, &mut disk, patient("r", &[0], (1_100, 50), r#""slack":49"#));
    passes(&mut ledger, &mut disk, 1_100);
    assert_eq!((ends(&ledger), seen(&ledger, "r")), (vec![], (1_100, 1_150, 0, 0)));
}

#[test]
fn seats_on_hosts_that_are_named_wait_too() {
    let (mut ledger, mut disk) = site(1, &[150]);
    let named = patient("r", &[0], (1_100, 50), r#""slack":60,"candidates":["n-0"]"#);
    book(&mut ledger, &mut disk, HoldRequest { may_substitute: false, ..named });
    let place = |ledger: &Ledger| ledger.bookings().find(|one| one.user_key.is_some()).unwrap().grants[0].place.clone();
    assert!(!place(&ledger).is_floating());
    passes(&mut ledger, &mut disk, 1_100);
    assert_eq!((ends(&ledger), seen(&ledger, "r")), (vec![1_150], (1_150, 1_200, 0, 50)));
    assert!(ledger.binds_at().is_none());
}

#[test]
fn nobody_else_gives_way_to_a_wait() {
    for (hosts, next, waits) in [(1, 1_150, false), (1, 1_200, true), (2, 1_150, true)] {
        let (mut ledger, mut disk) = site(hosts, &vec![150; hosts]);
        book(&mut ledger, &mut disk, patient("r", &[0], (1_100, 50), r#""slack":60"#));
        let answer = book(&mut ledger, &mut disk, patient("s", &[0], (next, 50), r#""slack":0"#));
        assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
        passes(&mut ledger, &mut disk, 1_100);
        let start = if waits { 1_150 } else { 1_100 };
        assert_eq!((seen(&ledger, "r").0, seen(&ledger, "s").0), (start, next), "{hosts} {next}");
        assert!(ends(&ledger).iter().filter(|end| **end == 1_150).count() >= usize::from(waits));
    }
}

#[test]
fn of_two_jobs_the_one_that_has_run_longer_is_spared_where_both_cannot_be() {
    let (mut ledger, mut disk) = site(2, &[130]);
    let late = QueuedJob { preempt: true, ..job("j9", 200, 1, WHOLE) };
    ledger.handle(second(1_050), Event::Queue { token: ReplyToken(1), order: QueueOrder::Add(vec![late]) });
    drain(&mut ledger, &mut disk).unwrap().unwrap();
    let hold = patient("r", &[0, 1], (1_100, 50), r#""slack":60"#);
    let incarnation = ledger.version().incarnation;
    told(&mut ledger, &mut disk, 1_060, SiteRequest::Book { hold, incarnation });
    assert_eq!(ends(&ledger), [1_100, 1_100]);
    passes(&mut ledger, &mut disk, 1_100);
    // The other one has what is free until then.
    assert_eq!((ends(&ledger), seen(&ledger, "r").0), (vec![1_130, 1_130], 1_130));
    passes(&mut ledger, &mut disk, 1_130);
    ledger.forget_past(second(1_130));
    drain(&mut ledger, &mut disk);
    assert_eq!((ends(&ledger), ledger.own_jobs().count(), seen(&ledger, "r").0), (vec![], 1, 1_130));
}

#[test]
fn slack_is_what_user_window_reach_and_all_seats_at_one_site_allow() {
    let slack_of = |keys: &str, policy: OwnerPolicy, change: fn(&mut HoldRequest)| {
        let (mut ledger, mut disk) = site(3, &[]);
        ledger.gate.lock().set_policy(policy);
        let mut hold = patient("r", &[0, 1], (1_100, 50), keys);
        change(&mut hold);
        let answer = told(&mut ledger, &mut disk, 1_000, SiteRequest::Hold(hold));
        assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
        ledger.bookings().next().unwrap().slack.0
    };
    let any = OwnerPolicy::default;
    let as_is: fn(&mut HoldRequest) = |_| {};
    assert_eq!(slack_of(r#""slack":600"#, any(), as_is), 600);
    assert_eq!(slack_of(r#""slack":600,"latest":1110"#, any(), as_is), 10);
    assert_eq!(slack_of(r#""slack":600,"deadline":1170"#, any(), as_is), 20);
    let limits = Limits { max_reach_s: Some(Span(180)), ..any().limits };
    assert_eq!(slack_of(r#""slack":600"#, OwnerPolicy { limits, ..any() }, as_is), 30);
    assert_eq!(slack_of(r#""slack":600"#, any(), |hold| hold.participants.push(id("other"))), 0);
    assert_eq!(slack_of(r#""slack":600"#, any(), |hold| drop(hold.grants.pop())), 0, "the other seat is elsewhere");
}

#[test]
fn nothing_waits_into_a_time_that_the_owner_denies_by_then() {
    type Change = Box<dyn Fn(&mut Ledger)>;
    let policy =
        |policy: OwnerPolicy| -> Change { Box::new(move |ledger| ledger.gate.lock().set_policy(policy.clone())) };
    let conditions = |conditions: Conditions| -> Change {
        let tariff = Arc::new(Tariff { conditions, ..Tariff::default() });
        Box::new(move |ledger| {
            ledger.set_tariffs(
                second(1_000),
                ledger.hosts().map(|books| (books.host().id.clone(), tariff.clone())).collect(),
            );
        })
    };
    let spans = |end| Some(Arc::new(vec![(0, end)].try_into().unwrap()));
    let hours = |end| policy(OwnerPolicy { spans: spans(end), ..OwnerPolicy::default() });
    let reach = |reach| policy(OwnerPolicy { max_reach: Some(Span(reach)), ..OwnerPolicy::default() });
    let farthest = |farthest| -> Change {
        Box::new(move |ledger| {
            ledger.set_limits(LedgerLimits { farthest_future: Span(farthest), ..ledger.limits.clone() });
        })
    };
    let horizon = |horizon| conditions(Conditions { horizon: Some(Span(horizon)), ..Conditions::default() });
    let share = |share| conditions(Conditions { share_max: Some(Parts(share)), ..Conditions::default() });
    // It would end 100 s later; clocks differ by 60 s.
    let cases: [(Change, bool); 11] = [
        (Box::new(|ledger| ledger.gate.lock().set_draining(true)), false),
        (hours(1_199), false),
        (hours(1_200), true),
        (reach(99), false),
        (reach(100), true),
        (farthest(99), false),
        (farthest(100), true),
        (horizon(39), false),
        (horizon(40), true),
        (share(999), false),
        (share(1_000), true),
    ];
    for (number, (change, waits)) in cases.into_iter().enumerate() {
        let (mut ledger, mut disk) = site(1, &[150]);
        book(&mut ledger, &mut disk, patient("r", &[0], (1_100, 50), r#""slack":60"#));
        change(&mut ledger);
        passes(&mut ledger, &mut disk, 1_100);
        let expected = if waits { (vec![1_150], (1_150, 1_200, 0, 50)) } else { (vec![], (1_100, 1_150, 0, 0)) };
        assert_eq!((ends(&ledger), seen(&ledger, "r")), expected, "{number}");
    }
}

#[test]
fn bookings_that_are_in_the_way_of_one_job_wait_together_or_not_at_all() {
    // On two hosts side by side, and on one after each other.
    for (hosts, (length, next), slacks, starts) in [
        (2, (50, 1_100), (60, 60), Some((1_150, 1_150))),
        (2, (50, 1_120), (60, 60), Some((1_150, 1_150))),
        (2, (50, 1_100), (60, 49), None),
        (2, (50, 1_120), (60, 29), None),
        (2, (50, 1_100), (60, 0), None),
        (1, (20, 1_120), (60, 60), Some((1_150, 1_170))),
        (1, (20, 1_120), (60, 49), None),
    ] {
        let (mut ledger, mut disk) = site(hosts, &[]);
        add(&mut ledger, &mut disk, QueuedJob { preempt: true, ..job("j", 150, hosts as u32, WHOLE) });
        for (of, host, start, slack) in [("r", 0, 1_100, slacks.0), ("s", hosts - 1, next, slacks.1)] {
            let answer =
                book(&mut ledger, &mut disk, patient(of, &[host], (start, length), &format!(r#""slack":{slack}"#)));
            assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
        }
        ledger.handle_timeout(second(1_100));
        ledger.sanity_check().unwrap();
        let outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll_output()).collect();
        let together =
            outputs.iter().any(|output| matches!(output, Output::Persist(record) if record.put().len() == 3));
        let case = (hosts, next, slacks);
        assert_eq!(together, starts.is_some(), "all is on disk at once: {case:?}");
        assert_eq!((seen(&ledger, "r").0, seen(&ledger, "s").0), starts.unwrap_or((1_100, next)), "{case:?}");
        assert_eq!(ends(&ledger), starts.map(|_| 1_150).into_iter().collect::<Vec<_>>(), "{case:?}");
    }
}

#[test]
fn what_a_wait_costs_the_jobs_behind_counts_and_is_no_more_than_it_spares() {
    // The job behind would begin 50 s later. Of the first it is 1.07 lengths that would be lost, or 7.67 behind a longer one.
    for (behind, percent, waits) in
        [(10, 1_000_000, false), (1_000, 1_000_000, true), (1_000, 3, true), (1_000, 2, false)]
    {
        let (mut ledger, mut disk) = site(1, &[150]);
        add(&mut ledger, &mut disk, job("k", behind, 1, WHOLE));
        book(&mut ledger, &mut disk, patient("r", &[0], (1_100, 50), r#""slack":60"#));
        ledger.gate.lock().set_policy(OwnerPolicy { quality_loss_percent: percent, ..OwnerPolicy::default() });
        passes(&mut ledger, &mut disk, 1_100);
        assert_eq!(seen(&ledger, "r").0, if waits { 1_150 } else { 1_100 }, "{behind} {percent}");
        let loss = ledger.queue.plan.as_ref().unwrap().loss(Time(10_000));
        let lost = loss.with.slowdown_millionths - loss.without.slowdown_millionths;
        assert!(!waits || (loss.jobs, lost) == (1, 50_000), "{behind} {percent}: {loss:?}");
    }
}

#[test]
fn what_has_begun_goes_on_at_a_site_whose_clock_has_jumped() {
    let half = |of: &str, start: i64, slack: u64| {
        let hold = patient(of, &[0], (start, 50), &format!(r#""slack":{slack}"#));
        let grants = hold.grants.iter().map(|grant| Grant { amounts: cpu(2_000), ..grant.clone() }).collect();
        let asked = format!(r#"{{"hosts":1,"duration":50,"per_host":{{"cpu":2000}},"slack":{slack}}}"#);
        let asked: Request = serde_json::from_str(&asked).unwrap();
        let authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
        HoldRequest { authorization, grants, ..hold }
    };
    let (mut ledger, mut disk) = site(1, &[]);
    add(&mut ledger, &mut disk, QueuedJob { preempt: true, ..job("j", 150, 1, 2_000) });
    // The job has room beside the one or the other.
    for hold in [half("r", 1_100, 60), half("s", 1_120, 0)] {
        let answer = book(&mut ledger, &mut disk, hold);
        assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
    }
    assert_eq!(ends(&ledger), [1_120]);
    passes(&mut ledger, &mut disk, 1_120);
    assert_eq!((seen(&ledger, "r"), ends(&ledger)), ((1_100, 1_150, 0, 0), vec![]));
}

#[test]
fn what_is_lengthened_waits_no_more_and_what_has_waited_is_lengthened_from_its_end() {
    let longer = |start| {
        let hold = hold_on("x", &[0], (start, 50), WHOLE, false);
        let asked = format!(r#"{{"hosts":1,"duration":50,"per_host":{{"cpu":{WHOLE}}},"extends":"r"}}"#);
        let asked: Request = serde_json::from_str(&asked).unwrap();
        let authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
        SiteRequest::Hold(HoldRequest { authorization, ..hold })
    };
    let (mut ledger, mut disk) = site(1, &[150]);
    book(&mut ledger, &mut disk, patient("r", &[0], (1_100, 50), r#""slack":60"#));
    let answer = told(&mut ledger, &mut disk, 1_010, longer(1_150));
    assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
    passes(&mut ledger, &mut disk, 1_100);
    assert_eq!((ends(&ledger), seen(&ledger, "r")), (vec![], (1_100, 1_150, 0, 0)));

    let (mut ledger, mut disk) = site(1, &[150]);
    book(&mut ledger, &mut disk, patient("r", &[0], (1_100, 50), r#""slack":60"#));
    passes(&mut ledger, &mut disk, 1_100);
    let refused = reason(told(&mut ledger, &mut disk, 1_110, longer(1_150))).to_string();
    assert!(refused.contains("began later and ends at 1970-01-01 00:20:00 UTC"), "{refused}");
    let answer = told(&mut ledger, &mut disk, 1_110, longer(1_200));
    assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
}

#[test]
fn a_booking_that_loses_a_seat_waits_no_more() {
    let (mut ledger, mut disk) = site(2, &[150, 150]);
    book(&mut ledger, &mut disk, patient("r", &[0, 1], (1_100, 50), r#""slack":60"#));
    assert!(!ledger.replace_hosts(second(1_050), books([1])).is_empty());
    drain(&mut ledger, &mut disk);
    assert_eq!(seen(&ledger, "r").2, 0);
    passes(&mut ledger, &mut disk, 1_100);
    assert_eq!(seen(&ledger, "r"), (1_100, 1_150, 0, 0));
}
