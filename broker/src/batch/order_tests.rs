//! Whose turn it is, what a plan costs in each order, and which shape of a request is planned.

use super::{
    tests::{CLUSTER_POLICIES, answer, asked, cores, line, placed, starts},
    *,
};
use crate::{
    phases::Settings,
    snapshot::GridSnapshot,
    tariff::{Before, Parts},
    time::{Span, Time},
};

#[test]
fn what_was_postponed_comes_before_all_others_in_every_order() {
    let planner = cores(&[1_000]);
    // The second is earlier, shorter and due earlier, and wants no more.
    let lines = [
        line("old", r#""hosts":1,"work":30,"earliest":10,"latest":10,"deadline":90"#),
        line("new", r#""hosts":1,"work":20,"earliest":0,"latest":15,"deadline":60"#),
    ];
    let asked = asked(&planner, &lines);
    for (name, order) in Order::ALL {
        let options = Options { order, first: 1, ..Options::default() };
        let ordered = order::ordered(&mut Run::new(&planner, &asked, &options, Watch::NOBODY));
        assert_eq!(ordered, [0, 1], "{name}");
        for (policy, overlap) in [("in-order", false), ("slices:1", false), ("slices:1", true), ("slices:2", true)] {
            let answer = answer(&planner, &lines, policy, Options { overlap, ..options });
            assert_eq!(starts(&answer), [Some(10), None], "{name} {policy}");
        }
    }
    let fcfs = Options { order: Order::Fcfs, ..Options::default() };
    assert_eq!(starts(&answer(&planner, &lines, "in-order", fcfs)), [None, Some(0)]);
    let file = answer(&planner, &lines, "in-order", Options::default());
    assert_eq!(starts(&file), [Some(10), None], "the order of the file is the default");
}

#[test]
fn a_surcharge_is_paid_in_every_order() {
    let host = r#"{"id":"h","site":"s","resources":{"cpu":1000},"prices":{"cpu":3600000}}"#;
    let mut snapshot = GridSnapshot::read(&format!(r#"{{"format":"kolo-grid/2","hosts":[{host}]}}"#)).unwrap();
    let tariff = std::sync::Arc::make_mut(&mut snapshot.hosts[0].host.tariff);
    tariff.conditions.surcharges = vec![Before { start: Span(100), part: Parts(500) }];
    let planner = OfflinePlanner::new(snapshot, Settings::default(), 1, false).asked_at(Time(0));
    // 50 s are left before the first start, 200 s before the second.
    let lines = [line("a", r#""hosts":1,"work":2,"earliest":50"#), line("b", r#""hosts":1,"work":2,"earliest":200"#)];
    for (name, order) in Order::ALL {
        let answer = answer(&planner, &lines, "in-order", Options { order, ..Options::default() });
        let costs: Vec<u64> = placed(&answer).iter().map(|plan| plan.cost().0).collect();
        assert_eq!(costs, [3_000, 2_000], "{name}");
    }
}

#[test]
fn the_best_shape_of_each_request_is_planned() {
    let planner = cores(&[1_000, 1_000, 1_000]);
    let shapes = |id: &str, objective: &str| {
        let (narrow, wide) = (r#"{"hosts":1,"work":60}"#, r#"{"hosts":3,"work":25}"#);
        format!(r#"{{"id":"{id}","per_host":{{"cpu":1000}},"objective":"{objective}","shapes":[{narrow},{wide}]}}"#)
    };
    let lines = [shapes("a", "finish"), shapes("b", "host_time"), line("c", r#""hosts":2,"work":10"#)];
    let (wide, narrow) = ((Some(1), Some(3)), (Some(0), Some(1)));
    // The highest demand comes first, and then always the earliest start.
    for (policy, order, first) in
        [("in-order", Order::File, wide), ("in-order", Order::Hdf, narrow), ("slices:3", Order::File, wide)]
    {
        let answer = answer(&planner, &lines, policy, Options { order, ..Options::default() });
        let shown =
            |line: &PlanLine| (line.shape.map(|shape| shape.0), line.outcome.plan().map(|plan| plan.seats.len()));
        let shown: Vec<_> = answer.lines.iter().map(shown).collect();
        assert_eq!(shown, [first, narrow, (None, Some(2))], "{policy} {order:?}");
        let mut snapshot = planner.clone();
        for plan in placed(&answer) {
            assert!(snapshot.admits(plan), "{policy}");
            snapshot.occupy(plan);
        }
    }
    // As a whole it is seen that the narrow one leaves room beside it.
    let whole = answer(&planner, &lines[1..], "slices:1", Options { overlap: true, ..Options::default() });
    assert!(whole.batch.objective.bound.is_some_and(|bound| bound <= whole.batch.objective.value), "{:?}", whole.batch);
    for name in CLUSTER_POLICIES {
        let answer = answer(&planner, &lines, name, Options::default());
        let apart: Vec<_> = answer.batch.by_itself.iter().map(|one| (one.request.as_str(), one.why.as_str())).collect();
        let why = "shapes: one shape only can be placed";
        assert_eq!((placed(&answer).len(), apart), (3, vec![("a", why), ("b", why)]), "{name}");
    }
}
