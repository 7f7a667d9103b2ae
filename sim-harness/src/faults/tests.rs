//! The simulator finds nothing where nothing is wrong, and finds every deliberate fault.

use super::{
    canary::Canary,
    runner::{run_seed, run_seeds},
};

/// Seeds within which every deliberate fault is found.
const FOUND_WITHIN: u64 = 200;

#[test]
fn promises_hold_whatever_goes_wrong() {
    let result = run_seeds(0, 400, None, &|_| {});
    if let Some((seed, violation)) = result.found {
        let history = run_seed(seed, None, true).history;
        panic!("{history}\n{violation:?}\nreplay: {}", super::report::replay_command(seed, None));
    }
    let figures = result.figures;
    for (name, value) in figures.rows().into_iter().filter(|(name, _)| *name != "violations") {
        assert!(value > 0, "the options are drawn so that {name} occur: {figures:?}");
    }
}

#[test]
fn every_deliberate_fault_is_found() {
    for canary in Canary::ALL {
        let result = run_seeds(0, FOUND_WITHIN, Some(canary), &|_| {});
        assert!(result.found.is_some(), "{} is not found within {FOUND_WITHIN} seeds", canary.name());
    }
}

#[test]
fn the_same_seed_takes_the_same_way() {
    for seed in 0..5 {
        let (first, second) = (run_seed(seed, None, true), run_seed(seed, None, true));
        assert_eq!(first.history, second.history);
        assert_eq!(first.figures, second.figures);
        assert!(first.history.lines().count() > 10);
    }
}
