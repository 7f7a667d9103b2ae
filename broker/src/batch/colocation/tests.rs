//! Tests of co-location: what is placed fits, the worked pairings, and figures on generated sets.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use rand::{RngExt, rand_core::SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::batch::{
    colocation::{
        best::search_for,
        problem::{Needs, Sized},
        room::Room,
    },
    watch::Watch,
};

/// Enough for few jobs.
const WORK: u64 = 500_000;
pub(super) const ROLES: Roles = Roles { cpu: 0, others: (1, 2) };

fn needs(cpu: u64, memory: u64, io: u64) -> Needs {
    let mut needs = [0; RESOURCES_MAX];
    needs[..3].copy_from_slice(&[cpu, memory, io]);
    needs
}

fn job(seats: usize, seconds: i64, asked: (u64, u64, u64), scale: (u32, u32)) -> Job {
    let needs = needs(asked.0, asked.1, asked.2);
    Job { seats, seconds, needs, scale, starts: (0, 10_000_000), deadline: i64::MAX / 4 }
}

/// On equal hosts.
fn equal(hosts: usize, jobs: Vec<Job>) -> Problem {
    Problem { hosts: vec![needs(1000, 1000, 1000); hosts], taken: vec![Vec::new(); hosts], jobs }
}

/// As section 4.5.2 draws its sets.
pub(super) fn drawn(seed: u64, hosts: usize, seats_max: usize, balanced: u32) -> Problem {
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
    equal(hosts, jobs)
}

/// Every second at which something changes, by adding up everything.
pub(super) fn check(problem: &Problem, placed: &Placed) {
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
    for (capacity, blocks) in problem.hosts.iter().zip(blocks) {
        for at in blocks.iter().map(|block| block.start) {
            for (resource, most) in capacity.iter().enumerate() {
                let beside = blocks.iter().filter(|block| block.start <= at && at < block.end);
                let used: u64 = beside.map(|block| block.needs[resource]).sum();
                assert!(used <= *most, "{used} of {resource} at {at}");
            }
        }
    }
}

#[test]
fn complementary_jobs_fill_a_host_together() {
    let jobs = vec![job(1, 9_000, (200, 800, 800), (500, 1_250)), job(1, 9_000, (800, 200, 200), (500, 1_250))];
    let problem = equal(2, jobs);
    for form in [set, partition] {
        let placed = form(&problem, ROLES, Thresholds::default(), Turns::Longest);
        check(&problem, &placed);
        assert_eq!(problem.worth(&placed).run_time, 9_000, "{placed:?}");
    }
    assert_eq!(problem.worth(&plain(&problem, Turns::Longest)).run_time, 9_000);
}

#[test]
fn the_highest_demand_of_a_seat_comes_first_however_many_seats_there_are() {
    let jobs = vec![job(3, 1_000, (200, 200, 200), (1000, 1000)), job(1, 1_000, (900, 100, 100), (1000, 1000))];
    let problem = equal(3, jobs);
    let placed = plain(&problem, Turns::Highest);
    assert_eq!(placed[1].as_ref().map(|at| at.start), Some(0), "{placed:?}");
    assert_eq!(placed[0].as_ref().map(|at| at.start), Some(1_000), "{placed:?}");
}

#[test]
fn the_search_starts_jobs_together() {
    // Only beside the long one, from its start on, does the short one keep no other host.
    let short = Job { starts: (0, 0), ..job(1, 1, (500, 500, 500), (1000, 1000)) };
    let problem = equal(2, vec![short, job(2, 9_000, (500, 500, 500), (1000, 1000))]);
    let placed = search_for(&problem, &vec![None; 2], 9_000, WORK, Watch::NOBODY);
    check(&problem, &placed);
    assert_eq!((problem.worth(&placed).postponed, problem.worth(&placed).run_time), (0, problem.least_run_time()));
}

#[test]
fn jobs_that_no_host_serves_change_nothing_for_the_others() {
    let mut problem = drawn(1, 3, 1, 30);
    let searched = |problem: &Problem| {
        let begun = plain(problem, Turns::Longest);
        search_for(problem, &begun, problem.worth(&begun).makespan, WORK, Watch::NOBODY)
    };
    let alone = searched(&problem);
    let too_large = [job(4, 60, (1, 1, 1), (1000, 1000)), job(1, 60, (1001, 1, 1), (1000, 2000))];
    let too_late = Job { deadline: 59, ..job(1, 60, (1, 1, 1), (1000, 1000)) };
    problem.jobs.splice(0..0, too_large.into_iter().chain([too_late]));
    let beside = searched(&problem);
    assert_eq!((&beside[..3], &beside[3..]), (&[None, None, None][..], &alone[..]));
    // One host is large enough for it, and it wants two.
    problem.hosts[1] = needs(1000, 1500, 1000);
    problem.jobs = vec![job(2, 60, (1, 1001, 1), (1000, 1000)), job(1, 60, (1, 1001, 1), (1000, 1000))];
    let placed = searched(&problem);
    assert_eq!((&placed[0], placed[1].as_ref().map(|placement| &placement.hosts[..])), (&None, Some(&[1][..])));
    assert_eq!((problem.least_run_time(), problem.worth(&placed).run_time), (60, 60));
}

#[test]
fn one_job_and_equal_jobs_end_where_the_bound_says_at_once() {
    let one = job(2, 600, (400, 400, 400), (1000, 1000));
    let mut problem = equal(2, vec![one]);
    let run_time = |problem: &Problem| {
        let begun = plain(problem, Turns::Longest);
        // With no work at all.
        problem.worth(&search_for(problem, &begun, i64::MAX / 8, 0, Watch::NOBODY)).run_time
    };
    assert_eq!((run_time(&problem), problem.least_run_time()), (1_200, 1_200));
    problem.jobs = vec![job(2, 600, (500, 500, 500), (1000, 1000)); 6];
    assert_eq!((run_time(&problem), problem.least_run_time()), (3_600, 3_600));
}

/// Whether a job fits beside these, by adding up whatever changes.
fn fits_by_adding(beside: &[Block], capacity: &Needs, start: i64, sized: &Sized) -> bool {
    let times = beside.iter().map(|block| block.start).chain([start]);
    let mut times = times.filter(|time| (start..start + sized.seconds).contains(time));
    times.all(|time| {
        let there = beside.iter().filter(|block| block.start <= time && time < block.end);
        let mut used = sized.needs;
        there.for_each(|block| used.iter_mut().zip(block.needs).for_each(|(used, need)| *used += need));
        used.iter().zip(capacity).all(|(used, capacity)| used <= capacity)
    })
}

#[test]
fn the_room_knows_what_adding_up_says() {
    for seed in 0..200 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut problem = drawn(seed, 2, 1, 30);
        problem.taken[0].push(Block { start: 3_000, end: 9_000, needs: needs(500, 0, 100) });
        problem.hosts.extend([needs(900, 1000, 1200)].into_iter().filter(|_| seed % 2 == 1));
        problem.taken.resize(problem.hosts.len(), Vec::new());
        let mut room = Room::of(&problem);
        let mut there: Vec<(usize, Placement)> = Vec::new();
        for (at, job) in problem.jobs.iter().enumerate() {
            if random.random_range(0..4) == 0 && !there.is_empty() {
                let (out, placement) = there.swap_remove(random.random_range(0..there.len()));
                room.take(out, &problem.jobs[out].at(placement.factor), &placement);
            }
            let sized = job.at(random.random_range(job.scale.0..=job.scale.1));
            let on = |host: usize| {
                let placed = there.iter().filter(|(_, placement)| placement.hosts == [host]);
                let block = |(job, placement): &(usize, Placement)| {
                    let sized = problem.jobs[*job].at(placement.factor);
                    Block { start: placement.start, end: placement.start + sized.seconds, needs: sized.needs }
                };
                placed.map(block).chain(problem.taken[host].iter().copied()).collect::<Vec<Block>>()
            };
            let first = |host: usize| {
                let starts = on(host).into_iter().map(|block| block.end).chain([0]);
                starts.filter(|start| fits_by_adding(&on(host), &problem.hosts[host], *start, &sized)).min()
            };
            let hosts = 0..problem.hosts.len();
            // What may begin no earlier: at a start or an end of another, or anywhere.
            let moments = hosts.clone().flat_map(&on).flat_map(|block| [block.start, block.end]);
            let moments: Vec<i64> = moments.chain([0, random.random_range(0..30_000)]).collect();
            let earliest = moments[random.random_range(0..moments.len())];
            for host in hosts.clone() {
                let starts: Vec<i64> = on(host).into_iter().map(|block| block.end).chain([earliest]).collect();
                let fits = |start: &i64| fits_by_adding(&on(host), &problem.hosts[host], *start, &sized);
                let expected = starts.into_iter().filter(|start| *start >= earliest).filter(fits).min();
                let begins: Vec<i64> = (0..room.steps(host).len())
                    .filter_map(|step| room.start_in(host, step, earliest, &sized.needs))
                    .collect();
                assert!(begins.is_sorted() && begins.iter().all(|start| *start >= earliest));
                let found = begins.into_iter().find(|start| room.fits(host, *start, &sized).is_ok());
                assert_eq!(found, expected, "seed {seed} job {at} from {earliest}");
                let start = random.random_range(0..60_000);
                let expected = fits_by_adding(&on(host), &problem.hosts[host], start, &sized);
                assert_eq!(room.fits(host, start, &sized).is_ok(), expected, "seed {seed} job {at}");
                let last = there.iter().filter(|(_, placement)| placement.hosts == [host]);
                let last = last.map(|(job, placed)| placed.start + problem.jobs[*job].seconds_at(placed.factor)).max();
                assert_eq!(room.end(host), last.unwrap_or(0));
            }
            assert_eq!(room.run_time(), hosts.clone().map(|host| room.end(host)).sum::<i64>());
            let found = room.earliest(job, &sized).unwrap();
            assert_eq!(Some(found.start), hosts.filter_map(first).min(), "seed {seed} job {at}");
            room.put(at, &sized, &found);
            there.push((at, found));
        }
    }
}

/// The least run time of jobs that are not scaled: every order on every choice of hosts, each job as early as its host allows.
fn least_by_trying(problem: &Problem, left: &[usize], blocks: &mut Vec<Vec<Block>>) -> i64 {
    if left.is_empty() {
        return blocks.iter().map(|blocks| blocks.iter().map(|block| block.end).max().unwrap_or(0)).sum();
    }
    let mut least = i64::MAX;
    for at in 0..left.len() {
        let (sized, mut others) = (problem.jobs[left[at]].at(1000), left.to_vec());
        others.swap_remove(at);
        for host in 0..blocks.len() {
            let starts = blocks[host].iter().map(|block| block.end).chain([0]);
            let fits = |start: &i64| fits_by_adding(&blocks[host], &problem.hosts[host], *start, &sized);
            let start = starts.filter(fits).min().unwrap();
            blocks[host].push(Block { start, end: start + sized.seconds, needs: sized.needs });
            least = least.min(least_by_trying(problem, &others, blocks));
            blocks[host].pop();
        }
    }
    least
}

#[test]
fn best_finds_the_least_run_time_of_few_jobs() {
    for seed in 0..20 {
        let mut problem = drawn(seed, 2, 1, 30);
        problem.jobs.truncate(5);
        problem.jobs.iter_mut().for_each(|job| job.scale = (1000, 1000));
        let jobs: Vec<usize> = (0..problem.jobs.len()).collect();
        let least = least_by_trying(&problem, &jobs, &mut vec![Vec::new(); 2]);
        let best = search_for(&problem, &plain(&problem, Turns::Longest), i64::MAX / 8, WORK, Watch::NOBODY);
        check(&problem, &best);
        assert_eq!(problem.worth(&best).run_time, least, "seed {seed}");
        assert!(problem.least_run_time() <= least);
    }
}

/// The first second by which all have ended that start together on an empty host.
fn least_side_by_side(problem: &Problem) -> Option<i64> {
    let fits = |seconds: &i64| {
        let sized: Option<Vec<Sized>> =
            problem.jobs.iter().map(|job| job.within(*seconds).map(|factor| job.at(factor))).collect();
        let used = |resource: usize| sized.iter().flatten().map(|sized| sized.needs[resource]).sum::<u64>();
        sized.is_some() && (0..RESOURCES_MAX).all(|resource| used(resource) <= problem.hosts[0][resource])
    };
    (1..300_000).find(fits)
}

#[test]
fn as_many_share_a_host_as_makes_it_end_first() {
    let equal_jobs = |count: usize, seats: usize| {
        let jobs = vec![job(seats, 3_600, (500, 100, 100), (200, 1000)); count];
        let problem = equal(seats, jobs);
        let best = search(&problem, &plain(&problem, Turns::Longest), i64::MAX / 8, Watch::NOBODY);
        check(&problem, &best);
        problem.worth(&best).run_time
    };
    // Three at 0.666 and five at 0.4, on two hosts as well, where one after the other two would be beside each other.
    assert_eq!([equal_jobs(3, 1), equal_jobs(5, 1), equal_jobs(3, 2)], [5_406, 9_000, 2 * 5_406]);
    for seed in 0..30 {
        let mut problem = drawn(seed, 1, 1, 30);
        problem.jobs.truncate(2 + seed as usize % 3);
        problem.jobs.iter_mut().for_each(|job| job.scale.0 = 100);
        let best = search_for(&problem, &plain(&problem, Turns::Longest), i64::MAX / 8, WORK, Watch::NOBODY);
        check(&problem, &best);
        let least = least_side_by_side(&problem);
        assert!(least.is_some_and(|least| problem.worth(&best).run_time <= least), "{least:?} seed {seed}");
    }
}

#[test]
fn the_same_problem_gives_the_same_schedule() {
    let problem = drawn(3, 5, 2, 30);
    let begun = plain(&problem, Turns::Longest);
    let limit = problem.worth(&begun).makespan;
    let best = || search_for(&problem, &begun, limit, WORK, Watch::NOBODY);
    assert_eq!(best(), best());
    assert!(problem.worth(&best()).run_time < problem.worth(&begun).run_time);
}

#[test]
fn a_job_that_fits_on_too_few_hosts_at_the_usual_size_is_placed_as_it_is() {
    let mut problem = equal(5, vec![job(4, 100, (400, 0, 0), (500, 2500))]);
    problem.hosts[3] = needs(500, 1000, 1000);
    problem.hosts[4] = needs(500, 1000, 1000);
    let forms = [set, partition].map(|form| form(&problem, ROLES, Thresholds::default(), Turns::Longest));
    forms.iter().for_each(|placed| {
        check(&problem, placed);
        assert!(placed[0].is_some());
    });
}

#[test]
fn what_is_placed_fits_and_best_is_never_worse() {
    for seed in 0..12 {
        let mut problem = drawn(seed, 5, 1 + (seed % 2) as usize, (seed as u32 % 4) * 33);
        if seed % 3 == 0 {
            problem.taken[1].push(Block { start: 5_000, end: 30_000, needs: needs(600, 600, 600) });
        }
        if seed % 4 > 1 {
            problem.hosts[2] = needs(700, 1000, 500);
            problem.hosts[4] = needs(1000, 1500, 1000);
        }
        let begun: Vec<Placed> = [
            plain(&problem, Turns::Longest),
            set(&problem, ROLES, Thresholds::default(), Turns::Longest),
            partition(&problem, ROLES, Thresholds::default(), Turns::Highest),
        ]
        .into();
        begun.iter().for_each(|placed| check(&problem, placed));
        let placed = |placed: &Placed| placed.iter().filter(|placement| placement.is_some()).count();
        assert!(begun.iter().all(|form| placed(form) == placed(&begun[0])), "none is lost by its size");
        let first = begun.into_iter().min_by_key(|placed| problem.worth(placed)).unwrap();
        let limit = problem.worth(&first).makespan;
        let best = search_for(&problem, &first, limit, WORK, Watch::NOBODY);
        check(&problem, &best);
        assert!(problem.worth(&best) <= Worth { makespan: limit, ..problem.worth(&first) });
        assert!(problem.worth(&best).makespan <= limit);
        assert!(problem.worth(&best).run_time >= problem.least_run_time());
    }
}
