//! Which chains lead to the root.

use proptest::prelude::*;

use crate::{
    ids::SiteId,
    time::{Span, Time},
    trust::{Chain, Credential, Limits, Role, SignedText, Subject, TrustError, chain::LINKS_MAX, testing},
};

const NOW: Time = Time(1_000);

fn user(key: u64, name: &str) -> Credential {
    testing::credential(Subject::Key(testing::public(key)), Role::User, name)
}

fn invitation(key: u64, role: Role) -> Credential {
    Credential { is_invitation: true, ..testing::credential(Subject::Key(testing::public(key)), role, "") }
}

/// A chain of links with the numbers of the keys that sign them.
fn chain(links: &[(u64, Credential)]) -> Chain {
    let sign = |(signer, credential): &(u64, Credential)| testing::sign(credential, &testing::key(*signer));
    let links: Vec<SignedText> = links.iter().map(sign).collect();
    serde_json::from_value(serde_json::to_value(links).unwrap()).unwrap()
}

fn verify(links: &[(u64, Credential)]) -> Result<crate::trust::Holder, TrustError> {
    chain(links).verify(testing::GRID, &testing::public(0), NOW)
}

#[test]
fn the_longest_way_leads_through_two_invitations() {
    let admin = testing::credential(Subject::Key(testing::public(2)), Role::Admin, "eva");
    let links = [(0, invitation(1, Role::Admin)), (1, admin), (2, invitation(3, Role::User)), (3, user(4, "ada"))];
    let holder = verify(&links).unwrap();
    let chosen = format!("ada@{}", testing::public(3).fingerprint());
    assert_eq!((&holder.name, holder.role, holder.lineage.len()), (&chosen, Role::User, 4));
    let named = Credential { name: "ada".to_owned(), ..invitation(1, Role::User) };
    assert!(
        verify(&[(0, named), (1, user(4, "ada"))]).is_ok_and(|holder| holder.name == "ada"),
        "an admin has given it"
    );
    assert_eq!(holder.lineage[0], Subject::Key(testing::public(1)));
    assert!(verify(&links[..2]).is_ok_and(|holder| holder.role == Role::Admin));
    assert!(matches!(verify(&links[..3]), Err(TrustError::Invitation(_))));
    let token = chain(&links[..3]);
    assert!(token.verify_invitation(testing::GRID, &testing::public(0), NOW).is_ok());
    assert!(chain(&links).verify_invitation(testing::GRID, &testing::public(0), NOW).is_err());
    assert_eq!(verify(&[]), Err(TrustError::Links(0)));
    assert_eq!(chain(&links).last_author(), Some(&testing::public(3)));
}

#[test]
fn what_is_wrong_is_named() {
    let ada = || user(4, "ada");
    let admin = || testing::credential(Subject::Key(testing::public(2)), Role::Admin, "eva");
    let limited = |limits| Credential { limits, ..invitation(1, Role::User) };
    let few = Limits { max_holds: Some(3), ..Limits::default() };
    for (links, expected) in [
        (vec![(9, ada())], "not signed by the root"),
        (vec![(0, admin()), (9, ada())], "not signed by the holder"),
        (vec![(0, Credential { grid: "other".to_owned(), ..ada() })], "is of grid other"),
        (vec![(0, Credential { expires: NOW, ..ada() })], "expired at 1970-01-01 00:16:40 UTC"),
        (vec![(0, user(1, "x")), (1, ada())], "a user makes no credentials"),
        (
            vec![(0, admin()), (2, testing::credential(Subject::Key(testing::public(3)), Role::Admin, "b"))],
            "only the root",
        ),
        (vec![(0, invitation(1, Role::Site)), (1, ada())], "the invitation is for site"),
        (vec![(0, Credential { name: "bob".to_owned(), ..invitation(1, Role::User) }), (1, ada())], "for \"bob\""),
        (vec![(0, invitation(1, Role::User)), (1, invitation(2, Role::User)), (2, ada())], "another invitation"),
        (vec![(0, limited(few)), (1, ada())], "limits.max_holds"),
        (vec![(0, Credential { expires: Time(5_000), ..invitation(1, Role::User) }), (1, ada())], "later than"),
        (vec![(0, user(1, ""))], "name:"),
        (vec![(0, user(1, "0123456789abcdef"))], "name:"),
        (vec![(0, user(1, "a\u{7}"))], "name:"),
        (vec![(0, Credential { subject: Subject::Site(SiteId::new("s").unwrap()), ..ada() })], "subject:"),
        (vec![(0, Credential { issued: Time(9), expires: Time(9), ..ada() })], "expires:"),
    ] {
        let error = verify(&links).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
}

#[derive(Debug, Clone)]
struct Draw {
    signer_is_right: bool,
    role: Role,
    is_invitation: bool,
    is_named_b: bool,
    is_unnamed: bool,
    max_holds: Option<u32>,
    max_reach: Option<u64>,
    expires: i64,
}

fn draw() -> impl Strategy<Value = Draw> {
    let roles = prop::sample::select(vec![Role::Site, Role::User, Role::Admin, Role::Admin]);
    let rarely = || prop::sample::select(vec![false, false, false, false, false, false, false, true]);
    let flags = (rarely().prop_map(|is_wrong| !is_wrong), any::<bool>(), rarely(), rarely());
    let limits = (prop::option::weighted(0.3, 3..6_u32), prop::option::weighted(0.3, 3..6_u64));
    (flags, roles, limits, 990..1_100_i64).prop_map(|(flags, role, (max_holds, max_reach), expires)| Draw {
        signer_is_right: flags.0,
        role,
        is_invitation: flags.1,
        is_named_b: flags.2,
        is_unnamed: flags.3,
        max_holds,
        max_reach,
        expires: 1_200 - expires.min(1_060),
    })
}

/// Link `i` is held by key `i + 1`.
fn credential_of(i: usize, draw: &Draw) -> Credential {
    let subject = if draw.role == Role::Site && !draw.is_invitation {
        Subject::Site(SiteId::new(&format!("s{i}")).unwrap())
    } else {
        Subject::Key(testing::public(i as u64 + 1))
    };
    let name = if draw.is_unnamed {
        ""
    } else if draw.is_named_b {
        "b"
    } else {
        "a"
    };
    Credential {
        limits: Limits { max_holds: draw.max_holds, max_reach_s: draw.max_reach.map(Span), ..Limits::default() },
        is_invitation: draw.is_invitation,
        expires: Time(draw.expires),
        ..testing::credential(subject, draw.role, name)
    }
}

/// The rules one by one, on what was drawn.
fn is_good(draws: &[Draw]) -> bool {
    let at_most = |own: Option<u64>, other: Option<u64>| own.unwrap_or(u64::MAX) <= other.unwrap_or(u64::MAX);
    let pair = |maker: &Draw, made: &Draw| {
        let kind = match (maker.role, maker.is_invitation) {
            (Role::Admin, false) => made.role != Role::Admin,
            (role, true) => {
                let name_is_right = maker.is_unnamed || (!made.is_unnamed && maker.is_named_b == made.is_named_b);
                !made.is_invitation && made.role == role && name_is_right
            }
            (Role::User | Role::Site, false) => false,
        };
        kind && at_most(made.max_holds.map(u64::from), maker.max_holds.map(u64::from))
            && at_most(made.max_reach, maker.max_reach)
            && made.expires <= maker.expires
    };
    (1..=LINKS_MAX).contains(&draws.len())
        && draws.iter().all(|link| link.signer_is_right && link.expires > NOW.0)
        && draws.iter().all(|link| link.is_invitation || !link.is_unnamed)
        && draws.windows(2).all(|pair_of| pair(&pair_of[0], &pair_of[1]))
        && draws.last().is_some_and(|last| !last.is_invitation)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn a_chain_is_accepted_exactly_when_no_link_exceeds_the_one_before(
        draws in prop::collection::vec(draw(), 1..=LINKS_MAX + 1)
    ) {
        let links: Vec<(u64, Credential)> = draws
            .iter()
            .enumerate()
            .map(|(i, draw)| (if draw.signer_is_right { i as u64 } else { 99 }, credential_of(i, draw)))
            .collect();
        let verified = verify(&links);
        prop_assert_eq!(verified.is_ok(), is_good(&draws), "{:?}", verified);
        if let Ok(holder) = verified {
            prop_assert_eq!(holder.expires.0, draws.iter().map(|link| link.expires).min().unwrap());
            prop_assert_eq!(holder.lineage.len(), draws.len());
        }
    }
}
