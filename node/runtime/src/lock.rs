//! Locks around what is valid after every single operation, so that a panic elsewhere does not make it worthless.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the lock, whether or not a holder has panicked.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
