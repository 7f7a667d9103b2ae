//! How a simulated node learns of others: gossip that may be lost or late, repaired by asking the site itself; and
//! phase I on its views. All nodes know from the start which sites there are (in a live grid, through the index).
//!
//! Invariant: what a node plans on comes out of its own [`SiteView`]s (and its own ledger) only.

use std::{collections::BTreeSet, rc::Rc};

use broker::{
    ids::SiteId,
    ledger::{Books, ScheduleUpdateParts},
    negotiation::{self, Found, FoundHost},
    plan::CutCounts,
    protocol::{Advert, ScheduleSnapshot, ScheduleUpdate, SiteAnswer},
    request::Request,
    time::Millis,
    view::{Received, SiteView},
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    canary::Canary,
    message::{Body, Gossip},
    node::{Search, known_version},
    world::{Event, World},
};
use crate::engine::Medium;

/// From one sign of life of a site to the next.
const SIGN_OF_LIFE_MS: u64 = 4_000;
/// How long an advert is believed.
const TIME_TO_LIVE: Millis = Millis(30_000);
/// A schedule that was learnt longer ago is asked for again before it is planned on.
const MAX_SCHEDULE_AGE: Millis = Millis(20_000);
/// How long phase I waits for schedules that it has asked for.
const SEARCH_MS: u64 = 400;
/// A site is not asked for its schedules more often.
const FETCH_EVERY_MS: u64 = 300;

impl World {
    /// The next advert of a node.
    pub(super) fn advert(&mut self, node: usize) -> Advert {
        let incarnation = self.nodes[node].disk.incarnation;
        let site = self.nodes[node].site.clone();
        let hosts = self.nodes[node].hosts.iter().map(|(host, _)| host.clone()).collect();
        let number = self.running(node).map_or(0, |running| {
            running.adverts += 1;
            running.adverts
        });
        Advert {
            site,
            name: String::new(),
            sequence: incarnation * 1_000_000 + number,
            time_to_live_s: 30,
            contact: None,
            hosts,
            addresses: Vec::new(),
        }
    }

    /// Sends gossip to all others.
    pub(super) fn gossip(&mut self, node: usize, gossip: &Rc<Gossip>) {
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            self.send(node, to, Body::Gossip(gossip.clone()));
        }
    }

    /// The site publishes a sign of life, and forgets what has passed.
    pub(super) fn sign_of_life(&mut self, node: usize) {
        let (now, run) = (self.clock(node), self.nodes[node].run);
        let Some(running) = self.running(node) else { return };
        running.machines.ledger.forget_past(now);
        let from = running.machines.ledger.version();
        self.perform_ledger(node);
        if self.nodes[node].run != run {
            return;
        }
        let advert = self.advert(node);
        let update = ScheduleUpdateParts { from, changes: Vec::new() };
        let gossip = Rc::new(Gossip { advert, update });
        self.gossip(node, &gossip);
        self.after(SIGN_OF_LIFE_MS, Event::SignOfLife { node, run });
    }

    pub(super) fn receive_gossip(&mut self, node: usize, from: usize, gossip: &Gossip) {
        let now = self.clock(node).monotonic;
        let site = self.nodes[from].site.clone();
        let Some(running) = self.running(node) else { return };
        let advert = &gossip.advert;
        let view = running.views.entry(from).or_insert_with(|| SiteView::new(advert.clone(), now, TIME_TO_LIVE));
        let before = known_version(view);
        if advert.sequence > view.advert().sequence {
            view.receive_advert(advert.clone(), now, TIME_TO_LIVE);
        }
        let ScheduleUpdateParts { from: version, changes } = &gossip.update;
        let heard = view.receive_update(&ScheduleUpdate { site, from: *version, changes: changes.clone() }, now);
        if heard == Received::Applied && !changes.is_empty() {
            self.check_view(node, from, before);
        }
        if heard == Received::Gap {
            self.fetch(node, from);
        }
    }

    pub(super) fn receive_schedules(&mut self, node: usize, from: usize, advert: &Advert, snapshot: &ScheduleSnapshot) {
        let now = self.clock(node).monotonic;
        let accepts_old = self.canary == Some(Canary::AcceptOldSequence);
        let Some(running) = self.running(node) else { return };
        let view = running.views.entry(from).or_insert_with(|| SiteView::new(advert.clone(), now, TIME_TO_LIVE));
        let before = known_version(view);
        if accepts_old {
            let remaining = view.expires() - now;
            *view = SiteView::new(view.advert().clone(), now, remaining);
        }
        view.receive_snapshot(snapshot.clone(), now);
        self.check_view(node, from, before);
    }

    /// Direct answers carry the version of their site's ledger.
    pub(super) fn note_version(&mut self, node: usize, from: usize, answer: &SiteAnswer) {
        let version = match answer {
            SiteAnswer::Held { version, .. }
            | SiteAnswer::Confirmed { version }
            | SiteAnswer::Released { version }
            | SiteAnswer::Booked { version, .. }
            | SiteAnswer::Found { version, .. }
            | SiteAnswer::Bookings { version, .. } => *version,
            SiteAnswer::Refused(refusal) => refusal.version,
            SiteAnswer::Settled | SiteAnswer::Status { .. } => return,
        };
        let now = self.clock(node).monotonic;
        let Some(view) = self.running(node).and_then(|running| running.views.get_mut(&from)) else { return };
        if view.receive_version(version, now) == Received::Gap {
            self.fetch(node, from);
        }
    }

    fn fetch(&mut self, node: usize, from: usize) {
        let now = self.now();
        let Some(running) = self.running(node) else { return };
        if running.fetched.get(&from).is_some_and(|at| now.ms_since(*at) < FETCH_EVERY_MS) {
            return;
        }
        running.fetched.insert(from, now);
        self.send(node, from, Body::Fetch);
    }

    pub(super) fn answer_fetch(&mut self, node: usize, from: usize) {
        let now = self.clock(node);
        let Some(running) = self.nodes[node].running() else { return };
        let snapshot = running.machines.ledger.snapshot(now);
        let schedules = Rc::new((self.advert(node), snapshot));
        self.send(node, from, Body::Schedules(schedules));
    }

    /// Phase I: with enough known it answers at once, else it asks for what is missing and waits a while.
    pub(super) fn search(&mut self, node: usize, search: Search, enough: usize) {
        let (found, mut missing) = self.look_for(node, &search);
        if let Some(running) = self.nodes[node].running() {
            missing.extend((0..self.nodes.len()).filter(|site| *site != node && !running.views.contains_key(site)));
        }
        let is_enough = found.hosts.len() >= enough || missing.is_empty();
        let after = if is_enough { self.random.random_range(0..=3) } else { SEARCH_MS };
        for site in missing {
            self.fetch(node, site);
        }
        let run = self.nodes[node].run;
        self.after(after, Event::Found { node, run, search });
    }

    pub(super) fn found(&mut self, node: usize, search: &Search) {
        let (mut found, _) = self.look_for(node, search);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(search.seed);
        while found.hosts.len() > search.count {
            let index = random.random_range(0..found.hosts.len());
            found.hosts.swap_remove(index);
        }
        self.feed_request(node, &search.request, negotiation::Event::Found(found));
    }

    /// Whether the view that a node has of a site, which runs, is up to date.
    pub(super) fn knows(&self, node: usize, site: usize) -> bool {
        let now = self.clock(node).monotonic;
        let version = self.nodes[site].running().map(|running| running.machines.ledger.version());
        let view = self.nodes[node].running().and_then(|running| running.views.get(&site));
        view.is_some_and(|view| {
            let known = view.fresh_schedules(now, MAX_SCHEDULE_AGE);
            view.expires() > now && known.is_some_and(|known| Some(known.version) == version)
        })
    }

    fn look_for(&self, node: usize, search: &Search) -> (Found, Vec<usize>) {
        let running = self.nodes[node].running();
        let negotiation = running.and_then(|running| running.machines.negotiations.get(&search.request));
        negotiation.map(|found| self.look_around(node, found.wanted(), &search.exclude)).unwrap_or_default()
    }

    /// What the node believes of hosts that could serve, and the sites whose schedules it lacks.
    fn look_around(&self, node: usize, wanted: &Request, exclude: &BTreeSet<SiteId>) -> (Found, Vec<usize>) {
        let now = self.clock(node);
        let (mut found, mut missing) = (Found::default(), Vec::new());
        let Some(running) = self.nodes[node].running() else { return (found, missing) };
        let needs = wanted.host_needs();
        let mut cut = CutCounts::default();
        let own = (!exclude.contains(running.machines.ledger.site())).then(|| running.machines.ledger.snapshot(now));
        if let Some(own) = own {
            for (host, (_, schedule)) in running.machines.ledger.hosts().zip(own.hosts) {
                found.known_hosts += 1;
                let host = host.host().clone();
                match needs.first_unmet(&own.site, &host) {
                    Some(unmet) => cut.add(unmet, 1),
                    None => {
                        found.hosts.push(FoundHost { site: own.site.clone(), host, schedule, version: own.version });
                    }
                }
            }
        }
        for (index, view) in &running.views {
            let is_excluded = exclude.contains(&view.advert().site);
            if is_excluded || view.expires() <= now.monotonic {
                continue;
            }
            let fresh = view.fresh_schedules(now.monotonic, MAX_SCHEDULE_AGE);
            if fresh.is_none() {
                missing.push(*index);
            }
            for host in &view.advert().hosts {
                found.known_hosts += 1;
                if let Some(unmet) = needs.first_unmet(&view.advert().site, host) {
                    cut.add(unmet, 1);
                } else if let Some(known) = fresh {
                    let schedule = known.by_host.get(&host.id).cloned().unwrap_or_default();
                    let (site, host) = (view.advert().site.clone(), host.clone());
                    found.hosts.push(FoundHost { site, host, schedule, version: known.version });
                } else {
                    found.without_schedule += 1;
                }
            }
        }
        found.cut = cut;
        (found, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Moment;

    /// Phase I against what a request means, written out: also with totals only, and with named candidates.
    #[test]
    fn hosts_are_found_that_could_serve_and_no_others() {
        let mut with_totals_only = 0;
        for seed in 0..30 {
            let mut world = World::of_seed(seed, None, false);
            while world.advance(Moment(20_000_000)) {}
            let anything = serde_json::from_str(r#"{"hosts":1,"duration":1}"#).unwrap();
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            for node in 0..world.nodes.len() {
                let all = world.look_around(node, &anything, &BTreeSet::new()).0.hosts;
                let names: Vec<_> = all.iter().flat_map(|found| found.host.capacity.keys()).cloned().collect();
                for n in (1..=4_u64).filter(|_| !names.is_empty()) {
                    let name = &names[random.random_range(0..names.len())];
                    let (least, total) = (random.random_range(0..6_000_u64), random.random_range(0..6_u64));
                    let with_least = random.random_bool(0.5);
                    let per_host = if with_least { format!(r#""{name}":{least}"#) } else { String::new() };
                    let named = random.random_bool(0.3) && all.len() as u64 > n;
                    let few: Vec<String> =
                        all[..all.len() / 2 + 1].iter().map(|f| format!("{}/{}", f.site, f.host.id)).collect();
                    let candidates =
                        if named && few.len() as u64 >= n { serde_json::json!(few) } else { serde_json::Value::Null };
                    let request = format!(
                        r#"{{"hosts":{n},"duration":1,"per_host":{{{per_host}}},"total":{{"{name}":{total}}},"candidates":{candidates}}}"#
                    );
                    let request: Request = serde_json::from_str(&request).unwrap();
                    let least = if with_least { least } else { u64::from(total >= n) };
                    let fits = |found: &&FoundHost| {
                        found.host.capacity.get(name).map_or(0, |amount| amount.0) >= least
                            && (candidates.is_null() || few.contains(&format!("{}/{}", found.site, found.host.id)))
                    };
                    let id = |found: &FoundHost| (found.site.clone(), found.host.id.clone());
                    let expected: Vec<_> = all.iter().filter(fits).map(id).collect();
                    let found = world.look_around(node, &request, &BTreeSet::new()).0;
                    assert_eq!(found.hosts.iter().map(id).collect::<Vec<_>>(), expected, "seed {seed}: {request:?}");
                    with_totals_only += usize::from(!with_least && !expected.is_empty());
                }
            }
        }
        assert!(with_totals_only > 20, "{with_totals_only}");
    }
}
