//! What is planned on coarse schedules is proven only where it holds on the exact ones.

use super::*;

/// The same grid, told coarsely from this time on, so many steps as one.
fn coarsened(grid: &Grid, from: i64, group: usize) -> Grid {
    let host =
        |(site, host, schedule): &(usize, Host, Schedule)| (*site, host.clone(), schedule.coarsened(Time(from), group));
    Grid { sites: grid.sites.clone(), hosts: grid.hosts.iter().map(host).collect() }
}

/// One host of two cores that is free from 100 to 120, and from 150 on; told coarsely it is so from 150 on only.
fn gap_that_is_not_told() -> [Grid; 2] {
    let exact = Grid::new(&[(0, 1000, [2, 0, 0], vec![(0, 100, [2, 0, 0]), (120, 30, [2, 0, 0])])]);
    let told = coarsened(&exact, 90, 2);
    [exact, told]
}

#[test]
fn a_start_behind_the_exact_part_is_not_called_the_earliest() {
    let [exact, told] = gap_that_is_not_told();
    let asked = |length| {
        request(&RawRequest { seats: 1, length, per_host: [Some(1), None, None], ..RawRequest::default() }, "start")
    };
    let start = |grid: &Grid, length| {
        let outcome = plan(&Job::of(&asked(length), (Time(0), Time(500))), &grid.all(), Effort::Balanced, 1, &mut ());
        let plan = outcome.plan().unwrap();
        (plan.start.0, plan.start_proven, plan.objective.bound)
    };
    assert_eq!(start(&exact, 20), (100, true, Some(100)));
    // A seat that begins at 70 ends at 90; of later ones nothing is known.
    assert_eq!(start(&told, 20), (150, false, Some(71)));
    let none = |grid: &Grid, latest| {
        plan(&Job::of(&asked(20), (Time(0), Time(latest))), &grid.all(), Effort::Balanced, 1, &mut ())
    };
    assert_eq!(none(&told, 70), none(&exact, 70), "all of it is in the exact part");
    assert!(none(&exact, 99).start_proven() && !none(&told, 99).start_proven());
}

#[test]
fn where_nothing_is_used_later_nothing_is_doubtful() {
    let grid = Grid::new(&[(0, 1000, [2, 0, 0], vec![(0, 100, [2, 0, 0])])]);
    let [near, far] = [50, 101].map(|from| coarsened(&grid, from, 2).hosts[0].2.coarse_from());
    assert_eq!((near, far), (Some(Time(50)), None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn what_is_proven_on_coarse_schedules_holds_on_the_exact_ones(
        raw_hosts in prop::collection::vec(host(), 1..7), raw in raw_request(),
        kind in prop::sample::select(vec!["start", "finish", "runtime", "host_time"]),
        (earliest, reach) in (0_i64..20, 0_i64..40), (from, group) in (0_i64..60, 2_usize..6),
    ) {
        let grid = Grid::new(&raw_hosts);
        let told = coarsened(&grid, from, group);
        let request = request(&raw, kind);
        let best = best(&grid, &raw, kind, (earliest, earliest + reach));
        let job = Job::of(&request, (Time(earliest), Time(earliest + reach)));
        match plan(&job, &told.candidates(request.demand()), Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Allocated(plan) => {
                check_seats(&grid, &raw, plan.start, &plan.seats);
                let (value, start, most) = best.expect("what is planned can be had");
                prop_assert!(plan.objective.bound.is_none_or(|bound| bound <= value), "{:?} {:?}", plan, best);
                prop_assert!(!plan.start_proven || (plan.objective.value, plan.start.0) == (value, start), "{:?}", plan);
                let is_same = (plan.objective.value, plan.start.0) == (value, start);
                prop_assert!(!is_same || plan.efficiency_bound >= most * (1.0 - 1e-12), "{:?} {}", plan, most);
            }
            PlanOutcome::Rejected(rejection) => prop_assert!(best.is_none() || !rejection.start_proven, "{:?}", best),
        }
    }
}
