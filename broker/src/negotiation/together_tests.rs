//! A request that is tied to the others of its batch: what waits for them, and what their end does to it.

use super::{
    testing::{Run, at, confirmed, handed_in, held, refused, site},
    *,
};
use crate::{
    ids::RequestId,
    protocol::{AttemptStatus, RefusalReason},
};

fn tied() -> RequestRecord {
    RequestRecord { together: RequestId::new("batch").ok(), ..handed_in() }
}

/// Both of its sites hold.
fn all_held(is_resumed: bool) -> Run {
    let mut run = Run::new(tied(), is_resumed);
    run.answer("a", Purpose::Hold, held(7));
    assert_eq!(run.negotiation.member(), Some(Member::UnderWay));
    run.answer("b", Purpose::Hold, held(8));
    run
}

fn feed(run: &mut Run, event: Event) {
    run.negotiation.handle(at(25), event, &mut ());
    run.drain();
}

fn reserved() -> Run {
    let mut run = all_held(false);
    feed(&mut run, Event::AllHeld);
    run.answer("a", Purpose::Confirm, confirmed(7));
    run.answer("b", Purpose::Confirm, confirmed(8));
    run
}

fn fail(run: &mut Run) {
    feed(run, Event::BatchFailed("x has ended".to_owned()));
    let closed =
        matches!(run.negotiation.stage(), Stage::Closed { outcome: Outcome::Failed(Failure::Batch { .. }), .. });
    assert!(closed && run.negotiation.member() == Some(Member::Ended), "{:?}", run.negotiation.stage());
}

#[test]
fn it_is_confirmed_when_all_are_held_and_reported_when_all_are_reserved() {
    for is_resumed in [false, true] {
        let mut run = all_held(is_resumed);
        assert!(run.wanted().is_empty() && run.negotiation.member() == Some(Member::Held), "{:?}", run.wanted());
        let attempt = run.negotiation.record().last_attempt;
        feed(&mut run, Event::AllHeld);
        let confirms = ["a held in 7", "b held in 8"].map(|site| format!("Confirm {attempt} {site}"));
        assert_eq!(run.wanted(), [&["write commit, owed 0".to_owned()], &confirms[..]].concat());
        feed(&mut run, Event::AllHeld);
        assert!(run.wanted().is_empty() && run.negotiation.member() == Some(Member::Confirming));
    }
    let mut run = reserved();
    assert_eq!(run.wanted(), ["write reserved, owed 0"], "its sites do not hear of it either");
    assert!(run.negotiation.member() == Some(Member::Reserved));
    let status = |run: &Run| {
        let attempt = run.negotiation.attempt_id(1);
        run.negotiation.record().status_of(&site("e"), &attempt, &site("a"))
    };
    assert_eq!((status(&run), run.negotiation.poll_timeout()), (AttemptStatus::Pending, None));
    let after_a_crash = Run::new(run.negotiation.record().clone(), true);
    assert!(after_a_crash.wanted().is_empty() && after_a_crash.negotiation.poll_timeout().is_none());
    assert!(matches!(run.negotiation.stage(), Stage::Confirming(_)), "it is not reported: another may yet end");
    feed(&mut run, Event::BatchReserved);
    assert_eq!(run.wanted(), ["write reserved, owed 0", "Settle 1 a", "Settle 1 b"]);
    assert_eq!(status(&run), AttemptStatus::Confirmed);
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)) && run.negotiation.member().is_none());
    feed(&mut run, Event::BatchFailed("late".to_owned()));
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)), "it is tied no longer");
}

#[test]
fn with_its_batch_it_ends_wherever_it_is() {
    let mut run = all_held(false);
    fail(&mut run);
    assert_eq!(run.wanted(), ["write closed, owed 2", "Release 1 a", "Release 1 b"]);
    feed(&mut run, Event::AllHeld);
    assert!(run.wanted().is_empty());

    let mut run = reserved();
    fail(&mut run);
    // No site knows that it was reserved, so giving it back costs nothing.
    assert_eq!(run.wanted(), ["write closed, owed 2", "Release 1 a", "Release 1 b"]);
    let after_a_crash = Run::new(run.negotiation.record().clone(), true);
    assert!(
        after_a_crash.wanted().iter().all(|wanted| wanted.starts_with("Release 1")),
        "{:?}",
        after_a_crash.wanted()
    );
    assert_eq!(after_a_crash.wanted().len(), 2);
}

#[test]
fn it_has_one_attempt_and_waits_for_the_others_half_of_its_hold() {
    let mut run = Run::new(tied(), false);
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, refused(RefusalReason::Busy));
    assert_eq!(run.negotiation.member(), Some(Member::Ended));

    let mut run = all_held(false);
    assert_eq!(run.negotiation.poll_timeout(), Some(Millis(5_000)));
    run.time_passes_to(5_000);
    assert_eq!(run.wanted(), ["write closed, owed 2", "Release 1 a", "Release 1 b"]);
    assert_eq!(run.negotiation.member(), Some(Member::Ended));
}
