//! Phase IV for seats that talk to each other and reach totals as well: sets of hosts that overload no link.
//!
//! A set that overloads links is taken apart: either no site of those has more than its [`Links::most`], or one of them is the home. Both
//! are limits of what hosts weigh together, so the bounds and the exact search of totals settle them.
//!
//! Invariant: [`Settled::Impossible`] is only returned when every such choice was excluded.

use super::{
    exact::Settled,
    links::{Caps, Links, Overload, Spread},
    problem::{Problem, Slot},
    spend::Outcome,
};
use crate::time::Window;

/// Nodes popped for one start.
const NODES_MAX: usize = 1_000;

/// How many seats may be at the sites: all that are capped have at most their `most`, all but so many are at the home.
#[derive(Clone)]
struct Node {
    is_capped: Vec<bool>,
    home: Option<usize>,
}

/// The nodes that are left to look at.
struct Tree<'t, 'a> {
    links: &'t Links<'a>,
    slot: &'t Slot,
    window: Window,
    pick: usize,
    /// How many hosts each site has.
    available: Vec<usize>,
    most: Vec<usize>,
    nodes: Vec<Node>,
    nodes_left: usize,
    /// The first overload that was met.
    overload: Option<Overload>,
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
    let mut tree = match Tree::new(problem, links, slot) {
        Ok(tree) => tree,
        Err(overload) => return (Settled::Impossible, overload),
    };
    let mut is_proven = true;
    while let Some(node) = tree.next() {
        let settled = match node.limited(problem, links, slot, &tree.most) {
            None => decide(problem, slot, true),
            Some((problem, slot)) => decide(&problem, &slot, false),
        };
        match settled {
            Settled::Found(chosen) if !tree.branch(node, &chosen) => return (Settled::Found(chosen), None),
            Settled::Found(_) | Settled::Impossible => {}
            Settled::Unknown => is_proven = false,
        }
    }
    let is_proven = is_proven && tree.nodes.is_empty();
    (if is_proven { Settled::Impossible } else { Settled::Unknown }, tree.overload)
}

/// The cheapest N hosts of the slot that reach every total without overloading a link and cost at most `most`; `cheapest` finds them within
/// limits of sites and costs, and says whether there is work left: without, one look whatever the sites bounds what was not looked at. An
/// error where the numbers of hosts alone exclude every set, with the link that does.
pub(crate) fn cheapest(
    problem: &Problem<'_>,
    links: &Links<'_>,
    slot: &Slot,
    mut most: i64,
    mut cheapest: impl FnMut(Option<&Caps>, i64) -> (Outcome, bool),
) -> Result<Outcome, Option<Overload>> {
    let mut best = Outcome { found: None, bound: i64::MAX, nodes: 0, duals: None };
    let tree = Tree::new(problem, links, slot)?;
    let of: Vec<u32> = slot.hosts.iter().map(|host| links.of[*host as usize]).collect();
    let Some(ways) = links.ways(&of, &tree.available, &tree.most, tree.pick) else { return Ok(cheapest(None, most).0) };
    let mut has_work = true;
    for caps in &ways {
        if !has_work {
            best.bound = best.bound.min(cheapest(None, most).0.bound);
            break;
        }
        let outcome;
        (outcome, has_work) = cheapest(Some(caps), most);
        best.bound = best.bound.min(outcome.bound);
        best.duals = best.duals.or(outcome.duals.filter(|_| caps.least.is_none()));
        if let Some((chosen, shares)) = outcome.found {
            most = shares.cost - 1;
            best.found = Some((chosen, shares));
        }
    }
    Ok(best)
}

/// The link that the chosen positions overload most, if any.
pub(crate) fn overload(problem: &Problem<'_>, links: &Links<'_>, slot: &Slot, chosen: &[u32]) -> Option<Overload> {
    let mut tree = match Tree::new(problem, links, slot) {
        Ok(tree) => tree,
        Err(overload) => return overload,
    };
    if let Some(node) = tree.next() {
        tree.branch(node, chosen);
    }
    tree.overload
}

impl<'t, 'a> Tree<'t, 'a> {
    /// With a node that has no limit; or the link that excludes every set by the number of hosts alone.
    fn new(problem: &Problem<'_>, links: &'t Links<'a>, slot: &'t Slot) -> Result<Tree<'t, 'a>, Option<Overload>> {
        let (pick, window) = (problem.pick, problem.window(slot.start));
        let available = links.counts(slot.hosts.iter().copied());
        let sites_max = problem.sites.as_ref().map_or(usize::MAX, |limit| limit.most + limit.kept);
        let Spread { most, seats } = links.spread(&available, window, (pick, sites_max));
        seats?;
        let nodes = vec![Node { is_capped: vec![false; links.sites()], home: None }];
        Ok(Tree { links, slot, window, pick, available, most, nodes, nodes_left: NODES_MAX, overload: None })
    }

    /// The next node with enough hosts; none when all were looked at, or too many.
    fn next(&mut self) -> Option<Node> {
        while self.nodes_left > 0 {
            self.nodes_left -= 1;
            let node = self.nodes.pop()?;
            if node.has_enough_hosts(&self.available, &self.most, (self.pick, self.links.all)) {
                return Some(node);
            }
        }
        None
    }

    /// Takes the node apart when the chosen positions overload links; whether they do.
    fn branch(&mut self, mut node: Node, chosen: &[u32]) -> bool {
        let counts = self.links.counts(chosen.iter().map(|at| self.slot.hosts[*at as usize]));
        let (most, all) = (&self.most, self.links.all);
        let is_over = |site: &usize| most[*site] < counts[*site] && counts[*site] < all - most[*site];
        let over: Vec<usize> = (0..counts.len()).filter(is_over).collect();
        let Some(fullest) = over.iter().copied().max_by_key(|site| counts[*site] - most[*site]) else { return false };
        self.overload.get_or_insert_with(|| self.links.overload(self.window, fullest, counts[fullest]));
        if node.home.is_none() {
            self.nodes.extend(over.iter().map(|site| Node { home: Some(*site), ..node.clone() }));
        }
        over.iter().for_each(|site| node.is_capped[*site] = true);
        self.nodes.push(node);
        true
    }
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
    fn has_enough_hosts(&self, available: &[usize], most: &[usize], (pick, in_all): (usize, usize)) -> bool {
        let all: usize = (0..available.len()).map(|site| self.usable(site, available[site], most[site])).sum();
        let has_home = |home: usize| {
            let least = in_all - most[home];
            least <= pick && available[home] >= least
        };
        all >= pick && self.home.is_none_or(has_home)
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
        // A home that is not to have so many of the seats was left out before.
        let away = |home: usize| (problem.pick + most[home]).saturating_sub(links.all);
        let home = self.home.map(|home| (None, away(home)));
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
