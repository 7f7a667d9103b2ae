//! The site side: what this node does as a site that others book, and as the owner's.
//!
//! Invariant: nothing here knows of the requests that this node coordinates, but by [`task::Coordination`].

pub mod activation;
pub mod charges;
pub mod feed;
pub mod promises;
pub mod taken_back;
pub mod task;
pub mod usable;
