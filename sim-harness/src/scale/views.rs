//! What nodes believe of other sites at a moment, worked out on demand.
//!
//! Ten thousand views of thousands of sites each do not fit into memory, and hardly any of them is ever looked at. So a
//! real [`SiteView`] is built on demand: it begins with the last schedules that the node is sure to have had, and receives
//! every gossip message, repair and recheck since, in the order of their arrival at this node.
//! Invariant: a view shows nothing that had not arrived by now, and asking changes nothing.

use std::{collections::BTreeMap, time::Duration};

use broker::{
    demand::HostNeeds,
    negotiation::FoundHost,
    protocol::{ClassesLeft, LedgerVersion},
    time::Millis,
    view::{Received, Schedules, SiteView},
};

use super::{
    chance::{drawn, pair, within},
    geography::{DIAL_ROUND_TRIPS, Geography},
    gossip::Gossip,
    options::{BEGIN, Settings, clocks},
    site::{Site, Touch},
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

/// A host: its site, and its position there.
pub type Place = (usize, usize);

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

/// What all views follow from.
#[derive(Debug, Clone, Copy)]
pub struct Views<'w> {
    pub settings: &'w Settings,
    pub earth: &'w Geography,
    pub sites: &'w [Site],
    pub gossip: &'w Gossip,
    pub now: Moment,
}

impl Views<'_> {
    /// Whether a node has room for a site, and takes part in its shard.
    pub fn knows(&self, node: usize, about: usize) -> bool {
        let in_reach = self.settings.sites_in_reach() as u64;
        let chance = drawn([self.settings.run.seed, ROOM, pair(node, about)]);
        let has_room = chance % in_reach < self.settings.limits.sites_max as u64;
        has_room && self.sites[node].subscribed.contains(&self.sites[about].shard)
    }

    /// Whether a node knows a host that could serve a request with these needs.
    pub fn is_candidate(&self, node: usize, needs: &HostNeeds<'_>, (site, host): Place) -> bool {
        let own = &self.sites[site];
        let is_known = || node == site || (!own.has_left && self.knows(node, site));
        needs.are_met_by(&own.id, &own.hosts[host].0) && is_known()
    }

    /// Whether a site has not answered a node of late.
    pub fn is_silent(&self, node: usize, site: usize) -> bool {
        self.sites[node].contacts.silent.get(&site).is_some_and(|until| *until > self.now)
    }

    /// Whether a node knows the schedules of a site at least as of so long ago; else the version that it knows of them, if it does.
    pub fn known_since(&self, node: usize, site: usize, age_max: Millis) -> Result<(), Option<LedgerVersion>> {
        if node == site {
            return self.sites[node].ledger().map(|_| ()).ok_or(None);
        }
        let view = self.of(node, site).ok_or(None)?;
        match (view.fresh_schedules(self.now.millis(), age_max), view.schedules()) {
            (Some(_), _) => Ok(()),
            (None, Schedules::Known(known)) if !known.has_gap => Err(Some(known.version)),
            (None, _) => Err(None),
        }
    }

    /// Hosts of a site with the schedules that the node believes, and how long ago these were confirmed (none for its own); none when they
    /// are older.
    pub fn fresh_hosts(
        &self,
        node: usize,
        site: usize,
        places: &[Place],
        age_max: Millis,
    ) -> Option<(Vec<FoundHost>, Option<Millis>)> {
        let (now, of, mut left) = (self.now.millis(), &self.sites[site], ClassesLeft::default());
        if node == site {
            let own = of.ledger()?.snapshot(clocks(self.now));
            let found = places.iter().map(|(_, host)| of.found_host(*host, &own, &mut left));
            return Some((found.collect(), None));
        }
        let view = self.of(node, site)?;
        let known = view.fresh_schedules(now, age_max)?;
        let found = |(_, host): &Place| {
            let host = of.hosts[*host].0.clone();
            let schedule = known.schedules.next_of(&host, &mut left);
            let (site, version) = (of.id.clone(), known.version);
            FoundHost { site, host, schedule, version, offer: Default::default(), standing: None }
        };
        Some((places.iter().map(found).collect(), Some(now - known.learnt)))
    }

    /// What `node` believes of the site `about`; none when it knows nothing of it.
    pub fn of(&self, node: usize, about: usize) -> Option<SiteView> {
        let other = &self.sites[about];
        if !self.knows(node, about) || other.has_left {
            return None;
        }
        let first = self.first_touch(node, about);
        let time_to_live = (Moment::default() + self.settings.advert_time_to_live()).millis();
        let mut view = SiteView::new(other.advert.clone(), first.at.millis(), time_to_live);
        if first.at <= self.now {
            view.receive_snapshot(other.history.snapshot_at(&other.id, first.as_of)?, first.at.millis());
            self.replay(&mut view, node, about, first);
        }
        Some(view)
    }

    /// The last schedules that the node is sure to have had.
    fn first_touch(&self, node: usize, about: usize) -> Touch {
        let (own, other) = (&self.sites[node], &self.sites[about]);
        let one_way = self.earth.one_way(node, about);
        let draw = |purpose: u64| drawn([self.settings.run.seed, DELAYS + purpose, pair(node, about)]);
        let started = own.history.last_started();
        let began = if started > BEGIN {
            started + self.rebuilt(node, draw(0))
        } else {
            // In a grid at rest a schedule was checked at some time in the last round.
            BEGIN.before(within(self.recheck().min(BEGIN_AGE_MAX), draw(1)))
        };
        // In a grid that is too large to ask all at once, a new site waits for its turn.
        let is_small = self.settings.view_sites() <= self.settings.limits.sites_eager_max;
        let turn = if is_small { Duration::ZERO } else { within(self.settings.intervals.recheck, draw(3)) };
        let asked = within(self.settings.intervals.repair_jitter, draw(2)) + turn;
        let introduced = other.history.introduced();
        let at = introduced.map_or(began, |introduced| began.max(introduced + 4 * one_way + asked));
        let touched = own.contacts.touched.get(&about).filter(|touch| touch.at >= at);
        touched.copied().unwrap_or(Touch { at, as_of: at.before(one_way) })
    }

    fn replay(&self, view: &mut SiteView, node: usize, about: usize, first: Touch) {
        let other = &self.sites[about];
        let (period, one_way) = (self.recheck(), self.earth.one_way(node, about));
        let mut agenda: BTreeMap<(Moment, usize), Step> = BTreeMap::new();
        for (number, published) in other.history.published_since(first.as_of.before(LATEST)) {
            let Some(delay) = self.gossip.delay(other.shard, (published.name, published.at), node) else { continue };
            let arrives = published.at + delay;
            if arrives > first.as_of && arrives <= self.now {
                agenda.insert((arrives, number + 2), Step::Update(number));
            }
        }
        let receive = |view: &mut SiteView, at: Moment| {
            let as_of = at.before(one_way);
            if other.history.was_up(as_of)
                && let Some(snapshot) = other.history.snapshot_at(&other.id, as_of)
            {
                view.receive_snapshot(snapshot, at.millis());
            }
        };
        agenda.insert((first.at + period, 0), Step::Recheck);
        while let Some(((at, _), step)) = agenda.pop_first()
            && at <= self.now
        {
            match step {
                Step::Update(number) => {
                    if view.receive_update(other.history.update(number), at.millis()) == Received::Gap {
                        let waits = self.settings.missed_wait(drawn([at.0 as u64, node as u64]));
                        let takes = 2 * one_way;
                        agenda.insert((at + waits + takes, 1), Step::Fetched);
                    }
                }
                Step::Fetched => receive(view, at),
                Step::Recheck => {
                    let next = match view.schedules() {
                        Schedules::Known(known) => Moment::of_ms(known.learnt.0) + period,
                        Schedules::Unknown => at,
                    };
                    if next <= at {
                        receive(view, at);
                    }
                    agenda.insert((next.max(at.plus_seconds(1)), 0), Step::Recheck);
                }
            }
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
        // Each is a question on a connection that is mostly new.
        let each = 1 + DIAL_ROUND_TRIPS;
        let later = (schedules - at_once) as u32 * self.settings.intervals.recheck;
        fetches * each * self.earth.typical_round_trip(node) + later
    }
}
