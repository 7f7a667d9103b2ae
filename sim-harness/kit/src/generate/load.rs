//! What a host's owner uses of it in the course of a day, in steps of five minutes.
//!
//! The share of the processor in use is a mean of the host's own (a Beta distribution: many hosts are nearly idle, some
//! nearly full), a daily wave, and noise of first order autoregression, cut to 0..1. The constants give what traces of
//! research grids show: 0.32 on average with a deviation of 0.25 between hosts, 0.11 inside a day, and little memory
//! from one step to the next. `cpu` is used at that share, `mhz` at half of it, and `memory` is a base plus a piece for
//! each of a few users who come and go. Invariant: no use exceeds the capacity, and nothing is used after the day.

use std::{collections::BTreeMap, f64::consts::TAU};

use broker::{amount::Amount, resources::ResourceName, time::Time};
use rand::{Rng, RngExt};
use rand_distr::{Beta, Distribution, Poisson, StandardNormal};

use super::{
    DAY_S, STEP_S,
    capacities::{Capacities, resource},
};

/// Shapes of the Beta distribution of a host's mean share.
const MEAN_SHAPE: (f64, f64) = (0.85, 1.75);
/// Height of the daily wave, as a part of `mean (1 - mean)`: hosts that are idle or full have little room for one.
const WAVE: f64 = 0.2;
/// Deviation of the noise, as a part of `mean (1 - mean)`.
const NOISE: f64 = 0.8;
/// How much of the noise of one step is left in the next.
const PERSISTENCE: f64 = 0.1;
/// Memory in use on every host, in MiB.
const MEMORY_BASE_MIB: u64 = 512;
/// Memory of one user, in MiB.
const MEMORY_PER_USER_MIB: u64 = 64;
/// Users on a host whose mean share is 1.
const USERS_AT_FULL_SHARE: f64 = 8.0;
/// Chance that the number of users changes at a step: three times a day.
const USERS_CHANGE: f64 = 3.0 / 288.0;

/// Steps by resource.
pub type Steps = BTreeMap<ResourceName, Vec<(Time, Amount)>>;

/// Draws a day of use of a host.
pub fn draw(random: &mut impl Rng, capacities: &Capacities) -> Steps {
    let mean = Beta::new(MEAN_SHAPE.0, MEAN_SHAPE.1).expect("positive shapes").sample(random);
    let room = mean * (1.0 - mean);
    let peak_at = random.random::<f64>();
    let mut noise = NOISE * room * normal(random);
    let mut users = draw_users(random, mean);
    let (mut cpu, mut mhz, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for t in (0..DAY_S).step_by(STEP_S as usize) {
        let wave = WAVE * room * (TAU * (t as f64 / DAY_S as f64 - peak_at)).cos();
        let share = (mean + wave + noise).clamp(0.0, 1.0);
        push(&mut cpu, t, part(capacities.cpu, share));
        push(&mut mhz, t, part(capacities.mhz, share / 2.0));
        push(&mut memory, t, (MEMORY_BASE_MIB + users * MEMORY_PER_USER_MIB).min(capacities.memory_mib));
        // This factor keeps the deviation of the noise the same at every step.
        noise = PERSISTENCE * noise + (1.0 - PERSISTENCE.powi(2)).sqrt() * NOISE * room * normal(random);
        if random.random_bool(USERS_CHANGE) {
            users = draw_users(random, mean);
        }
    }
    [("cpu", cpu), ("mhz", mhz), ("memory", memory)]
        .into_iter()
        .map(|(name, mut steps)| {
            push(&mut steps, DAY_S, 0);
            (resource(name), steps)
        })
        .collect()
}

fn normal(random: &mut impl Rng) -> f64 {
    StandardNormal.sample(random)
}

fn draw_users(random: &mut impl Rng, mean: f64) -> u64 {
    // Poisson wants a mean above zero, a Beta variable may be rounded to it.
    let expected = (USERS_AT_FULL_SHARE * mean).max(1e-6);
    Poisson::new(expected).expect("a positive, small mean").sample(random) as u64
}

fn part(capacity: u64, share: f64) -> u64 {
    (capacity as f64 * share).round() as u64
}

fn push(steps: &mut Vec<(Time, Amount)>, t: i64, used: u64) {
    if steps.last().map_or(0, |(_, last)| last.0) != used {
        steps.push((Time(t), Amount(used)));
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    use super::*;
    use crate::{
        generate::capacities,
        stats::{Spread, mean, spread},
    };

    fn shares(host: &Capacities, steps: &Steps) -> Vec<f64> {
        let cpu = &steps[&resource("cpu")];
        (0..DAY_S)
            .step_by(STEP_S as usize)
            .map(|t| {
                let next = cpu.partition_point(|(at, _)| at.0 <= t);
                let used = next.checked_sub(1).map_or(0, |index| cpu[index].1.0);
                used as f64 / host.cpu as f64
            })
            .collect()
    }

    #[test]
    fn the_load_has_the_documented_statistics() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let days: Vec<Spread> = (0..2000)
            .map(|_| {
                let host = capacities::draw(&mut random);
                spread(shares(&host, &draw(&mut random, &host)).into_iter())
            })
            .collect();
        let between = spread(days.iter().map(|day| day.mean));
        let inside = mean(days.iter().map(|day| day.sd));
        assert!((0.30..0.36).contains(&between.mean), "mean share {}", between.mean);
        assert!((0.20..0.27).contains(&between.sd), "deviation between hosts {}", between.sd);
        assert!((0.09..0.13).contains(&inside), "deviation inside a day {inside}");
    }

    #[test]
    fn no_use_exceeds_the_capacity_and_the_day_ends_free() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        for _ in 0..200 {
            let host = capacities::draw(&mut random);
            let capacity = host.amounts();
            for (name, steps) in draw(&mut random, &host) {
                assert!(steps.iter().all(|(_, used)| *used <= capacity[&name]));
                assert!(steps.windows(2).all(|pair| pair[0].0 < pair[1].0));
                assert!(steps.last().is_none_or(|last| last.1 == Amount::ZERO && last.0.0 <= DAY_S));
            }
        }
    }
}
