//! Windows one after the other against planning each anew on schedules that have those before it.

use super::{
    priced::{KINDS, raw_prices, tariff},
    *,
};
use crate::cost::Cost;

/// What is planned anew, and then taken whole.
fn planned_anew(grid: &mut Grid, job: &Job<'_>, seed: u64) -> PlanOutcome {
    let outcome = plan(job, &grid.candidates(job.demand), Effort::Balanced, seed, &mut ());
    for seat in outcome.plan().into_iter().flat_map(|plan| &plan.seats) {
        let (_, host, schedule) = grid.hosts.iter_mut().find(|(_, host, _)| host.id == *seat.host()).unwrap();
        schedule.add(seat.window, &host.capacity);
        schedule.add(seat.window, &seat.amounts);
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// By two objectives in turn; each search hears of what both took.
    #[test]
    fn they_are_what_planning_anew_gives(
        raw_hosts in prop::collection::vec((host(), raw_prices()), 0..9), mut raw in raw_request(),
        is_free: bool, are_alike: bool, is_shuffled: bool, kinds in [0_usize..5, 0_usize..5],
        earliest in 0_i64..10, reach in 0_i64..90, seed in 0_u64..4, budget in prop::option::weighted(0.3, 0_u64..2_000),
    ) {
        if is_free {
            (raw.total, raw.sites_max) = ([None; 3], None);
        }
        raw.is_work &= !are_alike;
        let hosts: Vec<RawHost> = raw_hosts.iter().map(|(host, _)| host.clone()).collect();
        let mut grid = Grid::new(&hosts);
        for ((_, host, _), (_, prices)) in grid.hosts.iter_mut().zip(&raw_hosts) {
            host.tariff = tariff(prices);
        }
        let requests = kinds.map(|kind| request(&raw, KINDS[kind]));
        let jobs = requests.each_ref().map(|request| Job {
            budget: budget.map(Cost),
            order: is_shuffled.then_some(seed),
            ..Job::of(request, (Time(earliest), Time(earliest + reach)))
        });
        let begun = Grid { sites: grid.sites.clone(), hosts: grid.hosts.clone() };
        let candidates = begun.candidates(jobs[0].demand);
        let mut searches = jobs.each_ref().map(|job| Windows::new(job, &candidates, Effort::Balanced, seed).unwrap());
        for round in 0..12 {
            let turn = round % 2;
            let outcome = searches[turn].find(&mut ());
            prop_assert_eq!(&outcome, &planned_anew(&mut grid, &jobs[turn], seed), "round {}", round);
            let Some(plan) = outcome.plan() else { break };
            searches.iter_mut().for_each(|search| search.take(plan));
        }
    }
}

#[test]
fn a_host_that_is_free_again_is_there_although_nothing_has_happened_between() {
    let hosts = [(18, 13), (26, 1), (0, 27)].map(|busy| (0, 1000, [1; 3], vec![(busy.0, busy.1, [1; 3])]));
    let raw = RawRequest { seats: 2, length: 15, is_exclusive: true, ..RawRequest::default() };
    let (mut grid, request) = (Grid::new(&hosts), request(&raw, "start"));
    let job = Job::of(&request, (Time(4), Time(31)));
    let begun = Grid { sites: grid.sites.clone(), hosts: grid.hosts.clone() };
    let outcome = Windows::new(&job, &begun.all(), Effort::Balanced, 0).unwrap().find(&mut ());
    assert_eq!((&outcome, outcome.plan().unwrap().start), (&planned_anew(&mut grid, &job, 0), Time(27)));
}
