//! What a node believes of another site at this moment, worked out when somebody wants to know.
//!
//! Ten thousand views of thousands of sites each do not fit into memory, and hardly any of them is ever looked at. So a
//! real [`SiteView`] is built on demand: it begins with the last schedules that the node is sure to have had, and hears
//! every gossip message, repair and recheck since, in the order of their arrival at this node.
//! Invariant: a view shows nothing that had not arrived by now, and asking changes nothing.

use std::collections::BTreeMap;

use broker::{
    time::Millis,
    view::{Heard, Schedules, SiteView},
};
use discovery::costs::{DIAL_ROUND_TRIPS, STREAM_ROUND_TRIPS};

use super::{
    geography::mix,
    settings::BEGIN_US,
    site::{Site, Touch},
    world::{World, millis},
};

/// A gossip message that is older than this when it arrives does not exist.
const LATEST_US: u64 = 120_000_000;

/// What happens to a view.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Gossip message number so many arrives.
    Update(usize),
    /// Schedules arrive that were asked for.
    Fetched,
    /// The schedule may be the one that was confirmed longest ago.
    Recheck,
}

impl World {
    /// Whether a node has room for a site, and takes part in its shard.
    pub(super) fn knows(&self, node: usize, about: usize) -> bool {
        let in_reach = (self.sites.len() * self.settings.subscriptions() / self.settings.shards).max(1) as u64;
        let has_room = mix(self.settings.seed ^ 0x7669, ((node as u64) << 32) | about as u64) % in_reach
            < self.settings.limits.sites_max as u64;
        has_room && self.sites[node].subscribed.contains(&self.sites[about].shard)
    }

    /// What `node` believes of the site `about`; none when it knows nothing of it.
    pub(super) fn belief(&self, node: usize, about: usize) -> Option<SiteView> {
        let other = &self.sites[about];
        if !self.knows(node, about) || other.has_left {
            return None;
        }
        let first = self.first_touch(node, about);
        let time_to_live = self.settings.intervals.advert_time_to_live_among(self.settings.view_sites());
        let time_to_live = Millis(u64::try_from(time_to_live.as_millis()).unwrap_or(0));
        let mut view = SiteView::new(other.advert.clone(), millis(first.at), time_to_live);
        if first.at > self.now {
            return Some(view);
        }
        view.hear_snapshot(other.snapshot_at(first.as_of)?, millis(first.at));
        self.replay(&mut view, node, about, first);
        Some(view)
    }

    /// The last schedules that the node is sure to have had.
    fn first_touch(&self, node: usize, about: usize) -> Touch {
        let (own, other) = (&self.sites[node], &self.sites[about]);
        let one_way_us = self.earth.one_way_us(node, about);
        let draw = |salt: u64| mix(self.settings.seed ^ salt, ((node as u64) << 32) | about as u64);
        let began = if own.started() > BEGIN_US {
            own.started() + self.rebuilt_us(node, draw(0x7374))
        } else {
            // In a grid at rest a schedule was checked at some time in the last round.
            BEGIN_US - draw(0x7263) % self.recheck_us().min(BEGIN_US / 2)
        };
        let introduced = other.lives.iter().rev().find(|life| life.is_introduced).map_or(0, |life| life.started);
        let asked_us = self.repair_jitter_us(draw(0x696e)) + self.turn_us(draw(0x7475));
        let introduced = if introduced > 0 { introduced + 4 * one_way_us + asked_us } else { 0 };
        let at = began.max(introduced);
        let fallback = Touch { at, as_of: at.saturating_sub(one_way_us) };
        match own.touched.get(&about) {
            Some(touch) if touch.at >= fallback.at => *touch,
            _ => fallback,
        }
    }

    fn replay(&self, view: &mut SiteView, node: usize, about: usize, first: Touch) {
        let other = &self.sites[about];
        let period_us = self.recheck_us();
        let mut agenda: BTreeMap<(u64, usize), Step> = BTreeMap::new();
        let oldest = first.as_of.saturating_sub(LATEST_US);
        let from = other.told.partition_point(|told| told.at < oldest);
        for (offset, told) in other.told[from..].iter().enumerate() {
            let Some(delay_us) = self.topics[other.shard].delay_us(told.name, told.at, node) else { continue };
            let arrives = told.at + delay_us;
            if arrives > first.as_of && arrives <= self.now {
                agenda.insert((arrives, from + offset + 2), Step::Update(from + offset));
            }
        }
        agenda.insert((first.at + period_us, 0), Step::Recheck);
        while let Some(((at, _), step)) = agenda.pop_first() {
            if at > self.now {
                break;
            }
            match step {
                Step::Update(number) => {
                    if view.hear_update(&other.told[number].update, millis(at)) == Heard::Gap {
                        let waits_us = self.missed_wait_us(mix(at, node as u64));
                        let takes_us = (1 + STREAM_ROUND_TRIPS) * self.earth.round_trip_us(node, about);
                        agenda.insert((at + waits_us + takes_us, 1), Step::Fetched);
                    }
                }
                Step::Fetched => self.hear_as_of(view, other, at, self.earth.one_way_us(node, about)),
                Step::Recheck => {
                    let next = learnt(view).map_or(at, |learnt| learnt.0 * 1000 + period_us);
                    if next <= at {
                        self.hear_as_of(view, other, at, self.earth.one_way_us(node, about));
                    }
                    agenda.insert((next.max(at + 1_000_000), 0), Step::Recheck);
                }
            }
        }
    }

    fn hear_as_of(&self, view: &mut SiteView, other: &Site, at: u64, one_way_us: u64) {
        let as_of = at.saturating_sub(one_way_us);
        if other.was_up(as_of)
            && let Some(snapshot) = other.snapshot_at(as_of)
        {
            view.hear_snapshot(snapshot, millis(at));
        }
    }

    /// Between two checks of the same schedule, when all sites are quiet: one site is checked each time.
    pub(super) fn recheck_us(&self) -> u64 {
        let intervals = &self.settings.intervals;
        let round_us = intervals.recheck.as_micros() as u64 * self.settings.view_sites() as u64;
        round_us.max(intervals.recheck_age.as_micros() as u64)
    }

    /// Until a node that starts has fetched the schedule which has the place of `drawn` among all.
    fn rebuilt_us(&self, node: usize, drawn: u64) -> u64 {
        let place = drawn % self.settings.view_sites().max(1) as u64;
        self.rebuilt_until_us(node, place as usize + 1)
    }

    /// Until a node that starts has fetched the first `schedules`: as many as a small grid has a few at a time, the others one
    /// by one.
    fn rebuilt_until_us(&self, node: usize, schedules: usize) -> u64 {
        let limits = &self.settings.limits;
        let at_once = schedules.min(limits.sites_eager_max);
        let fetches = at_once.div_ceil(limits.repair_fan_out.max(1)) as u64;
        // Each needs a stream and a question, on a connection that is mostly new.
        let each = 1 + STREAM_ROUND_TRIPS + DIAL_ROUND_TRIPS;
        let later = (schedules - at_once) as u64 * self.settings.intervals.recheck.as_micros() as u64;
        fetches * each * self.earth.typical_round_trip_us(node) + later
    }

    /// How long a new site waits for its turn to be asked in a grid that is too large to ask at once.
    fn turn_us(&self, drawn: u64) -> u64 {
        let is_small = self.settings.view_sites() <= self.settings.limits.sites_eager_max;
        if is_small { 0 } else { drawn % (self.settings.intervals.recheck.as_micros() as u64 + 1) }
    }

    /// How long a node lets what it has missed come by itself.
    pub(super) fn missed_wait_us(&self, drawn: u64) -> u64 {
        self.settings.intervals.repair_patience.as_micros() as u64 + self.repair_jitter_us(drawn)
    }

    fn repair_jitter_us(&self, drawn: u64) -> u64 {
        drawn % (self.settings.intervals.repair_jitter.as_micros() as u64 + 1)
    }
}

/// When the schedules of a view were last confirmed.
pub fn learnt(view: &SiteView) -> Option<Millis> {
    match view.schedules() {
        Schedules::Known(known) => Some(known.learnt),
        Schedules::Unknown => None,
    }
}
