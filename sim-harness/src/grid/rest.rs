//! Waiting until the nodes are at rest, so that a load meets a grid and not the last of its forming.
//!
//! A grid that knows everything is still busy for some seconds: it publishes its index and checks what it has learnt.
//! Invariant: the wait ends after [`REST_LIMIT`] whatever the nodes do.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{cluster::Cluster, error::GridError};

/// Longest wait.
const REST_LIMIT: Duration = Duration::from_secs(60);
/// Over which the processor time is looked at.
const WINDOW: Duration = Duration::from_secs(2);
/// At rest the nodes use less than this share of all processors together.
const BUSY_SHARE: f64 = 0.2;

/// Waits until the nodes use little processor time; how long that took. Where nothing tells how much they use, it does
/// not wait.
///
/// # Errors
/// [`GridError`] when a process ends by itself or the run is interrupted.
pub fn wait(cluster: &Cluster) -> Result<Duration, GridError> {
    let begun = Instant::now();
    let processors = thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let enough = WINDOW.mul_f64(processors * BUSY_SHARE);
    while begun.elapsed() < REST_LIMIT {
        let Some(before) = cluster.processor_time() else { break };
        cluster.pass(WINDOW)?;
        let used = cluster.processor_time().map_or(Duration::ZERO, |after| after.saturating_sub(before));
        if used < enough {
            break;
        }
    }
    Ok(begun.elapsed())
}
