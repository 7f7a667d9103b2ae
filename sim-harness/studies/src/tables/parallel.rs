//! Experiments on all processors. Invariant: results come in the order of the experiments, whoever made them.

use std::{
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::anyhow;
use sim_kit::progress::Progress;

/// Makes the experiments from 0 on.
///
/// # Errors
/// The first one that an experiment has.
pub(super) fn all<T: Send>(
    count: u64,
    progress: &Progress,
    experiment: impl Fn(u64) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return anyhow::Ok(made);
            }
            made.push((number, experiment(number)?));
            progress.advance(1);
        }
    };
    let mut made = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..thread::available_parallelism().map_or(1, NonZero::get)).map(|_| scope.spawn(work)).collect();
        let mut made = Vec::new();
        for thread in threads {
            made.extend(thread.join().map_err(|_| anyhow!("an experiment has panicked"))??);
        }
        anyhow::Ok(made)
    })?;
    made.sort_by_key(|(number, _)| *number);
    Ok(made.into_iter().map(|(_, made)| made).collect())
}
