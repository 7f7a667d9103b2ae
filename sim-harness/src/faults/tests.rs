//! The simulator finds nothing where nothing is wrong, and finds every deliberate fault.

use std::{sync::Mutex, thread};

use clap::ValueEnum;

use super::{
    canary::Canary,
    figures::Figures,
    runner::{replay_command, run_seed, run_seeds},
    trial::{
        CLASSED_FROM, DRAINED_FROM, HARDEST_FROM, HOARDED_FROM, LINKED_FROM, PRICED_FROM, QUEUED_FROM, RULED_FROM,
        SCALED_FROM, SHAPED_FROM, TIED_FROM, WAITED_FROM,
    },
};

/// From where seeds are run: each range has what the one before has, and more.
const RANGES: [u64; 13] = [
    0,
    HARDEST_FROM,
    PRICED_FROM,
    SHAPED_FROM,
    LINKED_FROM,
    TIED_FROM,
    DRAINED_FROM,
    HOARDED_FROM,
    CLASSED_FROM,
    QUEUED_FROM,
    SCALED_FROM,
    WAITED_FROM,
    RULED_FROM,
];
/// Seeds within which every deliberate fault is found in one of the [`RANGES`].
const FOUND_WITHIN: u64 = 200;

#[test]
fn promises_hold_whatever_goes_wrong() {
    let mut figures = Figures::default();
    for from in RANGES {
        let result = run_seeds(from, 200, None, |_| {});
        if let Some((seed, violation)) = result.found {
            let history = run_seed(seed, None, true).history;
            panic!("{history}\n{violation:?}\nreplay: {}", replay_command(seed, None));
        }
        figures.add(&result.figures);
    }
    // Moves are rare: the same start is nearly always found again.
    for (name, value) in figures.rows().into_iter().filter(|(name, _)| !["violations", "moved"].contains(name)) {
        assert!(value > 0, "the options are drawn so that {name} occur: {figures:?}");
    }
}

#[test]
fn seeds_that_once_broke_a_promise_do_not_again() {
    let lines = include_str!("broke.txt").lines().filter(|line| !line.starts_with('#'));
    let seeds = lines.flat_map(str::split_whitespace).map(|seed| seed.parse().unwrap());
    for seed in seeds {
        let result = run_seed(seed, None, false);
        assert_eq!(result.violation, None, "replay: {}", replay_command(seed, None));
    }
    assert!(run_seed(395, None, false).figures.moved > 0, "one of them is about a move");
}

#[test]
fn every_deliberate_fault_is_found() {
    let canaries = Mutex::new(Canary::value_variants().iter());
    let next = || canaries.lock().unwrap().next();
    let look = || {
        while let Some(canary) = next() {
            let is_found = |from: &u64| run_seeds(*from, FOUND_WITHIN, Some(*canary), |_| {}).found.is_some();
            // The last ranges have most of what goes wrong.
            assert!(RANGES.iter().rev().any(is_found), "{} is not found within {FOUND_WITHIN} seeds", canary.name());
        }
    };
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(look))));
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
