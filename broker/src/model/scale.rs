//! How far a moldable request may be stretched or squeezed, and the factor that is chosen.
//!
//! Source: `formats.md`, version 2 (`scale`); equations 4.6 to 4.8 of the thesis on co-location. Invariant: a factor is at least 1 and at
//! most [`Factor::MAX`], and everything is rounded up.

use std::{fmt, ops::RangeInclusive};

use serde::{Deserialize, Serialize};

use crate::model::{amount::Amount, resources::Amounts, time::Span};

/// What amounts are multiplied with and lengths divided by, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Factor(u32);

/// A number is no factor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} thousandths: expected 1 to {most}", most = Factor::MAX.0)]
pub struct FactorError(u32);

impl TryFrom<u32> for Factor {
    type Error = FactorError;

    fn try_from(thousandths: u32) -> Result<Factor, FactorError> {
        let is_factor = (1..=Factor::MAX.0).contains(&thousandths);
        if is_factor { Ok(Factor(thousandths)) } else { Err(FactorError(thousandths)) }
    }
}

impl From<Factor> for u32 {
    fn from(factor: Factor) -> u32 {
        factor.0
    }
}

impl fmt::Display for Factor {
    /// As a decimal number, such as 0.75.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Factor {
    /// As asked.
    pub const ONE: Factor = Factor(1000);
    /// The largest.
    pub const MAX: Factor = Factor(1_000_000);

    /// The factor of so many thousandths, brought into the range of factors.
    #[must_use]
    pub fn of_thousandths(thousandths: u32) -> Factor {
        Factor(thousandths.clamp(1, Factor::MAX.0))
    }

    /// In thousandths.
    #[must_use]
    pub fn thousandths(self) -> u32 {
        self.0
    }

    /// Whether nothing is scaled, which is left out where it is written down.
    #[must_use]
    pub fn is_one(&self) -> bool {
        *self == Factor::ONE
    }

    /// `ceil(amount * f / 1000)`.
    #[must_use]
    pub fn amount(self, amount: Amount) -> Amount {
        // Division of the wider integers is slow, and searches ask often.
        if let Some(product) = amount.0.checked_mul(u64::from(self.0)) {
            return Amount(product.div_ceil(1000));
        }
        let scaled = (u128::from(amount.0) * u128::from(self.0)).div_ceil(1000);
        Amount(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// [`Factor::amount`] of each.
    #[must_use]
    pub fn amounts(self, amounts: &Amounts) -> Amounts {
        amounts.iter().map(|(name, amount)| (name.clone(), self.amount(*amount))).collect()
    }

    /// `ceil(length * 1000 / f)`.
    #[must_use]
    pub fn length(self, length: Span) -> Span {
        Span(length.0.saturating_mul(1000).div_ceil(u64::from(self.0)))
    }
}

impl Default for Factor {
    fn default() -> Factor {
        Factor::ONE
    }
}

/// The factors that a request allows, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "the least and the largest factor in thousandths, such as [500, 2000]")]
pub struct Scale(u32, u32);

impl fmt::Display for Scale {
    /// As people write it, such as 0.5..2.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", Factor(self.0), Factor(self.1))
    }
}

impl Scale {
    /// The factors.
    #[must_use]
    pub fn range(self) -> RangeInclusive<Factor> {
        Factor(self.0)..=Factor(self.1)
    }

    /// As asked, or the end of the range that is nearest to that.
    #[must_use]
    pub fn plain(self) -> Factor {
        Factor::ONE.clamp(Factor(self.0), Factor(self.1))
    }

    /// Whether it is a range of factors, unlike what may be written down.
    pub(super) fn is_range(self) -> bool {
        1 <= self.0 && self.0 <= self.1 && self.1 <= Factor::MAX.0
    }
}
