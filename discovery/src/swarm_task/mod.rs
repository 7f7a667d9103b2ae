//! The one task that owns the swarm.
//!
//! Invariant: the loop never waits for anybody but the network, its timers and its bounded command queue: everything it
//! hands out goes through `try_send` or a one-shot channel, and what does not fit is refused with an error to whoever
//! asked. Answers that are ready go out before new requests are taken in.

mod asks;
mod dht;
mod dialling;
mod gossip;
mod peers;
mod policing;
mod publishing;
mod reunion;
mod serving;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use broker::time::Millis;
use futures::StreamExt as _;
use libp2p::{
    Multiaddr, PeerId, Swarm,
    core::ConnectedPoint,
    gossipsub, identify,
    kad::{self, QueryResult, RecordKey},
    ping,
    request_response::{self, OutboundRequestId},
    swarm::SwarmEvent,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{self, Instant},
};
use tracing::{debug, warn};

pub(crate) use self::{asks::AskCommand, gossip::Gossip, serving::Serving};
use self::{
    asks::{Asks, Wire, ask_error},
    dht::Dht,
    gossip::Received,
    peers::Peers,
    reunion::{Favour, Reunion},
};
use crate::{
    behaviour::{Behaviour, BehaviourEvent, FAVOUR, MESH, identify_protocol},
    codec::{Asked, Codec, WireAnswer, WireRequest},
    conduct::{Conduct, Offence},
    counters::Counter,
    identity::site_of_peer,
    pace::Leisure,
    seen::ip_of,
    shared::{Shared, millis},
};

/// What the handle and the background tasks want from the swarm.
#[derive(Debug)]
pub(crate) enum Command {
    Ask(Box<AskCommand>),
    Providers { key: RecordKey, reply: oneshot::Sender<BTreeSet<PeerId>> },
    Record { key: RecordKey, reply: oneshot::Sender<Option<Vec<u8>>> },
    Connect(Vec<(PeerId, Vec<Multiaddr>)>),
    Blame(PeerId, Offence),
    Renew,
    Leave(oneshot::Sender<()>),
}

impl Wire for request_response::Behaviour<Codec> {
    fn send(&mut self, peer: &PeerId, request: WireRequest, addresses: Vec<Multiaddr>) -> OutboundRequestId {
        self.send_request_with_addresses(peer, Asked::Request(request), addresses)
    }
}

/// The task's state.
pub(crate) struct SwarmTask {
    swarm: Swarm<Behaviour>,
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    asks: Asks,
    serving: Serving,
    dht: Dht,
    gossip: Gossip,
    peers: Peers,
    reunion: Reunion,
    conduct: Conduct,
    refresh_at: Millis,
    /// When the advert is put into the DHT again although it is not old.
    settle_at: Option<Millis>,
    index_at: Millis,
    /// When neighbours are looked for in the DHT again. At first libp2p does, until it knows some.
    neighbours_at: Millis,
    /// When the last put into the DHT began; the first one waits as if there had been one at the start, since a node knows
    /// only a moment later how large the grid is.
    put_began: Millis,
    /// When a request was last sent or answered.
    requested_at: Millis,
    past_forgotten_at: Millis,
    leaving: Option<(Instant, oneshot::Sender<()>)>,
}

/// The advert is soon put into the DHT again: what was published while the grid was forming went to nodes that are not the
/// closest.
const SETTLED_AFTER: Millis = Millis(15_000);
/// The same for the index, which is more work and less urgent.
const FIRST_INDEX_REFRESH: Millis = Millis(60_000);
/// How often the past of schedules is dropped.
const FORGET_PAST_EVERY: Millis = Millis(60_000);
/// Messages of those whose probation is over that are heard in one go: half a millisecond of signatures.
const HEARD_AT_ONCE: usize = 8;
/// A node that comes into company publishes after this, so that it knows some more nodes by then.
const PUBLISH_AFTER_FIRST_CONNECTION: Millis = Millis(300);

impl SwarmTask {
    pub(crate) fn new(
        swarm: Swarm<Behaviour>,
        shared: Arc<Shared>,
        commands: mpsc::Receiver<Command>,
        serving: Serving,
    ) -> SwarmTask {
        let now = shared.clock.now();
        SwarmTask {
            swarm,
            commands,
            asks: Asks::new(shared.config.limits.clone()),
            serving,
            dht: Dht::new(Arc::clone(&shared)),
            gossip: Gossip::new(Arc::clone(&shared)),
            peers: Peers::new(Arc::clone(&shared)),
            reunion: Reunion::default(),
            conduct: policing::conduct(&shared.config),
            refresh_at: now + jittered(shared.config.intervals.advert_refresh),
            settle_at: Some(now + SETTLED_AFTER),
            index_at: now + FIRST_INDEX_REFRESH.min(millis(shared.config.intervals.index_refresh)),
            neighbours_at: now + millis(shared.config.intervals.neighbours_refresh_at(Leisure::None)),
            put_began: now,
            requested_at: Millis(0),
            past_forgotten_at: now,
            leaving: None,
            shared,
        }
    }

    /// Runs until told to leave, or until all handles are gone.
    pub(crate) async fn run(mut self) {
        self.dial_bootstrap();
        let mut housekeeping = time::interval(self.shared.config.intervals.housekeeping);
        housekeeping.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let shared = Arc::clone(&self.shared);
        loop {
            let pause = self.pause();
            tokio::select! {
                (channel, answer) = self.serving.next() => self.answer(channel, answer),
                event = self.swarm.select_next_some() => self.on_event(event),
                command = self.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
                () = shared.outbox_changed.notified() => self.on_outbox(),
                () = time::sleep(pause) => self.on_timer(),
                _ = housekeeping.tick() => self.on_housekeeping(),
            }
            if self.leaving.as_ref().is_some_and(|(until, _)| Instant::now() >= *until) {
                if let Some((_, reply)) = self.leaving.take() {
                    // An error says that nobody waits for the end.
                    let _ = reply.send(());
                }
                return;
            }
        }
    }

    /// How long nothing but events is due.
    fn pause(&self) -> Duration {
        let now = self.shared.clock.now();
        let put = (self.dht.may_put() && !self.peers.is_alone()).then_some(self.put_due());
        let due = [Some(self.refresh_at), self.settle_at, Some(self.index_at), self.gossip.due(), put];
        let farewell = self.leaving.as_ref().map(|(until, _)| until.saturating_duration_since(Instant::now()));
        let pause = due.into_iter().flatten().map(|due| Duration::from_millis((due - now).0)).chain(farewell).min();
        pause.unwrap_or(Duration::from_secs(1)).max(Duration::from_millis(1))
    }

    fn on_timer(&mut self) {
        let now = self.shared.clock.now();
        let is_put_due = now >= self.put_due();
        for _ in 0..HEARD_AT_ONCE {
            let Some((from, received)) = self.gossip.after_probation() else { break };
            self.on_gossip(from, received);
        }
        let behaviour = self.swarm.behaviour_mut();
        self.gossip.publish_due(&mut behaviour.gossip);
        if is_put_due {
            self.put_next();
        }
        if now >= self.refresh_at {
            self.refresh();
        }
        if self.settle_at.take_if(|settle_at| now >= *settle_at).is_some() {
            self.settle();
        }
        if now >= self.index_at {
            self.refresh_index();
        }
    }

    fn on_command(&mut self, command: Command) {
        if let Command::Ask(ask) = &command {
            self.note_request(&ask.request);
        }
        let behaviour = self.swarm.behaviour_mut();
        match command {
            Command::Ask(ask) => {
                self.peers.used(&ask.peer);
                self.shared.count(Counter::AsksOut);
                if !self.asks.submit(*ask, &mut behaviour.ask) {
                    self.shared.count(Counter::AsksRefused);
                }
            }
            Command::Providers { key, reply } => self.dht.find_providers(&mut behaviour.kad, key, reply),
            Command::Record { key, reply } => self.dht.find_record(&mut behaviour.kad, key, reply),
            Command::Connect(peers) => {
                for (peer, addresses) in peers {
                    self.dial_peer(peer, addresses);
                }
            }
            Command::Blame(peer, offence) => self.blame(peer, offence),
            Command::Renew => self.refresh(),
            Command::Leave(reply) => self.leave(reply),
        }
    }

    fn leave(&mut self, reply: oneshot::Sender<()>) {
        let mut wait = Duration::ZERO;
        let behaviour = self.swarm.behaviour_mut();
        if let Some(departure) = self.shared.departure()
            && !self.peers.is_alone()
        {
            self.gossip.publish_all(&mut behaviour.gossip);
            self.gossip.publish_advert(&mut behaviour.gossip, departure.clone());
            self.dht.leave(&mut behaviour.kad, departure);
            wait = self.shared.config.intervals.farewell;
        }
        self.leaving = Some((Instant::now() + wait, reply));
    }

    fn on_housekeeping(&mut self) {
        let now = self.shared.clock.now();
        self.shared.view.drop_expired(now);
        if now - self.past_forgotten_at >= FORGET_PAST_EVERY {
            self.past_forgotten_at = now;
            self.shared.view.forget_before(self.shared.clock.utc());
        }
        for (peer, addresses) in self.gossip.neighbours_proven() {
            self.route_to(peer, &addresses);
        }
        let behaviour = self.swarm.behaviour_mut();
        self.dht.drop_expired(&mut behaviour.kad);
        self.gossip.retry(&mut behaviour.gossip);
        for address in self.peers.choose_to_dial() {
            self.dial_address(&address);
        }
        self.look_for_neighbours();
        self.trim();
        self.join_meshes();
        self.police();
    }

    fn trim(&mut self) {
        let mesh: BTreeSet<PeerId> = self.swarm.behaviour().gossip.all_mesh_peers().copied().collect();
        let asks = &self.asks;
        for peer in self.peers.to_trim(|peer| mesh.contains(peer) || asks.is_open_to(peer)) {
            self.shared.count(Counter::ConnectionsTrimmed);
            // An error says that it is gone already.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
    }

    /// After a cut of the network, takes some of the other side into the mesh of gossip.
    fn join_meshes(&mut self) {
        let now = self.shared.clock.now();
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        let mesh = self.gossip.mesh(gossip);
        let Favour { given, taken } = self.reunion.choose(MESH, &mesh, now);
        for (peers, score) in [(taken, 0.0), (given, FAVOUR)] {
            for peer in peers {
                debug!(%peer, score, "back after a cut of the network");
                gossip.set_application_score(&peer, score);
            }
        }
    }

    fn on_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Ask(event)) => self.on_ask_event(event),
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(event)) => self.on_gossip_event(event),
            SwarmEvent::Behaviour(BehaviourEvent::Kad(event)) => self.on_kad_event(event),
            SwarmEvent::Behaviour(BehaviourEvent::Ping(ping::Event { peer, connection, result: Err(failure) }))
                if !matches!(failure, ping::Failure::Unsupported) =>
            {
                debug!(%peer, %failure, "connection closed: no answer to a ping");
                self.reunion.lost(peer, self.shared.clock.now());
                self.swarm.close_connection(connection);
            }
            SwarmEvent::Behaviour(BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. })) => {
                self.on_identified(peer_id, &info);
            }
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, connection_id, num_established, .. } => {
                self.dial_back_made(connection_id);
                self.on_connected(peer_id, &endpoint, num_established.get() == 1);
            }
            SwarmEvent::ConnectionClosed { peer_id, num_established, cause, endpoint, .. } => {
                if num_established == 0 {
                    debug!(peer = %peer_id, ?cause, "disconnected");
                    self.peers.closed(&peer_id);
                    self.gossip.neighbour_goes(&peer_id);
                }
                self.blame_for_end(peer_id, endpoint.get_remote_address(), cause);
            }
            SwarmEvent::OutgoingConnectionError { peer_id, error, connection_id } => {
                self.serving.dial_backs.ended(connection_id, dialling::outcome(&error));
                self.shared.count(Counter::DialsFailed);
                debug!(?peer_id, %error, "dial failed");
            }
            SwarmEvent::IncomingConnectionError { error, .. } => self.on_refused(&error),
            SwarmEvent::NewListenAddr { .. } | SwarmEvent::ExpiredListenAddr { .. } => {
                self.shared.set_listen(self.swarm.listeners().cloned().collect());
            }
            SwarmEvent::ListenerClosed { addresses, reason: Err(error), .. } => {
                warn!(?addresses, %error, "no longer listening");
                self.shared.set_listen(self.swarm.listeners().cloned().collect());
            }
            _ => {}
        }
    }

    fn on_connected(&mut self, peer: PeerId, endpoint: &ConnectedPoint, is_first_with_it: bool) {
        let now = self.shared.clock.now();
        debug!(%peer, dialled = endpoint.is_dialer(), "connected");
        let from = endpoint.is_listener().then(|| ip_of(endpoint.get_remote_address())).flatten();
        if from.is_some_and(|from| !from.is_loopback()) {
            self.shared.count(Counter::ConnectionsFromElsewhere);
        }
        if is_first_with_it && endpoint.is_listener() {
            self.gossip.neighbour_comes(peer);
        }
        let was_lost = self.reunion.connected(peer, now);
        if is_first_with_it && let Some(site) = site_of_peer(&peer) {
            self.shared.view.hear_connected(&site, was_lost, now);
        }
        let is_first = self.peers.opened(peer);
        // What was queued while nobody was there goes out anyway.
        let is_news_lost = is_first && !self.dht.is_put_waiting();
        let publish_at = if is_news_lost { now + PUBLISH_AFTER_FIRST_CONNECTION } else { self.refresh_at };
        self.refresh_at = self.refresh_at.min(publish_at);
    }

    fn on_identified(&mut self, peer: PeerId, info: &identify::Info) {
        if info.protocol_version != identify_protocol(&self.shared.config.grid) {
            warn!(%peer, protocol = info.protocol_version, "disconnected: not of this grid");
            self.shared.count(Counter::StrangersDisconnected);
            // An error says that it is gone already.
            let _ = self.swarm.disconnect_peer_id(peer);
            return;
        }
        if let Some(ip) = ip_of(&info.observed_addr) {
            self.shared.seen_as.note(peer, ip);
        }
        let is_new = self.peers.met(peer, &info.listen_addrs);
        let addresses = &info.listen_addrs[..info.listen_addrs.len().min(peers::ADDRESSES_PER_PEER_MAX)];
        if !self.gossip.neighbour_listens_at(&peer, addresses) {
            self.route_to(peer, addresses);
        }
        if is_new {
            self.shared.neighbour_met.notify_one();
        }
    }

    /// Takes a peer into the routing table of the DHT, and so tells others of it. While the table is small, each new peer has
    /// libp2p look around anew, which costs the whole grid some requests; so who is banned soon should not get there.
    fn route_to(&mut self, peer: PeerId, addresses: &[Multiaddr]) {
        if self.conduct.is_banned(&peer, self.shared.clock.now()) {
            return;
        }
        for address in addresses {
            self.swarm.behaviour_mut().kad.add_address(&peer, address.clone());
        }
    }

    fn on_gossip_event(&mut self, event: gossipsub::Event) {
        let behaviour = self.swarm.behaviour_mut();
        match event {
            gossipsub::Event::Message { propagation_source, message_id, message } => {
                self.on_gossip(propagation_source, (message_id, message));
            }
            gossipsub::Event::Subscribed { .. } => self.gossip.retry(&mut behaviour.gossip),
            _ => {}
        }
    }

    fn on_gossip(&mut self, from: PeerId, received: Received) {
        let behaviour = self.swarm.behaviour_mut();
        self.gossip.set_guarding(behaviour.gate.is_guarding());
        let Some((id, verdict)) = self.gossip.receive(from, received, &self.conduct) else { return };
        behaviour.gossip.report_message_validation_result(&id, &from, verdict.acceptance);
        if let Some((peer, offence)) = verdict.blame {
            self.blame(peer, offence);
        }
    }

    fn on_kad_event(&mut self, event: kad::Event) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        match event {
            kad::Event::OutboundQueryProgressed { id, result: QueryResult::Bootstrap(_), step, .. } if !step.last => {
                self.dht.neighbours_found(kad, id);
            }
            kad::Event::OutboundQueryProgressed { id, result, step, .. } => {
                self.dht.progressed(kad, id, result, step.last);
            }
            kad::Event::InboundRequest { request } => {
                if let Some(peer) = self.dht.store(kad, request) {
                    self.blame(peer, Offence::InvalidRecord);
                }
            }
            _ => {}
        }
    }

    fn on_ask_event(&mut self, event: request_response::Event<Asked, WireAnswer>) {
        match event {
            request_response::Event::Message { peer, message, .. } => {
                self.peers.used(&peer);
                match message {
                    request_response::Message::Request { request, channel, .. } => {
                        self.on_request(peer, request, channel);
                    }
                    request_response::Message::Response { request_id, response } => {
                        self.asks.finished(request_id, Ok(response), &mut self.swarm.behaviour_mut().ask);
                    }
                }
            }
            request_response::Event::OutboundFailure { request_id, error, peer, .. } => {
                debug!(%peer, %error, "ask failed");
                if let Some(offence) = policing::offence_in_answer(&error) {
                    self.blame(peer, offence);
                }
                let error = ask_error(&error);
                self.asks.finished(request_id, Err(error), &mut self.swarm.behaviour_mut().ask);
            }
            request_response::Event::InboundFailure { peer, error, .. } => {
                debug!(%peer, %error, "could not answer");
            }
            request_response::Event::ResponseSent { .. } => {}
        }
    }

    fn on_request(&mut self, peer: PeerId, asked: Asked, channel: request_response::ResponseChannel<WireAnswer>) {
        let Some(from) = site_of_peer(&peer) else { return };
        let request = match asked {
            Asked::Request(request) => request,
            Asked::TooLargeForNow => {
                self.shared.count(Counter::AsksInBusy);
                return self.answer(channel, WireAnswer::Busy);
            }
            Asked::Unreadable(offence) => return self.blame(peer, offence),
        };
        self.note_request(&request);
        if let Err(busy) = self.serving.admit(peer, &request) {
            self.answer(channel, busy);
            self.blame(peer, Offence::RequestFlood);
        } else if let Some((channel, answer)) = self.serving.accept(from, request, channel) {
            self.answer(channel, answer);
        }
        self.dial_back();
    }

    fn note_request(&mut self, request: &WireRequest) {
        if matches!(request, WireRequest::Site(_)) {
            self.requested_at = self.shared.clock.now();
        }
    }

    fn answer(&mut self, channel: request_response::ResponseChannel<WireAnswer>, answer: WireAnswer) {
        // An error says that the asker has gone or did not wait so long.
        let _ = self.swarm.behaviour_mut().ask.send_response(channel, answer);
    }
}

/// The interval, a twentieth shorter or longer each time, so that sites do not fall into step.
fn jittered(interval: Duration) -> Millis {
    let Millis(interval) = millis(interval);
    Millis(interval - interval / 20 + rand::random_range(0..=interval / 10))
}
