//! One gossip topic for a while: who is in it, who is whose neighbour, and how a message spreads.
//!
//! The mesh is drawn as gossipsub keeps it in rest: every node has at least the wanted number of neighbours, none more
//! than the most. A message passes from neighbour to neighbour, each of which sends it on to all others that it has not
//! got it from; what the mesh does not reach hears of it by announcement at the next heartbeat and asks for it.
//!
//! A message that spreads is a [`Spread`]: when it arrives where, and how many copies each node sends and gets. A few are
//! worked out, exactly, for each topic and minute; every message of that minute is taken to spread like one of them.
//! Invariant: copies sent are copies received and copies lost.

use std::{cmp::Reverse, collections::BinaryHeap};

use discovery::costs::GossipShape;
use rand::{RngExt, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::geography::{Geography, mix};

/// From the arrival of a message until it is sent on: a signature and a look at the view (measured in real grids).
const HANDLING_US: u64 = 300;
/// Draws after which a node has to do with the neighbours that it has.
const DRAWS_MAX: usize = 40;
/// A node that the message does not reach.
pub const NEVER: u32 = u32::MAX;

/// Who is in a topic, and who sends to whom.
#[derive(Debug, Default)]
pub struct Mesh {
    /// The sites, ascending.
    pub members: Vec<usize>,
    /// Positions of the mesh neighbours of each member.
    neighbours: Vec<Vec<u32>>,
    /// Positions of connected members outside the mesh.
    others: Vec<Vec<u32>>,
}

/// What each node has to do with one message.
#[derive(Debug, Clone, Default)]
pub struct Share {
    /// Copies sent, those that were lost included.
    pub sent: u32,
    /// Copies that arrived.
    pub received: u32,
    /// Copies that it sent and that were lost.
    pub lost: u32,
    /// Announcements sent.
    pub announced: u32,
    /// Announcements that arrived.
    pub heard: u32,
}

/// How one message spreads.
#[derive(Debug, Default)]
pub struct Spread {
    /// Until each member has it, in microseconds; [`NEVER`] for those that it does not reach.
    pub delay_us: Vec<u32>,
    /// What each member has to do with it.
    pub shares: Vec<Share>,
    /// Members that believe it and were not reached.
    pub missed: usize,
}

impl Mesh {
    /// Draws the mesh of `members` (ascending), each of which is connected to about `connected` others of the topic.
    pub fn draw(members: Vec<usize>, shape: &GossipShape, connected: usize, random: &mut Xoshiro256PlusPlus) -> Mesh {
        let count = members.len();
        let mut neighbours: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(random);
        for own in order {
            for _ in 0..DRAWS_MAX {
                if neighbours[own].len() >= shape.mesh || count < 2 {
                    break;
                }
                let other = random.random_range(0..count);
                let is_new = other != own && !neighbours[own].contains(&(other as u32));
                if is_new && neighbours[other].len() < shape.mesh_max {
                    neighbours[own].push(other as u32);
                    neighbours[other].push(own as u32);
                }
            }
        }
        let mut others: Vec<Vec<u32>> = vec![Vec::new(); count];
        for own in 0..count {
            let room = connected.min(count.saturating_sub(1)).saturating_sub(neighbours[own].len() + others[own].len());
            for _ in 0..room.div_ceil(2) {
                let other = random.random_range(0..count);
                let is_new = other != own
                    && !neighbours[own].contains(&(other as u32))
                    && !others[own].contains(&(other as u32));
                if is_new {
                    others[own].push(other as u32);
                    others[other].push(own as u32);
                }
            }
        }
        Mesh { members, neighbours, others }
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
        (shape, earth): (&GossipShape, &Geography),
        believes: impl Fn(usize) -> bool,
    ) -> Spread {
        let count = self.members.len();
        let mut delay_us = vec![u64::MAX; count];
        let mut parent = vec![NEVER; count];
        let mut shares = vec![Share::default(); count];
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
            for other in self.targets(own, source, parent[own], shape) {
                let passage = earth.passage(self.members[own], self.members[other], name);
                shares[own].sent += 1 + passage.losses;
                shares[own].lost += passage.losses;
                shares[other].received += 1;
                let arrives = at + HANDLING_US + passage.delay_us;
                if arrives < delay_us[other] {
                    delay_us[other] = arrives;
                    parent[other] = own as u32;
                    agenda.push(Reverse((arrives, other as u32)));
                }
            }
        }
        let reached: Vec<bool> =
            (0..count).map(|own| delay_us[own] < u64::MAX && (own == source || believes(own))).collect();
        self.announce(&reached, name, (shape, earth), &mut delay_us, &mut shares);
        let missed = (0..count).filter(|own| delay_us[*own] == u64::MAX && believes(*own)).count();
        let delay_us = delay_us.into_iter().map(|delay| u32::try_from(delay).unwrap_or(NEVER)).collect();
        Spread { delay_us, shares, missed }
    }

    /// To whom a member sends a message when it first has it.
    fn targets<'a>(
        &'a self,
        own: usize,
        source: usize,
        parent: u32,
        shape: &GossipShape,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let flooded: &[u32] = if own == source && shape.floods_own { &self.others[own] } else { &[] };
        self.neighbours[own].iter().chain(flooded).filter(move |other| **other != parent).map(|other| *other as usize)
    }

    /// Those who have the message tell its name to neighbours outside the mesh, some of whom then ask for it.
    fn announce(
        &self,
        reached: &[bool],
        name: u64,
        (shape, earth): (&GossipShape, &Geography),
        delay_us: &mut [u64],
        shares: &mut [Share],
    ) {
        let heartbeat_us = shape.heartbeat.as_micros() as u64;
        for own in (0..reached.len()).filter(|own| reached[*own]) {
            let others = &self.others[own];
            let share = (others.len() as f64 * shape.announced_share) as usize;
            let told = shape.announced_to.max(share).min(others.len());
            for round in 0..shape.announced_heartbeats {
                let first = mix(name, (own * shape.announced_heartbeats + round) as u64) as usize % others.len().max(1);
                for offset in 0..told {
                    let other = others[(first + offset) % others.len()] as usize;
                    shares[own].announced += 1;
                    shares[other].heard += 1;
                    if delay_us[other] == u64::MAX {
                        let way_us = earth.one_way_us(self.members[own], self.members[other]);
                        let beats = (delay_us[own] / heartbeat_us + 1 + round as u64) * heartbeat_us;
                        delay_us[other] = beats + 3 * way_us + HANDLING_US;
                        shares[own].sent += 1;
                        shares[other].received += 1;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;
    use crate::scale::geography::NetworkKind;

    fn shape() -> GossipShape {
        discovery::costs::gossip_shape(&discovery::GridId::new("test").unwrap()).unwrap()
    }

    /// Whom a message can reach at all, by a plain search.
    fn reachable(mesh: &Mesh, source: usize, believes: &dyn Fn(usize) -> bool) -> Vec<bool> {
        let mut seen = vec![false; mesh.members.len()];
        let mut queue = VecDeque::from([source]);
        seen[source] = true;
        while let Some(own) = queue.pop_front() {
            if own != source && !believes(own) {
                continue;
            }
            for other in mesh.neighbours[own].iter().chain(&mesh.others[own]) {
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
            count in 1_usize..80, seed in 0_u64..1000, connected in 0_usize..20, doubters in 1_u64..5
        ) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mesh = Mesh::draw((0..count).collect(), &shape(), connected, &mut random);
            let earth = Geography::new(NetworkKind::Wan, seed, count, 100_000);
            let believes = |own: usize| !mix(seed, own as u64).is_multiple_of(doubters + 1);
            let spread = mesh.spread(0, seed, (&shape(), &earth), believes);
            let sum = |of: fn(&Share) -> u32| spread.shares.iter().map(of).sum::<u32>();
            prop_assert_eq!(sum(|share| share.sent), sum(|share| share.received) + sum(|share| share.lost));
            prop_assert_eq!(sum(|share| share.announced), sum(|share| share.heard));
            let may = reachable(&mesh, 0, &believes);
            for (own, may_get_it) in may.into_iter().enumerate() {
                prop_assert!(may_get_it || spread.delay_us[own] == NEVER);
                prop_assert!(mesh.neighbours[own].len() <= shape().mesh_max);
            }
        }
    }

    #[test]
    fn everybody_hears_of_it_within_a_second_and_gets_a_handful_of_copies() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mesh = Mesh::draw((0..1000).collect(), &shape(), 32, &mut random);
        let wanted = shape().mesh as f64;
        assert!((wanted..1.5 * wanted).contains(&mesh.degree()), "{}", mesh.degree());
        let earth = Geography::new(NetworkKind::Wan, 5, 1000, 0);
        let spread = mesh.spread(17, 1, (&shape(), &earth), |_| true);
        assert_eq!(spread.missed, 0);
        assert!(spread.delay_us.iter().all(|delay| *delay < 1_000_000));
        let copies = spread.shares.iter().map(|share| share.received).sum::<u32>() as f64 / 1000.0;
        assert!((0.5 * wanted..1.5 * wanted).contains(&copies), "{copies}");
    }
}
