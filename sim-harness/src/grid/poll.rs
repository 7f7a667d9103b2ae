//! Looking at many nodes until each of them is in a wanted state.
//!
//! Invariant: at most [`WORKERS`] calls are under way at a time, so that the looking leaves the processors to the nodes.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    client::ClientError,
    cluster::{Cluster, Node},
    error::GridError,
    wait::Look,
};

const WORKERS: usize = 4;

/// What to wait for at each node, and how patiently.
pub struct Poll<'a> {
    /// For the message at the deadline.
    pub what: &'a str,
    /// How long to go on.
    pub limit: Duration,
    /// Between two looks at one node; times found have this resolution.
    pub pause: Duration,
}

impl Poll<'_> {
    /// Looks at `nodes` (positions in the cluster) until each is done; results come in the order of `nodes`.
    ///
    /// # Errors
    /// [`GridError::Deadline`] naming one node that is not there yet, [`GridError::Crashed`], [`GridError::Interrupted`].
    /// A failing call counts as "not yet".
    pub fn each<T: Send>(
        &self,
        cluster: &Cluster,
        nodes: &[usize],
        look: impl Fn(&Node) -> Result<Look<T>, ClientError> + Sync,
    ) -> Result<Vec<T>, GridError> {
        self.each_telling(cluster, nodes, look, |_| ())
    }

    /// The same, and tells how many are done whenever one more is.
    ///
    /// # Errors
    /// As [`Poll::each`].
    pub fn each_telling<T: Send>(
        &self,
        cluster: &Cluster,
        nodes: &[usize],
        look: impl Fn(&Node) -> Result<Look<T>, ClientError> + Sync,
        tell: impl Fn(usize) + Sync,
    ) -> Result<Vec<T>, GridError> {
        let given_up = AtomicBool::new(false);
        let done = AtomicUsize::new(0);
        let begun = Instant::now();
        let look = |node: &Node| {
            let found = look(node);
            if matches!(found, Ok(Look::Done(_))) {
                tell(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
            found
        };
        let worker = |mine: Vec<usize>| {
            let result = self.some(cluster, &mine, begun, &given_up, &look);
            if result.is_err() {
                given_up.store(true, Ordering::Relaxed);
            }
            result
        };
        let shares: Vec<Vec<usize>> =
            (0..WORKERS).map(|first| nodes.iter().skip(first).step_by(WORKERS).copied().collect()).collect();
        let found = thread::scope(|scope| {
            let workers: Vec<_> = shares.iter().map(|mine| scope.spawn(|| worker(mine.clone()))).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        let mut columns = Vec::new();
        for result in found {
            columns.push(result?.into_iter());
        }
        Ok((0..nodes.len()).filter_map(|position| columns[position % WORKERS].next()).collect())
    }

    fn some<T>(
        &self,
        cluster: &Cluster,
        mine: &[usize],
        begun: Instant,
        given_up: &AtomicBool,
        look: &impl Fn(&Node) -> Result<Look<T>, ClientError>,
    ) -> Result<Vec<T>, GridError> {
        let mut found: Vec<Option<T>> = mine.iter().map(|_| None).collect();
        loop {
            let mut last = None;
            for (slot, index) in found.iter_mut().zip(mine).filter(|(slot, _)| slot.is_none()) {
                cluster.check()?;
                let node = &cluster.nodes[*index];
                match look(node) {
                    Ok(Look::Done(value)) => *slot = Some(value),
                    Ok(Look::NotYet(state)) => last = Some(format!("{}: {state}", node.name)),
                    Err(error) => last = Some(format!("{}: {error}", node.name)),
                }
            }
            let Some(last) = last else { return Ok(found.into_iter().flatten().collect()) };
            if begun.elapsed() >= self.limit || given_up.load(Ordering::Relaxed) {
                return Err(GridError::Deadline { what: self.what.to_owned(), limit: self.limit, last });
            }
            thread::sleep(self.pause);
        }
    }
}
