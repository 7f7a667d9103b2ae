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
    scale: Scale,
}

#[derive(Debug, Clone)]
enum Scale {
    /// Equal steps, from zero on or in a given range.
    Linear(Option<(f64, f64)>),
    /// Equal factors.
    Log,
    /// One place for each name.
    Names(Vec<String>),
}

/// An axis whose range is known.
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    low: f64,
    high: f64,
    is_log: bool,
    /// Values to be marked, with their words.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero (or below, when a value is) to the largest value. `label` says what it shows, with the unit.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Linear(None) }
    }

    /// Equal factors have equal lengths; what is not above zero is left out.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Log }
    }

    /// A place for each name: the point (0, y) belongs to the first.
    pub fn names<T: Into<String>>(label: &str, names: impl IntoIterator<Item = T>) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Names(names.into_iter().map(Into::into).collect()) }
    }

    /// Shows exactly this range; what lies outside is drawn at its edge.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Axis {
        Axis { scale: Scale::Linear(Some((low, high))), ..self }
    }

    /// Whether the axis has a place for this value.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || !matches!(self.scale, Scale::Log))
    }

    /// An axis for these values, which it shows. `is_rounded` lengthens the range up to the next mark.
    pub(super) fn fit(&self, values: impl Iterator<Item = f64>, is_rounded: bool) -> Fitted {
        match &self.scale {
            Scale::Linear(range) => fit_linear(*range, values, is_rounded),
            Scale::Log => fit_log(values),
            Scale::Names(names) => {
                let ticks = (0_u32..).zip(names).map(|(at, name)| (f64::from(at), name.clone())).collect();
                Fitted { low: -0.5, high: names.len().max(1) as f64 - 0.5, is_log: false, ticks }
            }
        }
    }
}

fn fit_linear(range: Option<(f64, f64)>, values: impl Iterator<Item = f64>, is_rounded: bool) -> Fitted {
    let (mut low, mut high) = range.unwrap_or_else(|| values.fold((0.0, 0.0), widen));
    // Nothing but zeros would leave no length.
    high = if high > low { high } else { low + 1.0 };
    let step = nice_step((high - low) / TICKS_MAX);
    if is_rounded && range.is_none() {
        (low, high) = ((low / step).floor() * step, (high / step - 1e-9).ceil() * step);
    }
    let decimals = (-step.log10()).ceil().clamp(0.0, 9.0) as usize;
    let first = (low / step - 1e-9).ceil();
    let count = ((high - first * step) / step + 1e-9).floor().max(0.0) as u32;
    let ticks = (0..=count).map(|at| (first + f64::from(at)) * step).map(|value| (value, words(value, decimals)));
    Fitted { low, high, is_log: false, ticks: ticks.collect() }
}

/// Whole powers of ten around the values, with a mark at each.
fn fit_log(values: impl Iterator<Item = f64>) -> Fitted {
    let (low, high) = values.fold((f64::INFINITY, 0.0), widen);
    let (low, high) = if low <= high { (low.log10().floor() as i32, high.log10().ceil() as i32) } else { (0, 1) };
    let high = high.max(low + 1);
    let every = (high - low) / 8 + 1;
    let mark = |power: i32| (10_f64.powi(power), words(10_f64.powi(power), power.min(0).unsigned_abs() as usize));
    let ticks = (low..=high).filter(|power| (power - low) % every == 0).map(mark).collect();
    Fitted { low: 10_f64.powi(low), high: 10_f64.powi(high), is_log: true, ticks }
}

impl Fitted {
    /// Where a value lies, from 0 (the low end) to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
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
pub(super) fn words(value: f64, decimals: usize) -> String {
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
        assert_eq!(labels(&axis, &[0.3]), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(labels(&axis, &[-1.0, 1.0]), ["-1", "-0.5", "0", "0.5", "1"]);
        assert_eq!(labels(&axis, &[45_000.0]), ["0", "10k", "20k", "30k", "40k", "50k"]);
        assert_eq!(labels(&Axis::linear("%").within(0.0, 100.0), &[7.0]), ["0", "20", "40", "60", "80", "100"]);
    }

    #[test]
    fn an_axis_without_values_still_has_a_length() {
        for axis in [Axis::linear("s"), Axis::log("s"), Axis::names("s", [""; 0])] {
            let fitted = axis.fit([].into_iter(), true);
            assert!(fitted.high > fitted.low && (0.0..=1.0).contains(&fitted.place(1.0)), "{fitted:?}");
        }
        assert_eq!(labels(&Axis::linear("s"), &[0.0]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let fitted = Axis::linear("s").fit([0.0].into_iter(), true);
        assert!(fitted.high > fitted.low && fitted.place(0.0) == 0.0, "{fitted:?}");
    }

    #[test]
    fn a_log_axis_spans_whole_powers_and_a_named_one_has_a_place_for_each() {
        let axis = Axis::log("us");
        assert_eq!(labels(&axis, &[0.3, 45.0, 2000.0]), ["0.1", "1", "10", "100", "1000", "10k"]);
        assert!(axis.shows(0.5) && !axis.shows(0.0) && !axis.shows(f64::NAN));
        let fitted = axis.fit([1.0, 100.0].into_iter(), true);
        assert!((fitted.place(10.0) - 0.5).abs() < 1e-12);
        let fitted = Axis::names("N", ["a", "b"]).fit([].into_iter(), true);
        assert_eq!((fitted.place(0.0), fitted.place(1.0)), (0.25, 0.75));
    }
}
