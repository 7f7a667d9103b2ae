//! Gossip: sites publish their changes as a node does, in batches at its pace; what that costs, and when it arrives.
//!
//! Invariant: every message that is published is counted in exactly one epoch of its topic.

use std::time::Duration;

use broker::{ledger::ScheduleUpdateParts, protocol::ScheduleUpdate};
use discovery::outbox::advance;
use rand::RngExt;

use super::{
    chance::chance,
    costs,
    site::Published,
    world::{Event, World},
};
use crate::engine::Moment;

/// Names the draws of when adverts are renewed.
const ADVERTS: u64 = 0x6164;

impl World {
    /// Draws the mesh of every topic and lets some messages spread in it.
    pub(super) fn draw_meshes(&mut self) {
        let (sites, surroundings) = (&self.sites, (&self.settings, &self.earth));
        for topic in &mut self.topics {
            let members = topic.subscribers().iter().copied().filter(|site| sites[*site].is_up()).collect();
            topic.begin_epoch(members, surroundings, &mut self.random, &mut self.counts);
        }
    }

    /// Counts what went through the meshes, and what nodes do at regular times, since the last epoch.
    pub(super) fn count_epoch(&mut self) {
        let passed = self.now() - self.counted_until;
        self.counted_until = self.now();
        self.count_adverts(passed);
        for topic in &mut self.topics {
            topic.end_epoch(&self.settings, passed, &mut self.counts, &mut self.traffic);
        }
        self.count_upkeep(passed);
    }

    /// Every node renews its advert; that is so regular that it needs no events.
    fn count_adverts(&mut self, passed: Duration) {
        let refresh = self.settings.intervals.advert_refresh_among(self.settings.view_sites());
        let (refresh_us, passed_us) = (refresh.as_micros() as i64, passed.as_micros() as i64);
        for position in 0..self.sites.len() {
            let site = &self.sites[position];
            let phase = chance([self.settings.seed, ADVERTS, position as u64]).random_range(0..refresh_us);
            let until = self.now().0 + refresh_us - phase;
            let adverts = until / refresh_us - (until - passed_us) / refresh_us;
            if site.is_up() {
                let bytes = costs::gossip_frame_bytes(&self.settings.grid, site.advert_bytes as usize);
                (0..adverts).for_each(|_| self.topics[site.shard].note_advert(bytes));
            }
        }
    }

    /// The ledger of a site has changed: it publishes that as soon as the pace allows.
    pub(super) fn changed(&mut self, site: usize, parts: ScheduleUpdateParts) {
        let now = self.now();
        let own = &mut self.sites[site];
        own.pending.push(ScheduleUpdate { site: own.id.clone(), from: parts.from, changes: parts.changes.clone() });
        if let Some(life) = own.lives.last_mut() {
            life.changes.push((now, parts));
        }
        if !own.is_publishing {
            own.is_publishing = true;
            let heard_per_s: u64 = own.subscribed.iter().map(|shard| self.topics[*shard].messages_per_s()).sum();
            let (due, run) = (own.pacer.due_when(heard_per_s), own.run);
            self.at(Moment::of_ms(due.0), Event::Publish { site, run });
        }
    }

    /// A site publishes what has changed, in one message.
    pub(super) fn publish_changes(&mut self, site: usize) {
        let (at, name, clocks) = (self.now(), self.name(), self.clocks());
        let own = &mut self.sites[site];
        own.is_publishing = false;
        let Some((from, changes)) = own.pending.take() else { return };
        own.pacer.sent(at.millis());
        if let Some(ledger) = own.ledger() {
            own.schedules_bytes = costs::schedules_bytes(ledger.snapshot(clocks));
        }
        let count = changes.len();
        let mut update = ScheduleUpdate { site: own.id.clone(), from, changes };
        let mut bytes = costs::update_bytes(&self.settings.grid, update.clone());
        if bytes == 0 {
            // Too large for a message: an empty one shows that something is missing.
            update = ScheduleUpdate { from: advance(from, count), changes: Vec::new(), ..update };
            bytes = costs::update_bytes(&self.settings.grid, update.clone());
        }
        let is_first_of_run = own.lives.len() > 1 && own.published.last().is_none_or(|last| last.at < own.started());
        own.published.push(Published { at, name, update });
        let shard = own.shard;
        self.topics[shard].note_update(name, costs::bundled_bytes(bytes as usize) as u64);
        if is_first_of_run {
            self.everybody_fetches(site);
        }
    }
}
