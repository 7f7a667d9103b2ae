//! A negotiation under any answers in any order, repeated, late, from the wrong site and of the wrong kind, with crashes
//! of its entry point between them. Half of the runs begin with a reservation that was taken over from another node.
//!
//! The model only writes down what went out, what came in and what was on disk, and checks the order that the protocol
//! asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use fuzz_support::{Input, Seed, Target};

use super::words;
use crate::{
    ids::{HostId, SiteId},
    negotiation::{
        Decision, Event, Found, FoundHost, Heard, Negotiation, NegotiationSettings, Output, Purpose, RequestRecord,
    },
    plan::CutCounts,
    protocol::{
        AttemptId, AttemptStatus, BookedPart, Grant, HostState, LedgerVersion, Refusal, RefusalReason, SiteAnswer,
        SiteRequest,
    },
    schedule::Schedule,
    time::{Millis, Now, Time},
    trust::{Authorization, SignedText, testing},
};

/// Answers to a negotiation.
pub const NEGOTIATION: Target = Target { name: "negotiation", run, seeds };

const SITES: [&str; 4] = ["a", "b", "c", "d"];
const HOSTS: [&str; 2] = ["h0", "h1"];
const BEGIN: i64 = 5_000;
const OPERATIONS_MAX: usize = 150;
/// Outputs of one event: a handful for each of a few sites and open releases.
const OUTPUTS_MAX: usize = 400;
/// Wake-ups until nothing is left to do, when nobody answers any more.
const WAKE_UPS_MAX: usize = 20_000;

/// Wake-ups in one moment.
const WAKE_UPS_AT_ONCE_MAX: usize = 4;

/// Two requests that differ in what may be done about lost hosts, new and taken over. Signing them anew every time would
/// take most of it.
static RECORDS: LazyLock<[RequestRecord; 4]> = LazyLock::new(|| {
    let new = [false, true].map(|moves| {
        let text = format!(r#"{{"hosts":2,"duration":60,"total":{{"cpu":1500}},"move_on_loss":{moves}}}"#);
        let request = serde_json::from_str(&text).expect("a legal request");
        let id = words::request_id("r");
        let authorization = testing::authorize(1, &words::site("e"), &id, &request);
        RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(BEGIN), Time(BEGIN + 4_000)))
    });
    let [stays, moves] = new.each_ref().map(taken_over);
    let [new_stays, new_moves] = new;
    [new_stays, new_moves, stays, moves]
});

/// A reservation of `a` and `b` that another node has made, which has left something of another try behind at `c`; the node of
/// `d` carries the request too.
fn taken_over(record: &RequestRecord) -> RequestRecord {
    let gone = words::site("gone");
    let statement = Arc::new(testing::authorize(1, &gone, &record.id, &record.request).request);
    let part = |site: &str, attempt: u32| {
        let amounts = words::amounts([("cpu", 750)]);
        let part = BookedPart {
            attempt: AttemptId { entry_point: gone.clone(), request: record.id.clone(), attempt },
            window: words::window(BEGIN + 1_000, 60),
            grants: vec![Grant { host: words::host_id(HOSTS[0]), amounts }],
            participants: SITES[..3].iter().map(|site| words::site(site)).collect(),
            statement: statement.clone(),
        };
        (words::site(site), part)
    };
    let parts = vec![part("a", 2), part("b", 2), part("c", 1)];
    let heard = Heard { parts, carrying: BTreeSet::from([words::site("d")]), silent: BTreeSet::new() };
    record.clone().take_over(&heard).expect("there is something")
}

/// What sites show that say that another node acts: the user's word for it, and another user's.
static WORDS: LazyLock<[Arc<SignedText>; 2]> = LazyLock::new(|| {
    [1, 2].map(|user| {
        let RequestRecord { id, request, .. } = &RECORDS[0];
        Arc::new(testing::authorize(user, &words::site("f"), id, request).request)
    })
});

/// What one try has asked and heard.
#[derive(Default)]
struct Try {
    asked: BTreeSet<SiteId>,
    held: BTreeSet<SiteId>,
    confirmed: BTreeSet<SiteId>,
    released: BTreeSet<SiteId>,
    /// Sites that let this node act for what another one has made.
    let_it_act: BTreeSet<SiteId>,
    stands: bool,
}

/// A question, as late answers go.
#[derive(Clone)]
struct Asked {
    site: SiteId,
    attempt: u32,
    purpose: Purpose,
    /// It is to let this node act for the try.
    takes_over: bool,
}

struct Run {
    negotiation: Negotiation,
    milliseconds: u64,
    disk: RequestRecord,
    tries: BTreeMap<u32, Try>,
    /// Everything that was ever asked.
    asked: Vec<Asked>,
    /// Whom sites have named as who acted before. What they say need not be true.
    named: BTreeSet<SiteId>,
    crashes: u64,
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let record = RECORDS[usize::from(input.below(4))].clone();
    let is_taken_over = !record.taken_over.is_empty();
    let negotiation = start(&record, is_taken_over, 0, Now { monotonic: Millis(0), utc: Time(BEGIN) });
    let made_before = || Try { stands: true, ..Try::default() };
    let tries = record.taken_over.keys().map(|number| (*number, made_before())).collect();
    let (asked, named) = (Vec::new(), BTreeSet::new());
    let mut run = Run { negotiation, milliseconds: 0, disk: record, tries, asked, named, crashes: 0 };
    run.drain();
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        run.operate(&mut input);
    }
    run.comes_to_an_end();
}

fn start(record: &RequestRecord, is_resumed: bool, seed: u64, now: Now) -> Negotiation {
    Negotiation::new(words::site("e"), NegotiationSettings::default(), record.clone(), is_resumed, seed, now)
}

impl Run {
    fn now(&self) -> Now {
        let seconds = i64::try_from(self.milliseconds / 1000).unwrap_or(i64::MAX);
        Now { monotonic: Millis(self.milliseconds), utc: Time(BEGIN + seconds) }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0..3 => self.handle(Event::Found(some_hosts(input))),
            3..10 => {
                let count = u8::try_from(self.asked.len()).unwrap_or(u8::MAX);
                if count > 0 {
                    // Counted from the end, since most answers are to what was asked last.
                    let back = usize::from(input.below(count));
                    let asked = self.asked[self.asked.len() - 1 - back].clone();
                    let answer = some_answer(input, asked.purpose, asked.takes_over);
                    self.answer(asked.site, asked.attempt, asked.purpose, answer);
                }
            }
            10 => {
                let purposes = [Purpose::Hold, Purpose::Confirm, Purpose::Release, Purpose::Settle, Purpose::Inspect];
                let site = words::site(input.one_of(&SITES));
                let (attempt, purpose) = (u32::from(input.below(4)), input.one_of(&purposes));
                let answer = some_answer(input, purpose, false);
                self.answer(site, attempt, purpose, answer);
            }
            11 | 12 => {
                self.milliseconds += u64::from(input.byte()) * 20;
                self.wake_up();
            }
            13 => {
                self.milliseconds += u64::from(input.byte()) * 4_000;
                self.wake_up();
            }
            14 => match input.below(4) {
                0 | 2 => self.handle(Event::Check),
                1 => self.handle(Event::Cancel),
                _ => {
                    let request = SignedText::clone(&WORDS[usize::from(input.flag())]);
                    let authorization = Arc::new(Authorization { request, user: None, entry_point: None });
                    self.handle(Event::TakenOver { by: words::site("f"), authorization });
                }
            },
            _ => {
                self.crashes += 1;
                self.negotiation = start(&self.disk, true, self.crashes, self.now());
                self.drain();
            }
        }
    }

    fn answer(&mut self, site: SiteId, attempt: u32, purpose: Purpose, answer: Result<SiteAnswer, String>) {
        if let Ok(SiteAnswer::Booked { before: Some(before), .. }) = &answer {
            self.named.insert(before.clone());
        }
        if let (Some(of), Ok(answer)) = (self.tries.get_mut(&attempt), &answer) {
            match (purpose, answer) {
                (Purpose::Hold, SiteAnswer::Held { .. }) => drop(of.held.insert(site.clone())),
                (Purpose::Confirm, SiteAnswer::Confirmed { .. }) => drop(of.confirmed.insert(site.clone())),
                (Purpose::Release, SiteAnswer::Booked { .. }) => drop(of.let_it_act.insert(site.clone())),
                _ => {}
            }
        }
        self.handle(Event::Answer { site, attempt, purpose, answer });
    }

    fn handle(&mut self, event: Event) {
        self.negotiation.handle(self.now(), event, &mut ());
        self.drain();
    }

    fn wake_up(&mut self) {
        let now = self.now();
        let is_due = |negotiation: &Negotiation| negotiation.poll_timeout().is_some_and(|next| next <= now.monotonic);
        // One wake-up may end a wait whose end makes another one due; but not for ever.
        for _ in 0..WAKE_UPS_AT_ONCE_MAX {
            self.negotiation.handle_timeout(now);
            self.drain();
            if !is_due(&self.negotiation) {
                return;
            }
        }
        panic!("woken at {now:?} for {:?} again and again", self.negotiation.poll_timeout());
    }

    fn drain(&mut self) {
        let mut count = 0;
        let mut holds = Vec::new();
        while let Some(output) = self.negotiation.poll_output() {
            count += 1;
            match output {
                Output::Persist(record) => self.disk = *record,
                Output::Find { count, .. } => assert!(count > 0, "a search for no hosts"),
                Output::Ask { site, attempt, purpose, request, .. } => {
                    self.check_ask(&site, attempt, purpose, &request);
                    if let SiteRequest::Hold(hold) = &request {
                        assert_eq!(hold.check(), Ok(()));
                        assert!(hold.participants.contains(&site));
                        holds.extend(hold.grants.iter().map(|grant| (site.clone(), grant.host.clone())));
                    }
                    let takes_over = matches!(request, SiteRequest::TakeOver { .. });
                    self.asked.push(Asked { site, attempt, purpose, takes_over });
                }
            }
        }
        assert!(count <= OUTPUTS_MAX, "{count} outputs of one event");
        if !holds.is_empty() {
            let distinct: BTreeSet<&(SiteId, HostId)> = holds.iter().collect();
            assert_eq!(distinct.len(), holds.len(), "a host is asked once: {holds:?}");
            assert_eq!(holds.len(), self.negotiation.wanted().hosts(), "exactly as many hosts as are wanted");
        }
    }

    fn check_ask(&mut self, site: &SiteId, attempt: u32, purpose: Purpose, request: &SiteRequest) {
        match (purpose, request) {
            (Purpose::Hold, SiteRequest::Hold(_)) => {
                let own = self.tries.iter().filter(|(number, _)| !self.disk.taken_over.contains_key(number));
                for (number, earlier) in own {
                    assert!(*number <= attempt, "try {attempt} after {number}");
                    let is_over = *number == attempt || earlier.stands || earlier.asked == earlier.released;
                    // A crash makes the process forget a try that was not decided; its holds lapse.
                    assert!(is_over || self.crashes > 0, "try {attempt} while {number} is held");
                }
                self.tries.entry(attempt).or_default().asked.insert(site.clone());
            }
            (Purpose::Confirm, SiteRequest::Confirm { .. }) => {
                let is_decided =
                    matches!(&self.disk.decision, Decision::Commit { attempt: decided, .. } if *decided == attempt);
                assert!(is_decided, "confirm of {attempt} while the disk says {:?}", self.disk.decision);
                let of = &self.tries[&attempt];
                assert!(of.asked.is_subset(&of.held), "confirm of {attempt} although not all hold");
            }
            (Purpose::Settle, SiteRequest::Settle(_)) => {
                assert!(matches!(self.disk.decision, Decision::Stands { .. }), "{:?}", self.disk.decision);
                let of = self.tries.entry(attempt).or_default();
                assert!(of.asked.is_subset(&of.confirmed), "{attempt} stands although not all have confirmed");
                of.stands = true;
            }
            (Purpose::Inspect | Purpose::Release, SiteRequest::TakeOver { attempt: name, authorization })
            | (Purpose::Release, SiteRequest::GiveBack { attempt: name, authorization }) => {
                assert_eq!(self.disk.taken_over.get(&attempt), Some(name), "{attempt} goes by another name");
                assert_eq!(self.disk.authorization.as_ref(), Some(&**authorization));
                let lets_it_act = self.tries.entry(attempt).or_default().let_it_act.contains(site);
                let is_asked_to = matches!(request, SiteRequest::TakeOver { .. });
                assert!(lets_it_act || is_asked_to, "{attempt} is given back to {site}, which does not know by whom");
            }
            (Purpose::Release, SiteRequest::Release(_)) => {
                assert!(!self.disk.taken_over.contains_key(&attempt), "{attempt} was taken over");
                let of = self.tries.entry(attempt).or_default();
                assert!(of.asked.contains(site) || self.named.contains(site), "release of what was never asked");
                of.released.insert(site.clone());
            }
            (Purpose::Inspect, SiteRequest::Inspect(_)) => {
                assert!(!self.disk.taken_over.contains_key(&attempt), "{attempt} was taken over");
                assert!(self.tries[&attempt].stands, "{attempt} is asked after and does not stand");
            }
            (purpose, request) => panic!("{purpose:?} asks {request:?}"),
        }
    }

    /// Nobody answers any more: every loop and every wait ends by itself, and what is on disk is what is shown.
    fn comes_to_an_end(&mut self) {
        for _ in 0..WAKE_UPS_MAX {
            let Some(next) = self.negotiation.poll_timeout() else {
                assert!(self.negotiation.is_quiet(), "{:?} and nothing to wait for", self.negotiation.stage());
                assert_eq!(self.negotiation.record().decision, self.disk.decision);
                return;
            };
            self.milliseconds = self.milliseconds.max(next.0);
            self.wake_up();
        }
        panic!("{:?} after {WAKE_UPS_MAX} wake-ups without an answer", self.negotiation.stage());
    }
}

fn some_version(input: &mut Input<'_>) -> LedgerVersion {
    LedgerVersion { incarnation: u64::from(input.below(3)), change: u64::from(input.below(8)) }
}

fn some_schedule(input: &mut Input<'_>) -> Schedule {
    let mut schedule = Schedule::default();
    for _ in 0..input.below(3) {
        let window = words::window(BEGIN + i64::from(input.byte()) * 4, 1 + u64::from(input.byte()) * 4);
        schedule.add(window, &words::amounts([("cpu", u64::from(input.byte()) * 5)]));
    }
    schedule
}

fn some_hosts(input: &mut Input<'_>) -> Found {
    let which = input.byte();
    let mut hosts = Vec::new();
    for (index, site) in SITES.iter().enumerate() {
        for (more, host) in HOSTS.iter().enumerate() {
            if which >> (2 * index + more) & 1 == 1 {
                hosts.push(FoundHost {
                    site: words::site(site),
                    host: words::host(host, words::amounts([("cpu", 600 + u64::from(input.byte()) * 4)])),
                    schedule: some_schedule(input),
                    version: some_version(input),
                });
            }
        }
    }
    let without_schedule = usize::from(input.below(3));
    Found { known_hosts: hosts.len() + without_schedule, hosts, without_schedule, cut: CutCounts::default() }
}

/// Mostly what the question asks for.
fn some_answer(input: &mut Input<'_>, purpose: Purpose, takes_over: bool) -> Result<SiteAnswer, String> {
    let kind = input.below(12);
    let version = some_version(input);
    let held = SiteAnswer::Held { version, hold_for: Millis(10_000) };
    Ok(match (kind, purpose) {
        (0..=5, Purpose::Hold) | (7, _) => held,
        (0..=5, Purpose::Confirm) | (8, _) => SiteAnswer::Confirmed { version },
        (0..=5, Purpose::Inspect) | (0..=4, Purpose::Release) if purpose == Purpose::Inspect || takes_over => {
            let hosts = HOSTS.iter().filter(|_| input.below(4) > 0).map(|name| words::host_id(name)).collect();
            // Whoever acted before is named now and then.
            let before = version.change.is_multiple_of(4).then(|| words::site("f"));
            // So is a try that nobody knows.
            let others = if version.change == 3 { vec![besides(input)] } else { Vec::new() };
            SiteAnswer::Booked { hosts, before, others, version }
        }
        (0..=5, Purpose::Release) | (9, _) => SiteAnswer::Released { version },
        (0..=5, Purpose::Settle) => SiteAnswer::Settled,
        (10, _) => return Err("no answer".to_owned()),
        (11, _) => SiteAnswer::Status { decision: None, booking: AttemptStatus::Dead },
        _ => SiteAnswer::Refused(some_refusal(input, version)),
    })
}

/// A try of another node, of the request or of another one, of which something is at a site.
fn besides(input: &mut Input<'_>) -> AttemptId {
    let request = words::request_id(input.one_of(&["r", "r", "r", "s"]));
    AttemptId { entry_point: words::site("g"), request, attempt: u32::from(input.byte()) }
}

fn some_refusal(input: &mut Input<'_>, version: LedgerVersion) -> Refusal {
    let host = words::host_id(input.one_of(&HOSTS));
    let resource = words::resource("cpu");
    let reason = match input.below(8) {
        0 | 1 => RefusalReason::HeldByAnother { host: host.clone(), resource },
        2 | 3 => {
            let (asked, free) = (crate::amount::Amount(9), crate::amount::Amount(1));
            RefusalReason::NotEnough { host: host.clone(), resource, asked, free }
        }
        4 => RefusalReason::Busy,
        5 if input.flag() => RefusalReason::OtherTry,
        5 => RefusalReason::NoSuchHold,
        6 => RefusalReason::HandedOver(WORDS[usize::from(version.change.is_multiple_of(2))].clone()),
        _ => RefusalReason::AttemptIsOver,
    };
    let held = vec![(words::window(BEGIN + i64::from(input.byte()), 100), words::amounts([("cpu", 400)]))];
    let hosts = if input.flag() { vec![HostState { host, schedule: some_schedule(input), held }] } else { Vec::new() };
    Refusal { reason, version, hosts }
}

fn seeds() -> Vec<Seed> {
    // Hosts of a and b, empty and large; then answers: which question, of what kind, of which version.
    let find = vec![0, 0b0000_0101, 100, 0, 0, 0, 100, 0, 0, 0, 0];
    let yes = |back: u8| vec![3, back, 0, 1, 0];
    let refused = |back: u8, reason: u8| vec![3, back, 6, 1, 0, 0, reason, 0, 0];
    let (wait, long_wait, cancel, check, crash) = (vec![11, 200], vec![13, 100], vec![14, 1], vec![14, 0], vec![15]);
    let booked = |back: u8| vec![3, back, 0, 1, 0, 1, 1];
    let standing = [vec![0], find.clone(), yes(1), yes(0), yes(1), yes(0)].concat();
    vec![
        ("stands", [standing.clone(), check.clone(), yes(0), yes(1)].concat()),
        ("cancelled", [standing.clone(), cancel.clone(), yes(0), wait.clone()].concat()),
        ("rivals", [vec![0], find.clone(), refused(1, 0), wait.clone(), find.clone(), yes(1), yes(0)].concat()),
        ("crashed", [vec![0], find.clone(), yes(1), yes(0), crash.clone(), yes(1), yes(0)].concat()),
        (
            "given-back",
            [
                [vec![2], booked(0), yes(0), booked(1), check.clone(), booked(0), booked(1)].concat(),
                [cancel.clone(), booked(0), yes(0), wait.clone(), booked(1), yes(0)].concat(),
            ]
            .concat(),
        ),
        ("handed-over", [standing.clone(), vec![14, 3, 0], long_wait.clone(), yes(0), yes(1)].concat()),
        ("degraded", [standing, check, vec![3, 0, 10, 0, 0], long_wait, crash, find].concat()),
    ]
}
