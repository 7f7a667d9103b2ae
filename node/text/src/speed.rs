//! Speeds as people write them: `1.5` times the reference speed.
//!
//! Invariant: at most three decimals, so that nothing is rounded.

use broker::host::Speed;
use serde_json::Value;

/// Reads `1.5`.
///
/// # Errors
/// What was expected.
pub fn parse_speed(text: &str) -> Result<Speed, String> {
    let thousandths = thousandths(text).and_then(|thousandths| u32::try_from(thousandths).ok());
    thousandths.and_then(|thousandths| Speed::try_from(thousandths).ok()).ok_or_else(|| {
        format!("{text:?}: expected how many times the reference speed, such as 1.5, with at most three decimals")
    })
}

/// The thousandths of a number with at most three decimals; none when it is no such number.
pub fn thousandths(text: &str) -> Option<u64> {
    let (whole, parts) = text.split_once('.').unwrap_or((text, ""));
    let parts = parts.trim_end_matches('0');
    let is_number =
        !whole.is_empty() && parts.len() <= 3 && (whole.bytes().chain(parts.bytes())).all(|b| b.is_ascii_digit());
    is_number.then(|| format!("{whole}{parts:0<3}").parse().ok()).flatten()
}

/// The speed that a person has written, as a number or as a text.
///
/// # Errors
/// What was expected.
pub fn written_speed(value: &Value) -> Result<Speed, String> {
    parse_speed(value.as_str().unwrap_or(&value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_without_rounding() {
        for (text, thousandths) in [("1.5", 1500), ("2", 2000), ("2.000", 2000), ("0.125", 125), ("1.50000", 1500)] {
            assert_eq!(parse_speed(text).map(Speed::thousandths), Ok(thousandths), "{text}");
        }
        for text in ["", "0", "0.0", ".5", "1.0005", "-1", "+1", "1,5", "1.5x", "1e3", "4294968", "1.2.3"] {
            assert!(parse_speed(text).is_err_and(|error| error.contains("such as 1.5")), "{text}");
        }
        assert_eq!(written_speed(&1.5.into()), parse_speed("1.5"));
        assert_eq!(written_speed(&"1.5".into()), parse_speed("1.5"));
        assert!(written_speed(&Value::Null).is_err());
    }
}
