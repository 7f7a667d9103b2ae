//! One-time links and sessions of browsers.
//!
//! Invariant: a link opens one session, within [`LINK_LIFE`], for whoever made it; what is handed out is random and never written down, so a
//! restart of the node ends all sessions. At most [`SESSIONS_MAX`] sessions and [`LINKS_MAX`] links of users who came by their keys exist, and
//! as many of other callers; the oldest of the kind go, so nobody who has only a key takes the place of another kind of caller.

use std::{
    collections::VecDeque,
    sync::Mutex,
    time::{Duration, Instant},
};

use kolo_runtime::lock::locked;
use kolo_trust::{Secret, TrustFileError};

use super::scopes::Caller;

/// How long a one-time link may be used.
pub const LINK_LIFE: Duration = Duration::from_secs(120);
/// How long a session lasts.
pub const SESSION_LIFE: Duration = Duration::from_hours(12);
/// Most links of a kind of caller that wait to be used.
const LINKS_MAX: usize = 8;
/// Most sessions of a kind of caller.
const SESSIONS_MAX: usize = 32;

/// Secrets that are valid until some time, oldest first, each with whom it stands for.
#[derive(Default)]
struct Secrets(VecDeque<(Secret, Caller, Instant)>);

impl Secrets {
    fn add(&mut self, secret: Secret, caller: Caller, until: Instant, most: usize) {
        let is_by_key = |caller: &Caller| matches!(caller, Caller::User(_));
        let kind = is_by_key(&caller);
        let is_of_kind = |(_, caller, _): &(Secret, Caller, Instant)| is_by_key(caller) == kind;
        if self.0.iter().filter(|one| is_of_kind(one)).count() >= most {
            let oldest = self.0.iter().position(is_of_kind);
            oldest.and_then(|oldest| self.0.remove(oldest));
        }
        self.0.push_back((secret, caller, until));
    }

    fn position(&self, shown: &str, now: Instant) -> Option<usize> {
        self.0.iter().position(|(secret, _, until)| now < *until && secret.is(shown))
    }
}

/// Links and sessions of this node.
#[derive(Default)]
pub struct Sessions {
    links: Mutex<Secrets>,
    sessions: Mutex<Secrets>,
}

impl Sessions {
    /// Makes the code of a one-time link, for whoever `caller` is.
    pub fn make_link(&self, caller: Caller) -> Result<Secret, TrustFileError> {
        let code = Secret::random()?;
        locked(&self.links).add(code.clone(), caller, Instant::now() + LINK_LIFE, LINKS_MAX);
        Ok(code)
    }

    /// Uses a code up; who made it, if it was good.
    pub fn use_link(&self, shown: &str) -> Option<Caller> {
        let mut links = locked(&self.links);
        let position = links.position(shown, Instant::now())?;
        links.0.remove(position).map(|(_, caller, _)| caller)
    }

    /// Opens a session for `caller`.
    pub fn open(&self, caller: Caller) -> Result<Secret, TrustFileError> {
        let secret = Secret::random()?;
        locked(&self.sessions).add(secret.clone(), caller, Instant::now() + SESSION_LIFE, SESSIONS_MAX);
        Ok(secret)
    }

    /// Who opened the session that is shown; none when there is none.
    pub fn caller(&self, shown: &str) -> Option<Caller> {
        let sessions = locked(&self.sessions);
        let position = sessions.position(shown, Instant::now())?;
        sessions.0.get(position).map(|(_, caller, _)| caller.clone())
    }

    /// Ends all sessions and links that the operator's token has opened.
    pub fn end_operators(&self) {
        for secrets in [&self.links, &self.sessions] {
            locked(secrets).0.retain(|(_, caller, _)| *caller != Caller::Operator);
        }
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
        let is_open = |shown: &Secret| sessions.caller(shown.as_str()).is_some();
        let code = sessions.make_link(Caller::Operator).unwrap();
        assert_eq!(sessions.use_link(""), None);
        assert_eq!(sessions.use_link(code.as_str()), Some(Caller::Operator));
        assert_eq!(sessions.use_link(code.as_str()), None);
        let first = sessions.open(Caller::Operator).unwrap();
        assert!(is_open(&first) && !is_open(&code));
        for _ in 0..SESSIONS_MAX {
            sessions.open(Caller::Operator).unwrap();
        }
        assert!(!is_open(&first));
        let last = sessions.open(Caller::Operator).unwrap();
        sessions.close(last.as_str());
        assert!(!is_open(&last));
        let users = Caller::User(broker::trust::PublicKey::from_bytes([1; 32]));
        let (one, other) = (sessions.open(Caller::Operator).unwrap(), sessions.open(users).unwrap());
        let code = sessions.make_link(Caller::Operator).unwrap();
        sessions.end_operators();
        assert!(!is_open(&one) && is_open(&other) && sessions.use_link(code.as_str()).is_none());
    }

    #[test]
    fn users_who_come_by_keys_take_nobody_elses_place() {
        let sessions = Sessions::default();
        let user = |number: u8| Caller::User(broker::trust::PublicKey::from_bytes([number; 32]));
        let first = sessions.open(user(0)).unwrap();
        let operators = [0; SESSIONS_MAX].map(|_| sessions.open(Caller::Operator).unwrap());
        let link = sessions.make_link(Caller::Operator).unwrap();
        for number in 1..=200 {
            sessions.make_link(user(number)).unwrap();
            let last = sessions.open(user(number)).unwrap();
            assert_eq!(sessions.caller(last.as_str()), Some(user(number)));
        }
        assert_eq!(sessions.caller(first.as_str()), None, "the oldest of them goes");
        assert!(operators.iter().all(|operator| sessions.caller(operator.as_str()) == Some(Caller::Operator)));
        assert_eq!(sessions.use_link(link.as_str()), Some(Caller::Operator));
        assert_eq!(locked(&sessions.sessions).0.len(), 2 * SESSIONS_MAX);
    }

    #[test]
    fn what_is_over_opens_nothing() {
        let mut secrets = Secrets::default();
        let (secret, now) = (Secret::random().unwrap(), Instant::now());
        secrets.add(secret.clone(), Caller::Operator, now + LINK_LIFE, 1);
        assert_eq!(secrets.position(secret.as_str(), now), Some(0));
        assert_eq!(secrets.position(secret.as_str(), now + LINK_LIFE), None);
    }
}
