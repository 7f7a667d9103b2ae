//! A ledger under any messages in any order, repeated, late and from strangers, with crashes between them.
//!
//! The model adds up bookings second by second and keeps what was written to disk. It shares no arithmetic with the
//! ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use fuzz_support::{Input, Seed, Target};

use super::words;
use crate::{
    amount::Amount,
    host::Host,
    ledger::{Booking, BookingState, Event, Ledger, LedgerLimits, Output, Record, ReplyToken, Reservation},
    protocol::{Advert, AttemptId, AttemptStatus, Grant, HoldRequest, ScheduleUpdate, SiteAnswer, SiteRequest},
    resources::amount_of,
    schedule::Schedule,
    time::{Millis, Now, Time},
    trust::{Authorization, RequestStatement, testing},
    view::{Heard, SiteView},
};

/// Messages to a ledger.
pub const LEDGER: Target = Target { name: "ledger", run, seeds };

const REQUESTS: [&str; 4] = ["r0", "r1", "r2", "r3"];
const ENTRY_POINTS: [&str; 2] = ["e0", "e1"];
const SENDERS: [&str; 5] = ["e0", "e1", "site", "other", "stranger"];
const RESOURCES: [&str; 2] = ["cpu", "memory"];
/// Every request lasts this long, as its user has signed.
const DURATION_S: u64 = 100;
const BEGIN: i64 = 1_000;
const OPERATIONS_MAX: usize = 200;

/// What the users have signed: any of the requests, for either entry point.
static SIGNED: LazyLock<Vec<Vec<Arc<Authorization>>>> = LazyLock::new(|| {
    let text = r#"{"hosts":2,"duration":100,"total":{"cpu":9000,"memory":300}}"#;
    let request = serde_json::from_str(text).expect("a legal request");
    let sign = |entry_point: &&str, id: &&str| {
        Arc::new(testing::authorize(1, &words::site(entry_point), &words::request_id(id), &request))
    };
    ENTRY_POINTS.iter().map(|entry_point| REQUESTS.iter().map(|id| sign(entry_point, id)).collect()).collect()
});

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

fn some_attempt(input: &mut Input<'_>) -> (usize, usize, AttemptId) {
    let (entry_point, request) = (usize::from(input.below(2)), usize::from(input.below(4)));
    let attempt = AttemptId {
        entry_point: words::site(ENTRY_POINTS[entry_point]),
        request: words::request_id(REQUESTS[request]),
        attempt: u32::from(input.below(4)),
    };
    (entry_point, request, attempt)
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
        let event = Event::Request { from: words::site(from), token, request: request.clone() };
        self.ledger.handle(self.now(), event);
        let answer = self.drain(Some(token));
        let answer = answer.expect("every request is answered");
        assert!(kept.is_none_or(|kept| kept == self.disk), "{from} is a stranger to {request:?}");
        if let (SiteRequest::TakeOver { attempt, .. }, SiteAnswer::Booked { hosts, .. }) = (request, &answer) {
            let steward = self.disk.get(attempt).and_then(|kept| kept.steward.as_ref());
            assert!(hosts.is_empty() || steward == Some(&words::site(from)), "{from} may not act for {attempt:?}");
        }
        self.check_answer(request, &answer);
    }

    /// Whether what `from` asks may change what is on disk.
    fn may_act(&self, from: &str, request: &SiteRequest) -> bool {
        let from = words::site(from);
        match request {
            SiteRequest::Inquire(_) | SiteRequest::Lookup(_) | SiteRequest::Bookings { .. } => false,
            // The user has signed it for the node that may carry it.
            SiteRequest::TakeOver { authorization, .. } | SiteRequest::GiveBack { authorization, .. } => {
                authorization.request.open().is_ok_and(|signed: RequestStatement| signed.entry_point == from)
            }
            SiteRequest::Hold(HoldRequest { attempt, .. })
            | SiteRequest::Confirm { attempt, .. }
            | SiteRequest::Release(attempt)
            | SiteRequest::Settle(attempt)
            | SiteRequest::Inspect(attempt) => {
                let steward = self.disk.get(attempt).and_then(|kept| kept.steward.as_ref());
                *steward.unwrap_or(&attempt.entry_point) == from
            }
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

fn some_request(input: &mut Input<'_>, incarnation: u64) -> SiteRequest {
    let kind = input.below(14);
    let (entry_point, request, attempt) = some_attempt(input);
    match kind {
        0..5 => SiteRequest::Hold(some_hold(input, entry_point, request, attempt)),
        5 | 6 => SiteRequest::Confirm { attempt, held_in: if input.below(8) == 0 { 0 } else { incarnation } },
        7 => SiteRequest::Release(attempt),
        8 => SiteRequest::Settle(attempt),
        9 => SiteRequest::Inquire(attempt),
        10 => SiteRequest::Inspect(attempt),
        11 => SiteRequest::Lookup(attempt.request),
        _ => {
            let carrier = usize::from(input.below(2));
            SiteRequest::TakeOver { attempt, authorization: SIGNED[carrier][request].clone() }
        }
    }
}

fn some_hold(input: &mut Input<'_>, entry_point: usize, request: usize, attempt: AttemptId) -> HoldRequest {
    let mut grants = Vec::new();
    for _ in 0..=input.below(2) {
        let host = words::host_id(input.one_of(&["h0", "h1", "h2", "h9"]));
        let mut amounts = words::amounts([("cpu", u64::from(input.byte()) * 18)]);
        if input.flag() {
            amounts.insert(words::resource("memory"), Amount(u64::from(input.byte())));
        }
        grants.push(Grant { host, amounts });
    }
    let participants = if input.below(16) == 0 { vec!["other"] } else { vec!["other", "site"] };
    HoldRequest {
        attempt,
        window: words::window(BEGIN - 100 + i64::from(input.byte()) * 5, DURATION_S),
        grants,
        participants: participants.into_iter().map(words::site).collect(),
        hold_for: Millis(1 + u64::from(input.byte()) * 400),
        authorization: SIGNED[entry_point][request].clone(),
    }
}

/// Who may send it.
fn sender_of(request: &SiteRequest) -> Option<&'static str> {
    let attempt = match request {
        SiteRequest::Hold(hold) => &hold.attempt,
        SiteRequest::Confirm { attempt, .. }
        | SiteRequest::Release(attempt)
        | SiteRequest::Settle(attempt)
        | SiteRequest::Inspect(attempt) => attempt,
        _ => return None,
    };
    ENTRY_POINTS.into_iter().find(|name| *name == attempt.entry_point.as_str())
}

fn seeds() -> Vec<Seed> {
    // Operation, sender, kind, entry point, request, attempt; then what the kind needs, then whether from a stranger.
    let hold = |request: u8, start: u8, cpu: u8| vec![0, 0, 0, 0, request, 1, 0, 0, cpu, 0, 1, start, 25, 1];
    let confirm = |request: u8| vec![0, 0, 5, 0, request, 1, 1, 1];
    let release = |request: u8| vec![0, 0, 7, 0, request, 1, 1];
    let settle = |request: u8| vec![0, 0, 8, 0, request, 1, 1];
    let take_over = vec![0, 1, 12, 0, 0, 1, 1, 0];
    let (wait, forget, crash) = (vec![12, 60], vec![14], vec![15]);
    vec![
        ("reserved", [hold(0, 40, 100), confirm(0), settle(0), crash.clone()].concat()),
        ("rivals", [hold(0, 40, 200), hold(1, 45, 100), release(0), hold(1, 45, 100), confirm(1)].concat()),
        ("taken-over", [hold(0, 40, 100), confirm(0), take_over, release(0), vec![0, 1, 7, 0, 0, 1, 0]].concat()),
        ("third", [hold(0, 40, 100), hold(1, 40, 110), release(0), hold(2, 40, 200)].concat()),
        ("lapsed", [hold(0, 40, 100), wait.clone(), confirm(0), hold(0, 40, 1)].concat()),
        ("running", [hold(0, 20, 100), confirm(0), wait, forget, release(0), crash].concat()),
    ]
}
