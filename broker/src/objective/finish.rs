//! The earliest end of the seat that ends last.

use super::{Least, Objective, Within};

/// See the module.
pub(super) struct Finish;

impl Objective for Finish {
    fn value(&self, start: i64, lengths: &[i64]) -> i64 {
        start + lengths.iter().max().copied().unwrap_or(0)
    }

    fn bound(&self, start: i64, least: Least) -> i64 {
        start + least.longest
    }

    fn within(&self, start: i64, value: i64) -> Within {
        Within::Longest(value - start)
    }
}
