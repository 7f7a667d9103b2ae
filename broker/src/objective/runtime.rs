//! The shortest run: the length of the longest seat.

use super::value::{Measures, Objective, Within};

/// See the module.
pub(super) struct Runtime;

impl Objective for Runtime {
    fn value(&self, _: i64, of: Measures) -> i64 {
        of.longest
    }

    fn within(&self, _: i64, value: i64) -> Within {
        Within::Longest(value)
    }
}
