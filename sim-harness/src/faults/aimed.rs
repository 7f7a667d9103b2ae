//! Cuts that are aimed: one who knows everything puts the sites of one attempt of a reservation on one side and those of another
//! attempt on the other, makes an end of who coordinates it, and has its user go to a node on each side. Chance alone finds such
//! orders of events once in a hundred thousand seeds.
//!
//! Invariant: draws from a generator of its own, so that all other seeds run as they would.

use std::collections::{BTreeMap, BTreeSet};

use broker::{ids::RequestId, protocol::AttemptId, time::Millis};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    names,
    node::State,
    options::{Losses, Options},
    world::{Event, World},
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

/// The generator of a seed that is aimed at.
pub fn aims_of(seed: u64) -> Option<Xoshiro256PlusPlus> {
    (seed % AIMED_EVERY == 1).then(|| Xoshiro256PlusPlus::seed_from_u64(seed ^ AIMS))
}

impl Options {
    /// A grid large enough to be cut in two, whose reservations begin late and lose hosts.
    pub fn aim(&mut self, aims: &mut Xoshiro256PlusPlus) {
        self.sites = aims.random_range(8..=12);
        self.late_sites = 0;
        self.requests = 12;
        self.cancel_percent = 0;
        self.has_short_durations = false;
        self.faulty_ms = 60_000;
        self.gone_max = self.sites / 2;
        self.losses = Some(Losses {
            shrinks: 0,
            takeover_percent: 0,
            move_percent: 0,
            ahead_s: [1_000, 1_000, 3_000],
            check_min: Millis(400),
            check_max: Millis(1_500),
            lost_after: Millis(1_000),
        });
    }
}

/// What sites that run have of a request, by attempts.
type Parts = BTreeMap<AttemptId, BTreeSet<usize>>;

/// The sites that are to be on either side of a cut.
type TwoSides = (BTreeSet<usize>, BTreeSet<usize>);

impl World {
    /// The next aim is planned, from a sixth of the time of faults on.
    pub(super) fn plan_aim(&mut self) {
        let at = (self.now().ms() + AIM_EVERY_MS).max(self.options.faulty_ms / 6);
        self.at(Moment::of_ms(at), Event::Aim);
    }

    /// Cuts a reservation in two that has parts of two attempts, or sees to it that one gets them.
    pub(super) fn take_aim(&mut self) {
        let Some(mut aims) = self.aims.take().filter(|_| !self.is_healed) else { return };
        let users = self.users.all().filter(|user| !user.is_taken_back && user.told.plan().is_some());
        let ids = users.map(|user| names::request(user.number));
        let reservation: Vec<(RequestId, Parts)> = ids.map(|id| (id.clone(), self.parts_of(&id))).collect();
        let of_two_tries = reservation.iter().filter_map(|(id, parts)| Some((id, two_sides(parts)?)));
        let of_two_tries: Vec<(&RequestId, TwoSides)> = of_two_tries.collect();
        if let Some((id, sides)) = of_two_tries.choose(&mut aims) {
            self.cut_in_two(&mut aims, id, sides);
        } else if let Some((id, parts)) = reservation.choose(&mut aims) {
            let acting = self.users.get(id).map(|user| user.entry_point);
            let others: Vec<usize> = parts.values().flatten().copied().filter(|site| Some(*site) != acting).collect();
            if let Some(&site) = others.choose(&mut aims) {
                self.kill(site);
                let run = self.nodes[site].run;
                self.after(AWAY_MS, Event::Start { node: site, run });
            }
        }
        self.aims = Some(aims);
        self.plan_aim();
    }

    fn parts_of(&self, id: &RequestId) -> Parts {
        let mut parts = Parts::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.running().is_some()) {
            for reservation in node.disk.reservations.values().filter(|one| one.attempt.request == *id) {
                parts.entry(reservation.attempt.clone()).or_default().insert(index);
            }
        }
        parts
    }

    fn cut_in_two(&mut self, aims: &mut Xoshiro256PlusPlus, id: &RequestId, (left, right): &TwoSides) {
        let Some(acting) = self.users.get(id).map(|user| user.entry_point) else { return };
        let gone = self.nodes.iter().filter(|node| node.is_gone()).count();
        if self.kill(acting) {
            let run = self.nodes[acting].run;
            if gone < self.options.gone_max && aims.random_range(0..2) == 0 {
                self.nodes[acting].state = State::Gone;
                self.note(None, format_args!("s{acting} is gone for good"));
            } else {
                let after = aims.random_range(1..=AWAY_MS);
                self.after(after, Event::Start { node: acting, run });
            }
        }
        let mut part = left.clone();
        let others = (0..self.nodes.len()).filter(|site| !left.contains(site) && !right.contains(site));
        part.extend(others.filter(|_| aims.random_range(0..2) == 0));
        self.note(Some(id), format_args!("cut off: {part:?}"));
        self.figures.partitions += 1;
        self.network.cut(self.nodes.len(), &part, false);
        self.after(aims.random_range(1_000..=CUT_MS_MAX), Event::PartitionEnds);
        for is_in_part in [true, false] {
            let side = (0..self.nodes.len()).filter(|node| part.contains(node) == is_in_part);
            let side: Vec<usize> = side.filter(|node| self.can_take_over(*node, id)).collect();
            if let Some(&node) = side.choose(aims) {
                self.go_to(node, id);
            }
        }
    }
}

/// The sites of one attempt, and those of other attempts that have nothing of it; none when there are no such.
fn two_sides(parts: &Parts) -> Option<TwoSides> {
    let mut tries = parts.values();
    let left = tries.next()?.clone();
    let right: BTreeSet<usize> = tries.flatten().filter(|site| !left.contains(site)).copied().collect();
    (!right.is_empty()).then_some((left, right))
}
