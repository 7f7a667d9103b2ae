//! The publisher: sends the site's advert by gossip and into the DHT, and puts its keys into the index, in time.
//!
//! Invariant: nothing is published while the node leaves but its departure.

use std::{sync::Arc, time::Duration};

use broker::time::Millis;

use super::behaviour::Behaviour;
use crate::{
    clock::millis,
    config::DhtUpkeep,
    dht::Dht,
    dissemination::{Checks, Gossip},
    shared::Shared,
};

/// Publishes the advert and the index again and again.
pub(crate) struct Publisher {
    shared: Arc<Shared>,
    pub(crate) dht: Dht,
    pub(crate) gossip: Gossip,
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
    is_leaving: bool,
}

/// The advert is soon put into the DHT again: what was published while the grid was forming went to nodes that are not the
/// closest.
const SETTLED_AFTER: Millis = Millis(15_000);
/// The same for the index, which is more work and less urgent.
const FIRST_INDEX_REFRESH: Millis = Millis(60_000);
/// A put waits until this long after the last request,
const PUT_AFTER_REQUEST: Millis = Millis(250);
/// but no longer than this.
const PUT_DELAY_MAX: Millis = Millis(4_000);
/// A node that makes its first connection publishes after this, so that it knows some more nodes by then.
const PUBLISH_AFTER_FIRST_CONNECTION: Millis = Millis(300);

impl Publisher {
    pub(crate) fn new(shared: Arc<Shared>, checks: Checks) -> Publisher {
        let (now, times) = (shared.clock.now(), &shared.config.intervals);
        Publisher {
            dht: Dht::new(Arc::clone(&shared)),
            gossip: Gossip::new(Arc::clone(&shared), checks),
            refresh_at: now + jittered(times.advert_refresh),
            settle_at: Some(now + SETTLED_AFTER),
            index_at: now + FIRST_INDEX_REFRESH.min(millis(times.index_refresh)),
            neighbours_at: now + millis(times.neighbours_refresh_at(DhtUpkeep::Full)),
            put_began: now,
            requested_at: Millis(0),
            is_leaving: false,
            shared,
        }
    }

    /// When something is to be published next; `is_alone` when no member of the grid is connected.
    pub(crate) fn due(&self, is_alone: bool) -> Option<Millis> {
        let put = (self.dht.may_put() && !is_alone).then_some(self.put_due());
        [Some(self.refresh_at), self.settle_at, Some(self.index_at), self.gossip.due(), put].into_iter().flatten().min()
    }

    /// Publishes what is due.
    pub(crate) fn on_timer(&mut self, behaviour: &mut Behaviour) {
        let now = self.shared.clock.now();
        let is_put_due = now >= self.put_due();
        self.gossip.publish_due(&mut behaviour.gossip);
        if is_put_due {
            self.put_next(behaviour);
        }
        if now >= self.refresh_at {
            self.refresh(behaviour);
        }
        if self.settle_at.take_if(|settle_at| now >= *settle_at).is_some() {
            self.settle();
        }
        if now >= self.index_at {
            let refresh = self.shared.config.intervals.index_refresh_at(self.shared.dht_upkeep());
            self.index_at = now + jittered(refresh);
            self.publish_index(behaviour);
        }
    }

    /// Publishes a new offer at once, and changes of schedules as soon as they may go out.
    pub(crate) fn on_outbox(&mut self, behaviour: &mut Behaviour) {
        let is_offer_new = std::mem::take(&mut self.shared.outbox().is_offer_new);
        if is_offer_new {
            // A grid may have shrunk since the next renewal was set.
            self.refresh_at = self.refresh_at.min(self.refresh_due());
            let envelope = self.shared.view.envelope(self.shared.site());
            self.publish_advert(behaviour, envelope.map(|envelope| envelope.to_vec()));
            self.publish_index(behaviour);
        }
        self.gossip.publish_due(&mut behaviour.gossip);
    }

    /// Signs the offer again and publishes it.
    pub(crate) fn refresh(&mut self, behaviour: &mut Behaviour) {
        self.refresh_at = self.refresh_due();
        let outbox = self.shared.outbox();
        if let Some(offer) = &outbox.offer {
            let envelope = self.shared.publishable_advert(self.shared.advert(offer, outbox.quotes));
            drop(outbox);
            self.publish_advert(behaviour, envelope);
        }
    }

    /// Notes a first connection: what was gossiped before reached no node, so it is published again.
    pub(crate) fn first_connected(&mut self) {
        // What waits for the DHT goes out anyway.
        if !self.dht.is_put_waiting() {
            self.refresh_at = self.refresh_at.min(self.shared.clock.now() + PUBLISH_AFTER_FIRST_CONNECTION);
        }
    }

    /// Notes a request about an attempt: puts give way to it.
    pub(crate) fn requested(&mut self) {
        self.requested_at = self.shared.clock.now();
    }

    /// Publishes the departure.
    pub(crate) fn leave(&mut self, behaviour: &mut Behaviour, departure: Vec<u8>) {
        self.is_leaving = true;
        self.gossip.publish_all(&mut behaviour.gossip);
        self.gossip.publish_advert(&mut behaviour.gossip, departure.clone());
        self.dht.leave(&mut behaviour.kad, departure);
    }

    /// Looks for the neighbours in the DHT when it is time.
    pub(crate) fn look_for_neighbours(&mut self, behaviour: &mut Behaviour) {
        let now = self.shared.clock.now();
        if now < self.neighbours_at {
            return;
        }
        let refresh = self.shared.config.intervals.neighbours_refresh_at(self.shared.dht_upkeep());
        self.neighbours_at = now + jittered(refresh);
        // An error means that there is no peer to ask.
        let _ = behaviour.kad.bootstrap();
    }

    /// When the next put into the DHT may begin. A put costs every node of a small grid a message or two, and a user may be
    /// waiting for the request: puts give way, for a while.
    fn put_due(&self) -> Millis {
        let put_at = self.put_began + self.dht.pause();
        (self.requested_at + PUT_AFTER_REQUEST).clamp(put_at, put_at + PUT_DELAY_MAX)
    }

    fn put_next(&mut self, behaviour: &mut Behaviour) {
        if !self.dht.may_put() {
            return;
        }
        if Dht::is_connected(&mut behaviour.kad) {
            self.dht.put_next(&mut behaviour.kad);
        }
        self.put_began = self.shared.clock.now();
    }

    /// When an advert is to be renewed that is published now.
    fn refresh_due(&self) -> Millis {
        let sites = self.shared.view.site_count();
        self.shared.clock.now() + jittered(self.shared.config.intervals.advert_refresh_among(sites))
    }

    fn publish_advert(&mut self, behaviour: &mut Behaviour, envelope: Option<Vec<u8>>) {
        if let Some(envelope) = envelope
            && !self.is_leaving
        {
            self.gossip.publish_advert(&mut behaviour.gossip, envelope.clone());
            self.dht.publish_advert(envelope);
        }
    }

    fn publish_index(&mut self, behaviour: &mut Behaviour) {
        let hosts = self.shared.outbox().offer.as_ref().map(|offer| offer.hosts.clone());
        if let Some(hosts) = hosts
            && !self.is_leaving
        {
            self.dht.publish_index(&mut behaviour.kad, &hosts);
        }
    }

    /// Puts the advert into the DHT once more as it is; gossip has brought it to all nodes. In a large grid the first put
    /// found the closest nodes already.
    fn settle(&mut self) {
        if !self.is_leaving
            && self.shared.dht_upkeep() == DhtUpkeep::Full
            && let Some(envelope) = self.shared.view.envelope(self.shared.site())
        {
            self.dht.publish_advert(envelope.to_vec());
        }
    }
}

/// The interval, a twentieth shorter or longer each time, so that sites do not fall into step.
fn jittered(interval: Duration) -> Millis {
    let Millis(interval) = millis(interval);
    Millis(interval - interval / 20 + rand::random_range(0..=interval / 10))
}
