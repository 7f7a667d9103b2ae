//! Labels of a signed request: words for display, the only part of it that a site need not understand.
//!
//! Invariant: bounded in number and in bytes, without control characters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most labels of a request.
pub const LABELS_MAX: usize = 16;
/// Longest key of a label, in bytes.
pub const LABEL_KEY_BYTES_MAX: usize = 64;
/// Longest value of a label, in bytes.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;

/// What is wrong with labels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected at most {LABELS_MAX} labels, of 1 to {LABEL_KEY_BYTES_MAX} bytes before and at most {LABEL_VALUE_BYTES_MAX} \
     behind the colon, without control characters"
)]
pub struct LabelsError;

/// Labels by key; nothing is decided by them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = LabelsError;

    fn try_from(labels: BTreeMap<String, String>) -> Result<Labels, LabelsError> {
        let is_clean = |text: &str, bytes_max: usize| text.len() <= bytes_max && !text.chars().any(char::is_control);
        let are_good = labels.iter().all(|(key, value)| {
            !key.is_empty() && is_clean(key, LABEL_KEY_BYTES_MAX) && is_clean(value, LABEL_VALUE_BYTES_MAX)
        });
        if labels.len() <= LABELS_MAX && are_good { Ok(Labels(labels)) } else { Err(LabelsError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Labels, LabelsError> {
        Labels::try_from(pairs.into_iter().collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn labels_are_bounded() {
        let one = |key: usize, value: usize| labels([("k".repeat(key), "v".repeat(value))]);
        let many = |count: usize| labels((0..count).map(|number| (format!("k{number}"), String::new())));
        assert!(one(LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX).is_ok() && many(LABELS_MAX).is_ok());
        for bad in [one(0, 1), one(LABEL_KEY_BYTES_MAX + 1, 1), one(1, LABEL_VALUE_BYTES_MAX + 1), many(LABELS_MAX + 1)]
        {
            assert_eq!(bad, Err(LabelsError));
        }
        assert_eq!(labels([("a".to_owned(), "\u{1b}[31m".to_owned())]), Err(LabelsError));
    }
}
