//! Who is out, whatever the order in which it was heard.

use proptest::prelude::*;

use crate::{
    time::Time,
    trust::{
        Chain, Credential, Revocation, Revocations, Role, Roots, SignedRevocation, Subject, TrustError,
        revocation::REVOCATIONS_MAX, testing,
    },
};

const NOW: Time = Time(1_000);

fn key(number: u64) -> Subject {
    Subject::Key(testing::public(number))
}

fn admin(number: u64, expires: i64) -> Chain {
    let credential = Credential { expires: Time(expires), ..testing::credential(key(number), Role::Admin, "eva") };
    Chain::of_root(testing::sign(&credential, &testing::key(0)))
}

/// `by` 0 is the root, else an admin's key.
fn revocation(by: u64, of: u64, keep_until: i64) -> SignedRevocation {
    let revocation = Revocation {
        grid: testing::GRID.to_owned(),
        subject: key(of),
        revoked: Time(900),
        keep_until: Time(keep_until),
    };
    let statement = testing::sign(&revocation, &testing::key(by));
    SignedRevocation { statement, issuer: (by > 0).then(|| admin(by, 5_000)) }
}

fn add(set: &mut Revocations, revocation: &SignedRevocation) -> Result<bool, TrustError> {
    set.add(testing::GRID, &Roots::of(testing::public(0)), revocation, NOW)
}

#[test]
fn only_the_root_and_admins_revoke() {
    let mut set = Revocations::default();
    let good = revocation(0, 5, 9_000);
    assert_eq!((add(&mut set, &good), add(&mut set, &good)), (Ok(true), Ok(false)));
    assert!(set.is_revoked(&key(5)) && !set.is_revoked(&key(6)));
    let nobody = SignedRevocation { issuer: None, ..revocation(2, 6, 9_000) };
    assert!(matches!(add(&mut set, &nobody), Err(TrustError::NotAnAdmin(_))));
    let borrowed = SignedRevocation { issuer: Some(admin(3, 5_000)), ..revocation(2, 6, 9_000) };
    assert!(matches!(add(&mut set, &borrowed), Err(TrustError::NotAnAdmin(_))));
    let user = SignedRevocation { issuer: Some(testing::member(key(2), Role::User, "u")), ..revocation(2, 6, 9_000) };
    assert!(matches!(add(&mut set, &user), Err(TrustError::NotAnAdmin(_))));
    let late = SignedRevocation { issuer: Some(admin(2, 999)), ..revocation(2, 6, 9_000) };
    assert!(matches!(add(&mut set, &late), Err(TrustError::Expired { .. })));
    let mut changed = revocation(0, 6, 9_000);
    changed.statement.text = changed.statement.text.replace("9000", "9001");
    assert!(matches!(add(&mut set, &changed), Err(TrustError::BadSignature { .. })));
    assert_eq!(add(&mut set, &revocation(0, 6, 1_000)), Err(TrustError::Lapsed));
    let foreign = set.add("other", &Roots::of(testing::public(0)), &good, NOW);
    assert!(matches!(foreign, Err(TrustError::WrongGrid { .. })));
    assert_eq!(set.len(), 1);
}

#[test]
fn an_admins_revocation_ends_with_the_admin_and_all_end_some_time() {
    let mut set = Revocations::default();
    add(&mut set, &revocation(2, 6, 9_000)).unwrap();
    add(&mut set, &revocation(0, 7, 9_000)).unwrap();
    set.prune(Time(4_999));
    assert_eq!(set.len(), 2);
    set.prune(Time(5_000));
    assert!(!set.is_revoked(&key(6)) && set.is_revoked(&key(7)));
    set.prune(Time(9_000));
    assert!(set.is_empty() && set.digest() == Revocations::default().digest());
}

#[test]
fn at_the_bound_what_lapses_first_makes_room() {
    let mut set = Revocations::default();
    let template = revocation(0, 5, 9_000);
    for (number, lapses) in (0_u64..).zip(2_000..).take(REVOCATIONS_MAX + 10) {
        set.fill(testing::public(number), &template, Time(lapses));
    }
    assert_eq!(set.len(), REVOCATIONS_MAX);
    assert!(!set.is_revoked(&key(9)) && set.is_revoked(&key(10)));
    assert_eq!(set.all().count(), REVOCATIONS_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Two nodes hear the same revocations, by the root and by admins 1 to 3, of each other and of users, in two orders.
    #[test]
    fn the_order_does_not_matter(
        heard in prop::collection::vec((0..4_u64, 1..8_u64, 2_000..2_003_i64), 1..14),
        keys in prop::collection::vec(any::<u32>(), 14),
    ) {
        let signed: Vec<_> = heard.iter().map(|(by, of, until)| revocation(*by, *of, *until)).collect();
        let mut shuffled: Vec<usize> = (0..signed.len()).collect();
        shuffled.sort_by_key(|at| keys[*at]);
        let (mut one, mut other) = (Revocations::default(), Revocations::default());
        for at in 0..signed.len() {
            // That the root has revoked the admin is an answer like any other.
            let _ = add(&mut one, &signed[at]);
            let _ = add(&mut other, &signed[shuffled[at]]);
        }
        prop_assert_eq!(one.digest(), other.digest());
        prop_assert_eq!(one.all().collect::<Vec<_>>(), other.all().collect::<Vec<_>>());
        let by_root = |of: u64| heard.iter().any(|(by, whom, _)| (*by, *whom) == (0, of));
        for of in 1..8 {
            let is_out = by_root(of) || heard.iter().any(|(by, whom, _)| *whom == of && *by > 0 && !by_root(*by));
            prop_assert_eq!(one.is_revoked(&key(of)), is_out, "key {}", of);
        }
    }
}
