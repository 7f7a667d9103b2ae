//! The worked examples of the source, and what must hold for any workload.

use super::{exact, setup};
use crate::clusters::{
    policies::{LeastSlowdown, OneByOne, Order, Packages, Placement, ordered},
    world::{Cluster, Ended, Fault, Figures, Job, Policy, State, simulate, simulate_with},
};

fn job(tasks: u32, compute: f64, base: f64) -> Job {
    Job { tasks, compute, base, bandwidth: 0.0, arrival: 0.0 }
}

/// The example of 3.3.4: hosts of power .75, .75, .5, .25, .15. Its ideal time of the second job is 85 by the formulas (it prints 100).
#[test]
fn the_order_of_the_example_of_least_slowdown() {
    let cluster = |hosts, power| Cluster { hosts, power, link: 1.0 };
    let clusters = [cluster(2, 0.75), cluster(1, 0.5), cluster(1, 0.25), cluster(1, 0.15)];
    let jobs = [job(2, 0.5, 100.0), job(3, 0.7, 50.0), job(2, 0.5, 75.0), job(2, 0.7, 100.0)];
    let ideal = [vec![2, 0, 0, 0], vec![2, 1, 0, 0], vec![2, 0, 0, 0], vec![2, 0, 0, 0]];
    let times: Vec<f64> = jobs.iter().zip(&ideal).map(|(job, counts)| job.time(counts, &clusters)).collect();
    for (time, expected) in times.iter().zip([116.7, 85.0, 87.5, 123.3]) {
        assert!((time - expected).abs() < 0.05, "{time} is not {expected}");
    }
    let state = State { clusters: &clusters, jobs: &jobs, running: Vec::new(), failed: vec![0; 4] };
    let order: Vec<usize> = ordered(&[0, 1, 2, 3], &state).into_iter().map(|(job, _)| job).collect();
    assert_eq!(order, [0, 2, 3, 1]);
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
    assert!(ended.iter().all(|ended| ended.is_spread && ended.was_saturated));
}

/// Every job runs once, not before it comes, on hosts that are free; packages saturate no link.
#[test]
fn any_policy_places_every_job_once_and_packages_keep_the_links() {
    for number in 0..5 {
        let jobs = setup::workload(7, number, 0.9).unwrap();
        let clusters = setup::clusters(setup::HETEROGENEITY[2]);
        for order in Order::ALL {
            let packages = simulate(&clusters, &jobs, &mut Packages::new(order));
            assert!(packages.iter().all(|ended| !ended.was_saturated), "{}", order.name());
            check(&jobs, &packages, 64);
            for placement in [Placement::Fastest, Placement::Chunk] {
                check(&jobs, &simulate(&clusters, &jobs, &mut OneByOne { order, placement }), 64);
            }
        }
        check(&jobs, &simulate(&clusters, &jobs, &mut LeastSlowdown::default()), 64);
    }
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

/// The exact plan keeps the links, and ends no later than any policy that does so.
#[test]
fn a_batch_as_a_whole_is_no_longer_than_packages() {
    for number in 0..2 {
        let (clusters, jobs) = (setup::small(), setup::batch(5, number, 0.7).unwrap());
        let whole = exact::ordered_and_assigned(&clusters, &jobs).unwrap();
        check(&jobs, &whole, 12);
        let end = |ended: &[Ended]| ended.iter().map(|ended| ended.end).fold(0.0, f64::max);
        for order in Order::ALL {
            let packages = simulate(&clusters, &jobs, &mut Packages::new(order));
            // Times of plans are whole seconds, bandwidths whole Mbit/s, and speeds whole thousandths.
            assert!(end(&whole) <= end(&packages) * 1.001 + 8.0, "{} < {}", end(&packages), end(&whole));
        }
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
