//! The tables of the study as people read them, on a terminal and on a page.
//!
//! Invariant: the source's figures are called so.

use serde::Serialize;
use sim_kit::report::{Axis, Page, Plot, Table};

use super::experiments::{Figures, POLICIES, Point};

/// An experiment and what the source found in it.
#[derive(Debug, Serialize)]
pub(super) struct Experiment {
    pub(super) title: &'static str,
    pub(super) changes: &'static str,
    pub(super) source: &'static str,
    pub(super) points: Vec<Point>,
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub(super) struct LateBinding {
    pub(super) seed: u64,
    pub(super) worlds: u64,
    pub(super) experiments: Vec<Experiment>,
}

type Figure = fn(&Figures) -> f64;
const FIGURES: [(&str, Figure); 4] = [
    ("admitted, %", Figures::admission),
    ("preempting, % of admitted", Figures::preemption),
    ("work lost for one admitted, s", Figures::cost),
    ("failed, % of admitted", Figures::failure),
];

impl Experiment {
    /// Figures that are not zero throughout.
    fn figures(&self) -> impl Iterator<Item = (&'static str, Figure)> {
        let is_there = |figure: Figure| self.points.iter().any(|point| point.figures.iter().any(|of| figure(of) > 0.0));
        FIGURES.into_iter().filter(move |(_, figure)| is_there(*figure))
    }

    fn table(&self, figure: Figure) -> Table {
        let mut table = Table::new([self.changes].into_iter().chain(POLICIES));
        for Point { value, figures } in &self.points {
            table.row(value.to_string(), figures.iter().map(|of| format!("{:.1}", figure(of))));
        }
        table
    }
}

/// All tables as text.
pub(super) fn text(study: &LateBinding) -> String {
    let mut text = format!("{} worlds for each row, seed {}\n", study.worlds, study.seed);
    for experiment in &study.experiments {
        text += &format!("\n{}\n{}\n", experiment.title, experiment.source);
        for (name, figure) in experiment.figures() {
            text += &format!("\n{name}\n{}\n", experiment.table(figure).text());
        }
    }
    text
}

/// The page.
pub(super) fn page(study: &LateBinding) -> Page {
    let mut page = Page::new("Late binding");
    page.text(
        "A reservation is tied to a host when it is asked for (static), or when it begins: after the source's test of admission (dynamic), \
         or with Kolo's witness, an assignment of all that is promised.",
    );
    page.text(&format!("{} worlds for each point, seed {}.", study.worlds, study.seed));
    for experiment in &study.experiments {
        page.heading(experiment.title);
        page.text(experiment.source);
        for (name, figure) in experiment.figures() {
            let mut plot = Plot::new(name, Axis::linear(experiment.changes), Axis::linear(name));
            for (at, policy) in POLICIES.into_iter().enumerate() {
                plot =
                    plot.line(policy, experiment.points.iter().map(|point| (point.value, figure(&point.figures[at]))));
            }
            page.plot(&plot, experiment.title);
            page.table(&experiment.table(figure));
        }
    }
    page
}
