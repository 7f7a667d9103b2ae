//! What this site tells of itself: its advert, by gossip and in the DHT, and the keys of the index.
//!
//! Invariant: nothing is published while the node leaves but its departure.

use super::{SwarmTask, jittered};

impl SwarmTask {
    pub(super) fn on_outbox(&mut self) {
        let is_offer_new = std::mem::take(&mut self.shared.outbox().is_offer_new);
        if is_offer_new {
            let envelope = self.shared.view.envelope(self.shared.site());
            self.publish_advert(envelope.map(|envelope| envelope.to_vec()));
            self.publish_index();
        }
        self.gossip.publish_due(&mut self.swarm.behaviour_mut().gossip);
    }

    /// Signs the offer anew and publishes it.
    pub(super) fn refresh(&mut self) {
        self.refresh_at = self.shared.clock.now() + jittered(self.shared.config.intervals.advert_refresh);
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

    pub(super) fn publish_index(&mut self) {
        let hosts = self.shared.outbox().offer.as_ref().map(|offer| offer.hosts.clone());
        if let Some(hosts) = hosts
            && self.leaving.is_none()
        {
            self.dht.publish_index(&mut self.swarm.behaviour_mut().kad, &hosts);
        }
    }

    /// Puts the advert into the DHT once more as it is. By gossip it came to everybody.
    pub(super) fn settle(&mut self) {
        if self.leaving.is_none()
            && let Some(envelope) = self.shared.view.envelope(self.shared.site())
        {
            self.dht.publish_advert(envelope.to_vec());
        }
    }
}
