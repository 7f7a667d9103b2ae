//! What must hold of the scenarios, and in every batch.

use serde_json::Value;
use sim_kit::progress::Progress;

use super::{
    experiments::{Gain, Gains, by_scenario, by_threshold, times},
    present::{Colocation, text},
    setup::{Scenario, batch, scenarios},
};

#[test]
fn batches_are_as_the_source_draws_them() {
    assert_eq!(scenarios().len(), 32);
    let (mut ratios, mut lengths) = (Vec::new(), Vec::new());
    for scenario in scenarios().into_iter().filter(|scenario| scenario.hosts == 15) {
        let drawn = batch(1, scenario, 0).unwrap();
        let again = batch(1, scenario, 0).unwrap();
        assert_eq!(drawn.requests.len(), again.requests.len());
        let mut balanced = 0;
        for asked in &drawn.requests {
            let demand = asked.request().unwrap().demand();
            let amounts: Vec<u64> = demand.per_host().values().map(|amount| amount.0).collect();
            balanced += usize::from(amounts.iter().all(|amount| *amount == amounts[0]));
            let most = *amounts.iter().max().unwrap();
            let range = demand.scale().unwrap().range();
            let (least, largest) = (u64::from(range.start().thousandths()), u64::from(range.end().thousandths()));
            assert!(least * most >= 149_000 && largest * most <= 1_000_000 && least <= 1000 && largest >= 1000);
            assert!(if scenario.is_parallel { (1..=5).contains(&demand.seats()) } else { demand.seats() == 1 });
            ratios.push(largest as f64 / least as f64);
            lengths.push(serde_json::to_value(asked.request().unwrap()).unwrap()["duration"].clone());
        }
        let share = balanced * 100 / drawn.requests.len();
        assert!(share.abs_diff(scenario.balanced_percent as usize) <= 20, "{share} {scenario:?}");
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!((2.5..4.0).contains(&mean), "{mean}");
    assert!(lengths.iter().filter_map(Value::as_u64).all(|length| (7_200..=25_200).contains(&length)));
}

#[test]
fn gains_count_what_is_better_and_worse() {
    let gain = |run_time_percent| Gain { run_time_percent, last_end_hours: 1.0 };
    let gains = Gains::of(&[gain(4.0), gain(0.0), gain(-1.0), gain(9.0)]);
    assert_eq!((gains.improved, gains.equal, gains.worse, gains.earlier), (2, 1, 1, 4));
    assert!((gains.run_time_percent.mean - 3.0).abs() < 1e-9 && (gains.last_end_hours.mean - 1.0).abs() < 1e-9);
}

#[test]
fn a_threshold_that_hardly_any_two_jobs_keep_to_gains_less() {
    let progress = Progress::new("batches", 1);
    let thresholds = by_threshold(1, 1, &progress).unwrap();
    let of =
        |alpha, size| thresholds.iter().find(|row| (row.alpha_percent, row.size_percent) == (alpha, size)).unwrap();
    let source = of(10, 175).gains[0];
    assert_eq!(source.improved + source.equal + source.worse, 24);
    assert!(source.run_time_percent.mean > 0.0, "{source:?}");
    // Hardly any two jobs are as alike in size as that.
    assert!(of(10, 110).gains[0].run_time_percent.mean < source.run_time_percent.mean);
    let timed = times(1, &[5]).unwrap();
    assert!(timed[0].requests > 10 && timed[0].pairings > 0 && timed[0].seconds.iter().all(|seconds| *seconds > 0.0));
}

#[test]
fn every_kind_of_batches_is_a_scenario_in_both_orders() {
    let progress = Progress::new("batches", 1);
    let few: Vec<Scenario> = scenarios().into_iter().filter(|scenario| scenario.hosts == 5).collect();
    let rows = by_scenario(1, 1, &few, &progress).unwrap();
    let study = Colocation { seed: 1, batches: 1, scenarios: rows, thresholds: Vec::new(), times: Vec::new() };
    assert_eq!(study.scenarios.len(), 16);
    for rows in study.scenarios.chunks(2) {
        assert_eq!((rows[0].order, rows[1].order, rows[0].scenario), ("LJF", "HDF", rows[1].scenario));
        assert!(rows.iter().all(|row| row.gains[2][0].run_time_percent >= row.gains[0][0].run_time_percent));
        assert!(rows.iter().all(|row| row.gains[2][0].run_time_percent <= row.room_percent));
    }
    let text = text(&study);
    assert!(text.contains("last end") && text.contains("HDF"), "{text}");
}
