//! One-time links and sessions of browsers.
//!
//! Invariant: a link opens one session, within [`LINK_LIFE`]; what is handed out is random and never written down, so a
//! restart of the node ends all sessions. At most [`SESSIONS_MAX`] sessions and [`LINKS_MAX`] links exist; the oldest go.

use std::{
    collections::VecDeque,
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::{
    runtime::lock::locked,
    trust::{Secret, TrustFileError},
};

/// How long a one-time link may be used.
pub const LINK_LIFE: Duration = Duration::from_secs(120);
/// How long a session lasts.
pub const SESSION_LIFE: Duration = Duration::from_hours(12);
/// Most links that wait to be used.
const LINKS_MAX: usize = 16;
/// Most sessions.
const SESSIONS_MAX: usize = 64;

/// Secrets that are valid until some time, oldest first.
#[derive(Default)]
struct Secrets(VecDeque<(Secret, Instant)>);

impl Secrets {
    fn add(&mut self, secret: Secret, until: Instant, most: usize) {
        while self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back((secret, until));
    }

    fn position(&self, shown: &str, now: Instant) -> Option<usize> {
        self.0.iter().position(|(secret, until)| now < *until && secret.is(shown))
    }
}

/// Links and sessions of this node.
#[derive(Default)]
pub struct Sessions {
    links: Mutex<Secrets>,
    sessions: Mutex<Secrets>,
}

impl Sessions {
    /// Makes the code of a one-time link.
    pub fn make_link(&self) -> Result<Secret, TrustFileError> {
        let code = Secret::random()?;
        locked(&self.links).add(code.clone(), Instant::now() + LINK_LIFE, LINKS_MAX);
        Ok(code)
    }

    /// Uses a code up; whether it was good.
    pub fn use_link(&self, shown: &str) -> bool {
        let mut links = locked(&self.links);
        let position = links.position(shown, Instant::now());
        position.is_some_and(|position| links.0.remove(position).is_some())
    }

    /// Opens a session.
    pub fn open(&self) -> Result<Secret, TrustFileError> {
        let secret = Secret::random()?;
        locked(&self.sessions).add(secret.clone(), Instant::now() + SESSION_LIFE, SESSIONS_MAX);
        Ok(secret)
    }

    /// Whether `shown` is an open session.
    pub fn is_open(&self, shown: &str) -> bool {
        locked(&self.sessions).position(shown, Instant::now()).is_some()
    }

    /// Ends a session.
    pub fn close(&self, shown: &str) {
        let mut sessions = locked(&self.sessions);
        if let Some(position) = sessions.position(shown, Instant::now()) {
            sessions.0.remove(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_once_and_sessions_are_bounded() {
        let sessions = Sessions::default();
        let code = sessions.make_link().unwrap();
        assert!(!sessions.use_link("") && sessions.use_link(code.as_str()) && !sessions.use_link(code.as_str()));
        let first = sessions.open().unwrap();
        assert!(sessions.is_open(first.as_str()) && !sessions.is_open(code.as_str()));
        for _ in 0..SESSIONS_MAX {
            sessions.open().unwrap();
        }
        assert!(!sessions.is_open(first.as_str()));
        let last = sessions.open().unwrap();
        sessions.close(last.as_str());
        assert!(!sessions.is_open(last.as_str()));
    }

    #[test]
    fn what_is_over_opens_nothing() {
        let mut secrets = Secrets::default();
        let (secret, now) = (Secret::random().unwrap(), Instant::now());
        secrets.add(secret.clone(), now + LINK_LIFE, 1);
        assert_eq!(secrets.position(secret.as_str(), now), Some(0));
        assert_eq!(secrets.position(secret.as_str(), now + LINK_LIFE), None);
    }
}
