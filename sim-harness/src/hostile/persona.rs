//! One identity of an attacker: it connects to all targets and does everything of its plan until they have thrown it
//! out, or for [`LIFE`]; then the next one comes.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::Ipv4Addr,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use broker::{host::Host, ids::SiteId, protocol::SiteRequest, time::Millis};
use discovery::{
    Identity, Multiaddr, PeerId,
    identity::site_of_peer,
    index,
    wire::{self, WireRequest, names},
};
use futures::{FutureExt as _, StreamExt as _};
use libp2p::{
    Swarm, gossipsub, identify,
    kad::{self, ProviderRecord, Record, RecordKey, store::RecordStore as _},
    multiaddr::Protocol,
    ping,
    request_response::{self, ProtocolSupport},
    swarm::{self, NetworkBehaviour, SwarmEvent},
};
use tokio::time;

use super::{
    plan::{Attack, AttackPlan, Tally},
    raw::{RawAsk, RawCodec},
    transport,
    words::{Words, granted_in, hosts_in},
};

#[derive(NetworkBehaviour)]
struct Behaviour {
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    kad: kad::Behaviour<kad::store::MemoryStore>,
    gossip: gossipsub::Behaviour,
    ask: request_response::Behaviour<RawCodec>,
}

/// How long one identity goes on when nobody throws it out.
const LIFE: Duration = Duration::from_secs(60);
/// How long it waits for a first connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// Requests under way to one target.
const ASKS_OPEN_MAX: usize = 200;
/// Queries of the DHT under way.
const QUERIES_OPEN_MAX: usize = 16;
/// Between two requests of a patient attack to one target: far below what a node takes from anybody.
const PATIENT_PAUSE: Duration = Duration::from_millis(100);
/// A day's worth of reservations is of two windows, a little shorter than an open grid's longest.
const HOARD_SECONDS: i64 = 12 * 3600 - 60;
/// Windows one after the other until the farthest that an open grid promises.
const HOARD_WINDOWS: u64 = 13;
/// How long a blocking attack asks to hold: each lapse brings the next hold.
const BLOCK_FOR: Millis = Millis(5_000);
/// Messages of each kind in one round; between rounds the network gets its turn.
const ROUND: usize = 16;
/// Events taken between two rounds.
const EVENTS: usize = 256;
/// Providers that do not exist under each key.
const BOGUS_PROVIDERS: usize = 200;

/// Attacks under one identity after the other, for ever.
pub async fn one_after_the_other(plan: &AttackPlan, tally: &Tally) -> anyhow::Result<Infallible> {
    loop {
        tally.count(|deeds| deeds.identities += 1);
        let identity = Identity::generate()?;
        let Some(words) = Words::new(plan.grid.clone(), identity.clone()) else { return std::future::pending().await };
        let swarm = swarm(plan, &identity)?;
        let (open, slow) = (BTreeMap::new(), BTreeSet::new());
        let (offers, asked) = (BTreeMap::new(), BTreeMap::new());
        Persona { plan, tally, swarm, words, open, slow, offers, asked }.live().await;
    }
}

struct Persona<'a> {
    plan: &'a AttackPlan,
    tally: &'a Tally,
    swarm: Swarm<Behaviour>,
    words: Words,
    /// Connected targets and the requests under way to them.
    open: BTreeMap<PeerId, usize>,
    /// Targets that have their slow requests.
    slow: BTreeSet<PeerId>,
    /// What the targets offer.
    offers: BTreeMap<PeerId, (SiteId, Vec<Host>)>,
    /// The incarnations of the targets' ledgers, and how many requests a patient attack has sent to each.
    asked: BTreeMap<PeerId, (u64, u64)>,
}

impl Persona<'_> {
    async fn live(mut self) {
        self.listen().await;
        for target in &self.plan.targets {
            // An address that cannot be dialled is tried again by the next identity.
            let _ = self.swarm.dial(target.clone());
        }
        let born = Instant::now();
        let mut was_connected = false;
        while born.elapsed() < LIFE {
            if self.open.is_empty() {
                if was_connected || born.elapsed() > PATIENCE {
                    return;
                }
                if let Ok(event) = time::timeout(PATIENCE, self.swarm.select_next_some()).await {
                    self.on_event(event);
                }
                continue;
            }
            if !was_connected {
                self.poison_store();
            }
            was_connected = true;
            for _ in 0..EVENTS {
                let Some(event) = self.swarm.select_next_some().now_or_never() else { break };
                self.on_event(event);
            }
            if let Some(attack) = self.plan.patient() {
                self.ask_patiently(attack);
                time::sleep(PATIENT_PAUSE).await;
                continue;
            }
            self.gossip();
            self.ask();
            self.put();
            tokio::task::yield_now().await;
        }
    }

    /// Only who says from the beginning where it listens gets into the routing tables of others; connections are dialled from there.
    async fn listen(&mut self) {
        for place in transport::places(self.plan.from) {
            if self.swarm.listen_on(place).is_ok() {
                let listening =
                    async { while !matches!(self.swarm.select_next_some().await, SwarmEvent::NewListenAddr { .. }) {} };
                // Without, the other attacks go on.
                let _ = time::timeout(PATIENCE, listening).await;
            }
        }
    }

    fn does(&self, attack: Attack) -> bool {
        self.plan.has(attack)
    }

    fn gossip(&mut self) {
        let (adverts, schedules) = (names::adverts_topic(&self.plan.grid), names::schedules_topic(&self.plan.grid));
        type Message = fn(&mut Words) -> Vec<u8>;
        let messages: [(Attack, _, Message); 4] = [
            (Attack::GossipGarbage, &schedules, |words| words.garbage(200)),
            (Attack::GossipForged, &adverts, Words::forged),
            (Attack::GossipFreshIdentities, &adverts, Words::fresh_advert),
            (Attack::GossipFlood, &adverts, Words::own_advert),
        ];
        for _ in 0..ROUND {
            for (attack, topic, message) in messages {
                if self.does(attack) {
                    let data = message(&mut self.words);
                    self.publish(attack, topic, data);
                }
            }
        }
        if self.does(Attack::GossipOversized) {
            let large = self.words.large(wire::UPDATE_BYTES_MAX + 10_000);
            self.publish(Attack::GossipOversized, &schedules, large);
        }
    }

    fn publish(&mut self, attack: Attack, topic: &gossipsub::IdentTopic, data: Vec<u8>) {
        if self.swarm.behaviour_mut().gossip.publish(topic.clone(), data).is_ok() {
            self.tally.sent(attack);
        }
    }

    fn ask(&mut self) {
        let targets: Vec<PeerId> = self.open.keys().copied().collect();
        for target in targets {
            if self.does(Attack::AskSlow) && self.slow.insert(target) {
                (0..ROUND).for_each(|_| self.send(Attack::AskSlow, target, RawAsk::Slowly));
            }
            for _ in 0..ROUND {
                if self.does(Attack::AskFlood) {
                    let ask = self.words.ask();
                    self.send(Attack::AskFlood, target, RawAsk::Bytes(ask));
                }
                if self.does(Attack::AskGarbage) {
                    let garbage = self.words.garbage(100);
                    self.send(Attack::AskGarbage, target, RawAsk::Bytes(garbage));
                }
                if self.does(Attack::Holds) {
                    let bytes = match self.offers.get(&target) {
                        Some((site, hosts)) => self.words.hold(site, hosts),
                        None => Words::ask_for_advert(),
                    };
                    self.send(Attack::Holds, target, RawAsk::Bytes(bytes));
                }
            }
            if self.does(Attack::AskGarbage) {
                let large = self.words.large(wire::REQUEST_BYTES_MAX + 100_000);
                self.send(Attack::AskGarbage, target, RawAsk::Bytes(large));
            }
        }
    }

    /// One request to each target: for each of its hosts and each window in turn.
    fn ask_patiently(&mut self, attack: Attack) {
        let targets: Vec<PeerId> = self.open.keys().copied().collect();
        for target in targets {
            let Some((site, hosts)) = self.offers.get(&target).filter(|(_, hosts)| !hosts.is_empty()) else {
                self.send(attack, target, RawAsk::Bytes(Words::ask_for_advert()));
                continue;
            };
            let (incarnation, number) = self.asked.entry(target).or_default();
            let count = hosts.len() as u64;
            let host = &hosts[usize::try_from(*number % count).unwrap_or_default()];
            let window = i64::try_from(*number / count % HOARD_WINDOWS).unwrap_or_default();
            *number += 1;
            let when = (60 + window * (HOARD_SECONDS + 60), HOARD_SECONDS);
            let Some(hold) = self.words.whole(site, host, when, BLOCK_FOR) else { continue };
            let request = match attack {
                Attack::Hoard => SiteRequest::Book { hold, incarnation: *incarnation },
                _ => SiteRequest::Hold(hold),
            };
            self.send(attack, target, RawAsk::Bytes(wire::request_bytes(&WireRequest::Site(request))));
        }
    }

    fn send(&mut self, attack: Attack, target: PeerId, ask: RawAsk) {
        let Some(open) = self.open.get_mut(&target) else { return };
        if *open < ASKS_OPEN_MAX {
            *open += 1;
            self.swarm.behaviour_mut().ask.send_request(&target, ask);
            self.tally.sent(attack);
        }
    }

    /// Puts providers that do not exist under the keys that every find may fall back on, to answer readers with.
    fn poison_store(&mut self) {
        if !self.does(Attack::DhtProviders) {
            return;
        }
        let keys = index::keys_of_all(&self.plan.grid);
        let store = self.swarm.behaviour_mut().kad.store_mut();
        // A provider without an address would not be told to anybody.
        let nowhere = vec![Multiaddr::from(Ipv4Addr::LOCALHOST).with(Protocol::Tcp(9))];
        for key in keys {
            for _ in 0..BOGUS_PROVIDERS {
                // A full store is as poisoned as it gets.
                let _ = store.add_provider(ProviderRecord::new(key.clone(), PeerId::random(), nowhere.clone()));
            }
        }
    }

    fn put(&mut self) {
        let does = (self.does(Attack::DhtRecords), self.does(Attack::DhtProviders));
        if does == (false, false) || self.swarm.behaviour_mut().kad.iter_queries().count() >= QUERIES_OPEN_MAX {
            return;
        }
        let garbage = self.words.garbage(400);
        let kad = &mut self.swarm.behaviour_mut().kad;
        if does.0
            && let Some(site) = site_of_peer(&PeerId::random())
        {
            let record = Record::new(index::advert_key(&self.plan.grid, &site), garbage.clone());
            if kad.put_record(record, kad::Quorum::One).is_ok() {
                self.tally.sent(Attack::DhtRecords);
            }
        }
        if does.1 && kad.start_providing(RecordKey::new(&&garbage[..32])).is_ok() {
            self.tally.sent(Attack::DhtProviders);
        }
    }

    fn on_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionEstablished { peer_id, .. } => {
                self.tally.count(|deeds| deeds.connections += 1);
                self.open.entry(peer_id).or_default();
            }
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, .. } => {
                self.tally.count(|deeds| deeds.thrown_out += 1);
                self.open.remove(&peer_id);
            }
            SwarmEvent::OutgoingConnectionError { .. } => self.tally.count(|deeds| deeds.thrown_out += 1),
            SwarmEvent::Behaviour(BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. })) => {
                for address in info.listen_addrs {
                    self.swarm.behaviour_mut().kad.add_address(&peer_id, address);
                }
            }
            SwarmEvent::Behaviour(BehaviourEvent::Ask(event)) => self.on_ask_event(event),
            _ => {}
        }
    }

    fn on_ask_event(&mut self, event: request_response::Event<RawAsk, Vec<u8>>) {
        match event {
            request_response::Event::Message {
                peer,
                message: request_response::Message::Response { response, .. },
                ..
            } => {
                self.tally.count(|deeds| deeds.answers += 1);
                self.closed(&peer);
                if let (Some(attack), Some((is_granted, incarnation))) = (self.plan.patient(), granted_in(&response)) {
                    self.asked.entry(peer).or_default().0 = incarnation;
                    self.tally.count(|deeds| *deeds.granted.entry(attack).or_default() += u64::from(is_granted));
                }
                if (self.does(Attack::Holds) || self.plan.patient().is_some())
                    && !self.offers.contains_key(&peer)
                    && let Some(offer) = hosts_in(&response, &self.plan.grid)
                {
                    self.offers.insert(peer, offer);
                }
            }
            request_response::Event::Message {
                message: request_response::Message::Request { channel, .. }, ..
            } if self.does(Attack::LyingAnswers) => {
                self.tally.sent(Attack::LyingAnswers);
                let lie = self.words.lie();
                // An error says that the asker has gone.
                let _ = self.swarm.behaviour_mut().ask.send_response(channel, lie);
            }
            request_response::Event::OutboundFailure { peer, .. } => self.closed(&peer),
            _ => {}
        }
    }

    fn closed(&mut self, peer: &PeerId) {
        if let Some(open) = self.open.get_mut(peer) {
            *open = open.saturating_sub(1);
        }
    }
}

fn swarm(plan: &AttackPlan, identity: &Identity) -> anyhow::Result<Swarm<Behaviour>> {
    let keypair = identity.keypair()?;
    let peer = keypair.public().to_peer_id();
    let transport = transport::build(&keypair, plan.from).context("the transport")?;
    let mut kad_config = kad::Config::new(names::kad_protocol(&plan.grid)?);
    kad_config.set_max_packet_size(wire::ADVERT_BYTES_MAX + 4096);
    let store = kad::store::MemoryStoreConfig {
        max_providers_per_key: BOGUS_PROVIDERS.max(kad::K_VALUE.get()),
        ..kad::store::MemoryStoreConfig::default()
    };
    let mut kad = kad::Behaviour::with_config(peer, kad::store::MemoryStore::with_config(peer, store), kad_config);
    kad.set_mode(Some(kad::Mode::Server));
    let behaviour = Behaviour {
        identify: identify::Behaviour::new(identify::Config::new(
            names::identify_protocol(&plan.grid),
            keypair.public(),
        )),
        ping: ping::Behaviour::default(),
        kad,
        gossip: gossip(plan)?,
        ask: request_response::Behaviour::with_codec(
            RawCodec,
            names::ask_protocols(&plan.grid, wire::ASK_VERSIONS)?
                .into_iter()
                .map(|protocol| (protocol, ProtocolSupport::Full)),
            request_response::Config::default().with_request_timeout(LIFE).with_max_concurrent_streams(1000),
        ),
    };
    let config = swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(LIFE)
        .with_notify_handler_buffer_size(NonZeroUsize::MIN.saturating_add(63));
    Ok(Swarm::new(transport, behaviour, peer, config))
}

/// Gossip that sends anything of any size and takes everything.
fn gossip(plan: &AttackPlan) -> anyhow::Result<gossipsub::Behaviour> {
    let topics = [names::adverts_topic(&plan.grid), names::schedules_topic(&plan.grid)];
    let config = gossipsub::ConfigBuilder::default()
        .protocol_id_prefix(names::gossip_prefix(&plan.grid))
        .validation_mode(gossipsub::ValidationMode::None)
        .message_id_fn(|message| {
            let mut hasher = DefaultHasher::new();
            message.data.hash(&mut hasher);
            gossipsub::MessageId::new(&hasher.finish().to_be_bytes())
        })
        .max_transmit_size(4 * wire::ADVERT_BYTES_MAX)
        .max_transmit_size_for_topic(4 * wire::ADVERT_BYTES_MAX, topics[0].hash())
        .max_transmit_size_for_topic(4 * wire::ADVERT_BYTES_MAX, topics[1].hash())
        .heartbeat_initial_delay(Duration::from_millis(50))
        .build()
        .context("gossip")?;
    let mut gossip =
        gossipsub::Behaviour::new(gossipsub::MessageAuthenticity::Anonymous, config).map_err(anyhow::Error::msg)?;
    for topic in &topics {
        gossip.subscribe(topic).context("gossip")?;
    }
    Ok(gossip)
}
