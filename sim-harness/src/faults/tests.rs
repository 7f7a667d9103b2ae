//! The simulator finds nothing where nothing is wrong, and finds every deliberate fault.

use std::collections::BTreeSet;

use broker::{negotiation::FoundHost, request::Request};
use clap::ValueEnum;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    canary::Canary,
    figures::Figures,
    runner::{replay_command, run_seed, run_seeds},
    trial::{HARDER_FROM, Trial},
};
use crate::engine::Moment;

/// Seeds within which every deliberate fault is found, from 0 or from [`HARDER_FROM`] on.
const FOUND_WITHIN: u64 = 200;

#[test]
fn promises_hold_whatever_goes_wrong() {
    let mut figures = Figures::default();
    for from in [0, HARDER_FROM] {
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
    // Silence from before a host was replaced; a host that two attempts name; a participant that called an attempt dead that had
    // been complete; a host that began after it was dropped; one whose reservation moves; takeovers that met a crash, each
    // other, or a node that never comes back; a host that is full, which is no replacement; a part that was given back and
    // forgotten while another site did not know that the attempt was complete; an answer that came too late for its round; a
    // site that was silent and then says what it does not have; two nodes that took over at one time, or at two ends of a cut,
    // and had no booking in common; what an entry point that is gone for good had brought in after a takeover; an entry point
    // that called an attempt dead which it was confirming; takeovers that settled what was never complete, and whose node was
    // gone before it had committed or taken it back; a participant that had confirmed and given back before another confirmed; one that was replaced and
    // forgot in a restart that all had confirmed, while the coordinator said that they had; a move to other hosts at the same start;
    // two nodes that took over one after the other; a seat that had ended while that of another site had not; an answer to an earlier
    // question whether all is there; a takeover that gave back what a silent site had of a reported reservation; a
    // restart after a seat had ended whose host had gone to another; a site that was reported as
    // silent and had answered late.
    let seeds = [
        3_929,
        1_007_696,
        1_019_448,
        1_000_230,
        118,
        500_541,
        505_103,
        523_862,
        534_764,
        535_283,
        7_019_496,
        7_004_690,
        7_010_827,
        7_016_471,
        7_024_949,
        846,
        40_010_893,
        242_228,
        286_324,
        238_929,
        245_889,
        314_059_489,
        777_025_055,
        1_200_224_123,
        1_200_274_362,
        1_200_343_184,
        357_069_791_523,
        357_069_799_474,
        905_864_829_659,
        864_939_435,
        147_147_737_488,
        5_616_632_279_420,
        3_362_963_685_063,
        395,
        2_847_388_421_727,
        2_821_125_899_200,
    ];
    for seed in seeds {
        let result = run_seed(seed, None, false);
        assert_eq!(result.violation, None, "replay: {}", replay_command(seed, None));
    }
    assert!(run_seed(395, None, false).figures.moved > 0, "one of them is about a move");
}

#[test]
fn every_deliberate_fault_is_found() {
    for canary in Canary::value_variants() {
        let is_found = |from| run_seeds(from, FOUND_WITHIN, Some(*canary), |_| {}).found.is_some();
        assert!(is_found(0) || is_found(HARDER_FROM), "{} is not found within {FOUND_WITHIN} seeds", canary.name());
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

/// Phase I against what a request means, written out: also with totals only, and with named candidates.
#[test]
fn hosts_are_found_that_could_serve_and_no_others() {
    let mut with_totals_only = 0;
    for seed in 0..30 {
        let mut trial = Trial::of_seed(seed, None, false);
        while trial.advance(Moment(20_000_000)) {}
        let anything = serde_json::from_str(r#"{"hosts":1,"duration":1}"#).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let grid = &trial.world.grid;
        for node in 0..grid.nodes.len() {
            let look_for = |request: &Request| {
                let running = grid.nodes[node].running()?;
                let found =
                    running.views.find(&running.machines.ledger, request.demand(), &BTreeSet::new(), grid.clock(node));
                Some(found.0.hosts)
            };
            let all = look_for(&anything).unwrap_or_default();
            let names: Vec<_> = all.iter().flat_map(|found| found.host.capacity.keys()).cloned().collect();
            for n in (1..=4_u64).filter(|_| !names.is_empty()) {
                let name = &names[random.random_range(0..names.len())];
                let (least, total) = (random.random_range(0..6_000_u64), random.random_range(0..6_u64));
                let with_least = random.random_bool(0.5);
                let per_host = if with_least { format!(r#""{name}":{least}"#) } else { String::new() };
                let named = random.random_bool(0.3) && all.len() as u64 > n;
                let few: Vec<String> =
                    all[..all.len() / 2 + 1].iter().map(|f| format!("{}/{}", f.site, f.host.id)).collect();
                let candidates =
                    if named && few.len() as u64 >= n { serde_json::json!(few) } else { serde_json::Value::Null };
                let request = format!(
                    r#"{{"hosts":{n},"duration":1,"per_host":{{{per_host}}},"total":{{"{name}":{total}}},"candidates":{candidates}}}"#
                );
                let request: Request = serde_json::from_str(&request).unwrap();
                let least = if with_least { least } else { u64::from(total >= n) };
                let fits = |found: &&FoundHost| {
                    found.host.capacity.get(name).map_or(0, |amount| amount.0) >= least
                        && (candidates.is_null() || few.contains(&format!("{}/{}", found.site, found.host.id)))
                };
                let id = |found: &FoundHost| (found.site.clone(), found.host.id.clone());
                let expected: Vec<_> = all.iter().filter(fits).map(id).collect();
                let found = look_for(&request).unwrap_or_default();
                assert_eq!(found.iter().map(id).collect::<Vec<_>>(), expected, "seed {seed}: {request:?}");
                with_totals_only += usize::from(!with_least && !expected.is_empty());
            }
        }
    }
    assert!(with_totals_only > 20, "{with_totals_only}");
}
