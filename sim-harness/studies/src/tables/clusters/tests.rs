//! The worked examples of the source, and what must hold for any workload.

use broker::batch::{Order, multicluster::Choice};
use sim_kit::progress::Progress;

use super::{example, experiments::assignment, setup};
use crate::clusters::{
    mesd::{LeastSlowdown, ordered},
    oas::{self, Whole},
    policies::{ORDERS, OneByOne, Packages, Placement},
    world::{Cluster, Ended, Fault, Figures, Job, Policy, State, is_spread, simulate, simulate_with},
};

fn job(tasks: u32, compute: f64, base: f64) -> Job {
    Job { tasks, compute, base, bandwidth: 0.0, arrival: 0.0 }
}

/// The example of 3.3.4, also where counts within links are tried: nothing is sent, so links change nothing.
#[test]
fn the_order_of_the_example_of_least_slowdown() {
    let (clusters, jobs) = example::clusters_and_jobs();
    let state = State::empty(&clusters, &jobs);
    for choice in [Choice::Literal, Choice::Carried] {
        let order: Vec<usize> = ordered(&[0, 1, 2, 3], &state, choice).into_iter().map(|(job, _)| job).collect();
        assert_eq!(order, [0, 2, 3, 1]);
    }
}

/// Two halved jobs share links of 1 GB/s: the load is twice what a link bears, so both communicate at half the speed until one ends.
#[test]
fn a_saturated_link_slows_its_jobs_down_while_it_is() {
    let clusters = [Cluster { hosts: 2, power: 1.0, link: 1.0 }; 2];
    let halved = |base| Job { tasks: 2, compute: 0.5, base, bandwidth: 1.0, arrival: 0.0 };
    struct Halves;
    impl Policy for Halves {
        fn next(&mut self, waiting: &[usize], _: &State) -> Option<(usize, Vec<u32>)> {
            waiting.first().map(|job| (*job, vec![1, 1]))
        }
    }
    let ended = simulate(&clusters, &[halved(100.0), halved(200.0)], &mut Halves);
    // Both at 1/1.5 of their speed until the first is done at 150; half of the second is left.
    let ends: Vec<f64> = ended.iter().map(|ended| ended.end).collect();
    assert!((ends[0] - 150.0).abs() < 1e-6 && (ends[1] - 250.0).abs() < 1e-6, "{ends:?}");
    assert!(ended.iter().all(|ended| is_spread(&ended.counts) && ended.was_saturated));
}

/// Every job runs once, not before it comes, on hosts that are free; packages saturate no link.
#[test]
fn any_policy_places_every_job_once_and_packages_keep_the_links() {
    for number in 0..5 {
        let jobs = setup::workload(7, number, 0.9).unwrap();
        let clusters = setup::clusters(setup::HETEROGENEITY[2]);
        for order in ORDERS {
            let packages = simulate(&clusters, &jobs, &mut Packages::new(order));
            assert!(packages.iter().all(|ended| !ended.was_saturated), "{order:?}");
            check(&jobs, &packages, 64);
            for placement in [Placement::Fastest, Placement::Chunk] {
                check(&jobs, &simulate(&clusters, &jobs, &mut OneByOne { order, placement }), 64);
            }
        }
        check(&jobs, &simulate(&clusters, &jobs, &mut LeastSlowdown::new(Choice::Literal)), 64);
        let carried = simulate(&clusters, &jobs, &mut LeastSlowdown::new(Choice::Carried));
        assert!(carried.iter().all(|ended| !ended.was_saturated));
        check(&jobs, &carried, 64);
        // OAS takes a second or so for ten jobs.
        let jobs = &jobs[..10];
        let whole = simulate(&clusters, jobs, &mut Whole::new(&clusters, oas::EXACT).unwrap());
        assert!(whole.iter().all(|ended| !ended.was_saturated));
        check(jobs, &whole, 64);
    }
}

/// What all policies of packages do in two steps, OAS does at once; and a wide job is not overtaken for ever by narrow ones.
#[test]
fn batches_are_planned_anew_when_jobs_come_and_nobody_starves() {
    let clusters = [Cluster { hosts: 2, power: 1.0, link: 1.0 }, Cluster { hosts: 2, power: 0.5, link: 1.0 }];
    // Every 50 s comes a narrow job of 120 s; the wide one comes when two run, and begins when those that were planned before it are over.
    let mut jobs: Vec<Job> = (0..40).map(|at| Job { arrival: 50.0 * f64::from(at), ..job(1, 1.0, 120.0) }).collect();
    jobs.insert(3, Job { arrival: 101.0, ..job(4, 1.0, 100.0) });
    let ended = simulate(&clusters, &jobs, &mut Whole::new(&clusters, oas::EXACT).unwrap());
    check(&jobs, &ended, 4);
    let wide = ended.iter().find(|ended| ended.job == 3).unwrap();
    assert!(wide.start < 600.0, "{}", wide.start);
    // A job that no link bears runs by itself.
    let wide = Job { tasks: 4, compute: 0.5, base: 100.0, bandwidth: 3.0, arrival: 0.0 };
    let ended = simulate(&clusters, &[wide, Job { tasks: 1, ..wide }], &mut Whole::new(&clusters, oas::EXACT).unwrap());
    let mut first: Vec<_> = ended.iter().map(|ended| (ended.job, ended.was_saturated)).collect();
    first.sort_unstable();
    assert_eq!(first, [(0, true), (1, false)]);
}

fn check(jobs: &[Job], ended: &[Ended], hosts: u32) {
    assert_eq!(ended.len(), jobs.len());
    for Ended { job, start, end, .. } in ended {
        assert!(*start >= jobs[*job].arrival && end > start);
        let beside = ended.iter().filter(|other| other.start <= *start && *start < other.end - 1e-6);
        assert!(beside.map(|other| jobs[other.job].tasks).sum::<u32>() <= hosts);
    }
    let figures = Figures::of(&[], jobs, ended);
    assert!(figures.response() >= figures.execution);
}

/// Halves that send each other more than a link bears: the source's model has no answer, so such a job runs by itself.
#[test]
fn a_job_that_no_link_bears_runs_alone() {
    let clusters = [Cluster { hosts: 2, power: 1.0, link: 1.0 }; 2];
    let wide = Job { tasks: 4, compute: 0.5, base: 100.0, bandwidth: 1.0, arrival: 0.0 };
    let small = Job { tasks: 1, ..wide };
    let ended = simulate(&clusters, &[wide, small], &mut Packages::new(Order::Fcfs));
    assert_eq!(ended.iter().map(|ended| (ended.job, ended.was_saturated)).collect::<Vec<_>>(), [(0, true), (1, false)]);
    assert!(ended[1].start >= ended[0].end);
}

/// A host of the second job fails while both run: that job begins anew when the host works again, the first goes on.
#[test]
fn a_job_whose_host_fails_begins_anew() {
    let clusters = [Cluster { hosts: 3, power: 1.0, link: 1.0 }];
    let jobs = [job(1, 0.5, 100.0), job(2, 0.5, 100.0)];
    let fault = |host, at, until| Fault { cluster: 0, host, at, until };
    let run = |faults: Vec<Fault>| {
        let mut policy = OneByOne { order: Order::Fcfs, placement: Placement::Fastest };
        let ended = simulate_with(&clusters, &jobs, faults.into_iter(), &mut policy);
        ended.iter().map(|ended| (ended.job, ended.start, ended.end, ended.restarts)).collect::<Vec<_>>()
    };
    assert_eq!(run(vec![fault(2, 50.0, 80.0)]), [(0, 0.0, 100.0, 0), (1, 80.0, 180.0, 1)]);
    assert_eq!(run(vec![fault(1, 50.0, 400.0)]), [(0, 0.0, 100.0, 0), (1, 100.0, 200.0, 1)]);
    // After the end of all nothing fails; two failures at once leave one host, on which the second job waits for a repair.
    assert_eq!(run(vec![fault(0, 500.0, 600.0)]), [(0, 0.0, 100.0, 0), (1, 0.0, 100.0, 0)]);
    let two = vec![fault(1, 50.0, 400.0), fault(1, 50.0, 300.0)];
    assert_eq!(run(two), [(0, 0.0, 100.0, 0), (1, 300.0, 400.0, 1)]);
}

/// Where MESD gives the best hosts literally, a link is saturated; within links, other counts are found, or the job waits.
#[test]
fn least_slowdown_finds_other_counts_within_links() {
    let clusters = [Cluster { hosts: 4, power: 1.0, link: 1.0 }, Cluster { hosts: 4, power: 0.5, link: 1.0 }];
    // Three of six tasks each way send 1.8; one or five send 1.
    let wide = Job { tasks: 6, compute: 0.5, base: 100.0, bandwidth: 1.0, arrival: 0.0 };
    let run = |choice, clusters: &[Cluster], jobs: &[Job]| {
        let ended = simulate(clusters, jobs, &mut LeastSlowdown::new(choice));
        ended.into_iter().map(|ended| (ended.counts, ended.was_saturated)).collect::<Vec<_>>()
    };
    assert_eq!(run(Choice::Literal, &clusters, &[wide]), [(vec![2, 4], true)]);
    let five = [Cluster { hosts: 5, ..clusters[0] }, clusters[1]];
    assert_eq!(run(Choice::Literal, &five, &[wide]), [(vec![2, 4], true)]);
    assert_eq!(run(Choice::Carried, &five, &[wide]), [(vec![5, 1], false)]);
    // No counts do on the smaller grid: it runs as it would literally.
    assert_eq!(run(Choice::Carried, &clusters, &[wide]), [(vec![2, 4], true)]);
}

/// The exact plan keeps the links, and ends no later than any policy that does so.
#[test]
fn a_batch_as_a_whole_is_no_longer_than_packages() {
    for number in 0..2 {
        let (clusters, jobs) = (setup::small(), setup::batch(5, number, 0.7).unwrap());
        let whole = oas::ordered_and_assigned(&clusters, &jobs).unwrap();
        check(&jobs, &whole, 12);
        let end = |ended: &[Ended]| ended.iter().map(|ended| ended.end).fold(0.0, f64::max);
        for order in ORDERS {
            let packages = simulate(&clusters, &jobs, &mut Packages::new(order));
            // Times of plans are whole seconds, bandwidths whole Mbit/s, and speeds whole thousandths.
            assert!(end(&whole) <= end(&packages) * 1.001 + 8.0, "{} < {}", end(&packages), end(&whole));
        }
    }
}

/// PAS is held against each of the others at each load.
#[test]
fn all_policies_are_studied_at_each_load() {
    let settings = assignment(5, 1, &Progress::new("workloads", 1)).unwrap();
    assert_eq!(settings.len(), 18);
    for setting in settings {
        let policies: Vec<&str> = setting.rows.iter().map(|row| row.policy.as_str()).collect();
        assert_eq!(policies, ["PAS-FCFS", "CBS", "SJF", "BJF", "FPFS", "SPT", "LPT", "JPR"]);
    }
}

#[test]
fn a_seed_gives_the_same_jobs_whatever_the_bandwidth() {
    let of = |bisection| setup::workload(3, 1, bisection).unwrap();
    let (thin, wide) = (of(0.1), of(1.1));
    assert_eq!(thin.len(), 100);
    for (thin, wide) in thin.iter().zip(&wide) {
        assert_eq!((thin.tasks, thin.base, thin.arrival), (wide.tasks, wide.base, wide.arrival));
        // Halves of a job send each other what the setting says.
        if wide.tasks > 1 && wide.tasks.is_multiple_of(2) {
            assert!((wide.load(wide.tasks / 2) - 1.1).abs() < 1e-9);
        }
    }
    assert_eq!(setup::batch(3, 1, 0.7).unwrap().len(), 8);
}
