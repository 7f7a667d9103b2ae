//! Owners' times and longest seats, against looking at every start and every second of each window.

use std::sync::Arc;

use super::*;
use crate::{
    availability::Availability,
    offered::Offered,
    schedule::{Longest, Occupancy},
};

/// By site: spans as lengths of what is closed and what is open in turn, and the longest seat.
type RawOwner = (Option<Vec<(i64, i64)>>, Option<u64>);

fn owners() -> impl Strategy<Value = Vec<RawOwner>> {
    let spans = prop::collection::vec((0_i64..12, 1_i64..30), 0..4);
    prop::collection::vec((prop::option::of(spans), prop::option::weighted(0.3, 1_u64..30)), 4)
}

fn restrict(grid: &mut Grid, owners: &[RawOwner]) {
    for (site, _, schedule) in &mut grid.hosts {
        let (pieces, longest) = &owners[*site];
        let mut at = 0;
        let spans = pieces.as_ref().map(|pieces| {
            let spans = pieces.iter().map(|(gap, length)| {
                at += gap + length;
                (at - length, at)
            });
            Arc::new(spans.collect::<Vec<_>>().try_into().unwrap())
        });
        let offered = Offered { spans, ..Offered::default() };
        let mut closed = Occupancy::default();
        offered.closed(Time(0)).into_iter().for_each(|window| closed.add(window, Amount(1)));
        schedule.close(Some(Arc::new(closed)), longest.map(|most| Longest::OfOwner(Span(most))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Requests without amounts, of resources that a host has nothing of, and of whole hosts among them.
    #[test]
    fn no_seat_is_outside_of_what_owners_offer_and_the_start_is_the_earliest(
        raw_hosts in prop::collection::vec(host(), 0..7), owners in owners(), raw in raw_request(),
        earliest in 0_i64..20, reach in 0_i64..60, asks_nothing in prop::bool::weighted(0.3),
    ) {
        let mut raw = raw;
        if asks_nothing {
            (raw.per_host, raw.total) = ([None, Some(0), None], [None; 3]);
        }
        let mut grid = Grid::new(&raw_hosts);
        restrict(&mut grid, &owners);
        let request = request(&raw, "start");
        let window = (Time(earliest), Time(earliest + reach));
        let expected = best(&grid, &raw, "start", (earliest, earliest + reach));
        let candidates = grid.candidates(request.demand());
        match plan(&Job::of(&request, window), &candidates, Effort::Thorough, 1, &mut ()) {
            PlanOutcome::Allocated(plan) => {
                prop_assert_eq!(Some(plan.start.0), expected.map(|(_, start, _)| start));
                check_seats(&grid, &raw, plan.start, &plan.seats);
                prop_assert!(plan.start_proven);
            }
            PlanOutcome::Rejected(rejection) => prop_assert!(expected.is_none() && rejection.start_proven, "{:?} {:?}", rejection, expected),
        }
        if raw.sites_max.is_none() && raw.deadline.is_none() {
            let availability = Availability::new(&Job::of(&request, window), &candidates);
            for start in earliest..=earliest + reach {
                let there = grid.hosts.iter().filter(|(_, host, schedule)| free_on(&raw, start, host, schedule).is_some());
                prop_assert_eq!(availability.at(Time(start)).hosts, there.count(), "start {}", start);
            }
        }
    }
}

#[test]
fn a_rejection_names_the_times_of_the_owner() {
    let mut grid = Grid::new(&[(0, 1000, [4, 0, 0], vec![])]);
    let detail = |grid: &Grid, length: i64| {
        let raw = RawRequest { seats: 1, length, ..RawRequest::default() };
        let request = request(&raw, "start");
        match plan(&Job::of(&request, (Time(0), Time(10))), &grid.all(), Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Rejected(rejection) => rejection.reason.detail(),
            PlanOutcome::Allocated(plan) => panic!("{plan:?}"),
        }
    };
    let one = vec![(Some(vec![(50, 20)]), Some(15)); 4];
    restrict(&mut grid, &one);
    let nearest = "no start works; nearest miss: 0 of 1 hosts at 0 s; hosts cut by ";
    let times = "site s0 offers its hosts only at its owner's times, next from 50 s to 70 s: 1";
    assert_eq!(detail(&grid, 5), format!("{nearest}{times}"));
    let longest = "hosts cut by the longest reservation of their owners (`owner-max-duration`) 1";
    assert_eq!(detail(&grid, 16), format!("0 of 1 hosts satisfy the minima and attributes; {longest}"));
}
