//! Planning of requests, beside the messages of the node.
//!
//! Invariant: long planning never runs on all processors at once, so one is left for messages, and other tasks never wait for it;
//! what is more waits for its turn, first come, first served. A batch may take long, so it has no turn that others wait for: one at a
//! time runs on a thread of its own.

use std::{sync::Arc, thread::available_parallelism};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Planning with so many hosts takes some 50 us, less than it costs to let other tasks move to another thread.
const INLINE_HOSTS_MAX: usize = 64;

/// Where a node plans; clones share the turns.
#[derive(Clone)]
pub struct Planning {
    turns: Arc<Semaphore>,
    /// Of those who only look: one of them at a time waits for a turn, so that requests have theirs in between.
    looks: Arc<Semaphore>,
    batches: Arc<Semaphore>,
}

impl Default for Planning {
    fn default() -> Planning {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        let turns = Arc::new(Semaphore::new(processors.saturating_sub(1).max(1)));
        Planning { turns, looks: Arc::new(Semaphore::new(1)), batches: Arc::new(Semaphore::new(1)) }
    }
}

impl Planning {
    /// Does what looks at so many `hosts`; if these are many, when it is its turn.
    pub async fn run<T>(&self, hosts: usize, work: impl FnOnce() -> T) -> T {
        if hosts <= INLINE_HOSTS_MAX {
            return work();
        }
        // Closed never.
        let _turn = self.turns.acquire().await;
        tokio::task::block_in_place(work)
    }

    /// The same for a plan that nothing is held for.
    pub async fn look<T>(&self, hosts: usize, work: impl FnOnce() -> T) -> T {
        let _look = if hosts > INLINE_HOSTS_MAX { self.looks.acquire().await.ok() } else { None };
        self.run(hosts, work).await
    }

    /// The turn for a batch; none when there is another one.
    pub fn batch(&self) -> Option<BatchTurn> {
        self.batches.clone().try_acquire_owned().ok().map(BatchTurn)
    }
}

/// The turn for a batch.
pub struct BatchTurn(OwnedSemaphorePermit);

impl BatchTurn {
    /// Does what plans it; none when the node ends. Whoever has asked may go away.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let planned = tokio::task::spawn_blocking(move || {
            let _turn = self.0;
            work()
        });
        planned.await.ok()
    }
}
