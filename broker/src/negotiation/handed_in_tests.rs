//! A plan that was handed in: it is reserved as it is, or tried before others.

use super::{testing::*, *};
use crate::{
    cost::Cost,
    protocol::{Refusal, RefusalReason, SiteAnswer},
    reason::Reason,
    request::Request,
    time::{Time, Window},
};

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
    run.answer("b", Purpose::Hold, refused(RefusalReason::TooFarAhead(9)));
    let again = Run::new(run.negotiation.record().clone(), true);
    assert!(matches!(again.negotiation.stage(), Stage::Planning), "{:?}", again.negotiation.stage());
}
