//! Start times written down by hand.

use super::{cluster, job, planned, replay, starts, with_memory};
use crate::replay::{
    engine,
    job::{ClusterIndex, Job},
    policy::{self, Setup},
};

/// Four single-processor hosts. The second job needs all of them and waits for the first; the fifth is the shortest.
fn five() -> Vec<Job> {
    vec![job(0, 10, 3, 1), job(1, 5, 4, 1), job(2, 8, 1, 1), job(3, 20, 1, 1), job(4, 2, 1, 1)]
}

/// The fourth job is long and narrow: it fits beside the second job, but not beside the third, which needs all hosts.
fn long_and_narrow() -> Vec<Job> {
    vec![job(0, 10, 3, 1), job(1, 10, 2, 1), job(2, 10, 4, 1), job(3, 30, 1, 1)]
}

#[test]
fn every_policy_starts_jobs_when_it_should() {
    let clusters = [cluster(4, 1, 0)];
    for (policy, of_five, of_narrow) in [
        // No job passes the second one.
        ("fcfs", [0, 10, 15, 15, 15], [0, 10, 20, 30]),
        // The third job ends before the second can start; the fourth of the other trace delays the third, which has no
        // reservation.
        ("easy", [0, 10, 2, 15, 15], [0, 10, 33, 3]),
        // Here it has one.
        ("conservative", [0, 10, 2, 15, 15], [0, 10, 20, 30]),
        ("kolo", [0, 10, 2, 15, 15], [0, 10, 20, 30]),
        // The fifth job comes before the second, which then blocks the rest; the third is due at 18, after it (11).
        ("edf", [0, 10, 15, 15, 4], [0, 10, 20, 30]),
        ("sjf", [0, 10, 15, 15, 4], [0, 10, 20, 30]),
    ] {
        assert_eq!(starts(policy, &five(), &clusters), of_five, "{policy}");
        assert_eq!(starts(policy, &long_and_narrow(), &clusters), of_narrow, "{policy}");
    }
}

#[test]
fn due_dates_come_from_the_limit_and_lengths_from_what_is_known() {
    let clusters = [cluster(1, 1, 0)];
    // Due at 1 + 2 * 40 = 81 and at 2 + 2 * 15 = 32; the first is shorter.
    let mut jobs = [job(0, 10, 1, 1), job(1, 4, 1, 1), job(2, 6, 1, 1)];
    (jobs[1].known.deadline_s, jobs[2].known.deadline_s) = (81, 32);
    assert_eq!(starts("edf", &jobs, &clusters), [0, 16, 10]);
    assert_eq!(starts("sjf", &jobs, &clusters), [0, 10, 14]);
}

#[test]
fn an_early_end_moves_plans_of_conservative_and_leaves_those_of_kolo() {
    let clusters = [cluster(4, 1, 0)];
    let jobs = [
        planned(20, job(0, 10, 4, 1)),
        job(1, 10, 4, 1),
        // Comes after the early end: `kolo` gives it the hosts that are not reserved.
        job(12, 5, 1, 1),
    ];
    assert_eq!(starts("conservative", &jobs, &clusters), [0, 10, 20]);
    assert_eq!(starts("kolo", &jobs, &clusters), [0, 20, 12]);
    assert_eq!(starts("easy", &jobs, &clusters), [0, 10, 20]);
}

#[test]
fn a_job_that_runs_past_its_planned_time_delays_what_was_planned_behind_it() {
    let clusters = [cluster(2, 1, 0)];
    let jobs = [planned(10, job(0, 25, 2, 1)), job(1, 5, 2, 1), job(12, 5, 1, 1)];
    for policy in ["fcfs", "easy", "conservative", "kolo"] {
        let found = starts(policy, &jobs, &clusters);
        assert_eq!(found[..2], [0, 25], "{policy}");
        assert!(found[2] >= 25, "{policy}: {found:?}");
    }
}

#[test]
fn of_jobs_submitted_together_the_first_that_fits_does_not_wait_for_the_others() {
    let clusters = [cluster(1, 1, 0)];
    let jobs = [job(0, 10, 1, 1), job(0, 9, 1, 1), job(0, 3, 1, 1)];
    assert_eq!(starts("sjf", &jobs, &clusters), [0, 13, 10]);
}

#[test]
fn hosts_are_whole_and_jobs_stay_inside_a_cluster() {
    let clusters = [cluster(2, 4, 100), cluster(2, 2, 400)];
    let jobs = [
        // Takes the memory of host 0, and three of four processors of it.
        with_memory(100, job(0, 10, 1, 3)),
        // Host 1 of the same cluster.
        job(1, 10, 1, 4),
        // Three processors a host fit no host of the second cluster, though six are free in all.
        job(2, 10, 2, 3),
        // Too much memory for the first cluster.
        with_memory(300, job(3, 10, 1, 1)),
    ];
    for policy in ["fcfs", "kolo"] {
        let runs = replay(policy, &jobs, &clusters);
        let seconds: Vec<i64> = runs.iter().map(|run| run.start.second()).collect();
        // The last job waits for its turn under `fcfs` and for no job under `kolo`.
        assert_eq!(seconds, [0, 1, 11, if policy == "fcfs" { 11 } else { 3 }], "{policy}");
        assert_eq!(runs.iter().map(|run| run.cluster.0).collect::<Vec<_>>(), [0, 0, 0, 1]);
    }
}

/// Four hosts with 100 KiB each. The second job needs 80 on two hosts; processors are free for it at once, memory only when
/// the first job ends.
#[test]
fn easy_reserves_memory_and_not_only_processors() {
    let clusters = [cluster(4, 4, 100)];
    let jobs = [
        with_memory(60, job(0, 10, 3, 1)),
        with_memory(80, job(1, 10, 2, 1)),
        // Would still hold memory on one of two hosts that are free for the second job; of the others it takes only one.
        with_memory(40, job(2, 30, 3, 1)),
        with_memory(40, job(3, 30, 1, 1)),
        // Ends in time.
        with_memory(10, job(4, 5, 3, 1)),
    ];
    assert_eq!(starts("easy", &jobs, &clusters), [0, 10, 20, 3, 4]);
}

/// The second cluster would be free earlier, but tags exclude it.
#[test]
fn tags_bind_every_policy() {
    let clusters = [cluster(2, 2, 0), cluster(2, 1, 0)];
    let mut jobs = [job(0, 10, 2, 2), job(1, 5, 1, 1), job(2, 5, 1, 1)];
    jobs[1].known.excluded = Box::new([ClusterIndex(1)]);
    for policy in crate::replay::policy::names() {
        let runs = replay(policy, &jobs, &clusters);
        assert_eq!((runs[1].start.second(), runs[1].cluster.0), (10, 0), "{policy}");
        assert_eq!(runs[2].cluster.0, u32::from(runs[2].start.second() == 2), "{policy}");
    }
}

/// A request has at most 10,000 hosts.
#[test]
fn a_job_that_is_refused_as_a_request_ends_the_replay() {
    let clusters = [cluster(10_001, 1, 0)];
    let mut kolo = policy::named("kolo", &Setup { clusters: &clusters, seed: 1, search: 0 }).unwrap();
    let error = engine::replay(&[job(0, 10, 10_001, 1)], &clusters, kolo.as_mut(), |_| ()).unwrap_err();
    assert_eq!(format!("{error:#}"), "job 0 (line 1): hosts: expected 1 to 10000, got 10001");
}
