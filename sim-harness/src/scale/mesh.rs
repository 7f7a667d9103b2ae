//! One gossip topic for a minute: its members, their neighbours, and how a message spreads.
//!
//! The mesh is drawn as gossipsub keeps it in rest: every node has at least the wanted number of neighbours, none more
//! than the most. An advert passes from neighbour to neighbour, each of which sends it on at once to all its
//! other neighbours. An update goes to all neighbours with the next bundle of its node, see [`Passing`].
//!
//! A message that spreads is a [`Spread`]: when it arrives where, and how many copies each node sends and gets. A few are
//! worked out, exactly, for each topic and minute; every message of that minute is taken to spread like one of them.
//! Invariant: copies sent are copies received and copies lost.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use libp2p::gossipsub;
use rand::{RngExt, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{chance::drawn, geography::Geography, traffic::Flow};

/// From the arrival of a message until it is sent on: a signature and a look at the view (measured in real grids).
const HANDLING_US: u64 = 300;
/// Draws of neighbours by a node at most.
const DRAWS_MAX: usize = 40;
/// Names the draws of waits for a bundle.
const WAITS: u64 = 0x7761_6974;
/// A node that the message does not reach.
pub const NEVER: u32 = u32::MAX;

/// How a node passes on what it has received.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Passing {
    /// Each message at once, by itself, to all neighbours but the one that it has come from.
    Each,
    /// In bundles to all neighbours: a part of the updates waits, for up to an interval.
    Bundled {
        /// The part that waits, in millionths.
        waits_ppm: u64,
        /// Between two bundles of a node.
        interval_us: u64,
    },
}

impl Passing {
    /// How a node bundles that receives `per_s` updates a second, and how many go with one bundle. A bundle goes at once if
    /// the last was longer ago than the interval, else when that is over; so with updates that come by chance, of those
    /// around one interval all in it wait, and the one that comes first when it stayed empty does not.
    pub fn bundled(per_s: f64, interval: Duration) -> (Passing, f64) {
        let in_interval = per_s * interval.as_secs_f64();
        let in_bundle = in_interval + (-in_interval).exp();
        let waits_ppm = (in_interval / in_bundle * 1e6) as u64;
        (Passing::Bundled { waits_ppm, interval_us: interval.as_micros() as u64 }, in_bundle)
    }

    /// How long the message called `name` waits at a node.
    fn wait_us(self, name: u64, own: usize) -> u64 {
        let Passing::Bundled { waits_ppm, interval_us } = self else { return 0 };
        let chance = drawn([name, WAITS, own as u64]);
        if chance % 1_000_000 < waits_ppm { (chance >> 32) % interval_us.max(1) } else { 0 }
    }
}

/// The members of a topic and their links.
#[derive(Debug, Default)]
pub struct Mesh {
    /// The sites, ascending.
    pub members: Vec<usize>,
    /// Positions of the mesh neighbours of each member.
    neighbours: Vec<Vec<u32>>,
}

/// How one message spreads.
#[derive(Debug, Default)]
pub struct Spread {
    /// Until each member has it, in microseconds; [`NEVER`] for those that it does not reach.
    pub delay_us: Vec<u32>,
    /// Copies that each member sends, gets and loses.
    pub copies: Vec<Flow>,
    /// Members that believe it and were not reached.
    pub missed: usize,
}

impl Mesh {
    /// Draws the mesh of `members` (ascending).
    pub fn draw(members: Vec<usize>, config: &gossipsub::Config, random: &mut Xoshiro256PlusPlus) -> Mesh {
        let count = members.len();
        let mut neighbours: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(random);
        for own in order {
            for _ in 0..DRAWS_MAX {
                if neighbours[own].len() >= config.mesh_n() || count < 2 {
                    break;
                }
                let other = random.random_range(0..count);
                let is_new = other != own && !neighbours[own].contains(&(other as u32));
                if is_new && neighbours[other].len() < config.mesh_n_high() {
                    neighbours[own].push(other as u32);
                    neighbours[other].push(own as u32);
                }
            }
        }
        Mesh { members, neighbours }
    }

    /// Neighbours that a member has in the mesh, on average.
    pub fn degree(&self) -> f64 {
        let links: usize = self.neighbours.iter().map(Vec::len).sum();
        links as f64 / self.members.len().max(1) as f64
    }

    /// Lets a message of the member at `source` spread among those that `believes` lets have it; the others get copies
    /// and drop them.
    pub fn spread(
        &self,
        source: usize,
        name: u64,
        (passing, earth): (Passing, &Geography),
        believes: impl Fn(usize) -> bool,
    ) -> Spread {
        let count = self.members.len();
        let mut delay_us = vec![u64::MAX; count];
        let mut parent = vec![NEVER; count];
        let mut copies = vec![Flow::default(); count];
        let mut agenda = BinaryHeap::new();
        if count > 0 {
            delay_us[source] = 0;
            agenda.push(Reverse((0, source as u32)));
        }
        while let Some(Reverse((at, own))) = agenda.pop() {
            let own = own as usize;
            if at > delay_us[own] || !(own == source || believes(own)) {
                continue;
            }
            let leaves = at + HANDLING_US + passing.wait_us(name, own);
            for other in self.targets(own, parent[own], passing) {
                let passage = earth.passage(self.members[own], self.members[other], name);
                copies[own].sent += 1 + u64::from(passage.losses);
                copies[own].lost += u64::from(passage.losses);
                copies[other].received += 1;
                let arrives = leaves + passage.delay.as_micros() as u64;
                if arrives < delay_us[other] {
                    delay_us[other] = arrives;
                    parent[other] = own as u32;
                    agenda.push(Reverse((arrives, other as u32)));
                }
            }
        }
        let missed = (0..count).filter(|own| delay_us[*own] == u64::MAX && believes(*own)).count();
        let delay_us = delay_us.into_iter().map(|delay| u32::try_from(delay).unwrap_or(NEVER)).collect();
        Spread { delay_us, copies, missed }
    }

    /// The members that get a message from one that has just received it.
    fn targets(&self, own: usize, parent: u32, passing: Passing) -> impl Iterator<Item = usize> + use<'_> {
        let all = passing != Passing::Each;
        self.neighbours[own].iter().filter(move |other| all || **other != parent).map(|other| *other as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;
    use crate::scale::geography::NetworkKind;

    fn config() -> gossipsub::Config {
        discovery::gossip_config(&discovery::GridId::new("test").unwrap()).unwrap()
    }

    /// Members that a message can reach at all, by a plain search.
    fn reachable(mesh: &Mesh, source: usize, believes: &dyn Fn(usize) -> bool) -> Vec<bool> {
        let mut seen = vec![false; mesh.members.len()];
        let mut queue = VecDeque::from([source]);
        seen[source] = true;
        while let Some(own) = queue.pop_front() {
            if own != source && !believes(own) {
                continue;
            }
            for other in &mesh.neighbours[own] {
                if !std::mem::replace(&mut seen[*other as usize], true) {
                    queue.push_back(*other as usize);
                }
            }
        }
        seen
    }

    proptest! {
        #[test]
        fn copies_are_conserved_and_nobody_out_of_reach_gets_one(
            count in 1_usize..80, seed in 0_u64..1000, waits_ppm in 0_u64..1_000_000, doubters in 1_u64..5
        ) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mesh = Mesh::draw((0..count).collect(), &config(), &mut random);
            let earth = Geography::new(NetworkKind::Wan, seed, count, 100_000);
            let believes = |own: usize| !drawn([seed, own as u64]).is_multiple_of(doubters + 1);
            let bundled = Passing::Bundled { waits_ppm, interval_us: 100_000 };
            let reached = reachable(&mesh, 0, &believes);
            let spreads = [Passing::Each, bundled].map(|passing| mesh.spread(0, seed, (passing, &earth), believes));
            for spread in &spreads {
                let sum: Flow = spread.copies.iter().copied().sum();
                prop_assert_eq!(sum.sent, sum.received + sum.lost);
                let got: Vec<bool> = spread.delay_us.iter().map(|delay| *delay != NEVER).collect();
                prop_assert_eq!(&got, &reached);
            }
            prop_assert!(mesh.neighbours.iter().all(|neighbours| neighbours.len() <= config().mesh_n_high()));
            let delays = spreads[0].delay_us.iter().zip(&spreads[1].delay_us);
            prop_assert!(delays.clone().all(|(at_once, later)| at_once <= later), "a wait makes nothing earlier");
        }
    }

    #[test]
    fn every_node_is_reached_within_a_second_and_gets_a_handful_of_copies() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mesh = Mesh::draw((0..1000).collect(), &config(), &mut random);
        let wanted = config().mesh_n() as f64;
        assert!((wanted..1.5 * wanted).contains(&mesh.degree()), "{}", mesh.degree());
        let earth = Geography::new(NetworkKind::Wan, 5, 1000, 0);
        let spread = mesh.spread(17, 1, (Passing::Each, &earth), |_| true);
        assert_eq!(spread.missed, 0);
        assert!(spread.delay_us.iter().all(|delay| *delay < 1_000_000));
        let copies = spread.copies.iter().map(|copies| copies.received).sum::<u64>() as f64 / 1000.0;
        assert!((0.5 * wanted..1.5 * wanted).contains(&copies), "{copies}");
    }

    /// Nothing is sent or announced to neighbours outside the mesh: this model has no such messages.
    #[test]
    fn a_node_sends_within_the_mesh_only() {
        let config = config();
        assert_eq!((config.gossip_lazy(), config.gossip_factor(), config.history_gossip()), (0, 0.0, 0));
        assert!(!config.flood_publish() && config.mesh_n() < config.mesh_n_high());
    }

    #[test]
    fn bundles_of_a_busy_node_are_full_and_those_of_a_quiet_one_do_not_wait() {
        let (quiet, in_bundle) = Passing::bundled(0.001, Duration::from_millis(100));
        assert_eq!(quiet.wait_us(1, 1), 0);
        assert!((in_bundle - 1.0).abs() < 1e-3);
        let (busy, in_bundle) = Passing::bundled(1000.0, Duration::from_millis(100));
        assert!((in_bundle - 100.0).abs() < 1e-3);
        let waits: Vec<u64> = (0..1000).map(|own| busy.wait_us(7, own)).collect();
        let mean = waits.iter().sum::<u64>() / 1000;
        assert!((45_000..55_000).contains(&mean) && waits.iter().all(|wait| *wait < 100_000), "{mean}");
    }
}
