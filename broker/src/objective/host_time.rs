//! The least host time: the lengths of all seats together.

use super::{Least, Objective, Within};

/// See the module.
pub(super) struct HostTime;

impl Objective for HostTime {
    fn value(&self, _: i64, lengths: &[i64]) -> i64 {
        lengths.iter().sum()
    }

    fn bound(&self, _: i64, least: Least) -> i64 {
        least.together
    }

    fn within(&self, _: i64, value: i64) -> Within {
        Within::Together(value)
    }
}
