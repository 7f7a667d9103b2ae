//! A moldable request against planning it at every factor by itself.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    offline::OfflinePlanner,
    phases::{PhaseStopwatch, Settings},
    snapshot::GridSnapshot,
};

fn planned(grid: &Value, request: &Value) -> Value {
    let snapshot = GridSnapshot::read(&grid.to_string()).unwrap();
    let mut planner = OfflinePlanner::new(snapshot, Settings::default(), 1, false);
    let mut stopwatch = PhaseStopwatch::new(|| Duration::ZERO);
    serde_json::to_value(planner.plan_line(1, &request.to_string(), &mut stopwatch).unwrap()).unwrap()
}

/// The same request with everything multiplied and divided beforehand.
fn at_factor(request: &Value, factor: u64) -> Value {
    let mut request = request.clone();
    request.as_object_mut().unwrap().remove("scale");
    for key in ["per_host", "total"] {
        for amount in request[key].as_object_mut().unwrap().values_mut() {
            *amount = json!((amount.as_u64().unwrap() * factor).div_ceil(1000));
        }
    }
    request["duration"] = json!((request["duration"].as_u64().unwrap() * 1000).div_ceil(factor));
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The value is the least of all factors; of several factors with it, the nearest to 1000 is named.
    #[test]
    fn the_factor_is_the_best_of_all(
        hosts in prop::collection::vec((1_u64..40, 0_u64..40, 1_i64..300, 0_u64..20, 1_i64..400), 1..6),
        seats in 1_u64..4, seconds in 1_i64..400, each in 1_u64..30, total in 0_u64..60,
        low in 980_u64..1_010, more in 0_u64..40, stretch in 0_u64..3,
        objective in prop::sample::select(vec!["start", "finish", "runtime", "host_time", "cost"]),
        latest in 0_i64..400, budget in prop::option::of(1_u64..200),
    ) {
        let host = |(at, (cpu, used, until, price, then)): (usize, (u64, u64, i64, u64, i64))| {
            json!({"id": format!("h{at}"), "site": format!("s{}", at % 2), "resources": {"cpu": cpu}, "attributes": {},
                "prices": {"cpu": price * 9_000}, "occupancy": {"cpu": [[0, used.min(cpu)], [until, 0], [until + then, used.min(cpu) / 2]]}})
        };
        let grid = json!({"format": "kolo-grid/2", "hosts": hosts.into_iter().enumerate().map(host).collect::<Vec<_>>()});
        // Near to 1, far below and far above.
        let low = low * [1000, 300, 1_900][stretch as usize] / 1000;
        let scale = (low, low + more);
        let mut request = json!({"id": "r", "hosts": seats, "duration": seconds, "per_host": {"cpu": each},
            "total": {"cpu": total}, "earliest": 0, "latest": latest, "objective": objective, "scale": [scale.0, scale.1]});
        if let Some(budget) = budget {
            request["budget"] = json!(budget);
        }
        let answer = planned(&grid, &request);
        let value = |line: &Value| line["objective"]["value"].as_i64();
        let each = (scale.0..=scale.1).map(|factor| (planned(&grid, &at_factor(&request, factor)), factor));
        let fixed: Vec<(i64, u64, u64)> =
            each.filter_map(|(line, factor)| Some((value(&line)?, factor.abs_diff(1000), factor))).collect();
        let Some(least) = fixed.iter().min() else {
            prop_assert_eq!(&answer["outcome"], "rejected");
            return Ok(());
        };
        prop_assert_eq!(&answer["outcome"], "allocated", "{:?}", least);
        let factor = answer["scale"].as_u64().unwrap_or(1000);
        let (got, bound) = (value(&answer).unwrap(), answer["objective"]["bound"].as_i64().unwrap());
        prop_assert!(fixed.iter().any(|at| (at.0, at.2) == (got, factor)), "{}: {:?}", answer, fixed);
        prop_assert!(bound <= least.0 && least.0 <= got, "{}: {:?}", answer, least);
        if bound == got {
            prop_assert_eq!((got, factor.abs_diff(1000)), (least.0, least.1), "{}", answer);
        }
        // Costs differ from factor to factor by rounding only, which ranges of factors bound badly.
        prop_assert!(bound == got || objective == "cost", "{}: {:?}", answer, least);
    }
}

#[test]
fn a_range_that_no_host_can_hold_is_refused_for_its_low_end() {
    let grid = json!({"format": "kolo-grid/2", "hosts": [{"id": "h", "site": "s", "resources": {"cpu": 1000}}]});
    let request = |scale: [u32; 2]| json!({"hosts": 1, "duration": 100, "per_host": {"cpu": 1000}, "scale": scale});
    let answer = planned(&grid, &request([1001, 2000]));
    assert_eq!((&answer["reason"]["code"], &answer["start_proven"]), (&json!("too_few_hosts"), &json!(true)));
    let answer = planned(&grid, &request([400, 2000]));
    assert_eq!((&answer["scale"], &answer["finish"]), (&Value::Null, &json!(100)));
}
