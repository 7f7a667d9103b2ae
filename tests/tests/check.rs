//! What `scripts/check` says of the tests that ran, by `scripts/tests-run`.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use std::{fs, path::Path, process::Command};

use end_to_end::{Ended, run};

/// A test binary in the output of `cargo test`.
fn suite(name: &str, passed: u32, seconds: &str) -> String {
    format!(
        "     Running tests/{name}.rs (target/debug/deps/{name}-26de0ed6a0e75a39)\n\nrunning 9 tests\ntest a ... ok\n\n\
         test result: ok. {passed} passed; 0 failed; 7 ignored; 0 measured; 0 filtered out; finished in {seconds}s\n\n"
    )
}

fn read(log: &str) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, log).unwrap();
    run(Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tests-run")).arg(path))
}

#[test]
fn the_tests_are_counted_and_the_ten_slowest_binaries_named() {
    let suites: String = (1..=12).map(|number| suite(&format!("s{number}"), number, &format!("{number}.25"))).collect();
    let ended = read(&format!("   Compiling broker v0.1.0\n{suites}"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<Vec<&str>> = ended.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["12.25", "s", "12", "tests", "s12", "tests/s12.rs"]);
    assert_eq!((lines.len(), lines[9][0]), (11, "3.25"));
    assert_eq!(ended.out.lines().last(), Some("78 tests ran in 12 binaries"));
}

#[test]
fn a_binary_that_ran_no_test_is_named_and_fails() {
    let ended = read(&[suite("some", 3, "0.10"), suite("none", 0, "0.00")].concat());
    assert_eq!((ended.code, ended.err.trim()), (Some(1), "no test ran: none tests/none.rs"), "{ended:?}");
    assert_eq!(read("   Compiling broker v0.1.0\n").code, Some(1));
}
