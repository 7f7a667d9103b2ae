//! Waiting for a state of real processes: with a deadline, a check for crashes and interrupts at every look, and the
//! last state in the message.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::error::GridError;

/// What one look found.
pub enum Look<T> {
    /// The state is there.
    Done(T),
    /// Not yet; how it is instead.
    NotYet(String),
}

/// Looks every `pause` until the state is there.
///
/// # Errors
/// [`GridError::Deadline`] after `limit`, and whatever `check` or `look` fails with.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    pause: Duration,
    check: impl Fn() -> Result<(), GridError>,
    mut look: impl FnMut() -> Result<Look<T>, GridError>,
) -> Result<T, GridError> {
    let begun = Instant::now();
    loop {
        check()?;
        let last = match look()? {
            Look::Done(found) => return Ok(found),
            Look::NotYet(state) => state,
        };
        if begun.elapsed() >= limit {
            return Err(GridError::Deadline { what: what.to_owned(), limit, last });
        }
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_tells_the_last_state_and_the_check_comes_first() {
        let pause = Duration::from_millis(1);
        let error = wait_until("tea", Duration::ZERO, pause, || Ok(()), || Ok(Look::<()>::NotYet("cold".to_owned())));
        assert_eq!(error.unwrap_err().to_string(), "tea: not within 0 s; last state: cold");
        let interrupted = wait_until("tea", pause, pause, || Err(GridError::Interrupted), || Ok(Look::Done(1)));
        assert!(matches!(interrupted, Err(GridError::Interrupted)));
        let mut looks = 0;
        let found = wait_until(
            "tea",
            Duration::from_secs(60),
            Duration::ZERO,
            || Ok(()),
            || {
                looks += 1;
                Ok(if looks == 3 { Look::Done(looks) } else { Look::NotYet(String::new()) })
            },
        );
        assert_eq!(found.unwrap(), 3);
    }
}
