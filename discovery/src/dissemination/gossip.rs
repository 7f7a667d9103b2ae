//! Gossip: sends adverts and changes of this site, receives those of other sites.
//!
//! Adverts are passed on by gossipsub, message by message. Schedule changes are many more: each node passes them on itself,
//! in bundles (see [`Bundler`]) that go no further than its neighbours.
//!
//! Invariant: a message is passed on only when it was checked, was new, and its author keeps to its share; every other message is
//! counted by the reason. Checks come cheapest first: what can be refused by its size, its header
//! or its sender is refused before its signature (the dearest check) is looked at, and such a refusal never rests
//! on an unproven author: only budgets that were spent by signed messages are held against it.
//!
//! A neighbour is to blame for what it could have checked, an author for what it signed. All budgets are bounded tables of
//! counts: 3 x `sites_max` x 50 bytes.

use std::{collections::BTreeSet, sync::Arc};

use broker::{ids::SiteId, protocol::ScheduleUpdate, time::Millis};
use libp2p::{
    PeerId,
    gossipsub::{self, MessageAcceptance, MessageId, PublishError, TopicHash},
};

use super::{
    bundler::Bundler,
    checks::{Checked, Checks, Envelope, Unchecked},
    outbox::{Pacer, advance},
};
use crate::{
    admission::{Buckets, Conduct, Offence, Rate, TokenBucket},
    clock::millis,
    counters::Counter,
    identity::peer_of_site,
    shared::{Shared, UPDATE_TIME_TO_LIVE},
    wire::{
        self, Dropped, Payload,
        bundle::{BUNDLE_BYTES_MAX, unbundle},
        names::{adverts_topic, schedules_topic},
    },
};

/// The state of this node's gossip.
pub(crate) struct Gossip {
    shared: Arc<Shared>,
    /// Messages whose signatures are being checked.
    pub(crate) checks: Checks,
    adverts: TopicHash,
    schedules: TopicHash,
    authors: Buckets<PeerId>,
    neighbours: Buckets<PeerId>,
    introducers: Buckets<PeerId>,
    /// New sites, introduced by all neighbours together.
    newcomers: TokenBucket,
    /// Messages that were accepted.
    accepted: TokenBucket,
    pacer: Pacer,
    bundler: Bundler,
    /// An advert that could not be sent, for want of neighbours.
    unsent_advert: Option<Vec<u8>>,
}

/// The verdict on a message, with the offence of a peer if there is one.
pub(crate) struct Verdict {
    pub(crate) acceptance: MessageAcceptance,
    /// The peer, and its offence, which no honest node commits.
    pub(crate) blame: Option<(PeerId, Offence)>,
}

/// A message that is not passed on, and the peer to blame.
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
    pub(crate) fn new(shared: Arc<Shared>, checks: Checks) -> Gossip {
        let (config, now) = (&shared.config, shared.clock.now());
        let limits = &config.limits;
        let newcomers = limits.newcomers_per_neighbour_in_10_s;
        Gossip {
            adverts: adverts_topic(&config.grid).hash(),
            schedules: schedules_topic(&config.grid).hash(),
            authors: Buckets::new(Rate::in_10_s(limits.gossip_per_author_in_10_s), limits.sites_max),
            // Twice what an honest neighbour accepts, as its bucket may have been full when this one was empty.
            neighbours: Buckets::new(Rate::in_10_s(limits.gossip_in_10_s.saturating_mul(2)), limits.sites_max),
            introducers: Buckets::new(Rate::in_10_s(newcomers), limits.sites_max),
            newcomers: TokenBucket::new(Rate::in_10_s(newcomers.saturating_mul(4)), now),
            accepted: TokenBucket::new(Rate::in_10_s(limits.gossip_in_10_s), now),
            pacer: Pacer::new(millis(config.intervals.gossip), limits.gossip_budget_per_s),
            bundler: Bundler::new(
                millis(config.intervals.relay),
                limits.relay_bytes_max,
                // What is believed within the life of an update.
                (UPDATE_TIME_TO_LIVE, limits.gossip_in_10_s as usize * 6),
                rand::random(),
            ),
            unsent_advert: None,
            checks,
            shared,
        }
    }

    /// Sends an advert, or a departure.
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

    /// Sends again an advert that could not be sent.
    pub(crate) fn retry(&mut self, gossip: &mut gossipsub::Behaviour) {
        if let Some(envelope) = self.unsent_advert.take() {
            self.publish_advert(gossip, envelope);
        }
    }

    /// The neighbours to which schedule changes go.
    pub(crate) fn mesh(&self, gossip: &gossipsub::Behaviour) -> BTreeSet<PeerId> {
        gossip.mesh_peers(&self.schedules).copied().collect()
    }

    /// When the next message may be sent; none when nothing waits.
    pub(crate) fn due(&self) -> Option<Millis> {
        let own = (!self.shared.outbox().changes.is_empty()).then(|| self.pacer.due());
        own.into_iter().chain(self.bundler.due()).min()
    }

    /// Sends this site's changes, and the bundle of received ones, when they are due.
    pub(crate) fn publish_due(&mut self, gossip: &mut gossipsub::Behaviour) {
        let now = self.shared.clock.now();
        if self.pacer.due() <= now
            && let Some(envelope) = self.sealed_changes()
        {
            self.pacer.sent(now);
            self.pass_on(envelope);
        }
        if self.bundler.due().is_some_and(|due| due <= now) {
            self.publish_bundle(gossip, now);
        }
    }

    /// Sends everything that waits, before the node leaves.
    pub(crate) fn publish_all(&mut self, gossip: &mut gossipsub::Behaviour) {
        let now = self.shared.clock.now();
        if let Some(envelope) = self.sealed_changes() {
            self.pass_on(envelope);
        }
        while self.bundler.due().is_some() {
            self.publish_bundle(gossip, now);
        }
    }

    /// The changes that wait, signed. Changes too large for a message are left out: a receiver sees the gap and asks.
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
        for _ in 0..self.bundler.push(envelope) {
            self.shared.count(Counter::UpdatesNotPassedOn);
        }
    }

    fn publish_bundle(&mut self, gossip: &mut gossipsub::Behaviour, now: Millis) {
        let Some(bundle) = self.bundler.take(now) else { return };
        let is_published = gossip.publish(self.schedules.clone(), bundle).is_ok();
        self.shared.count(if is_published { Counter::GossipPublished } else { Counter::GossipPublishFailed });
    }

    /// Receives a message that a neighbour brought; no verdict while its signatures are being checked.
    pub(crate) fn receive(
        &mut self,
        from: PeerId,
        id: MessageId,
        message: &gossipsub::Message,
        conduct: &Conduct,
        now: Millis,
    ) -> Option<Verdict> {
        // Its last messages still pass through this node after it was banned.
        if conduct.is_banned(&from, now) {
            return Some(self.verdict_on(from, &Dropped::Banned.into()));
        }
        self.shared.count(Counter::GossipReceived);
        let message = if message.topic == self.schedules {
            match self.begin_bundle(from, id, &message.data, conduct, now) {
                Ok(bundle) => bundle,
                Err(dropped) => return Some(self.verdict_on(from, &dropped.into())),
            }
        } else {
            let mut advert = Unchecked::new(from, id, true, MessageAcceptance::Accept);
            if let Err(refused) = self.begin_envelope(&mut advert, &message.data, conduct, now) {
                return Some(self.verdict_on(from, &refused));
            }
            advert
        };
        if message.envelopes.is_empty() {
            return Some(message.verdict);
        }
        // Many neighbours may have brought so much together: none of them is to blame.
        let is_begun = self.checks.begin(message);
        (!is_begun).then(|| self.verdict_on(from, &Dropped::Overload.into()))
    }

    /// Looks at the envelopes of a bundle, up to the first that the neighbour should have refused. The bundle itself goes no further.
    fn begin_bundle(
        &mut self,
        from: PeerId,
        id: MessageId,
        bytes: &[u8],
        conduct: &Conduct,
        now: Millis,
    ) -> Result<Unchecked, Dropped> {
        if bytes.len() > BUNDLE_BYTES_MAX {
            return Err(Dropped::Oversized);
        }
        let mut bundle = Unchecked::new(from, id, false, MessageAcceptance::Ignore);
        for envelope in unbundle(bytes).ok_or(Dropped::Malformed)? {
            if let Err(refused) = self.begin_envelope(&mut bundle, envelope, conduct, now) {
                let of_envelope = self.verdict_on(from, &refused);
                if refused.dropped.is_forwarders_fault() {
                    bundle.verdict = of_envelope;
                    break;
                }
                bundle.verdict.blame = bundle.verdict.blame.or(of_envelope.blame);
            }
        }
        Ok(bundle)
    }

    /// Adds an envelope to those of `message` that are to be checked, unless it can be refused before.
    fn begin_envelope(
        &mut self,
        message: &mut Unchecked,
        envelope: &[u8],
        conduct: &Conduct,
        now: Millis,
    ) -> Result<(), Refused> {
        let unopened = self.judge_unopened(message.from, (envelope, message.is_advert), conduct, now)?;
        message.envelopes.push(unopened);
        Ok(())
    }

    /// Believes what is good and new of a message whose signatures were checked; new updates wait for the next bundle of
    /// this node.
    pub(crate) fn checked(&mut self, checked: Checked, conduct: &Conduct, now: Millis) -> Verdict {
        let Checked { message: Unchecked { from, is_advert, envelopes, mut verdict, .. }, opened } = checked;
        // It may have been banned meanwhile.
        if conduct.is_banned(&from, now) {
            return self.verdict_on(from, &Dropped::Banned.into());
        }
        for (envelope, opened) in envelopes.into_iter().zip(opened) {
            match self.receive_opened((from, is_advert), &envelope, opened, now) {
                Ok(()) if is_advert => {}
                Ok(()) => self.pass_on(envelope.bytes),
                Err(refused) => {
                    let of_envelope = self.verdict_on(from, &refused);
                    if is_advert || refused.dropped.is_forwarders_fault() {
                        return of_envelope;
                    }
                    verdict.blame = verdict.blame.or(of_envelope.blame);
                }
            }
        }
        verdict
    }

    /// Believes the content of an envelope, an advert or an update according to its topic, if it is new.
    fn receive_opened(
        &mut self,
        (from, is_advert): (PeerId, bool),
        envelope: &Envelope,
        opened: Result<wire::Opened, Dropped>,
        now: Millis,
    ) -> Result<(), Refused> {
        let opened = opened.inspect_err(|dropped| {
            // The signature is good, only the time is not: it shows how wrong the clock of a known site is.
            if matches!(dropped, Dropped::Expired | Dropped::FromFuture)
                && let Some((sent_ms, payload)) = wire::sent_of(&envelope.bytes)
            {
                self.note_time(&envelope.author, &payload, sent_ms, now);
            }
        });
        let opened = match opened {
            // The signature is good here as well, so it counts against its author's share.
            Err(dropped @ (Dropped::UnknownVersion(_) | Dropped::UnknownKind(_))) => {
                let author = peer_of_site(&envelope.author).ok_or(Dropped::Malformed)?;
                let is_flood = !self.authors.take(author, 1, now);
                return Err(Refused { dropped, blame: is_flood.then_some((author, Offence::GossipFlood)) });
            }
            opened => opened?,
        };
        if matches!(opened.payload, Payload::Advert(_)) != is_advert {
            return Err(Dropped::Invalid.into());
        }
        self.judge_opened(from, opened, (&envelope.bytes, envelope.sequence), now)?;
        self.pacer.received(now);
        Ok(())
    }

    /// Counts a refusal, and decides what follows.
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
    ) -> Result<Envelope, Refused> {
        if !self.neighbours.take(from, 1, now) {
            return Err(Refused { dropped: Dropped::Overload, blame: Some((from, Offence::GossipOverload)) });
        }
        let (author_site, sequence) = wire::peek_in(envelope, &self.shared.config.grid).map_err(Refused::from)?;
        let mut hash = None;
        if !is_advert {
            // Copies come from every neighbour, and this node's own updates come back to it.
            if author_site == *self.shared.site() || self.bundler.is_noted(&author_site, sequence) {
                return Err(Dropped::Copy.into());
            }
            hash = Some(self.checks.hash_of_new(envelope).ok_or(Dropped::Copy)?);
        }
        let author = peer_of_site(&author_site).ok_or(Dropped::Malformed)?;
        if conduct.is_banned(&author, now) {
            return Err(Dropped::Banned.into());
        }
        if self.authors.is_spent(&author, now) {
            // The connection proves the author when it is the neighbour itself; from others its name may be forged.
            let blame = (author == from).then_some((author, Offence::GossipFlood));
            return Err(Refused { dropped: Dropped::Flood, blame });
        }
        match self.shared.view.sequence(&author_site) {
            Some(known) if is_advert && sequence <= known => Err(Dropped::Stale.into()),
            // An unknown site's changes are of no use before its advert has come.
            None if !is_advert => Err(Dropped::Stale.into()),
            None if self.introducers.is_spent(&from, now) || self.newcomers.is_empty(now) => {
                Err(Dropped::Newcomer.into())
            }
            _ => Ok(Envelope { author: author_site, sequence, hash, bytes: envelope.to_vec() }),
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
            self.bundler.note(opened.author.clone(), sequence, now);
        }
        if !self.authors.take(author, 1, now) {
            return Err(Refused { dropped: Dropped::Flood, blame: Some((author, Offence::GossipFlood)) });
        }
        let is_newcomer = self.shared.view.sequence(&opened.author).is_none();
        if is_newcomer && !(self.introducers.take(from, 1, now) && self.newcomers.take(1, now)) {
            return Err(Dropped::Newcomer.into());
        }
        self.note_time(&opened.author, &opened.payload, opened.sent_ms, now);
        self.shared.believe(opened, envelope)?;
        if self.accepted.take(1, now) { Ok(()) } else { Err(Dropped::Overload.into()) }
    }

    /// Notes the time that a site has signed which is in the view or connected: where this clock is wrong, nobody may be in the view.
    fn note_time(&self, author: &SiteId, payload: &Payload, sent_ms: u64, now: Millis) {
        if self.shared.view.sequence(author).is_some() || self.shared.is_connected(author) {
            self.shared.offsets.note(author, payload, sent_ms, self.shared.clock.utc_ms(), now);
        }
    }
}
