//! Messages that no honest node sends: each is dropped and counted by its reason, and the node goes on.

use broker::protocol::Advert;
use libp2p::{PeerId, gossipsub};

use super::*;
use crate::{
    behaviour::{adverts_topic, schedules_topic},
    counters::Counters,
    repair::Wanted,
    shared::Shared,
    swarm_task::Gossip,
    view::SharedView,
    wire::{self, Payload, Stamp},
};

/// The gossip part of a node, without a swarm.
fn gossip() -> (Gossip, Arc<Shared>) {
    let identity = Identity::generate().unwrap();
    let (config, _) = config(&identity);
    let counters = Arc::new(Counters::default());
    let wanted = Wanted::new(10, Duration::ZERO);
    let view = SharedView::new(identity.site_id().clone(), 10, wanted, Arc::clone(&counters));
    let shared = Arc::new(Shared::new(identity, config, view, counters));
    (Gossip::new(Arc::clone(&shared)), shared)
}

fn message(data: Vec<u8>, topic: &gossipsub::IdentTopic) -> gossipsub::Message {
    gossipsub::Message { source: None, data, sequence_number: None, topic: topic.hash() }
}

pub(crate) fn advert(of: &Identity, sequence: u64) -> Advert {
    Advert {
        site: of.site_id().clone(),
        name: "stranger".to_owned(),
        sequence,
        time_to_live_s: 60,
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
        let verdict = gossip.hear(PeerId::random(), &message(data, &topic));
        assert_eq!(shared.counters.get(counter), before + 1, "{counter:?}");
        assert_eq!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Reject), is_rejected, "{counter:?}");
    }
    assert_eq!(shared.view.site_count(), 0);

    let accepted = gossip.hear(PeerId::random(), &message(good.clone(), &topic));
    assert!(matches!(accepted.acceptance, gossipsub::MessageAcceptance::Accept));
    let repeated = gossip.hear(PeerId::random(), &message(good.clone(), &topic));
    assert!(matches!(repeated.acceptance, gossipsub::MessageAcceptance::Ignore));
    assert_eq!(shared.counters.get(Counter::DroppedStale), 1);
    let misplaced = gossip.hear(PeerId::random(), &message(good, &schedules_topic(&shared.config.grid)));
    assert!(matches!(misplaced.acceptance, gossipsub::MessageAcceptance::Reject));
}

#[test]
fn floods_are_cut_and_their_bringers_disconnected() {
    let (mut gossip, shared) = gossip();
    let stranger = Identity::generate().unwrap();
    let topic = adverts_topic(&shared.config.grid);
    let now = shared.clock.utc_ms();
    for sequence in 1..=250 {
        let data = sealed(&stranger, "test", now, advert(&stranger, sequence));
        gossip.hear(PeerId::random(), &message(data, &topic));
    }
    let taken = u64::from(shared.config.limits.gossip_per_author_in_10_s);
    assert_eq!(shared.counters.get(Counter::AdvertsApplied), taken);
    assert_eq!(shared.counters.get(Counter::DroppedFlood), 250 - taken);

    let bringer = PeerId::random();
    let verdicts = (0_u8..60).map(|byte| gossip.hear(bringer, &message(vec![byte; 40], &topic)).disconnect);
    assert_eq!(verdicts.filter(|disconnect| *disconnect).count(), 10, "50 are let pass");
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
