//! Whoever is revoked or denied uses no booking, which stays.

use std::collections::BTreeSet;

use super::{
    tests::{ask, at, attempt, confirm, hold, host, id},
    *,
};
use crate::{
    ids::RequestId,
    protocol::{SiteAnswer, SiteRequest},
    trust::{Authorization, Chain, Credential, Gate, OwnerPolicy, PublicKey, Role, Rule, Subject, testing},
};

/// Admin 7 of a closed grid has made invitation 8, with which user 1 has joined as `bob`.
fn invited() -> Chain {
    let of = |number: u64| Subject::Key(testing::public(number));
    let invitation = Credential { is_invitation: true, ..testing::credential(of(8), Role::User, "bob") };
    let own = testing::credential(of(1), Role::User, "bob");
    testing::member(of(7), Role::Admin, "eva")
        .with(testing::sign(&invitation, &testing::key(7)))
        .with(testing::sign(&own, &testing::key(8)))
}

fn open(bookings: Vec<BookingRecord>) -> Ledger {
    let gate = Gate::new(testing::closed(), OwnerPolicy::default());
    let hosts = vec![(host("h1"), Schedule::default())];
    Ledger::open(id("site"), LedgerLimits::default(), 7, gate, hosts, bookings, at(0)).0
}

/// A ledger with the reservation `r` of bob, and what is on disk of it.
fn reserved() -> (Ledger, Vec<BookingRecord>) {
    let mut ledger = open(Vec::new());
    let SiteRequest::Hold(mut one) = hold(attempt("r", 1), 1_000, 100) else { panic!("a hold") };
    let site = testing::member(Subject::Site(id("entry")), Role::Site, "lab");
    let signed = Authorization { user: Some(invited()), entry_point: Some(site), ..(*one.authorization).clone() };
    one.authorization = signed.into();
    let (held, _) = ask(&mut ledger, at(0), "entry", SiteRequest::Hold(one));
    assert!(matches!(held, SiteAnswer::Held { .. }), "{held:?}");
    let (_, records) = ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let records = records.iter().flat_map(|record| record.put().to_vec()).collect();
    (ledger, records)
}

fn rule(ledger: &Ledger, user: u64, request: &str) -> Option<Rule> {
    ledger.denial_of(&testing::public(user), &RequestId::new(request).unwrap()).map(|denial| denial.rule)
}

fn revoke(ledger: &Ledger, number: u64) {
    let revocation = testing::revoke(Subject::Key(testing::public(number)));
    assert_eq!(ledger.gate.lock().revoke(&revocation, Time(0)), Ok(true));
}

#[test]
fn whoever_is_revoked_in_the_line_of_a_user_ends_the_use_after_a_restart_too() {
    for number in [1, 7, 8] {
        let (ledger, kept) = reserved();
        let lineage: Vec<PublicKey> = [7, 8, 1].map(testing::public).to_vec();
        let kept_lineage = kept.iter().map(|record| record.lineage.as_deref()).collect::<Vec<_>>();
        assert_eq!(kept_lineage, [Some(&lineage)]);
        assert_eq!(rule(&ledger, 1, "r"), None);
        let again = open(kept);
        for ledger in [ledger, again] {
            revoke(&ledger, 9);
            assert_eq!(rule(&ledger, 1, "r"), None, "another key");
            revoke(&ledger, number);
            assert_eq!(rule(&ledger, 1, "r"), Some(Rule::Revoked), "key {number}");
            assert_eq!(rule(&ledger, 1, "ended"), Some(Rule::Revoked), "as another reservation of the user tells");
            assert_eq!(rule(&ledger, 2, "r"), None, "nobody else is concerned");
            assert_eq!(ledger.bookings().count(), 1, "what is reserved stays");
            ledger.sanity_check().unwrap();
        }
    }
}

#[test]
fn the_owners_lists_count_as_they_are_now() {
    let (ledger, _) = reserved();
    let names = |name: String| BTreeSet::from([name]);
    let set = |allow: Option<BTreeSet<String>>, deny: BTreeSet<String>| {
        ledger.gate.lock().set_policy(OwnerPolicy { allow, deny, ..OwnerPolicy::default() });
        (rule(&ledger, 1, "r"), rule(&ledger, 2, "r"))
    };
    let none = BTreeSet::new;
    for name in ["bob".to_owned(), testing::public(1).fingerprint(), format!("x@{}", testing::public(8).fingerprint())]
    {
        assert_eq!(set(None, names(name.clone())), (Some(Rule::OwnerDeny), None), "{name}");
        assert_eq!(set(Some(names(name)), none()), (None, None));
    }
    assert_eq!(
        set(Some(names("eve".to_owned())), none()),
        (Some(Rule::OwnerAllow), None),
        "by the key alone nobody is known"
    );
    assert_eq!(set(None, names(testing::public(2).fingerprint())), (None, Some(Rule::OwnerDeny)));
    assert_eq!(set(None, none()), (None, None));
}

#[test]
fn a_key_of_which_nothing_is_booked_is_revoked_by_itself() {
    let ledger = open(Vec::new());
    assert_eq!(rule(&ledger, 1, "r"), None);
    revoke(&ledger, 1);
    assert_eq!(rule(&ledger, 1, "r"), Some(Rule::Revoked));
}
