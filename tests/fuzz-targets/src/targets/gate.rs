//! A gate that hears revocations in any order, while members and requests come by.
//!
//! The model is a gate that has verified nothing before: one that is made anew for each question and told all that is
//! revoked. Whoever heard the same must decide the same, in whichever order it was heard.

use std::sync::LazyLock;

use broker::{
    ids::SiteId,
    time::Time,
    trust::{Chain, Credential, Gate, OwnerPolicy, Revocation, Role, SignedRevocation, SignedText, Subject, testing},
};

use super::fixed::{request_id, site};
use crate::{Input, Target};

/// Revocations, members and requests at a gate.
pub const GATE: Target = Target { name: "gate", run, golden: Vec::new };

const OPERATIONS_MAX: usize = 24;
const SITES: [&str; 2] = ["s0", "s1"];
/// Two admins, two invitations of the root that make the first an admin as well, two users.
const KEYS: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// Everything that is signed, which is signed once only.
struct World {
    /// Who shows it: the number of a key, or a site.
    members: Vec<(Result<u64, &'static str>, Chain)>,
    revocations: Vec<SignedRevocation>,
    /// Requests, by the number of their user's key.
    requests: Vec<(u64, SignedText)>,
}

static WORLD: LazyLock<World> = LazyLock::new(World::new);

fn credential(subject: Subject, role: Role, expires: i64) -> Credential {
    Credential { expires: Time(expires), ..testing::credential(subject, role, "somebody") }
}

fn of_key(number: u64) -> Subject {
    Subject::Key(testing::public(number))
}

impl World {
    fn new() -> World {
        let by = |signer: u64, credential: &Credential| testing::sign(credential, &testing::key(signer));
        let by_root = |credential: &Credential| Chain::of_root(by(0, credential));
        let invite = |key: u64, expires: i64| {
            by_root(&Credential { is_invitation: true, ..credential(of_key(key), Role::Admin, expires) })
        };
        let admin = |expires: i64| credential(of_key(1), Role::Admin, expires);
        let admins = [
            (1, by_root(&admin(2_000))),
            (1, invite(3, 3_000).with(by(3, &admin(3_000)))),
            (1, invite(4, 1_500).with(by(4, &admin(1_500)))),
            (2, by_root(&credential(of_key(2), Role::Admin, 2_500))),
        ];
        let mut members: Vec<(Result<u64, &'static str>, Chain)> = Vec::new();
        let mut requests = Vec::new();
        for (number, admin) in &admins {
            let user = credential(of_key(5), Role::User, 1_500);
            members.push((Ok(5), admin.with(by(*number, &user))));
            let site = credential(Subject::Site(site(SITES[0])), Role::Site, 1_500);
            members.push((Err(SITES[0]), admin.with(by(*number, &site))));
            members.push((Ok(*number), admin.clone()));
        }
        members.push((Ok(6), by_root(&credential(of_key(6), Role::User, 2_000))));
        members.push((Err(SITES[1]), by_root(&credential(Subject::Site(site(SITES[1])), Role::Site, 2_000))));
        let request = serde_json::from_str(r#"{"hosts":2,"duration":100,"total":{"cpu":9}}"#).expect("a legal request");
        for key in [1, 5, 6] {
            let mut statement = testing::statement(&site(SITES[0]), &request_id("r"), &request);
            statement.expires = Time(1_800);
            requests.push((key, testing::sign(&statement, &testing::key(key))));
        }
        World { members, revocations: revocations(&admins), requests }
    }
}

fn revocations(admins: &[(u64, Chain)]) -> Vec<SignedRevocation> {
    let subjects = KEYS.iter().map(|key| of_key(*key)).chain(SITES.iter().map(|name| Subject::Site(site(name))));
    let mut all = Vec::new();
    for (index, subject) in subjects.enumerate() {
        let keep_until = Time(if index % 2 == 0 { 2_200 } else { 1_700 });
        let grid = testing::GRID.to_owned();
        let revocation = Revocation { grid, subject, revoked: Time::ZERO, keep_until };
        all.push(SignedRevocation { statement: testing::sign(&revocation, &testing::key(0)), issuer: None });
        for (number, chain) in admins {
            let statement = testing::sign(&revocation, &testing::key(*number));
            all.push(SignedRevocation { statement, issuer: Some(chain.clone()) });
        }
    }
    all
}

fn fresh(heard: impl Iterator<Item = SignedRevocation>, now: Time) -> Gate {
    let mut gate = Gate::new(testing::closed(), OwnerPolicy::default());
    for revocation in heard {
        // What has lapsed since, or is no longer to be believed, is refused: as it should be.
        let _ = gate.revoke(&revocation, now);
    }
    gate
}

fn run(data: &[u8]) {
    let world = &*WORLD;
    let mut input = Input::new(data);
    let mut now = Time(1_000);
    let mut gate = fresh(std::iter::empty(), now);
    let mut heard: Vec<SignedRevocation> = Vec::new();
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        match input.below(8) {
            0..3 => {
                let revocation = &world.revocations[usize::from(input.byte()) % world.revocations.len()];
                let is_new = gate.revoke(revocation, now);
                assert!(!matches!(gate.revoke(revocation, now), Ok(true)), "news twice");
                if is_new.is_ok() {
                    heard.push(revocation.clone());
                }
            }
            3 => {
                now = Time(now.0 + i64::from(input.byte()));
                gate.prune(now);
            }
            4 => {
                let (who, chain) = &world.members[usize::from(input.byte()) % world.members.len()];
                let site = site(input.one_of(&SITES));
                check_member(&mut gate, &site, who.err() == Some(site.as_str()), chain, now);
            }
            _ => {
                let (key, request) = &world.requests[usize::from(input.byte()) % world.requests.len()];
                let (who, chain) = &world.members[usize::from(input.byte()) % world.members.len()];
                check_submission(&mut gate, request, *who == Ok(*key), chain, now);
            }
        }
    }
    check_order(&heard, now);
}

fn check_member(gate: &mut Gate, site: &SiteId, is_its_own: bool, chain: &Chain, now: Time) {
    let mut anew = fresh(gate.revocations().all().cloned(), now);
    let checked = gate.check_member(site, Some(chain), now);
    assert_eq!(checked, anew.check_member(site, Some(chain), now));
    assert!(checked.is_err() || is_its_own, "another's credential");
    assert!(gate.check_member(site, None, now).is_err(), "no credential at all");
}

fn check_submission(gate: &mut Gate, request: &SignedText, is_its_own: bool, chain: &Chain, now: Time) {
    let entry_point = site(SITES[0]);
    let mut anew = fresh(gate.revocations().all().cloned(), now);
    let checked = gate.check_submission(now, &entry_point, request, Some(chain));
    assert_eq!(checked, anew.check_submission(now, &entry_point, request, Some(chain)));
    assert!(checked.is_err() || is_its_own, "another's credential");
}

/// The same revocations, heard forwards and backwards, end in the same.
fn check_order(heard: &[SignedRevocation], now: Time) {
    let forwards = fresh(heard.iter().cloned(), now);
    let backwards = fresh(heard.iter().rev().cloned(), now);
    let subjects = KEYS.iter().map(|key| of_key(*key)).chain(SITES.iter().map(|name| Subject::Site(site(name))));
    for subject in subjects {
        let (first, second) = (forwards.revocations(), backwards.revocations());
        assert_eq!(first.is_revoked(&subject), second.is_revoked(&subject), "{subject} depends on the order");
    }
    assert_eq!(forwards.revocations().digest(), backwards.revocations().digest(), "the digest depends on the order");
}
