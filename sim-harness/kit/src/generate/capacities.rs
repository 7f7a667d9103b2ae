//! Capacities of one host, with the statistics of the source's table 3.1.
//!
//! Invariant: every capacity lies between the table's minimum and maximum.

use broker::{
    amount::Amount,
    resources::{Amounts, Attributes, ResourceName},
};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Normal};

/// One row of table 3.1, in base units.
struct Row {
    mean: f64,
    deviation: f64,
    min: f64,
    max: f64,
}

const MHZ: Row = Row { mean: 2680.0, deviation: 360.0, min: 1400.0, max: 3600.0 };
const MEMORY_MIB: Row = Row { mean: 2.95 * 1024.0, deviation: 0.84 * 1024.0, min: 0.73 * 1024.0, max: 7.71 * 1024.0 };

/// Cores and how many hosts of a thousand have them: the table gives 2.90 on average with a deviation of 1.51.
const CORES_PER_MILLE: [(u64, u32); 5] = [(1, 90), (2, 475), (3, 50), (4, 340), (8, 45)];

/// How many hosts of a thousand are not x86_64, so that an attribute has something to cut.
const OTHER_ARCH_PER_MILLE: u32 = 160;

/// What one host has.
pub struct Capacities {
    /// Millicores.
    pub cpu: u64,
    /// MHz.
    pub mhz: u64,
    /// MiB.
    pub memory_mib: u64,
    arch: &'static str,
}

impl Capacities {
    /// By resource name.
    pub fn amounts(&self) -> Amounts {
        [("cpu", self.cpu), ("mhz", self.mhz), ("memory", self.memory_mib)]
            .into_iter()
            .map(|(name, amount)| (resource(name), Amount(amount)))
            .collect()
    }

    /// `arch` and `os`.
    pub fn attributes(&self) -> Attributes {
        [("arch", self.arch), ("os", "linux")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }
}

/// The name of a resource that this module knows to be well-formed.
pub fn resource(name: &'static str) -> ResourceName {
    ResourceName::new(name).expect("a lower-case word")
}

/// Draws a host.
pub fn draw(random: &mut impl Rng) -> Capacities {
    let mut ticket = random.random_range(0..1000);
    let mut cores = CORES_PER_MILLE[0].0;
    for (count, share) in CORES_PER_MILLE {
        cores = count;
        if ticket < share {
            break;
        }
        ticket -= share;
    }
    Capacities {
        cpu: cores * 1000,
        mhz: truncated_normal(random, &MHZ),
        memory_mib: truncated_normal(random, &MEMORY_MIB),
        arch: if random.random_ratio(OTHER_ARCH_PER_MILLE, 1000) { "aarch64" } else { "x86_64" },
    }
}

/// Draws again while outside the bounds; both rows keep more than 98 % of their mass inside, so a few draws do. The
/// clamp ends a run of bad luck.
fn truncated_normal(random: &mut impl Rng, row: &Row) -> u64 {
    const DRAWS_MAX: usize = 32;
    let normal = Normal::new(row.mean, row.deviation).expect("a positive, finite deviation");
    let drawn = (0..DRAWS_MAX)
        .map(|_| normal.sample(random))
        .find(|value| (row.min..=row.max).contains(value))
        .unwrap_or(row.mean);
    drawn.clamp(row.min, row.max).round() as u64
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    use super::*;
    use crate::stats::spread;

    #[test]
    fn capacities_have_the_statistics_of_table_3_1() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let hosts: Vec<Capacities> = (0..20_000).map(|_| draw(&mut random)).collect();
        let column = |of: fn(&Capacities) -> u64| hosts.iter().map(|host| of(host) as f64).collect::<Vec<_>>();
        for (values, mean, deviation, min, max) in [
            (column(|host| host.cpu), 2900.0, 1510.0, 1000.0, 8000.0),
            (column(|host| host.mhz), 2680.0, 360.0, 1400.0, 3600.0),
            (column(|host| host.memory_mib), 3020.8, 860.2, 747.0, 7895.1),
        ] {
            let found = spread(values.into_iter());
            assert!((found.mean / mean - 1.0).abs() < 0.02, "{found:?}, expected the mean {mean}");
            assert!((found.sd / deviation - 1.0).abs() < 0.04, "{found:?}, expected the deviation {deviation}");
            assert!(found.min >= min && found.max <= max, "{found:?}");
        }
    }
}
