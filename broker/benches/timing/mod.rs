//! What benchmarks measure with.

use std::time::Instant;

/// What the work gives, and how long it took in milliseconds.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let started = Instant::now();
    let done = work();
    (done, started.elapsed().as_secs_f64() * 1e3)
}

/// The upper median.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Whether this is a run that measures, and not one of the tests.
pub fn is_bench() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}
