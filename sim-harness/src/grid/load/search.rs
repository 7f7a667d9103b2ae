//! The highest rate that a grid keeps up with.

/// Fewest requests a second.
pub const RATE_MIN: f64 = 0.01;
/// Most requests a second.
pub const RATE_MAX: f64 = 10_000.0;

/// Most loads of one search.
const STEPS_MAX: usize = 12;
/// The search is over when the two ends are this near to each other.
const NEAR: f64 = 1.1;

/// Looks for the highest rate that `keeps_up` holds for, beginning with `first` requests a second.
///
/// First the rate is doubled while it holds (or halved until it does), then the gap between the highest rate for which it held and the
/// lowest one for which it did not is halved, geometrically. It ends after [`STEPS_MAX`] steps; the result was one of them.
pub fn highest_rate(first: f64, mut keeps_up: impl FnMut(f64) -> anyhow::Result<bool>) -> anyhow::Result<Option<f64>> {
    let (mut rate, mut kept, mut missed) = (first, None, None);
    for _ in 0..STEPS_MAX {
        if keeps_up(rate)? {
            kept = Some(rate);
        } else {
            missed = Some(rate);
        }
        rate = match (kept, missed) {
            (Some(kept), Some(missed)) if missed / kept <= NEAR => break,
            (Some(kept), Some(missed)) => f64::sqrt(kept * missed),
            _ if kept.is_some() => rate * 2.0,
            _ => rate / 2.0,
        };
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            break;
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(first: f64, limit: f64) -> (Option<f64>, usize) {
        let mut steps = 0;
        let found = highest_rate(first, |rate| {
            steps += 1;
            Ok(rate <= limit)
        });
        (found.unwrap(), steps)
    }

    #[test]
    fn the_highest_rate_is_found_within_a_tenth() {
        for first in [1.0, 7.0, 10.0, 50.0, 99.0] {
            for limit in (2..300).map(f64::from) {
                let (highest, steps) = search(first, limit);
                let highest = highest.unwrap();
                assert!(steps <= STEPS_MAX && highest <= limit, "from {first}: {highest} of {limit}");
                let is_near = limit < highest * NEAR * 1.000_001;
                assert!(is_near || steps == STEPS_MAX, "from {first}: {highest} of {limit}");
            }
        }
        assert_eq!(search(10.0, 80.0).1, 8);
    }

    #[test]
    fn a_grid_that_keeps_up_with_nothing_or_everything_ends_the_search() {
        assert_eq!(search(10.0, 0.0).0, None);
        assert!(search(10.0, f64::INFINITY).0.unwrap() <= RATE_MAX);
    }
}
