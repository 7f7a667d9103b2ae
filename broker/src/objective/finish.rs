//! The earliest end of the seat that ends last.

use super::value::{Measures, Objective, Within};

/// See the module.
pub(super) struct Finish;

impl Objective for Finish {
    fn value(&self, start: i64, of: Measures) -> i64 {
        start + of.longest
    }

    fn within(&self, start: i64, value: i64) -> Within {
        Within::Longest(value - start)
    }
}
