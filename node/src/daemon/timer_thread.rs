//! The thread of libp2p's timers, in a process of many nodes.
//!
//! All timers of libp2p share one thread, which is woken whenever one is set or given up: some thousand times a second for
//! each hundred nodes. On busy processors each time costs two switches between threads, a fifth of the time of all in a grid
//! of a thousand. With a lower priority it waits until a worker pauses, and finds many at once; timers then ring some
//! milliseconds late. A node that has its process for itself is left as it is.

use std::fs;

use rustix::process::{Pid, setpriority_process};

/// The name that the `futures-timer` crate gives its thread.
const NAME: &str = "futures-timer";
/// Some tenth of a processor where all are busy, which is several times what it needs.
const NICENESS: i32 = 10;

/// Lowers the priority of the timers' thread, where there is one by now and the system shows its threads (Linux).
pub(super) fn give_way() {
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let is_timer = fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == NAME);
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        if let (true, Some(id)) = (is_timer, id)
            && let Err(error) = setpriority_process(Some(id), NICENESS)
        {
            tracing::debug!(%error, "the timers' thread keeps its priority");
        }
    }
}
