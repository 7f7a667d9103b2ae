//! Cuts that are aimed: an adversary that knows everything puts the sites of one attempt of a reservation on one side and those
//! of another attempt on the other, kills its coordinator, and has its user go to a node on each side. Chance alone finds such
//! orders of events once in a hundred thousand seeds.
//!
//! Invariant: draws from a generator of its own, so that all other seeds run as they would.

use std::collections::{BTreeMap, BTreeSet};

use broker::{ids::RequestId, protocol::AttemptId, time::Millis};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    event::{Event, NodeEvent},
    grid::Grid,
    life, names,
    options::{Losses, Options},
    user_actions,
    world::World,
};
use crate::engine::Moment;

/// Of so many seeds one is aimed at; which one is not drawn.
const AIMED_EVERY: u64 = 16;
/// Makes of a seed that of its aims.
const AIMS: u64 = 0xa15e_d0c0_75ed;
/// From one aim to the next.
const AIM_EVERY_MS: u64 = 2_000;
/// How long a cut lasts at most.
const CUT_MS_MAX: u64 = 8_000;
/// How long a site is away so that what it has is replaced: longer than it takes to count as lost.
const AWAY_MS: u64 = 8_000;

/// What sites that run have of a request, by attempts.
type Parts = BTreeMap<AttemptId, BTreeSet<usize>>;

/// The sites that are to be on either side of a cut.
type TwoSides = (BTreeSet<usize>, BTreeSet<usize>);

/// Cuts of reservations in two, drawn from a generator of their own.
pub struct Aims {
    random: Xoshiro256PlusPlus,
}

impl Aims {
    /// The aims of a seed, if it has any.
    pub fn of_seed(seed: u64) -> Option<Aims> {
        let random = || Xoshiro256PlusPlus::seed_from_u64(seed ^ AIMS);
        (seed % AIMED_EVERY == 1).then(|| Aims { random: random() })
    }

    /// Makes a grid large enough to be cut in two, whose reservations begin late and lose hosts.
    pub fn draw(&mut self, options: &mut Options) {
        options.sites = self.random.random_range(8..=12);
        options.late_sites = 0;
        options.requests = 12;
        options.cancel_percent = 0;
        options.has_short_durations = false;
        options.faulty_ms = 60_000;
        options.gone_max = options.sites / 2;
        options.losses = Some(Losses {
            shrinks: 0,
            takeover_percent: 0,
            move_percent: 0,
            ahead_s: [1_000, 1_000, 3_000],
            check_min: Millis(400),
            check_max: Millis(1_500),
            lost_after: Millis(1_000),
        });
    }

    /// Plans the next aim, from a sixth of the time of faults on.
    pub fn plan(&self, grid: &mut Grid) {
        let at = (grid.now().ms() + AIM_EVERY_MS).max(grid.options.faulty_ms / 6);
        grid.at(Moment::of_ms(at), Event::Aim);
    }

    /// Cuts a reservation in two that has parts of two attempts, or sees to it that one gets them.
    pub fn aim(&mut self, world: &mut World) {
        let grid = &mut world.grid;
        if grid.is_healed {
            return;
        }
        let users = grid.users.all().filter(|user| !user.is_cancelled && user.report.plan().is_some());
        let ids = users.map(|user| names::request(user.number));
        let reserved: Vec<(RequestId, Parts)> = ids.map(|id| (id.clone(), parts_of(grid, &id))).collect();
        let of_two_attempts = reserved.iter().filter_map(|(id, parts)| Some((id, two_sides(parts)?)));
        let of_two_attempts: Vec<(&RequestId, TwoSides)> = of_two_attempts.collect();
        if let Some((id, sides)) = of_two_attempts.choose(&mut self.random) {
            self.cut_in_two(world, id, sides);
        } else if let Some((id, parts)) = reserved.choose(&mut self.random) {
            let coordinator = grid.users.get(id).map(|user| user.entry_point);
            let others: Vec<usize> =
                parts.values().flatten().copied().filter(|site| Some(*site) != coordinator).collect();
            if let Some(&site) = others.choose(&mut self.random) {
                life::kill(grid, site);
                grid.node_after(AWAY_MS, site, NodeEvent::Start);
            }
        }
        self.plan(&mut world.grid);
    }

    fn cut_in_two(&mut self, world: &mut World, id: &RequestId, (left, right): &TwoSides) {
        let grid = &mut world.grid;
        let Some(coordinator) = grid.users.get(id).map(|user| user.entry_point) else { return };
        if life::kill(grid, coordinator) && !grid.lose(coordinator, |_| self.random.random_range(0..2) == 0) {
            let after = self.random.random_range(1..=AWAY_MS);
            grid.node_after(after, coordinator, NodeEvent::Start);
        }
        let mut part = left.clone();
        let others = (0..grid.nodes.len()).filter(|site| !left.contains(site) && !right.contains(site));
        part.extend(others.filter(|_| self.random.random_range(0..2) == 0));
        grid.note(Some(id), format_args!("cut off: {part:?}"));
        grid.figures.partitions += 1;
        grid.network.cut(grid.nodes.len(), &part, false);
        grid.after(self.random.random_range(1_000..=CUT_MS_MAX), Event::PartitionEnds);
        for is_in_part in [true, false] {
            let side = (0..world.grid.nodes.len()).filter(|node| part.contains(node) == is_in_part);
            let side: Vec<usize> = side.filter(|node| world.grid.nodes[*node].can_take_over(id)).collect();
            if let Some(&node) = side.choose(&mut self.random) {
                user_actions::go_to(&mut world.grid, node, id);
            }
        }
    }
}

fn parts_of(grid: &Grid, id: &RequestId) -> Parts {
    let mut parts = Parts::new();
    for (index, node) in grid.nodes.iter().enumerate().filter(|(_, node)| node.running().is_some()) {
        for reservation in node.reservations_of(id) {
            parts.entry(reservation.attempt.clone()).or_default().insert(index);
        }
    }
    parts
}

/// The sites of one attempt, and those of other attempts that have nothing of it; none when there are no such.
fn two_sides(parts: &Parts) -> Option<TwoSides> {
    let mut attempts = parts.values();
    let left = attempts.next()?.clone();
    let right: BTreeSet<usize> = attempts.flatten().filter(|site| !left.contains(site)).copied().collect();
    (!right.is_empty()).then_some((left, right))
}
