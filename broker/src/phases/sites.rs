//! Phase IV when the hosts may lie at a few sites only: branch and bound over the sites.
//!
//! At each node some sites are taken and some are left out. Where the sites with most hosts do not have N together, or no N hosts
//! of the sites that are not left out reach the totals, nothing below the node does. Otherwise the set found decides: either it
//! lies at few enough sites, or a site of it is first taken, then left out.
//!
//! Invariant: [`Settled::Impossible`] is only returned when every choice of sites was excluded.

use super::{
    exact::Settled,
    problem::{Problem, SiteLimit, Slot},
};

/// Nodes looked at for one start.
const NODES_MAX: usize = 4_000;

/// What is decided of each site.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Open,
    Taken,
    Left,
}

/// Whether the chosen positions lie at few enough sites.
pub(crate) fn are_few(limit: &SiteLimit, slot: &Slot, chosen: &[u32]) -> bool {
    sites_of(limit, slot, chosen).len() <= limit.most
}

/// The sites of the chosen positions that count, with how many positions lie at each.
fn sites_of(limit: &SiteLimit, slot: &Slot, chosen: &[u32]) -> Vec<(u32, usize)> {
    let mut sites: Vec<u32> = chosen.iter().map(|at| limit.of[slot.hosts[*at as usize] as usize]).collect();
    sites.sort_unstable();
    let counted = sites.chunk_by(|a, b| a == b).map(|same| (same[0], same.len()));
    counted.filter(|(site, _)| *site != SiteLimit::KEPT).collect()
}

/// Only the hosts of sites that the chosen positions lie at, and of those that do not count.
pub(crate) fn of_same_sites(limit: &SiteLimit, problem: &Problem<'_>, slot: &Slot, chosen: &[u32]) -> Slot {
    let sites = sites_of(limit, slot, chosen);
    let is_same = |site: u32| site == SiteLimit::KEPT || sites.iter().any(|(chosen, _)| *chosen == site);
    slot.filtered(problem.width(), |host| is_same(limit.of[host as usize]))
}

/// Whether N hosts of few enough sites reach every total; `decide` settles the matter for a slot whatever the sites. Positions are
/// those of `slot`.
pub(crate) fn decide(
    problem: &Problem<'_>,
    limit: &SiteLimit,
    slot: &Slot,
    mut decide: impl FnMut(&Slot) -> Settled,
) -> Settled {
    let mut nodes = vec![vec![Choice::Open; limit.count]];
    let mut is_proven = true;
    for _ in 0..NODES_MAX {
        let Some(mut choices) = nodes.pop() else {
            return if is_proven { Settled::Impossible } else { Settled::Unknown };
        };
        if choices.iter().filter(|choice| **choice == Choice::Taken).count() == limit.most {
            choices.iter_mut().filter(|choice| **choice == Choice::Open).for_each(|choice| *choice = Choice::Left);
        }
        let is_left = |site: u32| site != SiteLimit::KEPT && choices[site as usize] == Choice::Left;
        if !has_enough_hosts(problem, limit, slot, &choices) {
            continue;
        }
        let pool = slot.filtered(problem.width(), |host| !is_left(limit.of[host as usize]));
        match decide(&pool) {
            Settled::Impossible => {}
            Settled::Unknown => is_proven = false,
            Settled::Found(chosen) => {
                let sites = sites_of(limit, &pool, &chosen);
                if sites.len() <= limit.most {
                    let position = |at: &u32| slot.position_of(pool.hosts[*at as usize]);
                    return Settled::Found(chosen.iter().map(position).collect());
                }
                let open = sites.iter().filter(|(site, _)| choices[*site as usize] == Choice::Open);
                // More sites than may be taken, so one of them is open.
                let Some((site, _)) = open.max_by_key(|(_, hosts)| *hosts) else { continue };
                for choice in [Choice::Left, Choice::Taken] {
                    let mut below = choices.clone();
                    below[*site as usize] = choice;
                    nodes.push(below);
                }
            }
        }
    }
    Settled::Unknown
}

/// Whether the sites that are taken, and the largest of the open ones, have N available hosts together.
fn has_enough_hosts(problem: &Problem<'_>, limit: &SiteLimit, slot: &Slot, choices: &[Choice]) -> bool {
    let mut hosts = vec![0_usize; limit.count];
    let mut sum = 0;
    for host in &slot.hosts {
        match limit.of[*host as usize] {
            SiteLimit::KEPT => sum += 1,
            site => hosts[site as usize] += 1,
        }
    }
    let of = |wanted: Choice| choices.iter().zip(&hosts).filter(move |(choice, _)| **choice == wanted);
    let taken = of(Choice::Taken).count();
    sum += of(Choice::Taken).map(|(_, hosts)| *hosts).sum::<usize>();
    let mut open: Vec<usize> = of(Choice::Open).map(|(_, hosts)| *hosts).collect();
    open.sort_unstable_by(|a, b| b.cmp(a));
    sum + open.iter().take(limit.most.saturating_sub(taken)).sum::<usize>() >= problem.pick
}
