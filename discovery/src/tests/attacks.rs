//! A misbehaving peer at full speed over TCP: what becomes of it, what it costs its victim, and that others go on.

use futures::StreamExt as _;
use libp2p::swarm::SwarmEvent;

use super::*;
use crate::{
    behaviour::{adverts_topic, build_swarm},
    hostile::{self, Attack, AttackPlan, Tally},
};

fn over_tcp(config: &mut DiscoveryConfig) {
    config.transport = TransportKind::TcpAndQuic;
    config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
}

fn plan(victim: &Node, attacks: &[Attack]) -> AttackPlan {
    AttackPlan {
        grid: GridId::new("test").unwrap(),
        targets: victim.discovery.listen_addresses(),
        transport: TransportKind::TcpAndQuic,
        attacks: attacks.iter().copied().collect(),
    }
}

/// Attacks until `holds`, and fails with `what` when it does not in time.
async fn attack_until(victim: &Node, attacks: &[Attack], what: &str, holds: impl FnMut() -> bool) -> Tally {
    let tally = Tally::default();
    let plan = plan(victim, attacks);
    tokio::select! {
        outcome = hostile::run(&plan, &tally) => outcome.map(drop).unwrap(),
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
        (Attack::GossipFrames, "sends gossip frames that are larger than any"),
        (Attack::GossipFlood, "signs too much gossip"),
        (Attack::AskGarbage, "sends invalid requests"),
        (Attack::AskFlood, "sends too many requests"),
        (Attack::Holds, "sends too many requests"),
        (Attack::LyingAnswers, "gives invalid answers"),
        (Attack::DhtRecords, "puts invalid records"),
    ] {
        let victim = node_with(&[], |config| {
            over_tcp(config);
            config.intervals.exchange = Duration::from_millis(20);
        })
        .await;
        victim.discovery.publish_advert("victim".to_owned(), None, vec![host("h1", 4, "x86_64")]).unwrap();
        attack_until(&victim, &[attack], attack.name(), || !victim.discovery.status().bans.is_empty()).await;
        let ban = victim.discovery.status().bans.remove(0);
        assert_eq!((ban.why, ban.times), (why, 1), "{attack}");
        assert!(ban.remaining > Millis(590_000) && ban.remaining <= Millis(600_000));
        eventually("it is disconnected", || !victim.discovery.status().connected.contains(&ban.site)).await;
        assert!(counter(&victim, Counter::PeersBanned) >= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_banned_peer_is_refused_until_its_ban_ends() {
    let victim = node_with(&[], |config| config.intervals.ban_first = Duration::from_secs(2)).await;
    let identity = Identity::generate().unwrap();
    let (config, _) = config(&identity);
    let mut swarm = build_swarm(&identity.keypair().unwrap(), &config, Arc::default()).unwrap();
    let address = victim.discovery.listen_addresses().remove(0);
    let topic = adverts_topic(&config.grid);
    let mut number = 0_u32;
    let start = Instant::now();
    swarm.dial(address.clone()).unwrap();
    loop {
        let status = victim.discovery.status();
        assert!(start.elapsed() < DEADLINE, "{status:?}");
        let is_banned = !status.bans.is_empty();
        let was_refused = counter(&victim, Counter::ConnectionsRefusedBanned) > 0;
        if was_refused && !is_banned && status.connected.contains(identity.site_id()) {
            break;
        }
        // The time-out only lets the loop publish and dial again; an event or none, both are fine.
        if let Ok(SwarmEvent::ConnectionClosed { .. } | SwarmEvent::OutgoingConnectionError { .. }) =
            tokio::time::timeout(Duration::from_millis(5), swarm.select_next_some()).await
        {
            swarm.dial(address.clone()).unwrap();
        }
        number += 1;
        if !is_banned && !was_refused {
            let _ = swarm.behaviour_mut().gossip.publish(topic.clone(), number.to_be_bytes().repeat(20));
        }
    }
    assert_eq!(counter(&victim, Counter::PeersBanned), 1, "it was let in again, and stayed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_are_cut_off() {
    let victim = node_with(&[], |config| {
        over_tcp(config);
        config.intervals.request_arrival = Duration::from_millis(200);
    })
    .await;
    attack_until(&victim, &[Attack::AskSlow], "slow requests are cut", || counter(&victim, Counter::AsksInSlow) >= 10)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_of_one_address_stay_few_and_silent_ones_are_closed() {
    let victim = node_with(&[], |config| {
        over_tcp(config);
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
async fn fresh_identities_wait_for_their_handshakes_and_a_new_member_comes_in_among_them() {
    let victim = node_with(&[], |config| {
        over_tcp(config);
        config.limits.inbound_guarded_per_s = 4;
    })
    .await;
    victim.discovery.publish_advert("victim".to_owned(), None, vec![host("h1", 4, "x86_64")]).unwrap();
    let (tally, plan) = (Tally::default(), plan(&victim, &[Attack::GossipFrames, Attack::Connections]));
    let work = async {
        eventually("they wait", || counter(&victim, Counter::ConnectionsWaited) >= 4).await;
        let (start, banned) = (Instant::now(), counter(&victim, Counter::PeersBanned));
        let friend = node_with(&victim.discovery.listen_addresses(), over_tcp).await;
        let (own, other) = (victim.discovery.site_id(), friend.discovery.site_id());
        eventually("the new member is in", || {
            friend.discovery.view().version(own).is_some() && victim.discovery.status().connected.contains(other)
        })
        .await;
        let more_banned = eventually("the attack goes on", || counter(&victim, Counter::PeersBanned) >= banned + 4);
        more_banned.await;
        // Turns are half of their mean apart at least, and one may have been let in before.
        let most = start.elapsed().as_secs() * 8 + 9;
        let banned = counter(&victim, Counter::PeersBanned) - banned;
        assert!(banned <= most, "{banned} identities were banned, {most} may have come in");
    };
    tokio::select! {
        outcome = hostile::run(&plan, &tally) => outcome.map(drop).unwrap(),
        () = work => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_made_up_before_the_ban_is_not_believed() {
    let victim = node_with(&[], |config| {
        over_tcp(config);
        config.intervals.settling = Duration::ZERO;
        config.intervals.probation = Duration::from_secs(60);
    })
    .await;
    let attacks = [Attack::GossipFreshIdentities, Attack::GossipGarbage];
    let banned = || counter(&victim, Counter::PeersBanned) >= 2;
    let tally = attack_until(&victim, &attacks, "two are banned", banned).await;
    assert!(tally.sent_by(Attack::GossipFreshIdentities) > 0);
    assert_eq!(victim.discovery.view().site_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_full_of_connections_still_opens_its_own() {
    let victim = node_with(&[], |config| {
        over_tcp(config);
        config.limits.connections_max = 16;
    })
    .await;
    let mut friend = node_with(&[], over_tcp).await;
    friend.discovery.publish_advert("friend".to_owned(), None, vec![host("h1", 4, "x86_64")]).unwrap();
    let full = || counter(&victim, Counter::ConnectionsRefusedFull) >= 5;
    attack_until(&victim, &[Attack::Connections], "the victim is full", full).await;
    let address = friend.discovery.listen_addresses();
    let own = node_with(&address, over_tcp).await;
    let site = friend.discovery.site_id().clone();
    let (asked, _) = tokio::join!(
        own.discovery.ask(&site, inquiry(&own), Millis(5000)),
        answer_next(&mut friend, SiteAnswer::Settled)
    );
    assert_eq!(asked, Ok(SiteAnswer::Settled));
    assert!(victim.discovery.status().connected.len() <= 12, "a quarter is kept for its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_sites_push_out_nobody_who_answers() {
    let victim = node_with(&[], |config| {
        over_tcp(config);
        config.limits.sites_max = 12;
    })
    .await;
    let mut friends = Vec::new();
    for number in 0..3 {
        let friend = node_with(&victim.discovery.listen_addresses(), over_tcp).await;
        friend.discovery.publish_advert(format!("{number}"), None, vec![host("h1", 4, "x86_64")]).unwrap();
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
        over_tcp(config);
        config.gossip = false;
        config.limits.find_sites_max = 40;
    })
    .await;
    let (tally, plan) = (Tally::default(), plan(&victim, &[Attack::DhtProviders]));
    let search = async {
        let is_met = || !victim.discovery.status().addresses_worth_remembering.is_empty();
        eventually("the attacker is in the routing table", is_met).await;
        let mut found = 0;
        while counter(&victim, Counter::ProvidersUnverified) == 0 {
            found += victim.discovery.find(query(50), 1).await.hosts.len();
        }
        let unverified = counter(&victim, Counter::ProvidersUnverified);
        found += victim.discovery.find(query(50), 2).await.hosts.len();
        (found, unverified, counter(&victim, Counter::ProvidersUnverified))
    };
    let (found, unverified, later) = tokio::select! {
        outcome = hostile::run(&plan, &tally) => outcome.map(|never| match never {}).unwrap(),
        counts = tokio::time::timeout(DEADLINE, search) => counts.unwrap(),
    };
    assert_eq!(found, 0, "what no advert proves is not found");
    assert!((1..=40).contains(&unverified), "{unverified}");
    assert!(later <= 80, "{later}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_nodes_go_on_under_everything_at_once() {
    let mut victim = node_with(&[], over_tcp).await;
    victim.discovery.publish_advert("victim".to_owned(), None, vec![host("h1", 4, "x86_64")]).unwrap();
    let friend = node_with(&victim.discovery.listen_addresses(), over_tcp).await;
    let site = victim.discovery.site_id().clone();
    eventually("they know each other", || friend.discovery.view().version(&site).is_some()).await;
    let (tally, plan) = (Tally::default(), plan(&victim, &Attack::ALL));
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
        outcome = hostile::run(&plan, &tally) => outcome.map(drop).unwrap(),
        done = tokio::time::timeout(DEADLINE, work) => done.unwrap(),
    }
    let honest = friend.discovery.site_id();
    assert!(victim.discovery.status().bans.iter().all(|ban| ban.site != *honest));
    assert!(friend.discovery.status().bans.iter().all(|ban| ban.site != site), "what a victim passes on is valid");
}
