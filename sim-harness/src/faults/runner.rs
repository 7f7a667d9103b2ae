//! Runs seeds, on all processors, until they are done or one shows a violation.
//!
//! Invariant: the result does not depend on the number of processors: the violation reported is that of the lowest seed,
//! and the counts are those of all seeds up to it.

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{canary::Canary, figures::Figures, violation::Violation, world::World};

/// What came of a seed.
#[derive(Debug)]
pub struct SeedResult {
    /// What was counted.
    pub figures: Figures,
    /// What did not hold.
    pub violation: Option<Violation>,
    /// What happened, if it was to be kept.
    pub history: String,
}

/// What came of all seeds.
#[derive(Debug, Default)]
pub struct RunResult {
    /// What was counted.
    pub figures: Figures,
    /// The lowest seed in which something did not hold.
    pub found: Option<(u64, Violation)>,
}

/// Runs one seed. A panic in the core is a violation like any other.
pub fn run_seed(seed: u64, canary: Option<Canary>, keeps_history: bool) -> SeedResult {
    let mut world = World::of_seed(seed, canary, keeps_history);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(payload) = outcome {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        world.violate("nothing panics", None, text.unwrap_or_else(|| "a panic without a message".to_owned()));
        world.figures.violations = 1;
    }
    let violation = world.violation().cloned();
    let request = violation.as_ref().and_then(|violation| violation.request.as_ref());
    SeedResult { history: world.history(request), figures: world.figures, violation }
}

/// Runs `seeds` seeds from `from` on; calls `at` with the number of seeds that are done. Stops at the first violation.
pub fn run_seeds(from: u64, seeds: u64, canary: Option<Canary>, at: &(impl Fn(u64) + Sync)) -> RunResult {
    let next = AtomicU64::new(from);
    let end = AtomicU64::new(from.saturating_add(seeds));
    let results: Mutex<BTreeMap<u64, SeedResult>> = Mutex::new(BTreeMap::new());
    let sum: Mutex<(Figures, u64)> = Mutex::new((Figures::default(), from));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return;
            }
            let result = run_seed(seed, canary, false);
            if result.violation.is_some() {
                // Lower seeds are under way already; higher ones need not be begun.
                end.fetch_min(seed + 1, Ordering::Relaxed);
            }
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.insert(seed, result);
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            // Clean seeds are added up in order, so that few results are kept.
            while let Some(clean) = results.first_entry().filter(|first| *first.key() == sum.1)
                && clean.get().violation.is_none()
            {
                let (figures, count) = &mut *sum;
                figures.add(&clean.remove().figures);
                *count += 1;
                at(*count - from);
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut figures, _) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut found = None;
    if let Some((seed, first)) = results.pop_first() {
        figures.add(&first.figures);
        found = first.violation.map(|violation| (seed, violation));
    }
    RunResult { figures, found }
}
