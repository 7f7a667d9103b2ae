//! What an administrator decides about planning.
//!
//! Invariant: settings that passed [`Settings::check`] begin with at least one host for each asked and never grow past
//! the largest M.

use serde::{Deserialize, Serialize};

use crate::{request::Effort, time::Span};

/// Settings of the planner. Every key may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Effort of requests that ask for none.
    pub effort: Effort,
    /// M of the first round of phase I, at least 1: it asks for M N hosts.
    pub m_init: u32,
    /// The largest M, at least `m_init`.
    pub m_max: u32,
    /// From the earliest to the latest start of requests that leave the latest open (the source's `t_C`).
    pub default_reach: Span,
}

impl Default for Settings {
    /// The source settles on 3 for the first M (section 3.4.3) and leaves the largest open. Here it is 24, three
    /// doublings: beyond 24 hosts for each one asked a request hardly ever becomes solvable, but every round costs all
    /// sites that are asked.
    fn default() -> Self {
        Settings { effort: Effort::Balanced, m_init: 3, m_max: 24, default_reach: Span(24 * 3600) }
    }
}

/// Settings that contradict themselves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// M starts below 1.
    #[error("m_init: expected at least 1")]
    InitialIsZero,
    /// M ends before it starts.
    #[error("m_max: expected at least m_init ({m_init}), got {m_max}")]
    LargestBelowInitial {
        /// M of the first round.
        m_init: u32,
        /// The largest M.
        m_max: u32,
    },
    /// The reach is beyond all accepted times.
    #[error("default_reach: expected at most {max} seconds, got {0}", max = Span::MAX.0)]
    ReachTooLong(u64),
}

impl Settings {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`SettingsError`] names the key.
    pub fn check(&self) -> Result<(), SettingsError> {
        let Settings { m_init, m_max, default_reach, .. } = *self;
        match (m_init, m_max) {
            (0, _) => Err(SettingsError::InitialIsZero),
            _ if m_max < m_init => Err(SettingsError::LargestBelowInitial { m_init, m_max }),
            _ if default_reach > Span::MAX => Err(SettingsError::ReachTooLong(default_reach.0)),
            _ => Ok(()),
        }
    }

    /// M of the round after the one with `m`; `None` when that was the last.
    #[must_use]
    pub fn next_m(&self, m: u32) -> Option<u32> {
        m.checked_mul(2).filter(|next| *next <= self.m_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_and_m_doubles_up_to_its_largest() {
        let settings = Settings::default();
        assert_eq!(settings.check(), Ok(()));
        assert_eq!([3, 6, 12, 24].map(|m| settings.next_m(m)), [Some(6), Some(12), Some(24), None]);
        assert_eq!(Settings { m_init: 0, ..settings }.check(), Err(SettingsError::InitialIsZero));
        let swapped = Settings { m_init: 4, m_max: 3, ..settings };
        assert_eq!(swapped.check(), Err(SettingsError::LargestBelowInitial { m_init: 4, m_max: 3 }));
        assert!(Settings { default_reach: Span(u64::MAX), ..settings }.check().is_err());
    }
}
