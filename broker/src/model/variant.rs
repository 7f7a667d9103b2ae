//! Which of all that a request allows is planned, held and booked: one of its shapes, at one factor.
//!
//! Invariant: all seats of a reservation are of one variant, whatever repairs it and whoever coordinates it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{ids::ShapeNumber, scale::Factor};

/// A shape of a request, at a factor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Variant {
    /// Which of its shapes.
    pub shape: ShapeNumber,
    /// By what it is scaled.
    pub scale: Factor,
}

impl Variant {
    /// Whether it is the first shape as it is asked, which is left out where it is written down.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Variant::default()
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shape {} at factor {}", self.shape, self.scale)
    }
}
