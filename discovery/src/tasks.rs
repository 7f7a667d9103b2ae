//! The tasks of a node's discovery.
//!
//! Invariant: a task that ends, be it by a panic, is noted: a node whose page is up and whose part in the grid is gone helps nobody.

use std::future::Future;

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

/// The tasks of a node, which stop when this goes.
#[derive(Debug)]
pub(crate) struct Tasks {
    running: Vec<AbortHandle>,
    ended: watch::Sender<Option<&'static str>>,
}

/// Notes that a task has ended, however it did.
struct Note {
    name: &'static str,
    ended: watch::Sender<Option<&'static str>>,
}

impl Drop for Note {
    fn drop(&mut self) {
        self.ended.send_if_modified(|first| first.is_none() && first.replace(self.name).is_none());
    }
}

impl Tasks {
    /// No tasks.
    pub(crate) fn new() -> Tasks {
        Tasks { running: Vec::new(), ended: watch::Sender::new(None) }
    }

    /// Starts a task that does not end by itself.
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let note = Note { name, ended: self.ended.clone() };
        let running: JoinHandle<()> = tokio::spawn(async move {
            let _note = note;
            task.await;
        });
        self.running.push(running.abort_handle());
    }

    /// Starts a task that ends when another one does, which feeds it: the other one's end is told, and of this one a panic only.
    pub(crate) fn spawn_fed(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(name, async move {
            task.await;
            std::future::pending::<()>().await;
        });
    }

    /// The name of the first task that has ended, when one has.
    pub(crate) async fn ended(&self) -> &'static str {
        let mut ended = self.ended.subscribe();
        let first = ended.wait_for(Option::is_some).await.ok().and_then(|first| *first);
        // The sender is here.
        first.unwrap_or_default()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.running.iter().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_or_panics_is_named() {
        let mut tasks = Tasks::new();
        tasks.spawn("lasting", std::future::pending());
        tasks.spawn("panicking", async { panic!("on purpose") });
        assert_eq!(tasks.ended().await, "panicking");
        tasks.spawn("ending", async {});
        tokio::task::yield_now().await;
        assert_eq!(tasks.ended().await, "panicking", "the first one");
    }

    #[tokio::test]
    async fn of_a_task_that_another_one_feeds_only_a_panic_is_told() {
        let mut tasks = Tasks::new();
        tasks.spawn_fed("starved", async {});
        tokio::task::yield_now().await;
        tasks.spawn_fed("panicking", async { panic!("on purpose") });
        assert_eq!(tasks.ended().await, "panicking");
    }

    #[tokio::test]
    async fn they_stop_with_what_holds_them() {
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        let mut tasks = Tasks::new();
        tasks.spawn("lasting", async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(tasks);
        assert!(gone.await.is_err());
    }
}
