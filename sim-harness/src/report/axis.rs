//! One axis of a plot: which values it shows, where they lie, and the round numbers beside it.
//!
//! Invariant: whatever the values are, an axis shows a range of positive length.

/// Marks on an axis, at most about so many.
const TICKS_MAX: f64 = 6.0;

/// What an axis shows.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What it is about, with the unit.
    pub(super) label: String,
    range: Option<(f64, f64)>,
}

/// An axis whose range is known.
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    low: f64,
    high: f64,
    /// Values to be marked, with their words.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero (or below, when a value is) to the largest value. `label` says what it shows, with the unit.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), range: None }
    }

    /// Shows exactly this range; what lies outside is drawn at its edge.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Axis {
        Axis { range: Some((low, high)), ..self }
    }

    /// An axis for these values. `is_rounded` lengthens the range up to the next mark.
    pub(super) fn fit(&self, values: impl Iterator<Item = f64>, is_rounded: bool) -> Fitted {
        let seen = values.filter(|value| value.is_finite());
        let (mut low, mut high) = self.range.unwrap_or_else(|| seen.fold((0.0, f64::MIN_POSITIVE), widen));
        let step = nice_step((high - low) / TICKS_MAX);
        if is_rounded && self.range.is_none() {
            (low, high) = ((low / step).floor() * step, (high / step - 1e-9).ceil() * step);
        }
        let decimals = (-step.log10()).ceil().clamp(0.0, 9.0) as usize;
        let first = (low / step - 1e-9).ceil();
        let count = ((high - first * step) / step + 1e-9).floor().max(0.0) as u32;
        let ticks = (0..=count).map(|at| (first + f64::from(at)) * step).map(|value| (value, words(value, decimals)));
        Fitted { low, high, ticks: ticks.collect() }
    }
}

impl Fitted {
    /// Where a value lies, from 0 (the low end) to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

fn widen((low, high): (f64, f64), value: f64) -> (f64, f64) {
    (low.min(value), high.max(value))
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is no smaller than `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|step| step * power)
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(least)
}

/// A number with so many decimals at most, and a letter for thousands and more.
fn words(value: f64, decimals: usize) -> String {
    for (unit, letter) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value.abs() >= 10.0 * unit || (value.abs() >= unit && unit > 1e3) {
            return trimmed(value / unit, 2) + letter;
        }
    }
    trimmed(value, decimals + 1)
}

fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        axis.fit(values.iter().copied(), true).ticks.into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn an_axis_begins_at_zero_and_ends_at_a_round_number() {
        let axis = Axis::linear("s");
        assert_eq!(labels(&axis, &[3.0, 9.2]), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&axis, &[0.3, f64::NAN]), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(labels(&axis, &[-1.0, 1.0]), ["-1", "-0.5", "0", "0.5", "1"]);
        assert_eq!(labels(&axis, &[45_000.0]), ["0", "10k", "20k", "30k", "40k", "50k"]);
        assert_eq!(labels(&Axis::linear("%").within(0.0, 100.0), &[7.0]), ["0", "20", "40", "60", "80", "100"]);
    }

    #[test]
    fn an_axis_without_values_still_has_a_length() {
        for values in [&[][..], &[0.0], &[f64::INFINITY]] {
            let fitted = Axis::linear("s").fit(values.iter().copied(), true);
            assert!(fitted.high > fitted.low && fitted.place(0.0) == 0.0, "{fitted:?}");
        }
    }
}
