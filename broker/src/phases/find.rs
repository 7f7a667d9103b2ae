//! Phase I on a local set of hosts: who could satisfy the request whatever its schedule, and a sample of M N of them.
//!
//! Invariant: every host chosen meets all minima by capacity and all attributes; a sample holds distinct hosts, in the
//! order of the hosts given, and depends on the seed only.

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{Candidate, select_and_swap::below};
use crate::{
    plan::{CutCounts, Reason},
    request::{MAX_CANDIDATES, Request},
    resources::amount_of,
};

/// The hosts that could satisfy `request` whatever their schedules: indices into `candidates`, ascending.
///
/// # Errors
/// [`Reason::TooFewHosts`] when there are fewer than N, with how many each constraint cut.
pub fn eligible(request: &Request, candidates: &[Candidate<'_>]) -> Result<Vec<usize>, Reason> {
    let minima: Vec<_> = request.resources().into_iter().map(|name| (request.minimum_on_each(&name), name)).collect();
    let mut not_named = 0;
    let mut by_attribute = vec![0_u64; request.attributes().len()];
    let mut by_resource = vec![0_u64; minima.len()];
    let mut found = Vec::with_capacity(candidates.len());
    for (index, candidate) in candidates.iter().enumerate() {
        let host = candidate.host;
        let lacks = |(key, value): (&String, &String)| host.attributes.get(key) != Some(value);
        if request.candidates().is_some_and(|named| named.binary_search(&host.id).is_err()) {
            not_named += 1;
        } else if let Some(attribute) = request.attributes().iter().position(lacks) {
            by_attribute[attribute] += 1;
        } else if let Some(resource) = minima.iter().position(|(d, name)| amount_of(&host.capacity, name) < *d) {
            by_resource[resource] += 1;
        } else {
            found.push(index);
        }
    }
    if found.len() >= request.hosts() {
        return Ok(found);
    }
    let attributes = request.attributes().iter().map(|(key, value)| format!("{key}={value}")).zip(by_attribute);
    let resources = minima.into_iter().map(|(_, name)| name).zip(by_resource);
    let cut = CutCounts {
        candidates: not_named,
        attributes: attributes.filter(|(_, count)| *count > 0).collect(),
        resources: resources.filter(|(_, count)| *count > 0).collect(),
    };
    Err(Reason::TooFewHosts { found: found.len() as u64, asked: request.hosts() as u64, cut })
}

/// A sample of `m` times N of the `eligible` hosts, at most [`MAX_CANDIDATES`]; all of them when there are no more.
#[must_use]
pub fn sample(request: &Request, eligible: &[usize], m: u32, seed: u64) -> Vec<usize> {
    let wanted = request.hosts().saturating_mul(m as usize).min(MAX_CANDIDATES.max(request.hosts()));
    let mut chosen = eligible.to_vec();
    if wanted < chosen.len() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for place in 0..wanted {
            let other = place + below(&mut random, chosen.len() - place);
            chosen.swap(place, other);
        }
        chosen.truncate(wanted);
        chosen.sort_unstable();
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sample_is_distinct_in_order_and_repeatable(
            count in 0_usize..200, hosts in 1_u32..20, m in 1_u32..9, seed in any::<u64>(),
        ) {
            let request: Request = serde_json::from_str(&format!(r#"{{"hosts":{hosts},"duration":1}}"#)).unwrap();
            let eligible: Vec<usize> = (0..count).map(|index| index * 3).collect();
            let chosen = sample(&request, &eligible, m, seed);
            prop_assert_eq!(chosen.len(), count.min((hosts * m) as usize));
            prop_assert!(chosen.is_sorted_by(|a, b| a < b));
            prop_assert!(chosen.iter().all(|index| eligible.contains(index)));
            prop_assert_eq!(chosen, sample(&request, &eligible, m, seed));
        }
    }
}
