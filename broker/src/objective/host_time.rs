//! The least host time: the lengths of all seats together.

use super::value::{Measures, Objective, Within};

/// See the module.
pub(super) struct HostTime;

impl Objective for HostTime {
    fn value(&self, _: i64, of: Measures) -> i64 {
        of.together
    }

    fn within(&self, _: i64, value: i64) -> Within {
        Within::Together(value)
    }
}
