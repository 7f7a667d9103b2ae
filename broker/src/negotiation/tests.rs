//! A negotiation by itself: what it wants done, in which order, and what it makes of answers. How negotiations and
//! ledgers stand together against losses and crashes is simulated by `kolo-sim faults`.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    amount::Amount,
    cost::Cost,
    host::Host,
    ids::{HostId, RequestId, SeatNumber},
    plan::{CutCounts, Place, Reason},
    protocol::{
        AttemptStatus, FoundBooking, Grant, HoldRequest, HostState, LedgerVersion, Refusal, RefusalReason, SiteAnswer,
        SiteRequest,
    },
    request::Request,
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Time, Window},
    trust,
    variant::Variant,
};

const CAPACITY: u64 = 1_000;

pub(super) fn site(name: &str) -> SiteId {
    SiteId::new(name).unwrap()
}

pub(super) fn at(milliseconds: u64) -> Now {
    Now { monotonic: Millis(milliseconds), utc: Time(5_000 + i64::try_from(milliseconds / 1000).unwrap()) }
}

pub(super) fn version(incarnation: u64) -> LedgerVersion {
    LedgerVersion { incarnation, change: 0 }
}

pub(super) fn record() -> RequestRecord {
    let request: Request = serde_json::from_str(r#"{"hosts":2,"duration":60,"total":{"cpu":1500}}"#).unwrap();
    let id = RequestId::new("r").unwrap();
    let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
    RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(5_000), Time(9_000)))
}

/// A site reports a seat of an attempt that another site has begun: its variant, how long it lasts, and its number.
pub(super) fn told(
    record: RequestRecord,
    from: &str,
    attempt: u32,
    (variant, seconds): (Variant, i64),
    seat: u32,
) -> (SiteId, FoundBooking) {
    let statement = std::sync::Arc::new(record.authorization.unwrap().request);
    let grant = Grant {
        seat: SeatNumber(seat),
        place: Place::Host(HostId::new("h").unwrap()),
        window: Window { start: Time(30_000), end: Time(30_000 + seconds) },
        amounts: Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(700))]),
        agreed: Default::default(),
    };
    let part = FoundBooking {
        attempt: AttemptId { entry_point: site("gone"), request: record.id, attempt },
        variant,
        grants: vec![grant],
        participants: vec![site("a"), site("b"), site("c")],
        statement,
    };
    (site(from), part)
}

/// A negotiation and everything that it has wanted done so far.
pub(super) struct Run {
    pub(super) negotiation: Negotiation,
    pub(super) outputs: Vec<Output>,
}

impl Run {
    pub(super) fn new(record: RequestRecord, is_resumed: bool) -> Run {
        let settings = NegotiationSettings::default();
        let negotiation = Negotiation::new(site("e"), settings, record, is_resumed, 1, at(0));
        let mut run = Run { negotiation, outputs: Vec::new() };
        run.drain();
        run
    }

    /// New, and planned on the hosts of sites `a` and `b`: both are asked to hold.
    fn holding() -> Run {
        let mut run = Run::new(record(), false);
        run.find(&["a", "b"]);
        run
    }

    /// Both sites hold, in incarnations 7 and 8: both are asked to confirm.
    pub(super) fn confirming() -> Run {
        let mut run = Run::holding();
        run.answer("a", Purpose::Hold, held(7));
        run.answer("b", Purpose::Hold, held(8));
        run
    }

    /// Both sites have confirmed.
    fn reserved() -> Run {
        let mut run = Run::confirming();
        run.answer("a", Purpose::Confirm, confirmed(7));
        run.answer("b", Purpose::Confirm, confirmed(8));
        run
    }

    /// The holds that are asked for now: the site, the variant, and how long the seats last.
    pub(super) fn holds(&self) -> Vec<(String, Variant, u64)> {
        let hold = |output: &Output| match output {
            Output::Ask { site, request: SiteRequest::Hold(HoldRequest { variant, grants, .. }), .. } => {
                Some((site.to_string(), *variant, grants[0].window.duration().0))
            }
            _ => None,
        };
        self.outputs.iter().filter_map(hold).collect()
    }

    /// The reservation is looked at: these sites have the seats with these numbers, one of them none; then hosts of `found` are there.
    pub(super) fn loses(&mut self, seats: &[(&str, Option<u32>)], found: &[&str]) {
        let due = self.wake();
        for (from, seat) in seats {
            self.inspected(due, from, Ok(booked(*seat)));
        }
        assert_eq!(self.lost(), 1);
        self.find_at(due, found);
        if self.outputs.iter().any(|output| matches!(output, Output::Find { .. })) {
            self.find_at(due, found);
        }
    }

    pub(super) fn drain(&mut self) {
        self.outputs.clear();
        while let Some(output) = self.negotiation.poll_output() {
            self.outputs.push(output);
        }
    }

    pub(super) fn find(&mut self, sites: &[&str]) {
        self.find_at(10, sites);
    }

    pub(super) fn find_at(&mut self, now: u64, sites: &[&str]) {
        self.find_with(now, sites, &Schedule::default(), 0);
    }

    /// All hosts are taken in the window.
    pub(super) fn find_busy_at(&mut self, now: u64, sites: &[&str], window: Window) {
        self.find_busy_and_missing_at(now, sites, window, 0);
    }

    /// All hosts are taken in the window, and so many more fit whose schedules could not be had.
    fn find_busy_and_missing_at(&mut self, now: u64, sites: &[&str], window: Window, missing: usize) {
        let mut schedule = Schedule::default();
        schedule.add(window, &Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(CAPACITY))]));
        self.find_with(now, sites, &schedule, missing);
    }

    pub(super) fn find_with(&mut self, now: u64, sites: &[&str], schedule: &Schedule, without_schedule: usize) {
        let hosts = sites.iter().map(|name| FoundHost {
            site: site(name),
            host: Host {
                id: HostId::new("h").unwrap(),
                capacity: Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(CAPACITY))]),
                attributes: BTreeMap::new(),
                speed: crate::host::Speed::REFERENCE,
                tariff: Default::default(),
            },
            schedule: schedule.clone(),
            version: version(0),
        });
        let found = Found {
            hosts: hosts.collect(),
            known_hosts: 9,
            without_schedule,
            cut: CutCounts::default(),
            uplinks: Default::default(),
        };
        self.negotiation.handle(at(now), Event::Found(found), &mut ());
        self.drain();
    }

    pub(super) fn answer(&mut self, from: &str, purpose: Purpose, answer: SiteAnswer) {
        let attempt = self.negotiation.record().last_attempt;
        let event = Event::Answer { site: site(from), attempt, purpose, answer: Ok(answer) };
        self.negotiation.handle(at(20), event, &mut ());
        self.drain();
    }

    /// What a site hears about an attempt of this entry point.
    pub(super) fn status(&self, attempt: u32, asker: &str) -> AttemptStatus {
        let record = self.negotiation.record();
        let attempt = AttemptId { entry_point: site("e"), request: record.id.clone(), attempt };
        record.status_of(&site("e"), &attempt, &site(asker))
    }

    pub(super) fn time_passes_to(&mut self, milliseconds: u64) {
        assert!(self.negotiation.poll_timeout().is_some_and(|due| due.0 <= milliseconds), "a timer is armed for this");
        self.negotiation.handle_timeout(at(milliseconds));
        self.drain();
    }

    pub(super) fn cancel(&mut self) {
        self.negotiation.handle(at(30), Event::Cancel, &mut ());
        self.drain();
    }

    /// The outputs in short, in order.
    pub(super) fn wanted(&self) -> Vec<String> {
        let short = |output: &Output| match output {
            Output::Find { exclude, .. } => format!("find, without {exclude:?}"),
            Output::Persist(record) => {
                let decision = match &record.decision {
                    Decision::Open => "open",
                    Decision::Commit { .. } => "commit",
                    Decision::Reserved { .. } => "reserved",
                    Decision::Closed(_) => "closed",
                };
                format!("write {decision}, owed {}", record.owed.len())
            }
            Output::Ask { site, attempt, purpose, request, .. } => {
                let held_in = match request {
                    SiteRequest::Confirm { held_in, .. } => format!(" held in {held_in}"),
                    _ => String::new(),
                };
                let purpose = match purpose {
                    Purpose::Inspect(_) => "Inspect".to_owned(),
                    other => format!("{other:?}"),
                };
                format!("{purpose} {attempt} {site}{held_in}")
            }
        };
        self.outputs.iter().map(short).collect()
    }
}

/// A site says what it has booked for whoever watches over a reservation: this seat, or none.
pub(super) fn booked(seat: Option<u32>) -> SiteAnswer {
    SiteAnswer::Booked {
        seats: seat.map(SeatNumber).into_iter().collect(),
        places: Vec::new(),
        is_settled: seat.is_some(),
        before: None,
        others: Vec::new(),
        charged: Default::default(),
        version: version(1),
        receipt: None,
    }
}

/// A site refuses to hold: of its host so much is taken for good.
pub(super) fn taken(amount: u64, asked: u64) -> SiteAnswer {
    let cpu = ResourceName::new("cpu").unwrap();
    let mut schedule = Schedule::default();
    schedule.add(Window { start: Time(0), end: Time(90_000) }, &Amounts::from([(cpu.clone(), Amount(amount))]));
    let (host, free) = (HostId::new("h").unwrap(), Amount(CAPACITY - amount));
    let reason = RefusalReason::NotEnough { host: host.clone(), resource: cpu, asked: Amount(asked), free };
    let hosts = vec![HostState { host, schedule, held: Vec::new() }];
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
}

pub(super) fn confirmed(incarnation: u64) -> SiteAnswer {
    SiteAnswer::Confirmed { places: Vec::new(), version: version(incarnation), receipt: None }
}

pub(super) fn held(incarnation: u64) -> SiteAnswer {
    SiteAnswer::Held { version: version(incarnation), hold_for: Millis(10_000), places: Vec::new() }
}

pub(super) fn refused(reason: RefusalReason) -> SiteAnswer {
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts: Vec::new() })
}

#[test]
fn when_all_goes_well_the_decision_is_written_before_the_confirms_and_the_end_before_the_final_word() {
    let mut run = Run::new(record(), false);
    assert_eq!(run.wanted(), ["find, without {}"]);
    run.find(&["a", "b"]);
    assert_eq!(run.wanted(), ["Hold 1 a", "Hold 1 b"]);
    run.answer("a", Purpose::Hold, held(7));
    assert!(run.wanted().is_empty(), "one hold is not enough");
    run.answer("b", Purpose::Hold, held(8));
    assert_eq!(run.wanted(), ["write commit, owed 0", "Confirm 1 a held in 7", "Confirm 1 b held in 8"]);
    run.answer("b", Purpose::Confirm, confirmed(8));
    assert!(run.wanted().is_empty() && matches!(run.negotiation.stage(), Stage::Confirming(_)));
    run.answer("a", Purpose::Confirm, confirmed(7));
    assert_eq!(run.wanted(), ["write reserved, owed 0", "Settle 1 a", "Settle 1 b"]);
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)) && run.negotiation.is_quiet());
}

/// A request for one host, planned at the only site.
pub(super) fn booking() -> Run {
    let one = RequestRecord { request: serde_json::from_str(r#"{"hosts":1,"duration":100}"#).unwrap(), ..record() };
    let mut run = Run::new(one, false);
    run.find(&["a"]);
    run
}

#[test]
fn a_plan_at_one_site_is_decided_there_in_one_round() {
    let mut run = booking();
    assert_eq!(run.wanted(), ["write commit, owed 0", "Confirm 1 a"]);
    let Some(Output::Ask { request: SiteRequest::Book { hold, incarnation }, .. }) = run.outputs.last() else {
        panic!()
    };
    assert_eq!((&hold.participants, *incarnation), (&vec![site("a")], version(0).incarnation));
    run.answer("a", Purpose::Confirm, confirmed(0));
    assert_eq!(run.wanted(), ["write reserved, owed 0", "Settle 1 a"]);

    let cpu = ResourceName::new("cpu").unwrap();
    let taken = RefusalReason::HeldByAnother { host: HostId::new("h").unwrap(), resource: cpu };
    for (answer, is_left_out) in [(Some(RefusalReason::NoSuchHold), false), (Some(taken), false), (None, true)] {
        let mut run = booking();
        let answer = answer.map(refused).ok_or_else(|| "no answer".to_owned());
        let event = Event::Answer { site: site("a"), attempt: 1, purpose: Purpose::Confirm, answer };
        run.negotiation.handle(at(20), event, &mut ());
        run.drain();
        assert_eq!(run.wanted()[..2], ["write open, owed 1", "Release 1 a"], "it may have booked all the same");
        while !run.wanted().iter().any(|what| what.starts_with("find")) {
            run.time_passes_to(10_000);
        }
        assert!(run.wanted().contains(&format!("find, without {}", if is_left_out { r#"{"a"}"# } else { "{}" })));
        run.find(&["a", "b"]);
        assert!(run.wanted().iter().any(|what| what.starts_with("Hold 2 ")), "the second attempt shows in a hold why");
    }
}

#[test]
fn a_participant_never_hears_that_an_attempt_newer_than_the_record_is_dead() {
    let before = record();
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, held(8));
    let Some(Output::Persist(commit)) = run.outputs.first() else { panic!("{:?}", run.outputs) };
    let attempt = AttemptId { entry_point: site("e"), request: before.id.clone(), attempt: 1 };
    let heard = |record: &RequestRecord| record.status_of(&site("e"), &attempt, &site("a"));
    // Whichever record the node answers from: a confirm is on its way only when the later one is on disk.
    assert_eq!((heard(&before), heard(commit)), (AttemptStatus::Pending, AttemptStatus::Pending));
    let later = RequestRecord { last_attempt: 2, decision: Decision::Open, ..RequestRecord::clone(commit) };
    assert_eq!(heard(&later), AttemptStatus::Aborted, "it was decided against since");
    let resumed = Run::new(before, true);
    let Some(Output::Persist(jumped)) = resumed.outputs.first() else { panic!("{:?}", resumed.outputs) };
    assert_eq!(heard(jumped), AttemptStatus::Aborted, "a crash has ended it before a decision");
}

#[test]
fn a_refused_hold_releases_the_try_everywhere_and_the_next_has_another_number() {
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, refused(RefusalReason::AttemptIsOver));
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b", r#"find, without {"a"}"#]);
    run.find(&["b", "c"]);
    assert_eq!(run.wanted(), ["Hold 2 b", "Hold 2 c"]);
    let late = Event::Answer { site: site("b"), attempt: 1, purpose: Purpose::Hold, answer: Ok(held(8)) };
    run.negotiation.handle(at(25), late, &mut ());
    run.answer("c", Purpose::Hold, held(9));
    assert!(run.wanted().is_empty(), "a late answer to the first try does not count for the second");
}

#[test]
fn a_conflict_with_another_request_is_waited_out() {
    let mut run = Run::holding();
    let cpu = ResourceName::new("cpu").unwrap();
    let reason = RefusalReason::HeldByAnother { host: HostId::new("h").unwrap(), resource: cpu };
    run.answer("a", Purpose::Hold, refused(reason));
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b"]);
    assert!(matches!(run.negotiation.stage(), Stage::BackingOff));
    run.time_passes_to(1_000);
    assert_eq!(run.wanted(), ["find, without {}"], "the site is asked again");
}

/// A site's host is held by somebody else, all of it, in this window.
fn held_by_another(start: i64, end: i64) -> SiteAnswer {
    let (cpu, h) = (ResourceName::new("cpu").unwrap(), HostId::new("h").unwrap());
    let window = Window { start: Time(start), end: Time(end) };
    let held = vec![(window, Amounts::from([(cpu.clone(), Amount(CAPACITY))]))];
    let reason = RefusalReason::HeldByAnother { host: h.clone(), resource: cpu };
    let hosts = vec![HostState { host: h, schedule: Schedule::default(), held }];
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
}

#[test]
fn a_hold_of_another_is_planned_around_at_once_where_that_costs_no_time() {
    let sites = ["a", "b", "c", "d"];
    let asked = |run: &Run| -> BTreeSet<String> { run.holds().into_iter().map(|(site, ..)| site).collect() };
    let mut rivals = [Run::new(record(), false), Run::new(record(), false)];
    for run in &mut rivals {
        run.find(&sites);
    }
    let [first, second] = rivals.each_ref().map(asked);
    assert_eq!(first, second, "both want the same hosts");
    // Each has one of them, and the other has the other.
    for (run, taken) in rivals.iter_mut().zip(&first) {
        let other = first.iter().find(|site| *site != taken).unwrap();
        run.answer(other, Purpose::Hold, held(7));
        run.answer(taken, Purpose::Hold, held_by_another(0, 100_000));
        assert!(run.wanted().iter().all(|what| !what.starts_with("find")), "{:?}", run.wanted());
        let again = asked(run);
        assert!(again.len() == 2 && !again.contains(taken), "{again:?}");
        for site in &again {
            run.answer(site, Purpose::Hold, held(8));
        }
        assert!(matches!(run.negotiation.stage(), Stage::Confirming(_)));
    }
    // Where the start would be later, the hold is waited out: it may go away.
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, held_by_another(0, 100_000));
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b"]);
    assert!(matches!(run.negotiation.stage(), Stage::BackingOff));
    run.time_passes_to(1_000);
    assert_eq!(run.wanted(), ["find, without {}"]);
}

/// A site has no room, and shows that.
fn not_enough() -> SiteAnswer {
    let (cpu, h) = (ResourceName::new("cpu").unwrap(), HostId::new("h").unwrap());
    let mut schedule = Schedule::default();
    let window = Window { start: Time(0), end: Time(100_000) };
    schedule.add(window, &Amounts::from([(cpu.clone(), Amount(CAPACITY))]));
    let reason = RefusalReason::NotEnough { host: h.clone(), resource: cpu, asked: Amount(750), free: Amount(0) };
    let hosts = vec![HostState { host: h, schedule, held: Vec::new() }];
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
}

#[test]
fn a_refusal_that_shows_what_is_free_is_planned_around_at_once() {
    let mut run = Run::new(record(), false);
    run.find(&["a", "b", "c"]);
    let asked: Vec<String> =
        run.wanted().iter().filter_map(|what| what.strip_prefix("Hold 1 ")).map(str::to_owned).collect();
    let [refusing, other] = asked.try_into().unwrap();
    let third = ["a", "b", "c"].into_iter().find(|site| *site != refusing && *site != other).unwrap();
    run.answer(&refusing, Purpose::Hold, not_enough());
    assert!(run.wanted().is_empty(), "the other has a quarter as long again to say what it has");
    run.time_passes_to(22);
    let asked: BTreeSet<String> = run.wanted().into_iter().filter(|what| what.starts_with("Hold")).collect();
    assert_eq!(asked, BTreeSet::from([format!("Hold 2 {other}"), format!("Hold 2 {third}")]));
    run.answer(&other, Purpose::Hold, held(8));
    run.answer(third, Purpose::Hold, not_enough());
    assert_eq!(run.wanted()[2..], ["find, without {}"], "one is not enough, others may be");
    assert_eq!(run.negotiation.record().history.rounds.len(), 2);
}

#[test]
fn a_site_that_gives_no_more_than_a_share_of_it_is_planned_with_and_named_when_that_is_too_little() {
    let over_share = || {
        let SiteAnswer::Refused(refusal) = not_enough() else { panic!() };
        let reason = RefusalReason::NotAllowed(trust::Denial::new(trust::Rule::SiteShare, "why"));
        SiteAnswer::Refused(Refusal { reason, ..refusal })
    };
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, over_share());
    run.answer("b", Purpose::Hold, held(8));
    assert_eq!(run.wanted()[2..], ["find, without {}"], "other hosts of the site may do");
    run.find(&["a", "b", "c"]);
    assert_eq!(run.wanted(), ["Hold 2 b", "Hold 2 c"], "not the host that is beyond the share");
    run.answer("b", Purpose::Hold, over_share());
    run.answer("c", Purpose::Hold, over_share());
    while !matches!(run.negotiation.stage(), Stage::Closed { .. }) {
        run.find(&["a", "b", "c"]);
    }
    let Stage::Closed { outcome: Outcome::Failed(Failure::Refused { detail, .. }), .. } = run.negotiation.stage()
    else {
        panic!()
    };
    assert!(detail.contains("site-share"), "{detail}");
}

#[test]
fn a_refusal_that_comes_after_the_try_has_ended_still_spares_the_next_one() {
    let cpu = || ResourceName::new("cpu").unwrap();
    let window = Window { start: Time(0), end: Time(100_000) };
    let full = || {
        let mut schedule = Schedule::default();
        schedule.add(window, &Amounts::from([(cpu(), Amount(CAPACITY))]));
        let reason = RefusalReason::HeldByAnother { host: HostId::new("h").unwrap(), resource: cpu() };
        let hosts = vec![HostState { host: HostId::new("h").unwrap(), schedule, held: Vec::new() }];
        SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
    };
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, full());
    run.answer("b", Purpose::Hold, full());
    run.time_passes_to(1_000);
    run.find_at(1_000, &["a", "b", "c"]);
    let asked_in_vain: Vec<String> = run.wanted().into_iter().filter(|what| what.starts_with("Hold")).collect();
    assert!(asked_in_vain.is_empty(), "a and b are full: {asked_in_vain:?}");
}

#[test]
fn a_site_that_is_silent_is_left_out_of_the_next_try() {
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, held(7));
    run.time_passes_to(10 + 2_000);
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b", r#"find, without {"b"}"#]);
    run.find(&["a"]);
    let failed = Stage::Closed {
        outcome: &Outcome::Failed(Failure::Unreachable { found: 1, asked: 2, without_schedule: 0, silent_sites: 1 }),
        releasing: false,
    };
    assert_eq!(run.negotiation.stage(), failed);
}

#[test]
fn hosts_that_could_not_be_looked_at_are_waited_for_before_a_no_that_proves_nothing() {
    let always = Window { start: Time(0), end: Time(1_000_000_000) };
    for missing in [0, 3] {
        let (mut run, mut now, mut finds) = (Run::new(record(), false), 10, 0);
        while matches!(run.negotiation.stage(), Stage::Planning | Stage::BackingOff) {
            if matches!(run.negotiation.stage(), Stage::BackingOff) {
                now = run.wake();
            }
            run.find_busy_and_missing_at(now, &["a", "b"], always, missing);
            finds += 1;
        }
        let Stage::Closed { outcome: Outcome::Rejected { start_proven, .. }, .. } = run.negotiation.stage() else {
            panic!("{:?}", run.negotiation.stage())
        };
        // A second search is wider.
        let expected = if missing == 0 { (2, true) } else { (2 + 4, false) };
        assert_eq!((finds, *start_proven), expected);
    }
}

#[test]
fn a_refused_confirm_is_decided_against_on_disk_and_released_until_acknowledged() {
    let mut run = Run::confirming();
    run.answer("a", Purpose::Confirm, confirmed(7));
    run.answer("b", Purpose::Confirm, refused(RefusalReason::NoSuchHold));
    assert_eq!(run.wanted(), ["write open, owed 2", "Release 1 a", "Release 1 b", "find, without {}"]);
    assert_eq!(run.status(1, "a"), AttemptStatus::Aborted);
    run.answer("b", Purpose::Release, SiteAnswer::Released { version: version(8), charged: Default::default() });
    run.time_passes_to(20 + 2_000 + 250);
    assert_eq!(run.wanted(), ["Release 1 a"], "only who has not acknowledged is told again");
    run.answer("a", Purpose::Release, SiteAnswer::Released { version: version(7), charged: Default::default() });
    assert_eq!(run.wanted(), ["write open, owed 0"]);
}

#[test]
fn after_a_crash_a_decided_try_is_confirmed_again_and_an_open_request_starts_again() {
    let decided = Run::confirming().negotiation.record().clone();
    let run = Run::new(decided, true);
    assert_eq!(run.wanted(), ["Confirm 1 a held in 7", "Confirm 1 b held in 8"]);
    assert_eq!(run.status(1, "a"), AttemptStatus::Pending, "a confirm may still be refused");

    let stands = Run::reserved().negotiation.record().clone();
    let run = Run::new(stands, true);
    assert!(run.wanted().is_empty() && matches!(run.negotiation.stage(), Stage::Reserved(_)));

    let run = Run::new(record(), true);
    assert_eq!(run.wanted(), ["write open, owed 0", "find, without {}"]);
}

#[test]
fn two_crashes_in_a_row_never_give_out_the_number_of_a_try_twice() {
    let mut numbers = Vec::new();
    let mut on_disk = record();
    for is_resumed in [false, true, true, true] {
        let mut run = Run::new(on_disk.clone(), is_resumed);
        if let Some(Output::Persist(record)) = run.outputs.first() {
            on_disk = (**record).clone();
        }
        run.find(&["a", "b"]);
        numbers.extend(run.outputs.iter().filter_map(|output| match output {
            Output::Ask { attempt, site, .. } if site.as_str() == "a" => Some(*attempt),
            _ => None,
        }));
    }
    assert!(numbers.len() == 4 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[test]
fn owed_releases_survive_a_crash_and_stay_on_record_until_acknowledged() {
    let mut run = Run::reserved();
    run.cancel();
    let mut run = Run::new(run.negotiation.record().clone(), true);
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b"]);
    assert_eq!(run.negotiation.record().owed.len(), 2);
    assert!(matches!(run.negotiation.stage(), Stage::Closed { releasing: true, .. }));
    run.answer("a", Purpose::Release, SiteAnswer::Released { version: version(7), charged: Default::default() });
    run.answer("b", Purpose::Release, SiteAnswer::Released { version: version(8), charged: Default::default() });
    assert_eq!(run.wanted(), ["write closed, owed 0"]);
    assert!(run.negotiation.is_quiet());
}

#[test]
fn a_cancel_is_on_disk_before_any_site_is_told_in_every_state() {
    let mut finding = Run::new(record(), false);
    finding.cancel();
    assert_eq!(finding.wanted(), ["write closed, owed 0"]);
    for (mut run, stood) in [(Run::holding(), false), (Run::confirming(), true), (Run::reserved(), true)] {
        run.cancel();
        assert_eq!(run.wanted(), ["write closed, owed 2", "Release 1 a", "Release 1 b"]);
        assert_eq!(run.status(1, "a"), AttemptStatus::Aborted);
        let Stage::Closed { outcome: Outcome::Cancelled(plan), releasing: true } = run.negotiation.stage() else {
            panic!("{:?}", run.negotiation.stage());
        };
        assert_eq!(plan.is_some(), stood);
        run.cancel();
        assert!(run.wanted().is_empty(), "a second cancel changes nothing");
    }
}

/// A record with a plan of both hosts, made elsewhere.
pub(super) fn handed_in() -> RequestRecord {
    let planned = Run::holding();
    let Stage::Holding(plan) = planned.negotiation.stage() else { panic!("{:?}", planned.negotiation.stage()) };
    RequestRecord { handed_in: Some(plan.clone()), ..record() }
}

#[test]
fn a_plan_that_was_handed_in_is_held_at_once_and_no_other_is_looked_for() {
    let mut run = Run::new(handed_in(), false);
    let asked = run.outputs.iter().map(|output| matches!(output, Output::Ask { purpose: Purpose::Hold, .. }));
    assert_eq!(asked.collect::<Vec<_>>(), [true, true]);
    run.answer("a", Purpose::Hold, held(7));
    let refusal = Refusal { reason: RefusalReason::Busy, version: version(8), hosts: Vec::new() };
    run.answer("b", Purpose::Hold, SiteAnswer::Refused(refusal));
    let Stage::Closed { outcome: Outcome::Failed(Failure::Refused { site: of, detail }), .. } = run.negotiation.stage()
    else {
        panic!("{:?}", run.negotiation.stage())
    };
    assert_eq!(*of, site("b"));
    assert!(detail.starts_with("the plan that was handed in: "), "{detail}");
    let released = |output: &Output| matches!(output, Output::Ask { purpose: Purpose::Release, .. });
    assert_eq!(run.outputs.iter().filter(|output| released(output)).count(), 2, "{:?}", run.outputs);
}

#[test]
fn a_plan_that_need_not_be_kept_to_is_tried_first_and_then_another_is_looked_for() {
    let mut run = Run::new(RequestRecord { replans: true, ..handed_in() }, false);
    let is_hold = |output: &Output| matches!(output, Output::Ask { purpose: Purpose::Hold, .. });
    assert!(run.outputs.iter().all(is_hold) && run.outputs.len() == 2, "{:?}", run.outputs);
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, refused(RefusalReason::TooFarAhead(9)));
    let wanted = run.wanted();
    assert_eq!(wanted[..2], ["Release 1 a", "Release 1 b"], "{wanted:?}");
    assert!(wanted[2].starts_with("find"), "{wanted:?}");
    run.find(&["a", "c"]);
    assert!(run.outputs.iter().all(is_hold) && run.negotiation.record().last_attempt == 2, "{:?}", run.outputs);
}

#[test]
fn a_site_that_is_busy_is_asked_once_more_after_a_while_and_then_left_out() {
    let mut run = Run::holding();
    for (answered_at, left_out) in [(20, "{}"), (1_000, r#"{"b"}"#)] {
        run.answer("a", Purpose::Hold, held(7));
        run.answer("b", Purpose::Hold, refused(RefusalReason::Busy));
        if left_out == "{}" {
            let due = run.negotiation.poll_timeout().unwrap().0;
            assert!(due > answered_at + 20 && due < answered_at + 100, "{due}");
            run.time_passes_to(due);
        }
        assert_eq!(run.wanted().last().unwrap(), &format!("find, without {left_out}"));
        run.find(&["a", "b"]);
    }
    let mut run = booking();
    run.answer("a", Purpose::Confirm, refused(RefusalReason::Busy));
    run.time_passes_to(200);
    assert_eq!(run.wanted().last().unwrap(), "find, without {}", "it may have booked, and is given back");
}

#[test]
fn a_plan_that_was_handed_in_is_reserved_also_after_a_crash() {
    for is_resumed in [false, true] {
        let mut run = Run::new(handed_in(), is_resumed);
        run.answer("a", Purpose::Hold, held(7));
        run.answer("b", Purpose::Hold, held(8));
        run.answer("a", Purpose::Confirm, confirmed(7));
        run.answer("b", Purpose::Confirm, confirmed(8));
        assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)), "{:?}", run.negotiation.stage());
    }
}

#[test]
fn a_plan_that_was_handed_in_is_not_tried_again_for_more_than_earlier_attempts_have_left() {
    let request: Request =
        serde_json::from_str(r#"{"hosts":2,"duration":60,"total":{"cpu":1500},"budget":1000}"#).unwrap();
    let due = |cost| Due {
        attempt: 1,
        site: site("c"),
        window: Window { start: Time(0), end: Time(60) },
        seats: 1,
        agreed: Cost(cost),
        cost: Cost(cost),
        is_final: true,
    };
    for (cost, is_held) in [(400, true), (401, false)] {
        let mut again = RequestRecord { request: request.clone(), dues: vec![due(cost)], ..handed_in() };
        again.handed_in.iter_mut().for_each(|plan| plan.seats[0].agreed.cost = Cost(600));
        let run = Run::new(again, true);
        let over = Reason::Budget { budget: Cost(599), cheapest: Some(Cost(600)) };
        match run.negotiation.stage() {
            Stage::Holding(_) => assert!(is_held, "{cost}"),
            Stage::Closed { outcome: Outcome::Rejected { reason, .. }, .. } => {
                assert_eq!((reason, is_held), (&over, false));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn after_a_restart_a_plan_that_has_failed_is_not_tried_again_where_another_will_do() {
    let mut run = Run::new(RequestRecord { replans: true, ..handed_in() }, false);
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, refused(RefusalReason::Busy));
    let again = Run::new(run.negotiation.record().clone(), true);
    assert!(matches!(again.negotiation.stage(), Stage::Planning), "{:?}", again.negotiation.stage());
}
