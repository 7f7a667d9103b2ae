//! What one event may cost a state machine: so many calls of its books, and so many outputs. More is a loop that does not end, or nearly so:
//! a node would hang and fill its memory.
//!
//! Invariant: counts calls, not time, so a seed ends at the same call on every machine.

use std::cell::Cell;

/// Most calls of books for one event; a plan of a full own queue with jobs that may be stopped looks at each host for each of them.
pub const CALLS_MAX: u64 = 1_000_000;
/// Most outputs of one event.
pub const OUTPUTS_MAX: usize = 2_000;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// An event begins.
pub fn begin() {
    CALLS.set(0);
}

/// Counts calls of books.
///
/// # Panics
/// Beyond [`CALLS_MAX`] for one event, which ends the seed as any panic of the core does.
pub fn note_calls(calls: u64) {
    let all = CALLS.get() + calls;
    CALLS.set(all);
    assert!(all <= CALLS_MAX, "one event costs more than {CALLS_MAX} calls of the books");
}

/// Checks how many outputs an event has had.
///
/// # Panics
/// Beyond [`OUTPUTS_MAX`].
pub fn note_outputs(outputs: usize) {
    assert!(outputs <= OUTPUTS_MAX, "one event has more than {OUTPUTS_MAX} outputs");
}
