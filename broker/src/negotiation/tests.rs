//! Ledgers and negotiations against each other over a network that loses, repeats, delays and reorders messages, with
//! crashes of any site at any step. Wholly governed by a seed; a failing seed prints how to replay it.

mod world;

use self::world::{Options, World};

/// Runs one seed; the panic message tells how to run just that one again.
fn run_seeds(test: &str, seeds: std::ops::Range<u64>, options: impl Fn(u64) -> Options) {
    #[expect(clippy::disallowed_methods, reason = "replays a single seed; the core itself reads no environment")]
    let only: Option<u64> = std::env::var("KOLO_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = only.map_or(seeds, |seed| seed..seed + 1);
    let (mut stands, mut closed) = (0, 0);
    for seed in seeds {
        let mut world = World::new(seed, options(seed));
        let result = world.run();
        if let Err(what) = result {
            panic!(
                "seed {seed}: {what}\nreplay: KOLO_TEST_SEED={seed} cargo test -p broker {test} -- --nocapture\n{}",
                world.history()
            );
        }
        stands += world.standing();
        closed += world.closed();
    }
    if only.is_none() {
        assert!(stands > 0 && closed > 0, "the options are drawn so that both ends occur: {stands}, {closed}");
    }
}

#[test]
fn every_request_ends_well_without_faults() {
    run_seeds("every_request_ends_well_without_faults", 0..60, |_| Options::default());
}

#[test]
fn lost_repeated_and_reordered_messages_break_nothing() {
    run_seeds("lost_repeated_and_reordered_messages_break_nothing", 0..150, |seed| Options {
        loss_percent: seed % 25,
        repeat_percent: seed % 20,
        stale_percent: 30,
        cancel_percent: 10,
        crash_per_mille: 0,
    });
}

#[test]
fn crashes_break_nothing() {
    run_seeds("crashes_break_nothing", 0..250, |seed| Options {
        loss_percent: seed % 10,
        repeat_percent: seed % 10,
        stale_percent: 20,
        cancel_percent: 10,
        crash_per_mille: 5 + seed % 20,
    });
}

#[test]
fn the_same_seed_takes_the_same_way() {
    let run = || {
        let options = Options { loss_percent: 10, repeat_percent: 10, crash_per_mille: 10, ..Options::default() };
        let mut world = World::new(7, options);
        world.run().unwrap();
        world.history()
    };
    assert_eq!(run(), run());
}
