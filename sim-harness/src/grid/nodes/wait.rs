//! Waiting for a state of real processes, and doing things on several threads.
//!
//! Invariant: a wait has a deadline, checks for crashes and interrupts before every look, and names the last state when it fails.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A wait that reached its limit.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not within {limit_s} s; last state: {last}")]
pub struct Deadline {
    what: String,
    limit_s: u64,
    /// The state at the last look.
    pub last: String,
}

/// The run was ended by Ctrl-C or SIGTERM.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Ctrl-C, SIGTERM and SIGHUP as a flag that every wait looks at. Once set, it stays set. The nodes run in process groups of their
/// own, so a Ctrl-C in a terminal reaches only the harness, which then stops them in order.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for the signals; from then on none of them ends the process.
    pub fn install() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0)).context("cannot listen for signals")?;
        }
        Ok(interrupt)
    }

    /// Fails with [`Interrupted`] once a signal has come.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}

/// How patiently to wait, and for what.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// For the message at the deadline.
    pub what: &'a str,
    /// How long to go on.
    pub limit: Duration,
    /// Between two looks; times found have this resolution.
    pub pause: Duration,
}

impl Wait<'_> {
    /// Looks until the state is there. A look that does not find it describes the present state.
    ///
    /// # Errors
    /// [`Deadline`], and whatever `check` fails with.
    pub fn until<T>(
        &self,
        check: impl Fn() -> anyhow::Result<()>,
        mut look: impl FnMut() -> Result<T, String>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            check()?;
            match look() {
                Ok(found) => return Ok(found),
                Err(last) if begun.elapsed() >= self.limit => {
                    bail!(Deadline { what: self.what.to_owned(), limit_s: self.limit.as_secs(), last })
                }
                Err(_) => thread::sleep(self.pause),
            }
        }
    }
}

/// Does `work` on `count` threads, with the numbers from 0; results in their order. A panic goes on in the caller.
pub fn on_threads<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// What a mutex protects. A thread that panicked while it held the lock cannot have left it half-changed: in this room each
/// change is one step.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_names_the_last_state_and_the_check_comes_first() {
        let wait = |limit| Wait { what: "tea", limit, pause: Duration::ZERO };
        let error = wait(Duration::ZERO).until(|| Ok(()), || Err::<(), _>("cold".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "tea: not within 0 s; last state: cold");
        let interrupted = wait(Duration::ZERO).until(|| Err(Interrupted.into()), || Ok(1));
        assert!(interrupted.unwrap_err().is::<Interrupted>());
        let mut looks = 0;
        let look = || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(String::new()) }
        };
        assert_eq!(wait(Duration::from_secs(60)).until(|| Ok(()), look).unwrap(), 3);
    }
}
