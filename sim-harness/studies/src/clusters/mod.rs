//! Clusters with limited links in virtual time: what jobs do to each other, and the policies of the dissertation on multi-clusters.
//!
//! Invariant: pure; the same jobs, clusters, faults and policy give the same times.

pub(crate) mod mesd;
pub(crate) mod oas;
pub(crate) mod policies;
pub(crate) mod usage;
pub(crate) mod world;
