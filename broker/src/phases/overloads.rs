//! Phase IV for seats that talk to each other and reach totals as well: sets of hosts that overload no link.
//!
//! A set that overloads links is taken apart: either no site of those has more than its [`Links::most`], or one of them is the home. Both
//! are limits of what hosts weigh together, so the bounds and the exact search of totals settle them.
//!
//! Invariant: [`Settled::Impossible`] is only returned when every such choice was excluded.

use super::{
    exact::Settled,
    links::{Links, Overload},
    problem::{Problem, Slot},
};

/// Nodes looked at for one start.
const NODES_MAX: usize = 1_000;

/// How many seats may be at the sites: all that are capped have at most their `most`, all but so many are at the home.
#[derive(Clone)]
struct Node {
    is_capped: Vec<bool>,
    home: Option<usize>,
}

/// Whether N hosts of the slot reach every total without overloading a link; `decide` settles the matter for a problem and a slot of the
/// same hosts, whatever the links, and is told whether they are the problem and the slot given. Also the first overload
/// that was met.
pub(crate) fn decide<'a>(
    problem: &Problem<'a>,
    links: &Links<'_>,
    slot: &Slot,
    mut decide: impl FnMut(&Problem<'a>, &Slot, bool) -> Settled,
) -> (Settled, Option<Overload>) {
    let (pick, window) = (problem.pick, problem.window(slot.start));
    let available = links.counts(slot.hosts.iter().copied());
    let most: Vec<usize> =
        (0..links.sites()).map(|site| if available[site] > 0 { links.most(site, window, pick) } else { 0 }).collect();
    let mut nodes = vec![Node { is_capped: vec![false; links.sites()], home: None }];
    let (mut is_proven, mut overload) = (true, None);
    for _ in 0..NODES_MAX {
        let Some(node) = nodes.pop() else {
            return (if is_proven { Settled::Impossible } else { Settled::Unknown }, overload);
        };
        if !node.has_enough_hosts(&available, &most, pick) {
            continue;
        }
        let settled = match node.limited(problem, links, slot, &most) {
            None => decide(problem, slot, true),
            Some((problem, slot)) => decide(&problem, &slot, false),
        };
        let chosen = match settled {
            Settled::Found(chosen) => chosen,
            Settled::Unknown => {
                is_proven = false;
                continue;
            }
            Settled::Impossible => continue,
        };
        let counts = links.counts(chosen.iter().map(|at| slot.hosts[*at as usize]));
        let is_over = |site: &usize| most[*site] < counts[*site] && counts[*site] < pick - most[*site];
        let over: Vec<usize> = (0..links.sites()).filter(is_over).collect();
        let Some(fullest) = over.iter().copied().max_by_key(|site| counts[*site] - most[*site]) else {
            return (Settled::Found(chosen), None);
        };
        overload.get_or_insert_with(|| links.overload(window, fullest, (counts[fullest], pick)));
        if node.home.is_none() {
            nodes.extend(over.iter().map(|site| Node { home: Some(*site), ..node.clone() }));
        }
        let mut capped = node;
        over.iter().for_each(|site| capped.is_capped[*site] = true);
        nodes.push(capped);
    }
    (Settled::Unknown, overload)
}

impl Node {
    /// The most seats that a site may have; none of its hosts beyond that counts.
    fn usable(&self, site: usize, available: usize, most: usize) -> usize {
        if self.home != Some(site) && (self.is_capped[site] || self.home.is_some()) {
            available.min(most)
        } else {
            available
        }
    }

    /// Whether as many hosts as asked are left.
    fn has_enough_hosts(&self, available: &[usize], most: &[usize], pick: usize) -> bool {
        let all: usize = (0..available.len()).map(|site| self.usable(site, available[site], most[site])).sum();
        all >= pick && self.home.is_none_or(|home| available[home] >= pick - most[home])
    }

    /// The problem with this node's limits; none when it has no limit.
    fn limited<'a>(
        &self,
        problem: &Problem<'a>,
        links: &Links<'_>,
        slot: &Slot,
        most: &[usize],
    ) -> Option<(Problem<'a>, Slot)> {
        let capped = (0..most.len()).filter(|site| self.is_capped[*site]).map(|site| (Some(site), most[site]));
        let home = self.home.map(|home| (None, most[home]));
        let mut limited: Option<(Problem<'a>, Slot)> = None;
        for (site, most) in capped.chain(home) {
            let weighs = |of: &u32| match site {
                Some(site) => *of as usize == site,
                None => self.home != Some(*of as usize),
            };
            let weights: Vec<i64> = links.of.iter().map(|of| i64::from(weighs(of))).collect();
            let (before, slot) = limited.as_ref().map_or((problem, slot), |(problem, slot)| (problem, slot));
            let (mut with, slot) = before.with_limit(slot, &weights);
            with.set_limit(&slot, &weights, most.cast_signed() as i64);
            limited = Some((with, slot));
        }
        limited
    }
}
