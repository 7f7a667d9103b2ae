//! Tests of co-location: what is placed fits, the worked pairings, and figures on generated sets.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use rand::{RngExt, rand_core::SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::batch::colocation::problem::Needs;

const ROLES: Roles = Roles { cpu: 0, others: (1, 2) };

fn needs(cpu: u64, memory: u64, io: u64) -> Needs {
    let mut needs = [0; RESOURCES_MAX];
    needs[..3].copy_from_slice(&[cpu, memory, io]);
    needs
}

fn job(seats: usize, seconds: i64, asked: (u64, u64, u64), scale: (u32, u32)) -> Job {
    let needs = needs(asked.0, asked.1, asked.2);
    Job { seats, seconds, needs, scale, starts: (0, 10_000_000), deadline: i64::MAX / 4 }
}

/// As section 4.5.2 draws its sets.
fn drawn(seed: u64, hosts: usize, seats_max: usize, balanced: u32) -> Problem {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut jobs, mut load) = (Vec::new(), 0);
    while load < 86_400_000 * hosts as u64 {
        let [first, second, third] = [(); 3].map(|()| random.random_range(1..=5) * 200);
        let is_balanced = random.random_range(0..100) < balanced;
        let asked = if is_balanced { (first, first, first) } else { (first, second, third) };
        let most = asked.0.max(asked.1).max(asked.2);
        let scale = (random.random_range(300..=1000), (1_000_000 / most as u32).min(random.random_range(1000..=2000)));
        let one = job(random.random_range(1..=seats_max), random.random_range(7_200..=25_200), asked, scale);
        load += one.seconds.cast_unsigned() * one.seats as u64 * most;
        jobs.push(one);
    }
    Problem { capacity: needs(1000, 1000, 1000), taken: vec![Vec::new(); hosts], jobs }
}

/// Every second at which something changes, by adding up everything.
fn check(problem: &Problem, placed: &Placed) {
    let mut blocks: Vec<Vec<Block>> = problem.taken.clone();
    for (job, placement) in problem.jobs.iter().zip(placed) {
        let Some(Placement { start, factor, hosts }) = placement else { continue };
        assert!((job.scale.0..=job.scale.1).contains(factor));
        let end = start + job.seconds_at(*factor);
        assert!(job.starts.0 <= *start && *start <= job.starts.1 && end <= job.deadline);
        let mut distinct = hosts.clone();
        distinct.dedup();
        assert_eq!((distinct.len(), hosts.len()), (job.seats, job.seats));
        hosts.iter().for_each(|host| blocks[*host].push(Block { start: *start, end, needs: job.at(*factor).needs }));
    }
    for blocks in blocks {
        for at in blocks.iter().map(|block| block.start) {
            for resource in 0..RESOURCES_MAX {
                let beside = blocks.iter().filter(|block| block.start <= at && at < block.end);
                let used: u64 = beside.map(|block| block.needs[resource]).sum();
                assert!(used <= problem.capacity[resource], "{used} of {resource} at {at}");
            }
        }
    }
}

#[test]
fn complementary_jobs_fill_a_host_together() {
    let jobs = vec![job(1, 9_000, (200, 800, 800), (500, 1_250)), job(1, 9_000, (800, 200, 200), (500, 1_250))];
    let problem = Problem { capacity: needs(1000, 1000, 1000), taken: vec![Vec::new(); 2], jobs };
    for form in [set, partition] {
        let placed = form(&problem, ROLES, Turns::Longest);
        check(&problem, &placed);
        assert_eq!(problem.worth(&placed).run_time, 9_000, "{placed:?}");
    }
    assert_eq!(problem.worth(&plain(&problem, Turns::Longest)).run_time, 9_000);
}

#[test]
fn what_is_placed_fits_and_best_is_never_worse() {
    for seed in 0..12 {
        let mut problem = drawn(seed, 5, 1 + (seed % 2) as usize, (seed as u32 % 4) * 33);
        if seed % 3 == 0 {
            problem.taken[1].push(Block { start: 5_000, end: 30_000, needs: needs(600, 600, 600) });
        }
        let begun: Vec<Placed> = [
            plain(&problem, Turns::Longest),
            set(&problem, ROLES, Turns::Longest),
            partition(&problem, ROLES, Turns::Highest),
        ]
        .into();
        begun.iter().for_each(|placed| check(&problem, placed));
        let first = begun.into_iter().min_by_key(|placed| problem.worth(placed)).unwrap();
        let best = search(&problem, &first);
        check(&problem, &best);
        assert!(problem.worth(&best) <= problem.worth(&first));
        assert!(problem.worth(&best).run_time >= problem.area());
    }
}
