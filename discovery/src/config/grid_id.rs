//! The name of a grid.

use std::{fmt, sync::Arc};

/// The name of a grid: 1 to 64 of `a-z 0-9 -`. Nodes of different grids speak different protocols and never mix.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GridId(Arc<str>);

/// The text is not a grid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no grid id: expected 1 to 64 of a-z 0-9 -")]
pub struct GridIdError(String);

impl GridId {
    /// Checks `text` and makes a grid id of it.
    ///
    /// # Errors
    /// [`GridIdError`] when the text is empty, too long, or has other characters.
    pub fn new(text: &str) -> Result<GridId, GridIdError> {
        let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(GridId(Arc::from(text)))
        } else {
            Err(GridIdError(text.chars().take(80).collect()))
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GridId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GridId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
