//! Traffic between hosts as people write it: `100Mbit/s`, and which part of the work computes: `0.7`.
//!
//! Invariant: what is finer than a whole Mbit/s or a thousandth of the work is refused, so nothing is rounded.

use broker::traffic::Traffic;
use serde_json::Value;

use super::speed::thousandths;

/// Reads `100Mbit/s` or `1.5Gbit/s`; in Mbit/s.
///
/// # Errors
/// What was expected.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let in_thousandths = |unit| thousandths(text.strip_suffix(unit)?.trim_end());
    let mbps = in_thousandths("Mbit/s").filter(|parts| parts % 1000 == 0).map(|parts| parts / 1000);
    mbps.or_else(|| in_thousandths("Gbit/s"))
        .ok_or_else(|| format!("{text:?}: expected whole Mbit/s, such as 100Mbit/s or 1.5Gbit/s"))
}

/// Writes what [`parse_rate`] reads: `1Gbit/s`, or `1500Mbit/s`.
pub fn format_rate(mbps: u64) -> String {
    if mbps > 0 && mbps.is_multiple_of(1000) { format!("{}Gbit/s", mbps / 1000) } else { format!("{mbps}Mbit/s") }
}

/// Reads `0.7`; in thousandths.
///
/// # Errors
/// What was expected.
pub fn parse_compute(text: &str) -> Result<u32, String> {
    let parts = thousandths(text).and_then(|parts| u32::try_from(parts).ok());
    parts.filter(|parts| *parts <= Traffic::COMPUTE_MAX).ok_or_else(|| {
        format!("{text:?}: expected which part of the work computes, 0 to 1, such as 0.7, with at most three decimals")
    })
}

/// The traffic that a person has written, as programs write it; what is no key of it stays for the check of the whole request.
///
/// # Errors
/// The key inside it, empty for the whole, and what was expected.
pub fn written_traffic(written: Value) -> Result<Value, (&'static str, String)> {
    let Value::Object(mut traffic) = written else {
        return Err(("", "expected mbps and, where not all of the work computes, compute".to_owned()));
    };
    if let Some(Value::String(rate)) = traffic.get("mbps") {
        let mbps = parse_rate(rate).map_err(|error| ("mbps", error))?;
        traffic.insert("mbps".to_owned(), mbps.into());
    }
    if let Some(compute) = traffic.get("compute") {
        let text = compute.as_str().map_or_else(|| compute.to_string(), str::to_owned);
        let compute = parse_compute(&text).map_err(|error| ("compute", error))?;
        traffic.insert("compute".to_owned(), compute.into());
    }
    Ok(Value::Object(traffic))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_and_parts_are_read_without_rounding() {
        for (text, mbps) in
            [("100Mbit/s", 100), ("100 Mbit/s", 100), ("1.5Gbit/s", 1500), ("2Gbit/s", 2000), ("0Mbit/s", 0)]
        {
            assert_eq!(parse_rate(text), Ok(mbps), "{text}");
        }
        for text in ["", "100", "100MB/s", "1.5Mbit/s", "1.0005Gbit/s", "-1Mbit/s", "Mbit/s"] {
            assert!(parse_rate(text).is_err_and(|error| error.contains("such as 100Mbit/s")), "{text}");
        }
        assert_eq!(["0", "0.7", "1", "1.000"].map(parse_compute), [Ok(0), Ok(700), Ok(1000), Ok(1000)]);
        for text in ["", "1.001", "700", "0.0005", "-1"] {
            assert!(parse_compute(text).is_err_and(|error| error.contains("0 to 1")), "{text}");
        }
    }

    #[test]
    fn people_write_it_with_units_or_as_numbers() {
        let read = |traffic: Value| written_traffic(traffic);
        assert_eq!(read(json!({"mbps": "1Gbit/s", "compute": 0.7})), Ok(json!({"mbps": 1000, "compute": 700})));
        assert_eq!(read(json!({"mbps": 100, "compute": 1})), Ok(json!({"mbps": 100, "compute": 1000})));
        assert_eq!(read(json!({"mbps": 1, "other": 2})), Ok(json!({"mbps": 1, "other": 2})));
        assert_eq!(read(json!({"compute": 2})).unwrap_err().0, "compute");
        assert_eq!(read(json!({"mbps": "1"})).unwrap_err().0, "mbps");
        assert_eq!(read(json!("100Mbit/s")).unwrap_err().0, "");
    }
}
