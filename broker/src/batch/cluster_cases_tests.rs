//! The published cases of communicating jobs over clusters: plans fit together, and are as short as the references say.
//!
//! They are looked for in `shared/data/multicluster` beside the checkout or a directory above it. Without them each test says so on
//! standard error and in the list that `KOLO_SKIPPED` names, and passes; where `CI` is set it fails.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::*;
use crate::{phases::Settings, request::Effort, snapshot::GridSnapshot};

/// The cases of a set; else reports that the test is skipped.
fn cases(test: &str, set: &str) -> Vec<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut beside =
        checkout.ancestors().skip(2).take(3).map(|folder| folder.join("shared/data/multicluster").join(set));
    if let Some(folder) = beside.find(|folder| folder.is_dir()) {
        let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        cases.sort();
        assert!(!cases.is_empty());
        return cases;
    }
    let line = format!("{test}: no published cases in shared/data/multicluster/{set}");
    assert!(env::var_os("CI").is_none(), "{line}; where CI is set they must be there");
    writeln!(io::stderr(), "SKIPPED: {line}").unwrap();
    if let Some(list) = env::var_os("KOLO_SKIPPED") {
        writeln!(OpenOptions::new().append(true).create(true).open(list).unwrap(), "{line}").unwrap();
    }
    Vec::new()
}

/// The figures of a policy on a case, all plans of which fit together, and the makespan of the reference.
fn judged(case: &Path, policy: &str) -> (BatchLine, i64) {
    judged_with(case, policy, Effort::default())
}

fn judged_with(case: &Path, policy: &str, effort: Effort) -> (BatchLine, i64) {
    let read = |name: &str| fs::read_to_string(case.join(name)).unwrap();
    let settings = Settings { effort, ..Settings::default() };
    let planner = OfflinePlanner::new(GridSnapshot::read(&read("grid.json")).unwrap(), settings, 1, false);
    let requests = read("requests.jsonl");
    let asked: Vec<Asked> =
        (1..).zip(requests.lines()).map(|(number, line)| planner.read_line(number, line).unwrap()).collect();
    let of = policy_named(policy).unwrap();
    let answer = plan(&*of, &planner, &asked, &Options::default(), Watch::NOBODY).unwrap();
    let mut snapshot = planner.clone();
    for plan in answer.lines.iter().filter_map(|line| line.outcome.plan()) {
        assert!(snapshot.admits(plan), "{} {policy}", case.display());
        snapshot.occupy(plan);
    }
    // On an idle grid the literal choice may be more than an uplink carries; then it waits for ever.
    assert!(answer.batch.postponed == 0 || policy == "mesd:literal", "{} {policy}", case.display());
    let reference: serde_json::Value = serde_json::from_str(&read("reference.jsonl")).unwrap();
    (answer.batch, reference["batch"]["value"].as_i64().unwrap())
}

#[test]
fn small_and_middle_cases_are_solved_to_the_proof() {
    for set in ["small", "middle"] {
        for case in cases("small_and_middle_cases_are_solved_to_the_proof", set) {
            let (batch, best) = judged(&case, "oas");
            let objective = batch.objective;
            assert_eq!((objective.value, objective.bound), (best, Some(best)), "{}", case.display());
        }
    }
}

/// With a hundredth of the usual work; `kolo plan --batch oas` does all of it.
#[test]
fn larger_cases_are_near_the_best_known_and_their_bounds_near_that() {
    for case in cases("larger_cases_are_near_the_best_known_and_their_bounds_near_that", "medium").iter().take(2) {
        let (batch, best) = judged_with(case, "oas", Effort::Fast);
        let (value, bound) = (batch.objective.value, batch.objective.bound.unwrap());
        assert!(value * 100 <= best * 106 && value * 100 <= bound * 112, "{}: {value}, {bound}", case.display());
    }
}

#[test]
fn slots_of_time_cost_makespan() {
    let cases = cases("slots_of_time_cost_makespan", "small");
    let ratio = |case: &PathBuf| {
        let (batch, best) = judged(case, "oas:slots");
        assert!(batch.makespan >= best, "{}", case.display());
        batch.makespan as f64 / best as f64
    };
    let ratios: Vec<f64> = cases.iter().map(ratio).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    assert!(mean < 1.5, "{mean}");
    eprintln!("mean of oas:slots: {mean:.3}");
}

#[test]
fn the_fast_policies_place_everything() {
    for set in ["small", "middle", "medium"] {
        for policy in ["mesd", "mesd:literal", "pas", "cbs", "jpr"] {
            let cases = cases("the_fast_policies_place_everything", set);
            let ratio = |case: &PathBuf| {
                let (batch, best) = judged(case, policy);
                assert!(
                    set == "medium" || batch.postponed > 0 || batch.makespan >= best,
                    "{policy} {}",
                    case.display()
                );
                batch.makespan as f64 / best as f64
            };
            let ratios: Vec<f64> = cases.iter().map(ratio).collect();
            let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
            assert!(mean <= if policy == "mesd" && set == "small" { 1.12 } else { 2.0 }, "{set} {policy} {mean}");
        }
    }
}
