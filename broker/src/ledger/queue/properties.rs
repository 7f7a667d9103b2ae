//! The plan of the own queue, whatever happens in whichever order, against one that looks at every second.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{tests::*, *};
use crate::{
    host::Host,
    ledger::{
        Event, Kept,
        own_plan::Loss,
        tests::{ask, at, attempt, confirm, cpu, hold, host},
    },
    protocol::{Quote, SiteAnswer, SiteRequest},
    schedule::Schedule,
    trust::OwnerPolicy,
};

#[derive(Debug, Clone)]
enum Step {
    Add { length: u64, hosts: u32, amount: u64, slack: Option<u64>, preempt: bool },
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
        5 => (1_u64..120, 1_u32..4, 1_u64..5, prop::option::of(0_u64..300), any::<bool>())
            .prop_map(|(length, hosts, amount, slack, preempt)| {
                Step::Add { length, hosts, amount: amount * 1_000, slack, preempt }
            }),
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
        // What is cut runs, and is planned as well.
        let planned = ledger.queue.plan.as_ref().and_then(|plan| plan.planned(&own.job.attempt));
        if let Some(PlannedJob { start: Some(start), hosts, .. }) = planned {
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
        let asked = hold(attempt.clone(), now.utc.0 + start, amount);
        let SiteRequest::Hold(quoted) = asked.clone() else { panic!() };
        let planned = shown(&self.ledger);
        let (quote, records) = ask(&mut self.ledger, now, "entry", SiteRequest::Quote(quoted));
        assert!(records.is_empty() && shown(&self.ledger) == planned, "a quote changes nothing");
        let (answer, records) = ask(&mut self.ledger, now, "entry", asked);
        match (&quote, &answer) {
            (SiteAnswer::Quoted { quote, hosts, .. }, SiteAnswer::Held { .. }) => {
                assert_eq!(*quote == Quote::default(), hosts.is_empty());
            }
            (SiteAnswer::Refused(quoted), SiteAnswer::Refused(refused)) => assert_eq!(quoted, refused),
            other => panic!("{other:?}"),
        }
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
                let has_begun = planned.iter().map(|one| one.3).ne(shown(&self.ledger).iter().map(|one| one.3));
                if let (SiteAnswer::Quoted { quote, .. }, 1.., false) = (quote, after.jobs, has_begun) {
                    let late = |loss: &Loss| loss.with.late - loss.without.late;
                    assert_eq!(quote.late, late(&after) - late(&before));
                    let slower = |loss: &Loss| loss.with.slowdown_millionths - loss.without.slowdown_millionths;
                    let more = slower(&after).saturating_sub(slower(&before));
                    assert_eq!(u128::from(quote.slowdown_millionths), more.div_ceil(u128::from(after.jobs)));
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
            Step::Add { length, hosts, amount, slack, preempt } => {
                self.named += 1;
                let deadline = slack.map(|slack| now.utc + Span(length + slack));
                self.add(QueuedJob { deadline, preempt, ..job(&format!("j{}", self.named), length, hosts, amount) });
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
