//! Workloads from one seed: a grid with a day of load, and requests drawn as in the source's experiments (section 3.4.2).
//!
//! Invariant: pure. The same arguments give the same hosts and requests; the first hosts and requests of a longer
//! workload are those of a shorter one.

mod capacities;
mod load;
mod requests;

use broker::{
    host::{Host, Speed},
    ids::{HostId, SiteId},
    schedule::Schedule,
    snapshot::{GridSnapshot, SnapshotHost},
};
use rand_xoshiro::{
    SplitMix64, Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};

use self::capacities::Capacities;
pub use self::requests::{Kind, requests, whole};

/// How long the generated load lasts, in seconds: a day.
pub const DAY_S: i64 = 86_400;

/// Length of a step of the generated load, in seconds.
pub const STEP_S: i64 = 300;

/// Draws a grid: capacities of table 3.1, a day of load in 5-minute steps from time 0 on. Every host is a site of its
/// own, as most hosts of the source's grid are; whoever wants larger sites puts several under one label.
#[must_use]
pub fn grid(seed: u64, hosts: usize) -> GridSnapshot {
    let hosts = (0..hosts)
        .map(|index| {
            let mut random = stream(seed, Stream::Host(index));
            let capacities = capacities::draw(&mut random);
            let steps = load::draw(&mut random, &capacities);
            let schedule = Schedule::from_steps(&steps).expect("the load model steps forward in time inside one day");
            host(index, &capacities, schedule)
        })
        .collect();
    GridSnapshot { hosts, ..GridSnapshot::default() }
}

/// The hosts of [`grid`] with nothing reserved on them, without drawing a load first.
#[must_use]
pub fn free_grid(seed: u64, hosts: usize) -> GridSnapshot {
    let drawn = |index| capacities::draw(&mut stream(seed, Stream::Host(index)));
    GridSnapshot {
        hosts: (0..hosts).map(|index| host(index, &drawn(index), Schedule::default())).collect(),
        ..GridSnapshot::default()
    }
}

fn host(index: usize, capacities: &Capacities, schedule: Schedule) -> SnapshotHost {
    SnapshotHost {
        site: SiteId::new(&format!("site-{:03}", index + 1)).expect("a short text without control characters"),
        host: Host {
            id: HostId::new(&format!("host-{:03}", index + 1)).expect("a short text without control characters"),
            capacity: capacities.amounts(),
            attributes: capacities.attributes(),
            speed: Speed::REFERENCE,
            tariff: Default::default(),
        },
        schedule,
    }
}

/// What a random stream is for. Every host and every request has its own, so that a longer workload begins like a
/// shorter one.
#[derive(Clone, Copy)]
enum Stream {
    Host(usize),
    Request(usize),
}

fn stream(seed: u64, of: Stream) -> Xoshiro256PlusPlus {
    let (purpose, index) = match of {
        Stream::Host(index) => (1_u64, index),
        Stream::Request(index) => (2, index),
    };
    let base = SplitMix64::seed_from_u64(seed ^ (purpose << 56)).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(base.wrapping_add(index as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_grid_and_a_longer_one_begins_like_a_shorter_one() {
        assert_eq!(grid(7, 20), grid(7, 20));
        assert_eq!(grid(7, 20).hosts, grid(7, 50).hosts[..20]);
        assert_ne!(grid(7, 20), grid(8, 20));
    }

    #[test]
    fn a_generated_grid_is_a_valid_snapshot() {
        let snapshot = grid(3, 40);
        assert_eq!(GridSnapshot::read(&snapshot.write()).unwrap(), snapshot);
        let without_load =
            snapshot.hosts.into_iter().map(|entry| SnapshotHost { schedule: Schedule::default(), ..entry });
        assert_eq!(without_load.collect::<Vec<_>>(), free_grid(3, 40).hosts);
    }
}
