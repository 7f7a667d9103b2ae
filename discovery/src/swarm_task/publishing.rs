//! What this site tells of itself: its advert, by gossip and in the DHT, and the keys of the index.
//!
//! Invariant: nothing is published while the node leaves but its departure.

use broker::time::Millis;

use super::{SwarmTask, dht::Dht, jittered};
use crate::pace::Leisure;

/// A put waits until this long after the last request,
const PUT_AFTER_REQUEST: Millis = Millis(250);
/// but no longer than this.
const PUT_DELAY_MAX: Millis = Millis(4_000);

impl SwarmTask {
    /// When the DHT may be told something next. A put costs every node of a small grid a message or two, and somebody may
    /// be waiting for the request: puts give way, for a while.
    pub(super) fn put_due(&self) -> Millis {
        let put_at = self.put_began + self.dht.pause();
        (self.requested_at + PUT_AFTER_REQUEST).clamp(put_at, put_at + PUT_DELAY_MAX)
    }

    /// Tells the DHT what waits longest.
    pub(super) fn put_next(&mut self) {
        if !self.dht.may_put() {
            return;
        }
        let kad = &mut self.swarm.behaviour_mut().kad;
        if Dht::is_connected(kad) {
            self.dht.put_next(kad);
        }
        self.put_began = self.shared.clock.now();
    }

    /// Looks for the neighbours in the DHT when it is time.
    pub(super) fn look_for_neighbours(&mut self) {
        let now = self.shared.clock.now();
        if now < self.neighbours_at {
            return;
        }
        let refresh = self.shared.config.intervals.neighbours_refresh_at(self.shared.leisure());
        self.neighbours_at = now + jittered(refresh);
        // An error says that nobody is there to be asked.
        let _ = self.swarm.behaviour_mut().kad.bootstrap();
    }

    pub(super) fn on_outbox(&mut self) {
        let is_offer_new = std::mem::take(&mut self.shared.outbox().is_offer_new);
        if is_offer_new {
            // A grid may have shrunk since the next renewal was set.
            self.refresh_at = self.refresh_at.min(self.refresh_due());
            let envelope = self.shared.view.envelope(self.shared.site());
            self.publish_advert(envelope.map(|envelope| envelope.to_vec()));
            self.publish_index();
        }
        self.gossip.publish_due(&mut self.swarm.behaviour_mut().gossip);
    }

    /// When an advert is to be renewed that is published now.
    fn refresh_due(&self) -> Millis {
        let sites = self.shared.view.site_count();
        self.shared.clock.now() + jittered(self.shared.config.intervals.advert_refresh_among(sites))
    }

    /// Signs the offer anew and publishes it.
    pub(super) fn refresh(&mut self) {
        self.refresh_at = self.refresh_due();
        let offer = self.shared.outbox().offer.clone();
        if let Some(offer) = offer {
            let advert = self.shared.advert(&offer);
            let envelope = self.shared.publishable_advert(advert);
            self.publish_advert(envelope);
        }
    }

    fn publish_advert(&mut self, envelope: Option<Vec<u8>>) {
        if let Some(envelope) = envelope
            && self.leaving.is_none()
        {
            self.gossip.publish_advert(&mut self.swarm.behaviour_mut().gossip, envelope.clone());
            self.dht.publish_advert(envelope);
        }
    }

    /// Publishes the keys of the index again.
    pub(super) fn refresh_index(&mut self) {
        let refresh = self.shared.config.intervals.index_refresh_at(self.shared.leisure());
        self.index_at = self.shared.clock.now() + jittered(refresh);
        self.publish_index();
    }

    fn publish_index(&mut self) {
        let hosts = self.shared.outbox().offer.as_ref().map(|offer| offer.hosts.clone());
        if let Some(hosts) = hosts
            && self.leaving.is_none()
        {
            self.dht.publish_index(&mut self.swarm.behaviour_mut().kad, &hosts);
        }
    }

    /// Puts the advert into the DHT once more as it is. By gossip it came to everybody. Who came into a large grid found the nodes
    /// that are the closest at once.
    pub(super) fn settle(&mut self) {
        if self.leaving.is_none()
            && self.shared.leisure() == Leisure::None
            && let Some(envelope) = self.shared.view.envelope(self.shared.site())
        {
            self.dht.publish_advert(envelope.to_vec());
        }
    }
}
