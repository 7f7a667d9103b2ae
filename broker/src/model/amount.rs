//! Amounts of resources: whole numbers in base units, and how people write them.
//!
//! Invariant: an [`Amount`] that passed its check is at most [`Amount::MAX`], and no set of hosts is larger than
//! [`crate::model::request::MAX_HOSTS`], so a sum over hosts fits into 64 bits.

use std::{fmt, ops};

use serde::{Deserialize, Serialize};

use crate::model::resources::ResourceName;

/// A quantity of one resource in its base unit (`formats.md`): millicores, MHz, MiB, whole GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub u64);

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount(0);
    /// The largest amount accepted from outside.
    pub const MAX: Amount = Amount((1 << 48) - 1);

    /// `self - other`, zero when `other` is larger.
    #[must_use]
    pub fn saturating_sub(self, other: Amount) -> Amount {
        Amount(self.0.saturating_sub(other.0))
    }
}

impl ops::Add for Amount {
    type Output = Amount;
    fn add(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }
}

impl ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(amounts: I) -> Amount {
        amounts.fold(Amount::ZERO, |sum, amount| sum + amount)
    }
}

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// No number at the start, or something that is not a unit behind it.
    #[error("{resource}={text}: expected {expected}{}", meant.as_ref().map_or_else(String::new, |meant| format!("; say {meant}")))]
    Malformed {
        /// The resource.
        resource: String,
        /// What was written.
        text: String,
        /// What would have been understood.
        expected: &'static str,
        /// What may have been meant, where the unit is another's.
        meant: Option<String>,
    },
    /// The number is finer than the base unit.
    #[error("{resource}={text}: finer than the base unit ({unit})")]
    TooFine {
        /// The resource.
        resource: String,
        /// What was written.
        text: String,
        /// The base unit's name.
        unit: &'static str,
    },
    /// The number is above [`Amount::MAX`].
    #[error("{resource}={text}: larger than any amount ({max})", max = Amount::MAX.0)]
    TooLarge {
        /// The resource.
        resource: String,
        /// What was written.
        text: String,
    },
}

/// Reads an amount as people write it: `cpu=2.5` (cores), `cpu=2500m`, `memory=40GiB`, `gpu=2`.
///
/// # Errors
/// [`AmountError`] when the text is malformed, finer than the base unit, or too large. A bare number for memory or disk
/// is malformed: its unit would be a guess.
pub fn parse_amount(resource: &ResourceName, text: &str) -> Result<Amount, AmountError> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let expected = expected_form(resource);
    let malformed = || AmountError::Malformed {
        resource: resource.to_string(),
        text: text.to_owned(),
        expected,
        meant: meant(resource, number, unit.trim()),
    };
    // (numerator, denominator) that turn one written unit into base units
    let (multiply, divide, base_unit): (u128, u128, &'static str) = match (resource.as_str(), unit.trim_start()) {
        ("cpu", "") => (1000, 1, "millicore"),
        ("cpu", "m") => (1, 1, "millicore"),
        ("memory" | "disk", unit) => match unit {
            "KiB" => (1, 1024, "MiB"),
            "MiB" => (1, 1, "MiB"),
            "GiB" => (1 << 10, 1, "MiB"),
            "TiB" => (1 << 20, 1, "MiB"),
            "PiB" => (1 << 30, 1, "MiB"),
            _ => return Err(malformed()),
        },
        ("mhz", "" | "MHz") => (1, 1, "MHz"),
        ("mhz", "GHz") => (1000, 1, "MHz"),
        (_, "") => (1, 1, "a whole number"),
        _ => return Err(malformed()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(malformed());
    }
    let too_large = || AmountError::TooLarge { resource: resource.to_string(), text: text.to_owned() };
    if whole.len() + fraction.len() > 24 {
        return Err(too_large());
    }
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| malformed())?;
    let scale = divide * 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX));
    let scaled = digits * multiply;
    if !scaled.is_multiple_of(scale) {
        return Err(AmountError::TooFine { resource: resource.to_string(), text: text.to_owned(), unit: base_unit });
    }
    match u64::try_from(scaled / scale) {
        Ok(amount) if amount <= Amount::MAX.0 => Ok(Amount(amount)),
        _ => Err(too_large()),
    }
}

/// The amount in a unit that is read, of one in a unit that is written like it elsewhere.
fn meant(resource: &ResourceName, number: &str, unit: &str) -> Option<String> {
    if !number.bytes().next()?.is_ascii_digit() {
        return None;
    }
    let folded = unit.to_ascii_lowercase();
    match (resource.as_str(), folded.as_str()) {
        ("memory" | "disk", _) => {
            let letter = folded.chars().next().filter(|letter| "kmgtp".contains(*letter))?;
            let is_unit = ["", "b", "i", "ib"].contains(&&folded[1..]);
            is_unit.then(|| format!("{number}{}iB", letter.to_ascii_uppercase()))
        }
        ("cpu", "c" | "cpu" | "cpus" | "core" | "cores") => Some(number.to_owned()),
        ("mhz", "mhz") => Some(format!("{number}MHz")),
        ("mhz", "ghz") => Some(format!("{number}GHz")),
        _ => None,
    }
}

fn expected_form(resource: &ResourceName) -> &'static str {
    match resource.as_str() {
        "cpu" => "cores such as 2.5, or millicores such as 2500m",
        "memory" | "disk" => "a number with its unit, such as 512MiB or 40GiB",
        "mhz" => "MHz such as 2400, or 2.4GHz",
        "gpu" => "a whole number of GPUs, such as 2",
        _ => "a whole number",
    }
}

/// Shows an amount as people write it, such that [`parse_amount`] reads the same amount again.
#[must_use]
pub fn format_amount(resource: &ResourceName, amount: Amount) -> String {
    match resource.as_str() {
        "cpu" if amount.0.is_multiple_of(1000) => format!("{}", amount.0 / 1000),
        "cpu" => {
            let text = format!("{}.{:03}", amount.0 / 1000, amount.0 % 1000);
            text.trim_end_matches('0').to_owned()
        }
        "memory" | "disk" if amount.0 >= 1 << 20 && amount.0.is_multiple_of(1 << 20) => {
            format!("{}TiB", amount.0 >> 20)
        }
        "memory" | "disk" if amount.0 >= 1 << 10 && amount.0.is_multiple_of(1 << 10) => {
            format!("{}GiB", amount.0 >> 10)
        }
        "memory" | "disk" => format!("{}MiB", amount.0),
        _ => amount.to_string(),
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(resource: &str, text: &str) -> Result<u64, AmountError> {
        parse_amount(&ResourceName::new(resource).unwrap(), text).map(|amount| amount.0)
    }

    #[test]
    fn units_are_read_as_documented() {
        assert_eq!(parse("cpu", "2.5"), Ok(2500));
        assert_eq!(parse("cpu", "2500m"), Ok(2500));
        assert_eq!(parse("mhz", "2400"), Ok(2400));
        assert_eq!(parse("mhz", "2.4GHz"), Ok(2400));
        assert_eq!(parse("memory", "40GiB"), Ok(40960));
        assert_eq!(parse("disk", "512MiB"), Ok(512));
        assert_eq!(parse("memory", "1.5GiB"), Ok(1536));
        assert_eq!(parse("memory", "2048KiB"), Ok(2));
        assert_eq!(parse("gpu", "2"), Ok(2));
        assert_eq!(parse("licence.matlab", "7"), Ok(7));
    }

    #[test]
    fn what_is_ambiguous_or_absurd_is_refused() {
        for (resource, text) in [
            ("memory", "40"),
            ("memory", "40GB"),
            ("memory", ""),
            ("cpu", "m"),
            ("cpu", "2."),
            ("cpu", ".5"),
            ("cpu", "1.2.3"),
            ("cpu", "-1"),
            ("gpu", "two"),
        ] {
            assert!(matches!(parse(resource, text), Err(AmountError::Malformed { .. })), "{resource}={text}");
        }
        assert!(matches!(parse("cpu", "0.0001"), Err(AmountError::TooFine { .. })));
        assert!(matches!(parse("gpu", "0.5"), Err(AmountError::TooFine { .. })));
        assert!(matches!(parse("memory", "1KiB"), Err(AmountError::TooFine { .. })));
        assert!(matches!(parse("cpu", "99999999999999999999"), Err(AmountError::TooLarge { .. })));
        assert!(matches!(parse("cpu", &"9".repeat(400)), Err(AmountError::TooLarge { .. })));
    }

    #[test]
    fn a_unit_of_others_is_answered_with_the_one_that_is_read() {
        for (resource, text, said) in [
            ("memory", "4GB", "say 4GiB"),
            ("memory", "4G", "say 4GiB"),
            ("memory", "1.5 gb", "say 1.5GiB"),
            ("disk", "500mb", "say 500MiB"),
            ("disk", "2Ti", "say 2TiB"),
            ("memory", "512kib", "say 512KiB"),
            ("cpu", "4cores", "say 4"),
            ("mhz", "2.4ghz", "say 2.4GHz"),
        ] {
            let told = parse(resource, text).unwrap_err().to_string();
            assert!(
                told.starts_with(&format!("{resource}={text}: expected ")) && told.ends_with(&format!("; {said}")),
                "{told}"
            );
        }
        for (resource, text) in
            [("memory", "40"), ("memory", "GB"), ("memory", "4Gallons"), ("gpu", "two"), ("memory", "4é")]
        {
            let told = parse(resource, text).unwrap_err().to_string();
            assert!(!told.contains("; say"), "{told}");
        }
    }

    proptest! {
        #[test]
        fn formatting_is_the_inverse_of_parsing(amount in 0..=Amount::MAX.0 / 1000, index in 0_usize..5) {
            let name = ResourceName::new(["cpu", "memory", "disk", "mhz", "gpu"][index]).unwrap();
            prop_assert_eq!(parse_amount(&name, &format_amount(&name, Amount(amount))), Ok(Amount(amount)));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,30}", index in 0_usize..3) {
            let _ = parse(["cpu", "memory", "x"][index], &text);
        }
    }
}
