//! The least cost of all seats together.

use super::value::{Measures, Objective, Within};

/// See the module.
pub(super) struct LeastCost;

impl Objective for LeastCost {
    fn value(&self, _: i64, of: Measures) -> i64 {
        of.cost
    }

    fn within(&self, _: i64, value: i64) -> Within {
        Within::Cost(value)
    }
}
