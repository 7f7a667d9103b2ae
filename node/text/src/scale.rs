//! Ranges of factors as people write them: `0.5..2`.
//!
//! Invariant: at most three decimals, so that nothing is rounded.

use broker::scale::Factor;
use serde_json::Value;

use super::speed::thousandths;

/// Reads `0.5..2`: the least and the largest.
///
/// # Errors
/// What was expected.
pub fn parse_scale(text: &str) -> Result<[Factor; 2], String> {
    let form =
        || format!("{text:?}: expected the least and the largest factor, such as 0.5..2, with at most three decimals");
    let (least, largest) = text.split_once("..").ok_or_else(form)?;
    let factor = |text: &str| {
        let thousandths = thousandths(text).ok_or_else(form)?;
        let factor = u32::try_from(thousandths).ok().and_then(|thousandths| Factor::try_from(thousandths).ok());
        factor.ok_or_else(|| format!("{text}: a factor is from 0.001 to {}", Factor::MAX))
    };
    let (least, largest) = (factor(least)?, factor(largest)?);
    if least > largest {
        return Err(format!("{text:?}: the least is above the largest"));
    }
    Ok([least, largest])
}

/// The range that a person has written, as programs write it.
///
/// # Errors
/// What was expected.
pub fn written_scale(value: &Value) -> Result<Value, String> {
    let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    parse_scale(&written)
        .map(|range| range.into_iter().map(u32::from).collect())
        .map_err(|error| if value.is_string() { error } else { error.replace(&format!("{written:?}"), &written) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_without_rounding() {
        let read = |text: &str| parse_scale(text).map(|range| range.map(u32::from));
        assert_eq!(read("0.5..2"), Ok([500, 2000]));
        assert_eq!(read("1..1"), Ok([1000, 1000]));
        assert_eq!(read("0.001..1000"), Ok([1, 1_000_000]));
        for (text, expected) in [
            ("", "such as 0.5..2"),
            ("2", "such as 0.5..2"),
            ("0.5-2", "such as 0.5..2"),
            ("0.5..", "such as 0.5..2"),
            ("0.0005..2", "at most three decimals"),
            ("0.5..2x", "such as 0.5..2"),
            ("0..2", "0: a factor is from 0.001 to 1000"),
            ("0.5..1000.001", "1000.001: a factor is"),
            ("0.5..99999999999999999999", "such as 0.5..2"),
            ("2..0.5", "the least is above the largest"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(written_scale(&"0.5..2".into()), Ok([500, 2000].into_iter().collect()));
        assert!(written_scale(&2.into()).unwrap_err().starts_with("2: expected the least"));
    }
}
