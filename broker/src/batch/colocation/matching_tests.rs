//! What co-location saves against the best of all ways to pair jobs: an exact matching over all pairs, by the host time that each saves.

use super::{
    pairing::{groups, scaled, whole},
    tests::{ROLES, check, drawn},
    *,
};
use crate::batch::watch::Watch;

const JOBS: usize = 300;

/// Host time saved against each job by itself: by the exact matching, by the source's pairs and by `best`.
fn saved(seed: u64, balanced: u32) -> [i64; 3] {
    let mut problem = drawn(seed, 60, 1, balanced);
    assert!(problem.jobs.len() >= JOBS);
    problem.jobs.truncate(JOBS);
    let capacity = problem.usual();
    let alone: Vec<i64> = problem.jobs.iter().map(|job| whole(job, &capacity).seconds).collect();
    let mut gains = vec![0; JOBS * JOBS];
    for one in 0..JOBS {
        for other in one + 1..JOBS {
            let Some(pair) = scaled(&problem.jobs[one], &problem.jobs[other], &capacity) else { continue };
            let gain = alone[one] + alone[other] - pair.0.seconds.max(pair.1.seconds);
            (gains[one * JOBS + other], gains[other * JOBS + one]) = (gain, gain);
        }
    }
    let mates = integer_blossom::max_weight_matching(&gains, JOBS);
    let of_pairs: i64 = mates.iter().enumerate().filter_map(|(one, other)| Some(gains[one * JOBS + (*other)?])).sum();
    let all: i64 = alone.iter().sum();
    let longest = |group: &pairing::Group| group.jobs.iter().map(|(_, sized)| sized.seconds).max().unwrap_or(0);
    let of_groups = all - groups(&problem, ROLES, Thresholds::default()).iter().map(longest).sum::<i64>();
    let begun = set(&problem, ROLES, Thresholds::default(), Turns::Longest);
    let best = search(&problem, &begun, problem.worth(&begun).makespan, Watch::NOBODY);
    check(&problem, &best);
    [of_pairs / 2, of_groups, all - problem.worth(&best).run_time]
}

/// Least part of what the exact matching saves that `best` reaches, in per cent. Measured: 87 (the source's pairs: 63).
const LEAST_PERCENT: i64 = 80;

#[test]
fn best_saves_most_of_the_host_time_that_the_best_pairs_save() {
    let [exact, source, best] = saved(1, 0);
    assert!((0..=exact).contains(&source), "{source} of {exact}");
    assert!(best >= source && best * 100 >= exact * LEAST_PERCENT, "{best} of {exact}");
}
