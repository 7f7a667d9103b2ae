//! A ledger under any messages in any order, repeated, late and from strangers, with crashes between them.
//!
//! The model adds up bookings second by second and keeps what was written to disk. It shares no arithmetic with the
//! ledger. What the disk says of who acts for an attempt, and by which word of its user, decides who may give it back.

mod said;

use std::collections::{BTreeMap, BTreeSet};

use fuzz_support::{Input, Target};

use self::said::{BEGIN, carrier_of, seeds, sender_of, some_attempt, some_request};
use super::words;
use crate::{
    amount::Amount,
    host::Host,
    ids::SiteId,
    ledger::{Booking, BookingState, Event, Ledger, LedgerLimits, Output, Record, ReplyToken, Reservation},
    protocol::{Advert, AttemptId, AttemptStatus, HoldRequest, RefusalReason, ScheduleUpdate, SiteAnswer, SiteRequest},
    resources::amount_of,
    schedule::Schedule,
    time::{Millis, Now, Time},
    trust::{SignedText, testing},
    view::{Heard, SiteView},
};

/// Messages to a ledger.
pub const LEDGER: Target = Target { name: "ledger", run, seeds };

const SENDERS: [&str; 5] = ["e0", "e1", "site", "other", "stranger"];
const RESOURCES: [&str; 2] = ["cpu", "memory"];
const OPERATIONS_MAX: usize = 200;

struct Run {
    ledger: Ledger,
    hosts: Vec<(Host, Schedule)>,
    disk: BTreeMap<AttemptId, Reservation>,
    view: SiteView,
    incarnation: u64,
    milliseconds: u64,
    /// How far the absolute clock is from where it was, in seconds.
    skew: i64,
    /// Schedules hold nothing before this.
    forgotten: Time,
    /// Attempts that are over, and until when the ledger must know.
    dead: BTreeMap<AttemptId, u64>,
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut run = Run::new();
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        run.operate(&mut input);
        run.check();
    }
    run.crash();
    run.check();
}

impl Run {
    fn new() -> Run {
        let mut own = Schedule::default();
        own.add(words::window(BEGIN + 100, 150), &words::amounts([("cpu", 1_500)]));
        let capacity = || words::amounts([("cpu", 4_000), ("memory", 200)]);
        let hosts = vec![
            (words::host("h0", capacity()), Schedule::default()),
            (words::host("h1", capacity()), own),
            (words::host("h2", words::amounts([("cpu", 1)])), Schedule::default()),
        ];
        let now = Now { monotonic: Millis(0), utc: Time(BEGIN) };
        let ledger = open(1, &hosts, Vec::new(), now);
        let view = view_of(&ledger, now);
        Run {
            ledger,
            hosts,
            disk: BTreeMap::new(),
            view,
            incarnation: 1,
            milliseconds: 0,
            skew: 0,
            forgotten: Time::ZERO,
            dead: BTreeMap::new(),
        }
    }

    fn now(&self) -> Now {
        let seconds = i64::try_from(self.milliseconds / 1000).unwrap_or(i64::MAX);
        Now { monotonic: Millis(self.milliseconds), utc: Time(BEGIN + seconds + self.skew) }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0..9 => {
                let from = input.one_of(&SENDERS);
                let request = some_request(input, self.incarnation);
                // Most messages come from whom they should come from.
                let from = if input.below(8) == 0 { from } else { sender_of(&request).unwrap_or(from) };
                self.ask_twice(from, &request);
            }
            9 => {
                let (_, _, attempt) = some_attempt(input);
                let statuses =
                    [AttemptStatus::Pending, AttemptStatus::Confirmed, AttemptStatus::Dead, AttemptStatus::Unknown];
                let from = words::site(input.one_of(&SENDERS));
                let decision = input.flag().then(|| input.one_of(&statuses));
                let event = Event::StatusHeard { from, attempt, decision, booking: input.one_of(&statuses) };
                self.ledger.handle(self.now(), event);
                self.drain(None);
            }
            10 | 11 => {
                self.milliseconds += u64::from(input.byte()) * 100;
                self.time_passes();
            }
            12 => {
                self.milliseconds += u64::from(input.byte()) * 2_000;
                self.time_passes();
            }
            13 => self.skew += i64::from(input.byte()) - 128,
            14 => {
                let now = self.now();
                self.ledger.forget_past(now);
                self.forgotten = self.forgotten.max(now.utc);
                self.drain(None);
            }
            _ => self.crash(),
        }
    }

    fn time_passes(&mut self) {
        let now = self.now();
        self.ledger.handle_timeout(now);
        let next = self.ledger.poll_timeout();
        assert!(next.is_none_or(|next| next > now.monotonic), "woken at {now:?} for {next:?} once more");
        self.drain(None);
    }

    /// Asks; then asks the same again, which must change nothing.
    fn ask_twice(&mut self, from: &str, request: &SiteRequest) {
        self.ask(from, request);
        let before = (self.bookings(), self.disk.clone(), self.ledger.version());
        self.ask(from, request);
        assert_eq!((self.bookings(), self.disk.clone(), self.ledger.version()), before, "{request:?}");
    }

    fn ask(&mut self, from: &str, request: &SiteRequest) {
        let token = ReplyToken(self.milliseconds ^ 5);
        let kept = (!self.may_act(from, request)).then(|| self.disk.clone());
        let gives_back = self.check_of_give_back(from, request);
        let event = Event::Request { from: words::site(from), token, request: request.clone() };
        self.ledger.handle(self.now(), event);
        let answer = self.drain(Some(token));
        let answer = answer.expect("every request is answered");
        assert!(kept.is_none_or(|kept| kept == self.disk), "{from} is a stranger to {request:?}");
        if let (SiteRequest::TakeOver { attempt, .. }, SiteAnswer::Booked { hosts, .. }) = (request, &answer) {
            let steward = self.disk.get(attempt).and_then(|kept| kept.steward.as_ref());
            assert!(hosts.is_empty() || steward == Some(&words::site(from)), "{from} may not act for {attempt:?}");
        }
        if let Some(check) = gives_back {
            self.check_given_back(check, &answer);
        }
        self.check_answer(request, &answer);
    }

    /// Whether what `from` asks may change what is on disk.
    fn may_act(&self, from: &str, request: &SiteRequest) -> bool {
        let from = words::site(from);
        match request {
            SiteRequest::Inquire(_) | SiteRequest::Lookup(_) | SiteRequest::Bookings { .. } => false,
            // The user who booked has signed it for the node that may carry it.
            SiteRequest::TakeOver { attempt, authorization } => {
                let user = self.disk.get(attempt).and_then(|kept| kept.user_key);
                let is_of_user = user.is_none_or(|user| user == authorization.request.author);
                is_of_user && carrier_of(authorization) == Some(from)
            }
            SiteRequest::GiveBack { attempt, authorization } => {
                self.refusal_to_give_back(&from, attempt, &authorization.request).is_none()
            }
            // What was taken over is given back by the word by which that was done, and not so.
            SiteRequest::Release(attempt) => {
                attempt.entry_point == from && self.disk.get(attempt).is_none_or(|kept| kept.steward.is_none())
            }
            SiteRequest::Hold(HoldRequest { attempt, .. })
            | SiteRequest::Confirm { attempt, .. }
            | SiteRequest::Settle(attempt)
            | SiteRequest::Inspect(attempt) => {
                let steward = self.disk.get(attempt).and_then(|kept| kept.steward.as_ref());
                *steward.unwrap_or(&attempt.entry_point) == from
            }
        }
    }

    /// Why the site must not let `from` give an attempt back by this word; none when it must, or when nothing is there.
    fn refusal_to_give_back(&self, from: &SiteId, attempt: &AttemptId, word: &SignedText) -> Option<RefusalReason> {
        let Some(kept) = self.disk.get(attempt) else {
            let is_held = self.ledger.bookings().any(|booking| booking.attempt == *attempt);
            return is_held.then_some(RefusalReason::NotYours);
        };
        match (&kept.steward, &kept.statement) {
            (Some(steward), Some(present)) if steward != from => Some(RefusalReason::HandedOver(present.clone())),
            (Some(_), Some(present)) if **present == *word => None,
            _ => Some(RefusalReason::NotYours),
        }
    }

    fn check_of_give_back(&self, from: &str, request: &SiteRequest) -> Option<GivingBack> {
        let SiteRequest::GiveBack { attempt, authorization } = request else { return None };
        let refusal = self.refusal_to_give_back(&words::site(from), attempt, &authorization.request);
        let is_there = self.disk.contains_key(attempt);
        Some(GivingBack { attempt: attempt.clone(), is_there, refusal })
    }

    fn check_given_back(&mut self, expected: GivingBack, answer: &SiteAnswer) {
        let GivingBack { attempt, is_there, refusal } = expected;
        match (answer, &refusal) {
            (SiteAnswer::Released { .. }, None) => {
                assert!(self.bookings().iter().all(|booking| booking.attempt != attempt), "{attempt:?} is given back");
                if is_there {
                    self.dead.insert(attempt, self.milliseconds + LedgerLimits::default().tombstone_life.0);
                }
            }
            (SiteAnswer::Refused(refused), Some(reason)) => assert_eq!(refused.reason, *reason, "{attempt:?}"),
            _ => panic!("{attempt:?} is given back with {answer:?}, expected {refusal:?}"),
        }
    }

    fn bookings(&self) -> Vec<Booking> {
        self.ledger.bookings().cloned().collect()
    }

    /// Lets all outputs happen in their order. Returns the answer to the request of this token.
    fn drain(&mut self, token: Option<ReplyToken>) -> Option<SiteAnswer> {
        let mut answered = None;
        while let Some(output) = self.ledger.poll_output() {
            match output {
                Output::Persist(Record::Put(kept)) => {
                    self.disk.insert(kept.attempt.clone(), kept);
                }
                Output::Persist(Record::Remove(attempt)) => {
                    self.disk.remove(&attempt);
                }
                Output::Publish(parts) => {
                    let update = ScheduleUpdate { site: words::site("site"), from: parts.from, changes: parts.changes };
                    let heard = self.view.hear_update(&update, Millis(self.milliseconds));
                    let is_news = !update.changes.is_empty();
                    assert!(heard == Heard::Applied || !is_news, "{heard:?}: {update:?}");
                }
                Output::Reply { token: of, answer } => {
                    assert!(answered.is_none() && token == Some(of), "one answer to one request");
                    // What was written before the answer is all that a crash after it leaves.
                    if let SiteAnswer::Confirmed { .. } = answer {
                        assert_eq!(self.on_disk(), self.confirmed(), "confirmed and not on disk");
                    }
                    answered = Some(answer);
                }
                Output::Inquire { .. } | Output::Fed { .. } => {}
            }
        }
        answered
    }

    fn check_answer(&mut self, request: &SiteRequest, answer: &SiteAnswer) {
        let present = |attempt: &AttemptId| self.ledger.bookings().find(|booking| booking.attempt == *attempt);
        match (request, answer) {
            (SiteRequest::Hold(hold), SiteAnswer::Held { .. }) => {
                let booking = present(&hold.attempt).expect("what is held is booked");
                assert!(matches!(booking.state, BookingState::Held { .. }));
                let until = self.dead.get(&hold.attempt);
                assert!(until.is_none_or(|until| *until <= self.milliseconds), "{:?} is over", hold.attempt);
            }
            (SiteRequest::Hold(HoldRequest { attempt, .. }), SiteAnswer::Confirmed { .. })
            | (SiteRequest::Confirm { attempt, .. }, SiteAnswer::Confirmed { .. }) => {
                assert!(self.disk.contains_key(attempt), "{attempt:?} is confirmed and not on disk");
            }
            (SiteRequest::Release(attempt), SiteAnswer::Released { .. }) => {
                assert!(present(attempt).is_none() && !self.disk.contains_key(attempt), "{attempt:?} is released");
                self.dead.insert(attempt.clone(), self.milliseconds + LedgerLimits::default().tombstone_life.0);
            }
            (SiteRequest::Hold(_), SiteAnswer::Refused(refusal)) => {
                assert!(!refusal.reason.to_string().is_empty());
            }
            _ => {}
        }
    }

    fn on_disk(&self) -> BTreeSet<(AttemptId, bool)> {
        self.disk.values().map(|kept| (kept.attempt.clone(), kept.settled)).collect()
    }

    fn confirmed(&self) -> BTreeSet<(AttemptId, bool)> {
        let firm = self.ledger.bookings().filter(|booking| !matches!(booking.state, BookingState::Held { .. }));
        firm.map(|booking| (booking.attempt.clone(), booking.state.is_settled())).collect()
    }

    /// The process dies; the next one has what is on disk, and reading it a second time gives the same.
    fn crash(&mut self) {
        self.incarnation += 1;
        let now = self.now();
        let kept = || self.disk.values().cloned().collect::<Vec<_>>();
        let again: Vec<Booking> = open(self.incarnation, &self.hosts, kept(), now).bookings().cloned().collect();
        self.ledger = open(self.incarnation, &self.hosts, kept(), now);
        assert_eq!(self.bookings(), again);
        assert_eq!(self.on_disk(), self.confirmed(), "after a crash");
        self.forgotten = Time::ZERO;
        self.dead.clear();
        self.view = view_of(&self.ledger, now);
        self.drain(None);
    }

    fn check(&self) {
        assert_eq!(self.ledger.sanity_check(), Ok(()));
        assert_eq!(self.on_disk(), self.confirmed());
        let now = self.now();
        for booking in self.ledger.bookings() {
            if let BookingState::Held { deadline } = booking.state {
                let longest = now.monotonic + LedgerLimits::default().hold_max;
                assert!(deadline <= longest, "held until {deadline:?} at {now:?}");
            }
        }
        // What has passed may have been forgotten.
        let from = now.utc.max(self.forgotten);
        for (host, own) in &self.hosts {
            for name in RESOURCES.map(words::resource) {
                self.check_capacity(host, own, &name, from);
            }
        }
        let mut view = self.view.clone();
        view.forget_before(from);
        let known = view.fresh_schedules(Millis(self.milliseconds), Millis(u64::MAX)).expect("nothing was missed");
        assert_eq!(known.version, self.ledger.version());
        for (name, mut schedule) in self.ledger.snapshot(now).hosts {
            schedule.forget_before(from);
            assert_eq!(known.by_host[&name], schedule, "what is published of {name} is what is reserved");
        }
    }

    fn check_capacity(&self, host: &Host, own: &Schedule, name: &crate::resources::ResourceName, from: Time) {
        let mut used: BTreeMap<i64, i128> = BTreeMap::new();
        for booking in self.ledger.bookings() {
            for grant in booking.grants.iter().filter(|grant| grant.host == host.id) {
                let amount = i128::from(amount_of(&grant.amounts, name).0);
                *used.entry(booking.window.start.max(from).0).or_default() += amount;
                *used.entry(booking.window.end.max(from).0).or_default() -= amount;
            }
        }
        let times: BTreeSet<i64> = used.keys().copied().chain([from.0, BEGIN + 100, BEGIN + 250]).collect();
        let mut sum = 0;
        for at in times {
            sum += used.get(&at).copied().unwrap_or(0);
            let own = own.occupancy(name).map_or(Amount::ZERO, |own| own.used_at(Time(at)));
            let capacity = i128::from(amount_of(&host.capacity, name).0);
            let in_all = sum + if at >= from.0 { i128::from(own.0) } else { 0 };
            assert!(sum == 0 || in_all <= capacity, "{}: {in_all} of {name} at {at}, there are {capacity}", host.id);
        }
    }
}

/// What giving back must come to, by what is there before it.
struct GivingBack {
    attempt: AttemptId,
    is_there: bool,
    refusal: Option<RefusalReason>,
}

fn open(incarnation: u64, hosts: &[(Host, Schedule)], kept: Vec<Reservation>, now: Now) -> Ledger {
    let (site, limits) = (words::site("site"), LedgerLimits::default());
    let (ledger, misfits) = Ledger::open(site, limits, incarnation, testing::open_gate(), hosts.to_vec(), kept, now);
    assert_eq!(misfits, [], "what was granted still fits");
    ledger
}

fn view_of(ledger: &Ledger, now: Now) -> SiteView {
    let advert = Advert {
        site: words::site("site"),
        name: String::new(),
        sequence: 1,
        time_to_live_s: 9,
        contact: None,
        hosts: Vec::new(),
        addresses: Vec::new(),
    };
    let mut view = SiteView::new(advert, now.monotonic, Millis(1));
    // As it is on disk, the past included: what is released later may have begun already.
    let mut snapshot = ledger.snapshot(Now { utc: Time::ZERO, ..now });
    snapshot.version = ledger.version();
    view.hear_snapshot(snapshot, now.monotonic);
    view
}
