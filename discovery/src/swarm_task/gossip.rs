//! Gossip: telling what this site offers and what changed, and hearing the others.
//!
//! Invariant: a message is passed on only when it was checked, was news, and its author keeps to its share; every
//! message that is not is counted by its reason.

use std::sync::Arc;

use broker::{protocol::ScheduleUpdate, time::Millis};
use libp2p::{
    PeerId,
    gossipsub::{self, MessageAcceptance, PublishError, TopicHash},
};

use crate::{
    behaviour::{adverts_topic, schedules_topic},
    counters::Counter,
    identity::peer_of_site,
    outbox::{Pacer, advance},
    rate::RateLimit,
    shared::{Shared, millis},
    wire::{Dropped, Payload},
};

/// The state of this node's gossip.
pub(crate) struct Gossip {
    shared: Arc<Shared>,
    adverts: TopicHash,
    schedules: TopicHash,
    authors: RateLimit,
    offenders: RateLimit,
    pacer: Pacer,
    /// An advert that no neighbour was there to take.
    unsent_advert: Option<Vec<u8>>,
}

const RATE_WINDOW: Millis = Millis(10_000);

/// What to do about a message and the neighbour that brought it.
pub(crate) struct Verdict {
    pub(crate) acceptance: MessageAcceptance,
    /// The neighbour passes on too much that no honest node would.
    pub(crate) disconnect: bool,
}

impl Gossip {
    pub(crate) fn new(shared: Arc<Shared>) -> Gossip {
        let config = &shared.config;
        let limits = &config.limits;
        Gossip {
            adverts: adverts_topic(&config.grid).hash(),
            schedules: schedules_topic(&config.grid).hash(),
            authors: RateLimit::new(limits.gossip_per_author_in_10_s, RATE_WINDOW, limits.sites_max),
            offenders: RateLimit::new(limits.invalid_per_peer_in_10_s, RATE_WINDOW, limits.sites_max),
            pacer: Pacer::new(millis(config.intervals.gossip), limits.gossip_budget_per_s),
            unsent_advert: None,
            shared,
        }
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

    /// When changes may be told next, if any wait.
    pub(crate) fn changes_due(&self) -> Option<Millis> {
        (!self.shared.outbox().changes.is_empty()).then(|| self.pacer.due())
    }

    /// Tells the changes that wait, if it is time.
    pub(crate) fn publish_changes(&mut self, gossip: &mut gossipsub::Behaviour) {
        let now = self.shared.clock.now();
        if self.pacer.due() > now {
            return;
        }
        let Some((from, changes)) = self.shared.outbox().changes.take() else { return };
        if !self.shared.config.gossip {
            return;
        }
        let end = advance(from, changes.len());
        let site = self.shared.site().clone();
        let update = ScheduleUpdate { site: site.clone(), from, changes };
        // Changes too large for a message are told by their absence: whoever needs them asks.
        let envelope = self
            .shared
            .seal_update(update)
            .or_else(|| self.shared.seal_update(ScheduleUpdate { site, from: end, changes: Vec::new() }));
        self.pacer.sent(now);
        let published = envelope.is_some_and(|envelope| gossip.publish(self.schedules.clone(), envelope).is_ok());
        self.shared.count(if published { Counter::GossipPublished } else { Counter::GossipPublishFailed });
    }

    /// Hears a message that a neighbour brought.
    pub(crate) fn hear(&mut self, from: PeerId, message: &gossipsub::Message) -> Verdict {
        let now = self.shared.clock.now();
        self.pacer.heard(now);
        self.shared.count(Counter::GossipReceived);
        let dropped = match self.judge(message, now) {
            Ok(()) => return Verdict { acceptance: MessageAcceptance::Accept, disconnect: false },
            Err(dropped) => dropped,
        };
        self.shared.count(dropped.counter());
        if !dropped.is_forwarders_fault() {
            return Verdict { acceptance: MessageAcceptance::Ignore, disconnect: false };
        }
        let disconnect = !self.offenders.admit(from, now);
        if disconnect {
            self.shared.count(Counter::PeersDisconnectedForAbuse);
        }
        Verdict { acceptance: MessageAcceptance::Reject, disconnect }
    }

    fn judge(&mut self, message: &gossipsub::Message, now: Millis) -> Result<(), Dropped> {
        let opened = self.shared.open(&message.data)?;
        let belongs_to_topic = match opened.payload {
            Payload::Advert(_) => message.topic == self.adverts,
            Payload::Update(_) => message.topic == self.schedules,
        };
        if !belongs_to_topic {
            return Err(Dropped::Invalid);
        }
        let author = peer_of_site(&opened.author).ok_or(Dropped::Malformed)?;
        if !self.authors.admit(author, now) {
            return Err(Dropped::Flood);
        }
        self.shared.believe(opened, &message.data).map(drop)
    }
}
