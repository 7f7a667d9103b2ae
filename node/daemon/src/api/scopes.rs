//! What a call needs, and who calls.
//!
//! Every route is declared together with its [`Access`] (`api::Routes`), so there is none without. Invariant: whoever has too
//! little learns which scope is missing and nothing else; a caller who may only see some requests cannot tell another's from none.

use std::sync::Arc;

use broker::{negotiation::RequestRecord, trust::PublicKey};
use kolo_trust::{ApiToken, Scope};

/// What a route needs of its caller. The numbers say how much of an unknown caller's allowance ([`super::rates`]) a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody: it shows nothing of the grid.
    Open,
    /// Anybody, at a bounded rate: what is handed over is signed by its user, or wants the scope `submit`.
    Signed(u32),
    /// The scope `metrics`, or one that may look at everything.
    Metrics,
    /// The scope `read`.
    Read,
    /// Looks at requests: with `read` at all, with `submit` or a signed call at the user's own.
    ReadOwn(u32),
    /// Changes requests: with `submit` or a signed call the user's own.
    ChangeOwn(u32),
    /// Leaves a request to this node: the scope `operator`, or a call that the user has signed. A token acts for a user whose requests the
    /// operator has signed.
    TakeOver(u32),
    /// The scope `operator`.
    Operator,
}

impl Access {
    /// The least scope that is enough; none when none is needed.
    pub fn scope(self) -> Option<Scope> {
        match self {
            Access::Open => None,
            Access::Metrics => Some(Scope::Metrics),
            Access::Read => Some(Scope::Read),
            Access::Signed(_) | Access::ReadOwn(_) | Access::ChangeOwn(_) => Some(Scope::Submit),
            Access::TakeOver(_) | Access::Operator => Some(Scope::Operator),
        }
    }

    /// How much of the allowance of an unknown caller a call takes.
    pub fn cost(self) -> u32 {
        match self {
            Access::Signed(cost) | Access::ReadOwn(cost) | Access::ChangeOwn(cost) | Access::TakeOver(cost) => cost,
            Access::Open | Access::Metrics | Access::Read | Access::Operator => 0,
        }
    }

    /// Whether a signed call is enough.
    pub fn takes_signature(self) -> bool {
        matches!(self, Access::Signed(_) | Access::ReadOwn(_) | Access::ChangeOwn(_) | Access::TakeOver(_))
    }

    /// Whether a call that is not only a question changes something here.
    pub fn is_change(self) -> bool {
        matches!(self, Access::Signed(_) | Access::ChangeOwn(_) | Access::TakeOver(_) | Access::Operator)
    }

    /// Whether `caller` may call.
    pub fn admits(self, caller: &Caller) -> bool {
        let is_submitter = || matches!(caller, Caller::User(_)) || caller.has(Scope::Submit);
        match self {
            Access::Open | Access::Signed(_) => true,
            Access::ReadOwn(_) => is_submitter() || caller.has(Scope::Read),
            Access::ChangeOwn(_) => is_submitter(),
            Access::Metrics => caller.has(Scope::Metrics),
            Access::Read => caller.has(Scope::Read),
            Access::TakeOver(_) => matches!(caller, Caller::User(_)) || caller.has(Scope::Operator),
            Access::Operator => caller.has(Scope::Operator),
        }
    }
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Nobody who is known.
    Stranger,
    /// Whoever has the key, who has signed the call.
    User(PublicKey),
    /// Whoever has a token with a scope.
    Token(Arc<ApiToken>),
    /// Whoever has the token of the data directory.
    Operator,
}

impl Caller {
    /// The scope of the token, or of the session that was opened with it.
    pub fn scope(&self) -> Option<Scope> {
        match self {
            Caller::Stranger | Caller::User(_) => None,
            Caller::Token(token) => Some(token.scope),
            Caller::Operator => Some(Scope::Operator),
        }
    }

    /// Whether the caller's scope allows what `needed` does.
    pub fn has(&self, needed: Scope) -> bool {
        self.scope().is_some_and(|scope| scope.covers(needed))
    }

    /// On whose behalf the node signs what this caller submits; none for the operator.
    pub fn user(&self) -> Option<&str> {
        match self {
            Caller::Token(token) => token.user.as_deref(),
            Caller::Stranger | Caller::User(_) | Caller::Operator => None,
        }
    }

    /// Whether there may be requests that this caller must not see.
    pub fn is_limited(&self) -> bool {
        !self.has(Scope::Read)
    }

    /// Whether this caller may see a request.
    pub fn sees(&self, record: &RequestRecord) -> bool {
        let author = record.authorization.as_ref().map(|known| &known.request.author);
        self.sees_of(author, record.submitted_for.as_deref())
    }

    /// The same of what `author` has signed, and what was handed over for the user `submitted_for`.
    pub fn sees_of(&self, author: Option<&PublicKey>, submitted_for: Option<&str>) -> bool {
        match self {
            Caller::User(key) => author == Some(key),
            Caller::Token(token) if token.scope == Scope::Submit => {
                token.user.is_some() && submitted_for == token.user.as_deref()
            }
            _ => !self.is_limited(),
        }
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Caller::Stranger => f.write_str("nobody known"),
            Caller::User(key) => write!(f, "user {key}"),
            Caller::Token(token) => write!(f, "token {}", token.name),
            Caller::Operator => f.write_str("operator"),
        }
    }
}

#[cfg(test)]
mod tests {
    use broker::time::Time;

    use super::*;

    #[test]
    fn each_scope_is_enough_for_its_routes_and_no_others() {
        let token = |scope| {
            let user = (scope == Scope::Submit).then(|| "ada".to_owned());
            Caller::Token(Arc::new(ApiToken { name: "t".to_owned(), scope, user, created: Time(0) }))
        };
        let callers = [
            Caller::Stranger,
            Caller::User(PublicKey::from_bytes([1; 32])),
            token(Scope::Metrics),
            token(Scope::Submit),
            token(Scope::Read),
            Caller::Operator,
        ];
        let admitted = |access: Access| callers.each_ref().map(|caller| u8::from(access.admits(caller)));
        assert_eq!(admitted(Access::Open), [1; 6]);
        assert_eq!(admitted(Access::Signed(1)), [1; 6]);
        assert_eq!(admitted(Access::Metrics), [0, 0, 1, 0, 1, 1]);
        assert_eq!(admitted(Access::Read), [0, 0, 0, 0, 1, 1]);
        assert_eq!(admitted(Access::ReadOwn(1)), [0, 1, 0, 1, 1, 1]);
        assert_eq!(admitted(Access::ChangeOwn(1)), [0, 1, 0, 1, 0, 1]);
        assert_eq!(admitted(Access::TakeOver(1)), [0, 1, 0, 0, 0, 1]);
        assert_eq!(admitted(Access::Operator), [0, 0, 0, 0, 0, 1]);
    }
}
