//! Who belongs to the grid and who does not, over real libp2p in one process.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures::{FutureExt as _, future::join_all};

use super::*;
use crate::{
    AskError, RunError,
    membership::{Learnt, Members, NotMember},
    wire::WireRequest,
};

/// Sites that show this credential belong, until they are named in a revocation.
const CREDENTIAL: &[u8] = b"member";
/// What revokes nobody, since nobody who may has signed it.
const FALSE_REVOCATION: &[u8] = b"";

#[derive(Default)]
struct TestMembers {
    shows: Vec<u8>,
    /// Takes the grid for an open one: believes and serves everybody, and proves nothing.
    is_open: bool,
    revoked: Mutex<BTreeSet<Vec<u8>>>,
    has_expired: AtomicBool,
    digest: AtomicU64,
    /// Revocations that were looked at.
    checked: AtomicU64,
    /// What it answers to those who ask for its revocations, if that is not what it knows.
    tells: Vec<Vec<u8>>,
}

impl TestMembers {
    fn showing(credential: &[u8]) -> Arc<TestMembers> {
        Arc::new(TestMembers { shows: credential.to_vec(), ..TestMembers::default() })
    }

    fn revoke(&self, site: &[u8]) -> bool {
        let is_new = self.revoked.lock().unwrap().insert(site.to_vec());
        self.digest.fetch_add(u64::from(is_new), Ordering::Relaxed);
        is_new
    }
}

impl Members for TestMembers {
    fn is_closed(&self) -> bool {
        !self.is_open
    }
    fn credential(&self) -> Vec<u8> {
        self.shows.clone()
    }
    fn check(&self, site: &SiteId, credential: &[u8]) -> Result<(), NotMember> {
        let is_lapsed =
            self.revoked.lock().unwrap().contains(site.as_str().as_bytes()) || self.has_expired.load(Ordering::Relaxed);
        match credential {
            _ if self.is_open => Ok(()),
            [] => Err(NotMember::Lapsed),
            CREDENTIAL if is_lapsed => Err(NotMember::Lapsed),
            CREDENTIAL => Ok(()),
            _ => Err(NotMember::MadeUp),
        }
    }
    fn revocations_digest(&self) -> u64 {
        self.digest.load(Ordering::Relaxed)
    }
    fn revocations(&self) -> Vec<Vec<u8>> {
        if self.tells.is_empty() { self.revoked.lock().unwrap().iter().cloned().collect() } else { self.tells.clone() }
    }
    fn revocations_of(&self, _: &[u8]) -> Vec<Vec<u8>> {
        self.revocations()
    }
    fn learn_revocations(&self, revocations: &[Vec<u8>]) -> Learnt {
        let mut learnt = Learnt::default();
        for site in revocations {
            self.checked.fetch_add(1, Ordering::Relaxed);
            if site == FALSE_REVOCATION {
                learnt.is_false = true;
                break;
            }
            learnt.news += usize::from(self.revoke(site));
        }
        learnt
    }
}

async fn member(bootstrap: &[Multiaddr], members: &Arc<TestMembers>) -> Node {
    let membership = Arc::clone(members);
    node_with(bootstrap, move |config| {
        config.membership = membership;
        config.intervals.proof = Duration::from_secs(2);
        config.intervals.proof_recheck = Duration::from_millis(100);
    })
    .await
}

fn offer(node: &Node, name: &str) {
    node.discovery.publish_advert(super::offer(name.to_owned(), vec![host(name, 4, "x86_64")])).unwrap();
}

fn connected(node: &Node) -> BTreeSet<SiteId> {
    node.discovery.status().connected.into_iter().collect()
}

fn outsider_showing(credential: Option<&[u8]>) -> Arc<TestMembers> {
    let shows = credential.unwrap_or_default().to_vec();
    Arc::new(TestMembers { shows, is_open: credential.is_none(), ..TestMembers::default() })
}

fn all_requests(of: &Node) -> Vec<WireRequest> {
    vec![
        WireRequest::Site(SiteRequest::Bookings { after: None }),
        WireRequest::Site(SiteRequest::Lookup(RequestId::new("r1").unwrap())),
        WireRequest::Site(inquiry(of)),
        WireRequest::Schedules(None),
        WireRequest::Advert,
        WireRequest::Adverts(Vec::new()),
        WireRequest::Revocations { from: 0 },
        WireRequest::DialBack,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_proves_nothing_gets_nothing_and_is_cut_off() {
    let mut first = member(&[], &TestMembers::showing(CREDENTIAL)).await;
    let bootstrap = first.discovery.listen_addresses();
    let second = member(&bootstrap, &TestMembers::showing(CREDENTIAL)).await;
    offer(&first, "a");
    offer(&second, "b");
    eventually("the members know each other", || {
        [&first, &second].iter().all(|node| node.discovery.view().site_count() == 2)
    })
    .await;
    let site = first.discovery.site_id().clone();

    let stranger = member(&bootstrap, &outsider_showing(None)).await;
    offer(&stranger, "x");
    let its_site = stranger.discovery.site_id().clone();
    eventually("the stranger is connected", || connected(&stranger).contains(&site)).await;
    let core = stranger.discovery.core();
    let mut runs = first.inbound.take_runs().unwrap();
    let (answers, stream) = tokio::join!(
        join_all(all_requests(&stranger).into_iter().map(|request| core.request(&site, request, Millis(20_000)))),
        stranger.discovery.open_run(&site, Vec::new())
    );
    assert!(matches!(stream, Err(RunError::BrokenOff)), "{stream:?}");
    assert!(runs.next().now_or_never().is_none(), "its opening was not read");
    for answer in answers {
        assert!(matches!(answer, Err(AskError::Interrupted)), "connected, asked, and cut off: {answer:?}");
    }
    // Changes go round meanwhile.
    first.discovery.publish_changes(first.ledger.occupy("a", 1000));
    eventually("the members hear of the change", || {
        second.discovery.view().version(&site) == Some(first.ledger.version())
    })
    .await;
    assert_eq!(counter(&stranger, Counter::GossipReceived), 0);
    assert_eq!(stranger.discovery.view().site_count(), 1, "it has heard of nobody");
    assert!(first.inbound.try_next().is_none());
    assert!(counter(&first, Counter::NonMembersDisconnected) > 0);
    assert!(!connected(&first).contains(&its_site));
    for node in [&first, &second] {
        assert!(!node.discovery.view().knows(&its_site));
        // They are taken into the routing table together.
        let met = node.discovery.addresses_worth_remembering();
        assert!(!met.iter().any(|address| address.to_string().contains(its_site.as_str())), "{met:?}");
        assert_eq!(counter(node, Counter::Offences), 0, "it may not know better");
    }
    let from_second = counter(&second, Counter::AsksOut);
    assert!(counter(&first, Counter::AsksIn) <= from_second, "none of the stranger's was looked at");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_made_up_credential_costs_points() {
    let victim = member(&[], &TestMembers::showing(CREDENTIAL)).await;
    let bootstrap = victim.discovery.listen_addresses();
    let late = member(&bootstrap, &TestMembers::showing(b"")).await;
    eventually("it is refused", || counter(&victim, Counter::ProofsRefused) > 0).await;
    assert_eq!(counter(&victim, Counter::Offences), 0, "without one it may not know better");
    drop(late);
    let liar = member(&bootstrap, &TestMembers::showing(b"forged")).await;
    eventually("it is found out", || counter(&victim, Counter::Offences) > 0).await;
    assert!(connected(&victim).is_empty());
    eventually("it goes away", || connected(&liar).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_request_need_not_wait_for_the_proofs() {
    let mut first = member(&[], &TestMembers::showing(CREDENTIAL)).await;
    let second = member(&[], &TestMembers::showing(CREDENTIAL)).await;
    let site = first.discovery.site_id().clone();
    // Known, but not connected.
    offer(&first, "a");
    let advert = first.discovery.core().shared().view.envelope(&site).unwrap();
    second.discovery.core().shared().receive(&advert).unwrap();
    assert!(connected(&second).is_empty());
    let (asked, from) = tokio::join!(
        second.discovery.ask(&site, inquiry(&second), Millis(5_000)),
        answer_next(&mut first, SiteAnswer::Settled)
    );
    assert_eq!((asked, from), (Ok(SiteAnswer::Settled), second.discovery.site_id().clone()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_reaches_everybody_and_expels_the_site() {
    let all: Vec<_> = (0..4).map(|_| TestMembers::showing(CREDENTIAL)).collect();
    let first = member(&[], &all[0]).await;
    let bootstrap = first.discovery.listen_addresses();
    let mut nodes = vec![first];
    for members in &all[1..] {
        nodes.push(member(&bootstrap, members).await);
    }
    for (number, node) in nodes.iter().enumerate() {
        offer(node, &format!("h{number}"));
    }
    eventually("all know all", || nodes.iter().all(|node| node.discovery.view().site_count() == 4)).await;
    let outcast = nodes[3].discovery.site_id().clone();
    assert!(connected(&nodes[0]).contains(&outcast));
    assert!(all[0].revoke(outcast.as_str().as_bytes()));
    nodes[0].discovery.membership_changed();
    eventually("the others expel it", || {
        nodes[..3].iter().all(|node| !node.discovery.view().knows(&outcast) && !connected(node).contains(&outcast))
    })
    .await;
    assert!(nodes[1..3].iter().all(|node| counter(node, Counter::RevocationsLearnt) == 1));
    eventually("the outcast learns why", || !all[3].revoked.lock().unwrap().is_empty()).await;
    eventually("it is alone", || connected(&nodes[3]).is_empty()).await;
    assert_eq!(connected(&nodes[0]).len(), 2, "the others stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_expires_ends_its_connections() {
    let members = TestMembers::showing(CREDENTIAL);
    let first = member(&[], &members).await;
    let second = member(&first.discovery.listen_addresses(), &TestMembers::showing(CREDENTIAL)).await;
    eventually("they are connected", || connected(&first).contains(second.discovery.site_id())).await;
    members.has_expired.store(true, Ordering::Relaxed);
    eventually("they are not", || connected(&first).is_empty() && connected(&second).is_empty()).await;
}

/// A victim and a site that tells these revocations and another digest than the victim's.
async fn told(checking: &Arc<TestMembers>, tells: Vec<Vec<u8>>) -> (Node, Node, Arc<TestMembers>) {
    let telling = Arc::new(TestMembers { shows: CREDENTIAL.to_vec(), tells, ..TestMembers::default() });
    let victim = member(&[], checking).await;
    let teller = member(&victim.discovery.listen_addresses(), &telling).await;
    telling.digest.fetch_add(100, Ordering::Relaxed);
    offer(&teller, "x");
    eventually("the victim has asked", || checking.checked.load(Ordering::Relaxed) > 0).await;
    (victim, teller, telling)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_false_revocation_ends_a_fetch_and_bans() {
    let checking = TestMembers::showing(CREDENTIAL);
    let (victim, liar, _lying) = told(&checking, vec![FALSE_REVOCATION.to_vec(); 1_000]).await;
    eventually("it bans the liar", || counter(&victim, Counter::PeersBanned) == 1).await;
    eventually("they part", || !connected(&victim).contains(liar.discovery.site_id())).await;
    assert_eq!(checking.checked.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_that_has_no_new_revocations_is_asked_once_a_minute() {
    const KNOWN: &[u8] = b"known";
    let checking = TestMembers::showing(CREDENTIAL);
    checking.revoke(KNOWN);
    let (victim, teller, telling) = told(&checking, vec![KNOWN.to_vec()]).await;
    let site = teller.discovery.site_id().clone();
    for round in 0..5 {
        // Another made-up digest each time.
        let digest = telling.digest.fetch_add(1, Ordering::Relaxed) + 1;
        offer(&teller, "x");
        eventually("the victim has heard of the digest", || {
            victim.discovery.badge(&site).is_some_and(|badge| badge.revocations_digest == digest)
        })
        .await;
        assert_eq!(checking.checked.load(Ordering::Relaxed), 1, "in round {round}");
    }
    assert_eq!(counter(&victim, Counter::Offences), 0);
}
