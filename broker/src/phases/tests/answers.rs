//! Earliest start, feasibility, best factor, bounds and proofs against the search through everything.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn answers_match_exhaustive_search(
        raw_hosts in prop::collection::vec(host(), 1..9), raw in plain_request(),
        earliest in 0_i64..20, reach in 0_i64..24, seed in 0_u64..4,
    ) {
        let grid = Grid::new(&raw_hosts);
        let request = request(&raw, "start");
        let best = best(&grid, &raw, "start", (earliest, earliest + reach));
        for effort in [Effort::Fast, Effort::Balanced, Effort::Thorough] {
            let job = Job::of(&request, (Time(earliest), Time(earliest + reach)));
            match plan(&job, &grid.all(), effort, seed, &mut ()) {
                PlanOutcome::Allocated(plan) => {
                    check_seats(&grid, &raw, plan.start, &plan.seats);
                    let (_, start, most) = best.expect("there is a plan");
                    prop_assert!(plan.start.0 == start && plan.start_proven);
                    let real = factor_of(&grid, &raw, &plan);
                    prop_assert!((plan.efficiency - real).abs() <= 1e-12 * real.max(1.0));
                    prop_assert!(plan.efficiency <= most * (1.0 + 1e-12));
                    prop_assert!(plan.efficiency_bound >= most * (1.0 - 1e-12), "{} < {}", plan.efficiency_bound, most);
                    if effort != Effort::Fast {
                        prop_assert!(plan.efficiency >= most * (1.0 - 1e-9), "{} of {}", plan.efficiency, most);
                    }
                }
                PlanOutcome::Rejected(rejection) => {
                    prop_assert_eq!(None, best);
                    prop_assert!(rejection.start_proven && !rejection.reason.detail().is_empty());
                }
            }
        }
    }

    #[test]
    fn many_steps_are_swept_like_single_starts(
        raw_hosts in prop::collection::vec((
            Just(0_usize), Just(1000_u32), [6_u64..14, 6_u64..14, 6_u64..14],
            prop::collection::vec((0_i64..900, 1_i64..8, [0_u64..13, 0_u64..13, 0_u64..13]), 60..160),
        ), 4..7),
        length in 1_i64..120, total in [(); 3].map(|()| prop::option::of(8_u64..24)),
    ) {
        let grid = Grid::new(&raw_hosts);
        let raw = RawRequest { seats: 3, length, per_host: [Some(1), Some(1), None], total, ..RawRequest::default() };
        let job = request(&raw, "start");
        let outcome = plan(&Job::of(&job, (Time(0), Time(850))), &grid.all(), Effort::Balanced, 1, &mut ());
        prop_assert!(outcome.start_proven());
        let best_start = best(&grid, &raw, "start", (0, 850)).map(|(_, start, _)| start);
        prop_assert_eq!(outcome.plan().map(|plan| plan.start.0), best_start);
        if let PlanOutcome::Rejected(Rejection { reason: Reason::NoWindow { nearest, .. }, .. }) = outcome {
            prop_assert!((0..=850).contains(&nearest.start.0));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_the_order_of_hosts_does_not_matter(
        raw_hosts in prop::collection::vec(host(), 6..24), raw in plain_request(), seats in 2_usize..8,
        turn in 0_usize..24, seed in 0_u64..1000,
    ) {
        let grid = Grid::new(&raw_hosts);
        let request = request(&RawRequest { seats, ..raw }, "start");
        let mut candidates = grid.all();
        let answer = |candidates: &[Candidate<'_>]| {
            plan(&Job::of(&request, (Time(0), Time(40))), candidates, Effort::Balanced, seed, &mut ())
        };
        let first = answer(&candidates);
        prop_assert_eq!(&first, &answer(&candidates));
        let count = candidates.len();
        candidates.rotate_left(turn % count);
        candidates.push(candidates[0]);
        prop_assert_eq!(first, answer(&candidates));
    }

    #[test]
    fn no_amount_and_no_window_panics(
        capacities in prop::collection::vec([(); 3].map(|()| prop_oneof![
            Just(0), Just(1), Just(Amount::MAX.0), Just(u64::MAX), 0..=Amount::MAX.0]), 0..12),
        seats in 1_usize..15,
        per_host in [(); 3].map(|()| prop::option::of(prop_oneof![Just(0), Just(1), Just(Amount::MAX.0)])),
        total in [(); 3].map(|()| prop::option::of(prop_oneof![
            Just(0), Just(1), Just(Amount::MAX.0), 0..=Amount::MAX.0])),
        length in prop_oneof![Just(1), Just(Time::MAX.0), 1_i64..1000],
        earliest in prop_oneof![Just(0), Just(Time::MAX.0), 0_i64..1000],
        reach in prop_oneof![Just(0), 0_i64..1000],
        used in prop_oneof![Just(0), Just(1), Just(Amount::MAX.0)],
    ) {
        let raw_host = |capacity| (0, 1000, capacity, vec![(3, 497, [used; 3])]);
        let grid = Grid::new(&capacities.into_iter().map(raw_host).collect::<Vec<_>>());
        let raw = RawRequest { seats, length, per_host, total, ..RawRequest::default() };
        let (first, last) = (Time(earliest), Time((earliest + reach).min(Time::MAX.0)));
        let request = request(&raw, "start");
        let outcome = plan(&Job::of(&request, (first, last)), &grid.all(), Effort::Balanced, 1, &mut ());
        if let PlanOutcome::Allocated(plan) = outcome {
            check_seats(&grid, &raw, plan.start, &plan.seats);
            prop_assert!(plan.efficiency.is_finite() && plan.efficiency_bound >= plan.efficiency);
        }
    }
}

#[test]
fn a_rejection_names_the_limit_that_cuts_most_hosts() {
    let mut grid = Grid::new(&vec![(0, 1000, [10; 3], vec![]); 3]);
    let asked = RawRequest { seats: 1, length: 100, per_host: [Some(6), None, None], ..RawRequest::default() };
    let detail = |grid: &Grid, deadline: Option<i64>, last: i64| {
        let mut request = serde_json::to_value(request(&asked, "start")).unwrap();
        request["deadline"] = deadline.into();
        let request = serde_json::from_value(request).unwrap();
        let job = Job { asked_at: Some(Time(0)), ..Job::of(&request, (Time(0), Time(last))) };
        match plan(&job, &grid.all(), Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Rejected(rejection) => rejection.reason.detail(),
            PlanOutcome::Allocated(plan) => panic!("{plan:?}"),
        }
    };
    let cut = |what: &str| format!("no start works; nearest miss: 0 of 1 hosts at 0 s; hosts cut by {what}");
    assert_eq!(detail(&grid, Some(60), 0), cut("deadline 60 s 3"));
    // As the coordinator plans: what the owners keep back is no longer free.
    let mut restrict = |host: usize, conditions: crate::tariff::Conditions| {
        let (_, host, schedule) = &mut grid.hosts[host];
        if let Some(above) = conditions.above_share(&host.capacity) {
            schedule.add(Window { start: Time(0), end: Time::MAX }, &above);
        }
        let mut closed = crate::schedule::Occupancy::default();
        conditions.closed(Time(0)).for_each(|window| closed.add(window, Amount(1)));
        schedule.close(Some(closed.into()), None);
        std::sync::Arc::make_mut(&mut host.tariff).conditions = conditions;
    };
    let none = crate::tariff::Conditions::default;
    restrict(0, crate::tariff::Conditions { horizon: Some(Span(90)), ..none() });
    restrict(1, crate::tariff::Conditions { share_max: Some(crate::tariff::Parts(500)), ..none() });
    restrict(
        2,
        crate::tariff::Conditions { share_max: Some(crate::tariff::Parts(500)), notice_min: Span(7_200), ..none() },
    );
    assert_eq!(detail(&grid, None, 0), cut("least notice 2h 1, horizon 1m 30s 1, share 50 % 1"));
}

#[test]
fn too_few_hosts_at_so_few_sites_are_named_so() {
    let grid = Grid::new(&[0, 0, 1, 2].map(|site| (site, 1000, [10; 3], vec![])));
    let request: Request =
        serde_json::from_str(r#"{"hosts":3,"duration":10,"per_host":{"cpu":1},"sites_max":1}"#).unwrap();
    let outcome = plan(&Job::of(&request, (Time(0), Time(5))), &grid.all(), Effort::Balanced, 1, &mut ());
    let PlanOutcome::Rejected(rejection) = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        rejection.reason.detail(),
        "no start works; nearest miss: 3 of 3 hosts at 0 s; hosts cut by sites_max 1 2"
    );
}

#[test]
fn a_rejection_names_what_is_missing() {
    let grid = Grid::new(&vec![(0, 1000, [10; 3], vec![(0, 100, [8, 0, 0])]); 4]);
    let reason = |seats, per_host: Option<u64>, total: Option<u64>, (first, last)| {
        let (per_host, total) = ([per_host, None, None], [total, None, None]);
        let request = request(&RawRequest { seats, length: 10, per_host, total, ..RawRequest::default() }, "start");
        match plan(&Job::of(&request, (Time(first), Time(last))), &grid.all(), Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Rejected(rejection) => rejection.reason,
            PlanOutcome::Allocated(plan) => panic!("{plan:?}"),
        }
    };
    assert_eq!(reason(5, Some(1), None, (0, 50)).code(), "too_few_hosts");
    assert_eq!(reason(1, None, None, (5, 4)).code(), "window_passed");
    for (per_host, total, expected) in [
        (None, Some(21), "cpu: 0.021 asked in sum, the largest hosts together have 0.02"),
        (Some(1), Some(12), "no start works; nearest miss: 2 of 2 hosts at 0 s; cpu short by 0.008"),
        (Some(4), None, "no start works; nearest miss: 0 of 2 hosts at 0 s"),
    ] {
        assert_eq!(reason(2, per_host, total, (0, 50)).detail(), expected);
    }
}
