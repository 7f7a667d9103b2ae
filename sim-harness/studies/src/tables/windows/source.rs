//! The figures of the source (chapter 4), for the columns beside ours.
//!
//! Invariant: nothing here is measured by us, and nothing of it enters a figure of ours.

/// Table 1: criterion, alternatives, start, run, finish, cost.
pub(super) const TABLE_1: [(&str, [f64; 5]); 4] = [
    ("start", [12.8, 171.7, 56.1, 227.8, 1281.1]),
    ("runtime", [10.6, 214.5, 39.3, 253.9, 1278.5]),
    ("finish", [12.2, 169.6, 45.0, 205.5, 1283.2]),
    ("cost", [12.9, 262.6, 55.5, 318.0, 1098.3]),
];
/// Table 1, last row: the first window, in the same order.
pub(super) const FIRST: [f64; 5] = [12.1, 222.0, 50.3, 272.3, 1248.4];

/// The row of a criterion.
pub(super) fn table_1(criterion: &str) -> Option<[f64; 5]> {
    TABLE_1.iter().find(|(name, _)| *name == criterion).map(|(_, row)| *row)
}

/// By how much the host time of k = 1 and of the best k is better than that of backfilling, under this load.
pub(super) fn gains(level: &str) -> Option<[f64; 2]> {
    match level {
        "high" => Some([1.15, 1.19]),
        "low" => Some([1.4, 1.5]),
        _ => None,
    }
}

/// The load of the owner's host at this price.
pub(super) fn load(price: u32) -> Option<f64> {
    match price {
        2 => Some(0.44),
        10 => Some(0.12),
        _ => None,
    }
}

/// The owner's profit as a part of the largest one, which is near a price of 6.
pub(super) fn profit(price: u32) -> Option<f64> {
    match price {
        2 | 10 => Some(0.5),
        6 => Some(1.0),
        _ => None,
    }
}
