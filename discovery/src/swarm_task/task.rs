//! The one task that owns the swarm.
//!
//! Invariant: the loop never waits for anything but the network, its timers and its bounded command queue: everything it
//! hands out goes through `try_send` or a one-shot channel, and what does not fit is refused with an error to the
//! caller. Answers that are ready go out before new requests are taken in. A banned peer has no connection, and the list of
//! bans that others read is the one that is enforced.
//!
//! What one hostile connection can cost before it is cut off, by the default limits. Memory: 64 MiB of unread streams at
//! the very most (see `transport`), 4 KiB for each request being read and 16 MiB for all large ones together (see
//! `codec`), and 57 MiB for the openings of runs that members send, all together (see `run`). CPU: what the throttle lets through, 8 MiB and 1,000 streams a second; 20 invalid gossip messages, 10 invalid
//! requests or 1,000 requests above the share end in a ban. What one address costs: 64 connections and ten more a
//! second, at about 1 ms a handshake. What all cost: 384 inbound connections, 200 handshakes a second, and the tables: half
//! a MiB of points and bans (`conduct`), 0.6 MiB of budgets (`gossip`), 2 MiB of gossip that waits for its check (`checks`), 0.3 MiB
//! of tokens (`serving`), `sites_max` sites in
//! the view, 16,384 index entries of made-up sites at some 200 bytes.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use broker::time::Millis;
use futures::StreamExt as _;
use libp2p::{
    Multiaddr, PeerId, Swarm,
    allow_block_list::Blocked,
    connection_limits::Exceeded,
    core::ConnectedPoint,
    gossipsub::{self, MessageId},
    identify,
    kad::{self, QueryResult},
    ping,
    request_response::{self, OutboundFailure, OutboundRequestId},
    swarm::{ConnectionDenied, DialError, ListenError, SwarmEvent},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task,
    time::{self, Instant},
};
use tracing::{debug, warn};

use super::{
    behaviour::{Behaviour, BehaviourEvent, FAVOUR, MESH},
    peers::Peers,
    publisher::Publisher,
};
use crate::{
    addresses::{ip_of, range_of},
    admission::{BanTerms, Conduct, Gated, Offence, network_of, network_on_way},
    clock::millis,
    command::{AskError, Command},
    counters::Counter,
    direct::{Asks, Serving, Wire, ask_error, dial_outcome},
    dissemination::{Checked, Checks, Favour, Reunion, Verdict},
    identity::site_of_peer,
    shared::{Shared, peer_of_address},
    streams::Opened,
    wire::{Asked, Codec, WireAnswer, WireRequest},
};

impl Wire for Gated<request_response::Behaviour<Codec>> {
    fn send(&mut self, peer: &PeerId, request: WireRequest, addresses: Vec<Multiaddr>) -> OutboundRequestId {
        self.send_request_with_addresses(peer, Asked::Request(request), addresses)
    }
}

/// The task's state.
pub(crate) struct SwarmTask {
    pub(super) swarm: Swarm<Behaviour>,
    pub(super) shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    asks: Asks,
    serving: Serving,
    asked: StreamsAsked,
    pub(super) publisher: Publisher,
    pub(super) peers: Peers,
    reunion: Reunion,
    pub(super) conduct: Conduct,
    past_forgotten_at: Millis,
    pub(super) members_checked_at: Millis,
    /// The turn to look at the revocations that a peer shows which takes this node for no member.
    pub(super) looks_at_reasons: Arc<Semaphore>,
    /// The owner was told that the grid may be closed: once, since anybody can say so.
    pub(super) is_told_closed: bool,
    leaving: Option<(Instant, oneshot::Sender<()>)>,
}

/// Where streams go that peers open.
pub(crate) struct StreamsAsked {
    /// Tests of the link to this site.
    pub(crate) link: mpsc::Sender<Opened>,
    /// To what runs here.
    pub(crate) run: mpsc::Sender<Opened>,
}

/// Commands that are taken before other events have their turn.
const COMMANDS_AT_ONCE: usize = 64;
/// How often the past of schedules is dropped.
const FORGET_PAST_EVERY: Millis = Millis(60_000);

impl SwarmTask {
    pub(crate) fn new(
        swarm: Swarm<Behaviour>,
        shared: Arc<Shared>,
        commands: mpsc::Receiver<Command>,
        (serving, asked): (Serving, StreamsAsked),
        checks: Checks,
    ) -> SwarmTask {
        let now = shared.clock.now();
        SwarmTask {
            swarm,
            commands,
            asks: Asks::new(shared.config.limits.clone()),
            serving,
            asked,
            publisher: Publisher::new(Arc::clone(&shared), checks),
            peers: Peers::new(Arc::clone(&shared)),
            reunion: Reunion::default(),
            conduct: Conduct::new(BanTerms {
                first: shared.config.intervals.ban_first,
                longest: shared.config.intervals.ban_longest,
                bans_max: shared.config.limits.bans_max,
            }),
            past_forgotten_at: now,
            members_checked_at: now,
            looks_at_reasons: Arc::new(Semaphore::new(1)),
            is_told_closed: false,
            leaving: None,
            shared,
        }
    }

    /// Runs until the command to leave, or until all handles are gone.
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
                checked = self.publisher.gossip.checks.next() => self.on_checked(checked),
                command = self.commands.recv() => match command {
                    Some(command) => self.on_commands(command),
                    None => return,
                },
                () = shared.outbox_changed.notified() => self.publisher.on_outbox(self.swarm.behaviour_mut()),
                () = time::sleep(pause) => self.publisher.on_timer(self.swarm.behaviour_mut()),
                _ = housekeeping.tick() => self.on_housekeeping(),
            }
            if self.leaving.as_ref().is_some_and(|(until, _)| Instant::now() >= *until) {
                if let Some((_, reply)) = self.leaving.take() {
                    // An error means that no caller waits for the end.
                    let _ = reply.send(());
                }
                return;
            }
        }
    }

    /// How long nothing but events is due.
    fn pause(&self) -> Duration {
        let now = self.shared.clock.now();
        let due = self.publisher.due(self.shared.is_alone()).map(|due| Duration::from_millis((due - now).0));
        let farewell = self.leaving.as_ref().map(|(until, _)| until.saturating_duration_since(Instant::now()));
        due.into_iter().chain(farewell).min().unwrap_or(Duration::from_secs(1)).max(Duration::from_millis(1))
    }

    /// Takes what is waiting, so that requests to one site go in one message.
    fn on_commands(&mut self, first: Command) {
        self.on_command(first);
        for _ in 1..COMMANDS_AT_ONCE {
            let Ok(command) = self.commands.try_recv() else { break };
            self.on_command(command);
        }
        let shared = self.asks.send(&mut self.swarm.behaviour_mut().ask);
        self.shared.counters.add(Counter::AsksShared, shared);
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
                if !self.asks.submit(*ask) {
                    self.shared.count(Counter::AsksRefused);
                }
            }
            Command::Providers { key, reply } => self.publisher.dht.find_providers(&mut behaviour.kad, key, reply),
            Command::Record { key, reply } => self.publisher.dht.find_record(&mut behaviour.kad, key, reply),
            Command::OpenLink { peer, reply } => {
                self.peers.used(&peer);
                behaviour.link.open_stream(peer, reply);
            }
            Command::OpenRun { peer, reply } => {
                self.peers.used(&peer);
                behaviour.run.open_stream(peer, reply);
            }
            Command::Blame(peer, offence) => self.blame(peer, offence),
            Command::Renew => self.publisher.refresh(behaviour),
            Command::CheckMembers => self.check_members(),
            Command::Leave(reply) => self.leave(reply),
        }
    }

    fn leave(&mut self, reply: oneshot::Sender<()>) {
        let mut wait = Duration::ZERO;
        if let Some(departure) = self.shared.departure()
            && !self.shared.is_alone()
        {
            self.publisher.leave(self.swarm.behaviour_mut(), departure);
            wait = self.shared.config.intervals.farewell;
        }
        self.leaving = Some((Instant::now() + wait, reply));
    }

    fn on_housekeeping(&mut self) {
        let now = self.shared.clock.now();
        self.shared.view.drop_expired(now);
        if now - self.past_forgotten_at >= FORGET_PAST_EVERY {
            self.past_forgotten_at = now;
            let shared = Arc::clone(&self.shared);
            // Looks at every schedule of the grid.
            task::spawn_blocking(move || shared.view.forget_before((shared.config.present)()));
        }
        if now - self.members_checked_at >= millis(self.shared.config.intervals.proof_recheck) {
            self.check_members();
        }
        let behaviour = self.swarm.behaviour_mut();
        self.publisher.dht.drop_expired(&mut behaviour.kad);
        self.publisher.gossip.retry(&mut behaviour.gossip);
        self.publisher.look_for_neighbours(behaviour);
        for address in self.peers.choose_to_dial() {
            self.dial_address(&address);
        }
        self.trim();
        self.join_meshes();
        self.police();
    }

    fn trim(&mut self) {
        let mesh: BTreeSet<PeerId> = self.swarm.behaviour().gossip.all_mesh_peers().copied().collect();
        let (asks, runs) = (&self.asks, &self.shared.runs);
        let is_needed = |peer: &PeerId| mesh.contains(peer) || asks.is_open_to(peer) || runs.is_open_to(peer);
        for peer in self.peers.to_trim(is_needed) {
            self.shared.count(Counter::ConnectionsTrimmed);
            // An error means that it is gone already.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
    }

    /// After a cut of the network, takes some of the other side into the mesh of gossip.
    fn join_meshes(&mut self) {
        let now = self.shared.clock.now();
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        let mesh = self.publisher.gossip.mesh(gossip);
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
            SwarmEvent::Behaviour(BehaviourEvent::Proof(event)) => self.on_proof(event),
            SwarmEvent::Behaviour(BehaviourEvent::Link(asked)) => self.on_stream(asked, Purpose::Link),
            SwarmEvent::Behaviour(BehaviourEvent::Run(asked)) => self.on_stream(asked, Purpose::Run),
            SwarmEvent::Behaviour(BehaviourEvent::Ping(ping::Event { peer, connection, result: Err(failure) }))
                if !matches!(failure, ping::Failure::Unsupported) =>
            {
                debug!(%peer, %failure, "connection closed: no answer to a ping");
                if let Some(site) = site_of_peer(&peer) {
                    self.shared.health.lost(&site, self.shared.clock.now());
                }
                self.swarm.close_connection(connection);
            }
            SwarmEvent::Behaviour(BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. })) => {
                self.on_identified(peer_id, &info);
            }
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, connection_id, num_established, .. } => {
                // A dial back has served its purpose.
                if self.serving.dial_backs.ended(connection_id, Some(true)) {
                    self.swarm.close_connection(connection_id);
                }
                self.on_connected(peer_id, &endpoint, num_established.get() == 1);
            }
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, cause, .. } => {
                debug!(peer = %peer_id, ?cause, "disconnected");
                self.peers.closed(&peer_id);
            }
            SwarmEvent::OutgoingConnectionError { peer_id, error, connection_id } => {
                self.serving.dial_backs.ended(connection_id, dial_outcome(&error));
                self.shared.count(Counter::DialsFailed);
                debug!(?peer_id, %error, "dial failed");
                if let DialError::Denied { cause } = &error {
                    self.on_denied(cause);
                }
            }
            SwarmEvent::IncomingConnectionError { error, .. } => {
                debug!(%error, "connection refused");
                if let ListenError::Denied { cause } = &error {
                    self.on_denied(cause);
                }
            }
            SwarmEvent::NewListenAddr { .. } | SwarmEvent::ExpiredListenAddr { .. } => self.tell_addresses(),
            SwarmEvent::ListenerClosed { addresses, reason: Err(error), .. } => {
                warn!(?addresses, %error, "no longer listening");
                self.tell_addresses();
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
        if let Some(site) = site_of_peer(&peer) {
            let was_lost = self.shared.health.connected(&site);
            if was_lost {
                self.reunion.back(peer, now);
            }
            if is_first_with_it {
                self.shared.view.receive_connected(&site, was_lost, now);
            }
        }
        let address = endpoint.get_remote_address();
        self.peers.opened(peer, range_of(address), network_of(address));
        let way = match endpoint {
            ConnectedPoint::Listener { local_addr, .. } if endpoint.is_relayed() => local_addr,
            _ => address,
        };
        self.peers.reached(&peer, network_on_way(way));
        if !self.shared.config.membership.is_closed() {
            self.admit(peer, Vec::new());
        }
    }

    fn on_gossip_event(&mut self, event: gossipsub::Event) {
        let now = self.shared.clock.now();
        match event {
            gossipsub::Event::Message { propagation_source: from, message_id: id, message } => {
                let verdict = self.publisher.gossip.receive(from, id.clone(), &message, &self.conduct, now);
                if let Some(verdict) = verdict {
                    self.judge(from, &id, &verdict);
                }
            }
            gossipsub::Event::Subscribed { .. } => {
                self.publisher.gossip.retry(&mut self.swarm.behaviour_mut().gossip);
            }
            _ => {}
        }
    }

    fn on_checked(&mut self, checked: Checked) {
        let (from, id) = (checked.message.from, checked.message.id.clone());
        let verdict = self.publisher.gossip.checked(checked, &self.conduct, self.shared.clock.now());
        self.judge(from, &id, &verdict);
    }

    /// Lets gossipsub and the peer concerned feel a verdict.
    fn judge(&mut self, from: PeerId, id: &MessageId, verdict: &Verdict) {
        self.swarm.behaviour_mut().gossip.report_message_validation_result(id, &from, verdict.acceptance);
        if let Some((peer, offence)) = verdict.blame {
            self.blame(peer, offence);
        }
    }

    fn on_kad_event(&mut self, event: kad::Event) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        match event {
            kad::Event::OutboundQueryProgressed { id, result: QueryResult::Bootstrap(_), step, .. } if !step.last => {
                self.publisher.dht.neighbours_found(kad, id);
            }
            kad::Event::OutboundQueryProgressed { id, result, step, .. } => {
                self.publisher.dht.progressed(kad, id, result, step.last);
            }
            kad::Event::InboundRequest { request } => {
                if let Some(peer) = self.publisher.dht.store(kad, request) {
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
                    // It came before its peer was disconnected.
                    request_response::Message::Request { .. } if !self.peers.is_member(&peer) => {}
                    request_response::Message::Request { request, channel, .. } => {
                        self.on_request(peer, request, channel);
                    }
                    request_response::Message::Response { request_id, response } => {
                        if let Some(site) = site_of_peer(&peer) {
                            self.shared.view.note_network(&site, self.peers.way_to(&peer));
                        }
                        if !self.asks.finished(request_id, Ok(response), &mut self.swarm.behaviour_mut().ask) {
                            self.blame(peer, Offence::InvalidAnswer);
                        }
                    }
                }
            }
            request_response::Event::OutboundFailure { request_id, error, peer, .. } => {
                debug!(%peer, %error, "ask failed");
                if let Some(offence) = offence_in_answer(&error) {
                    self.blame(peer, offence);
                }
                // What a peer sends that does not speak this version looks like a broken stream.
                let apart = self.peers.versions_apart(&peer).map(AskError::NotUnderstood);
                let error = apart.unwrap_or_else(|| ask_error(&error));
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
        // Of a peer that has gone no network is known for which its holds would count, and it hears no answer.
        if !self.peers.is_connected(&peer) {
            return;
        }
        let request = match asked {
            Asked::Request(request) => request,
            Asked::NotUnderstood(kind) => return self.on_unknown_request(peer, kind, channel),
            Asked::TooLargeForNow => {
                self.shared.count(Counter::AsksInBusy);
                return self.answer(channel, WireAnswer::Busy);
            }
            Asked::Unreadable(offence) => return self.blame(peer, offence),
        };
        self.note_request(&request);
        if let Some(busy) = self.serving.throttle(peer, Some(&request)) {
            self.answer(channel, busy);
            self.blame(peer, Offence::RequestFlood);
        } else if let Some((channel, answer)) =
            self.serving.accept((from, self.peers.network_of(&peer)), request, channel)
        {
            self.answer(channel, answer);
        }
        self.serving.dial_backs.begin(&mut self.swarm, &self.shared, |peer| self.peers.range(peer));
    }

    /// A later version may ask what this one does not know: that costs its share of requests, and is no offence.
    fn on_unknown_request(&mut self, peer: PeerId, kind: u16, channel: request_response::ResponseChannel<WireAnswer>) {
        debug!(%peer, kind, "a request that is not understood");
        if let Some(busy) = self.serving.throttle(peer, None) {
            self.answer(channel, busy);
            return self.blame(peer, Offence::RequestFlood);
        }
        self.shared.count(Counter::AsksIn);
        self.shared.count(Counter::AsksInNotUnderstood);
        self.answer(channel, WireAnswer::NotUnderstood { kind });
    }

    /// Asking for a stream costs as much as asking for anything else that is large.
    fn on_stream(&mut self, opened: Opened, purpose: Purpose) {
        self.peers.used(&opened.peer);
        if !self.serving.admit_stream(opened.peer) {
            return self.blame(opened.peer, Offence::RequestFlood);
        }
        let to = match purpose {
            Purpose::Link => &self.asked.link,
            Purpose::Run => &self.asked.run,
        };
        // Without room the stream is dropped, which resets it; so is that of a peer that was disconnected since.
        if self.peers.is_member(&opened.peer) {
            let _ = to.try_send(opened);
        }
    }

    fn note_request(&mut self, request: &WireRequest) {
        if request.site_requests() > 0 {
            self.publisher.requested();
        }
    }

    fn answer(&mut self, channel: request_response::ResponseChannel<WireAnswer>, answer: WireAnswer) {
        // An error means that the asker has gone or did not wait so long.
        let _ = self.swarm.behaviour_mut().ask.send_response(channel, answer);
    }

    fn dial_bootstrap(&mut self) {
        let config = &self.shared.config;
        let addresses: Vec<Multiaddr> = config.bootstrap.iter().chain(&config.known_peers).cloned().collect();
        for address in &addresses {
            self.dial_address(address);
        }
    }

    fn dial_address(&mut self, address: &Multiaddr) {
        if peer_of_address(address) == Some(self.shared.identity.peer_id()) {
            return;
        }
        if let Err(error) = self.swarm.dial(address.clone()) {
            debug!(%address, %error, "not dialled");
        }
    }

    /// Counts a connection that was refused because its peer is banned or too many are open; the gate counts its own
    /// refusals.
    fn on_denied(&mut self, cause: &ConnectionDenied) {
        if cause.downcast_ref::<Blocked>().is_some() {
            self.shared.count(Counter::ConnectionsRefusedBanned);
        } else if cause.downcast_ref::<Exceeded>().is_some() {
            self.shared.count(Counter::ConnectionsRefusedFull);
        }
    }
}

/// What a peer has opened a stream for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Link,
    Run,
}

/// The offence in a failed answer, if it is one.
fn offence_in_answer(failure: &OutboundFailure) -> Option<Offence> {
    match failure {
        OutboundFailure::Io(error) if error.kind() == io::ErrorKind::InvalidData => Some(Offence::InvalidAnswer),
        _ => None,
    }
}
