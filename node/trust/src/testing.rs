//! A closed grid, its root and terms, for tests of this crate and of those that build on it. Keys follow from a number, so they protect
//! nobody.

#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "the name of the grid is valid")]

use broker::{
    time::{Span, Time},
    trust::{Limits, PublicKey, Role, closed_grid_id},
};
use ed25519_dalek::SigningKey;

use super::{GridFile, Issuer, Terms};

/// When everything made here is used.
pub const NOW: Time = Time(1_800_000_000);

/// The key that belongs to `number`.
pub fn key(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[number; 32])
}

/// A closed grid with its root.
pub fn grid() -> (GridFile, Issuer) {
    let root = PublicKey::of(&key(1));
    let id = closed_grid_id("lab", &root).unwrap();
    (GridFile::new(id, Some(root), Vec::new()), Issuer::root(key(1)))
}

/// Terms of an invitation that holds for an hour and limits nothing.
pub fn terms(role: Role) -> Terms {
    Terms { role, name: String::new(), limits: Limits::default(), expires: NOW + Span(3600) }
}
