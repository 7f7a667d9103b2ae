//! Gossip: telling what this site offers and what changed, and hearing the others.
//!
//! Adverts are passed on by gossipsub, message by message. Schedule changes are many more: each node passes them on itself,
//! in bundles (see [`crate::relay`]) that go no further than its neighbours.
//!
//! Invariant: a message is passed on only when it was checked, was news, and its author keeps to its share; every
//! message that is not is counted by its reason. Checks come cheapest first: what can be refused by its size, its header
//! or its sender is refused before its signature (the dearest check) is looked at, and such a refusal never rests
//! on the unproven word of an author: only budgets that were spent by signed messages are held against it.
//!
//! A neighbour is to blame for what it could have checked, an author for what it signed. All budgets are bounded tables of
//! counts: 3 x `sites_max` x 50 bytes.

use std::{collections::BTreeSet, sync::Arc};

use broker::{ids::SiteId, protocol::ScheduleUpdate, time::Millis};
use libp2p::{
    Multiaddr, PeerId,
    gossipsub::{self, MessageAcceptance, MessageId, PublishError, TopicHash},
};

use crate::{
    behaviour::{adverts_topic, schedules_topic},
    conduct::{Conduct, Offence},
    counters::Counter,
    identity::peer_of_site,
    outbox::{Pacer, advance},
    probation::Probation,
    rate::RateLimit,
    relay::{BUNDLE_BYTES_MAX, Relay, unbundle},
    shared::{Shared, UPDATE_TIME_TO_LIVE, millis},
    wire::{self, Dropped, Payload},
};

/// The state of this node's gossip.
pub(crate) struct Gossip {
    shared: Arc<Shared>,
    adverts: TopicHash,
    schedules: TopicHash,
    authors: RateLimit,
    neighbours: RateLimit,
    introducers: RateLimit,
    /// Sites never heard of, from all neighbours together, and all messages that were accepted: counted under this
    /// node's own name.
    newcomers: RateLimit,
    /// Sites that never told their schedules, all together, while `is_guarding`.
    strangers: RateLimit,
    is_guarding: bool,
    accepted: RateLimit,
    /// Neighbours that have just come, and what they said that waits.
    probation: Probation<Received>,
    pacer: Pacer,
    relay: Relay,
    /// An advert that no neighbour was there to take.
    unsent_advert: Option<Vec<u8>>,
}

const RATE_WINDOW: Millis = Millis(10_000);

/// A message and its name.
pub(crate) type Received = (MessageId, gossipsub::Message);

/// What to do about a message, and about whom.
pub(crate) struct Verdict {
    pub(crate) acceptance: MessageAcceptance,
    /// Who did what no honest node does.
    pub(crate) blame: Option<(PeerId, Offence)>,
}

/// A message that is not passed on, and whose fault it is.
struct Refused {
    dropped: Dropped,
    blame: Option<(PeerId, Offence)>,
}

impl From<Dropped> for Refused {
    fn from(dropped: Dropped) -> Refused {
        Refused { dropped, blame: None }
    }
}

impl Gossip {
    pub(crate) fn new(shared: Arc<Shared>) -> Gossip {
        let config = &shared.config;
        let limits = &config.limits;
        Gossip {
            adverts: adverts_topic(&config.grid).hash(),
            schedules: schedules_topic(&config.grid).hash(),
            authors: RateLimit::new(limits.gossip_per_author_in_10_s, RATE_WINDOW, limits.sites_max),
            // Two windows of an honest neighbour's may meet one of ours.
            neighbours: RateLimit::new(limits.gossip_in_10_s.saturating_mul(2), RATE_WINDOW, limits.sites_max),
            introducers: RateLimit::new(limits.newcomers_per_neighbour_in_10_s, RATE_WINDOW, limits.sites_max),
            newcomers: RateLimit::new(limits.newcomers_per_neighbour_in_10_s.saturating_mul(4), RATE_WINDOW, 1),
            strangers: RateLimit::new((limits.newcomers_per_neighbour_in_10_s / 2).max(1), RATE_WINDOW, 1),
            is_guarding: false,
            accepted: RateLimit::new(limits.gossip_in_10_s, RATE_WINDOW, 1),
            probation: Probation::new(millis(config.intervals.probation)),
            pacer: Pacer::new(millis(config.intervals.gossip), limits.gossip_budget_per_s),
            relay: Relay::new(
                millis(config.intervals.relay),
                limits.relay_bytes_max,
                // What is believed within the life of an update.
                (UPDATE_TIME_TO_LIVE, limits.gossip_in_10_s as usize * 6),
                rand::random(),
            ),
            unsent_advert: None,
            shared,
        }
    }

    /// Says whether somebody misbehaves who comes back under fresh identities: then all that sites say that never told
    /// their schedules shares a small budget. Each such message is passed on to everybody, so what one identity can say
    /// until it is banned costs the whole grid. Honest newcomers are learnt when adverts are exchanged.
    pub(crate) fn set_guarding(&mut self, is_guarding: bool) {
        self.is_guarding = is_guarding;
    }

    /// Tells an advert, or a departure.
    pub(crate) fn publish_advert(&mut self, gossip: &mut gossipsub::Behaviour, envelope: Vec<u8>) {
        if !self.shared.config.gossip {
            return;
        }
        match gossip.publish(self.adverts.clone(), envelope.clone()) {
            Ok(_) => {
                self.shared.count(Counter::GossipPublished);
                self.unsent_advert = None;
            }
            Err(PublishError::Duplicate) => self.unsent_advert = None,
            Err(_) => {
                self.shared.count(Counter::GossipPublishFailed);
                self.unsent_advert = Some(envelope);
            }
        }
    }

    /// Tries again what no neighbour was there to take.
    pub(crate) fn retry(&mut self, gossip: &mut gossipsub::Behaviour) {
        if let Some(envelope) = self.unsent_advert.take() {
            self.publish_advert(gossip, envelope);
        }
    }

    /// The neighbours that schedule changes go to.
    pub(crate) fn mesh(&self, gossip: &gossipsub::Behaviour) -> BTreeSet<PeerId> {
        gossip.mesh_peers(&self.schedules).copied().collect()
    }

    /// When something may be told next, if anything waits.
    pub(crate) fn due(&self) -> Option<Millis> {
        let own = (!self.shared.outbox().changes.is_empty()).then(|| self.pacer.due());
        own.into_iter().chain(self.relay.due()).chain(self.probation.due()).min()
    }

    /// Tells the changes that wait and passes on what was heard, as far as it is time.
    pub(crate) fn publish_due(&mut self, gossip: &mut gossipsub::Behaviour) {
        let now = self.shared.clock.now();
        if self.pacer.due() <= now
            && let Some(envelope) = self.sealed_changes()
        {
            self.pacer.sent(now);
            self.pass_on(envelope);
        }
        if self.relay.due().is_some_and(|due| due <= now) {
            self.publish_bundle(gossip, now);
        }
    }

    /// Tells whatever waits, since there is no later.
    pub(crate) fn publish_all(&mut self, gossip: &mut gossipsub::Behaviour) {
        let now = self.shared.clock.now();
        if let Some(envelope) = self.sealed_changes() {
            self.pass_on(envelope);
        }
        while self.relay.due().is_some() {
            self.publish_bundle(gossip, now);
        }
    }

    /// The changes that wait, signed. Changes too large for a message are told by their absence: whoever needs them asks.
    fn sealed_changes(&mut self) -> Option<Vec<u8>> {
        let (from, changes) = self.shared.outbox().changes.take()?;
        let end = advance(from, changes.len());
        let site = self.shared.site().clone();
        let update = ScheduleUpdate { site: site.clone(), from, changes };
        let absence = || self.shared.seal_update(ScheduleUpdate { site, from: end, changes: Vec::new() });
        self.shared.seal_update(update).or_else(absence)
    }

    fn pass_on(&mut self, envelope: Vec<u8>) {
        if !self.shared.config.gossip {
            return;
        }
        for _ in 0..self.relay.push(envelope) {
            self.shared.count(Counter::UpdatesNotPassedOn);
        }
    }

    fn publish_bundle(&mut self, gossip: &mut gossipsub::Behaviour, now: Millis) {
        let Some(bundle) = self.relay.take(now) else { return };
        let is_published = gossip.publish(self.schedules.clone(), bundle).is_ok();
        self.shared.count(if is_published { Counter::GossipPublished } else { Counter::GossipPublishFailed });
    }

    /// Notes that a neighbour has come that was not connected before, and puts it on probation; not while this node itself is
    /// new, since everybody is new to it then.
    pub(crate) fn neighbour_comes(&mut self, peer: PeerId) {
        let now = self.shared.clock.now();
        if now >= millis(self.shared.config.intervals.settling) {
            self.probation.begins(peer, now);
        }
    }

    /// Notes that a neighbour has gone or is banned: what it said that waits is not worth a look.
    pub(crate) fn neighbour_goes(&mut self, peer: &PeerId) {
        self.probation.ends(peer);
    }

    /// Notes where a neighbour listens; false when it is not on probation.
    pub(crate) fn neighbour_listens_at(&mut self, peer: &PeerId, addresses: &[Multiaddr]) -> bool {
        self.probation.listens_at(peer, addresses)
    }

    /// The neighbours whose probation is over since this was asked last, and where they listen.
    pub(crate) fn neighbours_proven(&mut self) -> Vec<(PeerId, Vec<Multiaddr>)> {
        self.probation.over(self.shared.clock.now())
    }

    /// Takes a message that a neighbour brought: hears it, or has it wait while its bringer is on probation; then there is
    /// no verdict yet.
    pub(crate) fn receive(
        &mut self,
        from: PeerId,
        received: Received,
        conduct: &Conduct,
    ) -> Option<(MessageId, Verdict)> {
        let now = self.shared.clock.now();
        // What it said last is still on its way through this node when it is shut out.
        let (id, why) = if conduct.is_banned(&from, now) {
            (received.0, Dropped::Banned)
        } else if self.has_to_wait(from, &received.1, now) {
            let bytes = received.1.data.len();
            (self.probation.keep(from, received, bytes).err()?.0, Dropped::Newcomer)
        } else {
            return Some((received.0, self.hear(from, &received.1, conduct)));
        };
        Some((id, self.verdict_on(from, &why.into())))
    }

    /// The next message whose bringer's probation is over.
    pub(crate) fn after_probation(&mut self) -> Option<(PeerId, Received)> {
        self.probation.take(self.shared.clock.now())
    }

    /// Whether a message is what an attacker makes up: an advert of a site that never told its schedules, from a neighbour
    /// that has just come. How it introduces itself is not.
    fn has_to_wait(&self, from: PeerId, message: &gossipsub::Message, now: Millis) -> bool {
        if message.topic != self.adverts || !self.probation.is_on(&from, now) {
            return false;
        }
        // What can be refused at once is.
        let Ok((author, _)) = wire::peek_in(&message.data, &self.shared.config.grid) else { return false };
        let introduces_itself = self.shared.view.sequence(&author).is_none() && peer_of_site(&author) == Some(from);
        self.is_stranger(&author) && !introduces_itself
    }

    /// Hears a message that a neighbour brought.
    pub(crate) fn hear(&mut self, from: PeerId, message: &gossipsub::Message, conduct: &Conduct) -> Verdict {
        let now = self.shared.clock.now();
        self.shared.count(Counter::GossipReceived);
        if message.topic == self.schedules {
            return self.hear_bundle(from, &message.data, conduct, now);
        }
        match self.hear_envelope(from, (&message.data, true), conduct, now) {
            Ok(()) => Verdict { acceptance: MessageAcceptance::Accept, blame: None },
            Err(refused) => self.verdict_on(from, &refused),
        }
    }

    /// Hears the updates of a bundle up to the first that its bringer could have known to be wrong; what was news waits for
    /// the next bundle of this node. The bundle itself goes no further.
    fn hear_bundle(&mut self, from: PeerId, bundle: &[u8], conduct: &Conduct, now: Millis) -> Verdict {
        let mut verdict = Verdict { acceptance: MessageAcceptance::Ignore, blame: None };
        if bundle.len() > BUNDLE_BYTES_MAX {
            return self.verdict_on(from, &Dropped::Oversized.into());
        }
        let Some(envelopes) = unbundle(bundle) else { return self.verdict_on(from, &Dropped::Malformed.into()) };
        for envelope in envelopes {
            match self.hear_envelope(from, (envelope, false), conduct, now) {
                Ok(()) => self.pass_on(envelope.to_vec()),
                Err(refused) => {
                    let of_envelope = self.verdict_on(from, &refused);
                    verdict.blame = verdict.blame.or(of_envelope.blame);
                    if refused.dropped.is_forwarders_fault() {
                        return of_envelope;
                    }
                }
            }
        }
        verdict
    }

    /// Checks an envelope, an advert's or an update's as it was brought, and believes it if it is news.
    fn hear_envelope(
        &mut self,
        from: PeerId,
        (envelope, is_advert): (&[u8], bool),
        conduct: &Conduct,
        now: Millis,
    ) -> Result<(), Refused> {
        let (author, sequence) = self.judge_unopened(from, (envelope, is_advert), conduct, now)?;
        let opened = self.shared.open(envelope).inspect_err(|dropped| {
            // The signature was good, only the time was not: that of a site that is believed otherwise says how wrong.
            if matches!(dropped, Dropped::Expired | Dropped::FromFuture)
                && let Some((sent_ms, payload)) = wire::sent_of(envelope)
            {
                self.note_time(&author, &payload, sent_ms, now);
            }
        })?;
        if matches!(opened.payload, Payload::Advert(_)) != is_advert {
            return Err(Dropped::Invalid.into());
        }
        self.judge_opened(from, opened, (envelope, sequence), now)?;
        self.pacer.heard(now);
        Ok(())
    }

    /// Counts a refusal, and says what follows.
    fn verdict_on(&self, from: PeerId, refused: &Refused) -> Verdict {
        let Refused { dropped, blame } = *refused;
        self.shared.count(dropped.counter());
        if dropped.is_forwarders_fault() {
            let is_large = dropped == Dropped::Oversized;
            let offence = if is_large { Offence::OversizedGossip } else { Offence::InvalidGossip };
            return Verdict { acceptance: MessageAcceptance::Reject, blame: Some((from, offence)) };
        }
        Verdict { acceptance: MessageAcceptance::Ignore, blame }
    }

    /// Everything that can be refused without looking at the signature; costs a few microseconds.
    fn judge_unopened(
        &mut self,
        from: PeerId,
        (envelope, is_advert): (&[u8], bool),
        conduct: &Conduct,
        now: Millis,
    ) -> Result<(SiteId, u64), Refused> {
        if !self.neighbours.admit(from, now) {
            return Err(Refused { dropped: Dropped::Overload, blame: Some((from, Offence::GossipOverload)) });
        }
        let (author_site, sequence) = wire::peek_in(envelope, &self.shared.config.grid).map_err(Refused::from)?;
        // Copies come by every neighbour, and this node's own words come back to it.
        if !is_advert && (author_site == *self.shared.site() || self.relay.is_noted(&author_site, sequence)) {
            return Err(Dropped::Copy.into());
        }
        let author = peer_of_site(&author_site).ok_or(Dropped::Malformed)?;
        if conduct.is_banned(&author, now) {
            return Err(Dropped::Banned.into());
        }
        if self.authors.is_spent(&author, now) {
            // Its own neighbour knows that it says too much; anybody else only hears its name.
            let blame = (author == from).then_some((author, Offence::GossipFlood));
            return Err(Refused { dropped: Dropped::Flood, blame });
        }
        if self.is_guarding && self.strangers.is_spent(&self.own(), now) && self.is_stranger(&author_site) {
            return Err(Dropped::Newcomer.into());
        }
        match self.shared.view.sequence(&author_site) {
            Some(known) if is_advert && sequence <= known => Err(Dropped::Stale.into()),
            // An unknown site's changes are of no use before its advert has come.
            None if !is_advert => Err(Dropped::Stale.into()),
            None if self.introducers.is_spent(&from, now) || self.newcomers.is_spent(&self.own(), now) => {
                Err(Dropped::Newcomer.into())
            }
            _ => Ok((author_site, sequence)),
        }
    }

    fn judge_opened(
        &mut self,
        from: PeerId,
        opened: wire::Opened,
        (envelope, sequence): (&[u8], u64),
        now: Millis,
    ) -> Result<(), Refused> {
        let author = peer_of_site(&opened.author).ok_or(Dropped::Malformed)?;
        if matches!(opened.payload, Payload::Update(_)) {
            self.relay.note(opened.author.clone(), sequence, now);
        }
        if !self.authors.admit(author, now) {
            return Err(Refused { dropped: Dropped::Flood, blame: Some((author, Offence::GossipFlood)) });
        }
        if self.is_guarding && self.is_stranger(&opened.author) && !self.strangers.admit(self.own(), now) {
            return Err(Dropped::Newcomer.into());
        }
        let is_newcomer = self.shared.view.sequence(&opened.author).is_none();
        if is_newcomer && !(self.introducers.admit(from, now) && self.newcomers.admit(self.own(), now)) {
            return Err(Dropped::Newcomer.into());
        }
        self.note_time(&opened.author, &opened.payload, opened.sent_ms, now);
        self.shared.believe(opened, envelope)?;
        if self.accepted.admit(self.own(), now) { Ok(()) } else { Err(Dropped::Overload.into()) }
    }

    /// Takes note of what a site in the view says the time is.
    fn note_time(&self, author: &SiteId, payload: &Payload, sent_ms: u64, now: Millis) {
        if self.shared.view.sequence(author).is_some() {
            self.shared.offsets.note(author, payload, sent_ms, self.shared.clock.utc_ms(), now);
        }
    }

    /// Whether the site never told its schedules, as made-up ones do not.
    fn is_stranger(&self, site: &SiteId) -> bool {
        site != self.shared.site() && self.shared.view.version(site).is_none()
    }

    fn own(&self) -> PeerId {
        self.shared.identity.peer_id()
    }
}
