//! Starts that are set aside change no answer.

use super::{
    priced::{KINDS, RawPrices, raw_prices, tariff},
    *,
};
use crate::request::RequestDocument;

/// What a sweep says: the start, the hosts and the value of its plan; the value that is not proven; whether all plans are too dear.
type Said = (Option<(Time, Vec<u32>, i64)>, Option<(i64, Time)>, bool);

/// What a sweep says that may set aside starts with so many hosts, and how many it has set aside at its end.
fn said(job: &Job<'_>, candidates: &[Candidate<'_>], seed: u64, hosts_max: usize) -> (Option<Said>, usize) {
    let problem = Problem::new(job, candidates);
    let (mut judge, mut observer) = (Judge::default(), ());
    let Ok(largest) = check::check(&problem, &mut judge.picker) else { return (None, 0) };
    let (random, miss) = (Xoshiro256PlusPlus::seed_from_u64(seed), Miss::new(job.earliest));
    let mut sweep = Sweep::new(&problem, Limits::of(Effort::Balanced), random, judge, miss, &mut observer);
    sweep.aside_hosts_max = hosts_max;
    let solution = best_solution(&problem, job, objective::of(job.objective), &largest, &mut sweep);
    let solution = solution.map(|Solution { slot, chosen, value }| {
        (slot.start, chosen.iter().map(|at| slot.hosts[*at as usize]).collect(), value)
    });
    // Where there is a plan nobody asks whether others are too dear.
    let is_too_dear = solution.is_none() && sweep.too_dear.is_some();
    (Some((solution, sweep.unproven, is_too_dear)), sweep.aside.len())
}

fn priced(raw: &RawRequest, kind: &str, budget: Option<u64>) -> Request {
    let document: RequestDocument = serde_json::from_value(document(raw, kind)).unwrap();
    Request::try_from(RequestDocument { budget: budget.map(Cost), ..document }).unwrap()
}

fn grid(hosts: &[(RawHost, RawPrices)]) -> Grid {
    let (raw_hosts, prices): (Vec<RawHost>, Vec<RawPrices>) = hosts.iter().cloned().unzip();
    let mut grid = Grid::new(&raw_hosts);
    grid.hosts.iter_mut().zip(&prices).for_each(|((_, host, _), raw)| host.tariff = tariff(raw));
    grid
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_plan_is_the_same_as_without_setting_anything_aside(
        hosts in prop::collection::vec((host(), raw_prices()), 3..16), raw in raw_request(),
        budget in prop::option::weighted(0.7, 0_u64..40), (earliest, reach) in (0_i64..10, 0_i64..45), seed in 0_u64..4,
    ) {
        let (grid, raw) = (grid(&hosts), RawRequest { sites_max: Some(1), ..raw });
        for kind in KINDS {
            let request = priced(&raw, kind, budget);
            let job = Job::of(&request, (Time(earliest), Time(earliest + reach)));
            let candidates = grid.candidates(request.demand());
            let (in_full, none) = said(&job, &candidates, seed, 0);
            let (with, _) = said(&job, &candidates, seed, 1 << 17);
            // Two starts of all hosts fit, so what is set aside is often made up for before its time.
            let (with_few, _) = said(&job, &candidates, seed, 2 * hosts.len());
            prop_assert_eq!(none, 0);
            prop_assert_eq!(&with, &in_full, "{}", kind);
            prop_assert_eq!(&with_few, &in_full, "{}", kind);
        }
    }
}

#[test]
fn starts_are_set_aside_where_two_sites_would_do_and_one_does_not() {
    // At each site one host is cheap and one dear. Each use of a dear one ends at a time of its own.
    let host = |site: usize, price: u32, until: i64| {
        let uses = if until > 0 { vec![(0, until, [1, 0, 0])] } else { Vec::new() };
        ((site, 1000, [4, 4, 4], uses), vec![(0, [price, 0, 0])])
    };
    let hosts = [host(0, 0, 0), host(0, 1_000_000_000, 10), host(1, 0, 0), host(1, 1_000_000_000, 20)];
    let raw = RawRequest {
        seats: 2,
        length: 5,
        per_host: [Some(1), None, None],
        total: [Some(5), None, None],
        sites_max: Some(1),
        ..RawRequest::default()
    };
    let (grid, request) = (grid(&hosts), priced(&raw, "start", Some(1)));
    let job = Job::of(&request, (Time(0), Time(40)));
    let (said, aside) = said(&job, &grid.candidates(request.demand()), 1, 1 << 17);
    assert_eq!((said, aside > 0), (Some((None, None, true)), true), "{aside} starts");
}
