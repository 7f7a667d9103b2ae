//! What Landlock closes to commands, without root and without mounts.
//!
//! Invariant: looking at what a kernel has restricts nothing; what was closed is never opened again.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    Scope, path_beneath_rules,
};

use super::{confine::SYSTEM, confine_error::ConfineError};

/// Devices that do no harm.
const DEVICES: [&str; 9] = [
    "/dev/full",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/random",
    "/dev/shm",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];
/// The newest rules of Landlock that are used; an older kernel enforces those it knows.
const LANDLOCK: ABI = ABI::V6;
/// Closes all files to this process and what comes from it, but for what commands read of the system, harmless devices, and what is their
/// `own`, and all processes that do not come from it to its signals. A kernel enforces of it what it knows.
///
/// # Errors
/// [`ConfineError::Landlock`].
pub fn close_files<'a>(own: impl Iterator<Item = &'a Path>) -> Result<(), ConfineError> {
    let rules = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?
            .add_rules(path_beneath_rules(SYSTEM, AccessFs::from_read(LANDLOCK)))?
            .add_rules(path_beneath_rules(own.chain(DEVICES.map(Path::new)), AccessFs::from_all(LANDLOCK)))?
            .restrict_self()
    };
    rules().map(drop).map_err(|error: landlock::RulesetError| ConfineError::Landlock(error.to_string()))
}

/// What this kernel's Landlock does not enforce, if there is one; nothing is restricted by looking.
///
/// # Errors
/// [`ConfineError::NoLandlock`].
pub(super) fn landlock_misses() -> Result<Vec<String>, ConfineError> {
    let has = |abi: ABI| {
        let rules =
            Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(abi));
        rules.and_then(|rules| rules.create()).is_ok()
    };
    let scopes = || {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::from_all(LANDLOCK));
        rules.and_then(|rules| rules.create()).is_ok()
    };
    if !has(ABI::V1) {
        return Err(ConfineError::NoLandlock);
    }
    let misses = [
        (has(ABI::V3), "files that are open to all may be cut to nothing by commands (Linux 6.2 forbids it)"),
        (scopes(), "commands of several seats may send each other signals (Linux 6.12 forbids it)"),
    ];
    Ok(misses.into_iter().filter(|(is_enforced, _)| !is_enforced).map(|(_, what)| what.to_owned()).collect())
}
