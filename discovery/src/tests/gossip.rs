//! What all nodes come to know without asking.

use super::*;

fn occupied(node: &Node, of: &SiteId, host: &str) -> Option<u64> {
    let host = HostId::new(host).unwrap();
    let view =
        node.discovery.view().fresh_host((of, &host), node.discovery.now(), Millis(60_000), &mut Default::default())?;
    Some(view.schedule.peak(&cpu(), hour()).0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adverts_and_schedules_reach_all_nodes_and_changes_follow() {
    let nodes = grid(12, |_| ()).await;
    eventually("all know all hosts", || nodes.iter().all(|node| node.discovery.view().host_count() == 12)).await;
    let all_current = |site: &SiteId, host: &str, expected: u64| {
        nodes.iter().all(|node| occupied(node, site, host) == Some(expected))
    };
    let site = nodes[5].discovery.site_id().clone();
    let knows_all = |node: &Node| node.discovery.view().sites(Millis(0)).iter().all(|site| site.version.is_some());
    eventually("all have all schedules", || nodes.iter().all(knows_all)).await;

    let fetched: u64 = nodes.iter().map(|node| counter(node, Counter::SchedulesFetched)).sum();
    nodes[5].discovery.publish_changes(nodes[5].ledger.occupy("h5", 700));
    nodes[5].discovery.publish_changes(nodes[5].ledger.occupy("h5", 800));
    eventually("all have both changes", || all_current(&site, "h5", 1500)).await;
    let fetched_later: u64 = nodes.iter().map(|node| counter(node, Counter::SchedulesFetched)).sum();
    assert!(fetched_later - fetched < 11, "gossip brought the changes, not {} fetches", fetched_later - fetched);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missed_change_is_noticed_and_fetched() {
    let nodes = grid(3, |_| ()).await;
    let site = nodes[0].discovery.site_id().clone();
    eventually("schedules are known", || nodes.iter().all(|node| occupied(node, &site, "h0") == Some(0))).await;
    // The first change is never told.
    let untold = nodes[0].ledger.occupy("h0", 100);
    drop(untold);
    nodes[0].discovery.publish_changes(nodes[0].ledger.occupy("h0", 10));
    eventually("all have both", || nodes.iter().all(|node| occupied(node, &site, "h0") == Some(110))).await;
    assert!(counter(&nodes[1], Counter::Gaps) >= 1 && counter(&nodes[2], Counter::Gaps) >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_last_change_is_found_by_the_slow_recheck() {
    let nodes = grid(2, |config| {
        config.intervals.recheck = Duration::from_millis(50);
        config.intervals.recheck_age = Duration::from_millis(100);
    })
    .await;
    let site = nodes[0].discovery.site_id().clone();
    eventually("the schedule is known", || occupied(&nodes[1], &site, "h0") == Some(0)).await;
    nodes[0].ledger.occupy("h0", 100);
    eventually("the change is found", || occupied(&nodes[1], &site, "h0") == Some(100)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_changes_than_may_wait_are_repaired() {
    let nodes = grid(2, |config| {
        config.limits.changes_pending_max = 3;
        config.intervals.gossip = Duration::from_millis(300);
    })
    .await;
    let site = nodes[0].discovery.site_id().clone();
    eventually("the schedule is known", || occupied(&nodes[1], &site, "h0") == Some(0)).await;
    for _ in 0..20 {
        nodes[0].discovery.publish_changes(nodes[0].ledger.occupy("h0", 1));
    }
    eventually("all changes are known", || occupied(&nodes[1], &site, "h0") == Some(20)).await;
    assert!(counter(&nodes[0], Counter::ChangesDropped) > 0);
    assert_eq!(nodes[0].discovery.view().version(&site), Some(nodes[0].ledger.version()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_departure_takes_the_hosts_out_of_all_views() {
    let mut nodes = grid(4, |_| ()).await;
    eventually("all know all", || nodes.iter().all(|node| node.discovery.view().host_count() == 4)).await;
    let gone = nodes.remove(2);
    let site = gone.discovery.site_id().clone();
    gone.discovery.shutdown().await;
    eventually("all know that it left", || nodes.iter().all(|node| !node.discovery.view().knows(&site))).await;
    let found = nodes[0].discovery.find(query(10), 1).await;
    assert_eq!((found.hosts.len(), found.known_hosts), (3, 3), "the DHT does not bring it back either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_where_own_jobs_wait_is_asked_for_quotes_from_then_on() {
    let nodes = grid(2, |_| ()).await;
    let site = nodes[0].discovery.site_id();
    let gives = |node: &Node| node.discovery.view().quoting([site]).contains(site);
    eventually("the other one knows it", || nodes[1].discovery.view().knows(site)).await;
    assert!(!nodes.iter().any(gives));
    nodes[0].discovery.publish_quotes();
    assert!(gives(&nodes[0]), "its own coordinator asks at once");
    eventually("the other one knows", || gives(&nodes[1])).await;
    let hosts = ["h8", "h9"].map(|name| host(name, 4, "x86_64")).to_vec();
    nodes[0].discovery.publish_advert(offer("other".to_owned(), hosts)).unwrap();
    eventually("the other one knows the new offer", || nodes[1].discovery.view().host_count() == 3).await;
    assert!(gives(&nodes[1]), "which says so too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_another_grid_stay_strangers() {
    let a = node(&[]).await;
    a.discovery.publish_advert(offer("a".to_owned(), vec![host("h1", 4, "x86_64")])).unwrap();
    let b = node_with(&a.discovery.listen_addresses(), |config| config.grid = GridId::new("other").unwrap()).await;
    eventually("they met and parted", || counter(&b, Counter::StrangersDisconnected) > 0).await;
    eventually("both are alone", || {
        b.discovery.status().connected.is_empty() && a.discovery.status().connected.is_empty()
    })
    .await;
    assert_eq!(b.discovery.view().site_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_large_grid_all_schedules_come_to_be_known_one_by_one() {
    let nodes = grid(6, |config| {
        config.limits.sites_eager_max = 1;
        config.intervals.recheck = Duration::from_millis(20);
    })
    .await;
    let knows = |node: &Node, of: &Node| node.discovery.view().version(of.discovery.site_id()).is_some();
    eventually("every node to know all schedules", || nodes.iter().all(|node| nodes.iter().all(|of| knows(node, of))))
        .await;
}
