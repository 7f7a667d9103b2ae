//! Hosts that are alike, against the planner that looks at each of them.

use super::{
    priced::{KINDS, RawPrices, raw_prices, tariff},
    *,
};
use crate::request::RequestDocument;

/// Kinds of hosts with their prices, and how many there are of each.
fn kinds() -> impl Strategy<Value = Vec<(RawHost, RawPrices, usize)>> {
    prop::collection::vec((host(), raw_prices(), 1_usize..7), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn fewer_of_a_kind_prove_as_much(
        kinds in kinds(), raw in raw_request(), reach in 0_i64..45, seed in 0_u64..4,
        order in prop::option::of(0_u64..9), budget in prop::option::of(0_u64..4_000),
    ) {
        let hosts = || kinds.iter().flat_map(|(host, prices, count)| vec![(host, prices); *count]);
        let raw_hosts: Vec<RawHost> = hosts().map(|(host, _)| host.clone()).collect();
        let mut grid = Grid::new(&raw_hosts);
        grid.hosts.iter_mut().zip(hosts()).for_each(|((_, host, _), (_, prices))| host.tariff = tariff(prices));
        for kind in KINDS {
            let document: RequestDocument = serde_json::from_value(document(&raw, kind)).unwrap();
            let request = Request::try_from(RequestDocument { budget: budget.map(Cost), ..document }).unwrap();
            let job = Job { order, ..Job::of(&request, (Time(0), Time(reach))) };
            let candidates = grid.candidates(request.demand());
            let limits = Limits::of(Effort::Balanced);
            if let Some(fewer) = crate::phases::alike::few_of_each_kind(&job, &candidates) {
                prop_assert!(fewer.len() < candidates.len());
                prop_assert!(fewer.len() >= raw.seats.min(candidates.len()));
            }
            let few = plan_within(&job, &candidates, &limits, seed, &mut ());
            match (few, plan_on_all(&job, &candidates, &limits, seed, &mut ())) {
                (PlanOutcome::Allocated(few), PlanOutcome::Allocated(all)) => {
                    check_seats(&grid, &raw, few.start, &few.seats);
                    let proven = |plan: &Plan| (plan.start, plan.objective, plan.start_proven);
                    prop_assert_eq!(proven(&few), proven(&all), "{}", kind);
                    // The order of a request gives a thousandth of the factor up.
                    let nearly = (few.efficiency - all.efficiency).abs() <= 2.0 * preference::NEARLY * all.efficiency;
                    prop_assert!(nearly || few.efficiency_bound > few.efficiency, "{} {few:?} {all:?}", kind);
                }
                (PlanOutcome::Rejected(few), PlanOutcome::Rejected(all)) => {
                    prop_assert_eq!(few.start_proven, all.start_proven, "{}", kind);
                    prop_assert_eq!(few.reason, all.reason, "{}", kind);
                }
                (few, all) => prop_assert!(false, "{kind}: {few:?}, {all:?}"),
            }
        }
    }
}

#[test]
fn of_like_hosts_those_are_looked_at_that_the_request_prefers() {
    let hosts: Vec<RawHost> = vec![(0, 1000, [4, 4, 4], Vec::new()); 50];
    let grid = Grid::new(&hosts);
    let raw = RawRequest { seats: 3, length: 5, per_host: [Some(4), None, None], ..RawRequest::default() };
    let request = request(&raw, "start");
    let mut chosen = BTreeSet::new();
    for order in 0..20 {
        let job = Job { order: Some(order), ..Job::of(&request, (Time(0), Time(10))) };
        let all = grid.all();
        assert_eq!(crate::phases::alike::few_of_each_kind(&job, &all).unwrap().len(), 3);
        let few = plan(&job, &all, Effort::Balanced, 1, &mut ());
        assert_eq!(few, plan_on_all(&job, &all, &Limits::of(Effort::Balanced), 1, &mut ()));
        chosen.extend(few.plan().unwrap().seats.iter().map(|seat| seat.host().clone()));
        let spreads = Job { spreads: true, ..job };
        assert!(crate::phases::alike::few_of_each_kind(&spreads, &all).is_none(), "what a site has free counts there");
    }
    assert!(chosen.len() > 30, "coordinators that plan at one time do not all want the same: {}", chosen.len());
}
