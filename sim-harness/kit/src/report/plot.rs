//! A plot: series of points between two axes, drawn by `plotters` for a page.
//!
//! The drawing names its colours as the page's style does, so that it follows the reader's light or dark screen.
//! Invariant: whatever the values are, a plot is drawn; values that are not finite, or not above zero on an axis of equal
//! factors, are left out.

use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;

/// Size of a plot, in its own units; the page stretches it.
const SIZE: (u32, u32) = (720, 300);
/// Colours that the style has for series.
const COLOURS: u8 = 6;
/// Stand for the colours of the style until the drawing is text: `--s0` to `--s5`, `--soft`, `--line`.
const SERIES: fn(usize) -> RGBColor = |index| RGBColor(1, 0, (index % usize::from(COLOURS)) as u8);
const SOFT: RGBColor = RGBColor(1, 1, 0);
const LINE: RGBColor = RGBColor(1, 2, 0);

/// What one axis shows.
#[derive(Debug, Clone)]
pub struct Axis {
    label: String,
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

impl Axis {
    /// From zero (or below, when a value is) to the largest value. `label` says what it shows, with the unit.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Linear(None) }
    }

    /// Equal factors have equal lengths; a value that is not above zero is left out.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Log }
    }

    /// A place for each name: the point (0, y) belongs to the first.
    pub fn names<T: Into<String>>(label: &str, names: impl IntoIterator<Item = T>) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Names(names.into_iter().map(Into::into).collect()) }
    }

    /// Shows exactly this range; a value outside is drawn at its edge.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Axis {
        Axis { scale: Scale::Linear(Some((low, high))), ..self }
    }

    /// Where a value lies, if the axis has a place for it.
    fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Log => value.log10(),
            Scale::Linear(Some((low, high))) => value.clamp(low, high),
            _ => value,
        };
        place.is_finite().then_some(place)
    }

    /// The range that shows these places, and how many marks it has.
    fn range(&self, places: impl Iterator<Item = f64>) -> (Range<f64>, usize) {
        let places: Vec<f64> = places.collect();
        let low = places.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let high = places.iter().copied().reduce(f64::max).unwrap_or(0.0);
        match &self.scale {
            Scale::Linear(range) => {
                let (low, high) = range.unwrap_or((low.min(0.0), high.max(0.0)));
                (low..if high > low { high } else { low + 1.0 }, 6)
            }
            Scale::Log => {
                let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
                (low..high, (high - low) as usize + 1)
            }
            Scale::Names(names) => (-0.5..names.len().max(1) as f64 - 0.5, names.len()),
        }
    }

    /// The text at a mark.
    fn words(&self, place: f64) -> String {
        match &self.scale {
            // Adding zero takes the sign of a zero away.
            Scale::Linear(_) => ((place * 1e4).round() / 1e4 + 0.0).to_string(),
            Scale::Log if place.fract() == 0.0 => 10_f64.powf(place).to_string(),
            Scale::Names(names) if place.fract() == 0.0 => names.get(place as usize).cloned().unwrap_or_default(),
            _ => String::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Area,
    Bars,
    Line,
    Steps,
}

#[derive(Debug, Clone)]
struct Series {
    name: String,
    shape: Shape,
    points: Vec<(f64, f64)>,
}

/// A title, two axes and series of points.
#[derive(Debug, Clone)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

impl Plot {
    /// A plot without series.
    pub fn new(title: &str, x: Axis, y: Axis) -> Plot {
        Plot { title: title.to_owned(), x, y, series: Vec::new() }
    }

    /// Adds a filled step line: each value holds from its x to the next point's x. The last point ends the line.
    #[must_use]
    pub fn area(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Plot {
        self.with(name, Shape::Area, points)
    }

    /// Adds bars from zero up. Bars of several series at one x stand side by side.
    #[must_use]
    pub fn bars(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Plot {
        self.with(name, Shape::Bars, points)
    }

    /// Adds points with straight lines between them.
    #[must_use]
    pub fn line(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Plot {
        self.with(name, Shape::Line, points)
    }

    /// Adds a step line, as [`Plot::area`] without the filling.
    #[must_use]
    pub fn steps(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Plot {
        self.with(name, Shape::Steps, points)
    }

    fn with(mut self, name: &str, shape: Shape, points: impl IntoIterator<Item = (f64, f64)>) -> Plot {
        let place = |(x, y)| Some((self.x.place(x)?, self.y.place(y)?));
        let points = points.into_iter().filter_map(place).collect();
        self.series.push(Series { name: name.to_owned(), shape, points });
        self
    }

    /// For a page: the title, the axes' labels, the legend and the drawing.
    pub(super) fn html(&self) -> Markup {
        let mut svg = String::new();
        // Writing to a text does not fail.
        let _ = self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area());
        let mut svg = svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
        let series = (0..COLOURS).map(|index| (SERIES(index.into()), format!("s{index}")));
        for (RGBColor(r, g, b), name) in series.chain([(SOFT, "soft".to_owned()), (LINE, "line".to_owned())]) {
            svg = svg.replace(&format!("#{r:02X}{g:02X}{b:02X}"), &format!("var(--{name})"));
        }
        html! {
            div.title { (self.title) }
            div.axes { "↑ " (self.y.label) "   → " (self.x.label) }
            @if self.series.len() > 1 {
                ul.legend {
                    @for (index, series) in self.series.iter().enumerate() {
                        li style={ "--series: var(--s" (index % usize::from(COLOURS)) ")" } { (series.name) }
                    }
                }
            }
            div role="img" aria-label=(self.title) { (PreEscaped(svg)) }
        }
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (x, x_marks) = self.x.range(points().map(|point| point.0));
        let (y, y_marks) = self.y.range(points().map(|point| point.1));
        let ground = y.start;
        let mut chart =
            ChartBuilder::on(area).margin(12).x_label_area_size(24).y_label_area_size(56).build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(LINE)
            .axis_style(LINE)
            .label_style(("sans-serif", 13).into_font().color(&SOFT))
            .x_labels(x_marks)
            .y_labels(y_marks)
            .x_label_formatter(&|place| self.x.words(*place))
            .y_label_formatter(&|place| self.y.words(*place))
            .draw()?;
        let bars_max = self.series.iter().filter(|series| series.shape == Shape::Bars).count() as f64;
        let mut bars = 0.0;
        for (index, Series { shape, points, .. }) in self.series.iter().enumerate() {
            // The first line is wider than the others, so that it is seen where another one covers it.
            let (colour, width) = (SERIES(index), if index == 0 { 4 } else { 2 });
            match shape {
                Shape::Area => {
                    let area = AreaSeries::new(steps(points), ground, colour.mix(0.25)).border_style(colour);
                    chart.draw_series(area)?;
                }
                Shape::Steps => drop(chart.draw_series(LineSeries::new(steps(points), colour.stroke_width(width)))?),
                Shape::Line => {
                    let line = LineSeries::new(points.iter().copied(), colour.stroke_width(width)).point_size(3);
                    chart.draw_series(line)?;
                }
                Shape::Bars => {
                    // A place is one long; bars leave a fifth of it free.
                    let wide = 0.8 / bars_max;
                    let left = wide * (bars - bars_max / 2.0);
                    let bar = |(x, y): &(f64, f64)| {
                        Rectangle::new([(x + left, ground), (x + left + wide * 0.92, *y)], colour.filled())
                    };
                    chart.draw_series(points.iter().map(bar))?;
                    bars += 1.0;
                }
            }
        }
        Ok(())
    }
}

/// The corners of a step line: each value holds from its x to the next one.
fn steps(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let corners = points.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    points.first().copied().into_iter().chain(corners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_drawn_in_colours_of_the_style() {
        let html = Plot::new("A <plot>", Axis::names("N", ["2", "5"]), Axis::linear("ms"))
            .bars("a", [(0.0, 1.0), (1.0, 2.0)])
            .bars("<b>", [(0.0, 2.0)])
            .line("c", [(0.0, 1.0), (1.0, 2.0)])
            .steps("d", [(0.0, 1.0), (1.0, 2.0)])
            .area("e", [(0.0, 1.0), (1.0, 2.0)])
            .html()
            .into_string();
        assert!(html.contains("A &lt;plot&gt;") && html.contains("&lt;b&gt;") && !html.contains("http"), "{html}");
        for (shape, colour, count) in [
            ("<rect", "s0", 2),
            ("<rect", "s1", 1),
            ("<circle", "s2", 2),
            ("<polyline", "s3", 1),
            ("<polygon", "s4", 1),
        ] {
            let drawn =
                html.lines().filter(|line| line.starts_with(shape) && line.contains(&format!("var(--{colour})")));
            assert_eq!(drawn.count(), count, "{shape} {colour}: {html}");
        }
        assert_eq!(html.matches("<li ").count(), 5);
    }

    #[test]
    fn a_step_holds_until_the_next_point() {
        let points = [(0.0, 1.0), (1.0, 3.0), (2.0, 3.0)];
        assert!(steps(&points).eq([(0.0, 1.0), (1.0, 1.0), (1.0, 3.0), (2.0, 3.0), (2.0, 3.0)]));
    }

    #[test]
    fn axes_show_all_values_and_leave_out_what_is_none() {
        let range = |axis: &Axis, values: &[f64]| axis.range(values.iter().filter_map(|value| axis.place(*value))).0;
        assert_eq!(range(&Axis::linear("s"), &[3.0, f64::NAN, 9.0]), 0.0..9.0);
        assert_eq!(range(&Axis::linear("s"), &[-1.0, 1.0]), -1.0..1.0);
        assert_eq!(range(&Axis::linear("s"), &[0.0]), 0.0..1.0);
        assert_eq!(range(&Axis::linear("%").within(0.0, 100.0), &[700.0]), 0.0..100.0);
        assert_eq!(range(&Axis::log("s"), &[0.3, 0.0, -1.0, 45.0]), -1.0..2.0);
        assert_eq!(range(&Axis::log("s"), &[]), 0.0..1.0);
        assert_eq!(
            (Axis::log("s").words(-1.0), Axis::linear("s").words(0.1 + 0.2)),
            ("0.1".to_owned(), "0.3".to_owned())
        );
        assert_eq!(Axis::names("N", ["a", "b"]).words(1.0), "b");
        let empty = Plot::new("t", Axis::linear("x"), Axis::log("y")).area("a", [(f64::NAN, 1.0)]).bars("b", []).html();
        assert!(!empty.0.contains("NaN") && !empty.0.contains("inf"), "{}", empty.0);
    }
}
