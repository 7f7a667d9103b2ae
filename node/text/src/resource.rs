//! Names of resources as people write them.
//!
//! Invariant: only the common resources have other names; any other name is taken as it is written.

use broker::resources::{ResourceName, ResourceNameError};

/// The resources that every grid has words for, each with what other programs and people call it.
const COMMON: [(&str, &[&str]); 5] = [
    ("cpu", &["cpus", "core", "cores", "ncpus"]),
    ("disk", &[]),
    ("gpu", &["gpus", "ngpus"]),
    ("memory", &["mem", "ram"]),
    ("mhz", &[]),
];

/// The names of the common resources.
pub fn common() -> impl Iterator<Item = &'static str> {
    COMMON.iter().map(|(name, _)| *name)
}

/// The common resource that is called so, in small or capital letters.
pub fn common_named(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    COMMON.iter().find(|(name, others)| *name == text || others.contains(&&*text)).map(|(name, _)| *name)
}

/// The resource that a person means.
///
/// # Errors
/// [`ResourceNameError`] when it is no name.
pub fn named(text: &str) -> Result<ResourceName, ResourceNameError> {
    ResourceName::new(common_named(text).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_programs_call_a_resource_is_understood() {
        for (written, meant) in [
            ("mem", "memory"),
            ("RAM", "memory"),
            ("CPU", "cpu"),
            ("cores", "cpu"),
            ("gpus", "gpu"),
            ("licence.x", "licence.x"),
        ] {
            assert_eq!(named(written).unwrap().as_str(), meant);
        }
        assert!(named("").is_err());
    }
}
