//! Losses at the coordinator: which sites it asks, which hosts it replaces or gives up, and what is left after a crash in the middle.

use super::{
    testing::{Run, at, confirmed, held, host_of, site, version},
    *,
};
use crate::{
    host::Speed,
    ids::{HostId, SeatNumber},
    plan::Place,
    protocol::{AttemptStatus, RefusalReason, SiteAnswer, SiteRequest},
    time::{Time, Window},
    trust::asked::CLOCKS_DIFFER,
};

const CHECK: u64 = 60_000;
pub(super) const LOST: u64 = 300_000;

/// In these tests each site has one seat; a site may well answer with those of others.
pub(super) fn every_seat() -> Vec<SeatNumber> {
    vec![SeatNumber(0), SeatNumber(1)]
}

pub(super) fn booked(is_there: bool) -> SiteAnswer {
    SiteAnswer::Booked {
        seats: if is_there { every_seat() } else { Vec::new() },
        places: Vec::new(),
        is_settled: is_there,
        before: None,
        others: Vec::new(),
        charged: Default::default(),
        version: version(1),
        receipt: None,
        wait: Default::default(),
    }
}

/// A reservation on `a` and `b` that starts at 30,000, hours away.
pub(super) fn reserved() -> Run {
    reserved_for(60)
}

fn reserved_for(seconds: u64) -> Run {
    let mut record = super::testing::record();
    record.earliest = Time(30_000);
    record.latest = Time(40_000);
    let text = format!(r#"{{"hosts":2,"duration":{seconds},"total":{{"cpu":1500}}}}"#);
    record.request = serde_json::from_str(&text).unwrap();
    let mut run = Run::new(record, false);
    run.find(&["a", "b"]);
    run.all_hold_and_confirm(&["a", "b"]);
    run
}

impl Run {
    pub(super) fn all_hold_and_confirm(&mut self, sites: &[&str]) {
        for name in sites {
            self.answer(name, Purpose::Hold, held(7));
        }
        for name in sites {
            self.answer(name, Purpose::Confirm, confirmed(7));
        }
    }

    /// Goes to the next time that the negotiation waits for.
    pub(super) fn wake(&mut self) -> u64 {
        let due = self.negotiation.poll_timeout().expect("something is waited for").0;
        self.time_passes_to(due);
        due
    }

    pub(super) fn inspected(&mut self, now: u64, from: &str, answer: Result<SiteAnswer, String>) {
        let bookings = self.negotiation.bookings();
        let attempt = bookings.iter().find(|(_, at)| *at == site(from)).unwrap().0;
        let purpose = Purpose::Inspect(self.negotiation.watch.round);
        let event = Event::Answer { site: site(from), attempt, purpose, answer };
        self.negotiation.handle(at(now), event, &mut ());
        self.drain();
    }

    pub(super) fn lost(&self) -> usize {
        match self.negotiation.stage() {
            Stage::Degraded { reservation, .. } => reservation.missing_seats(&self.negotiation.record().request).len(),
            _ => 0,
        }
    }

    /// Who is asked, why, and whether it is to let this node act.
    pub(super) fn asked(&self) -> Vec<(String, Purpose, String)> {
        let asks = self.outputs.iter().filter_map(|output| match output {
            Output::Ask { site, purpose, request: SiteRequest::TakeOver { .. }, .. } => {
                Some((site.to_string(), *purpose, "take over".to_owned()))
            }
            Output::Ask { site, purpose, .. } => Some((site.to_string(), *purpose, String::new())),
            _ => None,
        });
        asks.collect()
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        let plan = self.negotiation.reserved_plan().unwrap();
        plan.seats.iter().map(|grant| grant.site.to_string()).collect()
    }
}

#[test]
fn a_whole_reservation_is_asked_after_until_it_ends() {
    let mut run = reserved_for(3600);
    let end = run.negotiation.reserved_plan().unwrap().end();
    let (mut rounds, mut after_start) = (0, 0);
    while run.negotiation.poll_timeout().is_some() {
        let due = run.wake();
        if at(due).utc + CLOCKS_DIFFER >= end {
            break;
        }
        after_start += u32::from(at(due).utc >= Time(30_000));
        assert_eq!(run.wanted(), ["Inspect 1 a", "Inspect 1 b"]);
        run.inspected(due, "a", Ok(booked(true)));
        run.inspected(due, "b", Ok(booked(true)));
        assert!(run.wanted().is_empty(), "nothing changed, nothing is written: {:?}", run.wanted());
        rounds += 1;
    }
    assert!(
        (20..400).contains(&rounds) && after_start > 0,
        "{rounds} rounds in eight hours, {after_start} after the start"
    );
    assert_eq!(run.negotiation.poll_timeout(), None, "what is about to end is left alone");
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)));
}

#[test]
fn what_is_lost_after_the_start_is_told_and_not_replaced_and_what_is_over_is_not_lost() {
    let mut run = reserved_for(3600);
    let end = run.negotiation.reserved_plan().unwrap().end();
    let mut due = run.wake();
    while at(due).utc < Time(30_000) {
        run.inspected(due, "a", Ok(booked(true)));
        run.inspected(due, "b", Ok(booked(true)));
        due = run.wake();
    }
    run.wanted();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(false)));
    assert_eq!(
        (run.lost(), run.wanted()),
        (1, vec!["write reserved, owed 0".to_owned()]),
        "nobody is asked for another host"
    );
    // Its site has found it again, and then falls silent.
    due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(true)));
    assert_eq!(run.lost(), 0);
    let since = due;
    while run.lost() == 0 {
        due = run.wake();
        assert!(at(due).utc + CLOCKS_DIFFER < end, "it is told in time");
        run.inspected(due, "a", Ok(booked(true)));
    }
    assert!(due - since >= LOST, "{}", due - since);
    while let Some(next) = run.negotiation.poll_timeout() {
        due = next.0.max(due + 1);
        run.time_passes_to(due);
        // Its clock is ahead: it has forgotten what is over.
        run.inspected(due, "a", Ok(booked(at(due).utc + CLOCKS_DIFFER < end)));
    }
    assert_eq!(run.lost(), 1);
}

#[test]
fn of_seats_that_end_at_different_times_the_one_that_is_over_is_not_asked_for_and_not_lost() {
    let mut record = super::testing::record();
    (record.earliest, record.latest) = (Time(30_000), Time(40_000));
    record.request = serde_json::from_str(r#"{"hosts":2,"work":3600,"per_host":{"cpu":500}}"#).unwrap();
    let mut run = Run::new(record, false);
    let mut hosts = vec![host_of("a"), host_of("b")];
    hosts[1].host.speed = Speed::try_from(2000).unwrap();
    run.find_hosts(10, hosts, 0);
    run.all_hold_and_confirm(&["a", "b"]);
    let ends: Vec<i64> = run.negotiation.reserved_plan().unwrap().seats.iter().map(|seat| seat.window.end.0).collect();
    assert_eq!(ends, [33_600, 31_800]);
    let (mut with_both, mut with_one) = (0, 0);
    while run.negotiation.poll_timeout().is_some() {
        let due = run.wake();
        let now = at(due).utc + CLOCKS_DIFFER;
        if now >= Time(33_600) {
            break;
        }
        let asked = run.wanted();
        run.inspected(due, "a", Ok(booked(true)));
        if now < Time(31_800) {
            assert_eq!(asked, ["Inspect 1 a", "Inspect 1 b"]);
            run.inspected(due, "b", Ok(booked(true)));
            with_both += u32::from(now > Time(30_000));
        } else {
            assert_eq!(asked, ["Inspect 1 a"]);
            with_one += 1;
        }
        assert_eq!(run.lost(), 0);
    }
    assert!(with_both > 0 && with_one > 0, "{with_both} {with_one}");
}

#[test]
fn an_answer_to_an_earlier_round_is_no_answer_to_this_one() {
    let mut run = reserved();
    let due = run.wake();
    let early = run.negotiation.watch.round;
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(true)));
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    let answer =
        Event::Answer { site: site("b"), attempt: 1, purpose: Purpose::Inspect(early), answer: Ok(booked(false)) };
    run.negotiation.handle(at(due), answer, &mut ());
    assert_eq!(run.lost(), 0);
    run.inspected(due, "b", Ok(booked(false)));
    assert_eq!(run.lost(), 1, "this round's answer is still waited for");
}

#[test]
fn an_answer_just_behind_its_round_shows_that_its_site_is_not_silent_and_no_more() {
    let silent_and_late = |late: SiteAnswer, rounds_ago: u32| {
        let mut run = reserved();
        // No other site replaces b, so that it stays lost.
        let until = run.wake() + 10 * LOST;
        let mut due = run.wake();
        while run.lost() == 0 {
            assert!(due < until, "b counts as lost after a while");
            run.inspected(due, "a", Ok(booked(true)));
            due = run.wake();
        }
        run.find_at(due, &["a"]);
        while !run.negotiation.watch.is_asking() {
            due = run.wake();
        }
        let purpose = Purpose::Inspect(run.negotiation.watch.round.wrapping_sub(rounds_ago));
        let answer = Event::Answer { site: site("b"), attempt: 1, purpose, answer: Ok(late) };
        run.negotiation.handle(at(due), answer, &mut ());
        run.lost()
    };
    assert_eq!(silent_and_late(booked(true), 1), 0, "it has answered after all");
    assert_eq!(silent_and_late(booked(true), 2), 1, "that was too long ago");
    assert_eq!(silent_and_late(booked(false), 1), 1, "it has not said that it has the seat");
}

#[test]
fn only_the_lost_host_is_replaced_at_the_same_start() {
    let mut run = reserved();
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(false)));
    assert_eq!(run.wanted(), ["write reserved, owed 0", "find, without {}"], "that it is degraded is on disk first");
    assert_eq!(run.lost(), 1);
    assert_eq!(run.status(1, "a"), AttemptStatus::Confirmed, "what is left stands");

    // What is kept is not chosen again, and only what is missing is asked of the new host.
    run.find_at(due, &["a", "c"]);
    let repair_attempt = run.negotiation.record().last_attempt;
    assert_eq!(run.wanted(), [format!("Hold {repair_attempt} c")]);
    let Some(Output::Ask { request: SiteRequest::Hold(hold), .. }) = run.outputs.first() else { panic!() };
    assert_eq!((hold.grants[0].seat, hold.grants[0].window.start), (SeatNumber(1), Time(30_000)));
    assert_eq!(hold.grants[0].amounts.values().map(|amount| amount.0).sum::<u64>(), 750);
    assert_eq!(run.status(1, "a"), AttemptStatus::Confirmed);

    run.answer("c", Purpose::Hold, held(9));
    assert_eq!(run.wanted(), ["write commit, owed 0".to_owned(), format!("Confirm {repair_attempt} c held in 9")]);
    run.answer("c", Purpose::Confirm, confirmed(9));
    assert_eq!(run.hosts(), ["a", "c"]);
    assert_eq!(run.lost(), 0);
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)));
    let told = [(1, "a"), (repair_attempt, "c"), (1, "b"), (repair_attempt, "a")]
        .map(|(attempt, asker)| run.status(attempt, asker));
    let (yes, no) = (AttemptStatus::Confirmed, AttemptStatus::Aborted);
    assert_eq!(told, [yes, yes, no, no], "b, which was made good for, may give back when it returns");
    assert!(run.wanted().contains(&format!("Settle {repair_attempt} c")), "{:?}", run.wanted());
    assert!(run.wanted().contains(&"Release 1 b".to_owned()), "what b may still have is given up: {:?}", run.wanted());

    run.cancel();
    let mut released: Vec<String> = run.wanted().into_iter().filter(|want| want.starts_with("Release")).collect();
    released.sort();
    assert!(
        released.contains(&"Release 1 a".to_owned()) && released.contains(&format!("Release {repair_attempt} c")),
        "{released:?}"
    );
}

#[test]
fn a_silent_site_is_lost_after_a_while_and_found_again_when_it_answers() {
    let mut run = reserved();
    let mut silent_for = 0;
    let mut first = None;
    while run.lost() == 0 {
        let due = run.wake();
        if run.wanted().iter().any(|want| want.starts_with("Inspect")) {
            run.inspected(due, "a", Ok(booked(true)));
            run.inspected(due, "b", Err("no route".to_owned()));
            silent_for = due - *first.get_or_insert(due);
        }
    }
    assert!((LOST..LOST + 3 * CHECK).contains(&silent_for), "{silent_for}");
    let now = first.unwrap() + silent_for;
    // Nobody can replace it, and the host of a silent site is not chosen again; a round later the site answers again.
    run.find_at(now, &["a", "b"]);
    assert!(matches!(run.negotiation.stage(), Stage::Degraded { is_rebrokering: false, .. }));
    let mut reservation = run.negotiation.record().reservation.clone().unwrap();
    let reason = |reservation: &Reservation| reservation.lost[&SeatNumber(1)];
    assert_eq!(reason(&reservation), Loss::SiteSilent);
    for (loss, is_new) in [(Loss::SiteSilent, false), (Loss::TakenBack, true), (Loss::SiteSilent, false)] {
        assert_eq!(reservation.note_seat(SeatNumber(1), Some(loss)), is_new);
    }
    assert_eq!(reason(&reservation), Loss::TakenBack, "what a site has said stays, although it falls silent");
    assert!(run.negotiation.record().reservation.as_ref().unwrap().failure.is_some(), "it is told why");
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(true)));
    assert_eq!(run.lost(), 0);
    assert_eq!(run.hosts(), ["a", "b"]);
}

#[test]
fn a_booking_is_given_up_only_when_what_stays_of_its_try_is_known_to_have_been_complete() {
    let mut run = reserved();
    let due = run.wake();
    run.inspected(due, "a", Err("no answer in time".to_owned()));
    run.inspected(due, "b", Ok(booked(false)));
    run.find_at(due, &["a", "b", "c"]);
    run.answer("c", Purpose::Hold, held(9));
    run.answer("c", Purpose::Confirm, confirmed(9));
    assert_eq!(run.hosts(), ["a", "c"]);
    assert!(!run.wanted().contains(&"Release 1 b".to_owned()), "a may still ask b about the try: {:?}", run.wanted());

    // Nor after a crash, until a has answered.
    let again = Run::new(run.negotiation.record().clone(), true);
    for mut run in [run, again] {
        let mut due = run.wake();
        while !run.wanted().contains(&"Inspect 1 a".to_owned()) {
            assert!(!run.wanted().contains(&"Release 1 b".to_owned()));
            due = run.wake();
        }
        run.inspected(due, "a", Ok(booked(true)));
        run.inspected(due, "c", Ok(booked(true)));
        assert!(run.wake() <= due, "at once");
        assert_eq!(run.wanted(), ["Release 1 b"]);
    }

    // Or has said so when it heard the outcome.
    let mut run = reserved();
    let settled =
        Event::Answer { site: site("a"), attempt: 1, purpose: Purpose::Settle, answer: Ok(SiteAnswer::Settled) };
    run.negotiation.handle(at(30), settled, &mut ());
    assert!(run.negotiation.settled.contains(&(1, site("a"))));
}

#[test]
fn an_answer_that_comes_too_late_for_its_round_ends_the_silence_of_its_site() {
    let mut run = reserved();
    for _ in 0..100 {
        let due = run.wake();
        if run.wanted().iter().any(|want| want.starts_with("Inspect")) {
            run.inspected(due, "a", Ok(booked(true)));
            run.inspected(due, "b", Err("no answer in time".to_owned()));
            run.inspected(due + 1, "b", Ok(booked(true)));
        }
        assert_eq!(run.lost(), 0);
    }
}

#[test]
fn a_repair_that_fails_in_the_middle_leaves_what_stood() {
    let mut run = reserved();
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(false)));
    run.find_at(due, &["a", "c"]);
    run.answer("c", Purpose::Hold, held(9));
    let repair_attempt = run.negotiation.record().last_attempt;
    run.answer("c", Purpose::Confirm, super::testing::refused(RefusalReason::NoSuchHold));
    assert_eq!(
        run.wanted(),
        ["write reserved, owed 1".to_owned(), format!("Release {repair_attempt} c"), "find, without {}".to_owned()]
    );
    assert_eq!(run.hosts(), ["a", "b"]);
    assert_eq!(run.lost(), 1);
    assert_eq!(run.status(repair_attempt, "a"), AttemptStatus::Aborted);
}

#[test]
fn a_crash_in_a_repair_goes_on_where_the_disk_says() {
    let mut run = reserved();
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(false)));
    let degraded = run.negotiation.record().clone();
    run.find_at(due, &["a", "c"]);
    let forgotten_try = run.negotiation.record().last_attempt;
    run.answer("c", Purpose::Hold, held(9));
    let decided = run.negotiation.record().clone();

    // Before the decision: it is asked again what is there, and attempts get new numbers.
    let mut again = Run::new(degraded, true);
    assert_eq!(again.lost(), 1);
    let due = again.wake();
    again.inspected(due, "a", Ok(booked(true)));
    again.inspected(due, "b", Ok(booked(false)));
    assert!(again.negotiation.record().last_attempt > forgotten_try);
    assert_eq!(again.status(forgotten_try, "a"), AttemptStatus::Aborted);

    // After it: the confirm is repeated.
    let mut after = Run::new(decided, true);
    assert_eq!(after.wanted(), [format!("Confirm {forgotten_try} c held in 9")]);
    after.answer("c", Purpose::Confirm, confirmed(9));
    assert_eq!(after.hosts(), ["a", "c"]);
}

/// A reservation at `a` and `b`, far ahead, of which `b` has just told that it is lost; and the time.
fn with_one_lost(may_move: bool) -> (Run, u64) {
    let mut record = super::testing::record();
    (record.earliest, record.latest) = (Time(30_000), Time(40_000));
    let text = format!(r#"{{"hosts":2,"duration":60,"total":{{"cpu":1500}},"move_on_loss":{may_move}}}"#);
    record.request = serde_json::from_str(&text).unwrap();
    let mut run = Run::new(record, false);
    run.find(&["a", "b"]);
    run.all_hold_and_confirm(&["a", "b"]);
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(false)));
    (run, due)
}

#[test]
fn it_moves_only_when_the_user_allows() {
    for may_move in [false, true] {
        let (mut run, due) = with_one_lost(may_move);
        let busy = Window { start: Time(29_000), end: Time(31_000) };
        for _ in 0..2 {
            // The second time after a wider search.
            run.find_busy_at(due, &["a", "c"], busy);
        }
        if !may_move {
            assert!(matches!(run.negotiation.stage(), Stage::Degraded { is_rebrokering: false, .. }));
            continue;
        }
        run.find_busy_at(due, &["a", "c"], busy);
        run.all_hold_and_confirm(&["a", "c"]);
        assert_eq!(run.hosts(), ["a", "c"]);
        assert!(run.negotiation.reserved_plan().unwrap().start != Time(30_000));
        assert!(run.wanted().contains(&"Release 1 a".to_owned()), "{:?}", run.wanted());
    }
}

#[test]
fn a_move_that_comes_too_late_gives_up_what_is_new() {
    let (mut run, due) = with_one_lost(true);
    let busy = Window { start: Time(29_000), end: Time(31_000) };
    for _ in 0..3 {
        run.find_busy_at(due, &["a", "c"], busy);
    }
    for name in ["a", "c"] {
        run.answer(name, Purpose::Hold, held(7));
    }
    let attempt = run.negotiation.record().last_attempt;
    for name in ["a", "c"] {
        let answer = Ok(confirmed(7));
        let event = Event::Answer { site: site(name), attempt, purpose: Purpose::Confirm, answer };
        run.negotiation.handle(at(25_000_000), event, &mut ());
    }
    assert_eq!(run.hosts(), ["a", "b"], "what stood has begun, and is not moved");
    run.drain();
    assert!(run.wanted().contains(&format!("Release {attempt} a")), "{:?}", run.wanted());
}

#[test]
fn the_hosts_of_floating_seats_are_asked_for_often_until_they_are_known() {
    let place = |is_bound: bool, class: &str, host: &str| {
        let [class, host] = [class, host].map(|name| HostId::new(name).unwrap());
        if is_bound { Place::Bound { class, host } } else { Place::Floating { class, host } }
    };
    let mut record = super::testing::record();
    (record.earliest, record.latest) = (Time(30_000), Time(40_000));
    record.request = serde_json::from_str(r#"{"hosts":2,"duration":3600,"total":{"cpu":1500}}"#).unwrap();
    let mut run = Run::new(record, false);
    run.find(&["a", "b"]);
    let SiteAnswer::Held { version, hold_for, .. } = held(7) else { unreachable!() };
    let places = vec![(SeatNumber(0), place(false, "n", "h"))];
    run.answer("a", Purpose::Hold, SiteAnswer::Held { version, hold_for, places });
    run.answer("b", Purpose::Hold, held(7));
    run.answer("a", Purpose::Confirm, confirmed(7));
    run.answer("b", Purpose::Confirm, confirmed(7));
    let place_of = |run: &Run| run.negotiation.reserved_plan().unwrap().seats[0].place.clone();
    let with = |place: Place| match booked(true) {
        SiteAnswer::Booked { seats, is_settled, before, others, charged, version, receipt, wait, .. } => {
            let places = vec![(SeatNumber(0), place)];
            Ok(SiteAnswer::Booked { seats, places, is_settled, before, others, charged, version, receipt, wait })
        }
        other => panic!("{other:?}"),
    };
    let mut due = run.wake();
    run.inspected(due, "a", with(place(false, "n", "h2")));
    run.inspected(due, "b", Ok(booked(true)));
    assert_eq!(place_of(&run), place(false, "n", "h2"));
    assert!(run.wanted().is_empty(), "its site may move it again: {:?}", run.wanted());
    while at(due).utc < Time(30_000) {
        due = run.wake();
        if at(due).utc < Time(30_000) {
            run.inspected(due, "a", Ok(booked(true)));
            run.inspected(due, "b", Ok(booked(true)));
        }
    }
    assert!(at(due).utc <= Time(30_006), "soon after the start");
    assert_eq!(run.wanted(), ["Inspect 1 a", "Inspect 1 b"]);
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(true)));
    for wrong in [Place::Host(HostId::new("h3").unwrap()), place(true, "m", "h3")] {
        let asked = run.wake();
        assert!(asked - due <= 6_000, "the user waits for it");
        due = asked;
        run.inspected(due, "a", with(wrong));
        run.inspected(due, "b", Ok(booked(true)));
        assert_eq!(place_of(&run), place(false, "n", "h2"));
    }
    due = run.wake();
    run.wanted();
    run.inspected(due, "a", with(place(true, "n", "h3")));
    run.inspected(due, "b", Ok(booked(true)));
    assert_eq!(place_of(&run), place(true, "n", "h3"));
    assert_eq!(run.wanted(), ["write reserved, owed 0"]);
    let next = run.negotiation.poll_timeout().unwrap().0;
    assert!(next - due > 30_000, "seldom from now on");
}
