//! Every placement policy on random small grids, and the errors for wrong answers.

use broker::{
    cost::Cost,
    offline::OfflinePlanner,
    phases::{Settings, find},
    request::{Effort, Request, RequestDocument},
    strategy::Strategy as _,
    time::Span,
};
use proptest::prelude::*;
use sim_kit::generate::{self, Kind};

use super::{scan::SlotScan, *};

fn place(make: MakeStrategy, asked: &Asked<'_>) -> Option<Plan> {
    make().plan(&asked.job, asked.candidates, Effort::Fast, 1, &mut ()).plan().cloned()
}

/// Calls `check` with every generated question that has enough candidates.
fn each_asked(check: impl Fn(&Asked<'_>)) {
    for seed in 0..6 {
        let grid = generate::grid(seed, 24);
        let pool = pool(&grid);
        for n in [1, 3, 5] {
            for request in generate::requests(seed, n, 12, Kind::Collective, &grid).unwrap() {
                let Ok(eligible) = find::eligible(request.demand(), &pool) else { continue };
                let candidates: Vec<Candidate<'_>> = eligible.iter().map(|at| pool[*at]).collect();
                let (earliest, latest) = request.starts(Time::ZERO, Span(0)).unwrap();
                check(&Asked { job: Job::of(&request, (earliest, latest)), candidates: &candidates });
            }
        }
    }
}

#[test]
fn every_policy_answers_with_solutions_no_better_than_the_core_s() {
    let answers = std::cell::RefCell::new(std::collections::BTreeMap::<&str, usize>::new());
    each_asked(|asked| {
        let core = place(named("kolo").unwrap(), asked);
        let best = core.as_ref().map(|choice| asked.judge(choice).unwrap());
        for (name, make) in strategies() {
            let Some(choice) = place(make, asked) else { continue };
            let factor = asked.judge(&choice).unwrap_or_else(|error| panic!("{name}: {error}"));
            let (core, best) = (core.as_ref().expect(name), best.expect(name));
            assert!(core.start <= choice.start, "{name}: {choice:?}");
            assert!(core.start < choice.start || best >= factor * (1.0 - 1e-12), "{name}: {best} < {factor}");
            *answers.borrow_mut().entry(name).or_default() += 1;
        }
    });
    let answers = answers.into_inner();
    assert!(strategies().all(|(name, _)| answers.get(name).is_some_and(|count| *count > 20)), "{answers:?}");
}

#[test]
fn the_factor_is_the_core_s() {
    let grid = generate::grid(3, 30);
    let planner = OfflinePlanner::new(grid.clone(), Settings::default(), 1, false);
    let pool = pool(&grid);
    let mut compared = 0;
    for request in generate::requests(3, 4, 40, Kind::Collective, &grid).unwrap() {
        let outcome = planner.plan(&request, &mut ());
        let Some(plan) = outcome.plan() else { continue };
        let (earliest, latest) = request.starts(Time::ZERO, Span(0)).unwrap();
        let asked = Asked { job: Job::of(&request, (earliest, latest)), candidates: &pool };
        let factor = asked.judge(plan).unwrap();
        assert!((factor / plan.efficiency - 1.0).abs() < 1e-9);
        compared += 1;
    }
    assert!(compared > 5, "{compared}");
}

#[test]
fn wrong_answers_are_named() {
    let seen = std::cell::Cell::new(0);
    each_asked(|asked| {
        let Some(right) = place(named("roomiest").unwrap(), asked) else { return };
        let of = |host: &broker::ids::HostId| asked.candidates.iter().position(|candidate| candidate.host.id == *host);
        let chosen: Vec<usize> = right.seats.iter().filter_map(|seat| of(seat.host())).collect();
        let wrong = |start: Time, hosts: &[usize]| asked.judge_hosts(start, hosts).unwrap_err();
        let early = Time(asked.job.earliest.0 - 1);
        assert_eq!(wrong(early, &chosen), ChoiceError::Start(early.0));
        let count = |chosen: usize| ChoiceError::Count { chosen, asked: asked.job.demand.seats() };
        assert_eq!(wrong(right.start, &chosen[1..]), count(chosen.len() - 1));
        let mut twice = chosen.clone();
        twice[0] = usize::MAX;
        assert_eq!(wrong(right.start, &twice), count(chosen.len() - 1));
        let busy = (0..asked.candidates.len()).find(|at| asked.free_at(right.start).iter().all(|host| host.at != *at));
        if let Some(busy) = busy {
            let mut hosts = chosen.clone();
            hosts[0] = busy;
            assert_eq!(wrong(right.start, &hosts), ChoiceError::NotFree(asked.candidates[busy].host.id.to_string()));
            seen.set(seen.get() + 1);
        }
    });
    assert!(seen.get() > 5);
}

#[test]
fn the_worked_example_is_what_the_document_shows() {
    assert!(include_str!("../../../../docs/dev/placement-policies.md").contains(include_str!("roomiest.rs")));
}

proptest! {
    #[test]
    fn a_scans_plans_hold_and_are_never_better_than_the_best(
        hosts in prop::collection::vec((500_u32..4000, 0_i64..40, 1_i64..30, 0_u32..900_000), 1..12),
        (seats, work, budget) in (1_u32..5, 1_i64..30, prop::option::of(0_u64..200)),
    ) {
        let host = |(at, (speed, from, length, price)): (usize, &(u32, i64, i64, u32))| {
            let until = from + length;
            format!(r#"{{"id":"h{at}","site":"s","resources":{{"cpu":100}},"speed":{speed},"prices":{{"cpu":{price}}},"occupancy":{{"cpu":[[{from},1],[{until},0]]}}}}"#)
        };
        let hosts: Vec<String> = hosts.iter().enumerate().map(host).collect();
        let grid = GridSnapshot::read(&format!(r#"{{"format":"kolo-grid/2","hosts":[{}]}}"#, hosts.join(","))).unwrap();
        let all = grid.hosts.iter();
        let candidates: Vec<Candidate<'_>> =
            all.map(|entry| Candidate { site: &entry.site, host: &entry.host, schedule: &entry.schedule }).collect();
        for kind in ["start", "finish", "runtime", "host_time", "cost"] {
            let text = format!(r#"{{"hosts":{seats},"work":{work},"per_host":{{"cpu":100}},"objective":"{kind}"}}"#);
            let document: RequestDocument = serde_json::from_str(&text).unwrap();
            let request = Request::try_from(RequestDocument { budget: budget.map(Cost), ..document }).unwrap();
            let job = Job::of(&request, (Time(0), Time(60)));
            let best = Phases.plan(&job, &candidates, Effort::Balanced, 1, &mut ());
            let scan = |shifts| SlotScan { shifts }.plan(&job, &candidates, Effort::Balanced, 1, &mut ());
            let (plain, shifted) = (scan(false), scan(true));
            // Prices never change, so it finds the first start, and the least cost.
            prop_assert_eq!(plain.plan().is_some(), best.plan().is_some());
            for outcome in [plain, shifted] {
                let (Some(plan), Some(best)) = (outcome.plan(), best.plan()) else { continue };
                prop_assert!(plan.objective.value >= best.objective.value, "{kind}");
                let is_exact = ["start", "cost"].contains(&kind);
                prop_assert!(!is_exact || plan.objective.value == best.objective.value, "{kind}");
                prop_assert!(budget.is_none_or(|budget| plan.cost().0 <= budget));
            }
        }
    }
}
