//! Durations on the command line and in files, such as `90s`, `2h30m`, `500ms` or `2:00:00`.
//!
//! Invariant: a bare number is refused, because it means minutes to one scheduler and hours to another.

use std::{ops::RangeInclusive, time::Duration};

use jiff::SignedDuration;

/// Reads a duration with its unit.
///
/// # Errors
/// What was expected, when the text is no duration or a negative one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let duration = text.trim().parse::<SignedDuration>().ok().and_then(|signed| Duration::try_from(signed).ok());
    duration.ok_or_else(|| "expected a duration with its unit, such as 90s, 2h30m, 500ms or 2:00:00".to_owned())
}

/// A parser of durations between two bounds, both included, for `value_parser`.
pub fn within(bounds: RangeInclusive<Duration>) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let duration = parse(text)?;
        let expected = || format!("expected a duration from {:?} to {:?}", bounds.start(), bounds.end());
        if bounds.contains(&duration) { Ok(duration) } else { Err(expected()) }
    }
}

/// A parser of durations in whole seconds, between zero and `seconds_max`, for `value_parser`.
pub fn whole_seconds(seconds_max: u32) -> impl Fn(&str) -> Result<i64, String> + Clone {
    move |text| {
        let duration = within(Duration::ZERO..=Duration::from_secs(seconds_max.into()))(text)?;
        let seconds = i64::try_from(duration.as_secs()).ok().filter(|_| duration.subsec_nanos() == 0);
        seconds.ok_or_else(|| "expected whole seconds".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_have_bounds() {
        for (text, ms) in
            [("60s", 60_000), ("1500ms", 1500), ("2min", 120_000), ("2:00:00", 7_200_000), ("1h30m", 5_400_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["60", "", "s", "-1s", "1 month", "99999999999999999999s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let bounded = within(Duration::from_secs(1)..=Duration::from_secs(60));
        assert!(bounded("60s").is_ok() && bounded("61s").unwrap_err().contains("from 1s to 60s"));
        assert_eq!(whole_seconds(60)("1m"), Ok(60));
        assert!(whole_seconds(60)("1500ms").is_err());
    }
}
