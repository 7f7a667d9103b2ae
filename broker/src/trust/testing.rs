//! Short makers of keys and signed things, for tests and the simulator. Keys follow from a number, so they protect nobody.

use ed25519_dalek::{Signer as _, SigningKey};

use super::{
    Authorization, Chain, Credential, Gate, Labels, Limits, OwnerPolicy, PublicKey, RequestStatement, Revocation, Role,
    Signature, SignedRevocation, SignedText, Statement, Subject, Trust, TrustError,
};
use crate::{
    ids::{RequestId, SiteId},
    request::Request,
    time::Time,
};

/// The grid of everything made here.
pub const GRID: &str = "test";
/// When everything made here expires, unless it says otherwise.
pub const EXPIRES: Time = Time(Time::MAX.0);

/// The key that belongs to `number`.
#[must_use]
pub fn key(number: u64) -> SigningKey {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&number.to_le_bytes());
    SigningKey::from_bytes(&secret)
}

/// The public half of [`key`].
#[must_use]
pub fn public(number: u64) -> PublicKey {
    PublicKey::of(&key(number))
}

/// Signs `statement`.
///
/// # Panics
/// When it is too large.
#[must_use]
pub fn sign<T: Statement>(statement: &T, key: &SigningKey) -> SignedText {
    SignedText::sign(statement, key).unwrap_or_else(|error| panic!("{error}"))
}

/// Signs a text as it is, such as one of a later version.
#[must_use]
pub fn sign_text(text: String, key: &SigningKey) -> SignedText {
    let signature = Signature::from_bytes(key.sign(text.as_bytes()).to_bytes());
    SignedText { text, author: PublicKey::of(key), signature }
}

/// What a text says, whoever has signed it.
///
/// # Errors
/// [`TrustError`] when it says nothing that is understood.
pub fn said<T: Statement>(signed: &SignedText) -> Result<T, TrustError> {
    super::statement::read(&signed.text)
}

/// An open grid without rules of an owner.
#[must_use]
pub fn open_gate() -> Gate {
    Gate::new(Trust::Open { grid: GRID.to_owned() }, OwnerPolicy::default())
}

/// The closed grid whose root is [`key`] 0.
#[must_use]
pub fn closed() -> Trust {
    Trust::Closed { grid: GRID.to_owned(), root: public(0) }
}

/// A request that `entry_point` carries in the first term, issued at time 0 and never expiring.
#[must_use]
pub fn statement(entry_point: &SiteId, id: &RequestId, request: &Request) -> RequestStatement {
    RequestStatement {
        grid: GRID.to_owned(),
        entry_point: entry_point.clone(),
        id: id.clone(),
        request: request.clone(),
        term: RequestStatement::FIRST_TERM,
        issued: Time::ZERO,
        expires: EXPIRES,
        labels: Labels::default(),
    }
}

/// [`statement`], signed by the key of `user`, as it travels in an open grid.
#[must_use]
pub fn authorize(user: u64, entry_point: &SiteId, id: &RequestId, request: &Request) -> Authorization {
    authorize_in(RequestStatement::FIRST_TERM, user, entry_point, id, request)
}

/// [`authorize`] in another term.
#[must_use]
pub fn authorize_in(term: u64, user: u64, entry_point: &SiteId, id: &RequestId, request: &Request) -> Authorization {
    let request = sign(&RequestStatement { term, ..statement(entry_point, id, request) }, &key(user));
    Authorization { request, user: None, entry_point: None }
}

/// A credential without limits.
#[must_use]
pub fn credential(subject: Subject, role: Role, name: &str) -> Credential {
    Credential {
        grid: GRID.to_owned(),
        subject,
        role,
        name: name.to_owned(),
        limits: Limits::default(),
        is_invitation: false,
        issued: Time::ZERO,
        expires: EXPIRES,
    }
}

/// The chain of one credential, signed by the root of [`closed`].
#[must_use]
pub fn member(subject: Subject, role: Role, name: &str) -> Chain {
    Chain::of_root(sign(&credential(subject, role, name), &key(0)))
}

/// The root of [`closed`] revokes `subject`.
#[must_use]
pub fn revoke(subject: Subject) -> SignedRevocation {
    let revocation = Revocation { grid: GRID.to_owned(), subject, revoked: Time::ZERO, keep_until: EXPIRES };
    SignedRevocation { statement: sign(&revocation, &key(0)), issuer: None }
}
