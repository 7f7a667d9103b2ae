//! A booking's life against a hook that fails and a node that crashes at any moment, judged by looking at the whole story.

use broker::{
    amount::Amount,
    ids::{HostId, RequestId, SiteId},
    ledger::{Booking, BookingState},
    protocol::{AttemptId, Grant},
    resources::ResourceName,
    time::Window,
};
use proptest::prelude::*;

use super::*;
use crate::storage::activation::{Outcome, Terms};

const START: i64 = 10;
const END: i64 = 20;
const TRIES: u32 = 2;

fn booking(hosts: u8) -> Booking {
    let amounts = [(ResourceName::new("cpu").unwrap(), Amount(500))].into();
    let grant = |number| Grant { host: HostId::new(&format!("h{number}")).unwrap(), amounts: Clone::clone(&amounts) };
    let site = SiteId::new("s").unwrap();
    Booking {
        attempt: AttemptId { entry_point: site.clone(), request: RequestId::new("r").unwrap(), attempt: 1 },
        window: Window { start: Time(START), end: Time(END) },
        grants: (0..hosts).map(grant).collect(),
        participants: vec![site],
        user: "ada".to_owned(),
        user_key: None,
        statement: None,
        state: BookingState::Settled,
        coordinator: None,
    }
}

/// What happens in one second.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Nothing,
    Crash,
    Start,
    RunIsDone,
    RunFails,
    LosesHosts(u8),
    IsTakenBack,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Nothing),
        2 => Just(Happens::Crash),
        3 => Just(Happens::Start),
        4 => Just(Happens::RunIsDone),
        2 => Just(Happens::RunFails),
        2 => (0..4_u8).prop_map(Happens::LosesHosts),
        1 => Just(Happens::IsTakenBack),
    ]
}

/// One run that was begun.
#[derive(Debug, Clone, PartialEq)]
struct Begins {
    at: i64,
    event: ActivationEvent,
    run: u32,
    told: Terms,
    /// The booking at that moment.
    stood: Option<Terms>,
}

/// The node with its disk, one booking, and the story so far.
struct World {
    now: i64,
    booking: Option<Booking>,
    disk: Option<ActivationRecord>,
    is_up: bool,
    runs: bool,
    story: Vec<Begins>,
    early: Span,
}

impl World {
    /// The node looks, if it is up, as often as there is something to do without a run.
    fn look(&mut self) {
        while self.is_up && !self.runs {
            let booking = self.booking.as_ref();
            let extent = booking.map(Extent::from);
            match next(self.disk.as_ref(), extent, Time(self.now), self.early) {
                Next::Wait(at) => {
                    assert!(at.is_none_or(|at| at.0 > self.now), "what is due is not waited for");
                    return;
                }
                Next::Forget => self.disk = None,
                Next::Run(event) => {
                    let known = self.disk.clone().or_else(|| booking.map(ActivationRecord::new));
                    let mut record = known.expect("a run is for something known");
                    record.begin(event, extent.map(Extent::terms));
                    let (run, told) = (record.begun.as_ref().unwrap().runs, record.told.clone());
                    let stood = extent.map(Extent::terms);
                    self.story.push(Begins { at: self.now, event, run, told, stood });
                    // Read back as from disk.
                    let text = serde_json::to_string(&record).unwrap();
                    self.disk = Some(serde_json::from_str(&text).unwrap());
                    self.runs = true;
                }
            }
        }
    }

    fn second(&mut self, happens: Happens) {
        let running = self.runs && self.is_up;
        match happens {
            Happens::Nothing => {}
            Happens::Crash => (self.is_up, self.runs) = (false, false),
            Happens::Start => self.is_up = true,
            Happens::RunIsDone if running => self.ends(Outcome::Done),
            Happens::RunFails if running => self.ends(Outcome::Failed("no".to_owned())),
            Happens::RunIsDone | Happens::RunFails => {}
            // As a restart with fewer hosts does.
            Happens::LosesHosts(hosts) if !self.is_up && self.booking.is_some() => {
                self.booking = Some(booking(hosts));
            }
            Happens::LosesHosts(_) => {}
            Happens::IsTakenBack => self.booking = None,
        }
        self.look();
        self.now += 1;
        // The ledger keeps what has ended for a moment.
        if self.now > END + 3 {
            self.booking = None;
        }
    }

    fn ends(&mut self, outcome: Outcome) {
        let record = self.disk.as_mut().unwrap();
        record.finish(outcome, Time(self.now), TRIES);
        self.runs = false;
    }
}

/// Whether a story is one that may be told, judged without the record.
fn judge(story: &[Begins], early: Span) -> Result<(), String> {
    let mut told: Vec<&Begins> = Vec::new();
    for begins in story {
        let last = told.last().copied();
        if begins.run > 1 {
            if last.is_none_or(|last| last.event != begins.event || last.run + 1 != begins.run) {
                return Err(format!("{begins:?} goes on from {last:?}"));
            }
            told.pop();
            told.push(begins);
            continue;
        }
        use ActivationEvent::{Cancelled, Changed, End, Reserved, Start};
        let has = |event| told.iter().any(|told| told.event == event);
        let stands = begins.stood.is_some() && begins.at < END;
        let may = match begins.event {
            Reserved => told.is_empty() && stands,
            Changed => has(Reserved) && stands && last.is_some_and(|last| Some(&last.told) != begins.stood.as_ref()),
            Start => has(Reserved) && !has(Start) && stands && begins.at >= START - i64::try_from(early.0).unwrap(),
            End => has(Reserved) && begins.at >= END,
            Cancelled => has(Reserved) && begins.at < END && begins.stood.is_none(),
        };
        let is_over = has(End) || has(Cancelled);
        let is_new = matches!(begins.event, End | Cancelled) || Some(&begins.told) == begins.stood.as_ref();
        if !may || is_over || !is_new {
            return Err(format!("{begins:?} after {told:?}"));
        }
        told.push(begins);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_story_is_in_order_and_comes_to_its_end(
        script in proptest::collection::vec(happens(), 0..40), early in 0..4_u64,
    ) {
        let early = Span(early);
        let mut world = World {
            now: 0, booking: Some(booking(3)), disk: None, is_up: true, runs: false, story: Vec::new(), early,
        };
        script.iter().for_each(|happens| world.second(*happens));
        // Then all goes well, and the reservation ends.
        world.second(Happens::Start);
        for _ in 0..60 {
            world.second(Happens::RunIsDone);
        }
        judge(&world.story, early).map_err(TestCaseError::fail)?;
        let last = world.story.last().map(|begins| begins.event);
        let undone = matches!(last, None | Some(ActivationEvent::End | ActivationEvent::Cancelled));
        prop_assert!(undone, "{:?}", world.story);
        prop_assert_eq!(&world.disk, &None, "nothing is kept for ever");
    }

    /// Without crashes and failures the story is known beforehand.
    #[test]
    fn an_undisturbed_life_is_told_on_time(taken_back in proptest::option::of(1..END), early in 0..4_i64) {
        let span = Span(u64::try_from(early).unwrap());
        let mut world = World {
            now: 0, booking: Some(booking(1)), disk: None, is_up: true, runs: false, story: Vec::new(), early: span,
        };
        world.look();
        for second in 0..END + 10 {
            if taken_back == Some(second) {
                world.booking = None;
            }
            world.second(Happens::RunIsDone);
        }
        let told: Vec<_> = world.story.iter().map(|begins| (begins.event.name(), begins.at, begins.run)).collect();
        let start = START - early;
        let mut expected = vec![("reserved", 0, 1)];
        if taken_back.is_none_or(|at| at > start) {
            expected.push(("start", start, 1));
        }
        expected.push(taken_back.map_or(("end", END, 1), |at| ("cancelled", at, 1)));
        prop_assert_eq!(told, expected);
    }
}

#[test]
fn an_event_that_keeps_failing_is_given_up_and_the_story_goes_on() {
    let extent = booking(1);
    let mut record = ActivationRecord::new(&extent);
    for run in 1..=TRIES + 1 {
        record.begin(ActivationEvent::Reserved, Some(Terms::of(&extent)));
        let is_over = record.finish(Outcome::Failed("exit status: 1".to_owned()), Time(3), TRIES);
        assert_eq!(is_over, run == TRIES + 1);
    }
    assert_eq!(record.given_up.as_ref().map(|given_up| given_up.event), Some(ActivationEvent::Reserved));
    let start = next(Some(&record), Some((&extent).into()), Time(START), Span(0));
    assert_eq!(start, Next::Run(ActivationEvent::Start));
}

#[test]
fn what_has_come_and_gone_while_the_node_was_down_is_not_told() {
    let extent = booking(1);
    assert_eq!(next(None, Some((&extent).into()), Time(END), Span(0)), Next::Wait(None));
    let without_hosts = booking(0);
    assert_eq!(next(None, Some((&without_hosts).into()), Time(0), Span(0)), Next::Wait(None));
    let mut record = ActivationRecord::new(&extent);
    record.begin(ActivationEvent::Reserved, Some(Terms::of(&extent)));
    record.finish(Outcome::Done, Time(1), TRIES);
    assert_eq!(next(Some(&record), None, Time(END), Span(0)), Next::Run(ActivationEvent::End));
}
