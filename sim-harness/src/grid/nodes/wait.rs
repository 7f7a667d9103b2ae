//! Waiting for a state of real processes: with a deadline, a check for crashes and interrupts at every look, and the last
//! state in the message.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A wait that reached its limit.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not within {limit_s} s; last state: {last}", limit_s = .limit.as_secs())]
pub struct Deadline {
    what: String,
    limit: Duration,
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

/// The result of one look.
pub enum Look<T> {
    /// The state is there.
    Done(T),
    /// Not yet; the present state.
    NotYet(String),
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
    /// Looks until the state is there.
    ///
    /// # Errors
    /// [`Deadline`], and whatever `check` or `look` fails with.
    pub fn until<T>(
        &self,
        check: impl Fn() -> anyhow::Result<()>,
        mut look: impl FnMut() -> anyhow::Result<Look<T>>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            check()?;
            let last = match look()? {
                Look::Done(found) => return Ok(found),
                Look::NotYet(state) => state,
            };
            if begun.elapsed() >= self.limit {
                return Err(Deadline { what: self.what.to_owned(), limit: self.limit, last }.into());
            }
            thread::sleep(self.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_names_the_last_state_and_the_check_comes_first() {
        let wait = |limit| Wait { what: "tea", limit, pause: Duration::ZERO };
        let error = wait(Duration::ZERO).until(|| Ok(()), || Ok(Look::<()>::NotYet("cold".to_owned()))).unwrap_err();
        assert_eq!(error.to_string(), "tea: not within 0 s; last state: cold");
        let interrupted = wait(Duration::ZERO).until(|| Err(Interrupted.into()), || Ok(Look::Done(1)));
        assert!(interrupted.unwrap_err().is::<Interrupted>());
        let mut looks = 0;
        let look = || {
            looks += 1;
            Ok(if looks == 3 { Look::Done(looks) } else { Look::NotYet(String::new()) })
        };
        assert_eq!(wait(Duration::from_secs(60)).until(|| Ok(()), look).unwrap(), 3);
    }
}
