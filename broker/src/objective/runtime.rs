//! The shortest run: the length of the longest seat.

use super::{Least, Objective, Within};

/// See the module.
pub(super) struct Runtime;

impl Objective for Runtime {
    fn value(&self, _: i64, lengths: &[i64]) -> i64 {
        lengths.iter().max().copied().unwrap_or(0)
    }

    fn bound(&self, _: i64, least: Least) -> i64 {
        least.longest
    }

    fn within(&self, _: i64, value: i64) -> Within {
        Within::Longest(value)
    }
}
