//! A plot: series of points between two axes, as a drawing inside a page.
//!
//! Drawn here and not by a chart library, because those write fixed colours: a page must follow the reader's light or dark
//! screen, which takes colours that the page's style names.
//!
//! Invariant: a series that has no finite points leaves an empty plot, never a broken one.

use std::fmt::Write as _;

use super::{
    axis::{Axis, Fitted, words},
    page::escape,
};

/// Size of a plot, in its own units; the page stretches it.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
/// Room for the labels.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 30.0;
const TOP: f64 = 18.0;
/// Colours that the style knows.
const COLOURS: usize = 6;

/// See the module.
#[derive(Debug, Clone)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

#[derive(Debug, Clone)]
struct Series {
    name: String,
    shape: Shape,
    points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Area,
    Bars,
    Line,
    Steps,
}

/// Both axes of a plot that is drawn.
struct Field {
    x: Fitted,
    y: Fitted,
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
        let points = points.into_iter().filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y)).collect();
        self.series.push(Series { name: name.to_owned(), shape, points });
        self
    }

    /// For a page: the title, the drawing and the legend.
    pub(super) fn html(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let field =
            Field { x: self.x.fit(points().map(|(x, _)| *x), false), y: self.y.fit(points().map(|(_, y)| *y), true) };
        let bars_max = self.series.iter().filter(|series| series.shape == Shape::Bars).count();
        let (mut marks, mut bars) = (String::new(), 0);
        for (index, series) in self.series.iter().enumerate() {
            let drawn = match series.shape {
                Shape::Area => format!("<path class=\"area\" d=\"{}\"/>", field.area(&series.points)),
                Shape::Steps => format!("<path class=\"line\" d=\"{}\"/>", field.steps(&series.points)),
                Shape::Line => field.line(series),
                Shape::Bars => {
                    bars += 1;
                    field.bars(series, bars - 1, bars_max)
                }
            };
            let _ = write!(marks, "<g class=\"s{}\">{drawn}</g>", index % COLOURS);
        }
        let title = escape(&self.title);
        format!(
            "<div class=\"title\">{title}</div>{legend}\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">{axes}{marks}</svg>",
            legend = self.legend(),
            axes = field.axes(),
        )
    }

    /// The axes' words, and the series' names when there are several.
    fn legend(&self) -> String {
        let mut items = String::new();
        if self.series.len() > 1 {
            for (index, series) in self.series.iter().enumerate() {
                let _ = write!(items, "<li class=\"s{}\">{}</li>", index % COLOURS, escape(&series.name));
            }
        }
        let axes = format!("<div class=\"axes\">↑ {} &nbsp; → {}</div>", escape(&self.y.label), escape(&self.x.label));
        if items.is_empty() { axes } else { format!("{axes}<ul class=\"legend\">{items}</ul>") }
    }
}

impl Field {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let across = WIDTH - LEFT - RIGHT;
        let up = HEIGHT - TOP - BOTTOM;
        (LEFT + across * self.x.place(x), TOP + up * (1.0 - self.y.place(y)))
    }

    fn axes(&self) -> String {
        let mut axes = String::new();
        for (value, words) in &self.y.ticks {
            let (_, y) = self.at((0.0, *value));
            let _ = write!(
                axes,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{words}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
            );
        }
        for (index, (value, words)) in self.x.ticks.iter().enumerate() {
            let (x, _) = self.at((*value, 0.0));
            let minor = if index % 2 == 1 && self.x.ticks.len() > 4 { " minor" } else { "" };
            let _ = write!(
                axes,
                "<text class=\"label{minor}\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{words}</text>",
                HEIGHT - 8.0,
            );
        }
        axes
    }

    fn area(&self, points: &[(f64, f64)]) -> String {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
        let ground = |x: f64| self.at((x, 0.0));
        let mut path = format!("M{:.1} {:.1}", ground(first.0).0, ground(first.0).1);
        self.climb(&mut path, points);
        let _ = write!(path, "V{:.1}Z", ground(last.0).1);
        path
    }

    fn steps(&self, points: &[(f64, f64)]) -> String {
        let Some(first) = points.first() else { return String::new() };
        let (x, y) = self.at(*first);
        let mut path = format!("M{x:.1} {y:.1}");
        self.climb(&mut path, &points[1..]);
        path
    }

    fn climb(&self, path: &mut String, points: &[(f64, f64)]) {
        for point in points {
            let (x, y) = self.at(*point);
            let _ = write!(path, "H{x:.1}V{y:.1}");
        }
    }

    fn line(&self, series: &Series) -> String {
        let places: Vec<(f64, f64)> = series.points.iter().map(|point| self.at(*point)).collect();
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let mut drawn = format!("<polyline class=\"line\" points=\"{}\"/>", line.join(" "));
        for ((x, y), point) in places.iter().zip(&series.points) {
            let note = note(series, *point);
            let _ = write!(drawn, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\">{note}</circle>");
        }
        drawn
    }

    /// The bars of the series that is number `at` of `of` with bars.
    fn bars(&self, series: &Series, at: usize, of: usize) -> String {
        let (left, _) = self.at((0.0, 0.0));
        let (right, _) = self.at((1.0, 0.0));
        // A place is one long; bars leave a fifth of it free.
        let wide = 0.8 * (right - left) / of.max(1) as f64;
        let mut drawn = String::new();
        for point in &series.points {
            let ((middle, top), (_, ground)) = (self.at(*point), self.at((0.0, 0.0)));
            let x = middle + wide * (at as f64 - of as f64 / 2.0);
            let _ = write!(
                drawn,
                "<rect class=\"bar\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\">{}</rect>",
                wide * 0.92,
                ground - top,
                note(series, *point),
            );
        }
        drawn
    }
}

/// What a pointer on a mark shows.
fn note(series: &Series, (x, y): (f64, f64)) -> String {
    let (name, x, y) = (escape(&series.name), words(x, 3), words(y, 3));
    match series.shape {
        Shape::Bars => format!("<title>{name}: {y}</title>"),
        _ => format!("<title>{name}: {x}; {y}</title>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_holds_until_the_next_point() {
        let plot = Plot::new("A <plot>", Axis::linear("d"), Axis::linear("%").within(0.0, 100.0))
            .area("use", [(0.0, 50.0), (1.0, 100.0), (2.0, 100.0)]);
        let html = plot.html();
        assert!(html.contains("A &lt;plot&gt;") && !html.contains("legend"), "{html}");
        assert!(html.contains("d=\"M64.0 270.0H64.0V144.0H385.0V18.0H706.0V18.0V270.0Z\""), "{html}");
    }

    #[test]
    fn every_shape_is_drawn_with_its_notes() {
        let html = Plot::new("t", Axis::names("N", ["2", "5"]), Axis::linear("ms"))
            .bars("a", [(0.0, 1.0), (1.0, 2.0)])
            .bars("<b>", [(0.0, 2.0)])
            .line("c", [(0.0, 1.0), (1.0, 2.0)])
            .steps("d", [(0.0, 1.0), (1.0, 2.0)])
            .html();
        // Two places of 321 units: the first one's middle at 224.5, two bars of 128.4 units side by side.
        assert!(html.contains("<rect class=\"bar\" x=\"96.1\" y=\"144.0\""), "{html}");
        assert!(html.contains("<rect class=\"bar\" x=\"224.5\" y=\"18.0\""), "{html}");
        assert!(html.contains("<title>&lt;b&gt;: 2</title>") && html.contains("<title>c: 1; 2</title>"), "{html}");
        assert!(html.contains("points=\"224.5,144.0 545.5,18.0\""), "{html}");
        assert!(html.contains("d=\"M224.5 144.0H545.5V18.0\""), "{html}");
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let plot = Plot::new("t", Axis::linear("x"), Axis::linear("y"))
            .area("a", [(f64::NAN, 1.0), (1.0, f64::INFINITY)])
            .area("b", []);
        let html = plot.html();
        assert!(html.contains("d=\"\"") && !html.contains("NaN") && !html.contains("inf"), "{html}");
        assert_eq!(html.matches("<li ").count(), 2);
    }
}
