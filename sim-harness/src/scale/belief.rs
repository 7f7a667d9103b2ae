//! What a node believes of another site at this moment, worked out on demand.
//!
//! Ten thousand views of thousands of sites each do not fit into memory, and hardly any of them is ever looked at. So a
//! real [`SiteView`] is built on demand: it begins with the last schedules that the node is sure to have had, and receives
//! every gossip message, repair and recheck since, in the order of their arrival at this node.
//! Invariant: a view shows nothing that had not arrived by now, and asking changes nothing.

use std::{collections::BTreeMap, time::Duration};

use broker::{
    time::Millis,
    view::{Received, Schedules, SiteView},
};

use super::{
    chance::{drawn, pair},
    costs::{DIAL_ROUND_TRIPS, STREAM_ROUND_TRIPS},
    settings::BEGIN,
    site::{Site, Touch},
    world::World,
};
use crate::engine::Moment;

/// No gossip message is on its way for longer.
const LATEST: Duration = Duration::from_secs(120);
/// Names the draws of the sites that a node has room for.
const ROOM: u64 = 0x7669;
/// Before the run begins, no schedule was checked longer ago.
const BEGIN_AGE_MAX: Duration = Duration::from_secs(5_000);
/// Names the draws of delays.
const DELAYS: u64 = 0x7263;

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
        let in_reach = self.settings.sites_in_reach() as u64;
        let has_room =
            drawn([self.settings.seed, ROOM, pair(node, about)]) % in_reach < self.settings.limits.sites_max as u64;
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
        let mut view = SiteView::new(other.advert.clone(), first.at.millis(), time_to_live);
        if first.at > self.now() {
            return Some(view);
        }
        view.receive_snapshot(other.snapshot_at(first.as_of)?, first.at.millis());
        self.replay(&mut view, node, about, first);
        Some(view)
    }

    /// The last schedules that the node is sure to have had.
    fn first_touch(&self, node: usize, about: usize) -> Touch {
        let (own, other) = (&self.sites[node], &self.sites[about]);
        let one_way = self.earth.one_way(node, about);
        let draw = |purpose: u64| drawn([self.settings.seed, DELAYS + purpose, pair(node, about)]);
        let began = if own.started() > BEGIN {
            own.started() + self.rebuilt(node, draw(0))
        } else {
            // In a grid at rest a schedule was checked at some time in the last round.
            BEGIN.before(within(self.recheck().min(BEGIN_AGE_MAX), draw(1)))
        };
        let introduced = other.lives.iter().rev().find(|life| life.is_introduced).map(|life| life.started);
        let asked = within(self.settings.intervals.repair_jitter, draw(2)) + self.turn(draw(3));
        let at = introduced.map_or(began, |introduced| began.max(introduced + 4 * one_way + asked));
        let fallback = Touch { at, as_of: at.before(one_way) };
        match own.touched.get(&about) {
            Some(touch) if touch.at >= fallback.at => *touch,
            _ => fallback,
        }
    }

    fn replay(&self, view: &mut SiteView, node: usize, about: usize, first: Touch) {
        let other = &self.sites[about];
        let period = self.recheck();
        let mut agenda: BTreeMap<(Moment, usize), Step> = BTreeMap::new();
        let oldest = first.as_of.before(LATEST);
        let from = other.published.partition_point(|published| published.at < oldest);
        for (offset, published) in other.published[from..].iter().enumerate() {
            let topic = &self.topics[other.shard];
            let Some(delay) = topic.delay(published.name, published.at, node) else { continue };
            let arrives = published.at + delay;
            if arrives > first.as_of && arrives <= self.now() {
                agenda.insert((arrives, from + offset + 2), Step::Update(from + offset));
            }
        }
        agenda.insert((first.at + period, 0), Step::Recheck);
        while let Some(((at, _), step)) = agenda.pop_first() {
            if at > self.now() {
                break;
            }
            match step {
                Step::Update(number) => {
                    if view.receive_update(&other.published[number].update, at.millis()) == Received::Gap {
                        let waits = self.missed_wait(drawn([at.0 as u64, node as u64]));
                        let takes = (1 + STREAM_ROUND_TRIPS) as u32 * self.earth.round_trip(node, about);
                        agenda.insert((at + waits + takes, 1), Step::Fetched);
                    }
                }
                Step::Fetched => self.receive_as_of(view, other, at, at.before(self.earth.one_way(node, about))),
                Step::Recheck => {
                    let next = learnt(view).map_or(at, |learnt| Moment::of_ms(learnt.0) + period);
                    if next <= at {
                        self.receive_as_of(view, other, at, at.before(self.earth.one_way(node, about)));
                    }
                    agenda.insert((next.max(at.plus_seconds(1)), 0), Step::Recheck);
                }
            }
        }
    }

    fn receive_as_of(&self, view: &mut SiteView, other: &Site, at: Moment, as_of: Moment) {
        if other.was_up(as_of)
            && let Some(snapshot) = other.snapshot_at(as_of)
        {
            view.receive_snapshot(snapshot, at.millis());
        }
    }

    /// Between two checks of the same schedule, when all sites are quiet: one site is checked each time.
    fn recheck(&self) -> Duration {
        let intervals = &self.settings.intervals;
        (intervals.recheck * self.settings.view_sites() as u32).max(intervals.recheck_age)
    }

    /// Until a node that starts has fetched the schedule that has the place `drawn` among all: as many as a small grid has
    /// a few at a time, the others one by one.
    fn rebuilt(&self, node: usize, drawn: u64) -> Duration {
        let limits = &self.settings.limits;
        let schedules = (drawn % self.settings.view_sites().max(1) as u64) as usize + 1;
        let at_once = schedules.min(limits.sites_eager_max);
        let fetches = at_once.div_ceil(limits.repair_fan_out.max(1)) as u32;
        // Each needs a stream and a question, on a connection that is mostly new.
        let each = (1 + STREAM_ROUND_TRIPS + DIAL_ROUND_TRIPS) as u32;
        let later = (schedules - at_once) as u32 * self.settings.intervals.recheck;
        fetches * each * self.earth.typical_round_trip(node) + later
    }

    /// How long a new site waits for its turn to be asked in a grid that is too large to ask at once.
    fn turn(&self, drawn: u64) -> Duration {
        let is_small = self.settings.view_sites() <= self.settings.limits.sites_eager_max;
        if is_small { Duration::ZERO } else { within(self.settings.intervals.recheck, drawn) }
    }

    /// How long a node lets what it has missed come by itself.
    pub(super) fn missed_wait(&self, drawn: u64) -> Duration {
        self.settings.intervals.repair_patience + within(self.settings.intervals.repair_jitter, drawn)
    }
}

/// A part of `length` by chance.
fn within(length: Duration, drawn: u64) -> Duration {
    Duration::from_micros(drawn % (length.as_micros() as u64 + 1))
}

/// When the schedules of a view were last confirmed.
pub fn learnt(view: &SiteView) -> Option<Millis> {
    match view.schedules() {
        Schedules::Known(known) => Some(known.learnt),
        Schedules::Unknown => None,
    }
}
