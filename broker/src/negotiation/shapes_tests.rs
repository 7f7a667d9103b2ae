//! Requests with shapes at their coordinator: one is chosen, its sites hear which, and all that follows is of that one.

use super::{
    testing::{Run, at, booked, confirmed, held, record, site, taken, told},
    *,
};
use crate::{ids::ShapeNumber, protocol::FoundBooking, request::Request, time::Time, trust, variant::Variant};

/// Two hosts for a minute, or three for 40 s, whichever is over first; hours away. A site has one host, with 1,000.
fn asked(more: &str) -> RequestRecord {
    let text = format!(
        r#"{{"objective":"finish","per_host":{{"cpu":700}},"shapes":[{{"hosts":2,"duration":60}},{{"hosts":3,"duration":40}}]{more}}}"#
    );
    let request: Request = serde_json::from_str(&text).unwrap();
    let id = record().id;
    let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
    RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(30_000), Time(40_000)))
}

fn of(shape: u32) -> Variant {
    Variant { shape: ShapeNumber(shape), ..Variant::default() }
}

fn expected(sites: &[&str], shape: u32, seconds: u64) -> Vec<(String, Variant, u64)> {
    sites.iter().map(|name| ((*name).to_owned(), of(shape), seconds)).collect()
}

#[test]
fn the_best_shape_that_the_hosts_allow_is_asked_for() {
    let mut run = Run::new(asked(""), false);
    let Some(Output::Find { count, enough, .. }) = run.outputs.last() else { panic!("{:?}", run.wanted()) };
    assert_eq!((count % 3, *enough), (0, 3), "as many as the largest shape needs");
    run.find(&["a", "b", "c"]);
    assert_eq!(run.holds(), expected(&["a", "b", "c"], 1, 40));
    let mut run = Run::new(asked(""), false);
    run.find(&["a", "b"]);
    assert_eq!(run.holds(), expected(&["a", "b"], 0, 60));
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, held(7));
    let record = run.negotiation.record().clone();
    assert!(matches!(&record.decision, Decision::Commit { plan, .. } if plan.shape == ShapeNumber(0)));
    let kept = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
    assert_eq!(record, kept);
}

#[test]
fn after_a_refusal_another_shape_may_be_the_best() {
    let mut run = Run::new(asked(""), false);
    run.find(&["a", "b", "c"]);
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, held(7));
    run.answer("c", Purpose::Hold, taken(900, 700));
    assert!(run.wanted().iter().any(|what| what.starts_with("find")), "{:?}", run.wanted());
    run.find(&["a", "b", "c"]);
    assert_eq!(run.holds(), expected(&["a", "b"], 0, 60), "what c has refused it still does not have");
}

#[test]
fn where_no_shape_fits_the_proven_answer_names_each() {
    let mut run = Run::new(asked(r#","deadline":30030"#), false);
    run.find(&["a", "b"]);
    // There are no more.
    run.find(&["a", "b"]);
    let Stage::Closed { outcome: Outcome::Rejected { reason, start_proven }, .. } = run.negotiation.stage() else {
        panic!("{:?}", run.wanted());
    };
    assert!(start_proven);
    let detail = reason.detail();
    assert!(detail.starts_with("shape 1 of 2: no start works") && detail.contains("; shape 2 of 2: 2 of 3 hosts"));
    assert_eq!(reason.code(), "no_window");
    let mut run = Run::new(asked(""), false);
    run.find(&["a"]);
    let Stage::Closed { outcome: Outcome::Rejected { reason, start_proven }, .. } = run.negotiation.stage() else {
        panic!("{:?}", run.wanted());
    };
    let expected = "shape 1 of 2: 1 of 2 hosts satisfy the minima and attributes; shape 2 of 2: 1 of 3 hosts";
    assert!(reason.detail().starts_with(expected) && *start_proven, "{reason:?}");
}

fn reserved(more: &str) -> Run {
    let mut run = Run::new(asked(more), false);
    run.find(&["a", "b", "c"]);
    run.all_hold_and_confirm(&["a", "b", "c"]);
    let Decision::Reserved { plan, .. } = &run.negotiation.record().decision else { panic!("{:?}", run.wanted()) };
    assert_eq!(plan.shape, ShapeNumber(1));
    run
}

#[test]
fn what_is_lost_is_replaced_as_of_the_shape_that_is_reserved() {
    for (more, others, expected) in [
        ("", &["d"][..], expected(&["d"], 1, 40)),
        // No other host is left at that start, and two would do for the other shape at any.
        (r#","move_on_loss":true"#, &[][..], Vec::new()),
    ] {
        let mut run = reserved(more);
        let seats = [("a", Some(0)), ("b", Some(1)), ("c", None)];
        run.loses(&seats, &[&["a", "b"][..], others].concat());
        assert_eq!(run.holds(), expected);
        if expected.is_empty() {
            continue;
        }
        run.all_hold_and_confirm(others);
        assert_eq!(run.hosts(), ["a", "b", "d"]);
        assert_eq!(run.negotiation.reserved_plan().unwrap().shape, ShapeNumber(1), "a repair does not change it");
    }
}

#[test]
fn a_node_that_takes_over_goes_on_with_the_shape_that_sites_have() {
    let told = |from, attempt, (shape, seconds), seat| told(asked(""), from, attempt, (of(shape), seconds), seat);
    let taken_over = |parts: &[(SiteId, FoundBooking)]| {
        let heard = LookupAnswers { parts: parts.to_vec(), ..LookupAnswers::default() };
        let record = asked("").take_over(&heard)?;
        let reservation = record.reservation.unwrap();
        let missing = reservation.missing_seats(&record.request).len();
        Ok::<_, TakeOverError>((reservation.plan.shape.0, reservation.plan.seats.len(), missing))
    };
    assert_eq!(taken_over(&[told("a", 2, (1, 40), 0), told("b", 2, (1, 40), 1)]), Ok((1, 2, 1)), "c is silent");
    assert_eq!(taken_over(&[told("a", 2, (0, 60), 0), told("b", 2, (0, 60), 1)]), Ok((0, 2, 0)));
    // An earlier attempt for the other shape has left something behind; one of two is less than two of three.
    let both = [told("c", 3, (0, 60), 0), told("a", 2, (1, 40), 0), told("b", 2, (1, 40), 1)];
    assert_eq!(taken_over(&both), Ok((1, 2, 1)));
    // A site that lies: seats as long as those of the other shape, beyond its last seat, of none, and with too little.
    let honest = [told("a", 2, (1, 40), 0), told("b", 2, (1, 40), 1)];
    let mut little = told("c", 9, (1, 40), 2);
    little.1.grants[0].amounts.clear();
    for lie in
        [told("c", 9, (1, 60), 2), told("c", 9, (0, 40), 0), told("c", 9, (0, 60), 2), told("c", 9, (2, 40), 2), little]
    {
        assert_eq!(taken_over(&[std::slice::from_ref(&lie), &honest[..]].concat()), Ok((1, 2, 1)), "{lie:?}");
        assert_eq!(taken_over(&[lie]), Err(TakeOverError::Nothing));
    }
}

#[test]
fn what_was_taken_over_is_made_whole_as_of_its_shape() {
    let parts = [("a", 0), ("b", 1)].map(|(from, seat)| told(asked(""), from, 2, (of(1), 40), seat)).to_vec();
    let heard = LookupAnswers { parts, ..LookupAnswers::default() };
    let mut run = Run::new(asked("").take_over(&heard).unwrap(), true);
    run.negotiation.handle(at(1), Event::Check, &mut ());
    for (from, seat) in [("a", 0), ("b", 1)] {
        run.inspected(2, from, Ok(booked(Some(seat))));
    }
    assert_eq!(run.lost(), 1, "{:?}", run.wanted());
    run.find(&["a", "b", "c", "d"]);
    let holds = run.holds();
    assert!(
        holds.len() == 1 && ["c", "d"].contains(&&*holds[0].0) && (holds[0].1, holds[0].2) == (of(1), 40),
        "{holds:?}"
    );
    let name = holds[0].0.clone();
    run.answer(&name, Purpose::Hold, held(7));
    run.answer(&name, Purpose::Confirm, confirmed(7));
    assert_eq!(run.hosts(), ["a", "b", name.as_str()]);
}
