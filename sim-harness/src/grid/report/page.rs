//! The result of a run as a page: what was asked, what came of it, and how a load went over time.
//!
//! Invariant: the page says the same as the terminal, from the same figures.

use super::{
    findings::{Figures, Findings},
    words::{counts, failures, sections, table, verdict},
};
use crate::stats::Percentiles;
use crate::{
    grid::load::figures::{LoadFigures, Second},
    report::{Axis, Page, Plot, Table},
};

/// The page.
pub fn page(findings: &Findings, figures: &Figures) -> Page {
    let mut page = Page::new(&format!("A grid of {} nodes and {} hosts", figures.nodes, figures.hosts));
    page.text(&format!("{}. {}. Seed {}.", counts(figures), verdict(figures), figures.seed));
    sections(figures).iter().for_each(|words| page.text(words));
    page.table(&table(figures));
    if let [first, .., last] = &figures.loads[..] {
        page.heading(&format!(
            "Loads from {:.1} to {:.1} requests a second",
            first.asked_per_second, last.asked_per_second
        ));
        page.table(&loads(&figures.loads));
        let plot = Plot::new("Latency by rate", Axis::linear("requests a second"), Axis::linear("ms"));
        let mut by_rate: Vec<&LoadFigures> = figures.loads.iter().collect();
        by_rate.sort_by(|a, b| a.asked_per_second.total_cmp(&b.asked_per_second));
        let points = |value: fn(&Percentiles) -> f64| {
            by_rate.iter().filter_map(move |load| Some((load.asked_per_second, value(load.latency_ms.as_ref()?))))
        };
        let plot = plot.area("99 %", points(|latency| latency.p99)).area("median", points(|latency| latency.p50));
        page.plot(
            &plot,
            "From the moment at which a request was due to its confirmation; each value holds up to the next rate.",
        );
    }
    for load in &figures.loads {
        page.heading(&format!("{:.1} requests a second", load.asked_per_second));
        over_time(&mut page, &load.seconds);
    }
    let failures = failures(findings);
    if !failures.is_empty() {
        page.heading("What went wrong");
        page.lines(&failures);
    }
    page
}

fn loads(loads: &[LoadFigures]) -> Table {
    let header =
        ["asked a second", "requests", "reserved", "failed", "conflicts", "median, ms", "99 %, ms", "processors"];
    let mut table = Table::new(header);
    for load in loads {
        let or_none =
            |value: Option<f64>, digits| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
        table.push([
            format!("{:.1}", load.asked_per_second),
            load.requests.to_string(),
            load.reserved.to_string(),
            load.failed.to_string(),
            load.conflicts.to_string(),
            or_none(load.latency_ms.map(|latency| latency.p50), 1),
            or_none(load.latency_ms.map(|latency| latency.p99), 1),
            or_none(load.nodes_cpu, 2),
        ]);
    }
    table
}

fn over_time(page: &mut Page, seconds: &[Second]) {
    let at = |second: usize| second as f64;
    // The last second is as long as the others.
    let to_the_end = || seconds.iter().chain(seconds.last()).enumerate();
    let latency = |value: fn(&Percentiles) -> f64| {
        to_the_end().map(move |(second, of)| (at(second), of.latency_ms.as_ref().map_or(f64::NAN, value)))
    };
    let plot = Plot::new("Latency over time", Axis::linear("seconds"), Axis::linear("ms"));
    let plot = plot.area("99 %", latency(|found| found.p99)).area("median", latency(|found| found.p50));
    page.plot(&plot, "Of the requests that were due in each second and were reserved.");
    let plot = Plot::new("Requests", Axis::linear("seconds"), Axis::linear("requests"));
    let came = to_the_end().map(|(second, of)| (at(second), at(of.requests)));
    page.plot(&plot.area("came", came), "How many were due in each second.");
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::*;

    #[test]
    fn a_page_shows_every_load_and_what_went_wrong() {
        let latency = Some(Percentiles { p50: 20.0, p99: 90.0, max: 100.0 });
        let load = |asked_per_second| LoadFigures {
            asked_per_second,
            requests: 7,
            reserved: 7,
            failed: 0,
            conflicts: 1,
            latency_ms: latency,
            nodes_cpu: None,
            cpu_ms_per_request: None,
            node_per_second: BTreeMap::new(),
            seconds: vec![
                Second { requests: 3, latency_ms: latency },
                Second::default(),
                Second { requests: 4, latency_ms: latency },
            ],
        };
        let mut findings = Findings { nodes: 50, loads: vec![load(10.0), load(20.0)], ..Findings::default() };
        findings.rest = Some(Duration::from_secs(4));
        findings.failed_checks = vec!["node-001 is <wedged>".to_owned()];
        let html = page(&findings, &findings.figures()).html();
        for expected in
            ["A grid of 50 nodes", "Loads from 10.0 to 20.0", "<h2>20.0 requests a second</h2>", "&lt;wedged&gt;"]
        {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert_eq!(html.matches("Latency over time").count(), 4, "title and label of two plots");
        let quiet = Findings { nodes: 3, ..Findings::default() };
        let html = page(&quiet, &quiet.figures()).html();
        assert!(!html.contains("Latency over time") && !html.contains("What went wrong"));
    }
}
