//! The receipts that a site gives.

use std::sync::Arc;

use super::{
    receipts::SEATS_THAT_FIT,
    tests::{ask, at, attempt, confirm, hold, hold_work, host, id, ledger},
    *,
};
use crate::{
    amount::Amount,
    ids::SeatNumber,
    protocol::{Grant, SiteAnswer, SiteRequest, TakeOverStep},
    receipt::Receipt,
    resources::ResourceName,
    trust::{RequestStatement, SignedText, testing},
};

fn key_of(site: &SiteId) -> Option<PublicKey> {
    (site.as_str() == "site").then(|| testing::public(7))
}

fn receipt_in(answer: SiteAnswer) -> Arc<SignedText> {
    match answer {
        SiteAnswer::Confirmed { receipt: Some(receipt), .. } | SiteAnswer::Booked { receipt: Some(receipt), .. } => {
            receipt
        }
        other => panic!("{other:?}"),
    }
}

/// User 1 wants `node` to coordinate request `r`.
fn take_over(node: &str, step: TakeOverStep) -> SiteRequest {
    let asked = serde_json::from_str(r#"{"hosts":1,"duration":100,"total":{"cpu":4500}}"#).unwrap();
    let (term, name) = (RequestStatement::FIRST_TERM + 1, attempt("r", 1));
    let authorization = testing::authorize_in(term, 1, &id(node), &name.request, &asked);
    SiteRequest::TakeOver { attempt: name, authorization: authorization.into(), step }
}

#[test]
fn a_site_signs_what_it_has_on_disk_and_signs_the_same_again_whoever_asks() {
    let mut ledger = ledger();
    ledger.sign_receipts(Arc::new(testing::key(7)));
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 1_000));
    let (answer, records) = ask(&mut ledger, at(4_000), "entry", confirm(attempt("r", 1)));
    let [Record::Put(kept)] = records.as_slice() else { panic!("{records:?}") };
    let first = receipt_in(answer);
    let (grid, user) = (testing::GRID, testing::public(1));
    let expected = Receipt::of((grid, &id("site")), &attempt("r", 1), user, &kept.grants, at(4_000).utc);
    assert_eq!(Receipt::open(&first, key_of), Ok(expected));
    assert_eq!(kept.statement.as_ref().map(|signed| signed.author), Some(user), "beside what the user has signed");
    assert_eq!(receipt_in(ask(&mut ledger, at(6_000), "entry", confirm(attempt("r", 1))).0), first);
    ask(&mut ledger, at(6_000), "entry", SiteRequest::Settle(attempt("r", 1)));

    let hosts = vec![(host("h1"), Schedule::default()), (host("h2"), Schedule::default())];
    let limits = LedgerLimits::default();
    let (mut again, _) =
        Ledger::open(id("site"), limits, 8, testing::open_gate(), hosts, vec![kept.clone()], at(9_000));
    again.sign_receipts(Arc::new(testing::key(7)));
    assert_eq!(receipt_in(ask(&mut again, at(9_000), "entry", confirm(attempt("r", 1))).0), first);
    for step in [TakeOverStep::Prepare, TakeOverStep::Commit] {
        assert_eq!(receipt_in(ask(&mut again, at(9_000), "f", take_over("f", step)).0), first);
    }
}

#[test]
fn a_receipt_still_names_what_the_site_has_lost_since() {
    let mut ledger = ledger();
    ledger.sign_receipts(Arc::new(testing::key(7)));
    ask(&mut ledger, at(0), "entry", hold_work(attempt("r", 1), 2_000, 1_000));
    let (answer, records) = ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let [Record::Put(kept)] = records.as_slice() else { panic!("{records:?}") };
    let mut kept = kept.clone();
    // The owner takes away one host, then the other.
    for (hosts, left) in [(vec![host("h1")], 1), (vec![], 0)] {
        let hosts = hosts.into_iter().map(|host| (host, Schedule::default())).collect();
        let limits = LedgerLimits::default();
        let (mut again, _) = Ledger::open(id("site"), limits, 8, testing::open_gate(), hosts, vec![kept], at(0));
        again.sign_receipts(Arc::new(testing::key(7)));
        let Some(Output::Persist(Record::Put(reduced))) = again.poll_output() else { panic!("nothing is written") };
        assert_eq!((reduced.grants.len(), reduced.lost.len()), (left, 2 - left));
        assert_eq!(receipt_in(ask(&mut again, at(0), "entry", confirm(attempt("r", 1))).0), receipt_in(answer.clone()));
        kept = reduced;
    }
}

#[test]
fn seats_whose_receipt_would_be_too_long_are_told_so_when_they_are_to_be_held() {
    let mut ledger = ledger();
    let SiteRequest::Hold(hold) = hold(attempt("r", 1), 2_000, 1_000) else { panic!() };
    let long = |at: u64| (ResourceName::new(&format!("x{at}{}", "x".repeat(20))).unwrap(), Amount(at));
    let seat = |number: u32| Grant {
        seat: SeatNumber(number),
        amounts: (0..30).map(|at| long(at + u64::from(number))).collect(),
        ..hold.grants[0].clone()
    };
    let unlike: Vec<Grant> = (0..1_000).map(seat).collect();
    let alike: Vec<Grant> = (0..1_000).map(|number| Grant { seat: SeatNumber(number), ..seat(0) }).collect();
    let user = testing::public(1);
    assert_eq!(ledger.check_receipt(&hold.attempt, user, &unlike), Ok(()), "a site that signs nothing");
    ledger.sign_receipts(Arc::new(testing::key(7)));
    let refused = ledger.check_receipt(&hold.attempt, user, &unlike).unwrap_err();
    assert!(refused.contains("1000 seats") && refused.contains("too long"), "{refused}");
    assert_eq!(ledger.check_receipt(&hold.attempt, user, &alike), Ok(()));
    assert_eq!(ledger.check_receipt(&hold.attempt, user, &unlike[..SEATS_THAT_FIT]), Ok(()));
}

#[test]
fn a_hold_has_no_receipt_and_what_is_booked_at_once_has_one() {
    let mut ledger = ledger();
    ledger.sign_receipts(Arc::new(testing::key(7)));
    ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), 2_000, 1_000));
    let answer = ask(&mut ledger, at(0), "f", take_over("f", TakeOverStep::Prepare)).0;
    assert!(matches!(answer, SiteAnswer::Booked { receipt: None, .. }), "{answer:?}");
    let SiteRequest::Hold(mut hold) = hold(attempt("q", 1), 2_000, 1_000) else { panic!() };
    hold.participants = vec![id("site")];
    let book = SiteRequest::Book { hold, incarnation: 7 };
    let first = receipt_in(ask(&mut ledger, at(0), "entry", book.clone()).0);
    assert_eq!(Receipt::open(&first, key_of).unwrap().request, attempt("q", 1).request);
    assert_eq!(receipt_in(ask(&mut ledger, at(2_000), "entry", book).0), first);
}
