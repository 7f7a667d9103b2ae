//! Keepers as real processes: the binary as it is shipped, real commands, real kills.
//!
//! Tests wait for what they are about, and look at whole seconds only where a second is what is promised.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod behaviour;
mod cgroups;
mod confinement;
mod full;
mod podman;
mod site;
mod strangers;
mod systemd;
