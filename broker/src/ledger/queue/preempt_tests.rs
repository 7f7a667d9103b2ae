//! Own jobs that are stopped, one by one.

use std::sync::Arc;

use super::{
    preempt_properties,
    tests::{Disk, drain, job, open, second, shown, starts},
    *,
};
use crate::{
    ledger::{
        Event, Kept,
        floating::tests::{hold as hold_of_class, hold_on},
        tests::{ask, attempt, confirm, hold, reason},
    },
    protocol::{HoldRequest, Quote, SiteAnswer, SiteRequest},
    tariff::{Conditions, Parts, Tariff},
    trust::OwnerPolicy,
};

fn queue(ledger: &mut Ledger, disk: &mut Disk, preempt: bool) {
    let job = QueuedJob { preempt, ..job("a", 1_000, 2, 4_000) };
    ledger.handle(second(1_000), Event::Queue { token: ReplyToken(1), order: QueueOrder::Add(vec![job]) });
    drain(ledger, disk).unwrap().unwrap();
}

/// What a hold of 100 s is answered, and a quote for it before.
fn held(ledger: &mut Ledger, disk: &mut Disk, now: u64, (of, start): (&str, i64)) -> SiteAnswer {
    let SiteRequest::Hold(quoted) = hold(attempt(of, 1), start, 4_000) else { panic!() };
    let quote = ask(ledger, second(now), "entry", SiteRequest::Quote(quoted)).0;
    let (answer, records) = ask(ledger, second(now), "entry", hold(attempt(of, 1), start, 4_000));
    records.into_iter().for_each(|record| disk.apply(record));
    drain(ledger, disk);
    let agrees = match (&quote, &answer) {
        (SiteAnswer::Quoted { quote, .. }, SiteAnswer::Held { .. }) => *quote != Quote::default(),
        (SiteAnswer::Refused(quoted), SiteAnswer::Refused(refused)) => quoted.reason == refused.reason,
        _ => false,
    };
    assert!(agrees, "{quote:?} {answer:?}");
    answer
}

fn confirmed(ledger: &mut Ledger, disk: &mut Disk, now: u64, of: &str) {
    let (answer, records) = ask(ledger, second(now), "entry", confirm(attempt(of, 1)));
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
    records.into_iter().for_each(|record| disk.apply(record));
    drain(ledger, disk);
}

/// The end of what the only job has, when it runs.
fn runs_until(ledger: &Ledger) -> Option<i64> {
    ledger.own_jobs().find_map(|own| match own.stage {
        JobStage::Runs(booking) => Some(booking.window.end.0),
        JobStage::Waits(_) => None,
    })
}

fn passes(ledger: &mut Ledger, disk: &mut Disk, now: u64) {
    assert!(ledger.poll_timeout().is_some_and(|at| at <= second(now).monotonic));
    ledger.handle_timeout(second(now));
    drain(ledger, disk);
}

#[test]
fn a_job_that_may_be_stopped_takes_nothing_of_the_share_that_may_be_booked() {
    for (preempt, amount, is_held) in [(true, 2_000, true), (true, 2_001, false), (false, 2_000, false)] {
        let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 1_000_000), Disk::default());
        let half = Conditions { share_max: Some(Parts(500)), ..Conditions::default() };
        let tariff = Arc::new(Tariff { conditions: half, ..Tariff::default() });
        ledger.set_tariffs(
            second(1_000),
            ledger.hosts().map(|books| (books.host().id.clone(), tariff.clone())).collect(),
        );
        queue(&mut ledger, &mut disk, preempt);
        // The books forget what has passed of the job.
        ledger.forget_past(second(1_050));
        let (answer, _) = ask(&mut ledger, second(1_050), "entry", hold(attempt("r", 1), 1_200, amount));
        assert_eq!(matches!(answer, SiteAnswer::Held { .. }), is_held, "{preempt} {amount}: {answer:?}");
    }
}

#[test]
fn only_a_job_that_may_be_stopped_ends_for_a_hold_and_begins_anew_behind_it() {
    for preempt in [false, true] {
        let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 1_000_000), Disk::default());
        queue(&mut ledger, &mut disk, preempt);
        let answer = held(&mut ledger, &mut disk, 1_000, ("r", 1_200));
        if !preempt {
            assert!(matches!(reason(answer), RefusalReason::NotEnough { .. }));
            assert_eq!(runs_until(&ledger), Some(2_000));
            continue;
        }
        assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
        assert_eq!(runs_until(&ledger), Some(1_200), "until then it runs");
        confirmed(&mut ledger, &mut disk, 1_001, "r");
        passes(&mut ledger, &mut disk, 1_200);
        assert_eq!((runs_until(&ledger), starts(&ledger)), (None, vec![1_300]), "both hosts are free again then");
        passes(&mut ledger, &mut disk, 1_300);
        assert_eq!((runs_until(&ledger), disk.queue.len()), (Some(2_300), 1));
    }
}

#[test]
fn a_job_gets_its_time_back_when_the_hold_goes_and_knows_after_a_restart_that_it_was_cut() {
    let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 1_000_000), Disk::default());
    queue(&mut ledger, &mut disk, true);
    held(&mut ledger, &mut disk, 1_000, ("r", 1_200));
    assert_eq!(runs_until(&ledger), Some(1_200));
    passes(&mut ledger, &mut disk, 1_030);
    assert_eq!(runs_until(&ledger), Some(2_000), "the hold has lapsed");
    assert!(ledger.own_jobs().count() == 1 && ledger.queue.plan.is_none());

    held(&mut ledger, &mut disk, 1_030, ("s", 1_200));
    confirmed(&mut ledger, &mut disk, 1_031, "s");
    let mut again = open(disk.kept(), second(1_040), 1_000_000);
    assert_eq!(runs_until(&again), Some(1_200));
    passes(&mut again, &mut disk, 1_200);
    assert_eq!((runs_until(&again), starts(&again)), (None, vec![1_300]));
}

#[test]
fn what_a_job_loses_counts_as_what_the_hold_costs() {
    let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 10), Disk::default());
    queue(&mut ledger, &mut disk, true);
    // It would end 300 s later, and runs 1,000 s.
    let refused = reason(held(&mut ledger, &mut disk, 1_000, ("r", 1_200))).to_string();
    assert!(refused.contains("own-queue") && refused.contains("would be 1.300, at most 1.100"), "{refused}");
    assert_eq!(runs_until(&ledger), Some(2_000), "nothing has changed");
    ledger.gate.lock().set_policy(OwnerPolicy { quality_loss_percent: 11, ..OwnerPolicy::default() });
    let soon = held(&mut ledger, &mut disk, 1_000, ("s", 1_002));
    assert!(matches!(soon, SiteAnswer::Held { .. }), "102 s are less: {soon:?}");
    assert_eq!(runs_until(&ledger), Some(1_002));
}

/// Adds a job that takes whole hosts.
fn add(ledger: &mut Ledger, disk: &mut Disk, now: u64, (name, length, preempt): (&str, u64, bool)) {
    add_job(ledger, disk, now, QueuedJob { preempt, ..job(name, length, 1, 4_000) });
}

fn add_job(ledger: &mut Ledger, disk: &mut Disk, now: u64, job: QueuedJob) {
    order(ledger, disk, now, QueueOrder::Add(vec![job]));
}

fn order(ledger: &mut Ledger, disk: &mut Disk, now: u64, order: QueueOrder) {
    ledger.handle(second(now), Event::Queue { token: ReplyToken(1), order });
    drain(ledger, disk).unwrap().unwrap();
}

fn done(name: &str) -> QueueOrder {
    QueueOrder::Done(RequestId::new(name).unwrap())
}

fn asked(ledger: &mut Ledger, disk: &mut Disk, now: u64, request: SiteRequest) -> SiteAnswer {
    let (answer, records) = ask(ledger, second(now), "entry", request);
    records.into_iter().for_each(|record| disk.apply(record));
    drain(ledger, disk);
    answer
}

fn booked(ledger: &mut Ledger, disk: &mut Disk, now: u64, hold: HoldRequest) {
    let incarnation = ledger.version().incarnation;
    let answer = asked(ledger, disk, now, SiteRequest::Book { hold, incarnation });
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
}

/// By name: until when a job runs.
fn ends(ledger: &Ledger) -> BTreeMap<String, Option<i64>> {
    let one = |own: OwnJob<'_>| {
        let end = match own.stage {
            JobStage::Runs(booking) => Some(booking.window.end.0),
            JobStage::Waits(_) => None,
        };
        (own.job.attempt.request.to_string(), end)
    };
    ledger.own_jobs().map(one).collect()
}

#[test]
fn what_a_job_has_lost_counts_when_it_is_to_be_stopped_again() {
    let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 35), Disk::default());
    queue(&mut ledger, &mut disk, true);
    // It would end 300 s later, and runs 1,000 s.
    held(&mut ledger, &mut disk, 1_000, ("r", 1_200));
    confirmed(&mut ledger, &mut disk, 1_001, "r");
    passes(&mut ledger, &mut disk, 1_200);
    let kept = disk.queue.values().next().and_then(|job| job.first_begun);
    assert_eq!((runs_until(&ledger), kept), (None, Some(Time(1_000))));
    for is_restarted in [false, true] {
        if is_restarted {
            ledger = open(disk.kept(), second(1_250), 35);
        }
        let loss = ledger.queue.plan.as_ref().unwrap().loss(Time(2_000));
        assert_eq!((loss.without.slowdown_millionths, loss.with.slowdown_millionths), (1_000_000, 1_300_000));
    }
    passes(&mut ledger, &mut disk, 1_300);
    assert_eq!(runs_until(&ledger), Some(2_300));
    // To lose 150 s more is a tenth of what it has become, and 45 % of what it was.
    let refused = reason(held(&mut ledger, &mut disk, 1_310, ("s", 1_350))).to_string();
    assert!(refused.contains("would be 1.450, at most 1.350"), "{refused}");
}

#[test]
fn a_job_that_is_cut_is_planned_no_earlier_than_it_is_stopped() {
    let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 1_000_000), Disk::default());
    add(&mut ledger, &mut disk, 1_000, ("a", 1_000, true));
    add(&mut ledger, &mut disk, 1_000, ("b", 400, false));
    held(&mut ledger, &mut disk, 1_000, ("r", 1_200));
    confirmed(&mut ledger, &mut disk, 1_001, "r");
    let planned = |ledger: &Ledger| {
        let plan = ledger.queue.plan.as_ref().unwrap();
        plan.planned(&job("a", 1, 1, 1).attempt).unwrap().start.unwrap().0
    };
    assert_eq!(planned(&ledger), 1_300);
    order(&mut ledger, &mut disk, 1_050, done("b"));
    assert_eq!(planned(&ledger), 1_200, "the other host is free");
    passes(&mut ledger, &mut disk, 1_200);
    assert_eq!(shown(&ledger)[0], ("a".to_owned(), 1_200, vec!["h2".to_owned()], true));
}

#[test]
fn a_job_has_its_time_again_as_soon_as_a_seat_can_move_out_of_its_way() {
    let (mut ledger, mut disk) = (preempt_properties::open(2, Kept::default(), second(1_000)), Disk::default());
    add(&mut ledger, &mut disk, 1_000, ("a", 1_000, true));
    add(&mut ledger, &mut disk, 1_000, ("b", 250, false));
    booked(&mut ledger, &mut disk, 1_000, hold_of_class("r", 0, (1_200, 100), 4_000));
    assert_eq!(ends(&ledger)["a"], Some(1_200));
    order(&mut ledger, &mut disk, 1_100, done("b"));
    assert_eq!(ends(&ledger)["a"], Some(2_000), "the seat has gone to the host of the other");
}

#[test]
fn a_job_of_which_less_is_lost_is_stopped_instead_and_is_planned_where_there_is_room() {
    for only_forgets in [false, true] {
        let (mut ledger, mut disk) = (preempt_properties::open(2, Kept::default(), second(1_000)), Disk::default());
        add(&mut ledger, &mut disk, 1_000, ("a", 1_000, true));
        add(&mut ledger, &mut disk, 1_000, ("b", 230, false));
        booked(&mut ledger, &mut disk, 1_000, hold_of_class("q", 1, (1_250, 50), 4_000));
        booked(&mut ledger, &mut disk, 1_000, hold_of_class("r", 0, (1_200, 100), 4_000));
        order(&mut ledger, &mut disk, 1_100, done("b"));
        add(&mut ledger, &mut disk, 1_100, ("c", 150, true));
        assert_eq!(ends(&ledger).into_values().collect::<Vec<_>>(), [Some(1_200), Some(1_250)]);
        asked(&mut ledger, &mut disk, 1_150, SiteRequest::Release(attempt("q", 1)));
        assert_eq!(ends(&ledger)["a"], Some(1_200));
        if only_forgets {
            ledger.forget_past(second(1_200));
            drain(&mut ledger, &mut disk);
        } else {
            passes(&mut ledger, &mut disk, 1_200);
        }
        assert_eq!(ends(&ledger).into_values().collect::<Vec<_>>(), [Some(2_000), None]);
        assert_eq!(starts(&ledger), [1_000, 1_300]);
        asked(&mut ledger, &mut disk, 1_205, SiteRequest::Release(attempt("r", 1)));
        assert_eq!(shown(&ledger)[1], ("c".to_owned(), 1_205, vec!["n-1".to_owned()], true));
    }
}

#[test]
fn of_several_jobs_that_could_be_spared_the_dearest_is() {
    let (mut ledger, mut disk) = (preempt_properties::open(2, Kept::default(), second(1_000)), Disk::default());
    for (now, name, amount) in [(1_000, "c", 4_000), (1_010, "b", 2_000), (1_020, "a", 2_000)] {
        add_job(&mut ledger, &mut disk, now, QueuedJob { preempt: true, ..job(name, 1_000, 1, amount) });
    }
    booked(&mut ledger, &mut disk, 1_030, hold_on("r", &[0, 1], (1_100, 100), 2_000, true));
    assert_eq!(ends(&ledger).into_values().collect::<Vec<_>>(), [Some(1_100), Some(2_010), Some(1_100)]);
}

#[test]
fn what_is_not_confirmed_stops_no_job() {
    let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 1_000_000), Disk::default());
    queue(&mut ledger, &mut disk, true);
    let answer = held(&mut ledger, &mut disk, 1_000, ("q", 1_001));
    assert!(matches!(reason(answer), RefusalReason::HeldByAnother { .. }), "it could not lapse before");
    let hold_for = |answer| match answer {
        SiteAnswer::Held { hold_for, .. } => hold_for,
        other => panic!("{other:?}"),
    };
    assert_eq!(hold_for(held(&mut ledger, &mut disk, 1_000, ("r", 1_004))), Millis(3_000));
    assert_eq!(runs_until(&ledger), Some(1_004));
    // It needs nothing but what the job has left.
    let second_hold = asked(&mut ledger, &mut disk, 1_001, hold(attempt("s", 1), 1_104, 4_000));
    assert_eq!(hold_for(second_hold), Millis(2_000));
    passes(&mut ledger, &mut disk, 1_003);
    assert_eq!(runs_until(&ledger), Some(2_000));

    // The clock jumps.
    held(&mut ledger, &mut disk, 1_003, ("t", 1_100));
    let early = Now { utc: Time(1_100), ..second(1_004) };
    ledger.handle_timeout(early);
    drain(&mut ledger, &mut disk);
    assert_eq!(runs_until(&ledger), Some(2_000));
    let (answer, _) = ask(&mut ledger, early, "entry", confirm(attempt("t", 1)));
    assert!(matches!(reason(answer), RefusalReason::NoSuchHold));
}

#[test]
fn a_job_that_is_stopped_later_is_not_stopped_earlier_by_a_hold_that_lapses() {
    let (mut ledger, mut disk) = (open(Kept::default(), second(1_000), 1_000_000), Disk::default());
    queue(&mut ledger, &mut disk, true);
    held(&mut ledger, &mut disk, 1_000, ("r", 1_500));
    confirmed(&mut ledger, &mut disk, 1_001, "r");
    let answer = asked(&mut ledger, &mut disk, 1_001, hold(attempt("s", 1), 1_010, 4_000));
    assert!(matches!(answer, SiteAnswer::Held { .. }), "it begins anew behind the other in any case: {answer:?}");
    assert_eq!(runs_until(&ledger), Some(1_010));
    for now in [1_006, 1_010] {
        passes(&mut ledger, &mut disk, now);
    }
    assert_eq!(runs_until(&ledger), Some(1_500));
    passes(&mut ledger, &mut disk, 1_500);
    assert_eq!(runs_until(&ledger), None);
}
