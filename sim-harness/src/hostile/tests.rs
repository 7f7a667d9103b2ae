//! A misbehaving peer at full speed over TCP: what becomes of it, what it costs its victim, and that others go on.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use broker::{
    amount::Amount,
    classes::Hosts,
    host::Host,
    ids::{HostId, RequestId, SiteId},
    protocol::{AttemptId, LedgerVersion, ScheduleSnapshot, SiteAnswer, SiteRequest},
    resources::Amounts,
    time::Millis,
};
use discovery::{
    Discovery, DiscoveryConfig, GridId, Identity, Inbound, Multiaddr, Offer, Query, ScheduleSource, counters::Counter,
    start,
};

use super::{Attack, AttackPlan, Tally, run};

const DEADLINE: Duration = Duration::from_secs(120);

/// A ledger in which nothing happens.
struct FreeHosts(SiteId);

impl ScheduleSource for FreeHosts {
    fn snapshot(&self) -> ScheduleSnapshot {
        let version = LedgerVersion { incarnation: 1, change: 0 };
        ScheduleSnapshot { site: self.0.clone(), version, schedules: Default::default() }
    }
}

struct Node {
    discovery: Discovery,
    inbound: Inbound,
}

/// A node that listens on TCP, with shorter intervals than usual.
async fn node_with(bootstrap: &[Multiaddr], adjust: impl FnOnce(&mut DiscoveryConfig)) -> Node {
    let identity = Identity::generate().unwrap();
    let ledger = Arc::new(FreeHosts(identity.site_id().clone()));
    let mut config = DiscoveryConfig::new(GridId::new("test").unwrap(), ledger);
    config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
    config.bootstrap = bootstrap.to_vec();
    config.limits.gossip_per_author_in_10_s = 200;
    config.intervals.dht_put_pause = Duration::from_millis(5);
    config.intervals.housekeeping = Duration::from_millis(100);
    config.intervals.repair_jitter = Duration::from_millis(10);
    config.intervals.request = Duration::from_secs(5);
    adjust(&mut config);
    let (discovery, inbound) = start(identity, config).await.unwrap();
    Node { discovery, inbound }
}

fn offer(node: &Node, name: &str) {
    let capacity = Amounts::from([("cpu".parse().unwrap(), Amount(4000))]);
    let id = HostId::new("h1").unwrap();
    let (attributes, speed) = (BTreeMap::new(), broker::host::Speed::REFERENCE);
    let host = Host { id, capacity, attributes, speed, tariff: Default::default() };
    node.discovery
        .publish_advert(Offer { name: name.to_owned(), hosts: Hosts::from_iter([host]), ..Offer::default() })
        .unwrap();
}

/// Waits until `holds`; fails with `what` at the deadline.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn counter(node: &Node, counter: Counter) -> u64 {
    node.discovery.status().counters[counter.name()]
}

fn inquiry(of: &Node) -> SiteRequest {
    let request = RequestId::new("r1").unwrap();
    SiteRequest::Inquire(AttemptId { entry_point: of.discovery.site_id().clone(), request, attempt: 1 })
}

fn query() -> Query {
    Query {
        count: 50,
        enough: 50,
        demand: serde_json::from_str::<broker::request::Request>(r#"{"hosts":50,"duration":60}"#)
            .unwrap()
            .demand()
            .clone(),
        max_schedule_age: Millis(60_000),
        ask_after: Millis(60_000),
        timeout: Millis(5_000),
        exclude: Default::default(),
    }
}

fn plan(victim: &Node, attacks: &[Attack]) -> AttackPlan {
    AttackPlan {
        grid: GridId::new("test").unwrap(),
        targets: victim.discovery.listen_addresses(),
        attacks: attacks.to_vec(),
        from: Ipv4Addr::LOCALHOST,
    }
}

/// Attacks until `holds`, and fails with `what` when it does not in time.
async fn attack_until(victim: &Node, attacks: &[Attack], what: &str, holds: impl FnMut() -> bool) -> Tally {
    let tally = Tally::new();
    let plan = plan(victim, attacks);
    tokio::select! {
        outcome = run(&plan, &tally) => outcome.map(drop).unwrap(),
        () = eventually(what, holds) => {}
    }
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_goes_on_misbehaving_is_banned_and_the_ban_says_why() {
    for (attack, why) in [
        (Attack::GossipGarbage, "passes on invalid gossip"),
        (Attack::GossipForged, "passes on invalid gossip"),
        (Attack::GossipOversized, "sends gossip that is too large"),
        (Attack::GossipFlood, "signs too much gossip"),
        (Attack::AskGarbage, "sends invalid requests"),
        (Attack::AskFlood, "sends too many requests"),
        (Attack::Holds, "sends too many requests"),
        (Attack::LyingAnswers, "gives invalid answers"),
        (Attack::DhtRecords, "puts invalid records"),
    ] {
        let victim = node_with(&[], |config| {
            config.intervals.exchange = Duration::from_millis(20);
            // A slow machine sends less than a node may take by default, and a fast one passes two limits at once.
            config.limits.asks_per_peer_per_s = 50;
            config.limits.gossip_in_10_s = 1_000_000;
        })
        .await;
        offer(&victim, "victim");
        attack_until(&victim, &[attack], &format!("{attack:?}"), || !victim.discovery.status().bans.is_empty()).await;
        let ban = victim.discovery.status().bans.remove(0);
        assert_eq!((ban.why, ban.times), (why, 1), "{attack:?}");
        assert!(ban.remaining > Millis(590_000) && ban.remaining <= Millis(600_000));
        eventually("it is disconnected", || !victim.discovery.status().connected.contains(&ban.site)).await;
        assert!(counter(&victim, Counter::PeersBanned) >= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_are_cut_off() {
    let victim = node_with(&[], |config| {
        config.intervals.request_arrival = Duration::from_millis(200);
    })
    .await;
    attack_until(&victim, &[Attack::AskSlow], "slow requests are cut", || counter(&victim, Counter::AsksInSlow) >= 10)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_of_one_address_stay_few_and_silent_ones_are_closed() {
    let victim = node_with(&[], |config| {
        config.limits.loopback_exempt = false;
        config.limits.inbound_per_prefix_max = 8;
        config.intervals.introduction = Duration::from_millis(300);
    })
    .await;
    let mut most = 0;
    attack_until(&victim, &[Attack::Connections], "connections are refused and closed", || {
        most = most.max(victim.discovery.status().connected.len());
        counter(&victim, Counter::ConnectionsRefusedTooMany) >= 20
            && counter(&victim, Counter::ConnectionsClosedSilent) >= 4
    })
    .await;
    assert!(most <= 8, "{most} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_full_of_connections_still_opens_its_own() {
    let victim = node_with(&[], |config| {
        config.limits.connections_max = 16;
    })
    .await;
    let mut friend = node_with(&[], |_| ()).await;
    offer(&friend, "friend");
    let full = || counter(&victim, Counter::ConnectionsRefusedFull) >= 5;
    attack_until(&victim, &[Attack::Connections], "the victim is full", full).await;
    let address = friend.discovery.listen_addresses();
    let own = node_with(&address, |_| ()).await;
    let site = friend.discovery.site_id().clone();
    let answering = async { friend.inbound.next().await.unwrap().reply.answer(SiteAnswer::Settled) };
    let (asked, ()) = tokio::join!(own.discovery.ask(&site, inquiry(&own), Millis(5000)), answering);
    assert_eq!(asked, Ok(SiteAnswer::Settled));
    assert!(victim.discovery.status().connected.len() <= 12, "a quarter is kept for its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_sites_push_out_nobody_who_answers() {
    let victim = node_with(&[], |config| {
        config.limits.sites_max = 12;
    })
    .await;
    let mut friends = Vec::new();
    for number in 0..3 {
        let friend = node_with(&victim.discovery.listen_addresses(), |_| ()).await;
        offer(&friend, &number.to_string());
        friends.push(friend);
    }
    let sites: Vec<SiteId> = friends.iter().map(|friend| friend.discovery.site_id().clone()).collect();
    let view = victim.discovery.view();
    eventually("friends are known", || sites.iter().all(|site| view.version(site).is_some())).await;
    attack_until(&victim, &[Attack::GossipFreshIdentities], "many sites are evicted", || {
        assert!(view.site_count() <= 13, "at most one is in excess while it is being evicted");
        counter(&victim, Counter::SitesEvicted) >= 30 && counter(&victim, Counter::DroppedNewcomers) >= 100
    })
    .await;
    assert!(sites.iter().all(|site| view.version(site).is_some()), "nobody who answers was pushed out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_full_of_made_up_providers_costs_a_bounded_search() {
    let victim = node_with(&[], |config| {
        config.gossip = false;
        config.limits.find_sites_max = 40;
    })
    .await;
    let (tally, plan) = (Tally::new(), plan(&victim, &[Attack::DhtProviders]));
    let search = async {
        let is_met = || !victim.discovery.status().addresses_worth_remembering.is_empty();
        eventually("the attacker is in the routing table", is_met).await;
        let mut found = 0;
        while counter(&victim, Counter::ProvidersUnverified) == 0 {
            found += victim.discovery.find(query(), 1).await.hosts.len();
        }
        let unverified = counter(&victim, Counter::ProvidersUnverified);
        found += victim.discovery.find(query(), 2).await.hosts.len();
        (found, unverified, counter(&victim, Counter::ProvidersUnverified))
    };
    let (found, unverified, later) = tokio::select! {
        outcome = run(&plan, &tally) => outcome.map(|never| match never {}).unwrap(),
        counts = tokio::time::timeout(DEADLINE, search) => counts.unwrap(),
    };
    assert_eq!(found, 0, "what no advert proves is not found");
    assert!((1..=40).contains(&unverified), "{unverified}");
    assert!(later <= 80, "{later}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_nodes_go_on_under_everything_at_once() {
    let mut victim = node_with(&[], |_| ()).await;
    offer(&victim, "victim");
    let friend = node_with(&victim.discovery.listen_addresses(), |_| ()).await;
    let site = victim.discovery.site_id().clone();
    eventually("they know each other", || friend.discovery.view().version(&site).is_some()).await;
    let (tally, plan) = (Tally::new(), plan(&victim, &[]));
    let work = async {
        let mut settled = 0;
        while settled < 200 || counter(&victim, Counter::PeersBanned) < 3 {
            let asked = friend.discovery.ask(&site, inquiry(&friend), Millis(5000));
            tokio::pin!(asked);
            // Hostile requests reach the same queue; they are answered as well.
            let answer = loop {
                tokio::select! {
                    answer = &mut asked => break answer,
                    Some(request) = victim.inbound.next() => request.reply.answer(SiteAnswer::Settled),
                }
            };
            settled += u32::from(answer == Ok(SiteAnswer::Settled));
        }
    };
    tokio::select! {
        outcome = run(&plan, &tally) => outcome.map(drop).unwrap(),
        done = tokio::time::timeout(DEADLINE, work) => done.unwrap(),
    }
    let honest = friend.discovery.site_id();
    assert!(victim.discovery.status().bans.iter().all(|ban| ban.site != *honest));
    assert!(friend.discovery.status().bans.iter().all(|ban| ban.site != site), "what a victim passes on is valid");
}
