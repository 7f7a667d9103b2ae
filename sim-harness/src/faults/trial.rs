//! The run of one seed: what users do, what goes wrong, and when everything is healed and has to settle.
//!
//! Invariant: what was added to the simulator later draws from generators of its own, so earlier seeds run as they did.

use broker::request::Request;
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    aimed::Aims,
    attacker::Attacker,
    batch_plans::{self, Placed},
    batches::Batches,
    canary::Canary,
    checks,
    classes::Classes,
    clock_setting,
    clocks::Clocks,
    demands::Demands,
    descriptors::Descriptors,
    disk_filling,
    disks::Disks,
    drains::Drains,
    event::{Event, NodeEvent},
    grid::Grid,
    hoarding,
    hoards::Hoards,
    lies::Lies,
    life,
    links::Links,
    losses::{self, Fates},
    lying,
    money::Money,
    names,
    node::State,
    options::{Options, SETTLE_WITHIN_MS},
    owners, queueing,
    queues::Queues,
    rules::Rules,
    ruling,
    scales::Scales,
    shapes::Shapes,
    shares::Shares,
    slacks::Slacks,
    starving, troubles, user_actions,
    users::Report,
    world::World,
};
use crate::engine::{Medium as _, Moment};

/// With this the seed of a run becomes that of its generator of losses and takeovers.
const FATES: u64 = 0x5eed_0f10_55e5;
/// With this the seed of a run becomes that of its generator of users that change their entry point again and again.
const WANDERINGS: u64 = 0x0a11_0f17_5eed;
/// With this the seed of a run becomes that of its generators of demands.
const DEMANDS: u64 = 0x00de_3a2d_5eed;
/// With this the seed of a run becomes that of its generators of money.
const MONEY: u64 = 0x0000_c3ed_1750;
/// With this the seed of a run becomes that of its generators of shapes.
const SHAPES: u64 = 0x5ba9_e500_5eed;
/// With this the seed of a run becomes that of its generators of factors.
const SCALES: u64 = 0x5ca1_e500_5eed;
/// With this the seed of a run becomes that of its generators of slacks.
const SLACKS: u64 = 0x51ac_c500_5eed;
/// With this the seed of a run becomes that of its generators of links.
const LINKS: u64 = 0x0017_4c5a_5eed;
/// With this the seed of a run becomes that of its generators of batches.
const BATCHES: u64 = 0x0ba7_c4e5_5eed;
/// With this the seed of a run becomes that of its generator of sites that are emptied.
const DRAINS: u64 = 0x0d2a_17e5_5eed;
/// With this the seed of a run becomes that of its generator of clocks that are set.
const CLOCKS: u64 = 0x0c10_c500_5eed;
/// With this the seed of a run becomes that of its generators of full disks.
const DISKS: u64 = 0x00d1_5c50_5eed;
/// With this the seed of a run becomes that of its generators of disks that lie.
const LIES: u64 = 0x011e_5d10_5eed;
/// With this the seed of a run becomes that of its generators of descriptors that run out.
const DESCRIPTORS: u64 = 0x0de5_c210_5eed;
/// With this the seed of a run becomes that of its generators of rules.
const RULES: u64 = 0x2a1e_5000_5eed;
/// With this the seed of a run becomes that of its generator of shares.
const SHARES: u64 = 0x5ba2_e500_5eed;
/// With this the seed of a run becomes that of its generators of a hoarder.
const HOARDS: u64 = 0x0a0a_2d00_5eed;
/// With this the seed of a run becomes that of its generators of own queues.
const QUEUES: u64 = 0x0e0e_0e5e_5eed;
/// With this the seed of a run becomes that of its generator of classes.
const CLASSES: u64 = 0x0c1a_55e5_5eed;
/// One seed in so many has such users.
const WANDERING_EVERY: u64 = 16;
/// From this seed on half of the seeds with losses have them, and half lose coordinators for good; and some users of all seeds hand
/// plans in.
pub const HARDER_FROM: u64 = 1_000_000_000_000;
/// There, one request in so many comes with a plan.
const HANDED_IN_EVERY: u64 = 4;
/// From this seed on owners take hosts back from requests as well, in half of the seeds with losses.
pub const HARDEST_FROM: u64 = 10 * HARDER_FROM;
/// From this seed on owners have prices and users budgets, in half of the seeds.
pub const PRICED_FROM: u64 = 10 * HARDEST_FROM;
/// From this seed on some requests are lists of shapes, and users hand in batches, each in half of the seeds.
pub const SHAPED_FROM: u64 = 2 * PRICED_FROM;
/// From this seed on sites have uplinks, and one request in three has traffic.
pub const LINKED_FROM: u64 = 3 * PRICED_FROM;
/// From this seed on half of the batches are reserved as a whole or not at all.
pub const TIED_FROM: u64 = 4 * PRICED_FROM;
/// From this seed on owners empty sites, and limit what one user, node or network may have, each in half of the seeds.
pub const DRAINED_FROM: u64 = 5 * PRICED_FROM;
/// From this seed on a node holds and never confirms, in a third of the seeds.
pub const HOARDED_FROM: u64 = 10 * PRICED_FROM;
/// From this seed on half of the sites have their hosts in a class, whose seats they bind late.
pub const CLASSED_FROM: u64 = 20 * PRICED_FROM;
/// From this seed on owners have jobs of their own that wait, in half of the seeds.
pub const QUEUED_FROM: u64 = 30 * PRICED_FROM;
/// From this seed on some requests are moldable, in half of the seeds.
pub const SCALED_FROM: u64 = 40 * PRICED_FROM;
/// From this seed on users of most requests may wait, and owners bear that jobs are stopped.
pub const WAITED_FROM: u64 = 50 * PRICED_FROM;
/// From this seed on owners change their rules while requests are under way, in two of three seeds.
pub const RULED_FROM: u64 = 100 * PRICED_FROM;
/// From this seed on wall clocks are set, in half of the seeds.
pub const CLOCKED_FROM: u64 = 2 * RULED_FROM;
/// From this seed on disks are full for a while, nodes run out of descriptors, and disks lie where hosts may be lost, each in half of the
/// seeds.
pub const DISKED_FROM: u64 = 2 * CLOCKED_FROM;
/// Most events of a run. A run that needs more is stuck in a loop.
const STEPS_MAX: u64 = 400_000;
/// From one look at whether everything has settled to the next.
const LOOK_EVERY_MS: u64 = 500;
/// How long a user waits when no entry point can be reached.
const COME_BACK_MS: u64 = 700;
/// A world, and what is going to happen to it.
pub struct Trial {
    pub world: World,
    aims: Option<Aims>,
    is_over: bool,
}

impl Trial {
    /// A world of which nothing is planned: no site starts and no user asks.
    pub fn new(
        options: Options,
        [random, attacks, fates]: [Xoshiro256PlusPlus; 3],
        canary: Option<Canary>,
        keeps_history: bool,
    ) -> Trial {
        let grid = Grid::new(options, random, canary, keeps_history);
        Trial { world: World::new(grid, Attacker::new(attacks), Fates::new(fates)), aims: None, is_over: false }
    }

    /// The world of a seed, before anything has happened.
    pub fn of_seed(seed: u64, canary: Option<Canary>, keeps_history: bool) -> Trial {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut options = Options::draw(&mut random);
        let mut attacks = Xoshiro256PlusPlus::seed_from_u64(!seed);
        options.draw_trust(&mut attacks);
        let mut fates = Xoshiro256PlusPlus::seed_from_u64(seed ^ FATES);
        options.draw_losses(&mut fates);
        options.demands = Demands::draw(seed ^ DEMANDS);
        options.handed_in_every = (seed >= HARDER_FROM).then_some(HANDED_IN_EVERY);
        options.money = (seed >= PRICED_FROM).then(|| Money::draw(seed ^ MONEY)).flatten();
        options.shapes = (seed >= SHAPED_FROM).then(|| Shapes::draw(seed ^ SHAPES)).flatten();
        options.batches = (seed >= SHAPED_FROM).then(|| Batches::draw(seed ^ BATCHES)).flatten();
        options.links = (seed >= LINKED_FROM).then(|| Links::of(seed ^ LINKS));
        options.batches.iter_mut().for_each(|batches| batches.has_tied = seed >= TIED_FROM);
        options.drains = (seed >= DRAINED_FROM).then(|| Drains::draw(seed ^ DRAINS)).flatten();
        options.shares = (seed >= DRAINED_FROM).then(|| Shares::draw(seed ^ SHARES)).flatten();
        options.scales = (seed >= SCALED_FROM).then(|| Scales::draw(seed ^ SCALES)).flatten();
        options.hoards = (seed >= HOARDED_FROM).then(|| Hoards::draw(seed ^ HOARDS)).flatten();
        options.queues = (seed >= QUEUED_FROM).then(|| Queues::draw(seed ^ QUEUES)).flatten();
        options.slacks = (seed >= WAITED_FROM).then(|| Slacks::of(seed ^ SLACKS));
        if options.slacks.is_some() {
            options.queues = Some(Queues::patient(seed ^ QUEUES));
        }
        options.rules = (seed >= RULED_FROM).then(|| Rules::draw(seed ^ RULES)).flatten();
        draw_machines(&mut options, seed);
        options.classes = (seed >= CLASSED_FROM).then(|| Classes::of(seed ^ CLASSES));
        let mut aims = Aims::of_seed(seed);
        if let Some(aims) = &mut aims {
            aims.draw(&mut options);
        }
        let mut trial = Trial::new(options, [random, attacks, fates], canary, keeps_history);
        let World { grid, fates, .. } = &mut trial.world;
        furnish(grid);
        owners::plan(grid);
        plan_ahead(grid);
        if let Some(batches) = grid.options.batches.clone() {
            batch_plans::plan_ahead(&batches, grid);
        }
        owners::plan_drains(grid);
        ruling::plan(grid);
        troubles::plan(grid);
        hoarding::plan(grid);
        queueing::plan(grid);
        fates.plan(grid);
        if let Some(aims) = &aims {
            aims.plan(grid);
        }
        trial.aims = aims;
        if grid.options.losses.is_some() {
            let mut wanderings = Fates::new(Xoshiro256PlusPlus::seed_from_u64(seed ^ WANDERINGS));
            let (has_wanderings, has_desertions) = if seed < HARDER_FROM {
                (seed % WANDERING_EVERY == WANDERING_EVERY / 4, false)
            } else {
                (wanderings.below(2) == 0, wanderings.below(2) == 0)
            };
            if has_wanderings {
                wanderings.plan_wanderings(grid);
            }
            if has_desertions {
                wanderings.plan_desertions(grid);
            }
            if seed >= HARDEST_FROM && wanderings.below(2) == 0 {
                wanderings.plan_evictions(grid);
            }
        }
        trial
    }

    /// Lets everything happen until it has settled or something is wrong.
    pub fn run(&mut self) {
        while self.world.grid.violation().is_none() && !self.is_over && self.advance(Moment(i64::MAX)) {}
        let grid = &mut self.world.grid;
        grid.users.count(&mut grid.figures);
        grid.figures.violations = u64::from(grid.violation().is_some());
    }

    /// Lets the next event happen if it is due by `until`; whether there was one. Otherwise only time passes, up to then.
    pub fn advance(&mut self, until: Moment) -> bool {
        let Some(event) = self.world.grid.next_event(until) else { return false };
        self.world.grid.figures.steps += 1;
        self.happen(event);
        let grid = &mut self.world.grid;
        if grid.figures.steps > STEPS_MAX {
            grid.violate("settles", None, format!("{STEPS_MAX} events did not bring the run to its end"));
        }
        true
    }

    fn happen(&mut self, event: Event) {
        let grid = &mut self.world.grid;
        match event {
            Event::Arrival(message) => self.world.arrive(message),
            Event::OfNode { node, run, event } => {
                if grid.nodes[node].run == run {
                    self.world.happen(node, event);
                }
            }
            Event::Aim => {
                if let Some(aims) = &mut self.aims {
                    aims.aim(&mut self.world);
                }
            }
            Event::Shrink => self.stop_to_shrink(),
            Event::Reprice { site, seed } => {
                owners::reprice(grid, site, seed);
                if grid.nodes[site].running().is_some() {
                    self.world.perform_ledger(site);
                }
            }
            Event::Evict { number } => losses::evict(&mut self.world, number),
            Event::Drain { site, is_draining } => owners::drain(&mut self.world, site, is_draining),
            Event::SetClock { site, off_ms } => clock_setting::set(grid, site, off_ms),
            Event::FillDisk { node, how } => disk_filling::fill(grid, node, how),
            Event::FreeDisk { node } => disk_filling::free(grid, node),
            Event::Lie { node, records } => lying::show(grid, node, records),
            Event::Starve { node, unconnected } => starving::begin(grid, node, unconnected),
            Event::Sated { node } => starving::end(grid, node),
            Event::Rules { site, seed } => ruling::change(grid, site, seed),
            Event::Order { site, seed } => queueing::order(&mut self.world, site, seed),
            Event::Desert { number } => losses::desert(grid, number),
            Event::TakeOver { number, only_if_gone } => self.go_to_another(number, only_if_gone),
            Event::Steal { node, to, attempt, authorization } => self.world.steal(node, to, attempt, authorization),
            Event::Fault => troubles::inject(grid),
            Event::PartitionEnds => {
                grid.note(None, format_args!("the links work again"));
                grid.network.heal();
            }
            Event::SlownessEnds { node } => grid.nodes[node].slow_ms = 0,
            Event::Submit { number } => self.submit(number),
            Event::SubmitBatch { batch } => self.submit_batch(batch),
            Event::Cancel { number } => self.cancel(number),
            Event::Hoard { node, site, number } => hoarding::hold(grid, (node, site), number),
            Event::Heal => self.heal(),
            Event::Look => self.look(),
        }
    }

    /// A user submits a request through one of the entry points that run.
    fn submit(&mut self, number: u64) {
        let Some(entry_point) = self.entry_point(Event::Submit { number }) else { return };
        if let Some(request) = self.draw_request(entry_point, number) {
            // Batches have none.
            let request = match &self.world.grid.options.shapes {
                Some(shapes) => shapes.vary(number, request),
                None => request,
            };
            self.world.submit(entry_point, (number, request), None);
        }
    }

    /// A user hands several requests in at once, and submits each as it is planned.
    fn submit_batch(&mut self, batch: u64) {
        let Some(batches) = self.world.grid.options.batches.clone() else { return };
        let Some(entry_point) = self.entry_point(Event::SubmitBatch { batch }) else { return };
        let drawn = batches.draw_one(batch);
        let request = |number: &u64| Some((*number, self.draw_request(entry_point, *number)?));
        let requests = drawn.numbers.iter().filter_map(request).collect();
        let mut tied = Vec::new();
        for Placed { number, request, plan } in batch_plans::place(&drawn, &self.world.grid, entry_point, requests) {
            if drawn.is_tied {
                tied.extend(user_actions::submit(&mut self.world.grid, entry_point, (number, request), Some(plan)));
            } else {
                self.world.submit(entry_point, (number, request), Some(plan));
            }
            self.world.grid.users.join_batch(&names::request(number), batch, drawn.budget, drawn.is_tied);
        }
        tied.iter_mut().for_each(|record| record.replans = false);
        self.world.submit_together(entry_point, tied);
    }

    /// A user cancels a request, once its entry point has a descriptor for the call.
    fn cancel(&mut self, number: u64) {
        let grid = &mut self.world.grid;
        let user = grid.users.get(&names::request(number));
        if user.is_some_and(|user| grid.network.is_starved(user.entry_point)) {
            grid.after(COME_BACK_MS, Event::Cancel { number });
        } else {
            self.world.cancel(number);
        }
    }

    /// One of the entry points that run; if none does, or this one has no descriptor or no room for a request, the user comes back with
    /// `again`.
    fn entry_point(&mut self, again: Event) -> Option<usize> {
        let grid = &mut self.world.grid;
        let running = (0..grid.options.entry_points).filter(|node| grid.nodes[*node].running().is_some());
        let running: Vec<usize> = running.collect();
        let found = running.choose(&mut grid.random).copied();
        let takes = |node: &usize| grid.nodes[*node].room.is_enough() && !grid.network.is_starved(*node);
        let entry_point = found.filter(takes);
        grid.figures.turned_away += u64::from(entry_point != found);
        if entry_point.is_none() && !grid.is_healed {
            grid.after(COME_BACK_MS, again);
        }
        entry_point
    }

    /// What the user with this number asks of an entry point.
    fn draw_request(&mut self, entry_point: usize, number: u64) -> Option<Request> {
        let World { grid, fates, .. } = &mut self.world;
        let now = grid.clock(entry_point);
        let request = fates.draw_request(grid, now.utc).and_then(|request| match &grid.options.demands {
            Some(demands) => demands.vary(number, request),
            None => Some(request),
        });
        request
            .map(|request| match &grid.options.money {
                Some(money) => money.vary(number, request),
                None => request,
            })
            .map(|request| match &grid.options.links {
                Some(links) => links.vary(number, request),
                None => request,
            })
            .map(|request| match &grid.options.scales {
                Some(scales) => scales.vary(number, request),
                None => request,
            })
            .map(|request| match &grid.options.slacks {
                Some(slacks) => slacks.vary(number, request),
                None => request,
            })
    }

    /// A user asks a node, other than the present one, to coordinate a request; `only_if_gone`: when the present one is gone
    /// for good.
    fn go_to_another(&mut self, number: u64, only_if_gone: bool) {
        let World { grid, fates, .. } = &mut self.world;
        let id = names::request(number);
        let Some(user) = grid.users.get(&id) else { return };
        let is_wanted = !only_if_gone || grid.nodes[user.entry_point].is_gone();
        if user.is_cancelled || matches!(user.report, Report::Over(_)) || !is_wanted {
            return;
        }
        let can_take_over = |node: &usize| grid.nodes[*node].can_take_over(&id) && !grid.network.is_starved(*node);
        let others = grid.others(user.entry_point).filter(can_take_over);
        if let Some(node) = fates.choose(&others.collect::<Vec<_>>()) {
            user_actions::go_to(&mut self.world.grid, node, &id);
        }
    }

    /// An owner stops the node of a site, to start it again with less, or with what it had at first.
    fn stop_to_shrink(&mut self) {
        let World { grid, fates, .. } = &mut self.world;
        let node = fates.below(grid.nodes.len());
        if !grid.is_healed && grid.nodes[node].running().is_some() {
            life::crash(grid, node);
            grid.nodes[node].is_to_shrink = true;
        }
    }

    /// The faults are over: every node that is not gone for good runs again, and everything has to settle.
    pub fn heal(&mut self) {
        let grid = &mut self.world.grid;
        grid.note(None, format_args!("everything is healed"));
        grid.is_healed = true;
        grid.network.heal();
        troubles::heal(grid);
        for node in 0..self.world.grid.nodes.len() {
            self.world.grid.nodes[node].slow_ms = 0;
            if matches!(self.world.grid.nodes[node].state, State::Down | State::Absent) {
                self.world.start(node);
            }
        }
        let grid = &mut self.world.grid;
        if grid.options.losses.is_some() {
            losses::plan_last_takeovers(grid);
        }
        grid.after(LOOK_EVERY_MS, Event::Look);
    }

    fn look(&mut self) {
        let grid = &mut self.world.grid;
        let deadline = grid.options.faulty_ms + SETTLE_WITHIN_MS;
        match checks::unsettled(grid) {
            None => {
                self.is_over = true;
                for node in 0..grid.nodes.len() {
                    checks::check_sums(grid, node);
                }
                checks::check_books(grid);
                checks::check_dues(grid);
                grid.figures.over_links += checks::over_links(grid);
            }
            Some((request, what)) if grid.now().ms() >= deadline => grid.violate("settles", request.as_ref(), what),
            Some(_) => grid.after(LOOK_EVERY_MS, Event::Look),
        }
    }
}

/// Draws what goes wrong with the machines of nodes beside crashes.
fn draw_machines(options: &mut Options, seed: u64) {
    options.clocks = (seed >= CLOCKED_FROM).then(|| Clocks::draw(seed ^ CLOCKS)).flatten();
    options.disks = (seed >= DISKED_FROM).then(|| Disks::draw(seed ^ DISKS)).flatten();
    options.lies = (seed >= DISKED_FROM).then(|| Lies::draw(seed ^ LIES)).flatten();
    options.descriptors = (seed >= DISKED_FROM).then(|| Descriptors::draw(seed ^ DESCRIPTORS)).flatten();
}

/// Plans what is known beforehand: when sites join, what users do, and when the faults end.
fn plan_ahead(grid: &mut Grid) {
    let (sites, faulty_ms) = (grid.options.sites, grid.options.faulty_ms);
    for node in 0..sites {
        // Entry points are never late: users have somewhere to go.
        let is_late = node >= grid.options.entry_points && node + grid.options.late_sites >= sites;
        let at = if is_late { grid.random.random_range(0..faulty_ms) } else { 0 };
        grid.node_after(at, node, NodeEvent::Start);
    }
    for number in 0..grid.options.requests {
        let at = grid.random.random_range(50..faulty_ms);
        grid.after(at, Event::Submit { number });
        if grid.random.random_range(0..100) < grid.options.cancel_percent {
            let after = grid.random.random_range(1..8_000);
            grid.after(at + after, Event::Cancel { number });
        }
    }
    grid.after(200, Event::Fault);
    grid.after(faulty_ms, Event::Heal);
}

/// Gives the sites the hosts and links of the seed.
fn furnish(grid: &mut Grid) {
    if let Some(demands) = grid.options.demands.clone() {
        for (site, node) in (0..).zip(&mut grid.nodes) {
            let hosts = node.hosts.iter_mut().map(|(host, _)| host);
            hosts.zip(demands.speeds_of(site)).for_each(|(host, speed)| host.speed = speed);
            node.hosts_at_first.clone_from(&node.hosts);
        }
    }
    if let Some(classes) = grid.options.classes.clone() {
        for (site, node) in (0..).zip(&mut grid.nodes) {
            node.class = classes.apply(site, &mut node.hosts);
            node.hosts_at_first.clone_from(&node.hosts);
        }
    }
    if let Some(links) = grid.options.links.clone() {
        for (site, node) in (0..).zip(&mut grid.nodes) {
            node.uplink = links.uplink_of(site);
            node.uplink_at_first = node.uplink;
        }
    }
}
