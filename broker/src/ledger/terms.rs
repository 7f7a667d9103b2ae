//! Terms: which node coordinates a request, and since when, as its user has signed it.
//!
//! Terms of one request are totally ordered, by the second in which the user signed and then by the name of the node, so that all
//! sites come to the same coordinator in whatever order they receive them: the higher one wins, a lower one is refused.
//!
//! Invariant: of each user and request at most one term is remembered, at most `limit` in all, of at most [`TERMS_BYTES_MAX`]
//! together; at a bound a new one is not.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ids::{RequestId, SiteId},
    time::{Millis, Time},
    trust::{Permit, PublicKey, RequestStatement, SignedText},
};

/// What remembered terms may take together: anybody in an open grid can sign one.
const TERMS_BYTES_MAX: usize = 16 << 20;

/// That a user wants a node to coordinate a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    user: PublicKey,
    request: RequestId,
    issued: Time,
    coordinator: SiteId,
    signed: Arc<SignedText>,
}

impl Term {
    /// The term of a checked authorization, whose text is `signed`.
    pub(super) fn new(permit: &Permit, signed: &SignedText) -> Term {
        let RequestStatement { id, issued, entry_point, .. } = &*permit.statement;
        Term {
            user: permit.user,
            request: id.clone(),
            issued: *issued,
            coordinator: entry_point.clone(),
            signed: Arc::new(signed.clone()),
        }
    }

    /// The term of the same user and request that another authorization, which was checked before, gives.
    pub(super) fn of_same(&self, signed: &Arc<SignedText>) -> Option<Term> {
        let RequestStatement { issued, entry_point, .. } = signed.open().ok()?;
        Some(Term { issued, coordinator: entry_point, signed: signed.clone(), ..self.clone() })
    }

    /// Its user.
    pub(super) fn user(&self) -> PublicKey {
        self.user
    }

    /// Its request.
    pub(super) fn request(&self) -> &RequestId {
        &self.request
    }

    /// The node that coordinates the request in this term.
    pub(super) fn coordinator(&self) -> &SiteId {
        &self.coordinator
    }

    /// What shows it.
    pub(super) fn signed(&self) -> &Arc<SignedText> {
        &self.signed
    }

    /// Orders the terms of one request.
    pub(super) fn rank(&self) -> (Time, &SiteId) {
        (self.issued, &self.coordinator)
    }

    fn key(&self) -> (PublicKey, RequestId) {
        (self.user, self.request.clone())
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
        let known = self.highest.get(&term.key()).filter(|known| known.term.coordinator == term.coordinator)?;
        known.former.as_ref()
    }

    /// Notes which node coordinated the request before the one of this term.
    pub(super) fn note_former(&mut self, term: &Term, former: SiteId) {
        let known = self.highest.get_mut(&term.key());
        if let Some(known) = known.filter(|known| known.term.coordinator == term.coordinator) {
            known.former = Some(former);
        }
    }

    /// Remembers a term, which is the highest of its request, until `forget_at`.
    pub(super) fn insert(&mut self, term: Term, forget_at: Millis) {
        let bytes = term.signed.size_bytes();
        let former = match self.highest.get(&term.key()) {
            Some(known) if known.term.coordinator == term.coordinator => known.former.clone(),
            Some(known) => Some(known.term.coordinator.clone()),
            None if self.highest.len() < self.limit && self.bytes + bytes <= TERMS_BYTES_MAX => None,
            None => return,
        };
        self.bytes += bytes;
        if let Some(replaced) = self.highest.insert(term.key(), Remembered { term, former, forget_at }) {
            self.bytes -= replaced.term.signed.size_bytes();
        }
    }

    /// Forgets what is due.
    pub(super) fn forget(&mut self, now: Millis) {
        self.highest.retain(|_, known| known.forget_at > now);
        self.bytes = self.highest.values().map(|known| known.term.signed.size_bytes()).sum();
    }
}
