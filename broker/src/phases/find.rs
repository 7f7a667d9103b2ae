//! Phase I on a local set of hosts: who could satisfy the request whatever its schedule, and a sample of M N of them.
//!
//! Invariant: every host chosen meets all minima by capacity and all attributes; a sample holds distinct hosts, in the
//! order of the hosts given, and depends on the seed only.

use std::collections::BTreeMap;

use rand::seq::index;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::Candidate;
use crate::{
    demand::{Demand, Unmet},
    reason::{CutCounts, Reason},
    request::MAX_CANDIDATES,
};

/// The hosts that could serve a demand whatever their schedules: indices into `candidates`, ascending.
///
/// # Errors
/// [`Reason::TooFewHosts`] when there are fewer than N, with how many each constraint cut.
pub fn eligible(demand: &Demand, candidates: &[Candidate<'_>]) -> Result<Vec<usize>, Reason> {
    let needs = demand.host_needs();
    let mut unmet: BTreeMap<Unmet, u64> = BTreeMap::new();
    let mut found = Vec::with_capacity(candidates.len());
    for (index, candidate) in candidates.iter().enumerate() {
        match needs.first_unmet(candidate.site, candidate.host) {
            Some(lacking) => *unmet.entry(lacking).or_default() += 1,
            None => found.push(index),
        }
    }
    if found.len() >= demand.seats() {
        return Ok(found);
    }
    let mut cut: Box<CutCounts> = Box::default();
    unmet.into_iter().for_each(|(lacking, hosts)| cut.add(lacking, hosts));
    Err(Reason::TooFewHosts { found: found.len() as u64, asked: demand.seats() as u64, cut })
}

/// A sample of `m` times N of the `eligible` hosts, at most [`MAX_CANDIDATES`]; all of them when there are no more.
#[must_use]
pub fn sample(demand: &Demand, eligible: &[usize], m: u32, seed: u64) -> Vec<usize> {
    let wanted = demand.seats().saturating_mul(m as usize).min(MAX_CANDIDATES.max(demand.seats()));
    if wanted >= eligible.len() {
        return eligible.to_vec();
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut places = index::sample(&mut random, eligible.len(), wanted).into_vec();
    places.sort_unstable();
    places.into_iter().map(|place| eligible[place]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::Request;

    proptest! {
        #[test]
        fn a_sample_is_distinct_in_order_and_repeatable(
            count in 0_usize..200, hosts in 1_u32..20, m in 1_u32..9, seed in any::<u64>(),
        ) {
            let request: Request = serde_json::from_str(&format!(r#"{{"hosts":{hosts},"duration":1}}"#)).unwrap();
            let eligible: Vec<usize> = (0..count).map(|index| index * 3).collect();
            let chosen = sample(request.demand(), &eligible, m, seed);
            prop_assert_eq!(chosen.len(), count.min((hosts * m) as usize));
            prop_assert!(chosen.is_sorted_by(|a, b| a < b));
            prop_assert!(chosen.iter().all(|index| eligible.contains(index)));
            prop_assert_eq!(chosen, sample(request.demand(), &eligible, m, seed));
        }
    }
}
