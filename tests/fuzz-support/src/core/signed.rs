//! Keys that follow from a number, and what they sign.

use broker::{
    ids::{RequestId, SiteId},
    request::Request,
    time::Time,
    trust::{Credential, Limits, PublicKey, RequestStatement, Role, SignedText, Statement, Subject, Trust},
};
use ed25519_dalek::SigningKey;

/// Names are fixed texts of the targets, which pass every check.
const NAME: &str = "a legal name";
/// The grid of everything made here.
pub const GRID: &str = "test";

pub fn site(name: &str) -> SiteId {
    SiteId::new(name).expect(NAME)
}

pub fn request_id(name: &str) -> RequestId {
    RequestId::new(name).expect(NAME)
}

/// The key that belongs to `number`.
pub fn key(number: u64) -> SigningKey {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&number.to_le_bytes());
    SigningKey::from_bytes(&secret)
}

/// The public half of [`key`].
pub fn public(number: u64) -> PublicKey {
    PublicKey::of(&key(number))
}

pub fn sign<T: Statement>(statement: &T, key: &SigningKey) -> SignedText {
    SignedText::sign(statement, key).expect("statements of the targets are short")
}

/// The closed grid whose root is [`key`] 0.
pub fn closed() -> Trust {
    Trust::Closed { grid: GRID.to_owned(), root: public(0) }
}

/// A request that `entry_point` coordinates, issued at time 0 and never expiring.
pub fn statement(entry_point: &SiteId, id: &RequestId, request: &Request) -> RequestStatement {
    RequestStatement {
        grid: GRID.to_owned(),
        entry_point: entry_point.clone(),
        id: id.clone(),
        request: request.clone(),
        issued: Time::ZERO,
        expires: Time::MAX,
    }
}

/// A credential without limits.
pub fn credential(subject: Subject, role: Role, name: &str) -> Credential {
    Credential {
        grid: GRID.to_owned(),
        subject,
        role,
        name: name.to_owned(),
        limits: Limits::default(),
        is_invitation: false,
        issued: Time::ZERO,
        expires: Time::MAX,
    }
}
