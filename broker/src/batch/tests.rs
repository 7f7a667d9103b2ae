//! Whole batches: that plans fit together, that figures are what the plans say, and what each order and policy does.

use proptest::prelude::*;

use super::*;
use crate::{objective::unproven, phases::Settings, plan::ObjectiveValue, snapshot::GridSnapshot, time::Time};

pub(super) fn planner(hosts: &str) -> OfflinePlanner {
    let text = format!(r#"{{"format":"kolo-grid/2","hosts":[{hosts}]}}"#);
    OfflinePlanner::new(GridSnapshot::read(&text).unwrap(), Settings::default(), 1, false)
}

/// So many hosts of one core and these speeds.
pub(super) fn cores(speeds: &[u32]) -> OfflinePlanner {
    let host = |(at, speed): (usize, &u32)| {
        format!(
            r#"{{"id":"h{at}","site":"s{}","resources":{{"cpu":1000}},"speed":{speed},"prices":{{"cpu":{speed}}}}}"#,
            at % 3
        )
    };
    planner(&speeds.iter().enumerate().map(host).collect::<Vec<_>>().join(","))
}

pub(super) fn asked(planner: &OfflinePlanner, lines: &[String]) -> Vec<Asked> {
    lines.iter().enumerate().map(|(at, line)| planner.read_line(at + 1, line).unwrap()).collect()
}

pub(super) fn answer(planner: &OfflinePlanner, lines: &[String], policy: &str, options: Options) -> BatchAnswer {
    let policy = policy_named(policy).unwrap();
    plan(&*policy, planner, &asked(planner, lines), &options, Watch::NOBODY).unwrap()
}

pub(super) fn starts(answer: &BatchAnswer) -> Vec<Option<i64>> {
    let start = |line: &PlanLine| match &line.outcome {
        PlanOutcome::Allocated(plan) => Some(plan.start.0),
        PlanOutcome::Rejected(_) => None,
    };
    answer.lines.iter().map(start).collect()
}

pub(super) fn placed(answer: &BatchAnswer) -> Vec<&Plan> {
    answer
        .lines
        .iter()
        .filter_map(|line| match &line.outcome {
            PlanOutcome::Allocated(plan) => Some(plan),
            PlanOutcome::Rejected(_) => None,
        })
        .collect()
}

fn requests() -> impl Strategy<Value = Vec<String>> {
    let one = (1_u32..4, 1_i64..40, 0_i64..20, 0_i64..90, 0_usize..5, 300_u32..1_001, any::<bool>());
    let limits = (prop::option::weighted(0.2, 1_u32..3), prop::option::weighted(0.3, 0_u64..100));
    let line = (one, limits).prop_map(|((hosts, work, earliest, room, objective, cpu, is_exclusive), (total, budget))| {
        let objective = ["start", "finish", "runtime", "host_time", "cost"][objective];
        let total = total.map_or_else(String::new, |cores| format!(r#","total":{{"cpu":{}}}"#, cores * 1000));
        let budget = budget.map_or_else(String::new, |budget| format!(r#","budget":{budget}"#));
        format!(
            r#"{{"hosts":{hosts},"work":{work},"earliest":{earliest},"latest":{},"objective":"{objective}","per_host":{{"cpu":{cpu}}},"exclusive":{is_exclusive}{total}{budget}}}"#,
            earliest + room
        )
    });
    prop::collection::vec(line, 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn plans_of_a_batch_fit_together_and_its_figures_are_theirs(
        speeds in prop::collection::vec(500_u32..3_000, 2..6),
        lines in requests(),
        (policy, order, objective) in (0_usize..9, 0_usize..9, 0_usize..5),
        (overlap, budget, first) in (any::<bool>(), prop::option::of(0_u64..400), 0_usize..4),
    ) {
        let planner = cores(&speeds);
        let policy = ["in-order", "slices:1", "slices:2", "slices:9", "oas", "mesd", "pas", "cbs", "jpr"][policy];
        let budget = budget.filter(|_| !CLUSTER_POLICIES.contains(&policy));
        let options = Options {
            order: Order::ALL[order].1, objective: BatchObjective::ALL[objective].1, alternatives: 3, overlap, budget, first
        };
        let answer = answer(&planner, &lines, policy, options);
        let mut snapshot = planner.clone();
        let plans = placed(&answer);
        for plan in &plans {
            prop_assert!(snapshot.admits(plan));
            snapshot.occupy(plan);
        }
        for (asked, line) in asked(&planner, &lines).iter().zip(&answer.lines) {
            let own = asked.request().unwrap().objective();
            if let Some(plan) = line.outcome.plan() {
                prop_assert!(asked.request().unwrap().budget().is_none_or(|budget| plan.cost() <= budget));
                let ObjectiveValue { kind, value, bound } = plan.objective;
                prop_assert_eq!((kind, value), (own, unproven(own, plan.start, &plan.seats).value));
                prop_assert!(bound.is_none_or(|bound| bound <= value));
            }
        }
        let batch = &answer.batch;
        prop_assert_eq!((batch.placed, batch.postponed), (plans.len(), lines.len() - plans.len()));
        let origin = asked(&planner, &lines).iter().map(|asked| run::earliest(asked.request().unwrap())).min().unwrap();
        prop_assert_eq!(batch.makespan, plans.iter().map(|plan| plan.end().0 - origin.0).max().unwrap_or(0));
        prop_assert_eq!(batch.finish_sum, plans.iter().map(|plan| plan.end().0 - origin.0).sum::<i64>());
        let value = match batch.objective.kind {
            BatchObjective::Cost => batch.cost.cast_signed(),
            BatchObjective::HostTime => batch.host_time.cast_signed(),
            BatchObjective::Finish => batch.finish_sum,
            BatchObjective::Makespan => batch.makespan,
            BatchObjective::RunTime => batch.run_time,
        };
        prop_assert_eq!(batch.objective.value, value);
        prop_assert!(batch.objective.bound.is_none_or(|bound| bound <= value), "{:?}", batch);
        prop_assert!(batch.objective.bound.is_none() || batch.postponed == 0);
        prop_assert_eq!(batch.cost, plans.iter().map(|plan| plan.cost().0).sum::<u64>());
        prop_assert!(budget.is_none_or(|budget| batch.cost <= budget));
        let chosen = answer.alternatives.iter().filter(|alternative| alternative.chosen).count();
        prop_assert_eq!(chosen, batch.placed);
    }

    #[test]
    fn colliding_alternatives_are_never_worse(
        speeds in prop::collection::vec(500_u32..3_000, 2..6),
        lines in requests(),
        (parts, objective) in (1_usize..4, 0_usize..5),
    ) {
        let planner = cores(&speeds);
        let options = Options { objective: BatchObjective::ALL[objective].1, alternatives: 3, ..Options::default() };
        let worth = |overlap| {
            let answer = answer(&planner, &lines, &format!("slices:{parts}"), Options { overlap, ..options });
            (answer.batch.postponed, answer.batch.objective.value)
        };
        prop_assert!(worth(true) <= worth(false));
    }
}

pub(super) fn line(id: &str, keys: &str) -> String {
    format!(r#"{{"id":"{id}","per_host":{{"cpu":1000}},{keys}}}"#)
}

#[test]
fn a_batch_is_chosen_as_a_whole() {
    // Each takes the faster host first; only together is it seen that the long one gains more by it.
    let planner = cores(&[1_000, 2_000]);
    let lines = [line("a", r#""hosts":1,"work":10,"latest":0"#), line("b", r#""hosts":1,"work":100,"latest":200"#)];
    let options = Options { objective: BatchObjective::HostTime, ..Options::default() };
    let in_order = answer(&planner, &lines, "in-order", options);
    let whole = answer(&planner, &lines, "slices:1", Options { overlap: true, ..options });
    assert_eq!(whole.batch.host_time, 55);
    assert!(in_order.batch.host_time > 55, "{:?}", in_order.batch);
    assert_eq!(whole.batch.objective.bound, Some(55));
}

#[test]
fn orders_say_whose_turn_it_is() {
    let planner = cores(&[1_000, 1_000]);
    let lines = [
        line("a", r#""hosts":1,"work":30,"earliest":5"#),
        line("b", r#""hosts":2,"work":20,"deadline":500"#),
        line("c", r#""hosts":1,"work":40,"deadline":400"#),
        line("d", r#""hosts":2,"work":20"#),
    ];
    let asked = asked(&planner, &lines);
    let ordered_by = |order| {
        let options = Options { order, ..Options::default() };
        order::ordered(&mut Run::new(&planner, &asked, &options, Watch::NOBODY))
    };
    for (order, expected) in [
        (Order::Fcfs, [1, 2, 3, 0]),
        (Order::Sjf, [0, 2, 1, 3]),
        (Order::Bjf, [1, 3, 0, 2]),
        (Order::Spt, [1, 3, 0, 2]),
        (Order::Lpt, [2, 0, 1, 3]),
        // A seat of each needs as much.
        (Order::Hdf, [0, 1, 2, 3]),
        (Order::Edf, [2, 1, 0, 3]),
        // b at 0; then c and a at 20, a beside c; d after both.
        (Order::Fpfs, [1, 2, 0, 3]),
    ] {
        assert_eq!(ordered_by(order), expected, "{order:?}");
    }
}

#[test]
fn the_highest_demand_is_that_of_a_seat_however_many_there_are() {
    let planner = cores(&[1_000, 1_000, 1_000]);
    let of = |id: &str, hosts: u32, cpu: u32| {
        format!(r#"{{"id":"{id}","hosts":{hosts},"work":60,"per_host":{{"cpu":{cpu}}}}}"#)
    };
    let asked = asked(&planner, &[of("wide", 3, 400), of("narrow", 1, 900), of("middle", 2, 500)]);
    let options = Options { order: Order::Hdf, ..Options::default() };
    assert_eq!(order::ordered(&mut Run::new(&planner, &asked, &options, Watch::NOBODY)), [1, 2, 0]);
}

#[test]
fn the_longest_first_take_hosts_that_are_used_already() {
    let planner = cores(&[1_000, 1_000, 1_000]);
    let on = |id: &str, host: &str, work: i64| line(id, &format!(r#""hosts":1,"work":{work},"candidates":["{host}"]"#));
    let lines = [on("a", "h1", 50), on("b", "h2", 60), line("c", r#""hosts":1,"work":20,"earliest":70"#)];
    for (order, host) in [(Order::Lpt, "h2"), (Order::Hdf, "h2")] {
        let answer = answer(&planner, &lines, "in-order", Options { order, ..Options::default() });
        assert_eq!(placed(&answer)[2].seats[0].host().as_str(), host, "{order:?}");
        assert_eq!(starts(&answer)[2], Some(70));
    }
}

#[test]
fn what_does_not_fit_is_postponed_and_no_bound_is_claimed() {
    let planner = cores(&[1_000]);
    let lines = [line("a", r#""hosts":1,"work":30,"latest":0"#), line("b", r#""hosts":1,"work":20,"latest":0"#)];
    for policy in ["in-order", "slices:1", "slices:2"] {
        let answer = answer(&planner, &lines, policy, Options::default());
        assert_eq!((answer.batch.placed, answer.batch.objective.bound), (1, None), "{policy}");
        let lines: Vec<_> = answer.lines.iter().map(|line| serde_json::to_value(line).unwrap()).collect();
        assert_eq!((&lines[0]["outcome"], &lines[1]["reason"]["code"]), (&"allocated".into(), &"postponed".into()));
    }
    // Together with colliding alternatives the shorter one is seen to be better.
    let overlap = Options { overlap: true, ..Options::default() };
    assert_eq!(starts(&answer(&planner, &lines, "slices:1", overlap)), [None, Some(0)]);
}

#[test]
fn what_the_budget_of_the_batch_leaves_out_is_told_what_is_left() {
    let planner = cores(&[1_000, 1_000]);
    let lines = [line("a", r#""hosts":1,"work":30"#), line("b", r#""hosts":1,"work":30"#)];
    let answer = answer(&planner, &lines, "slices:1", Options { budget: Some(10), ..Options::default() });
    let left_out = answer
        .lines
        .iter()
        .find_map(|line| serde_json::to_value(line).unwrap()["reason"]["detail"].as_str().map(str::to_owned));
    let expected = "left for another batch: its cheapest alternative costs 0.009 credits, 0.001 of the budget of the batch are left";
    assert_eq!(left_out.as_deref(), Some(expected));
}

#[test]
fn lines_are_what_the_format_says() {
    let planner = cores(&[1_000]);
    let lines = [line("a", r#""hosts":1,"work":30,"earliest":10"#)];
    let answer = answer(&planner, &lines, "slices:2", Options { alternatives: 1, ..Options::default() });
    assert_eq!(
        serde_json::to_value(&answer.batch).unwrap(),
        serde_json::json!({"policy":"slices:2","placed":1,"postponed":0,"makespan":30,"cost":9,"host_time":30,"finish_sum":30,
            "run_time":30,"objective":{"kind":"finish","value":30,"bound":30},"alternatives":1,"us":0})
    );
    assert_eq!(
        serde_json::to_value(&answer.alternatives[0]).unwrap(),
        serde_json::json!({"id":"a","slice":0,"start":10,"hosts":["h0"],"cost":9,"host_time":30,"finish":40,"chosen":true})
    );
}

#[test]
fn policies_are_refused_by_name() {
    let refused = |text: &str| policy_named(text).err().unwrap().to_string();
    assert_eq!(refused("slices:0"), "slices: expected slices:K with a whole number K of 1 or more, got \"0\"");
    assert_eq!(refused("slices"), "slices: expected slices:K with a whole number K of 1 or more, got \"\"");
    assert_eq!(refused("in-order:2"), "in-order: expected no colon, got \"2\"");
    let known = "there are in-order, slices:K, oas[:slots], mesd[:literal], pas, cbs, jpr, colocate:set|partition|best";
    assert!(refused("colocate").starts_with("colocate: expected colocate:set, colocate:partition or colocate:best"));
    assert_eq!(refused("best"), format!("no policy is called \"best\"; {known}"));
    assert_eq!(refused("mesd:fast"), "mesd: expected mesd or mesd:literal, got \"fast\"");
    let planner = cores(&[1_000]);
    let policy = policy_named("in-order").unwrap();
    let none = plan(&*policy, &planner, &[], &Options::default(), Watch::NOBODY);
    assert_eq!(none.unwrap_err(), BatchError::NoRequests);
}

/// Two sites of two hosts, the second slower, and an uplink each.
pub(super) fn linked() -> OfflinePlanner {
    let link = |site| format!(r#"{{"id":"{site}","uplink":{{"mbps":100,"occupancy":[[0,60],[50,0]]}}}}"#);
    let host = |id: &str, site, speed| {
        format!(r#"{{"id":"{id}","site":"{site}","resources":{{"cpu":1000}},"speed":{speed},"prices":{{"cpu":3600}}}}"#)
    };
    let hosts = [host("a1", "a", 1000), host("a2", "a", 1000), host("b1", "b", 500), host("b2", "b", 500)].join(",");
    let text = format!(r#"{{"format":"kolo-grid/2","sites":[{},{}],"hosts":[{hosts}]}}"#, link("a"), link("b"));
    OfflinePlanner::new(GridSnapshot::read(&text).unwrap(), Settings::default(), 1, false)
}

pub(super) const CLUSTER_POLICIES: [&str; 6] = ["oas", "mesd", "mesd:literal", "pas", "cbs", "jpr"];

#[test]
fn traffic_waits_for_the_uplinks_and_the_makespan_is_proven() {
    let planner = linked();
    let talks = |id: &str, hosts, mbps| {
        line(id, &format!(r#""hosts":{hosts},"work":10,"earliest":5,"traffic":{{"mbps":{mbps},"compute":500}}"#))
    };
    // Three seats on both sites: 2 * 50 * 1 / 2 on both uplinks, of which 40 are free before 50. A slow host makes it 15 long.
    let lines = [talks("a", 3, 50), talks("b", 1, 9)];
    for policy in CLUSTER_POLICIES {
        let answer = answer(&planner, &lines, policy, Options::default());
        let plans = placed(&answer);
        assert_eq!((plans.len(), plans[0].start, plans[0].end()), (2, Time(50), Time(65)), "{policy}");
        assert!(plans[0].seats.iter().all(|seat| seat.window == plans[0].window()), "{policy}");
        let objective = answer.batch.objective;
        assert_eq!((objective.kind, objective.value), (BatchObjective::Makespan, 60), "{policy}");
        assert!(
            objective.bound.is_some_and(|bound| if policy == "oas" { bound == 60 } else { bound <= 60 }),
            "{policy}"
        );
    }
}

/// Forty hosts that become free one after the other are one group: in 40 groups there would be more modes than can be looked at.
#[test]
fn hosts_that_become_free_one_after_the_other_are_alike() {
    let host = |at: i64| {
        format!(
            r#"{{"id":"h{at:02}","site":"a","resources":{{"cpu":1000}},"speed":1000,"occupancy":{{"cpu":[[0,1000],[{},0]]}}}}"#,
            100 - at
        )
    };
    let hosts: Vec<String> = (0..40).map(host).collect();
    let text = format!(r#"{{"format":"kolo-grid/2","hosts":[{}]}}"#, hosts.join(","));
    let planner = OfflinePlanner::new(GridSnapshot::read(&text).unwrap(), Settings::default(), 1, false);
    let of = |id: &str, hosts| line(id, &format!(r#""hosts":{hosts},"work":50,"earliest":0"#));
    // Free from 61 on, one a second: the twentieth at 80, all at 100. The wide one first: 80 to 130 beside 10 others until 120, those on
    // hosts that are free from 70 on; then 15 hosts that are free from 95 on.
    let answer = answer(&planner, &[of("a", 20), of("b", 10), of("c", 10)], "oas", Options::default());
    assert_eq!(placed(&answer).len(), 3);
    let objective = answer.batch.objective;
    assert_eq!((objective.value, objective.bound), (150, Some(150)));
    let mut ends: Vec<i64> = placed(&answer).iter().map(|plan| plan.end().0).collect();
    ends.sort_unstable();
    assert_eq!(ends[2], 150);
}

#[test]
fn what_no_uplink_carries_is_postponed_with_a_reason() {
    let planner = linked();
    let lines = [
        line("a", r#""hosts":3,"work":10,"traffic":{"mbps":500}"#),
        line("b", r#""hosts":9,"work":10"#),
        line("c", r#""hosts":2,"work":10,"traffic":{"mbps":500}"#),
    ];
    for policy in CLUSTER_POLICIES {
        let answer = answer(&planner, &lines, policy, Options::default());
        assert_eq!((starts(&answer), answer.batch.objective.bound), (vec![None, None, Some(0)], None), "{policy}");
        let lines: Vec<_> = answer.lines.iter().map(|line| serde_json::to_value(line).unwrap()).collect();
        let details = [0, 1].map(|at| lines[at]["reason"]["detail"].as_str().unwrap().to_owned());
        assert!(!details[0].is_empty(), "{details:?}");
        assert!(details[1].contains('4') && details[1].contains('9'), "{details:?}");
    }
}

#[test]
fn hosts_of_one_name_at_two_sites_are_two() {
    let host = |id: &str, site: &str| {
        let text = format!(
            r#"{{"format":"kolo-grid/2","hosts":[{{"id":"{id}","site":"{site}","resources":{{"cpu":1000}}}}]}}"#
        );
        GridSnapshot::read(&text).unwrap()
    };
    let mut grid = host("h", "b");
    grid.hosts.extend(host("h", "a").hosts);
    let planner = OfflinePlanner::new(grid, Settings::default(), 1, false);
    let at = |id: &str, candidates: &str| line(id, &format!(r#""hosts":1,"work":30{candidates}"#));
    let lines = [at("a", ""), at("b", ""), at("c", r#","candidates":["b/h"]"#), at("d", r#","candidates":["h"]"#)];
    for policy in ["in-order", "slices:1"] {
        let options = Options { objective: BatchObjective::RunTime, ..Options::default() };
        let answer = answer(&planner, &lines, policy, options);
        let mut taken: Vec<_> =
            placed(&answer).iter().map(|plan| (plan.seats[0].site.as_str().to_owned(), plan.start.0)).collect();
        taken.sort();
        let all = [("a", 0), ("a", 30), ("b", 0), ("b", 30)].map(|(site, start)| (site.to_owned(), start));
        assert_eq!((taken, answer.batch.run_time), (all.to_vec(), 120), "{policy}");
    }
}

/// Two sites of three hosts, with links of 100 Mbit/s; 40 of the first are used until 10.
fn sites_of_three() -> GridSnapshot {
    let hosts = (0..6).map(|at| format!(r#"{{"id":"h{at}","site":"s{}","resources":{{"cpu":1000}}}}"#, at % 2));
    let sites = r#"{"id":"s0","uplink":{"mbps":100,"occupancy":[[0,40],[10,0]]}},{"id":"s1","uplink":{"mbps":100}}"#;
    let hosts = hosts.collect::<Vec<_>>().join(",");
    GridSnapshot::read(&format!(r#"{{"format":"kolo-grid/2","sites":[{sites}],"hosts":[{hosts}]}}"#)).unwrap()
}

#[test]
fn no_link_is_given_twice() {
    let planner = |commit| OfflinePlanner::new(sites_of_three(), Settings::default(), 1, commit);
    let talk = |id: &str, candidates: &str, mbps: u32| {
        let traffic = format!(r#""hosts":2,"work":30,"candidates":[{candidates}],"traffic":{{"mbps":{mbps}}}"#);
        line(id, &traffic)
    };
    // Each has one of its two hosts at either site, so its link carries all of it; a and b together are too much.
    let lines = [talk("a", r#""h0","h1""#, 60), talk("b", r#""h2","h3""#, 70), talk("c", r#""h4","h5""#, 30)];
    let mut committing = planner(true);
    let mut stopwatch = crate::phases::PhaseStopwatch::new(|| std::time::Duration::ZERO);
    let mut commit =
        |line: &String| committing.plan_line(1, line, &mut stopwatch).unwrap().outcome.plan().unwrap().start;
    assert_eq!(lines.each_ref().map(|line| commit(line).0), [0, 30, 10]);
    for (policy, overlap) in [("in-order", false), ("slices:1", false), ("slices:1", true), ("slices:3", false)] {
        let options = Options { overlap, objective: BatchObjective::Makespan, ..Options::default() };
        let answer = answer(&planner(false), &lines, policy, options);
        assert_eq!((placed(&answer).len(), answer.batch.makespan), (3, 60), "{policy}");
        let mut room = planner(false);
        for plan in placed(&answer) {
            assert!(room.admits(plan), "{policy}: {plan:?}");
            room.occupy(plan);
        }
    }
}

#[test]
fn moldable_requests_share_equal_hosts_and_one_that_is_too_large_waits() {
    let text =
        r#"{"format":"kolo-grid/2","hosts":[{"id":"h","site":"s","resources":{"cpu":1000,"memory":1024,"io":100}}]}"#;
    let planner = OfflinePlanner::new(GridSnapshot::read(text).unwrap(), Settings::default(), 1, false);
    let request = |cpu: u64, memory: u64, io: u64, scale: &str| {
        let amounts = format!(r#"{{"cpu":{cpu},"memory":{memory},"io":{io}}}"#);
        format!(r#"{{"hosts":1,"duration":600,"earliest":0,"per_host":{amounts},"scale":{scale}}}"#)
    };
    let lines = [
        request(900, 205, 20, "[500,1100]"),
        request(300, 922, 90, "[500,1100]"),
        request(5_000, 1, 1, "[500,1000]"),
        request(1_250, 100, 10, "[800,1000]"),
    ];
    let asked: Vec<Asked> = (1..).zip(&lines).map(|(line, text)| planner.read_line(line, text).unwrap()).collect();
    for policy in ["colocate:set", "colocate:partition", "colocate:best"] {
        let policy = policy_named(policy).unwrap();
        let answer = plan(&*policy, &planner, &asked, &Options::default(), Watch::NOBODY).unwrap();
        let scales: Vec<Option<u32>> =
            answer.lines.iter().map(|line| line.outcome.plan().map(|plan| plan.scale.thousandths())).collect();
        assert_eq!(scales, [Some(833), Some(833), None, Some(800)], "{}", policy.name());
        assert_eq!((answer.batch.placed, answer.batch.run_time), (3, 721 + 750));
        let PlanOutcome::Rejected(rejection) = &answer.lines[2].outcome else { panic!("{answer:?}") };
        let expected = "per_host.cpu: 2.5 even at factor 0.5; 0 of 1 hosts have that much, the largest has 1";
        assert!(rejection.reason.detail().contains(expected), "{}", rejection.reason.detail());
    }
}

#[test]
fn what_is_in_time_only_when_it_is_scaled_is_placed() {
    let planner = planner(r#"{"id":"h","site":"s","resources":{"cpu":4000}}"#);
    let one = line("a", r#""hosts":1,"duration":3600,"earliest":0,"deadline":2000,"scale":[500,2000]"#);
    let best = answer(&planner, &[one], "colocate:best", Options::default());
    assert_eq!(placed(&best).len(), 1, "{best:?}");
    assert!((1800..=2000).contains(&best.batch.run_time), "{best:?}");
}

#[test]
fn hosts_that_serve_no_request_of_the_batch_are_as_if_they_were_not_there() {
    let planner = planner(
        r#"{"id":"h0","site":"s","resources":{"cpu":1000},"speed":2000},
           {"id":"h1","site":"s","resources":{"cpu":4000},"attributes":{"arch":"x"}},
           {"id":"h2","site":"s","resources":{"cpu":9000},"attributes":{"arch":"y"}}"#,
    );
    let of = |arch: &str, cpu: u32| {
        format!(
            r#"{{"id":"a","hosts":1,"duration":600,"earliest":0,"per_host":{{"cpu":{cpu}}},"attributes":{{{arch}}}}}"#
        )
    };
    for policy in ["colocate:set", "colocate:partition", "colocate:best"] {
        let lines = [of(r#""arch":"x""#, 2000), of(r#""arch":"x""#, 1000)];
        let of_x = answer(&planner, &lines, policy, Options::default());
        assert!(placed(&of_x).iter().all(|plan| plan.seats[0].host().as_str() == "h1"), "{of_x:?}");
        assert_eq!((placed(&of_x).len(), of_x.batch.run_time, of_x.batch.objective.bound), (2, 600, Some(600)));
        // None is left: the planner of single requests says why.
        let none = answer(&planner, &[of(r#""arch":"z""#, 1)], policy, Options::default());
        let PlanOutcome::Rejected(rejection) = &none.lines[0].outcome else { panic!("{none:?}") };
        assert!(rejection.reason.detail().contains("0 of 1 hosts satisfy"), "{rejection:?}");
    }
}
