//! The own queue: what begins when, what a hold may cost, and the plan against one that looks at every second.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    super::{
        Event, Kept, LedgerLimits, Output, Record,
        tests::{ask, at, attempt, confirm, cpu, hold, host, id, reason},
    },
    *,
};
use crate::{
    amount::Amount,
    ledger::BookingRecord,
    protocol::{SiteAnswer, SiteRequest},
    schedule::Schedule,
    trust::testing,
};

/// The clock shows 1,000 s at first.
fn second(second: u64) -> Now {
    at((second - 1_000) * 1_000)
}

fn open(kept: Kept, now: Now, loss_percent: u32) -> Ledger {
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

fn job(name: &str, length: u64, hosts: u32, amount: u64) -> QueuedJob {
    let attempt = AttemptId { entry_point: id("site"), request: RequestId::new(name).unwrap(), attempt: 0 };
    QueuedJob { attempt, arrival: Time::ZERO, length: Span(length), deadline: None, hosts, amounts: cpu(amount) }
}

/// What is on disk.
#[derive(Debug, Default, Clone)]
struct Disk {
    bookings: BTreeMap<AttemptId, BookingRecord>,
    queue: BTreeMap<AttemptId, QueuedJob>,
}

impl Disk {
    fn apply(&mut self, record: Record) {
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

    fn kept(&self) -> Kept {
        let bookings = self.bookings.values().cloned().collect();
        Kept { bookings, queue: self.queue.values().cloned().collect(), ..Kept::default() }
    }
}

fn drain(ledger: &mut Ledger, disk: &mut Disk) -> Option<Result<(), QueueError>> {
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
fn shown(ledger: &Ledger) -> Vec<(String, i64, Vec<String>, bool)> {
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

fn starts(ledger: &Ledger) -> Vec<i64> {
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
    assert_eq!(ledger.poll_timeout(), Some(Millis(100_000)), "the next start");
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

#[derive(Debug, Clone)]
enum Step {
    Add { length: u64, hosts: u32, amount: u64, slack: Option<u64> },
    Remove(prop::sample::Index),
    Done(prop::sample::Index),
    Extend(prop::sample::Index, u64),
    Hold { start: i64, amount: u64 },
    Confirm(prop::sample::Index),
    Release(prop::sample::Index),
    Local { start: i64, amount: u64 },
    Pass(u64),
    Restart,
    Shrink(bool),
}

fn a_step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        5 => (1_u64..120, 1_u32..4, 1_u64..5, prop::option::of(0_u64..300))
            .prop_map(|(length, hosts, amount, slack)| Step::Add { length, hosts, amount: amount * 1_000, slack }),
        1 => index().prop_map(Step::Remove),
        2 => index().prop_map(Step::Done),
        1 => (index(), 1_u64..60).prop_map(|(which, longer)| Step::Extend(which, longer)),
        4 => (0_i64..400, 1_u64..5).prop_map(|(start, amount)| Step::Hold { start, amount: amount * 1_000 }),
        2 => index().prop_map(Step::Confirm),
        2 => index().prop_map(Step::Release),
        1 => (0_i64..400, 1_u64..5).prop_map(|(start, amount)| Step::Local { start, amount: amount * 1_000 }),
        3 => (1_u64..80).prop_map(Step::Pass),
        1 => Just(Step::Restart),
        1 => any::<bool>().prop_map(Step::Shrink),
    ]
}

/// The first second at which a job fits beside all that is promised and planned, second by second.
fn earliest(ledger: &Ledger, job: &QueuedJob, now: i64) -> Option<i64> {
    let mut taken: BTreeMap<String, Vec<(i64, i64, u64)>> = BTreeMap::new();
    let cores = |amounts: &crate::resources::Amounts| amounts.values().map(|amount| amount.0).sum::<u64>();
    for booking in ledger.bookings() {
        for grant in &booking.grants {
            let window = (grant.window.start.0, grant.window.end.0, cores(&grant.amounts));
            taken.entry(grant.host().to_string()).or_default().push(window);
        }
    }
    for own in ledger.own_jobs() {
        if let JobStage::Waits(PlannedJob { start: Some(start), hosts, .. }) = own.stage {
            let window = (start.0, start.0 + own.job.length.0.cast_signed(), cores(&own.job.amounts));
            hosts.iter().for_each(|host| taken.entry(host.to_string()).or_default().push(window));
        }
    }
    let length = job.length.0.cast_signed();
    let fits = |host: &Host, start: i64| {
        let here = taken.get(host.id.as_str()).map_or(&[][..], Vec::as_slice);
        (start..start + length).all(|second| {
            let used: u64 = here.iter().filter(|(from, to, _)| *from <= second && second < *to).map(|one| one.2).sum();
            used + cores(&job.amounts) <= cores(&host.capacity)
        })
    };
    let hosts: Vec<&Host> = ledger.hosts().map(Books::host).collect();
    (now..now + 4_000).find(|start| hosts.iter().filter(|host| fits(host, *start)).count() >= job.hosts as usize)
}

use crate::host::Host;

/// A ledger, its disk, and what it has promised to users and not taken back.
struct Run {
    ledger: Ledger,
    disk: Disk,
    now: u64,
    named: usize,
    held: Vec<AttemptId>,
    loss_percent: u32,
}

impl Run {
    fn now(&self) -> Now {
        second(self.now)
    }

    fn order(&mut self, order: QueueOrder) -> Result<(), QueueError> {
        let now = self.now();
        self.ledger.handle(now, Event::Queue { token: ReplyToken(1), order });
        drain(&mut self.ledger, &mut self.disk).unwrap()
    }

    fn a_job(&self, which: prop::sample::Index) -> Option<RequestId> {
        let all: Vec<RequestId> = self.ledger.own_jobs().map(|own| own.job.attempt.request.clone()).collect();
        (!all.is_empty()).then(|| which.get(&all).clone())
    }

    fn add(&mut self, job: QueuedJob) {
        let (now, id) = (self.now.cast_signed(), job.attempt.request.to_string());
        let expected = earliest(&self.ledger, &job, now);
        match self.order(QueueOrder::Add(vec![job])) {
            Ok(()) => {
                let found = shown(&self.ledger).into_iter().find(|(name, ..)| *name == id).unwrap();
                assert_eq!((Some(found.1), found.3), (expected, expected == Some(now)), "{id}");
                assert!(self.disk.queue.keys().any(|attempt| attempt.request.as_str() == id));
            }
            Err(QueueError::NeverFits { .. }) => assert_eq!(expected, None, "{id}"),
            Err(error) => assert!(matches!(error, QueueError::TooLate(_)), "{error}"),
        }
    }

    fn hold(&mut self, start: i64, amount: u64) {
        self.named += 1;
        let (now, attempt) = (self.now(), attempt(&format!("r{}", self.named), 1));
        let until = now.utc + OwnerPolicy::default().quality_horizon;
        let before = self.ledger.queue.plan.as_ref().map(|plan| plan.loss(until)).unwrap_or_default();
        let (answer, records) = ask(&mut self.ledger, now, "entry", hold(attempt.clone(), now.utc.0 + start, amount));
        records.into_iter().for_each(|record| self.disk.apply(record));
        drain(&mut self.ledger, &mut self.disk);
        let after = self.ledger.queue.plan.as_ref().map(|plan| plan.loss(until)).unwrap_or_default();
        let percent = u128::from(self.loss_percent);
        match answer {
            SiteAnswer::Held { .. } => {
                self.held.push(attempt);
                // One that it moved to the present has begun, and is not counted any more.
                if after.jobs < before.jobs {
                    return;
                }
                let in_time = u128::from(after.jobs - after.without.late);
                assert!(
                    after == before
                        || u128::from(after.with.late - after.without.late) <= in_time * percent / 100
                            && after.with.slowdown_millionths * 100
                                <= after.without.slowdown_millionths * (100 + percent),
                    "{before:?} {after:?}"
                );
            }
            _ => assert_eq!(before, after, "a refusal moves nothing"),
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now();
        match *step {
            Step::Add { length, hosts, amount, slack } => {
                self.named += 1;
                let deadline = slack.map(|slack| now.utc + Span(length + slack));
                self.add(QueuedJob { deadline, ..job(&format!("j{}", self.named), length, hosts, amount) });
            }
            Step::Remove(which) => {
                if let Some(id) = self.a_job(which) {
                    self.order(QueueOrder::Remove(id)).unwrap();
                }
            }
            Step::Done(which) => {
                if let Some(id) = self.a_job(which) {
                    let _ = self.order(QueueOrder::Done(id));
                }
            }
            Step::Extend(which, longer) => {
                if let Some(id) = self.a_job(which) {
                    let _ = self.order(QueueOrder::Extend(id, Span(longer)));
                }
            }
            Step::Hold { start, amount } => self.hold(start, amount),
            Step::Confirm(which) if !self.held.is_empty() => {
                let (_, records) = ask(&mut self.ledger, now, "entry", confirm(which.get(&self.held).clone()));
                records.into_iter().for_each(|record| self.disk.apply(record));
            }
            Step::Release(which) if !self.held.is_empty() => {
                let attempt = self.held.remove(which.index(self.held.len()));
                let (_, records) = ask(&mut self.ledger, now, "entry", SiteRequest::Release(attempt));
                records.into_iter().for_each(|record| self.disk.apply(record));
            }
            Step::Confirm(_) | Step::Release(_) => {}
            Step::Local { start, amount } => {
                self.named += 1;
                let id = RequestId::new(&format!("w{}", self.named)).unwrap();
                let (host, window) = (host("h2").id, Window::starting(now.utc + Span(start.cast_unsigned()), Span(60)));
                let work = crate::ledger::LocalWork { id, host, window, amounts: cpu(amount) };
                self.ledger.handle(now, Event::Local { token: ReplyToken(1), work });
            }
            Step::Pass(seconds) => {
                self.now += seconds;
                self.ledger.handle_timeout(self.now());
                self.ledger.forget_past(self.now());
            }
            Step::Restart => {
                self.ledger = open(self.disk.kept(), now, self.loss_percent);
                self.held.retain(|attempt| self.ledger.bookings().any(|booking| booking.attempt == *attempt));
                // What begins at once does so with the first call.
                self.ledger.handle_timeout(now);
            }
            Step::Shrink(is_whole) => {
                let mut hosts = vec![(host("h1"), Schedule::default())];
                hosts.extend(is_whole.then(|| (host("h2"), Schedule::default())));
                let books = hosts.into_iter().map(|(host, own)| crate::ledger::HostLedger::new(host, own)).collect();
                self.ledger.replace_hosts(now, books);
            }
        }
        drain(&mut self.ledger, &mut self.disk);
    }

    fn check(&self) {
        // What is on disk is what there is, so nothing acknowledged is lost.
        let jobs: Vec<&AttemptId> = self.ledger.own_jobs().map(|own| &own.job.attempt).collect();
        assert!(jobs.iter().copied().eq(self.disk.queue.keys()));
        for own in self.ledger.own_jobs() {
            if let JobStage::Waits(PlannedJob { start: Some(start), hosts, .. }) = own.stage {
                assert!(start > self.now().utc, "what may begin has begun");
                assert_eq!(hosts.len(), own.job.hosts as usize);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The ledger checks after each step that beside all promises no host is planned for more than it has.
    #[test]
    fn the_plan_stands_beside_the_promises_whatever_happens(
        steps in prop::collection::vec(a_step(), 1..50), loss_percent in prop::sample::select(vec![0_u32, 10, 100]),
    ) {
        let ledger = open(Kept::default(), at(0), loss_percent);
        let mut run = Run { ledger, disk: Disk::default(), now: 1_000, named: 0, held: Vec::new(), loss_percent };
        for step in &steps {
            run.step(step);
            run.check();
        }
    }
}
