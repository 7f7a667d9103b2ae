//! The own queue: what begins when, and what a hold may cost.

use std::collections::BTreeMap;

use super::{
    super::{
        Event, Kept, LedgerLimits, Output, Record,
        own_plan::Loss,
        promises::tests::booking,
        tests::{ask, at, attempt, confirm, cpu, grant, hold, host, id, reason},
    },
    *,
};
use crate::{
    amount::Amount,
    ledger::BookingRecord,
    protocol::{SiteAnswer, SiteRequest},
    schedule::Schedule,
    trust::{OwnerPolicy, testing},
};

/// The clock shows 1,000 s at first.
pub(super) fn second(second: u64) -> Now {
    at((second - 1_000) * 1_000)
}

pub(super) fn open(kept: Kept, now: Now, loss_percent: u32) -> Ledger {
    let hosts = vec![(host("h1"), Schedule::default()), (host("h2"), Schedule::default())];
    let gate = testing::open_gate();
    let policy = OwnerPolicy { quality_loss_percent: loss_percent, ..OwnerPolicy::default() };
    let mut ledger = Ledger::open(id("site"), LedgerLimits::default(), 7, gate, hosts, kept, now).0;
    ledger.gate.lock().set_policy(policy);
    ledger.sanity_check().unwrap();
    while ledger.poll_output().is_some() {}
    ledger
}

fn ledger() -> Ledger {
    open(Kept::default(), at(0), 10)
}

pub(super) fn job(name: &str, length: u64, hosts: u32, amount: u64) -> QueuedJob {
    let attempt = AttemptId { entry_point: id("site"), request: RequestId::new(name).unwrap(), attempt: 0 };
    QueuedJob {
        attempt,
        arrival: Time::ZERO,
        length: Span(length),
        deadline: None,
        hosts,
        amounts: cpu(amount),
        preempt: false,
        first_begun: None,
    }
}

/// What is on disk.
#[derive(Debug, Default, Clone)]
pub(super) struct Disk {
    bookings: BTreeMap<AttemptId, BookingRecord>,
    pub(super) queue: BTreeMap<AttemptId, QueuedJob>,
}

impl Disk {
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::Put(_) | Record::PutAll(_) => {
                let put = record.put().iter().map(|booking| (booking.attempt.clone(), booking.clone()));
                self.bookings.extend(put);
            }
            Record::Gone(_) | Record::Charge(_) => {}
            Record::Remove(attempt) => drop(self.bookings.remove(&attempt)),
            Record::Queue(job) => drop(self.queue.insert(job.attempt.clone(), job)),
            Record::Dequeue(attempt) => drop(self.queue.remove(&attempt)),
        }
    }

    pub(super) fn kept(&self) -> Kept {
        let bookings = self.bookings.values().cloned().collect();
        Kept { bookings, queue: self.queue.values().cloned().collect(), ..Kept::default() }
    }
}

pub(super) fn drain(ledger: &mut Ledger, disk: &mut Disk) -> Option<Result<(), QueueError>> {
    ledger.sanity_check().unwrap();
    let mut told = None;
    while let Some(output) = ledger.poll_output() {
        match output {
            Output::Persist(record) => disk.apply(record),
            Output::QueueChanged { result, .. } => told = Some(result),
            _ => {}
        }
    }
    told
}

fn order(ledger: &mut Ledger, now: Now, order: QueueOrder) -> Result<(), QueueError> {
    ledger.handle(now, Event::Queue { token: ReplyToken(1), order });
    drain(ledger, &mut Disk::default()).unwrap()
}

fn add(ledger: &mut Ledger, now: Now, job: QueuedJob) -> Result<(), QueueError> {
    order(ledger, now, QueueOrder::Add(vec![job]))
}

/// By name: the start, the hosts, and whether it runs.
pub(super) fn shown(ledger: &Ledger) -> Vec<(String, i64, Vec<String>, bool)> {
    let one = |own: OwnJob<'_>| {
        let name = own.job.attempt.request.to_string();
        let (start, hosts, runs): (_, Vec<String>, _) = match own.stage {
            JobStage::Waits(planned) => {
                (planned.start.unwrap_or_default(), planned.hosts.iter().map(ToString::to_string).collect(), false)
            }
            JobStage::Runs(booking) => {
                let hosts = booking.grants.iter().map(|grant| grant.host().to_string()).collect();
                (booking.window.start, hosts, true)
            }
        };
        (name, start.0, hosts, runs)
    };
    ledger.own_jobs().map(one).collect()
}

pub(super) fn starts(ledger: &Ledger) -> Vec<i64> {
    shown(ledger).into_iter().map(|(_, start, ..)| start).collect()
}

#[test]
fn a_job_begins_when_it_may_and_what_waits_moves_forward_when_it_ends_early() {
    let mut ledger = ledger();
    add(&mut ledger, at(0), job("a", 100, 2, 3_000)).unwrap();
    add(&mut ledger, at(0), job("b", 50, 1, 2_000)).unwrap();
    add(&mut ledger, at(0), job("c", 50, 2, 4_000)).unwrap();
    let both = vec!["h1".to_owned(), "h2".to_owned()];
    assert_eq!(shown(&ledger)[0], ("a".to_owned(), 1_000, both.clone(), true), "it begins at once");
    assert_eq!(starts(&ledger), [1_000, 1_100, 1_150]);
    assert_eq!(ledger.poll_timeout(), Some(Millis(99_100)), "just before the next start");
    assert_eq!(
        order(&mut ledger, at(0), QueueOrder::Done(RequestId::new("b").unwrap())).unwrap_err().to_string(),
        "own job b has not begun; remove takes it out"
    );
    order(&mut ledger, second(1_020), QueueOrder::Done(RequestId::new("a").unwrap())).unwrap();
    assert_eq!(starts(&ledger), [1_020, 1_070], "both move forward, and b begins");
    assert!(shown(&ledger)[0].3);
    // It takes longer than it said.
    order(&mut ledger, second(1_060), QueueOrder::Extend(RequestId::new("b").unwrap(), Span(30))).unwrap();
    assert_eq!(starts(&ledger), [1_020, 1_100]);
    ledger.handle_timeout(second(1_100));
    ledger.forget_past(second(1_100));
    drain(&mut ledger, &mut Disk::default());
    assert_eq!(shown(&ledger), [("c".to_owned(), 1_100, both, true)]);
    order(&mut ledger, second(1_101), QueueOrder::Remove(RequestId::new("c").unwrap())).unwrap();
    assert!(shown(&ledger).is_empty() && ledger.bookings().count() == 0);
    let unknown = order(&mut ledger, second(1_101), QueueOrder::Remove(RequestId::new("c").unwrap()));
    assert_eq!(unknown, Err(QueueError::Unknown(RequestId::new("c").unwrap())));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut ledger = ledger();
    let mut refused = |job: QueuedJob| add(&mut ledger, at(0), job).unwrap_err().to_string();
    assert_eq!(refused(job("a", 100, 3, 1)), "own job a: this site does not have 3 hosts with that much for each");
    assert!(refused(job("a", 100, 1, 4_001)).contains("does not have 1 hosts"));
    assert!(refused(job("a", 0, 1, 1)).contains("expected at least one host"));
    assert!(refused(job("a", 100, 0, 1)).contains("expected at least one host"));
    assert!(refused(job("a", 100, 1, 0)).contains("expected at least one host"));
    let late = QueuedJob { deadline: Some(Time(1_099)), ..job("a", 100, 1, 1) };
    assert!(refused(late).contains("deadline would be missed even by a start now"));
    let many = (0..5).map(|number| (crate::resources::ResourceName::new(&format!("r{number}")).unwrap(), Amount(1)));
    assert!(refused(QueuedJob { amounts: many.collect(), ..job("a", 1, 1, 1) }).contains("more than 4 kinds"));
    let mut both = |second: QueuedJob| order(&mut ledger, at(0), QueueOrder::Add(vec![job("a", 1, 1, 1), second]));
    assert!(both(job("b", 1, 9, 1)).is_err());
    assert!(ledger.own_jobs().next().is_none(), "all or none");
    add(&mut ledger, at(0), job("a", 100, 1, 1)).unwrap();
    assert!(matches!(add(&mut ledger, at(0), job("a", 100, 1, 1)), Err(QueueError::Known(_))));
    let twice = QueueOrder::Add(vec![job("b", 1, 1, 1), job("b", 2, 1, 1)]);
    assert_eq!(order(&mut ledger, at(0), twice), Err(QueueError::Known(RequestId::new("b").unwrap())));
    assert_eq!(ledger.own_jobs().count(), 1, "all or none");
    let many = (0..QUEUE_JOBS_MAX).map(|number| job(&format!("j{number}"), 1, 1, 1)).collect();
    assert_eq!(order(&mut ledger, at(0), QueueOrder::Add(many)), Err(QueueError::Full));
}

#[test]
fn a_promise_stands_and_a_hold_that_costs_the_queue_too_much_names_the_rule() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 1_100, 4_000));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    // Both hosts: it begins before the promise and would run into it, so it waits.
    add(&mut ledger, at(0), job("a", 150, 2, 4_000)).unwrap();
    assert_eq!(starts(&ledger), [1_200]);
    add(&mut ledger, at(0), QueuedJob { deadline: Some(Time(1_450)), ..job("b", 90, 1, 4_000) }).unwrap();
    assert_eq!(starts(&ledger), [1_200, 1_000], "into the gap");
    let longer = order(&mut ledger, at(0), QueueOrder::Extend(RequestId::new("b").unwrap(), Span(20)));
    assert!(longer.is_err_and(|error| error.to_string().contains("cannot run longer: host h1")));
    add(&mut ledger, at(0), QueuedJob { deadline: Some(Time(1_450)), ..job("c", 100, 1, 4_000) }).unwrap();
    assert_eq!(starts(&ledger), [1_200, 1_000, 1_000]);
    add(&mut ledger, at(0), QueuedJob { deadline: Some(Time(1_450)), ..job("d", 100, 1, 4_000) }).unwrap();
    assert_eq!(starts(&ledger)[3], 1_100);
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("s", 1), 1_150, 4_000));
    assert!(matches!(reason(answer), RefusalReason::NotEnough { .. }), "it is promised already");
    // 1,200 s is when a begins on both hosts.
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("s", 1), 1_250, 1));
    let SiteAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
    assert_eq!(
        refusal.reason.to_string(),
        "refused by rule `own-queue`: the mean slowdown of 2 own jobs would be 2.666, at most 2.383 is allowed"
    );
    assert!(refusal.shows_what_is_free());
    let shown = &refusal.hosts[0].schedule;
    assert_eq!(
        shown.peak(&crate::resources::ResourceName::new("cpu").unwrap(), Window::starting(Time(1_200), Span(150))),
        Amount(4_000)
    );
    assert_eq!(starts(&ledger), [1_200, 1_000, 1_000, 1_100], "nothing has moved");
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("s", 1), 1_350, 4_000));
    assert!(matches!(answer, SiteAnswer::Held { .. }), "what costs nothing is given: {answer:?}");
}

#[test]
fn own_work_never_takes_the_name_of_a_job() {
    let mut ledger = ledger();
    add(&mut ledger, at(0), job("a", 100, 2, 4_000)).unwrap();
    add(&mut ledger, at(0), job("b", 100, 2, 4_000)).unwrap();
    for name in ["a", "b"] {
        let work = crate::ledger::LocalWork {
            id: RequestId::new(name).unwrap(),
            host: host("h1").id,
            window: Window::starting(Time(2_000), Span(10)),
            amounts: cpu(1),
        };
        ledger.handle(at(0), Event::Local { token: ReplyToken(1), work });
        let outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll_output()).collect();
        let [Output::Reply { answer, .. }] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(reason(answer.clone()), RefusalReason::Malformed("there is an own job of this name".to_owned()));
    }
    assert_eq!(starts(&ledger), [1_000, 1_100]);
}

#[test]
fn small_losses_add_up_until_nothing_more_may_be_lost() {
    let mut ledger = open(Kept::default(), at(0), 50);
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 1_000, 4_000));
    add(&mut ledger, at(0), job("a", 1_000, 2, 4_000)).unwrap();
    assert_eq!(starts(&ledger), [1_100]);
    let mut given = 0;
    for number in 0..20_i64 {
        let start = starts(&ledger)[0];
        let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt(&format!("s{number}"), 1), start, 1_000));
        match answer {
            SiteAnswer::Held { .. } => given += 1,
            refused => {
                assert!(reason(refused).to_string().contains("at most 1.650 is allowed"));
                break;
            }
        }
    }
    assert_eq!((given, starts(&ledger)[0]), (5, 1_600), "5 x 100 s of a slowdown that was 1.1");
    // One is given back, and its time may be given again.
    ask(&mut ledger, at(0), "entry", SiteRequest::Release(attempt("s4", 1)));
    assert_eq!(starts(&ledger), [1_500]);
    let (answer, _) = ask(&mut ledger, at(0), "entry", hold(attempt("t", 1), 1_500, 1_000));
    assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
}

#[test]
fn jobs_of_a_feed_wait_and_never_begin_by_themselves() {
    let mut ledger = ledger();
    let fed = |name: &str, length: u64| job(&format!("feed-{name}"), length, 1, 4_000);
    let report = |ledger: &mut Ledger, now: Now, queue: Vec<QueuedJob>| {
        ledger.handle(now, Event::Feed { token: ReplyToken(1), works: Vec::new(), queue });
        ledger.sanity_check().unwrap();
        let outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll_output()).collect();
        assert!(
            !outputs.iter().any(|output| matches!(output, Output::Persist(_))),
            "it is reported again: {outputs:?}"
        );
        outputs.into_iter().find_map(|output| match output {
            Output::FeedApplied { report, .. } => Some((report.queued, report.left_out)),
            _ => None,
        })
    };
    add(&mut ledger, at(0), job("a", 100, 2, 4_000)).unwrap();
    let told = report(&mut ledger, at(0), vec![fed("1", 60), fed("2", 60), job("feed-3", 60, 3, 1)]);
    assert_eq!(told, Some((2, 1)), "three hosts are more than there are");
    assert_eq!(starts(&ledger), [1_000, 1_100, 1_100]);
    // Reported again, one of them is another now.
    assert_eq!(report(&mut ledger, second(1_050), vec![fed("1", 60), fed("2", 90)]), Some((2, 0)));
    assert_eq!(starts(&ledger), [1_000, 1_100, 1_100]);
    ledger.handle_timeout(second(1_100));
    drain(&mut ledger, &mut Disk::default());
    assert!(
        shown(&ledger).iter().skip(1).all(|(_, start, _, runs)| *start == 1_160 && !runs),
        "whoever feeds it begins it"
    );
    let longer = order(&mut ledger, second(1_100), QueueOrder::Extend(RequestId::new("feed-1").unwrap(), Span(5)));
    assert!(matches!(longer, Err(QueueError::OfFeed(_))));
    assert_eq!(report(&mut ledger, second(1_110), Vec::new()), Some((0, 0)));
    assert_eq!(shown(&ledger).len(), 1);
}

/// Promises h1 for 100 s from then on.
fn promise(ledger: &mut Ledger, of: &str, start: i64) {
    ask(ledger, at(0), "entry", hold(attempt(of, 1), start, 4_000));
    let (answer, _) = ask(ledger, at(0), "entry", confirm(attempt(of, 1)));
    assert!(matches!(answer, SiteAnswer::Confirmed { .. }), "{answer:?}");
}

/// What users' holds cost the queue, and what its plan is worth.
fn loss(ledger: &Ledger) -> Loss {
    ledger.queue.plan.as_ref().unwrap().loss(Time(i64::MAX))
}

#[test]
fn a_job_begins_in_the_second_that_it_is_planned_for() {
    let mut ledger = ledger();
    promise(&mut ledger, "r", 1_000);
    promise(&mut ledger, "s", 1_200);
    add(&mut ledger, at(0), job("a", 100, 2, 4_000)).unwrap();
    // Each clock that shows 1,100 s begins it, and none shows more before it has shown this.
    let mut now = 0;
    while ledger.own_jobs().any(|own| matches!(own.stage, JobStage::Waits(_))) {
        now = ledger.poll_timeout().unwrap().0.max(now + 1);
        ledger.handle_timeout(at(now));
    }
    assert!((100_000..100_100).contains(&now), "{now}");
    assert_eq!(starts(&ledger), [1_100], "the gap is as long as the job");
}

#[test]
fn a_job_that_cannot_begin_keeps_no_other_waiting() {
    let mut ledger = ledger();
    add(&mut ledger, at(0), job("r", 100, 2, 4_000)).unwrap();
    add(&mut ledger, at(0), job("a", 50, 1, 4_000)).unwrap();
    add(&mut ledger, at(0), job("b", 60, 1, 4_000)).unwrap();
    assert_eq!(starts(&ledger), [1_100, 1_100, 1_000]);
    // The plan does not know of this.
    let planned = ledger.queue.plan.as_ref().unwrap().planned(&job("a", 1, 1, 1).attempt).unwrap();
    let window = Window::starting(Time(1_100), Span(1));
    ledger.begin(booking(0, vec![grant(0, planned.hosts[0].as_str(), window, 1)]));
    ledger.run_queue(second(1_100));
    let (stages, begun) = (shown(&ledger), |at: usize| shown(&ledger)[at].3);
    assert_eq!((stages[0].1, begun(0), begun(1)), (1_101, false, true), "{stages:?}");
    assert_eq!(loss(&ledger).with, loss(&ledger).without, "no user has caused that");
    ledger.run_queue(second(1_101));
    assert_eq!((shown(&ledger)[0].1, shown(&ledger)[0].3), (1_101, true));
}

#[test]
fn what_the_owner_or_a_feed_delays_is_no_loss_that_users_have_caused() {
    let mut ledger = ledger();
    promise(&mut ledger, "r", 1_000);
    let queue = vec![job("feed-1", 100, 2, 4_000)];
    ledger.handle(at(0), Event::Feed { token: ReplyToken(1), works: Vec::new(), queue });
    drain(&mut ledger, &mut Disk::default());
    ledger.handle_timeout(second(1_100));
    assert_eq!((starts(&ledger), loss(&ledger).jobs), (vec![1_160], 1));
    assert_eq!(loss(&ledger).with, loss(&ledger).without);

    // The site was down while the job's only gap passed.
    let mut ledger = self::ledger();
    promise(&mut ledger, "r", 1_000);
    promise(&mut ledger, "s", 1_200);
    add(&mut ledger, at(0), job("a", 100, 2, 4_000)).unwrap();
    ledger.handle_timeout(second(1_130));
    assert_eq!((starts(&ledger), loss(&ledger).jobs), (vec![1_300], 1));
    assert_eq!(loss(&ledger).with, loss(&ledger).without);
}
