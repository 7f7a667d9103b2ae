//! A plot: series of points between two axes, as a drawing inside a page.
//!
//! Drawn here and not by a chart library, because those write fixed colours: a page must follow the reader's light or dark
//! screen, which takes colours that the page's style names.
//!
//! Invariant: a series that has no finite points leaves an empty plot, never a broken one.

use std::fmt::Write as _;

use super::{
    axis::{Axis, Fitted},
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
    points: Vec<(f64, f64)>,
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
    pub fn area(mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Plot {
        let points = points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        self.series.push(Series { name: name.to_owned(), points });
        self
    }

    /// For a page: the title, the drawing and the legend.
    pub(super) fn html(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let field =
            Field { x: self.x.fit(points().map(|(x, _)| *x), false), y: self.y.fit(points().map(|(_, y)| *y), true) };
        let mut marks = String::new();
        for (index, series) in self.series.iter().enumerate() {
            let _ = write!(marks, "<path class=\"area s{}\" d=\"{}\"/>", index % COLOURS, field.area(&series.points));
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
        for point in points {
            let (x, y) = self.at(*point);
            let _ = write!(path, "H{x:.1}V{y:.1}");
        }
        let _ = write!(path, "V{:.1}Z", ground(last.0).1);
        path
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
    fn what_is_not_finite_is_left_out() {
        let plot = Plot::new("t", Axis::linear("x"), Axis::linear("y"))
            .area("a", [(f64::NAN, 1.0), (1.0, f64::INFINITY)])
            .area("b", []);
        let html = plot.html();
        assert!(html.contains("d=\"\"") && !html.contains("NaN") && !html.contains("inf"), "{html}");
        assert_eq!(html.matches("<li ").count(), 2);
    }
}
