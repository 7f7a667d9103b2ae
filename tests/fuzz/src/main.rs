//! Runs one fuzz target under libFuzzer; the environment variable `FUZZ_TARGET` names it, or lists all with `list`.
//! Started by `scripts/fuzz`.
#![no_main]

use std::{process, sync::LazyLock};

use fuzz_targets::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    if name == "list" {
        TARGETS.iter().for_each(|target| println!("target {}", target.name));
        process::exit(0);
    }
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        eprintln!("FUZZ_TARGET={name:?} names no target");
        process::exit(64)
    })
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
