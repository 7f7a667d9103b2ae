//! Money as people write it: `12.50` credits.
//!
//! Invariant: at most three decimals, so that nothing is rounded; a number that is not a text is refused, since for programs it would
//! be thousandths.

use broker::cost::Cost;
use serde_json::Value;

use super::speed::thousandths;

/// Reads `12.50`.
///
/// # Errors
/// What was expected.
pub fn parse_credits(text: &str) -> Result<Cost, String> {
    thousandths(text)
        .map(Cost)
        .ok_or_else(|| format!("{text:?}: expected credits such as 12.50, with at most three decimals"))
}

/// The credits that a person has written in a file.
///
/// # Errors
/// What was expected.
pub fn written_credits(value: &Value) -> Result<Cost, String> {
    match value {
        Value::String(text) => parse_credits(text),
        other => Err(match parse_credits(&other.to_string()) {
            Ok(credits) => format!("write \"{credits}\", with quotes, for credits"),
            Err(_) => format!("{other}: expected credits such as \"12.50\""),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_read_without_rounding() {
        for (text, thousandths) in [("12.50", 12_500), ("0", 0), ("7", 7000), ("0.001", 1)] {
            assert_eq!(parse_credits(text), Ok(Cost(thousandths)), "{text}");
        }
        for text in ["", "-1", "1,5", "0.0005", "1e3", "12.50 credits", "99999999999999999999"] {
            assert!(parse_credits(text).is_err_and(|error| error.contains("such as 12.50")), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_told_how_to_be_written() {
        assert_eq!(written_credits(&"1.5".into()), Ok(Cost(1500)));
        assert_eq!(written_credits(&5.into()), Err("write \"5.00\", with quotes, for credits".to_owned()));
        assert_eq!(written_credits(&1.5.into()), Err("write \"1.50\", with quotes, for credits".to_owned()));
        for wrong in [Value::Null, true.into(), (-5).into()] {
            assert!(written_credits(&wrong).is_err_and(|error| error.contains("expected credits")), "{wrong}");
        }
    }
}
