//! Files of users on their way to seats and back.
//!
//! What is sent is a [`Manifest`]: names, and the hashes of pieces of 1 MiB. A site keeps pieces in a [`ChunkStore`] for the time of the
//! reservation, so that they come to it once, however many of its seats want them, and what has come is not sent again after a cut.
//! Invariants: every piece is what its hash says, or is not used; no name leads out of the directory that it is for; only plain files travel.

pub mod manifest;
pub mod order;
pub mod serve;
pub mod store;
pub mod transfer;
pub mod tree;

pub use self::{
    manifest::{ChunkHash, Manifest},
    order::{FilesOrder, FilesWish},
    store::ChunkStore,
};
