//! What is stopped of own jobs, against a count of what crosses: on one class of hosts that are taken whole, seats and jobs fit if and only if
//! never more of them are at one second than there are hosts, since what is fixed has begun.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    tests::{Disk, drain, job, second},
    wait_tests::patient,
    *,
};
use crate::{
    ledger::{
        BookingRecord, Event, HostLedger, Kept, LedgerLimits,
        floating::tests::books,
        tests::{ask, id},
    },
    protocol::{SiteAnswer, SiteRequest},
    trust::{OwnerPolicy, testing},
};

const WHOLE: u64 = 4_000;

#[derive(Debug, Clone, Copy)]
enum Step {
    Job { length: u64, preempt: bool },
    Done(usize),
    Book { host: usize, ahead: i64, length: u64, is_held: bool, slack: u64 },
    Confirm(prop::sample::Index),
    Cancel(prop::sample::Index),
    Pass(u64),
    Restart,
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_u64..150, prop::bool::weighted(0.8)).prop_map(|(length, preempt)| Step::Job { length, preempt }),
        2 => (0_usize..8).prop_map(Step::Done),
        6 => (0_usize..3, 0_i64..60, 1_u64..90, prop::bool::weighted(0.4), prop_oneof![Just(0), 1_u64..80])
            .prop_map(|(host, ahead, length, is_held, slack)| Step::Book { host, ahead, length, is_held, slack }),
        2 => any::<prop::sample::Index>().prop_map(Step::Confirm),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        4 => (1_u64..25).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

pub(super) fn open(hosts: usize, kept: Kept, now: Now) -> Ledger {
    let hosts: Vec<HostLedger> = books(0..hosts);
    let opened = Ledger::open_with(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, kept, now);
    let mut ledger = opened.0;
    ledger.gate.lock().set_policy(OwnerPolicy { quality_loss_percent: 1_000_000, ..OwnerPolicy::default() });
    while ledger.poll_output().is_some() {}
    ledger
}

/// A job that runs: what it has, and what it would have if nothing had stopped it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Runs {
    /// When it first began.
    begun: Time,
    has: Window,
    whole: Window,
    may_stop: bool,
}

impl Runs {
    /// What is lost of it if it stops then.
    fn lost_at(&self, end: Time) -> u64 {
        end.since(self.begun).0
    }
}

struct Run {
    ledger: Ledger,
    disk: Disk,
    hosts: usize,
    now: u64,
    named: usize,
    booked: Vec<AttemptId>,
    /// For when something was booked or held, and how much later it may begin.
    asked: BTreeMap<AttemptId, (Window, Span)>,
    /// How many bookings have waited.
    waited: BTreeSet<AttemptId>,
    /// What was held and not confirmed; some of it has lapsed.
    held: Vec<AttemptId>,
    /// Jobs that were chosen to end early while something was held: another may have been what that needed.
    chosen_beside_holds: BTreeSet<AttemptId>,
    /// How many jobs were stopped.
    stopped: usize,
}

impl Run {
    /// An empty site of so many hosts.
    fn of(hosts: usize) -> Run {
        Run {
            ledger: open(hosts, Kept::default(), second(1_000)),
            disk: Disk::default(),
            hosts,
            now: 1_000,
            named: 0,
            booked: Vec::new(),
            asked: BTreeMap::new(),
            waited: BTreeSet::new(),
            held: Vec::new(),
            chosen_beside_holds: BTreeSet::new(),
            stopped: 0,
        }
    }

    fn now(&self) -> Now {
        second(self.now)
    }

    fn runs(&self) -> BTreeMap<AttemptId, Runs> {
        let one = |own: OwnJob<'_>| match own.stage {
            JobStage::Waits(_) => None,
            JobStage::Runs(booking) => {
                let whole = Window::starting(booking.window.start, own.job.length);
                let begun = own.job.first_begun.unwrap_or(whole.start);
                Some((own.job.attempt.clone(), Runs { begun, has: booking.window, whole, may_stop: own.job.preempt }))
            }
        };
        self.ledger.own_jobs().filter_map(one).collect()
    }

    /// Whether something fits in this time beside all that is booked but these jobs.
    fn fits(&self, window: Window, without: &[&AttemptId]) -> bool {
        (window.start.0..window.end.0).all(|second| {
            let crosses = |grant: &&Grant| grant.window.start.0 <= second && second < grant.window.end.0;
            let others = self.ledger.bookings().filter(|booking| !without.contains(&&booking.attempt));
            others.flat_map(|booking| &booking.grants).filter(crosses).count() < self.hosts
        })
    }

    /// Whether a booking could begin later by some time within its slack, so that this job, which had that until it was stopped, ends whole.
    fn could_wait(&self, booking: &Booking, job: &Runs) -> bool {
        let rest = Window { start: job.has.end, end: job.whole.end };
        let (from, slack) = (booking.window.start.0, booking.slack.0.cast_signed());
        let used = |second: i64| {
            let crosses = |grant: &&Grant| grant.window.start.0 <= second && second < grant.window.end.0;
            let others = self.ledger.bookings().filter(|other| other.attempt != booking.attempt);
            others.flat_map(|other| &other.grants).filter(crosses).count()
        };
        let is_in = |window: Window, second: i64| window.start.0 <= second && second < window.end.0;
        (1..=slack).any(|wait| {
            let later = booking.window.later(Span(wait.unsigned_abs()));
            let until = later.end.max(rest.end).0;
            let more = |second| usize::from(is_in(rest, second)) + usize::from(is_in(later, second));
            (from..until).all(|second| used(second) + more(second) <= self.hosts)
        })
    }

    fn book(&mut self, host: usize, (start, length): (i64, u64), (is_held, slack): (bool, u64)) {
        self.named += 1;
        let (of, window) = (format!("r{}", self.named), Window::starting(Time(start), Span(length)));
        let (fits, before) = (self.fits(window, &[]), self.runs());
        let is_beside_holds = self.ledger.bookings().any(Booking::is_held);
        // What begins now is not found a host by moving others away from one that is not named.
        let is_exact = start > self.now().utc.0;
        let hold = patient(&of, &[host % self.hosts], (start, length), &format!(r#""slack":{slack}"#));
        let incarnation = self.ledger.version().incarnation;
        let attempt = hold.attempt.clone();
        let now = self.now();
        let request = if is_held { SiteRequest::Hold(hold) } else { SiteRequest::Book { hold, incarnation } };
        let (answer, records) = ask(&mut self.ledger, now, "entry", request);
        records.into_iter().for_each(|record| self.disk.apply(record));
        drain(&mut self.ledger, &mut self.disk);
        let after = self.runs();
        let is_booked = matches!(answer, SiteAnswer::Confirmed { .. } | SiteAnswer::Held { .. });
        assert!(is_booked || !fits || !is_exact, "{answer:?}");
        if is_booked {
            self.asked.insert(attempt.clone(), (window, Span(slack)));
            if is_held { &mut self.held } else { &mut self.booked }.push(attempt);
        }
        for (name, was) in
            before.iter().filter(|(name, was)| after.get(*name).is_none_or(|is| is.has.end < was.has.end))
        {
            assert!(is_booked && was.may_stop && !(fits && is_exact), "{name:?} ends early");
            assert!(!is_held || after.contains_key(name), "{name:?} is stopped for what is not confirmed");
            assert!(was.has.overlaps(window) && was.has.end > window.start, "{name:?} is in nobody's way");
            if is_beside_holds {
                self.chosen_beside_holds.insert(name.clone());
            }
        }
    }

    /// One second later: what was stopped had to be.
    fn pass(&mut self) {
        let before = self.runs();
        // Who was spared again is chosen anew.
        let ends_early = |name: &AttemptId| before.get(name).is_some_and(|runs| runs.has.end < runs.whole.end);
        self.chosen_beside_holds.retain(ends_early);
        self.now += 1;
        let now = self.now();
        let may_wait = |booking: &&Booking| !booking.is_held() && !booking.slack.is_zero();
        let may_wait: Vec<Booking> = self.ledger.bookings().filter(may_wait).cloned().collect();
        let due_or_later: BTreeMap<AttemptId, Window> =
            may_wait.iter().map(|booking| (booking.attempt.clone(), booking.window)).collect();
        let due: Vec<Booking> = may_wait.into_iter().filter(|booking| booking.window.start <= now.utc).collect();
        self.ledger.handle_timeout(now);
        drain(&mut self.ledger, &mut self.disk);
        let after = self.runs();
        let has_waited = |booking: &&Booking| due_or_later.contains_key(&booking.attempt) && !booking.wait.is_zero();
        for booking in self.ledger.bookings().filter(has_waited) {
            let is_spared = |(name, was): (&AttemptId, &Runs)| {
                let rest = Window { start: was.has.end, end: was.whole.end };
                let is_whole = after.get(name).is_none_or(|is| is.has == is.whole);
                is_whole && rest.is_valid() && rest.overlaps(due_or_later[&booking.attempt])
            };
            assert!(before.iter().any(is_spared), "{booking:?} has waited for nothing");
        }
        let jobs: BTreeSet<AttemptId> = self.ledger.own_jobs().map(|own| own.job.attempt.clone()).collect();
        // Some have begun anew.
        let has_ended = |(name, was): &(&AttemptId, &Runs)| {
            jobs.contains(*name) && after.get(*name).is_none_or(|is| is.has.start > was.has.start)
        };
        for (name, was) in before.iter().filter(has_ended) {
            if was.has.end == was.whole.end {
                continue;
            }
            self.stopped += 1;
            assert!(was.may_stop, "{name:?}");
            // Where others wait behind, it may cost these more.
            if let [one] = due.as_slice()
                && self.ledger.wait_of(&one.attempt).is_zero()
                && jobs.len() == 1
            {
                assert!(!self.could_wait(one, was), "{name:?} was stopped, and {one:?} did not wait");
            }
            let rest = Window { start: was.has.end, end: was.whole.end };
            let holds = self
                .held
                .iter()
                .filter(|held| self.ledger.bookings().any(|booking| booking.attempt == **held && booking.is_held()));
            let without: Vec<&AttemptId> = holds.chain([name]).collect();
            let next = Window::starting(rest.start, Span(1));
            assert!(!self.fits(next, &without), "{name:?} was stopped where another host is free, or only held");
            for (other, runs) in after.iter().filter(|(_, runs)| runs.may_stop && runs.has.end > rest.start) {
                let (lost, of_other) = (was.lost_at(rest.start), runs.lost_at(rest.start));
                assert!(
                    of_other >= lost || !self.fits(rest, &[name, other]) || self.chosen_beside_holds.contains(name),
                    "{name:?} was stopped after {lost} s, {other:?} after {of_other} s"
                );
            }
        }
        self.ledger.forget_past(now);
        drain(&mut self.ledger, &mut self.disk);
    }

    fn step(&mut self, step: Step) {
        let now = self.now();
        match step {
            Step::Job { length, preempt } => {
                self.named += 1;
                let job = QueuedJob { preempt, ..job(&format!("j{}", self.named), length, 1, WHOLE) };
                let order = QueueOrder::Add(vec![job]);
                self.ledger.handle(now, Event::Queue { token: ReplyToken(1), order });
            }
            Step::Done(which) => {
                let runs: Vec<AttemptId> = self.runs().into_keys().collect();
                if !runs.is_empty() {
                    let order = QueueOrder::Done(runs[which % runs.len()].request.clone());
                    self.ledger.handle(now, Event::Queue { token: ReplyToken(1), order });
                }
            }
            Step::Book { host, ahead, length, is_held, slack } => {
                self.book(host, (now.utc.0 + ahead, length), (is_held, slack));
            }
            Step::Confirm(which) if !self.held.is_empty() => {
                let attempt = self.held.swap_remove(which.index(self.held.len()));
                let held_in = self.ledger.version().incarnation;
                let request = SiteRequest::Confirm { attempt: attempt.clone(), held_in };
                let (answer, records) = ask(&mut self.ledger, now, "entry", request);
                records.into_iter().for_each(|record| self.disk.apply(record));
                if matches!(answer, SiteAnswer::Confirmed { .. }) {
                    self.booked.push(attempt);
                }
            }
            Step::Confirm(_) => {}
            Step::Cancel(which) if !self.booked.is_empty() => {
                let attempt = self.booked.swap_remove(which.index(self.booked.len()));
                let (_, records) = ask(&mut self.ledger, now, "entry", SiteRequest::Release(attempt));
                records.into_iter().for_each(|record| self.disk.apply(record));
            }
            Step::Cancel(_) => {}
            Step::Pass(seconds) => (0..seconds).for_each(|_| self.pass()),
            Step::Restart => {
                let before: Vec<BookingRecord> =
                    self.ledger.bookings().map(crate::ledger::Booking::to_booking_record).collect();
                self.ledger = open(self.hosts, self.disk.kept(), now);
                let is_kept =
                    |record: &BookingRecord| self.ledger.bookings().any(|booking| booking.attempt == record.attempt);
                assert!(before.iter().all(|record| self.held.contains(&record.attempt) || is_kept(record)));
                self.ledger.handle_timeout(now);
            }
        }
        drain(&mut self.ledger, &mut self.disk);
        for booking in self.ledger.bookings() {
            let Some((window, slack)) = self.asked.get(&booking.attempt) else { continue };
            assert_eq!(booking.window, window.later(booking.wait));
            assert!(booking.wait <= *slack && booking.grants.iter().all(|grant| grant.window == booking.window));
            self.waited.extend((!booking.wait.is_zero()).then(|| booking.attempt.clone()));
        }
        for (name, runs) in self.runs() {
            assert!(runs.may_stop || runs.has == runs.whole, "{name:?} ends early, and must not");
        }
    }
}

fn run(hosts: usize, steps: Vec<Step>) -> usize {
    let mut run = Run::of(hosts);
    steps.into_iter().for_each(|step| run.step(step));
    run.stopped
}

#[test]
fn the_second_of_two_jobs_is_waited_for_where_the_first_takes_too_long() {
    let job = |length| Step::Job { length, preempt: true };
    let book = |slack| Step::Book { host: 0, ahead: 50, length: 20, is_held: false, slack };
    for (slack, stopped, waited) in [(29, 1, 0), (30, 0, 1), (79, 0, 1)] {
        let mut run = Run::of(2);
        let steps = [job(200), Step::Pass(10), job(80), book(slack), Step::Pass(60)];
        steps.into_iter().for_each(|step| run.step(step));
        assert_eq!((run.stopped, run.waited.len()), (stopped, waited), "{slack}");
        assert_eq!(run.ledger.bookings().filter(|one| one.wait == Span(30)).count(), waited, "the shorter wait");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_job_is_stopped_only_where_its_owner_allows_it_no_host_is_free_and_no_other_job_has_less_to_lose(
        hosts in 1_usize..4, steps in prop::collection::vec(a_step(), 1..40),
    ) {
        run(hosts, steps);
    }
}

#[test]
fn a_seat_is_bound_where_a_host_has_become_free_and_else_where_least_is_lost() {
    let (book, wait) = (|host| Step::Book { host, ahead: 50, length: 20, is_held: false, slack: 0 }, Step::Pass(60));
    let job = |length| Step::Job { length, preempt: true };
    let begun = vec![job(100), Step::Pass(10), job(100)];
    let first_done = Step::Done(0);
    assert_eq!(run(2, [begun.clone(), vec![book(0), wait]].concat()), 1);
    assert_eq!(run(2, [begun.clone(), vec![book(0), first_done, wait]].concat()), 0, "the other host is free");
    let (mut of_two, mut run) = (Vec::new(), Run::of(2));
    for step in begun.into_iter().chain([book(0), Step::Pass(49)]) {
        run.step(step);
        of_two = run.runs().into_values().map(|runs| runs.has.end.0).collect();
    }
    assert_eq!(of_two, [1_100, 1_060], "the one that has run for a shorter time is to stop");
}

#[test]
fn what_was_chosen_beside_a_hold_stays_chosen_when_that_lapses() {
    let job = |length| Step::Job { length, preempt: true };
    let book = |ahead, length, is_held| Step::Book { host: 0, ahead, length, is_held, slack: 0 };
    let steps = vec![job(25), Step::Pass(1), job(23), book(22, 1, true), book(21, 2, false), Step::Pass(21)];
    assert_eq!(run(2, steps), 1);
}
