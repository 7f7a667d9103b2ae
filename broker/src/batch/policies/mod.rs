//! The policies of batches: one file each, and one line here.

mod clusters;
mod colocation;
mod in_order;
mod slices;

pub use self::colocation::{ColocationForm, colocation, pairings_tried};
use super::policy::Policy;

/// Makes a policy of what stands behind the colon of its name.
pub type MakePolicy = fn(Option<&str>) -> Result<Box<dyn Policy>, PolicyError>;

/// The registry: the name, what stands behind it, and what makes the policy.
pub const POLICIES: [(&str, &str, MakePolicy); 8] = [
    ("in-order", "", in_order::make),
    ("slices", ":K", slices::make),
    ("oas", "[:slots]", clusters::make_oas),
    ("mesd", "[:literal]", clusters::make_mesd),
    ("pas", "", clusters::make_pas),
    ("cbs", "", clusters::make_cbs),
    ("jpr", "", clusters::make_jpr),
    ("colocate", ":set|partition|best", colocation::make),
];

/// Why a text is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy at all.
    #[error("no policy is called {0:?}; there are {known}", known = known())]
    Unknown(String),
    /// Something else behind the colon than the policy takes.
    #[error("{policy}: expected {expected}, got {got:?}")]
    Parameter {
        /// The policy.
        policy: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What it was given.
        got: String,
    },
}

fn known() -> String {
    POLICIES.map(|(name, parameter, _)| format!("{name}{parameter}")).join(", ")
}

/// The policy of that name, such as `in-order` or `slices:3`.
///
/// # Errors
/// [`PolicyError`] names what is wrong.
pub fn policy_named(text: &str) -> Result<Box<dyn Policy>, PolicyError> {
    let (name, parameter) = text.split_once(':').map_or((text, None), |(name, parameter)| (name, Some(parameter)));
    match POLICIES.iter().find(|(known, ..)| *known == name) {
        Some((.., make)) => make(parameter),
        None => Err(PolicyError::Unknown(text.to_owned())),
    }
}
