//! Terms: which node coordinates a request, as its user has signed it. The highest one wins, a lower one is refused
//! ([`RequestStatement::rank`]).
//!
//! Invariant: of each user and request at most one term is remembered, at most `limit` in all, of at most [`TERMS_BYTES_MAX`]
//! together; at a bound a new one is not.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ids::{RequestId, SiteId},
    time::Millis,
    trust::{Permit, PublicKey, RequestStatement, SignedText},
};

/// What remembered terms may take together: anybody in an open grid can sign one.
const TERMS_BYTES_MAX: usize = 16 << 20;

/// That a user wants a node to coordinate a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    user: PublicKey,
    statement: Arc<RequestStatement>,
    signed: Arc<SignedText>,
}

impl Term {
    /// The term of a checked authorization, whose text is `signed`.
    pub(super) fn new(permit: &Permit, signed: &SignedText) -> Term {
        Term { user: permit.user, statement: permit.statement.clone(), signed: Arc::new(signed.clone()) }
    }

    /// The term of the same user and request that another authorization, which was checked before, gives.
    pub(super) fn of_same(&self, signed: &Arc<SignedText>) -> Option<Term> {
        let statement = Arc::new(signed.open().ok()?);
        Some(Term { user: self.user, statement, signed: signed.clone() })
    }

    /// Its user.
    pub(super) fn user(&self) -> PublicKey {
        self.user
    }

    /// What its user has signed.
    pub(super) fn statement(&self) -> &RequestStatement {
        &self.statement
    }

    /// The node that coordinates the request in this term.
    pub(super) fn coordinator(&self) -> &SiteId {
        &self.statement.entry_point
    }

    /// What shows it.
    pub(super) fn signed(&self) -> &Arc<SignedText> {
        &self.signed
    }

    /// The text, and about as much again for what was read from it.
    fn size_bytes(&self) -> usize {
        2 * self.signed.size_bytes()
    }

    fn key(&self) -> (PublicKey, RequestId) {
        (self.user, self.statement.id.clone())
    }
}

/// The highest term of each request, remembered for a while: two nodes may be asked to take a request over within a short time,
/// and the second may come when nothing is left here of what the first has taken over.
#[derive(Debug)]
pub(super) struct Terms {
    limit: usize,
    bytes: usize,
    highest: BTreeMap<(PublicKey, RequestId), Remembered>,
}

#[derive(Debug)]
struct Remembered {
    term: Term,
    /// The coordinator before it: named in every answer, since any answer may get lost.
    former: Option<SiteId>,
    forget_at: Millis,
}

impl Terms {
    /// Remembers nothing yet.
    pub(super) fn new(limit: usize) -> Terms {
        Terms { limit: limit.max(1), bytes: 0, highest: BTreeMap::new() }
    }

    /// The highest term of the same request.
    pub(super) fn highest(&self, term: &Term) -> Option<&Term> {
        self.highest.get(&term.key()).map(|known| &known.term)
    }

    /// Which node coordinated the request before the one of this term.
    pub(super) fn former(&self, term: &Term) -> Option<&SiteId> {
        let known = self.highest.get(&term.key()).filter(|known| known.term.coordinator() == term.coordinator())?;
        known.former.as_ref()
    }

    /// Notes which node coordinated the request before the one of this term.
    pub(super) fn note_former(&mut self, term: &Term, former: SiteId) {
        let known = self.highest.get_mut(&term.key());
        if let Some(known) = known.filter(|known| known.term.coordinator() == term.coordinator()) {
            known.former = Some(former);
        }
    }

    /// Remembers a term, which is the highest of its request, until `forget_at`.
    pub(super) fn insert(&mut self, term: Term, forget_at: Millis) {
        let bytes = term.size_bytes();
        let former = match self.highest.get(&term.key()) {
            Some(known) if known.term.coordinator() == term.coordinator() => known.former.clone(),
            Some(known) => Some(known.term.coordinator().clone()),
            None if self.highest.len() < self.limit && self.bytes + bytes <= TERMS_BYTES_MAX => None,
            None => return,
        };
        self.bytes += bytes;
        if let Some(replaced) = self.highest.insert(term.key(), Remembered { term, former, forget_at }) {
            self.bytes -= replaced.term.size_bytes();
        }
    }

    /// Forgets what is due.
    pub(super) fn forget(&mut self, now: Millis) {
        self.highest.retain(|_, known| known.forget_at > now);
        self.bytes = self.highest.values().map(|known| known.term.size_bytes()).sum();
    }
}
