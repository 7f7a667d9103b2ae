//! A request that another node coordinates because its user has signed for that node: who may do what with its bookings.

use std::sync::Arc;

use super::{
    settlement_tests::{answers, confirmed_with_others},
    tests::{ask, at, attempt, confirm, hold, host, id, ledger, reason},
    *,
};
use crate::{
    protocol::{AttemptStatus, RefusalReason, SiteAnswer, SiteRequest, TakeOverStep},
    trust::{Authorization, RequestStatement, testing},
};

#[test]
fn of_two_nodes_that_the_user_went_to_the_one_of_the_higher_term_acts_for_every_try() {
    let take_in = |term, node: &str, number| SiteRequest::TakeOver {
        attempt: attempt("r", number),
        authorization: word_in(term, 1, node),
        step: TakeOverStep::Prepare,
    };
    let word = |node: &str| word_of(1, node);
    let take = |node: &str, number| take_in(term_of(node), node, number);
    let mut ledger = ledger();
    for number in [1, 2] {
        ask(&mut ledger, at(0), "entry", hold(attempt("r", number), 2_000, 1_000));
        ask(&mut ledger, at(0), "entry", confirm(attempt("r", number)));
    }
    assert!(matches!(ask(&mut ledger, at(1), "f", take("f", 1)).0, SiteAnswer::Booked { .. }));
    // "g" knows only the first attempt, "d" only the second.
    let (answer, _) = ask(&mut ledger, at(2), "g", take("g", 1));
    let SiteAnswer::Booked { before, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(before, Some(id("f")), "who acted so far must hear of it");
    let (answer, _) = ask(&mut ledger, at(2), "g", take("g", 1));
    let SiteAnswer::Booked { before, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(before, Some(id("f")), "also when the first answer was lost");
    let last = Arc::new(word("g").request.clone());
    for term in [term_of("g") - 1, term_of("g")] {
        let (answer, records) = ask(&mut ledger, at(3), "d", take_in(term, "d", 2));
        assert_eq!((reason(answer), records.len()), (RefusalReason::HandedOver(last.clone()), 0));
    }
    let (answer, _) = ask(&mut ledger, at(3), "f", SiteRequest::Inspect(attempt("r", 1)));
    assert_eq!(reason(answer), RefusalReason::HandedOver(last.clone()), "with the words that show it");
    ledger.sanity_check().unwrap();
    // What is in a node's hands already it can still give back.
    assert_eq!(ledger.refusal_of_takeover(&attempt("r", 1), &id("g"), last.clone()), None);
    assert!(ledger.refusal_of_takeover(&attempt("r", 1), &id("f"), last).is_some());
}

#[test]
fn a_site_that_has_any_part_of_a_request_knows_the_later_of_two_nodes_after_a_crash_too() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 1_000));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let take = |node, number| SiteRequest::TakeOver {
        attempt: attempt("r", number),
        authorization: word_of(1, node),
        step: TakeOverStep::Prepare,
    };
    ask(&mut ledger, at(1), "g", take("g", 1));
    let on_disk = ledger.bookings().map(Booking::to_booking_record);
    let kept: Vec<BookingRecord> = on_disk.collect();
    let hosts = vec![(host("h1"), Schedule::default()), (host("h2"), Schedule::default())];
    let (site, limits) = (id("site"), LedgerLimits::default());
    let (mut ledger, misfits) = Ledger::open(site, limits, 8, testing::open_gate(), hosts, kept, at(2));
    assert_eq!(misfits, []);
    // Attempts that another node has made, or that never were: "f" comes with an earlier word than "g", "h" with a later one.
    for number in [2, 3] {
        let (answer, records) = ask(&mut ledger, at(3), "f", take("f", number));
        let later = RefusalReason::HandedOver(Arc::new(word_of(1, "g").request.clone()));
        assert_eq!((reason(answer), records.len()), (later, 0));
    }
    // It hears of all that is here of the request, until it coordinates it.
    let (answer, _) = ask(&mut ledger, at(4), "h", take("h", 3));
    let SiteAnswer::Booked { before, others, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((before, others), (Some(id("g")), vec![attempt("r", 1)]));
    for (number, seats_here) in [(1, 1), (2, 0)] {
        let (answer, _) = ask(&mut ledger, at(4), "h", take("h", number));
        let SiteAnswer::Booked { seats, others, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((seats.len(), others), (seats_here, Vec::new()));
    }
}

/// The term in which users sign for a node: a higher one for each letter from `e` on.
fn term_of(node: &str) -> u64 {
    RequestStatement::FIRST_TERM + node.bytes().next().map_or(0, |letter| u64::from(letter.saturating_sub(b'e')))
}

/// The words of a user about request `r`, for a node.
fn word_of(user: u64, node: &str) -> Arc<Authorization> {
    word_in(term_of(node), user, node)
}

fn word_in(term: u64, user: u64, node: &str) -> Arc<Authorization> {
    let asked = serde_json::from_str(r#"{"hosts":1,"duration":100,"total":{"cpu":4500}}"#).unwrap();
    Arc::new(testing::authorize_in(term, user, &id(node), &attempt("r", 1).request, &asked))
}

#[test]
fn a_takeover_leaves_the_outcome_open_until_its_node_commits() {
    let take = |step| SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word_of(1, "f"), step };
    for (steps, is_kept) in
        [(&[TakeOverStep::Prepare][..], false), (&[TakeOverStep::Prepare, TakeOverStep::Commit], true)]
    {
        let mut ledger = confirmed_with_others();
        for step in steps {
            let (answer, _) = ask(&mut ledger, at(1), "f", take(*step));
            let SiteAnswer::Booked { seats, is_settled, .. } = answer else { panic!("{answer:?}") };
            assert_eq!((seats.len(), is_settled), (1, *step == TakeOverStep::Commit));
        }
        // The new node is gone before it has reported anything. "b" never confirmed.
        answers(&mut ledger, "b", 1, AttemptStatus::Aborted);
        assert_eq!(ledger.bookings().count(), usize::from(is_kept), "{steps:?}");
    }
    let mut ledger = confirmed_with_others();
    let (answer, records) = ask(&mut ledger, at(1), "f", take(TakeOverStep::Abort));
    assert!(matches!(answer, SiteAnswer::Booked { seats, .. } if seats.is_empty()), "at once, and nothing is settled");
    assert!(matches!(records.last(), Some(Record::Remove(_))) && ledger.bookings().count() == 0);
}

#[test]
fn who_knows_the_name_of_a_request_alone_ends_no_try_of_it() {
    let mut ledger = ledger();
    let held = hold(attempt("r", 1), 2_000, 1_000);
    assert!(matches!(ask(&mut ledger, at(0), "entry", held.clone()).0, SiteAnswer::Held { .. }));
    let (_, before) =
        (ask(&mut ledger, at(0), "stranger", SiteRequest::Lookup(attempt("r", 1).request)), ledger.version());
    for number in [1, 2, u32::MAX] {
        let question = SiteRequest::Inquire(attempt("r", number));
        ask(&mut ledger, at(0), "stranger", question);
        let takeover = SiteRequest::TakeOver {
            attempt: attempt("r", number),
            authorization: word_of(2, "stranger"),
            step: TakeOverStep::Prepare,
        };
        ask(&mut ledger, at(0), "stranger", takeover);
    }
    assert_eq!(ledger.version(), before);
    assert!(matches!(ask(&mut ledger, at(0), "entry", held).0, SiteAnswer::Held { .. }), "not another user's");
    assert!(matches!(ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1))).0, SiteAnswer::Confirmed { .. }));
    ask(&mut ledger, at(0), "entry", SiteRequest::Release(attempt("r", 1)));
    let next = hold(attempt("r", 2), 2_000, 1_000);
    assert!(matches!(ask(&mut ledger, at(0), "entry", next).0, SiteAnswer::Held { .. }), "nor a question");
    // The user's own word ends an attempt that is not confirmed yet: who acts now goes by the answer.
    let takeover =
        SiteRequest::TakeOver { attempt: attempt("r", 2), authorization: word_of(1, "f"), step: TakeOverStep::Prepare };
    let (answer, _) = ask(&mut ledger, at(1), "f", takeover);
    assert!(matches!(answer, SiteAnswer::Booked { seats, .. } if seats.is_empty()));
    let (answer, _) = ask(&mut ledger, at(1), "entry", confirm(attempt("r", 2)));
    assert_eq!(reason(answer), RefusalReason::NoSuchHold);
}

#[test]
fn a_request_that_was_taken_over_is_still_used_once() {
    let mut ledger = ledger();
    let by = |node: &str, number, start| {
        let SiteRequest::Hold(mut hold) = hold(attempt("r", number), start, 1_000) else { panic!() };
        hold.authorization = word_of(1, node);
        hold.attempt.entry_point = id(node);
        SiteRequest::Hold(hold)
    };
    assert!(matches!(ask(&mut ledger, at(0), "entry", by("entry", 1, 2_000)).0, SiteAnswer::Held { .. }));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let takeover =
        SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word_of(1, "f"), step: TakeOverStep::Commit };
    assert!(matches!(ask(&mut ledger, at(1), "f", takeover).0, SiteAnswer::Booked { .. }));
    for (node, number, start) in [("f", 7, 2_000), ("f", 8, 4_000), ("entry", 2, 2_000), ("entry", 3, 4_000)] {
        let (answer, _) = ask(&mut ledger, at(2), node, by(node, number, start));
        let RefusalReason::NotAllowed(denial) = reason(answer) else { panic!("{node} {number}") };
        assert_eq!(denial.rule, crate::trust::Rule::HostCount);
    }
    let give_back =
        SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word_of(1, "f"), step: TakeOverStep::Abort };
    ask(&mut ledger, at(3), "f", give_back);
    assert!(matches!(ask(&mut ledger, at(3), "f", by("f", 9, 2_000)).0, SiteAnswer::Held { .. }));
}

#[test]
fn what_was_taken_over_is_given_back_by_the_word_that_holds_and_no_earlier_one() {
    let mut ledger = ledger();
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 1_000));
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let of = |node: &str, term| word_in(term, 1, node);
    let take =
        |word| SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word, step: TakeOverStep::Prepare };
    let give =
        |word| SiteRequest::TakeOver { attempt: attempt("r", 1), authorization: word, step: TakeOverStep::Abort };
    for (node, issued) in [("f", 2), ("g", 3), ("f", 4)] {
        assert!(matches!(ask(&mut ledger, at(1), node, take(of(node, issued))).0, SiteAnswer::Booked { .. }));
    }
    let last = RefusalReason::HandedOver(Arc::new(of("f", 4).request.clone()));
    for (node, late, expected) in [
        ("f", give(of("f", 2)), RefusalReason::NotYours),
        ("f", SiteRequest::Release(attempt("r", 1)), RefusalReason::NotYours),
        ("g", give(of("g", 3)), last.clone()),
        ("entry", SiteRequest::Release(attempt("r", 1)), last),
    ] {
        let (answer, records) = ask(&mut ledger, at(2), node, late);
        assert_eq!((reason(answer), records.len()), (expected, 0));
    }
    for _ in 0..2 {
        let (answer, _) = ask(&mut ledger, at(3), "f", give(of("f", 4)));
        assert!(matches!(answer, SiteAnswer::Booked { seats, .. } if seats.is_empty()));
    }
    assert_eq!(ledger.bookings().count(), 0);
}
