//! Messages that no honest node sends: each is dropped and counted by its reason, and the node goes on.

use broker::protocol::{Advert, LedgerVersion, ScheduleUpdate};
use libp2p::{PeerId, gossipsub};

use super::*;
use crate::{
    behaviour::{adverts_topic, schedules_topic},
    conduct::{BanTerms, Conduct, Offence},
    counters::Counters,
    relay,
    repair::Wanted,
    shared::Shared,
    swarm_task::Gossip,
    view::SharedView,
    wire::{self, Payload, Stamp},
};

/// The gossip part of a node, without a swarm.
pub(super) fn gossip() -> (Gossip, Arc<Shared>) {
    let identity = Identity::generate().unwrap();
    let (mut config, _) = config(&identity);
    config.intervals.settling = Duration::ZERO;
    let counters = Arc::new(Counters::default());
    let wanted = Wanted::new(10, Duration::ZERO, Duration::ZERO);
    let view = SharedView::new(identity.site_id().clone(), (10, 10), wanted, Arc::clone(&counters));
    let shared = Arc::new(Shared::new(identity, config, view, counters));
    (Gossip::new(Arc::clone(&shared)), shared)
}

pub(super) fn conduct(shared: &Shared) -> Conduct {
    let times = &shared.config.intervals;
    Conduct::new(BanTerms { first: times.ban_first, longest: times.ban_longest, bans_max: 8 })
}

pub(super) fn message(data: Vec<u8>, topic: &gossipsub::IdentTopic) -> gossipsub::Message {
    gossipsub::Message { source: None, data, sequence_number: None, topic: topic.hash() }
}

pub(crate) fn advert(of: &Identity, sequence: u64) -> Advert {
    Advert {
        site: of.site_id().clone(),
        name: "stranger".to_owned(),
        sequence,
        time_to_live_s: 60,
        contact: None,
        hosts: vec![host("h1", 4, "x86_64")],
        addresses: Vec::new(),
    }
}

pub(crate) fn sealed(by: &Identity, grid: &str, sent_ms: u64, advert: Advert) -> Vec<u8> {
    let stamp = Stamp { sequence: advert.sequence, sent_ms, time_to_live: Millis(60_000) };
    wire::seal(by, &GridId::new(grid).unwrap(), stamp, Payload::Advert(advert)).unwrap()
}

#[test]
fn every_bad_message_is_rejected_and_counted_by_its_reason() {
    let (mut gossip, shared) = gossip();
    let (stranger, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let conduct = conduct(&shared);
    let now = shared.clock.utc_ms();
    let topic = adverts_topic(&shared.config.grid);
    let good = sealed(&stranger, "test", now, advert(&stranger, 5));
    let mut forged = good.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let cases = [
        (vec![7; 300], Counter::DroppedMalformed, true),
        (vec![1; wire::ADVERT_BYTES_MAX + 1], Counter::DroppedOversized, true),
        (forged, Counter::DroppedUnsigned, true),
        (sealed(&stranger, "other", now, advert(&stranger, 5)), Counter::DroppedForeignGrid, true),
        (sealed(&other, "test", now, advert(&stranger, 5)), Counter::DroppedWrongAuthor, true),
        (sealed(&stranger, "test", now - 61_000, advert(&stranger, 5)), Counter::DroppedExpired, false),
        (sealed(&stranger, "test", now + 600_000, advert(&stranger, 5)), Counter::DroppedFromFuture, false),
    ];
    for (data, counter, is_rejected) in cases {
        let before = shared.counters.get(counter);
        let verdict = gossip.hear(PeerId::random(), &message(data, &topic), &conduct);
        assert_eq!(shared.counters.get(counter), before + 1, "{counter:?}");
        assert_eq!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Reject), is_rejected, "{counter:?}");
    }
    assert_eq!(shared.view.site_count(), 0);

    let accepted = gossip.hear(PeerId::random(), &message(good.clone(), &topic), &conduct);
    assert!(matches!(accepted.acceptance, gossipsub::MessageAcceptance::Accept));
    let repeated = gossip.hear(PeerId::random(), &message(good.clone(), &topic), &conduct);
    assert!(matches!(repeated.acceptance, gossipsub::MessageAcceptance::Ignore));
    assert_eq!(shared.counters.get(Counter::DroppedStale), 1);
    let misplaced = gossip.hear(PeerId::random(), &message(good, &schedules_topic(&shared.config.grid)), &conduct);
    assert!(matches!(misplaced.acceptance, gossipsub::MessageAcceptance::Reject));
}

#[test]
fn authors_are_blamed_for_floods_and_neighbours_for_what_they_could_have_checked() {
    let (mut gossip, shared) = gossip();
    let (stranger, bringer) = (Identity::generate().unwrap(), PeerId::random());
    let conduct = conduct(&shared);
    let topic = adverts_topic(&shared.config.grid);
    let now = shared.clock.utc_ms();
    let mut blamed = Vec::new();
    for sequence in 1..=250 {
        let data = sealed(&stranger, "test", now, advert(&stranger, sequence));
        blamed.extend(gossip.hear(bringer, &message(data, &topic), &conduct).blame);
    }
    let taken = u64::from(shared.config.limits.gossip_per_author_in_10_s);
    assert_eq!(shared.counters.get(Counter::AdvertsApplied), taken);
    assert_eq!(shared.counters.get(Counter::DroppedFlood), 250 - taken);
    assert_eq!(blamed, [], "another's flood is dropped unread, so nothing is proven");
    let data = sealed(&stranger, "test", now, advert(&stranger, 999));
    let verdict = gossip.hear(stranger.peer_id(), &message(data, &topic), &conduct);
    assert_eq!(verdict.blame, Some((stranger.peer_id(), Offence::GossipFlood)), "its own neighbour knows");

    let garbage = gossip.hear(bringer, &message(vec![7; 40], &topic), &conduct);
    assert_eq!(garbage.blame, Some((bringer, Offence::InvalidGossip)));
}

#[test]
fn a_forged_name_spends_nobodys_budget() {
    let (mut gossip, shared) = gossip();
    let honest = Identity::generate().unwrap();
    let conduct = conduct(&shared);
    let topic = adverts_topic(&shared.config.grid);
    let now = shared.clock.utc_ms();
    for sequence in 1..=500 {
        let mut forged = sealed(&honest, "test", now, advert(&honest, sequence));
        let last = forged.len() - 1;
        forged[last] ^= 1;
        gossip.hear(PeerId::random(), &message(forged, &topic), &conduct);
    }
    let data = sealed(&honest, "test", now, advert(&honest, 1));
    let verdict = gossip.hear(PeerId::random(), &message(data, &topic), &conduct);
    assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Accept));
}

#[test]
fn made_up_sites_and_overload_are_dropped_before_their_signature() {
    let (mut gossip, shared) = gossip();
    let bringer = PeerId::random();
    let mut conduct = conduct(&shared);
    let topic = adverts_topic(&shared.config.grid);
    let now = shared.clock.utc_ms();
    let newcomers = u64::from(shared.config.limits.newcomers_per_neighbour_in_10_s);
    let strangers: Vec<Identity> = (0..newcomers + 10).map(|_| Identity::generate().unwrap()).collect();
    for stranger in &strangers {
        let data = sealed(stranger, "test", now, advert(stranger, 1));
        let verdict = gossip.hear(bringer, &message(data, &topic), &conduct);
        assert_eq!(verdict.blame, None, "an honest neighbour may pass on what it took for news");
    }
    assert_eq!(shared.counters.get(Counter::DroppedNewcomers), 10);
    assert!(shared.view.site_count() <= 10, "the view keeps to its size");

    let banned = strangers[0].peer_id();
    assert!(conduct.note(banned, Offence::GossipRules, shared.clock.now()).is_some());
    let data = sealed(&strangers[0], "test", now, advert(&strangers[0], 2));
    gossip.hear(bringer, &message(data, &topic), &conduct);
    assert_eq!(shared.counters.get(Counter::DroppedBanned), 1);

    let overload = 2 * u64::from(shared.config.limits.gossip_in_10_s);
    let stale = message(sealed(&strangers[1], "test", now, advert(&strangers[1], 1)), &topic);
    let blamed = (0..overload).filter(|_| gossip.hear(bringer, &stale, &conduct).blame.is_some()).count();
    assert_eq!(blamed as u64, newcomers + 10 + 1, "what is above twice the share of an honest neighbour");
    assert_eq!(gossip.hear(bringer, &stale, &conduct).blame, Some((bringer, Offence::GossipOverload)));
}

/// An update of a site that says that its change number `change` came.
fn update(of: &Identity, sequence: u64, sent_ms: u64) -> Vec<u8> {
    let from = LedgerVersion { incarnation: 1, change: sequence };
    let update = ScheduleUpdate { site: of.site_id().clone(), from, changes: Vec::new() };
    let stamp = Stamp { sequence, sent_ms, time_to_live: Millis(60_000) };
    wire::seal(of, &GridId::new("test").unwrap(), stamp, Payload::Update(update)).unwrap()
}

#[test]
fn a_bundle_is_heard_up_to_the_first_update_that_its_bringer_could_have_refused() {
    let (mut gossip, shared) = gossip();
    let (honest, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let conduct = conduct(&shared);
    let topic = schedules_topic(&shared.config.grid);
    let now = shared.clock.utc_ms();
    for site in [&honest, &other] {
        gossip.hear(
            PeerId::random(),
            &message(sealed(site, "test", now, advert(site, 1)), &adverts_topic(&shared.config.grid)),
            &conduct,
        );
    }
    let bundle = |name: u128, envelopes: &[&[u8]]| {
        let mut bytes = relay::bundle_of(name, envelopes[0]);
        for envelope in &envelopes[1..] {
            bytes.extend_from_slice(&relay::bundle_of(0, envelope)[relay::NAME_BYTES..]);
        }
        message(bytes, &topic)
    };
    let (first, second, own) = (update(&honest, 5, now), update(&other, 6, now), update(&shared.identity, 7, now));
    let bringer = PeerId::random();
    let mut hear = |message: &gossipsub::Message| gossip.hear(bringer, message, &conduct);

    let verdict = hear(&bundle(1, &[&first, &own]));
    assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Ignore) && verdict.blame.is_none());
    assert_eq!(shared.counters.get(Counter::UpdateCopies), 1, "its own words come back to a node");
    hear(&bundle(2, &[&first, &first]));
    assert_eq!(shared.counters.get(Counter::UpdateCopies), 3);

    let mut forged = update(&other, 8, now);
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let verdict = hear(&bundle(3, &[&first, &forged, &second]));
    assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Reject));
    assert_eq!(verdict.blame, Some((bringer, Offence::InvalidGossip)));
    let verdict = hear(&bundle(4, &[&second]));
    assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Ignore), "what stood behind it is still news");
    assert_eq!(shared.counters.get(Counter::UpdateCopies), 4);
    // A true update under the number of the forged one is no copy of it.
    let verdict = hear(&bundle(5, &[&update(&other, 8, now)]));
    assert!(verdict.blame.is_none() && shared.counters.get(Counter::UpdateCopies) == 4);

    for (bytes, counter) in [
        (Vec::new(), Counter::DroppedMalformed),
        (vec![0; relay::NAME_BYTES], Counter::DroppedMalformed),
        (bundle(6, &[&sealed(&honest, "test", now, advert(&honest, 9))]).data, Counter::DroppedInvalid),
        (vec![9; relay::BUNDLE_BYTES_MAX + 1], Counter::DroppedOversized),
    ] {
        let before = shared.counters.get(counter);
        let verdict = hear(&message(bytes, &topic));
        assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Reject), "{counter:?}");
        assert_eq!(shared.counters.get(counter), before + 1, "{counter:?}");
    }
}

#[test]
fn what_a_new_neighbour_says_of_strangers_waits() {
    let (mut gossip, shared) = gossip();
    let (neighbour, friend) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let (nobody_banned, mut conduct) = (conduct(&shared), conduct(&shared));
    let topic = adverts_topic(&shared.config.grid);
    let mut number: u8 = 0;
    let mut receives = |gossip: &mut Gossip, from: &Identity, data: Vec<u8>| {
        number += 1;
        let id = gossipsub::MessageId::new(&[number]);
        let received = gossip.receive(from.peer_id(), (id.clone(), message(data, &topic)), &nobody_banned);
        received.map(|(heard, verdict)| {
            assert_eq!(heard, id);
            format!("{:?}", verdict.acceptance)
        })
    };
    let of = |site: &Identity, sequence| sealed(site, "test", shared.clock.utc_ms(), advert(site, sequence));
    let of_stranger = || of(&Identity::generate().unwrap(), 1);

    gossip.neighbour_comes(friend.peer_id());
    gossip.neighbour_comes(neighbour.peer_id());
    assert_eq!(receives(&mut gossip, &neighbour, of_stranger()), None);
    assert_eq!(receives(&mut gossip, &neighbour, of(&friend, 1)), None, "a stranger, too");
    assert_eq!(receives(&mut gossip, &friend, of(&friend, 1)).as_deref(), Some("Accept"), "it introduces itself");
    assert_eq!(receives(&mut gossip, &friend, of(&friend, 2)), None, "but once");
    assert_eq!(receives(&mut gossip, &neighbour, vec![7; 40]).as_deref(), Some("Reject"), "what anybody sees is wrong");
    let version = LedgerVersion { incarnation: 1, change: 0 };
    let snapshot = ScheduleSnapshot { site: friend.site_id().clone(), version, hosts: Vec::new() };
    shared.view.hear_snapshot(snapshot, shared.clock.now());
    assert_eq!(receives(&mut gossip, &neighbour, of(&friend, 3)).as_deref(), Some("Accept"), "it has answered");
    let refused = (0..70).filter(|_| receives(&mut gossip, &neighbour, of_stranger()).is_some()).count();
    assert_eq!((refused, shared.counters.get(Counter::DroppedNewcomers)), (8, 8), "62 places were left");

    assert!(gossip.due().is_some_and(|due| due <= shared.clock.now() + Millis(1_000)));
    gossip.neighbour_goes(&friend.peer_id());
    gossip.neighbour_goes(&neighbour.peer_id());
    assert_eq!((gossip.due(), shared.view.site_count()), (None, 1), "what waited has gone with its bringer");

    assert!(conduct.note(neighbour.peer_id(), Offence::GossipRules, shared.clock.now()).is_some());
    let received = (gossipsub::MessageId::new(b"late"), message(of_stranger(), &topic));
    assert!(gossip.receive(neighbour.peer_id(), received, &conduct).is_some());
    assert_eq!((shared.counters.get(Counter::DroppedBanned), shared.view.site_count()), (1, 1));
}

#[test]
fn while_an_attack_goes_on_sites_that_never_answered_share_a_small_budget() {
    let (mut gossip, shared) = gossip();
    let (friend, stranger) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let conduct = conduct(&shared);
    let topic = adverts_topic(&shared.config.grid);
    let now = shared.clock.utc_ms();
    let hears = |gossip: &mut Gossip, site: &Identity, sequence| {
        let data = sealed(site, "test", now, advert(site, sequence));
        let verdict = gossip.hear(PeerId::random(), &message(data, &topic), &conduct);
        matches!(verdict.acceptance, gossipsub::MessageAcceptance::Accept)
    };
    assert!(hears(&mut gossip, &friend, 1) && hears(&mut gossip, &stranger, 1));
    let version = LedgerVersion { incarnation: 1, change: 0 };
    let snapshot = ScheduleSnapshot { site: friend.site_id().clone(), version, hosts: Vec::new() };
    shared.view.hear_snapshot(snapshot, shared.clock.now());

    gossip.set_guarding(true);
    let budget = u64::from(shared.config.limits.newcomers_per_neighbour_in_10_s / 2);
    let heard = (2..=budget + 11).filter(|sequence| hears(&mut gossip, &stranger, *sequence)).count();
    assert_eq!(heard as u64, budget);
    assert_eq!(shared.counters.get(Counter::DroppedNewcomers), 10);
    assert!(hears(&mut gossip, &friend, 2), "who has answered is not affected");
    gossip.set_guarding(false);
    assert!(hears(&mut gossip, &stranger, budget + 12), "nor is anybody afterwards");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_survives_garbage_from_a_real_neighbour() {
    // A neighbour of the right grid that skips every check on what it sends.
    use futures::StreamExt as _;

    let nodes = grid(2, |_| ()).await;
    let identity = Identity::generate().unwrap();
    let (config, _) = config(&identity);
    let topic = adverts_topic(&config.grid);
    let mut swarm = crate::behaviour::build_swarm(&identity.keypair().unwrap(), &config, Arc::default()).unwrap();
    swarm.dial(nodes[0].discovery.listen_addresses().remove(0)).unwrap();
    let foreign = sealed(&identity, "other", 0, advert(&identity, 1));
    let start = Instant::now();
    let mut number = 0_u8;
    while counter(&nodes[0], Counter::DroppedMalformed) < 3 || counter(&nodes[0], Counter::DroppedForeignGrid) < 1 {
        assert!(start.elapsed() < DEADLINE, "{:?}", nodes[0].discovery.status().counters);
        let turn = Duration::from_millis(20);
        // The time-out only lets the loop publish again; an event or none, both are fine.
        let _ = tokio::time::timeout(turn, swarm.select_next_some()).await;
        number = number.wrapping_add(1);
        // Publishing fails until the neighbour has subscribed, and for repeated messages.
        let _ = swarm.behaviour_mut().gossip.publish(topic.clone(), vec![0, number]);
        let _ = swarm.behaviour_mut().gossip.publish(topic.clone(), foreign.clone());
    }
    assert_eq!(counter(&nodes[1], Counter::DroppedMalformed), 0, "what is invalid is not passed on");
    let site = nodes[1].discovery.site_id().clone();
    eventually("still works", || nodes[0].discovery.view().knows(&site)).await;
}
