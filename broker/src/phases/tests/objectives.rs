//! All objectives, deadlines, speeds, whole hosts and limits of sites against the search through everything.

use super::*;

const KINDS: [&str; 4] = ["start", "finish", "runtime", "host_time"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn every_objective_is_the_least_of_all_plans(
        raw_hosts in prop::collection::vec(host(), 0..7), raw in raw_request(),
        earliest in 0_i64..10, reach in 0_i64..45, seed in 0_u64..4,
    ) {
        let grid = Grid::new(&raw_hosts);
        for kind in KINDS {
            let request = request(&raw, kind);
            let job = Job::of(&request, (Time(earliest), Time(earliest + reach)));
            let best = best(&grid, &raw, kind, (earliest, earliest + reach));
            match plan(&job, &grid.candidates(request.demand()), Effort::Balanced, seed, &mut ()) {
                PlanOutcome::Allocated(plan) => {
                    check_seats(&grid, &raw, plan.start, &plan.seats);
                    let lengths: Vec<i64> =
                        plan.seats.iter().map(|seat| seat.window.duration().0.cast_signed()).collect();
                    prop_assert_eq!(plan.objective.value, value(kind, plan.start.0, &lengths), "{}", kind);
                    let (least, first, most) = best.expect("there is a plan");
                    prop_assert_eq!((plan.objective.value, plan.start.0), (least, first), "{}", kind);
                    let real = factor_of(&grid, &raw, &plan);
                    prop_assert!((plan.efficiency - real).abs() <= 1e-12 * real.max(1.0), "{kind}");
                    prop_assert!(plan.efficiency_bound >= most * (1.0 - 1e-12), "{kind}: {plan:?}, best {most}");
                    prop_assert_eq!(plan.objective.bound, Some(plan.objective.value), "{}", kind);
                    prop_assert!(plan.start_proven);
                }
                PlanOutcome::Rejected(rejection) => {
                    prop_assert_eq!(None, best, "{}", kind);
                    prop_assert!(rejection.start_proven);
                }
            }
        }
    }

    #[test]
    fn a_search_that_is_cut_claims_no_more_than_it_knows(
        raw_hosts in prop::collection::vec(host(), 3..7), raw in raw_request(), reach in 0_i64..45, seed in 0_u64..4,
    ) {
        let grid = Grid::new(&raw_hosts);
        let limits =
            Limits { l1: 0, multiplier_steps: 1, feasibility_nodes: 0, feasibility_nodes_max: 0, ..Limits::of(Effort::Fast) };
        for kind in KINDS {
            let request = request(&raw, kind);
            let job = Job::of(&request, (Time(0), Time(reach)));
            let best = best(&grid, &raw, kind, (0, reach));
            match plan_within(&job, &grid.candidates(request.demand()), &limits, seed, &mut ()) {
                PlanOutcome::Allocated(plan) => {
                    check_seats(&grid, &raw, plan.start, &plan.seats);
                    let lengths: Vec<i64> =
                        plan.seats.iter().map(|seat| seat.window.duration().0.cast_signed()).collect();
                    prop_assert_eq!(plan.objective.value, value(kind, plan.start.0, &lengths), "{}", kind);
                    let (least, first, _) = best.expect("there is a plan");
                    prop_assert!(plan.objective.bound.is_some_and(|bound| bound <= least), "{kind}: {plan:?}");
                    let is_best = (plan.objective.value, plan.start.0) == (least, first);
                    prop_assert!(is_best || !plan.start_proven, "{kind}: {plan:?}");
                }
                PlanOutcome::Rejected(rejection) => prop_assert!(best.is_none() || !rejection.start_proven, "{kind}"),
            }
        }
    }
}

#[test]
fn the_most_resources_that_may_be_named_fit_into_every_plan() {
    let names = (0..crate::request::MAX_NAMES).map(|number| (format!("r{number}"), 0.into())).collect();
    let names = serde_json::Value::Object(names);
    let host = |speed: u32| Host {
        id: HostId::new(&format!("h{speed}")).unwrap(),
        capacity: Amounts::new(),
        attributes: Default::default(),
        speed: Speed::try_from(speed).unwrap(),
        tariff: Default::default(),
    };
    let hosts = [1_000, 2_000, 3_000].map(|speed| (0, host(speed), Schedule::default()));
    let grid = Grid { sites: vec![SiteId::new("s").unwrap()], hosts: hosts.to_vec() };
    for kind in KINDS {
        let document =
            serde_json::json!({ "hosts": 2, "work": 60, "total": names, "exclusive": true, "objective": kind });
        let request: Request = serde_json::from_value(document).unwrap();
        let job = Job::of(&request, (Time(0), Time(10)));
        let outcome = plan(&job, &grid.candidates(request.demand()), Effort::Balanced, 1, &mut ());
        assert_eq!(outcome.plan().map(|plan| plan.seats.len()), Some(2), "{kind}");
    }
}

#[test]
fn seats_that_are_kept_count_for_the_limit_of_sites_once() {
    let host = |site| (site, 1000, [4, 0, 0], Vec::new());
    let grid = Grid::new(&[host(0), host(1), host(2)]);
    let raw = RawRequest {
        seats: 3,
        length: 10,
        per_host: [Some(1), None, None],
        sites_max: Some(2),
        ..RawRequest::default()
    };
    let request = request(&raw, "start");
    let kept_sites = BTreeSet::from([grid.sites[1].clone()]);
    let taken = BTreeSet::from([(grid.sites[1].clone(), HostId::new("h1").unwrap())]);
    let rest = |seats| request.demand().rest(seats, &std::iter::empty::<&Amounts>(), (&taken, Span(1))).unwrap();
    let plan_of = |demand: &Demand| {
        let job = Job { demand, kept_sites: &kept_sites, ..Job::of(&request, (Time(0), Time(0))) };
        plan(&job, &grid.candidates(demand), Effort::Balanced, 1, &mut ())
    };
    assert!(plan_of(&rest(1)).plan().is_some(), "one more site may be taken");
    let sites: BTreeSet<SiteId> =
        plan_of(&rest(2)).plan().unwrap().seats.iter().map(|seat| seat.site.clone()).collect();
    assert!(sites.contains(&grid.sites[1]), "the kept site has a free host: {sites:?}");
}

#[test]
fn seats_of_one_site_are_made_whole_there_or_not_at_all() {
    let host = |site| (site, 1000, [4, 0, 0], Vec::new());
    let kept_sites = BTreeSet::from([Grid::new(&[]).sites[0].clone()]);
    let none = serde_json::Value::Null;
    let traffic = serde_json::json!({"mbps": 10, "compute": 700});
    let cases = [&none, &traffic].into_iter().flat_map(|traffic| {
        ["start", "finish", "cost"].into_iter().flat_map(move |kind| [false, true].map(|whole| (traffic, kind, whole)))
    });
    for (traffic, kind, is_exclusive) in cases {
        let mut document = serde_json::json!({
            "hosts": 2, "work": 10, "per_host": {(NAMES[0]): 1}, "sites_max": 1, "objective": kind, "exclusive": is_exclusive,
        });
        if !traffic.is_null() {
            document["traffic"] = traffic.clone();
        }
        let request: Request = serde_json::from_value(document).unwrap();
        let demand = request.demand().rest(1, &std::iter::empty::<&Amounts>(), (&BTreeSet::new(), Span(10))).unwrap();
        let job = Job { demand: &demand, kept_sites: &kept_sites, ..Job::of(&request, (Time(0), Time(0))) };
        let site_of = |sites: &[usize]| {
            let grid = Grid::new(&sites.iter().copied().map(host).collect::<Vec<_>>());
            let outcome = plan(&job, &grid.candidates(&demand), Effort::Balanced, 1, &mut ());
            outcome.plan().map(|plan| plan.seats[0].site.clone())
        };
        assert_eq!(site_of(&[1, 1]), None, "{traffic} {kind} {is_exclusive}");
        assert_eq!(site_of(&[0, 1, 1]), kept_sites.first().cloned(), "{traffic} {kind} {is_exclusive}");
    }
}
