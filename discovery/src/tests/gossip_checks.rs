//! Messages that no honest node sends: each is dropped and counted by its reason, and the node goes on.

use libp2p::{PeerId, gossipsub};

use super::*;
use crate::{
    admission::{BanTerms, Conduct, Offence},
    dissemination::{Checker, Checks, Gossip, Verdict},
    swarm_task::build_swarm,
    wire::{
        ASK_VERSIONS, bundle,
        names::{adverts_topic, schedules_topic},
    },
};

/// On the clock by which budgets come back.
const NOW: Millis = Millis(0);

/// The gossip part of a node, without a swarm.
struct Receiver {
    gossip: Gossip,
    checker: Checker,
}

impl Receiver {
    /// Lets the signatures of what a neighbour brings be checked before anything else comes.
    fn receive(&mut self, from: PeerId, message: &gossipsub::Message, conduct: &Conduct, now: Millis) -> Verdict {
        if let Some(verdict) = self.begin(from, message, conduct, now) {
            return verdict;
        }
        self.checker.check_one();
        self.end(conduct, now)
    }

    fn begin(&mut self, from: PeerId, message: &gossipsub::Message, conduct: &Conduct, now: Millis) -> Option<Verdict> {
        self.gossip.receive(from, gossipsub::MessageId::new(b"any"), message, conduct, now)
    }

    fn end(&mut self, conduct: &Conduct, now: Millis) -> Verdict {
        let checked = self.gossip.checks.take().unwrap();
        self.gossip.checked(checked, conduct, now)
    }
}

fn gossip() -> (Receiver, Arc<Shared>) {
    let shared = shared_alone();
    let (checks, checker) = Checks::new(Arc::clone(&shared));
    (Receiver { gossip: Gossip::new(Arc::clone(&shared), checks), checker }, shared)
}

fn conduct(shared: &Shared) -> Conduct {
    let times = &shared.config.intervals;
    Conduct::new(BanTerms { first: times.ban_first, longest: times.ban_longest, bans_max: 8 })
}

fn message(data: Vec<u8>, topic: &gossipsub::IdentTopic) -> gossipsub::Message {
    gossipsub::Message { source: None, data, sequence_number: None, topic: topic.hash() }
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
        let verdict = gossip.receive(PeerId::random(), &message(data, &topic), &conduct, NOW);
        assert_eq!(shared.counters.get(counter), before + 1, "{counter:?}");
        assert_eq!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Reject), is_rejected, "{counter:?}");
    }
    assert_eq!(shared.view.site_count(), 0);

    let accepted = gossip.receive(PeerId::random(), &message(good.clone(), &topic), &conduct, NOW);
    assert!(matches!(accepted.acceptance, gossipsub::MessageAcceptance::Accept));
    let repeated = gossip.receive(PeerId::random(), &message(good.clone(), &topic), &conduct, NOW);
    assert!(matches!(repeated.acceptance, gossipsub::MessageAcceptance::Ignore));
    assert_eq!(shared.counters.get(Counter::DroppedStale), 1);
    let misplaced =
        gossip.receive(PeerId::random(), &message(good, &schedules_topic(&shared.config.grid)), &conduct, NOW);
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
        blamed.extend(gossip.receive(bringer, &message(data, &topic), &conduct, NOW).blame);
    }
    let taken = u64::from(shared.config.limits.gossip_per_author_in_10_s);
    assert_eq!(shared.counters.get(Counter::AdvertsApplied), taken);
    assert_eq!(shared.counters.get(Counter::DroppedFlood), 250 - taken);
    assert_eq!(blamed, [], "another's flood is dropped unread, so nothing is proven");
    let data = sealed(&stranger, "test", now, advert(&stranger, 999));
    let verdict = gossip.receive(stranger.peer_id(), &message(data, &topic), &conduct, NOW);
    assert_eq!(verdict.blame, Some((stranger.peer_id(), Offence::GossipFlood)), "its own neighbour knows");

    let garbage = gossip.receive(bringer, &message(vec![7; 40], &topic), &conduct, NOW);
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
        gossip.receive(PeerId::random(), &message(forged, &topic), &conduct, NOW);
    }
    let data = sealed(&honest, "test", now, advert(&honest, 1));
    let verdict = gossip.receive(PeerId::random(), &message(data, &topic), &conduct, NOW);
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
        let verdict = gossip.receive(bringer, &message(data, &topic), &conduct, NOW);
        assert_eq!(verdict.blame, None, "an honest neighbour may pass on what it took for news");
    }
    assert_eq!(shared.counters.get(Counter::DroppedNewcomers), 10);
    assert!(shared.view.site_count() <= 10, "the view keeps to its size");

    let banned = strangers[0].peer_id();
    assert!(conduct.note(banned, Offence::GossipRules, shared.clock.now()).is_some());
    let data = sealed(&strangers[0], "test", now, advert(&strangers[0], 2));
    gossip.receive(bringer, &message(data, &topic), &conduct, NOW);
    assert_eq!(shared.counters.get(Counter::DroppedBanned), 1);

    let overload = 2 * u64::from(shared.config.limits.gossip_in_10_s);
    let stale = message(sealed(&strangers[1], "test", now, advert(&strangers[1], 1)), &topic);
    let blamed = (0..overload).filter(|_| gossip.receive(bringer, &stale, &conduct, NOW).blame.is_some()).count();
    assert_eq!(blamed as u64, newcomers + 10 + 1, "what is above twice the share of an honest neighbour");
    assert_eq!(gossip.receive(bringer, &stale, &conduct, NOW).blame, Some((bringer, Offence::GossipOverload)));
}

/// An update of a site that says that its change number `change` came.
fn update(of: &Identity, sequence: u64, sent_ms: u64) -> Vec<u8> {
    let from = LedgerVersion { incarnation: 1, change: sequence };
    let update = ScheduleUpdate { site: of.site_id().clone(), from, changes: Vec::new() };
    let stamp = Stamp { sequence, sent_ms, time_to_live: Millis(60_000) };
    wire::seal(of, &GridId::new("test").unwrap(), stamp, Payload::Update(update)).unwrap()
}

#[test]
fn copies_that_come_while_the_first_is_checked_are_copies_and_what_finds_no_room_is_nobodys_fault() {
    let (mut gossip, shared) = gossip();
    let honest = Identity::generate().unwrap();
    let conduct = conduct(&shared);
    let (adverts, schedules) = (adverts_topic(&shared.config.grid), schedules_topic(&shared.config.grid));
    let now = shared.clock.utc_ms();
    let known = gossip.receive(
        PeerId::random(),
        &message(sealed(&honest, "test", now, advert(&honest, 1)), &adverts),
        &conduct,
        NOW,
    );
    assert!(matches!(known.acceptance, gossipsub::MessageAcceptance::Accept));

    let bundle = message(bundle::bundle_of(1, &update(&honest, 5, now)), &schedules);
    assert!(gossip.begin(PeerId::random(), &bundle, &conduct, NOW).is_none());
    let copy = gossip.begin(PeerId::random(), &bundle, &conduct, NOW);
    assert!(copy.is_some_and(|verdict| verdict.blame.is_none()));
    assert_eq!(shared.counters.get(Counter::UpdateCopies), 1);
    gossip.checker.check_one();
    assert!(gossip.end(&conduct, NOW).blame.is_none());

    let bringer = PeerId::random();
    let mut begun = 0;
    let refused = (6..).find_map(|sequence| {
        let bundle = message(bundle::bundle_of(u128::from(sequence), &update(&honest, sequence, now)), &schedules);
        begun += 1;
        gossip.begin(bringer, &bundle, &conduct, NOW)
    });
    assert!(refused.is_some_and(|verdict| verdict.blame.is_none()), "after {begun}");
    assert_eq!(shared.counters.get(Counter::DroppedOverload), 1);
    gossip.checker.check_one();
    gossip.end(&conduct, NOW);
    let next = message(bundle::bundle_of(0, &update(&honest, 100_000, now)), &schedules);
    assert!(gossip.begin(bringer, &next, &conduct, NOW).is_none(), "there is room again");
}

#[test]
fn a_bundle_is_heard_up_to_the_first_update_that_its_bringer_could_have_refused() {
    let (mut gossip, shared) = gossip();
    let (honest, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let conduct = conduct(&shared);
    let topic = schedules_topic(&shared.config.grid);
    let now = shared.clock.utc_ms();
    for site in [&honest, &other] {
        gossip.receive(
            PeerId::random(),
            &message(sealed(site, "test", now, advert(site, 1)), &adverts_topic(&shared.config.grid)),
            &conduct,
            NOW,
        );
    }
    let bundle_with = |name: u128, envelopes: &[&[u8]]| {
        let mut bytes = bundle::bundle_of(name, envelopes[0]);
        for envelope in &envelopes[1..] {
            bytes.extend_from_slice(&bundle::bundle_of(0, envelope)[bundle::NAME_BYTES..]);
        }
        message(bytes, &topic)
    };
    let (first, second, own) = (update(&honest, 5, now), update(&other, 6, now), update(&shared.identity, 7, now));
    let bringer = PeerId::random();
    let mut receive = |message: &gossipsub::Message| gossip.receive(bringer, message, &conduct, NOW);

    let verdict = receive(&bundle_with(1, &[&first, &own]));
    assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Ignore) && verdict.blame.is_none());
    assert_eq!(shared.counters.get(Counter::UpdateCopies), 1, "its own words come back to a node");
    receive(&bundle_with(2, &[&first, &first]));
    assert_eq!(shared.counters.get(Counter::UpdateCopies), 3);

    let mut forged = update(&other, 8, now);
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let verdict = receive(&bundle_with(3, &[&first, &forged, &second]));
    assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Reject));
    assert_eq!(verdict.blame, Some((bringer, Offence::InvalidGossip)));
    let verdict = receive(&bundle_with(4, &[&second]));
    assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Ignore), "what stood behind it is still news");
    assert_eq!(shared.counters.get(Counter::UpdateCopies), 4);
    // A true update under the number of the forged one is no copy of it.
    let verdict = receive(&bundle_with(5, &[&update(&other, 8, now)]));
    assert!(verdict.blame.is_none() && shared.counters.get(Counter::UpdateCopies) == 4);

    for (bytes, counter) in [
        (Vec::new(), Counter::DroppedMalformed),
        (vec![0; bundle::NAME_BYTES], Counter::DroppedMalformed),
        (bundle_with(6, &[&sealed(&honest, "test", now, advert(&honest, 9))]).data, Counter::DroppedInvalid),
        (vec![9; bundle::BUNDLE_BYTES_MAX + 1], Counter::DroppedOversized),
    ] {
        let before = shared.counters.get(counter);
        let verdict = receive(&message(bytes, &topic));
        assert!(matches!(verdict.acceptance, gossipsub::MessageAcceptance::Reject), "{counter:?}");
        assert_eq!(shared.counters.get(counter), before + 1, "{counter:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_survives_garbage_from_a_real_neighbour() {
    // A neighbour of the right grid that skips every check on what it sends.
    use futures::StreamExt as _;

    let nodes = grid(2, |_| ()).await;
    let identity = Identity::generate().unwrap();
    let (config, _) = config(&identity);
    let topic = adverts_topic(&config.grid);
    let mut swarm =
        build_swarm(&identity.keypair().unwrap(), &config, (ASK_VERSIONS, &Arc::default()), Arc::default()).unwrap();
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
