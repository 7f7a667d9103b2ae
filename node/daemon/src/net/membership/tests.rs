//! What a node keeps and tells of roots that follow each other, and whom it blames for what it is told.

use std::{fs, path::Path};

use broker::{
    time::Span,
    trust::{OwnerPolicy, SignedText, testing},
};
use kolo_trust::known_roots;

use super::*;
use discovery::Members as _;

const HOUR: Span = Span(3600);

fn own_site() -> SiteId {
    SiteId::new("own").unwrap()
}

/// A node of the closed grid of [`testing`], with what is in this directory.
fn opened(directory: &Path) -> Membership {
    let grid = GridFile::new(testing::GRID.to_owned(), Some(testing::public(0)), Vec::new());
    let (wallet, clock) = (Wallet::at(directory), Clock::start());
    if wallet.credential(&grid.id, Role::Site).unwrap().is_none() {
        let chain = testing::member(Subject::Site(own_site()), Role::Site, "own");
        wallet.keep(&grid, Role::Site, &chain, clock.now().utc).unwrap();
    }
    let gate = SharedGate::from(Gate::new(testing::closed(), OwnerPolicy::default()));
    Membership::open(&DataDir::open(directory).unwrap(), &own_site(), grid, gate, clock).unwrap()
}

/// The key of the number `new` follows that of `old`, which counts for another hour.
fn follows(old: u64, new: u64) -> SignedText {
    let now = Clock::start().now().utc;
    Successor::sign(testing::GRID, (&testing::key(old), &testing::key(new)), now, now + HOUR).unwrap()
}

/// The root or admin of the number `by` revokes the key of the number `of`.
fn revoked(by: u64, of: &Subject, issuer: Option<Chain>) -> SignedRevocation {
    let (grid, subject) = (testing::GRID.to_owned(), of.clone());
    let text = Revocation { grid, subject, revoked: Time(1), keep_until: testing::EXPIRES };
    SignedRevocation { statement: testing::sign(&text, &testing::key(by)), issuer }
}

#[test]
fn roots_that_the_disk_refuses_are_told_at_once_and_written_at_a_later_look() {
    let directory = tempfile::tempdir().unwrap();
    let node = opened(directory.path());
    let file = directory.path().join("grid-revocations.jsonl");
    fs::create_dir(&file).unwrap();
    assert_eq!(node.gate.lock().succeed(&follows(0, 1)), Ok(true));
    assert!(node.keep_roots() && !node.keep_roots(), "they are news once");
    assert!(file.is_dir(), "nothing was written");
    fs::remove_dir(&file).unwrap();
    assert!(!node.keep_roots());
    assert_eq!(known_roots(directory.path(), &node.grid).unwrap().newest(), &testing::public(1));
}

#[test]
fn a_refused_successor_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let node = opened(directory.path());
    assert_eq!(node.gate.lock().succeed(&follows(0, 1)), Ok(true));
    assert!(node.keep_roots());
    let refused = node.gate.lock().succeed(&follows(0, 7));
    assert!(matches!(refused, Err(TrustError::Rival { .. })), "{refused:?}");
    assert!(!node.keep_roots(), "nobody is told");
    assert_eq!(node.revocations().len(), 1, "the statement that counts");
    drop(node);
    let node = opened(directory.path());
    assert_eq!(node.roots().1, Some(testing::public(7)));
    assert_eq!(node.roots().0.last(), Some(&(testing::public(1), None)));
}

#[test]
fn who_is_revoked_by_a_later_root_is_told_of_that_root_first() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [node, other] = [opened(directories[0].path()), opened(directories[1].path())];
    let of_other = testing::member(Subject::Site(own_site()), Role::Site, "own");
    let shown = wire::encode(&of_other).unwrap();
    assert!(node.revoke(&told_as_revocation(follows(0, 1))).unwrap());
    assert!(node.revoke(&revoked(1, &Subject::Site(own_site()), None)).unwrap());
    let reasons = node.revocations_of(&shown);
    assert_eq!(other.learn_revocations(&reasons), Learnt { news: 2, is_false: false });
    assert!(other.is_subject_revoked(&Subject::Site(own_site())));
}

/// The admin of the number 20, whom the root of the number `by` has made, behind these statements.
fn admin_of(by: u64, statements: &[SignedText]) -> Chain {
    let eva = testing::credential(Subject::Key(testing::public(20)), Role::Admin, "eva");
    Chain::of_later_root(statements, testing::sign(&eva, &testing::key(by)))
}

#[test]
fn a_rival_excuses_what_counts_under_it_and_nothing_that_is_made_up() {
    let (counts, rival, next) = (follows(0, 1), follows(0, 7), follows(7, 8));
    let bob = Subject::Key(testing::public(30));
    let line = [rival.clone(), next.clone()];
    let admins = revoked(20, &bob, Some(admin_of(8, &line)));
    let mut changed = admins.clone();
    changed.statement.text = changed.statement.text.replace("\"revoked\":1,", "\"revoked\":2,");
    assert_ne!(changed, admins);
    let mut forged = admin_of(9, &line[..1]).credentials()[0].clone();
    forged.author = testing::public(7);
    let (told, rivals) = ([rival.clone(), next].map(told_as_revocation), [told_as_revocation(rival)]);
    for (what, is_false, before, last) in [
        ("the other line", false, &told[..], None),
        ("a revocation by the rival", false, &rivals[..], Some(revoked(7, &bob, None))),
        ("by the root that follows it", false, &told[..], Some(revoked(8, &bob, None))),
        ("by an admin who shows that line", false, &told[..0], Some(admins)),
        ("by an admin under the rival", false, &rivals[..], Some(revoked(20, &bob, Some(admin_of(7, &[]))))),
        ("by nobody", true, &told[..], Some(revoked(9, &bob, None))),
        ("changed on the way", true, &told[..], Some(changed)),
        ("by whom nobody has made an admin", true, &told[..], Some(revoked(21, &bob, Some(admin_of(7, &[]))))),
        ("with a forged credential", true, &rivals[..], Some(revoked(20, &bob, Some(Chain::of_root(forged.clone()))))),
        (
            "with a forged credential behind the rival's statement",
            true,
            &rivals[..],
            Some(revoked(20, &bob, Some(Chain::of_later_root(&line[..1], forged)))),
        ),
        ("a successor of no root", true, &told[..], Some(told_as_revocation(follows(11, 12)))),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let node = opened(directory.path());
        assert_eq!(node.gate.lock().succeed(&counts), Ok(true));
        let all: Vec<Vec<u8>> = before.iter().chain(&last).filter_map(encode).collect();
        assert_eq!(node.learn_revocations(&all), Learnt { news: 0, is_false }, "{what}");
        assert!(!node.is_subject_revoked(&bob), "{what}");
    }
}
