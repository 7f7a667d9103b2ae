//! The report: one self-contained page with the metrics and two plots, readable on a light and on a dark screen.
//!
//! Invariant: the page loads nothing, and every text from outside is escaped.

use std::fmt::Write as _;

use super::{
    metrics::Metrics,
    output::{self, Setting},
    series::Series,
};

/// Size of a plot, in its own units.
const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 220.0;
/// Room for the labels: left, bottom, top.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 8.0;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#5b6672;--line:#d5dae0;--mark:#0b62c4}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#15181c;--soft:#9aa5b1;--line:#333a42;--mark:#6db3ff}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:960px;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid var(--line)}\
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}pre{white-space:pre-wrap;color:var(--soft)}\
.axis{stroke:var(--line)}.label{fill:var(--soft);font:12px system-ui,sans-serif}\
.area{fill:var(--mark);fill-opacity:.25;stroke:var(--mark);stroke-width:1.2}p,figcaption{color:var(--soft)}figure{margin:1.5rem 0}";

/// The page.
pub fn page(metrics: &Metrics, setting: &Setting, series: &Series, processors: u64) -> String {
    let mut rows = String::new();
    for (name, spread) in output::rows(metrics) {
        let cells = [spread.mean, spread.median, spread.p95, spread.p99].map(|value| format!("<td>{value:.1}</td>"));
        let _ = write!(rows, "<tr><td>{name}</td>{}</tr>", cells.concat());
    }
    let title = format!("{} on {}", escape(&setting.policy), escape(&setting.trace));
    let used: Vec<f64> = series.processors.iter().map(|used| 100.0 * used / processors as f64).collect();
    let days = series.piece_s * used.len() as f64 / 86_400.0;
    let found = output::findings(&metrics.findings);
    let found = if found.is_empty() { "Every line of the trace was a job.".to_owned() } else { escape(&found) };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{jobs} jobs on {processors} processors; {killed} killed at their limit, {rejected} \
         rejected. The scheduler knew {known}; a job that reached its limit {at_limit}. Makespan {days:.1} days, \
         utilisation {utilisation:.2} %.</p>\n\
         <table><tr><th></th><th>mean</th><th>median</th><th>p95</th><th>p99</th></tr>{rows}</table>\n\
         <figure>{use_plot}<figcaption>Processors in use, per cent of all.</figcaption></figure>\n\
         <figure>{queue_plot}<figcaption>Jobs waiting.</figcaption></figure>\n\
         <h2>What was found in the trace</h2><pre>{found}</pre>\n\
         <p>Each point of a plot is the exact mean over one {pieces}th of the makespan.</p></body></html>\n",
        jobs = metrics.jobs,
        killed = metrics.killed,
        rejected = metrics.rejected,
        known = if setting.runtimes == "true" { "the true run times" } else { "the users' limits" },
        at_limit = if setting.overrun == "kill" { "ended there" } else { "ran on" },
        utilisation = 100.0 * metrics.utilisation,
        use_plot = plot("Processors in use over time", &used, 100.0, days),
        queue_plot = plot("Waiting jobs over time", &series.waiting, nice_above(&series.waiting), days),
        pieces = used.len(),
    )
}

/// A filled step line of `values` over `days`, from 0 to `top`.
fn plot(name: &str, values: &[f64], top: f64, days: f64) -> String {
    let (inner_width, inner_height) = (WIDTH - LEFT, HEIGHT - BOTTOM - TOP);
    let x = |at: f64| LEFT + inner_width * at / values.len() as f64;
    let y = |value: f64| TOP + inner_height * (1.0 - (value / top).min(1.0));
    let mut path = format!("M{LEFT:.1} {:.1}", y(0.0));
    for (index, value) in values.iter().enumerate() {
        let _ = write!(path, "V{:.1}H{:.1}", y(*value), x((index + 1) as f64));
    }
    let _ = write!(path, "V{:.1}Z", y(0.0));
    let mut axes = String::new();
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let (at, left) = (y(top * share), LEFT + inner_width * share);
        let _ = write!(
            axes,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text class=\"label\" x=\"{left:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{} d</text>",
            LEFT - 8.0,
            at + 4.0,
            short(top * share),
            HEIGHT - 4.0,
            if part == 4 { "end" } else { "middle" },
            short(days * share),
        );
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}\">{axes}<path class=\"area\" d=\"{path}\"/></svg>"
    )
}

/// A round number at or above all values.
fn nice_above(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(1.0, f64::max);
    let power = 10_f64.powf(most.log10().floor());
    [1.0, 2.0, 4.0, 8.0, 10.0].map(|step| step * power).into_iter().find(|round| *round >= most).unwrap_or(most)
}

fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
