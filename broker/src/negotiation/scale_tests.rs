//! Moldable requests at their coordinator: a factor is chosen, its sites hear which, and all that follows is at that one.

use super::{
    testing::{Run, at, booked, confirmed, held, record, site, taken, told},
    *,
};
use crate::{
    amount::Amount,
    features::Features,
    protocol::FoundBooking,
    request::Request,
    resources::{Amounts, ResourceName},
    scale::Factor,
    schedule::Schedule,
    time::{Time, Window},
    trust::{self, RequestStatement},
    variant::Variant,
};

/// Two hosts with 350 for a minute, or with up to 700 for 30 s, whichever is over first; hours away. A site has one host, with 1,000.
fn asked(more: &str) -> RequestRecord {
    let text = format!(
        r#"{{"objective":"finish","per_host":{{"cpu":350}},"hosts":2,"duration":60,"scale":[500,2000]{more}}}"#
    );
    let request: Request = serde_json::from_str(&text).unwrap();
    let id = record().id;
    let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
    RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(30_000), Time(40_000)))
}

fn by(thousandths: u32) -> Variant {
    Variant { scale: Factor::of_thousandths(thousandths), ..Variant::default() }
}

fn expected(sites: &[&str], thousandths: u32, seconds: u64) -> Vec<(String, Variant, u64)> {
    sites.iter().map(|name| ((*name).to_owned(), by(thousandths), seconds)).collect()
}

fn reserved(more: &str) -> Run {
    let mut run = Run::new(asked(more), false);
    run.find(&["a", "b"]);
    run.all_hold_and_confirm(&["a", "b"]);
    assert_eq!(run.negotiation.reserved_plan().unwrap().scale, Factor::of_thousandths(2000));
    run
}

#[test]
fn the_best_factor_that_the_hosts_allow_is_asked_for() {
    let mut run = Run::new(asked(""), false);
    let needs = Features::needed_by(run.negotiation.wanted());
    assert!(needs.contains("scale/1"), "sites without it are not asked");
    assert_eq!(run.negotiation.wanted().minima().into_values().map(|least| least.0).collect::<Vec<_>>(), [175]);
    run.find(&["a", "b"]);
    assert_eq!(run.holds(), expected(&["a", "b"], 2000, 30));
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, held(7));
    let record = run.negotiation.record().clone();
    assert!(matches!(&record.decision, Decision::Commit { plan, .. } if plan.variant() == by(2000)));
    let kept = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
    assert_eq!(record, kept);
}

#[test]
fn after_a_refusal_another_factor_may_be_the_best() {
    let mut run = Run::new(asked(""), false);
    run.find(&["a", "b"]);
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, taken(600, 700));
    run.find(&["a", "b"]);
    // 400 are free: of the factors that end as early, the one nearest to 1.
    assert_eq!(run.holds(), expected(&["a", "b"], 1133, 53));
}

#[test]
fn where_no_factor_fits_the_answer_is_proven() {
    let mut run = Run::new(asked(r#","deadline":30029"#), false);
    run.find(&["a", "b"]);
    run.find(&["a", "b"]);
    let Stage::Closed { outcome: Outcome::Rejected { reason, start_proven }, .. } = run.negotiation.stage() else {
        panic!("{:?}", run.wanted());
    };
    assert!(*start_proven && reason.code() == "no_window", "{reason:?}");
}

#[test]
fn what_is_lost_is_replaced_at_the_factor_that_is_reserved() {
    for (others, expected) in [(&["c"][..], expected(&["c"], 2000, 30)), (&[][..], Vec::new())] {
        let mut run = reserved("");
        run.loses(&[("a", Some(0)), ("b", None)], &[&["a"][..], others].concat());
        assert_eq!(run.holds(), expected);
        if expected.is_empty() {
            continue;
        }
        run.all_hold_and_confirm(others);
        assert_eq!(run.hosts(), ["a", "c"]);
        assert_eq!(run.negotiation.reserved_plan().unwrap().variant(), by(2000), "a repair does not change it");
    }
}

#[test]
fn a_move_keeps_the_factor() {
    let mut run = reserved(r#","move_on_loss":true"#);
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(Some(0))));
    run.inspected(due, "b", Ok(booked(None)));
    // Nothing is free at its start, and later half of a host only.
    let mut schedule = Schedule::default();
    for (start, end, used) in [(0, 30_100, 1_000), (30_100, 90_000, 500)] {
        let used = Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(used))]);
        schedule.add(Window { start: Time(start), end: Time(end) }, &used);
    }
    for _ in 0..4 {
        if run.outputs.iter().any(|output| matches!(output, Output::Find { .. })) {
            run.find_with(due, &["a", "c", "d"], &schedule, 0);
        }
    }
    assert_eq!(run.holds(), [], "there is room at a smaller factor only");
}

#[test]
fn a_node_that_takes_over_goes_on_at_the_factor_that_sites_have() {
    let told = |from, attempt, (factor, seconds), seat| told(asked(""), from, attempt, (by(factor), seconds), seat);
    let taken_over = |parts: &[(SiteId, FoundBooking)]| {
        let heard = LookupAnswers { parts: parts.to_vec(), ..LookupAnswers::default() };
        let record = asked("").take_over(&heard)?;
        let reservation = record.reservation.unwrap();
        let missing = reservation.missing_seats(&record.request).len();
        Ok::<_, TakeOverError>((reservation.plan.scale.thousandths(), reservation.plan.seats.len(), missing))
    };
    assert_eq!(taken_over(&[told("a", 2, (2000, 30), 0)]), Ok((2000, 1, 1)), "b is silent");
    assert_eq!(taken_over(&[told("a", 2, (1000, 60), 0), told("b", 2, (1000, 60), 1)]), Ok((1000, 2, 0)));
    // An earlier attempt at another factor has left something behind; one of two is less than two.
    let both = [told("a", 3, (1000, 60), 0), told("a", 2, (2000, 30), 0), told("b", 2, (2000, 30), 1)];
    assert_eq!(taken_over(&both), Ok((2000, 2, 0)));
    // A site that lies: beyond the range, as long as at another factor, with less than at its own.
    let honest = [told("a", 2, (2000, 30), 0)];
    let mut little = told("b", 9, (2000, 30), 1);
    little.1.grants[0].amounts.values_mut().for_each(|amount| amount.0 = 699);
    let lies = [(2001, 30), (499, 121), (2000, 60), (1000, 30)].map(|told_by| told("b", 9, told_by, 1));
    for lie in lies.into_iter().chain([little]) {
        assert_eq!(taken_over(&[std::slice::from_ref(&lie), &honest[..]].concat()), Ok((2000, 1, 1)), "{lie:?}");
        assert_eq!(taken_over(&[lie]), Err(TakeOverError::Nothing));
    }
}

#[test]
fn what_was_taken_over_is_made_whole_at_its_factor() {
    let parts = vec![told(asked(""), "a", 2, (by(2000), 30), 0)];
    let heard = LookupAnswers { parts, ..LookupAnswers::default() };
    let mut run = Run::new(asked("").take_over(&heard).unwrap(), true);
    run.negotiation.handle(at(1), Event::Check, &mut ());
    run.inspected(2, "a", Ok(booked(Some(0))));
    run.find(&["a", "b"]);
    assert_eq!(run.holds(), expected(&["b"], 2000, 30));
    run.answer("b", Purpose::Hold, held(7));
    run.answer("b", Purpose::Confirm, confirmed(7));
    assert_eq!(run.hosts(), ["a", "b"]);
    assert_eq!(run.negotiation.reserved_plan().unwrap().variant(), by(2000));
}

#[test]
fn a_plan_that_is_handed_in_names_a_factor_that_is_allowed() {
    let statement: RequestStatement = asked("").authorization.unwrap().request.open().unwrap();
    let mut run = Run::new(asked(""), false);
    run.find(&["a", "b"]);
    run.all_hold_and_confirm(&["a", "b"]);
    let made = HandedPlan::from(run.negotiation.reserved_plan().unwrap().clone());
    let said = |scale: u32| {
        let plan = HandedPlan { scale: Factor::of_thousandths(scale), ..made.clone() };
        plan.check(&statement, Time(40_000), |_, _| Default::default())
            .map(|plan| plan.variant())
            .map_err(|misfit| misfit.key)
    };
    assert_eq!(said(2000), Ok(by(2000)));
    assert_eq!(said(2001), Err("scale".to_owned()));
    assert_eq!(said(1000), Err("duration".to_owned()), "half as long as at that factor");
}
