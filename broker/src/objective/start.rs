//! The earliest start: the dissertation's own objective.

use super::value::{Measures, Objective, Within};

/// See the module.
pub(super) struct Start;

impl Objective for Start {
    fn value(&self, start: i64, _: Measures) -> i64 {
        start
    }

    fn within(&self, _: i64, _: i64) -> Within {
        Within::Any
    }
}
