//! Takeovers at the entry point: what is gone on with, who is told, and how the one that acted before lets go.

use std::sync::Arc;

use super::{
    guard_tests::{LOST, booked, every_seat, reserved},
    testing::{Run, at, site, version},
    *,
};
use crate::{
    amount::Amount,
    ids::{HostId, RequestId, SeatNumber},
    plan::Place,
    protocol::{AttemptStatus, FoundBooking, Grant, RefusalReason, SiteAnswer, SiteRequest, TakeOverStep},
    resources::{Amounts, ResourceName},
    time::{Time, Window},
    trust::{Authorization, RequestStatement, SignedText, testing},
};

#[test]
fn what_another_entry_point_made_is_taken_over_checked_and_made_whole() {
    let original = reserved();
    let Some(Decision::Reserved { plan, .. }) = Some(original.negotiation.record().decision.clone()) else { panic!() };
    let record = super::testing::record();
    let statement = std::sync::Arc::new(record.authorization.clone().unwrap().request);
    let old = AttemptId { entry_point: site("gone"), request: record.id.clone(), attempt: 1 };
    let grants = vec![crate::protocol::Grant::from(&plan.seats[0])];
    let participants = vec![site("a"), site("b")];
    let part = FoundBooking {
        wait: Default::default(),
        attempt: old.clone(),
        variant: Default::default(),
        grants,
        participants,
        statement,
    };
    let taken = record.clone().take_over(&heard(&[(site("a"), part)])).unwrap();
    assert_eq!(record.take_over(&LookupAnswers::default()), Err(TakeOverError::Nothing));

    let mut run = Run::new(taken, true);
    assert_eq!(
        run.asked(),
        [
            ("b".to_owned(), Purpose::Release, "take over".to_owned()),
            ("e".to_owned(), Purpose::Release, "take over".to_owned()),
            ("gone".to_owned(), Purpose::Release, "take over".to_owned())
        ],
        "b may come back, and so may the old entry point, or who acts for it now"
    );
    run.negotiation.handle(at(1), Event::Check, &mut ());
    run.drain();
    let Some(Output::Ask { request: SiteRequest::TakeOver { attempt, .. }, .. }) = run.outputs.first() else {
        panic!()
    };
    assert_eq!(*attempt, old);
    run.inspected(2, "a", Ok(booked(true)));
    assert_eq!(run.lost(), 1, "b is not known to anybody, but the user asked for two");
    run.find_at(3, &["a", "c"]);
    run.all_hold_and_confirm(&["c"]);
    assert_eq!(run.hosts(), ["a", "c"]);
    run.cancel();
    let of_a = run.outputs.iter().find_map(|output| match output {
        Output::Ask { site, request: SiteRequest::TakeOver { attempt, step, .. }, .. } if site.as_str() == "a" => {
            Some((attempt, *step))
        }
        _ => None,
    });
    assert_eq!(of_a, Some((&old, TakeOverStep::Abort)), "under the name that its site knows");
}

#[test]
fn a_takeover_is_reported_when_every_site_knows_the_outcome() {
    let parts = [told("a", "gone", 1, &["a", "b"], 750), told("b", "gone", 1, &["a", "b"], 750)];
    let mut run = Run::new(super::testing::record().take_over(&heard(&parts)).unwrap(), true);
    let steps = |run: &Run| {
        let of = |output: &Output| match output {
            Output::Ask { purpose: Purpose::Inspect(_), request: SiteRequest::TakeOver { step, .. }, .. } => {
                Some(*step)
            }
            _ => None,
        };
        run.outputs.iter().filter_map(of).collect::<Vec<_>>()
    };
    run.negotiation.handle(at(1), Event::Check, &mut ());
    run.drain();
    assert_eq!(steps(&run), [TakeOverStep::Prepare; 2]);
    run.inspected(2, "a", acknowledged(false));
    assert!(!run.negotiation.record().commits_takeover, "b has not acknowledged it");
    run.inspected(2, "b", acknowledged(false));
    let Some(Output::Persist(decided)) = run.outputs.first() else { panic!("{:?}", run.outputs) };
    assert!(decided.commits_takeover, "on disk before the first site is told to commit");
    assert_eq!(steps(&run), [TakeOverStep::Commit; 2]);
    run.inspected(3, "a", acknowledged(true));
    assert!(matches!(run.negotiation.stage(), Stage::Confirming(_)), "b may still give its part back");
    run.inspected(3, "b", acknowledged(true));
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)));
}

/// The site has its part; settled once the takeover is committed there.
fn acknowledged(is_settled: bool) -> Result<SiteAnswer, String> {
    let mut answer = booked(true);
    match &mut answer {
        SiteAnswer::Booked { is_settled: is_told, .. } => *is_told = is_settled,
        other => panic!("{other:?}"),
    }
    Ok(answer)
}

#[test]
fn a_seat_reported_as_lost_counts_again_only_when_its_site_has_settled_it() {
    for is_settled in [false, true] {
        let parts = [told("a", "gone", 1, &["a", "b"], 750), told("b", "gone", 1, &["a", "b"], 750)];
        let mut run = Run::new(super::testing::record().take_over(&heard(&parts)).unwrap(), true);
        let mut due = 0;
        while run.lost() == 0 {
            due = run.wake();
            if run.negotiation.watch.is_asking() {
                run.inspected(due, "b", acknowledged(run.negotiation.record().commits_takeover));
            }
        }
        run.find_at(due, &["b"]);
        let round = run.negotiation.watch.round;
        while run.negotiation.watch.round == round {
            due = run.wake();
        }
        // The answer to the question before: another participant can still end what is not settled.
        let (attempt, _) = run.negotiation.bookings().iter().find(|(_, at)| *at == site("a")).cloned().unwrap();
        let (purpose, answer) = (Purpose::Inspect(round), acknowledged(is_settled));
        run.negotiation.handle(at(due), Event::Answer { site: site("a"), attempt, purpose, answer }, &mut ());
        assert_eq!(run.lost(), usize::from(!is_settled));
        run.inspected(due, "a", acknowledged(is_settled));
        assert_eq!(run.lost(), usize::from(!is_settled), "the answer to the present one");
    }
}

#[test]
fn a_node_that_has_its_own_attempt_back_knows_it_by_its_name() {
    // "e" has made it, has handed the request over, and takes it over again.
    let parts = [told("a", "e", 2, &["a", "b"], 750), told("b", "e", 2, &["a", "b"], 750)];
    let record = super::testing::record().take_over(&heard(&parts)).unwrap();
    let name = AttemptId { entry_point: site("e"), request: record.id.clone(), attempt: 2 };
    let told = |record: &RequestRecord| ["a", "c"].map(|asker| record.status_of(&site("e"), &name, &site(asker)));
    assert_eq!(told(&record), [AttemptStatus::Pending; 2], "the takeover is under way, and may yet be cancelled");
    let decided = RequestRecord { commits_takeover: true, ..record };
    assert_eq!(told(&decided), [AttemptStatus::Confirmed, AttemptStatus::Pending]);
    let complete = RequestRecord { unacknowledged: BTreeSet::new(), ..decided };
    assert_eq!(told(&complete), [AttemptStatus::Confirmed, AttemptStatus::Aborted], "c has no part in it");
}

#[test]
fn nothing_is_given_back_before_the_takeover_is_complete() {
    // What c has may be part of what the former coordinator has reported: the look-up has not shown all.
    let parts = ["a", "b"].map(|name| told(name, "gone", 2, &["a", "b"], 750)).to_vec();
    let parts = [parts, vec![told("c", "gone", 1, &["c", "d"], 750)]].concat();
    let record = super::testing::record().take_over(&heard(&parts)).unwrap();
    let of_c = record.owed.iter().find(|owed| owed.site == site("c")).unwrap().attempt;
    let mut run = Run::new(record, true);
    let to_c = |run: &Run| {
        let step = |output: &Output| match output {
            Output::Ask { site: to, request: SiteRequest::TakeOver { step, .. }, .. } if *to == site("c") => {
                Some(*step)
            }
            _ => None,
        };
        run.outputs.iter().filter_map(step).collect::<Vec<_>>()
    };
    assert_eq!(to_c(&run), [TakeOverStep::Prepare]);
    let acknowledges =
        Event::Answer { site: site("c"), attempt: of_c, purpose: Purpose::Release, answer: Ok(booked(true)) };
    run.negotiation.handle(at(1), acknowledges, &mut ());
    run.drain();
    run.negotiation.handle(at(1), Event::Check, &mut ());
    for _ in 0..2 {
        run.drain();
        assert!(to_c(&run).is_empty(), "{:?}", run.outputs);
        run.inspected(2, "a", Ok(booked(true)));
        assert!(to_c(&run).is_empty(), "{:?}", run.outputs);
        run.inspected(2, "b", Ok(booked(true)));
    }
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)), "{:?}", run.negotiation.stage());
    run.wake();
    assert_eq!(to_c(&run), [TakeOverStep::Abort]);
}

pub(super) fn heard(parts: &[(SiteId, FoundBooking)]) -> LookupAnswers {
    LookupAnswers { parts: parts.to_vec(), ..LookupAnswers::default() }
}

/// A site reports one seat: at `a` and `c` the first one, at `b` and `d` the second.
pub(super) fn told(
    from: &str,
    entry_point: &str,
    attempt: u32,
    participants: &[&str],
    amount: u64,
) -> (SiteId, FoundBooking) {
    told_seat(u32::from(["b", "d"].contains(&from)), (from, "h"), entry_point, attempt, participants, amount)
}

fn told_seat(
    seat: u32,
    (from, host): (&str, &str),
    entry_point: &str,
    attempt: u32,
    participants: &[&str],
    amount: u64,
) -> (SiteId, FoundBooking) {
    let record = super::testing::record();
    let statement = std::sync::Arc::new(record.authorization.unwrap().request);
    let amounts = Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))]);
    let part = FoundBooking {
        wait: Default::default(),
        variant: Default::default(),
        attempt: AttemptId { entry_point: site(entry_point), request: record.id, attempt },
        grants: vec![Grant {
            seat: SeatNumber(seat),
            place: Place::Host(HostId::new(host).unwrap()),
            // The host of the second seat is faster.
            window: Window { start: Time(6_000), end: Time(if seat == 1 { 6_030 } else { 6_060 }) },
            amounts,
            agreed: Default::default(),
        }],
        participants: participants.iter().map(|name| site(name)).collect(),
        statement,
    };
    (site(from), part)
}

#[test]
fn of_more_bookings_than_were_asked_for_a_whole_try_or_the_last_ones_are_taken_over() {
    let taken = |parts: &[(SiteId, FoundBooking)]| {
        let record = super::testing::record().take_over(&heard(parts)).unwrap();
        let kept: Vec<String> =
            record.reservation.unwrap().plan.seats.iter().map(|grant| grant.site.to_string()).collect();
        let owed: Vec<String> = record.owed.iter().map(|owed| owed.site.to_string()).collect();
        (kept.join(" "), owed.join(" "))
    };
    let strings = |kept: &str, owed: &str| (kept.to_owned(), owed.to_owned());
    // An attempt that was decided against has left a booking behind.
    let whole = [told("a", "e", 1, &["a", "b"], 750), told("c", "e", 2, &["c", "d"], 750)];
    let whole = [&whole[..], &[told("d", "e", 2, &["c", "d"], 750)]].concat();
    assert_eq!(taken(&whole), strings("c d", "a b e e"));
    // A repair has come to its end, and what it replaced has come back: two attempts of different nodes have one number.
    let repaired =
        [told("a", "e", 5, &["a", "b"], 750), told("b", "e", 5, &["a", "b"], 750), told("c", "f", 5, &["c"], 750)];
    assert_eq!(taken(&repaired), strings("a b", "e c e f"));
    // Both sites of the first attempt are not there any more.
    let late = [told("a", "e", 1, &["a", "b"], 750), told_seat(1, ("c", "h"), "f", 9, &["c"], 750)];
    assert_eq!(taken(&late), strings("a c", "b e e f"));
    // One host has been reserved by two attempts.
    let again = told_seat(1, ("a", "h"), "e", 2, &["a", "c"], 750);
    assert_eq!(taken(&[told("a", "e", 1, &["a", "b"], 750), again]), strings("a", "a b e c e"));
    // One seat has been reserved by two attempts, on two hosts of a site.
    let again = told_seat(0, ("a", "i"), "e", 2, &["a", "c"], 750);
    assert_eq!(taken(&[told("a", "e", 1, &["a", "b"], 750), again]), strings("a", "a b e c e"));
    // A site tells of a seat that was never asked for.
    let beyond = told_seat(2, ("c", "h"), "f", 9, &["c"], 750);
    assert_eq!(taken(&[told("a", "e", 1, &["a", "b"], 750), beyond]), strings("a", "b e c e f"));
    // Together they do not have what was asked for.
    let short = [told("a", "e", 1, &["a", "b"], 100), told_seat(1, ("c", "h"), "f", 9, &["c"], 750)];
    assert_eq!(taken(&short), strings("c", "a b e e f"));
}

#[test]
fn whoever_may_carry_a_request_hears_that_it_is_taken_over() {
    let names = |names: &[&str]| names.iter().map(|name| site(name)).collect::<BTreeSet<_>>();
    let parts = vec![told("a", "e", 3, &["a", "b"], 750), told_seat(1, ("c", "h"), "e", 2, &["c"], 750)];
    let heard = LookupAnswers { parts, coordinating: names(&["a", "d", "e", "f"]), silent: names(&["b", "f", "s"]) };
    let record = super::testing::record().take_over(&heard).unwrap();
    let owed = |record: &RequestRecord, name: &str| {
        let of_site = record.owed.iter().filter(|owed| owed.site == site(name));
        of_site.map(|owed| owed.attempt).collect::<Vec<_>>()
    };
    let last = record.last_attempt;
    assert_eq!(record.taken_over[&last].attempt, 3);
    for (name, expected) in [("d", vec![last]), ("f", vec![last]), ("s", vec![last]), ("b", vec![last])] {
        assert_eq!(owed(&record, name), expected, "{name}");
    }
    assert_eq!((owed(&record, "e").len(), owed(&record, "a").len()), (2, 0), "e has made two tries; a keeps its part");

    let mut run = Run::new(record, true);
    assert!(run.asked().contains(&("s".to_owned(), Purpose::Release, "take over".to_owned())));
    let answer = SiteAnswer::Booked {
        seats: Vec::new(),
        places: Vec::new(),
        is_settled: true,
        before: None,
        others: Vec::new(),
        charged: Default::default(),
        version: version(1),
        receipt: None,
        wait: Default::default(),
    };
    let event =
        |answer| Event::Answer { site: site("d"), attempt: last, purpose: Purpose::Release, answer: Ok(answer) };
    run.negotiation.handle(at(1), event(answer), &mut ());
    assert!(!run.negotiation.releases.contains(&(last, site("d"))), "it has heard");

    let many = (0..1_000).map(|number| site(&format!("s{number:03}"))).collect();
    let heard =
        LookupAnswers { parts: vec![told("a", "e", 1, &["a"], 750)], coordinating: names(&["z"]), silent: many };
    let record = super::testing::record().take_over(&heard).unwrap();
    assert_eq!((record.owed.len(), owed(&record, "z").len()), (257, 1), "e as well, and z before silent ones");
}

#[test]
fn what_nobody_had_told_of_is_taken_over_and_given_back() {
    let parts = heard(&[told("a", "gone", 3, &["a", "b"], 750)]);
    let mut run = Run::new(super::testing::record().take_over(&parts).unwrap(), true);
    let last = run.negotiation.record().last_attempt;
    let other = |entry_point: &str, request: &str, attempt| AttemptId {
        entry_point: site(entry_point),
        request: RequestId::new(request).unwrap(),
        attempt,
    };
    let id = run.negotiation.record().id.to_string();
    let says = |run: &mut Run, others: Vec<AttemptId>| {
        let answer = SiteAnswer::Booked {
            seats: Vec::new(),
            places: Vec::new(),
            is_settled: true,
            before: None,
            others,
            charged: Default::default(),
            version: version(1),
            receipt: None,
            wait: Default::default(),
        };
        let event = Event::Answer { site: site("b"), attempt: last, purpose: Purpose::Release, answer: Ok(answer) };
        run.negotiation.handle(at(1), event, &mut ());
        run.drain();
        let asks = run.outputs.iter().filter_map(|output| match output {
            Output::Ask { site, request: SiteRequest::TakeOver { attempt, .. }, .. } => {
                Some((site.clone(), attempt.clone()))
            }
            _ => None,
        });
        asks.collect::<Vec<_>>()
    };
    let left = other("late", &id, 300_012);
    let told_of = vec![other("late", "another", 1), other("gone", &id, 3), left.clone()];
    assert_eq!(says(&mut run, told_of), [(site("b"), left.clone())], "not another request, nor what is owed a release");
    let number = *run.negotiation.record().taken_over.iter().find(|(_, name)| **name == left).unwrap().0;
    assert!(run.negotiation.record().owed.contains(&Owed { site: site("b"), attempt: number }), "on disk");
    assert_eq!(run.negotiation.record().last_attempt, last, "it is no try of this node");

    run.negotiation.owe(at(1), last, [site("b")]);
    let endless = (0..200).map(|attempt| other("made-up", &id, attempt)).collect();
    let named = says(&mut run, endless);
    let made_up = named.iter().filter(|(_, name)| name.entry_point == site("made-up")).count();
    assert_eq!(made_up, 63, "a site that lies cannot name without end");
}

#[test]
fn a_node_that_hears_of_a_later_word_of_the_user_lets_go_and_gives_back_late() {
    let mut run = reserved();
    let record = run.negotiation.record().clone();
    let said = |run: &mut Run, user: u64, id: &RequestId| {
        let authorization = authorize(user, "f", &RequestRecord { id: id.clone(), ..record.clone() }).into();
        run.negotiation.handle(at(50), Event::TakenOver { by: site("f"), authorization }, &mut ());
        run.drain();
    };
    said(&mut run, 2, &record.id);
    said(&mut run, 1, &RequestId::new("other").unwrap());
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)), "not the user's word, or not about this");
    said(&mut run, 1, &record.id);
    assert_eq!(run.wanted(), ["write closed, owed 2"]);
    assert_eq!(run.status(1, "a"), AttemptStatus::Unknown, "the other node may be about to ask it");
    let due = run.wake();
    assert!(due >= 2 * LOST, "{due}");
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b"]);
    let handed_over = super::testing::refused(RefusalReason::HandedOver(word(1, "f", &record)));
    for (name, answer) in
        [("a", handed_over), ("b", SiteAnswer::Released { version: version(8), charged: Default::default() })]
    {
        let event = Event::Answer { site: site(name), attempt: 1, purpose: Purpose::Release, answer: Ok(answer) };
        run.negotiation.handle(at(due), event, &mut ());
    }
    assert!(run.negotiation.is_quiet());
}

/// What a user has signed for a node: in the first term for `e`, in a higher one for each letter behind it.
fn authorize(user: u64, node: &str, record: &RequestRecord) -> Authorization {
    let term = RequestStatement::FIRST_TERM + u64::from(node.as_bytes()[0]) - u64::from(b'e');
    testing::authorize_in(term, user, &site(node), &record.id, &record.request)
}

fn in_first_term(node: &str, record: &RequestRecord) -> Authorization {
    testing::authorize_in(RequestStatement::FIRST_TERM, 1, &site(node), &record.id, &record.request)
}

fn word(user: u64, node: &str, record: &RequestRecord) -> Arc<SignedText> {
    Arc::new(authorize(user, node, record).request)
}

#[test]
fn a_node_lets_go_only_when_a_site_shows_a_later_word_of_the_user() {
    let record = reserved().negotiation.record().clone();
    let other = RequestRecord { id: RequestId::new("other").unwrap(), ..record.clone() };
    let mut forged = word(1, "d", &record);
    Arc::make_mut(&mut forged).text = word(1, "f", &record).text.clone();
    let lower = [word(1, "d", &record), Arc::new(in_first_term("d", &record).request)];
    let lies = [word(2, "f", &record), word(1, "f", &other), word(1, "e", &record), forged];
    let lies = [&lies[..], &lower[..]].concat();
    let says = |word: &Arc<SignedText>| super::testing::refused(RefusalReason::HandedOver(word.clone()));
    for lie in &lies {
        let mut run = reserved();
        run.negotiation.handle(at(50), Event::Check, &mut ());
        run.inspected(51, "a", Ok(says(lie)));
        assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)), "{lie:?}");
    }
    for shown in [word(1, "f", &record), Arc::new(in_first_term("f", &record).request)] {
        let mut run = reserved();
        run.negotiation.handle(at(50), Event::Check, &mut ());
        run.inspected(51, "a", Ok(says(&shown)));
        assert!(matches!(run.negotiation.stage(), Stage::Closed { outcome: Outcome::HandedOver, .. }));
    }

    let confirming = |word: &Arc<SignedText>| {
        let mut run = Run::confirming();
        let event = Event::Answer { site: site("a"), attempt: 1, purpose: Purpose::Confirm, answer: Ok(says(word)) };
        run.negotiation.handle(at(3), event, &mut ());
        matches!(run.negotiation.stage(), Stage::Closed { .. })
    };
    assert!(lies.iter().all(|lie| !confirming(lie)), "a site that refuses to confirm is left out");
    assert!(confirming(&word(1, "f", &record)));
}

#[test]
fn a_site_that_answers_what_it_was_not_asked_is_not_asked_again_at_once() {
    let mut run = reserved();
    run.cancel();
    let mut asked = 0;
    for now in 10..200 {
        let before = Some(site(&format!("made-up-{now}")));
        let answer = SiteAnswer::Booked {
            seats: every_seat(),
            places: Vec::new(),
            is_settled: true,
            before,
            others: Vec::new(),
            charged: Default::default(),
            version: version(1),
            receipt: None,
            wait: Default::default(),
        };
        let event = Event::Answer { site: site("a"), attempt: 1, purpose: Purpose::Release, answer: Ok(answer) };
        run.negotiation.handle(at(now), event, &mut ());
        run.drain();
        asked += run.outputs.len();
    }
    assert_eq!(asked, 0, "only after a wait");
    run.wake();
    assert_eq!(run.wanted(), ["Release 1 a"]);
}

#[test]
fn a_node_that_took_over_keeps_it_from_nodes_with_an_earlier_word_of_the_user() {
    let record = super::testing::record();
    let word = |user, node: &str| authorize(user, node, &record);
    let mut taken = record.clone().take_over(&heard(&[told("a", "gone", 1, &["a", "b"], 750)])).unwrap();
    for acting in [&record, &taken] {
        let kept = ["d", "e", "f"].map(|node| acting.later_authorization(&word(1, node)).is_some());
        assert_eq!(kept, [true, false, false], "d has a lower term; and e is this node");
        let equal = ["d", "f"].map(|node| acting.later_authorization(&in_first_term(node, &record)).is_some());
        assert_eq!(equal, [true, false], "of equal terms the name of the node decides");
    }
    assert_eq!(taken.later_authorization(&word(2, "d")), None, "another user's word is for the ledger to refuse");
    taken.decision = Decision::Closed(Outcome::HandedOver);
    assert_eq!(taken.later_authorization(&word(1, "d")), None, "it does not act any more");
    taken.successor = Some(word(1, "f"));
    assert_eq!(taken.later_authorization(&word(1, "e")), Some(word(1, "f").request.into()), "and remembers who does");
    assert_eq!(taken.later_authorization(&word(1, "g")), None);
    assert_eq!(taken.former_coordinator(&site("g")), Some(site("f")), "g must tell f, however late it comes");
}

#[test]
fn whom_it_was_handed_to_before_is_on_disk_and_told_once_by_the_one_that_acts_now() {
    let mut run = reserved();
    let record = run.negotiation.record().clone();
    for name in ["f", "g"] {
        let authorization = authorize(1, name, &record).into();
        run.negotiation.handle(at(50), Event::TakenOver { by: site(name), authorization }, &mut ());
        run.drain();
        assert_eq!(run.wanted(), ["write closed, owed 2"]);
    }
    assert_eq!(run.negotiation.record().former_coordinator(&site("g")), Some(site("f")));

    let parts = [told("a", "gone", 1, &["a"], 750)];
    let mut run = Run::new(record.take_over(&heard(&parts)).unwrap(), true);
    let mut owed = Vec::new();
    for _ in 0..3 {
        let mut due = run.wake();
        while !run.negotiation.watch.is_asking() {
            due = run.wake();
        }
        let answer = |seats, before| SiteAnswer::Booked {
            seats,
            places: Vec::new(),
            is_settled: true,
            before,
            others: Vec::new(),
            charged: Default::default(),
            version: version(1),
            receipt: None,
            wait: Default::default(),
        };
        run.inspected(due, "a", Ok(answer(every_seat(), Some(site("f")))));
        run.find_at(due, &["a"]);
        let told: Vec<_> = run.negotiation.releases.keys().filter(|(_, at)| *at == site("f")).cloned().collect();
        owed.push(told.len());
        for (attempt, site) in told {
            let event =
                Event::Answer { site, attempt, purpose: Purpose::Release, answer: Ok(answer(Vec::new(), None)) };
            run.negotiation.handle(at(due), event, &mut ());
        }
    }
    assert_eq!(owed, [1, 0, 0], "once, though it is named every time");
}

#[test]
fn a_silent_site_hears_of_a_takeover_until_the_end_also_after_the_start() {
    let (record, parts) =
        (super::testing::record(), [told("a", "e", 1, &["a", "b"], 750), told("b", "e", 1, &["a", "b"], 750)]);
    let mut run = Run::new(record.take_over(&heard(&parts)).unwrap(), true);
    let asked_at = |run: &mut Run, now: u64| {
        run.negotiation.handle(at(now), Event::Check, &mut ());
        run.drain();
        let asks = run.outputs.iter().filter_map(|output| match output {
            Output::Ask { site, purpose: Purpose::Inspect(_), .. } => Some(site.to_string()),
            _ => None,
        });
        asks.collect::<Vec<_>>()
    };
    assert_eq!(asked_at(&mut run, 1), ["a", "b"]);
    run.inspected(2, "a", Ok(booked(true)));
    run.inspected(2, "b", Err("no answer in time".to_owned()));
    // It begins at 6,000 s, while b is silent, and ends at 6,060 s.
    assert_eq!(asked_at(&mut run, 1_001_000), ["b"]);
    run.inspected(1_002_000, "b", Err("no answer in time".to_owned()));
    assert_eq!(run.lost(), 1);
    assert_eq!(asked_at(&mut run, 1_010_000), ["b"], "it counts as lost, and is told all the same");
    run.inspected(1_011_000, "b", Err("no answer in time".to_owned()));
    assert_eq!(asked_at(&mut run, 1_061_000), [""; 0]);
}
