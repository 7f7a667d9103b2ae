//! Which roots follow each other, and what counts under which.

use proptest::prelude::*;

use crate::{
    ids::SiteId,
    time::{Span, Time},
    trust::{
        Chain, Gate, OVERLAP_MAX, OwnerPolicy, PublicKey, Revocation, Role, Roots, Rule, SUCCESSORS_MAX,
        SignedRevocation, SignedText, Subject, Successor, TrustError, key::signatures_looked_at, testing,
    },
};

const NOW: Time = Time(1_000);
const UNTIL: Time = Time(2_000);

/// The key of the number `new` follows that of `old`.
fn follows(old: u64, new: u64, until: Time) -> SignedText {
    Successor::sign(testing::GRID, (&testing::key(old), &testing::key(new)), Time(900), until).unwrap()
}

fn site(name: &str) -> SiteId {
    SiteId::new(name).unwrap()
}

/// The site of this name, with a credential that the root of this number has signed behind these statements.
fn of_site(name: &str, root: u64, statements: &[SignedText]) -> Chain {
    let credential = testing::credential(Subject::Site(site(name)), Role::Site, name);
    Chain::of_later_root(statements, testing::sign(&credential, &testing::key(root)))
}

fn gate() -> Gate {
    Gate::new(testing::closed(), OwnerPolicy::default())
}

#[test]
fn a_statement_is_signed_by_both_roots_as_it_stands() {
    let signed = follows(0, 1, UNTIL);
    let statement = Successor::open(&signed).unwrap();
    assert_eq!((statement.old, statement.new), (testing::public(0), testing::public(1)));
    assert!(signed.text.starts_with("kolo-successor/1\n{") && signed.claims_to_be::<Successor>(), "{}", signed.text);
    let by_old = |changed: &Successor| testing::sign(changed, &testing::key(0));
    let of_other = Successor { old: testing::public(2), ..statement.clone() };
    let to_itself = Successor { new: testing::public(0), ..statement.clone() };
    let too_long = Successor { until: Time(900) + Span(OVERLAP_MAX.0 + 1), ..statement.clone() };
    let backwards = Successor { until: Time(899), ..statement.clone() };
    // The old root alone can neither name a key that it has not, nor move the end.
    let not_proven = Successor { new: testing::public(2), ..statement.clone() };
    let longer = Successor { until: Time(2_001), ..statement.clone() };
    let elsewhere = Successor { grid: "other".to_owned(), ..statement.clone() };
    for (changed, expected) in [
        (of_other, "old:"),
        (to_itself, "new:"),
        (too_long, "until:"),
        (backwards, "until:"),
        (not_proven, "proof:"),
        (longer, "proof:"),
        (elsewhere, "proof:"),
    ] {
        let error = Successor::open(&by_old(&changed)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
    let by_new = testing::sign(&statement, &testing::key(1));
    assert!(matches!(Successor::open(&by_new), Err(TrustError::Malformed { .. })));
    let padded = SignedText { text: format!("{} ", signed.text), ..signed };
    assert!(matches!(Successor::open(&padded), Err(TrustError::BadSignature { .. })));
    let same = Successor::sign(testing::GRID, (&testing::key(0), &testing::key(0)), NOW, UNTIL);
    assert!(matches!(same, Err(TrustError::Malformed { .. })));
}

#[test]
fn a_credential_under_a_later_root_leads_back_to_the_first() {
    let (root, first, second) = (testing::public(0), follows(0, 1, UNTIL), follows(1, 2, Time(3_000)));
    let line = [first.clone(), second.clone()];
    for (chain, expected) in [
        (of_site("s", 0, &[]), Ok(testing::EXPIRES)),
        (of_site("s", 1, &line[..1]), Ok(testing::EXPIRES)),
        (of_site("s", 2, &line), Ok(testing::EXPIRES)),
        // What is shown tells when the root before counts no more.
        (of_site("s", 1, &line), Ok(Time(3_000))),
        (of_site("s", 1, &[]), Err("not signed by the root")),
        (of_site("s", 2, &[second.clone(), first.clone()]), Err("is not known as a root")),
        (of_site("s", 9, &line), Err("not signed by the root")),
    ] {
        let expires = chain.verify(testing::GRID, &root, NOW).map(|holder| holder.expires);
        match (expires, expected) {
            (Ok(expires), Ok(expected)) => assert_eq!(expires, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let chain = of_site("s", 2, &line);
    assert_eq!((chain.successors().len(), chain.credentials().len(), chain.root()), (2, 1, Some(&testing::public(2))));
    let mut roots = Roots::of(root);
    assert_eq!(roots.learn("other", &first).map_err(|error| error.to_string().contains("other")), Err(true));
    assert_eq!(roots.learn(testing::GRID, &second), Err(TrustError::UnknownRoot(testing::public(1))));
    assert_eq!((roots.learn(testing::GRID, &first), roots.learn(testing::GRID, &first)), (Ok(true), Ok(false)));
    let old = of_site("s", 0, &[]);
    assert_eq!(old.verify_under(testing::GRID, &roots, Time(1_999)).map(|holder| holder.expires), Ok(UNTIL));
    let late = old.verify_under(testing::GRID, &roots, UNTIL).unwrap_err();
    let mut forged = old.credentials()[0].clone();
    forged.text = forged.text.replace("\"s\"", "\"t\"");
    let forged = Chain::of_root(forged).verify_under(testing::GRID, &roots, UNTIL);
    assert!(matches!(forged, Err(TrustError::BadSignature { .. })), "made up, not old: {forged:?}");
    assert!(matches!(late, TrustError::RootFollowed { .. }) && late.to_string().contains("new invitation"), "{late}");
}

#[test]
fn roots_follow_each_other_without_a_circle_and_only_so_often() {
    let mut roots = Roots::of(testing::public(0));
    let most = SUCCESSORS_MAX as u64;
    for number in 0..most {
        assert_eq!(roots.learn(testing::GRID, &follows(number, number + 1, UNTIL)), Ok(true));
    }
    let circle = roots.learn(testing::GRID, &follows(most, 0, UNTIL));
    assert!(matches!(circle, Err(TrustError::Malformed { .. })), "{circle:?}");
    let before = roots.clone();
    assert_eq!(roots.learn(testing::GRID, &follows(most, 99, UNTIL)), Err(TrustError::TooManyRoots));
    assert_eq!((roots.newest(), &roots), (&testing::public(most), &before));
    let statements: Vec<SignedText> = roots.statements().cloned().collect();
    assert!(of_site("s", most, &statements).verify(testing::GRID, &testing::public(0), NOW).is_ok());
    let too_many = [statements.clone(), statements].concat();
    let shown = of_site("s", most, &too_many).verify(testing::GRID, &testing::public(0), NOW);
    assert_eq!(shown.map(drop), Err(TrustError::TooManyRoots));
}

#[test]
fn a_gate_learns_from_what_it_is_shown_and_ends_the_old_root_in_time() {
    let mut gate = gate();
    let (old, new) = (of_site("old", 0, &[]), of_site("new", 1, &[follows(0, 1, UNTIL)]));
    let mut check = |name: &str, chain: &Chain, now: Time| {
        let checked = gate.check_member(&site(name), Some(chain), now);
        (checked.map_err(|denial| denial.rule), gate.roots().map(|roots| *roots.newest()))
    };
    assert_eq!(check("old", &old, NOW), (Ok(()), Some(testing::public(0))));
    assert_eq!(check("new", &new, NOW), (Ok(()), Some(testing::public(1))));
    assert_eq!(check("old", &old, Time(1_999)).0, Ok(()));
    assert_eq!(check("old", &old, UNTIL).0, Err(Rule::Expired), "it was checked before");
    assert_eq!(check("new", &new, UNTIL).0, Ok(()));
    // Whoever has stolen the old key comes too late, whatever the end that he names.
    for until in [Time(1_500), Time(9_000)] {
        let stolen = of_site("thief", 7, &[follows(0, 7, until)]);
        assert_eq!(check("thief", &stolen, NOW), (Err(Rule::Revoked), Some(testing::public(1))));
    }
    assert_eq!(gate.roots().and_then(Roots::rival), Some(&testing::public(7)));
    assert_eq!(testing::open_gate().succeed(&follows(0, 1, UNTIL)), Err(TrustError::OpenGrid));
}

#[test]
fn statements_about_roots_are_checked_once_however_often_they_are_shown() {
    let (mut gate, most) = (gate(), SUCCESSORS_MAX as u64);
    let statements: Vec<SignedText> = (0..most).map(|old| follows(old, old + 1, UNTIL)).collect();
    let mut looks = |name: &str| {
        let (chain, before) = (of_site(name, most, &statements), signatures_looked_at());
        assert!(gate.check_member(&site(name), Some(&chain), NOW).is_ok(), "{name}");
        signatures_looked_at() - before
    };
    assert_eq!((looks("first"), looks("next")), (2 * SUCCESSORS_MAX + 1, 1));
    let eva = testing::credential(Subject::Key(testing::public(20)), Role::Admin, "eva");
    let issuer = Some(Chain::of_later_root(&statements, testing::sign(&eva, &testing::key(most))));
    let (grid, subject) = (testing::GRID.to_owned(), Subject::Key(testing::public(30)));
    let text = Revocation { grid, subject, revoked: NOW, keep_until: Time(9_000) };
    let by_eva = SignedRevocation { statement: testing::sign(&text, &testing::key(20)), issuer };
    let before = signatures_looked_at();
    assert_eq!(gate.revoke(&by_eva, NOW), Ok(true));
    assert_eq!(signatures_looked_at() - before, 2, "the revocation and the admin's credential");
}

#[test]
fn a_refused_statement_is_kept_with_the_line_that_it_leads_to() {
    let mut roots = Roots::of(testing::public(0));
    for known in [follows(0, 1, UNTIL), follows(1, 2, UNTIL)] {
        assert_eq!(roots.learn(testing::GRID, &known), Ok(true));
    }
    assert_eq!((roots.rival(), roots.refused(), roots.by_rival()), (None, None, None));
    let (digest, rival) = (roots.digest(), follows(1, 7, UNTIL));
    assert!(matches!(roots.learn(testing::GRID, &rival), Err(TrustError::Rival { .. })));
    assert_eq!((roots.rival(), roots.refused()), (Some(&testing::public(7)), Some(&rival)));
    let by_rival: Vec<PublicKey> = roots.by_rival().unwrap().all().copied().collect();
    assert_eq!(by_rival, [0, 1, 7].map(testing::public));
    assert_eq!((roots.newest(), roots.digest()), (&testing::public(2), digest), "it changes nothing here");
}

#[test]
fn a_root_ends_at_the_latest_with_the_one_that_follows_it() {
    let mut gate = gate();
    let old = of_site("old", 0, &[]);
    assert_eq!(gate.succeed(&follows(0, 1, Time(9_000))), Ok(true));
    assert!(gate.check_member(&site("old"), Some(&old), Time(8_999)).is_ok());
    // The founder rotates again, as somebody else has the first key.
    assert_eq!(gate.succeed(&follows(1, 2, Time(3_000))), Ok(true));
    assert!(gate.check_member(&site("old"), Some(&old), Time(2_999)).is_ok());
    let late = gate.check_member(&site("old"), Some(&old), Time(3_000)).map_err(|denial| denial.rule);
    assert_eq!(late, Err(Rule::Expired));
    // The end of the last overlap is moved forward, and with it that of the first root.
    assert_eq!(gate.succeed(&follows(1, 2, UNTIL)), Ok(true));
    let until = |number: u64| gate.roots().and_then(|roots| roots.until(&testing::public(number)));
    assert_eq!([0, 1, 2].map(until), [Some(UNTIL), Some(UNTIL), Some(Time::MAX)]);
}

#[test]
fn revocations_lapse_with_the_root_that_they_lead_to() {
    let revoked = |by: u64, of: u64| {
        let subject = Subject::Key(testing::public(of));
        let text = Revocation { grid: testing::GRID.to_owned(), subject, revoked: Time(900), keep_until: Time(9_000) };
        SignedRevocation { statement: testing::sign(&text, &testing::key(by)), issuer: None }
    };
    let by_admin = SignedRevocation {
        issuer: Some(testing::member(Subject::Key(testing::public(20)), Role::Admin, "eva")),
        ..revoked(20, 31)
    };
    let successor = follows(0, 1, UNTIL);
    let (mut early, mut late) = (gate(), gate());
    for gate in [&mut early, &mut late] {
        assert!(matches!(gate.revoke(&revoked(1, 32), NOW), Err(TrustError::NotAnAdmin(_))), "it is no root yet");
    }
    assert_eq!(early.succeed(&successor), Ok(true));
    for gate in [&mut early, &mut late] {
        assert_eq!((gate.revoke(&revoked(0, 30), NOW), gate.revoke(&by_admin, NOW)), (Ok(true), Ok(true)));
    }
    assert_eq!(late.succeed(&successor), Ok(true));
    assert_eq!(early.revocations().digest(), late.revocations().digest());
    for gate in [&mut early, &mut late] {
        assert_eq!(gate.revoke(&revoked(1, 32), NOW), Ok(true));
        let is_revoked = |gate: &Gate, of: u64| gate.revocations().is_revoked(&Subject::Key(testing::public(of)));
        gate.prune(Time(1_999));
        assert_eq!([30, 31, 32].map(|of| is_revoked(gate, of)), [true, true, true]);
        gate.prune(UNTIL);
        assert_eq!([30, 31, 32].map(|of| is_revoked(gate, of)), [false, false, true]);
        assert_eq!(gate.revoke(&revoked(0, 33), UNTIL), Err(TrustError::Lapsed));
    }
}

/// The rules one by one: of each root before the last, which follows it and until when it counts.
fn line_of(heard: &[(u64, u64, i64)]) -> Vec<(u64, i64)> {
    let mut line: Vec<(u64, i64)> = Vec::new();
    for &(old, new, until) in heard {
        let roots: Vec<u64> = std::iter::once(0).chain(line.iter().map(|step| step.0)).collect();
        let Some(at) = roots.iter().position(|root| *root == old) else { continue };
        match line.get_mut(at) {
            Some(step) if step.0 == new => step.1 = step.1.min(until),
            Some(_) => {}
            None if roots.contains(&new) => {}
            None => line.push((new, until)),
        }
    }
    line
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_first_successor_counts_and_its_earliest_end(
        heard in prop::collection::vec((0..5_u64, 0..5_u64, 1_000..1_003_i64), 0..12)
    ) {
        let heard: Vec<_> = heard.into_iter().filter(|(old, new, _)| old != new).collect();
        let mut roots = Roots::of(testing::public(0));
        for (old, new, until) in &heard {
            let before = roots.clone();
            let learnt = roots.learn(testing::GRID, &follows(*old, *new, Time(*until)));
            if learnt != Ok(true) {
                prop_assert!(roots.all().eq(before.all()) && roots.digest() == before.digest(), "{:?}", learnt);
            }
        }
        let line = line_of(&heard);
        let expected: Vec<PublicKey> =
            std::iter::once(0).chain(line.iter().map(|step| step.0)).map(testing::public).collect();
        prop_assert_eq!(roots.all().copied().collect::<Vec<_>>(), &expected[..]);
        for (at, root) in expected.iter().enumerate() {
            let ends = line[at..].iter().map(|step| Time(step.1));
            prop_assert_eq!(roots.until(root), Some(ends.min().unwrap_or(Time::MAX)));
        }
        // What a site tells in its order is all that another one needs.
        let mut other = Roots::of(testing::public(0));
        for statement in roots.statements() {
            prop_assert_eq!(other.learn(testing::GRID, statement), Ok(true));
        }
        prop_assert_eq!(other.digest(), roots.digest());
    }
}
