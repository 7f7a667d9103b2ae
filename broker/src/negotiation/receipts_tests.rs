//! What a coordinator makes of receipts: of right ones, of wrong ones, and of none.

use super::{
    guard_tests::every_seat,
    ownership_tests::{heard, told},
    testing::{Run, at, booking, record, site, version},
    *,
};
use crate::{
    cost::Cost,
    ids::{HostId, RequestId, SeatNumber},
    plan::Place,
    protocol::{Grant, SiteAnswer},
    receipt::Receipt,
    time::Time,
    trust::{PublicKey, testing},
};

/// The number of the key of a site: its first letter.
fn number_of(site: &SiteId) -> u64 {
    u64::from(site.as_str().as_bytes()[0])
}

fn key_of(site: &SiteId) -> Option<PublicKey> {
    Some(testing::public(number_of(site)))
}

fn checking(mut run: Run) -> Run {
    run.negotiation.check_receipts(testing::GRID.to_owned(), key_of);
    run
}

/// What a site should sign for its seats of a plan.
fn right(run: &Run, plan: &Plan, from: &str, attempt: u32) -> Receipt {
    let grants: Vec<Grant> = plan.seats.iter().filter(|seat| seat.site == site(from)).map(Grant::from).collect();
    let name = run.negotiation.attempt_id(attempt);
    Receipt::of((testing::GRID, &site(from)), &name, testing::public(1), &grants, Time(5_001))
}

fn planned(run: &Run) -> Plan {
    match &run.negotiation.record().decision {
        Decision::Commit { plan, .. } | Decision::Reserved { plan, .. } => plan.clone(),
        other => panic!("{other:?}"),
    }
}

fn confirmed(incarnation: u64, receipt: Option<&Receipt>, signer: &str) -> SiteAnswer {
    let receipt = receipt.map(|receipt| testing::sign(receipt, &testing::key(number_of(&site(signer)))).into());
    SiteAnswer::Confirmed { places: Vec::new(), version: version(incarnation), receipt }
}

/// What is changed, and which site signs it.
type Lie = (fn(&mut Receipt), &'static str);

/// Ways to say something else than what was asked for, or to have another sign it.
fn lies() -> Vec<Lie> {
    vec![
        (|receipt| receipt.seats[0].cost = Cost(1), "a"),
        (|receipt| receipt.seats[0].places[0].1 = Place::Host(HostId::new("other").unwrap()), "a"),
        (|receipt| receipt.seats[0].places[0].0 = SeatNumber(9), "a"),
        (|receipt| receipt.seats[0].end = Time(1), "a"),
        (|receipt| receipt.seats.clear(), "a"),
        (|receipt| receipt.user = testing::public(2), "a"),
        (|receipt| receipt.request = RequestId::new("another").unwrap(), "a"),
        (|receipt| receipt.attempt += 1, "a"),
        (|receipt| receipt.grid = "another".to_owned(), "a"),
        (|receipt| receipt.site = site("b"), "b"),
        (|_| (), "b"),
    ]
}

#[test]
fn a_reservation_is_reported_with_the_receipts_of_all_its_sites_on_disk() {
    let mut run = checking(Run::confirming());
    let plan = planned(&run);
    for (from, incarnation) in [("a", 7), ("b", 8)] {
        assert!(!matches!(run.negotiation.stage(), Stage::Reserved(_)));
        let receipt = right(&run, &plan, from, 1);
        run.answer(from, Purpose::Confirm, confirmed(incarnation, Some(&receipt), from));
    }
    let Some(Output::Persist(written)) = run.outputs.first() else { panic!("{:?}", run.outputs) };
    assert!(matches!(written.decision, Decision::Reserved { .. }));
    for (kept, from) in written.receipts.iter().zip(["a", "b"]) {
        assert_eq!((kept.attempt, &kept.site), (1, &site(from)));
        assert_eq!(Receipt::open(&kept.receipt, key_of), Ok(right(&run, &plan, from, 1)));
    }
    assert_eq!(written.receipts.len(), 2);
}

#[test]
fn the_receipt_of_what_was_given_back_for_nothing_is_dropped() {
    let mut run = checking(Run::confirming());
    let plan = planned(&run);
    for (from, incarnation) in [("a", 7), ("b", 8)] {
        let receipt = right(&run, &plan, from, 1);
        run.answer(from, Purpose::Confirm, confirmed(incarnation, Some(&receipt), from));
    }
    run.cancel();
    let released = |charged| SiteAnswer::Released { version: version(7), charged: Cost(charged) };
    run.answer("a", Purpose::Release, released(0));
    run.answer("b", Purpose::Release, released(3));
    let Some(Output::Persist(written)) = run.outputs.first() else { panic!("{:?}", run.outputs) };
    let kept: Vec<&SiteId> = written.receipts.iter().map(|kept| &kept.site).collect();
    assert_eq!(kept, [&site("b")], "what is to be paid is to be proven");
}

#[test]
fn a_confirmation_with_a_wrong_receipt_or_none_is_asked_for_again_and_never_a_success() {
    let plan_of = |run: &Run| planned(run);
    let mut wrong: Vec<Option<Lie>> = lies().into_iter().map(Some).collect();
    wrong.push(None);
    for (at_case, lie) in wrong.into_iter().enumerate() {
        let mut run = checking(Run::confirming());
        let plan = plan_of(&run);
        let of_b = right(&run, &plan, "b", 1);
        run.answer("b", Purpose::Confirm, confirmed(8, Some(&of_b), "b"));
        let mut of_a = right(&run, &plan, "a", 1);
        let answer = match lie {
            Some((change, signer)) => {
                change(&mut of_a);
                confirmed(7, Some(&of_a), signer)
            }
            None => confirmed(7, None, "a"),
        };
        run.answer("a", Purpose::Confirm, answer);
        assert!(matches!(run.negotiation.stage(), Stage::Confirming(_)), "case {at_case}");
        assert_eq!(run.negotiation.record().receipts.len(), 1, "case {at_case}: that of b");
        run.time_passes_to(20 + 250);
        assert_eq!(run.wanted(), ["Confirm 1 a held in 7"], "case {at_case}");
        run.time_passes_to(20 + 10_000);
        assert_eq!(run.wanted()[..2], ["write open, owed 2", "Release 1 a"], "case {at_case}: given up in the end");
        assert!(run.negotiation.record().receipts.is_empty(), "case {at_case}: nothing was reserved");
    }
}

#[test]
fn a_site_that_books_at_once_without_a_right_receipt_is_told_that_it_has_not_and_left_out() {
    for (change, signer) in lies() {
        let mut run = checking(booking());
        let mut receipt = right(&run, &planned(&run), "a", 1);
        change(&mut receipt);
        run.answer("a", Purpose::Confirm, confirmed(0, Some(&receipt), signer));
        assert_eq!(run.wanted()[..2], ["write open, owed 1", "Release 1 a"]);
        assert!(run.negotiation.record().receipts.is_empty());
    }
    let mut run = checking(booking());
    let receipt = right(&run, &planned(&run), "a", 1);
    run.answer("a", Purpose::Confirm, confirmed(0, Some(&receipt), "a"));
    assert_eq!(run.wanted(), ["write reserved, owed 0", "Settle 1 a"]);
}

#[test]
fn who_takes_a_reservation_over_has_its_receipts_before_it_is_reported() {
    let parts = [told("a", "gone", 1, &["a", "b"], 750), told("b", "gone", 1, &["a", "b"], 750)];
    let mut run = checking(Run::new(record().take_over(&heard(&parts)).unwrap(), true));
    let answer = |run: &Run, from: &str, is_settled, change: fn(&mut Receipt)| {
        let plan = planned(run);
        let (attempt, _) = run.negotiation.bookings()[0];
        let mut receipt = right(run, &plan, from, attempt);
        change(&mut receipt);
        let seats = every_seat().into_iter().filter(|number| plan.seat(*number).unwrap().site == site(from)).collect();
        let receipt = Some(testing::sign(&receipt, &testing::key(number_of(&site(from)))).into());
        let (before, others, charged) = (None, Vec::new(), Cost::ZERO);
        Ok(SiteAnswer::Booked {
            seats,
            places: Vec::new(),
            is_settled,
            before,
            others,
            charged,
            version: version(1),
            receipt,
            wait: Default::default(),
        })
    };
    run.negotiation.handle(at(1), Event::Check, &mut ());
    run.drain();
    run.inspected(2, "a", answer(&run, "a", false, |_| ()));
    let wrong = answer(&run, "b", false, |receipt| receipt.seats[0].cost = Cost(1));
    run.inspected(2, "b", wrong);
    assert!(!run.negotiation.record().commits_takeover, "b counts as one that does not answer");
    assert_eq!(run.negotiation.record().receipts.len(), 1);
    run.negotiation.handle(at(3), Event::Check, &mut ());
    run.drain();
    for is_settled in [false, true] {
        for from in ["a", "b"] {
            assert!(!matches!(run.negotiation.stage(), Stage::Reserved(_)));
            run.inspected(4, from, answer(&run, from, is_settled, |_| ()));
        }
    }
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)));
    let Some(Output::Persist(written)) = run.outputs.first() else { panic!("{:?}", run.outputs) };
    assert_eq!(written.receipts.len(), 2);
}
