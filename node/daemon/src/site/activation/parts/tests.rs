//! Reservations that are lengthened and cut short again while hooks fail and the node crashes: what hooks have been told is
//! compared, host by host and second by second, with what the ledger has.

use broker::{
    amount::Amount,
    ids::{SeatNumber, SiteId},
    ledger::BookingState,
    plan::Place,
    resources::ResourceName,
    time::{Span, Time},
};
use kolo_storage::activation::{ActivationEvent, Outcome, Stage};
use proptest::prelude::*;

use super::{
    super::next::{Next, next},
    *,
};

const TRIES: u32 = 1;
/// How long a part waits for the rest.
const APART_WAIT: i64 = 3;
const HORIZON: i64 = 60;

/// What gives hosts for a while: `hosts` are numbers, host n gives n + 1 cores.
#[derive(Debug, Clone)]
struct Plan {
    request: &'static str,
    attempt: u32,
    window: (i64, i64),
    hosts: &'static [u8],
    /// Cores more than the number says.
    more: u64,
    /// So many seconds, times its number, each host ends earlier.
    shorter: i64,
    user: &'static str,
    /// What it lengthens.
    base: Option<&'static str>,
}

const BASE: Plan =
    Plan { request: "r", attempt: 1, window: (10, 20), hosts: &[0, 1], more: 0, shorter: 0, user: "ada", base: None };
const WHOLE: Plan = Plan { request: "x", window: (20, 26), base: Some("r"), ..BASE };
const LATER_TRY: Plan = Plan { attempt: 2, ..WHOLE };
const HALF: Plan = Plan { request: "h0", hosts: &[0], ..WHOLE };
const OTHER_HALF: Plan = Plan { request: "h1", hosts: &[1], ..WHOLE };
const THIRD: Plan = Plan { request: "y", window: (26, 32), ..WHOLE };
const THIRD_HALF: Plan = Plan { request: "y0", hosts: &[0], ..THIRD };
const LONGER: Plan = Plan { request: "l", window: (20, 29), ..WHOLE };
const WITH_MORE: Plan = Plan { request: "m", more: 3, ..WHOLE };
const OF_ANOTHER: Plan = Plan { request: "o", user: "bob", ..WHOLE };
const OF_NOTHING: Plan = Plan { request: "n", base: Some("q"), ..WHOLE };
const ELSEWHEN: Plan = Plan { request: "e", window: (21, 27), ..WHOLE };
const APART: Plan = Plan { request: "u", shorter: 2, ..WHOLE };
const PLANS: [Plan; 13] = [
    BASE, WHOLE, LATER_TRY, HALF, OTHER_HALF, THIRD, THIRD_HALF, LONGER, WITH_MORE, OF_ANOTHER, OF_NOTHING, ELSEWHEN,
    APART,
];

fn booking(plan: &Plan) -> Booking {
    let site = SiteId::new("s").unwrap();
    let grant = |number: &u8| Grant {
        seat: SeatNumber(u32::from(*number)),
        place: Place::Host(HostId::new(&number.to_string()).unwrap()),
        window: Window { start: Time(plan.window.0), end: Time(plan.window.1 - plan.shorter * i64::from(*number)) },
        amounts: [(ResourceName::new("cpu").unwrap(), Amount(u64::from(*number) + 1 + plan.more))].into(),
        agreed: Default::default(),
    };
    Booking {
        variant: Default::default(),
        attempt: AttemptId {
            entry_point: site.clone(),
            request: RequestId::new(plan.request).unwrap(),
            attempt: plan.attempt,
        },
        window: Window { start: Time(plan.window.0), end: Time(plan.window.1) },
        grants: plan.hosts.iter().map(grant).collect(),
        participants: vec![site],
        user: plan.user.to_owned(),
        user_key: None,
        account: None,
        lineage: None,
        network: None,
        statement: None,
        state: BookingState::Settled,
        coordinator: None,
        fed_as: None,
        is_substituted: false,
        confirmed: None,
        lost: Vec::new(),
        talk: None,
        slack: Default::default(),
        wait: Default::default(),
    }
}

fn base_of(booking: &Booking) -> Option<RequestId> {
    let request = booking.attempt.request.as_str();
    let plan = PLANS.iter().find(|plan| plan.request == request).unwrap();
    plan.base.map(|base| RequestId::new(base).unwrap())
}

/// What happens in one second.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Nothing,
    Crash,
    Start,
    RunsAreDone,
    RunsFail,
    Comes(usize),
    Goes(usize),
    /// As a restart with fewer hosts does: so many are left of the first reservation.
    LosesHosts(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Nothing),
        1 => Just(Happens::Crash),
        2 => Just(Happens::Start),
        6 => Just(Happens::RunsAreDone),
        1 => Just(Happens::RunsFail),
        6 => (1..PLANS.len()).prop_map(Happens::Comes),
        2 => (0..PLANS.len()).prop_map(Happens::Goes),
        1 => (0..2_usize).prop_map(Happens::LosesHosts),
    ]
}

/// One run that was begun.
#[derive(Debug, Clone, PartialEq)]
struct Begins {
    at: i64,
    event: ActivationEvent,
    run: u32,
    told: Terms,
}

/// The node with its disk and ledger, and the stories so far.
struct World {
    now: i64,
    early: Span,
    ledger: BTreeMap<AttemptId, Booking>,
    has_come: BTreeSet<usize>,
    disk: BTreeMap<AttemptId, ActivationRecord>,
    is_up: bool,
    running: BTreeSet<AttemptId>,
    apart_since: BTreeMap<AttemptId, i64>,
    /// What those that wait would be told.
    apart: Vec<Terms>,
    stories: BTreeMap<AttemptId, Vec<Begins>>,
}

impl World {
    fn new(early: u64) -> World {
        let base = booking(&BASE);
        World {
            now: 0,
            early: Span(early),
            ledger: [(base.attempt.clone(), base)].into(),
            has_come: BTreeSet::from([0]),
            disk: BTreeMap::new(),
            is_up: true,
            running: BTreeSet::new(),
            apart_since: BTreeMap::new(),
            apart: Vec::new(),
            stories: BTreeMap::new(),
        }
    }

    /// The node looks until there is nothing to do without a run.
    fn look(&mut self) {
        while self.is_up && self.look_once() {}
    }

    fn look_once(&mut self) -> bool {
        let unknown = self.ledger.values().filter(|booking| !self.disk.contains_key(&booking.attempt));
        let bases = unknown.filter_map(|booking| Some((booking.attempt.clone(), base_of(booking)?))).collect();
        let all = activations(&self.disk, self.ledger.values(), &bases, Time(self.now));
        let since = |one: &Activation<'_>| self.apart_since.get(one.attempt).copied().unwrap_or(self.now);
        let apart_since = all.iter().filter(|one| one.is_apart).map(|one| (one.attempt.clone(), since(one))).collect();
        let (mut begun, mut forgotten) = (Vec::new(), Vec::new());
        for one in all.iter().filter(|one| !self.running.contains(one.attempt)) {
            match next(one.record, one.extent, Time(self.now), self.early) {
                Next::Wait(at) => assert!(at.is_none_or(|at| at.0 > self.now), "what is due is not waited for"),
                Next::Forget => forgotten.push(one.attempt.clone()),
                Next::Run(event) => {
                    let starts = one.extent.map_or(self.now, |extent| (extent.window.start - self.early).0);
                    if one.is_apart && self.now < starts.min(since(one) + APART_WAIT) {
                        continue;
                    }
                    let new = || one.booking.map(ActivationRecord::new);
                    let mut record = one.record.cloned().or_else(new).expect("a run is for something known");
                    record.begin(event, one.extent.map(Extent::terms));
                    begun.push(record);
                }
            }
        }
        self.apart = all.iter().filter(|one| one.is_apart).filter_map(|one| one.extent.map(Extent::terms)).collect();
        self.apart_since = apart_since;
        let is_done = begun.is_empty() && forgotten.is_empty();
        forgotten.iter().for_each(|attempt| drop(self.disk.remove(attempt)));
        for mut record in begun {
            let attempt = record.attempt.clone();
            // What a real one has read from the statement.
            record.extends = self.ledger.get(&attempt).and_then(base_of).or(record.extends);
            let run = record.begun.as_ref().unwrap();
            let begins = Begins { at: self.now, event: run.event, run: run.runs, told: record.told.clone() };
            self.stories.entry(attempt.clone()).or_default().push(begins);
            self.running.insert(attempt.clone());
            // Read back as from disk.
            let text = serde_json::to_string(&record).unwrap();
            self.disk.insert(attempt, serde_json::from_str(&text).unwrap());
        }
        !is_done
    }

    fn second(&mut self, happens: Happens) {
        match happens {
            Happens::Nothing => {}
            Happens::Crash => {
                self.is_up = false;
                self.running.clear();
                self.apart_since.clear();
            }
            Happens::Start => self.is_up = true,
            Happens::RunsAreDone => self.runs_end(&Outcome::Done),
            Happens::RunsFail => self.runs_end(&Outcome::Failed("no".to_owned())),
            Happens::Comes(plan) => {
                let comes = booking(&PLANS[plan]);
                if comes.window.end.0 > self.now && self.has_come.insert(plan) {
                    self.ledger.insert(comes.attempt.clone(), comes);
                }
            }
            Happens::Goes(plan) => drop(self.ledger.remove(&booking(&PLANS[plan]).attempt)),
            Happens::LosesHosts(left) if !self.is_up => {
                let base = self.ledger.get_mut(&booking(&BASE).attempt);
                base.into_iter().for_each(|base| base.grants.truncate(left));
            }
            Happens::LosesHosts(_) => {}
        }
        self.look();
        self.now += 1;
        // The ledger keeps what has ended for a moment.
        self.ledger.retain(|_, booking| booking.window.end.0 + 2 > self.now);
    }

    fn runs_end(&mut self, outcome: &Outcome) {
        for attempt in std::mem::take(&mut self.running) {
            self.disk.get_mut(&attempt).unwrap().finish((outcome.clone(), &BTreeSet::new()), Time(self.now), TRIES);
        }
    }

    /// Looks and lets all runs be done, until there is nothing to do now.
    fn settle(&mut self) {
        self.is_up = true;
        for _ in 0..8 {
            self.look();
            self.runs_end(&Outcome::Done);
        }
    }

    /// How often each second of each host from now on is promised, as hooks have been told, with those that still wait.
    fn told(&self) -> BTreeMap<(i64, HostId), usize> {
        let open = self.disk.values().filter(|record| !record.is_closing());
        let terms = open.map(|record| &record.told).chain(&self.apart);
        let of_terms = |terms: &Terms| {
            let window = |grant: &Grant| Window { end: terms.end_of(grant), ..grant.window };
            terms.grants.iter().map(|grant| (window(grant), grant.host().clone())).collect::<Vec<_>>()
        };
        count(terms.flat_map(of_terms), self.now)
    }

    /// The same as the ledger has it.
    fn granted(&self) -> BTreeMap<(i64, HostId), usize> {
        let grants = self.ledger.values().flat_map(|booking| &booking.grants);
        count(grants.map(|grant| (grant.window, grant.host().clone())), self.now)
    }

    fn events(&self, request: &str) -> Vec<(&'static str, i64, i64)> {
        let stories = self.stories.iter().filter(|(attempt, _)| attempt.request.as_str() == request);
        let of_all = stories.flat_map(|(_, story)| story);
        of_all.map(|begins| (begins.event.name(), begins.at, begins.told.window.end.0)).collect()
    }
}

fn count(given: impl Iterator<Item = (Window, HostId)>, now: i64) -> BTreeMap<(i64, HostId), usize> {
    let mut counts = BTreeMap::new();
    for (window, host) in given {
        for at in window.start.0.max(now)..window.end.0 {
            *counts.entry((at, host.clone())).or_default() += 1;
        }
    }
    counts
}

/// Whether a story is one that may be told.
fn judge(story: &[Begins], early: Span) -> Result<(), String> {
    use ActivationEvent::{Cancelled, Changed, End, Reserved, Start};
    let mut told: Vec<&Begins> = Vec::new();
    for begins in story {
        let last = told.last().copied();
        let has = |event| told.iter().any(|told| told.event == event);
        let end = last.map_or(0, |last| last.told.window.end.0);
        let may = if begins.run > 1 {
            last.is_some_and(|last| last.event == begins.event && last.run + 1 == begins.run)
        } else {
            match begins.event {
                Reserved => told.is_empty(),
                Changed => has(Reserved) && last.is_some_and(|last| last.told != begins.told),
                Start => has(Reserved) && !has(Start) && begins.at >= (begins.told.window.start - early).0,
                End => has(Reserved) && begins.at >= end,
                Cancelled => has(Reserved) && begins.at < end,
            }
        };
        let is_over = begins.run == 1 && (has(End) || has(Cancelled));
        let is_last = matches!(begins.event, End | Cancelled);
        let is_true = if is_last { begins.told.window.end.0 == end } else { begins.at < begins.told.window.end.0 };
        if !may || is_over || !is_true {
            return Err(format!("{begins:?} after {told:?}"));
        }
        if begins.run > 1 {
            told.pop();
        }
        told.push(begins);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn hooks_know_of_every_second_of_every_host_once(
        script in proptest::collection::vec((happens(), any::<bool>()), 0..60), early in 0..3_u64,
    ) {
        let mut world = World::new(early);
        for (happens, settles) in script {
            world.second(happens);
            if settles {
                world.settle();
                prop_assert_eq!(world.told(), world.granted(), "at {}: {:?}", world.now, world.stories);
            }
        }
        world.second(Happens::Start);
        while world.now < HORIZON {
            world.second(Happens::RunsAreDone);
        }
        world.settle();
        for story in world.stories.values() {
            judge(story, world.early).map_err(TestCaseError::fail)?;
            let last = story.last().map(|begins| begins.event);
            prop_assert!(matches!(last, Some(ActivationEvent::End | ActivationEvent::Cancelled)), "{:?}", story);
        }
        prop_assert!(world.disk.is_empty(), "nothing is kept for ever");
    }
}

fn play(happens: &[(i64, Happens)]) -> World {
    play_early(0, happens)
}

/// Plays what happens at which second, with all runs done at once.
fn play_early(early: u64, happens: &[(i64, Happens)]) -> World {
    let mut world = World::new(early);
    for second in 0..HORIZON {
        happens.iter().filter(|(at, _)| *at == second).for_each(|(_, happens)| {
            world.second(*happens);
            world.now -= 1;
        });
        world.settle();
        world.second(Happens::Nothing);
    }
    world
}

fn number(plan: &Plan) -> usize {
    PLANS.iter().position(|known| (known.request, known.attempt) == (plan.request, plan.attempt)).unwrap()
}

fn comes(at: i64, plan: &Plan) -> (i64, Happens) {
    (at, Happens::Comes(number(plan)))
}

fn goes(at: i64, plan: &Plan) -> (i64, Happens) {
    (at, Happens::Goes(number(plan)))
}

const BEGINNING: [(&str, i64, i64); 2] = [("reserved", 0, 20), ("start", 10, 20)];

#[test]
fn what_lengthens_a_reservation_changes_it() {
    let world = play(&[comes(12, &WHOLE), comes(22, &THIRD)]);
    let more = [("changed", 12, 26), ("changed", 22, 32), ("end", 32, 32)];
    assert_eq!(world.events("r"), [&BEGINNING[..], &more].concat());
    assert_eq!(world.stories.len(), 1, "{:?}", world.stories);
}

#[test]
fn parts_that_come_apart_count_when_they_are_complete() {
    let world = play(&[comes(12, &HALF), comes(13, &OTHER_HALF), goes(15, &HALF), goes(16, &OTHER_HALF)]);
    let more = [("changed", 13, 26), ("changed", 15, 20), ("end", 20, 20)];
    assert_eq!(world.events("r"), [&BEGINNING[..], &more].concat());
    assert_eq!(world.stories.len(), 1, "{:?}", world.stories);
    // One that stays alone is told of by itself, at the latest when it starts.
    let alone = play(&[comes(12, &HALF)]);
    assert_eq!(alone.events("h0"), [("reserved", 15, 26), ("start", 20, 26), ("end", 26, 26)]);
    let late = play(&[comes(19, &HALF)]);
    assert_eq!(late.events("h0"), [("reserved", 20, 26), ("start", 20, 26), ("end", 26, 26)]);
}

#[test]
fn what_is_taken_back_shortens_or_ends_it() {
    let whole = [comes(12, &WHOLE), comes(13, &THIRD)];
    let with = |more: &[(i64, Happens)]| play(&[&whole[..], more].concat());
    let changed = [("changed", 12, 26), ("changed", 13, 32)];
    let events = |more: &[(&'static str, i64, i64)]| [&BEGINNING[..], &changed, more].concat();
    let cancelled = with(&[goes(14, &BASE), goes(14, &WHOLE), goes(14, &THIRD)]);
    assert_eq!((cancelled.events("r"), cancelled.stories.len()), (events(&[("cancelled", 14, 32)]), 1));
    let in_the_second_part = with(&[goes(23, &WHOLE), goes(23, &THIRD)]);
    assert_eq!(in_the_second_part.events("r"), events(&[("cancelled", 23, 32)]));
    let without_the_last = with(&[goes(23, &THIRD)]);
    assert_eq!(without_the_last.events("r"), events(&[("changed", 23, 26), ("end", 26, 26)]));
    // What is behind a gap stands by itself.
    let with_a_gap = with(&[goes(14, &WHOLE)]);
    assert_eq!(with_a_gap.events("r"), events(&[("changed", 14, 20), ("end", 20, 20)]));
    assert_eq!(with_a_gap.events("y"), [("reserved", 17, 32), ("start", 26, 32), ("end", 32, 32)]);
}

#[test]
fn only_what_goes_on_just_so_is_a_part() {
    for plan in [WITH_MORE, OF_ANOTHER, OF_NOTHING, ELSEWHEN, APART] {
        let world = play(&[comes(12, &plan)]);
        assert_eq!(world.events("r"), [&BEGINNING[..], &[("end", 20, 20)]].concat(), "{plan:?}");
        assert_eq!(world.events(plan.request).len(), 3, "{plan:?}");
    }
    // A later try comes in the place of an earlier one, unseen.
    let world = play(&[comes(12, &WHOLE), comes(13, &LATER_TRY), goes(14, &WHOLE)]);
    assert_eq!(world.events("r"), [&BEGINNING[..], &[("changed", 12, 26), ("end", 26, 26)]].concat());
    assert_eq!(world.stories.len(), 1, "{:?}", world.stories);
}

#[test]
fn an_undisturbed_life_is_told_on_time() {
    for (early, taken_back) in
        (0..4).flat_map(|early| [None, Some(1), Some(8), Some(10), Some(15)].map(|at| (early, at)))
    {
        let happens: Vec<_> = taken_back.map(|at| goes(at, &BASE)).into_iter().collect();
        let start = BASE.window.0 - early;
        let is_started = taken_back.is_none_or(|at| at > start);
        let starts = is_started.then_some(("start", start, 20));
        let ends = taken_back.map_or(("end", 20, 20), |at| ("cancelled", at, 20));
        let expected: Vec<_> = [("reserved", 0, 20)].into_iter().chain(starts).chain([ends]).collect();
        assert_eq!(play_early(early.unsigned_abs(), &happens).events("r"), expected, "{early} {taken_back:?}");
    }
}

#[test]
fn an_event_that_keeps_failing_is_given_up_and_the_story_goes_on() {
    let base = booking(&BASE);
    let mut record = ActivationRecord::new(&base);
    for run in 1..=TRIES + 1 {
        record.begin(ActivationEvent::Reserved, Some(Terms::of(&base)));
        let is_over = record.finish((Outcome::Failed("exit status: 1".to_owned()), &BTreeSet::new()), Time(3), TRIES);
        assert_eq!(is_over, run == TRIES + 1);
    }
    assert_eq!(record.given_up.as_ref().map(|given_up| given_up.event), Some(ActivationEvent::Reserved));
    let start = next(Some(&record), Some((&base).into()), base.window.start, Span(0));
    assert_eq!(start, Next::Run(ActivationEvent::Start));
}

#[test]
fn a_start_that_fails_on_hosts_of_a_class_is_given_up_there_alone_until_others_were_tried_often_enough() {
    let on = |names: &[&str]| {
        let mut base = booking(&BASE);
        let one = base.grants[0].clone();
        let bound = |(seat, name): (u32, &&str)| {
            let (class, host) = (HostId::new("n").unwrap(), HostId::new(name).unwrap());
            Grant { seat: SeatNumber(seat), place: Place::Bound { class, host }, ..one.clone() }
        };
        base.grants = (0..).zip(names).map(bound).collect();
        base
    };
    let hosts = |names: &[&str]| -> BTreeSet<HostId> { names.iter().map(|name| HostId::new(name).unwrap()).collect() };
    let fail = |record: &mut ActivationRecord, base: &Booking, named: &[&str]| {
        let mut is_over = false;
        for _ in 0..=TRIES {
            record.begin(ActivationEvent::Start, Some(Terms::of(base)));
            is_over = record.finish((Outcome::Failed("exit status: 1".to_owned()), &hosts(named)), Time(3), TRIES);
        }
        is_over
    };
    let mut record = ActivationRecord::new(&on(&["n-1", "n-2"]));
    record.stage = Stage::Reserved;
    assert!(!fail(&mut record, &on(&["n-1", "n-2"]), &["n-2", "n-9"]));
    assert_eq!((&record.failed.hosts, record.failed.may_move()), (&hosts(&["n-2"]), true), "the one that it named");
    let again = next(Some(&record), Some((&on(&["n-1", "n-3"])).into()), Time(BASE.window.0), Span(0));
    assert_eq!(again, Next::Run(ActivationEvent::Start));
    assert!(!fail(&mut record, &on(&["n-1", "n-3"]), &[]));
    assert_eq!(record.failed.hosts, hosts(&["n-1", "n-2", "n-3"]), "it named none");
    for round in 4..=5 {
        assert!(!fail(&mut record, &on(&[&format!("n-{round}")]), &[]));
    }
    assert!(!record.failed.may_move() && record.stage == Stage::Reserved);
    let none = next(Some(&record), Some((&on(&[])).into()), Time(BASE.window.0), Span(0));
    assert_eq!(none, Next::Run(ActivationEvent::Changed), "the ledger has no more");
    // Fixed hosts stay.
    let mut fixed = ActivationRecord::new(&booking(&BASE));
    assert!(fail(&mut fixed, &booking(&BASE), &[]) && fixed.failed.hosts.is_empty());
}

#[test]
fn what_has_come_and_gone_while_the_node_was_down_is_not_told() {
    let base = booking(&BASE);
    assert_eq!(next(None, Some((&base).into()), base.window.end, Span(0)), Next::Wait(None));
    let without_hosts = Booking { grants: Vec::new(), ..base.clone() };
    assert_eq!(next(None, Some((&without_hosts).into()), Time(0), Span(0)), Next::Wait(None));
    let mut record = ActivationRecord::new(&base);
    record.begin(ActivationEvent::Reserved, Some(Terms::of(&base)));
    record.finish((Outcome::Done, &BTreeSet::new()), Time(1), TRIES);
    assert_eq!(next(Some(&record), None, base.window.end, Span(0)), Next::Run(ActivationEvent::End));
}
