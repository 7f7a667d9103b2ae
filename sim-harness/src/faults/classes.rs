//! Sites of some seeds whose hosts are of one class.
//!
//! Invariant: drawn from generators of their own, by the number of the site, so that other seeds run as they would.

use broker::{classes::numbered, host::Host, ids::HostId, schedule::Schedule, time::Span};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::names;

/// Fewest and most hosts of a class.
const HOSTS: std::ops::RangeInclusive<usize> = 2..=5;
/// How long before its start a seat is bound.
const BOUND_BEFORE: [Span; 4] = [Span(0), Span(5), Span(10), Span(20)];

/// The classes of a seed.
#[derive(Debug, Clone)]
pub struct Classes {
    seed: u64,
    /// How long before its start a seat is bound.
    pub bound_before: Span,
}

impl Classes {
    /// The classes of a seed.
    pub fn of(seed: u64) -> Classes {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Classes { seed, bound_before: BOUND_BEFORE[random.random_range(0..BOUND_BEFORE.len())] }
    }

    /// Makes the hosts of half of the sites alike, which are then of the class returned; all but their first few are free of own work.
    pub fn apply(&self, site: u64, hosts: &mut Vec<(Host, Schedule)>) -> Option<HostId> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ 1).wrapping_add(site));
        let (kind, _) = hosts.first().cloned().filter(|_| random.random_bool(0.5))?;
        let (class, _) = numbered(&kind.id)?;
        hosts.truncate(1);
        let more = (1..random.random_range(HOSTS))
            .map(|number| (Host { id: names::host(number), ..kind.clone() }, Schedule::default()));
        hosts.extend(more);
        Some(class)
    }
}
