//! Who belongs to the grid and who does not, over real libp2p in one process.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::*;
use crate::membership::Members;

/// Sites that show this credential belong, until they are named in a revocation.
const CREDENTIAL: &[u8] = b"member";

#[derive(Default)]
struct TestMembers {
    shows: Vec<u8>,
    revoked: Mutex<BTreeSet<Vec<u8>>>,
    digest: AtomicU64,
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
        true
    }
    fn credential(&self) -> Vec<u8> {
        self.shows.clone()
    }
    fn is_member(&self, site: &SiteId, credential: &[u8]) -> bool {
        credential == CREDENTIAL && !self.revoked.lock().unwrap().contains(site.as_str().as_bytes())
    }
    fn revocations_digest(&self) -> u64 {
        self.digest.load(Ordering::Relaxed)
    }
    fn revocations(&self) -> Vec<Vec<u8>> {
        self.revoked.lock().unwrap().iter().cloned().collect()
    }
    fn learn_revocations(&self, revocations: &[Vec<u8>]) -> usize {
        revocations.iter().filter(|site| self.revoke(site)).count()
    }
}

async fn member(bootstrap: &[Multiaddr], members: &Arc<TestMembers>) -> Node {
    let membership = Arc::clone(members);
    node_with(bootstrap, move |config| config.membership = membership).await
}

fn offer(node: &Node, name: &str) {
    node.discovery.publish_advert(name.to_owned(), None, vec![host(name, 4, "x86_64")]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shows_no_credential_is_not_believed_by_anybody() {
    let first = member(&[], &TestMembers::showing(CREDENTIAL)).await;
    let bootstrap = first.discovery.listen_addresses();
    let second = member(&bootstrap, &TestMembers::showing(CREDENTIAL)).await;
    // It believes everybody itself, as a node that takes the grid for an open one does.
    let stranger = node(&bootstrap).await;
    for (node, name) in [(&first, "a"), (&second, "b"), (&stranger, "x")] {
        offer(node, name);
    }
    eventually("the stranger knows all", || stranger.discovery.view().site_count() == 3).await;
    let members = [&first, &second];
    eventually("the members know each other", || members.iter().all(|node| node.discovery.view().site_count() == 2))
        .await;
    let dropped = |node: &&Node| counter(node, Counter::DroppedNotMember);
    eventually("the stranger was heard", || members.iter().map(dropped).sum::<u64>() > 0).await;
    let stranger_site = stranger.discovery.site_id();
    assert!(members.iter().all(|node| !node.discovery.view().knows(stranger_site)));
    assert_eq!(first.discovery.badge(second.discovery.site_id()).unwrap().credential, CREDENTIAL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_are_shown_to_whoever_shows_a_credential_when_asked_for_it_and_to_nobody_else() {
    let silent = |members: Arc<TestMembers>| {
        move |config: &mut DiscoveryConfig| {
            config.gossip = false;
            config.membership = members;
        }
    };
    let first = node_with(&[], silent(TestMembers::showing(CREDENTIAL))).await;
    offer(&first, "a");
    let bootstrap = first.discovery.listen_addresses();
    let second = node_with(&bootstrap, silent(TestMembers::showing(CREDENTIAL))).await;
    let stranger = node_with(&bootstrap, silent(TestMembers::showing(b"forged"))).await;
    offer(&second, "b");
    offer(&stranger, "x");
    // Believes the first one's credential, and asks for its schedules as any node would.
    let finds_it = async |node: &Node| {
        let found = node.discovery.find(query(3), 1).await;
        found.hosts.iter().any(|found| found.host.id.as_str() == "a")
    };
    let start = Instant::now();
    while !finds_it(&second).await {
        assert!(start.elapsed() < DEADLINE, "a member is shown the schedules");
    }
    assert!(first.discovery.view().knows(second.discovery.site_id()), "it was asked who it is");
    while counter(&first, Counter::AsksInStranger) == 0 {
        assert!(start.elapsed() < 2 * DEADLINE, "a stranger asks, and is asked who it is");
        assert!(!finds_it(&stranger).await);
    }
    assert!(stranger.discovery.view().version(first.discovery.site_id()).is_none());
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
    assert!(all[0].revoke(outcast.as_str().as_bytes()));
    nodes[0].discovery.membership_changed();
    eventually("the others expel it", || nodes[..3].iter().all(|node| !node.discovery.view().knows(&outcast))).await;
    assert!(nodes[1..3].iter().all(|node| counter(node, Counter::RevocationsLearnt) == 1));
}
