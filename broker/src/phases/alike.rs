//! Hosts that are alike: of those of one site that differ in nothing that a plan looks at, only as many are looked at as there are seats.
//!
//! Invariant: what is proven stays so. A plan has N seats on N hosts, so it never has more than N of a kind; each of a kind does as well as
//! another one; and those are kept that the request prefers, so that it takes what it would take of all of them. Where there is no plan, all
//! are looked at once more, since an answer says how many hosts lack what.

use std::collections::BTreeMap;

use super::{Candidate, Job, preference};
use crate::ids::SiteId;

/// Most kinds that are told apart at one site; of further ones all hosts are kept.
const KINDS_MAX: usize = 8;

/// Fewer candidates, in the same order, that give as good a plan; none where there is nothing to leave out.
pub(super) fn few_of_each_kind<'c>(job: &Job<'_>, candidates: &[Candidate<'c>]) -> Option<Vec<Candidate<'c>>> {
    let seats = job.demand.seats();
    // What a site has free in all counts where load is spread.
    if job.spreads || candidates.len() <= seats {
        return None;
    }
    let mut by_site: BTreeMap<&SiteId, Vec<Vec<usize>>> = BTreeMap::new();
    for (at, candidate) in candidates.iter().enumerate() {
        let kinds = by_site.entry(candidate.site).or_default();
        match kinds.iter().position(|kind| is_alike(&candidates[kind[0]], candidate)) {
            Some(kind) => kinds[kind].push(at),
            None if kinds.len() < KINDS_MAX => kinds.push(vec![at]),
            None => {}
        }
    }
    let needs = job.demand.host_needs();
    let mut is_kept = vec![true; candidates.len()];
    for kind in by_site.into_values().flatten().filter(|kind| kind.len() > seats) {
        let first = &candidates[kind[0]];
        // Those that could not serve are left out anyway.
        if seats == 0 || !needs.are_met_by(first.site, first.host) {
            continue;
        }
        let of_kind: Vec<&Candidate<'_>> = kind.iter().map(|at| &candidates[*at]).collect();
        let ranks = job.order.map_or_else(|| vec![0; kind.len()], |order| preference::ranks(order, &of_kind));
        let mut preferred: Vec<(u64, &str, usize)> =
            (0..kind.len()).map(|place| (ranks[place], of_kind[place].host.id.as_str(), place)).collect();
        preferred.select_nth_unstable(seats - 1);
        for (.., place) in &preferred[seats..] {
            is_kept[kind[*place]] = false;
        }
    }
    let is_less = is_kept.contains(&false);
    is_less.then(|| candidates.iter().zip(is_kept).filter(|(_, is_kept)| *is_kept).map(|(one, _)| *one).collect())
}

/// Whether two hosts of a site differ in their names only, as far as a plan looks at them: all have the attributes that are asked for.
fn is_alike(one: &Candidate<'_>, other: &Candidate<'_>) -> bool {
    one.host.capacity == other.host.capacity
        && one.host.speed == other.host.speed
        && one.host.tariff == other.host.tariff
        && one.schedule == other.schedule
}
