//! The result of a run as a page: what was asked, what came of it, and how a load went over time.
//!
//! Invariant: the page says the same as the terminal, from the same figures.

use sim_kit::{
    report::{Axis, Page, Plot, Table},
    stats::Percentiles,
};

use super::{
    findings::Findings,
    words::{counts, failures, sections, table, verdict},
};
use crate::grid::load::{answer::Counts, figures::LoadFigures};

/// The page.
pub fn page(findings: &Findings) -> Page {
    let figures = &findings.figures;
    let mut page = Page::new(&format!("A grid of {} nodes and {} hosts", figures.nodes, figures.hosts));
    page.text(&format!("{}. {}. Seed {}.", counts(figures), verdict(figures), figures.seed));
    sections(figures).iter().for_each(|words| page.text(words));
    page.table(&table(figures));
    if let [first, .., last] = &figures.loads[..] {
        let (first, last) = (first.asked_per_second, last.asked_per_second);
        page.heading(&format!("Loads from {first:.1} to {last:.1} requests a second"));
        page.table(&loads(&figures.loads));
        let mut by_rate: Vec<&LoadFigures> = figures.loads.iter().collect();
        by_rate.sort_by(|a, b| a.asked_per_second.total_cmp(&b.asked_per_second));
        let points: Vec<_> = by_rate.iter().map(|load| (load.asked_per_second, load.counts.latency_ms)).collect();
        let plot = latency_plot("Latency by rate", "requests a second", &points);
        let caption =
            "From the moment at which a request was due to its confirmation; each value holds up to the next rate.";
        page.plot(&plot, caption);
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
    for LoadFigures { asked_per_second, counts, nodes_cpu, .. } in loads {
        let or_none =
            |value: Option<f64>, digits| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
        table.push([
            format!("{asked_per_second:.1}"),
            counts.requests.to_string(),
            counts.reserved.to_string(),
            counts.failed.to_string(),
            counts.conflicts.to_string(),
            or_none(counts.latency_ms.map(|latency| latency.p50), 1),
            or_none(counts.latency_ms.map(|latency| latency.p99), 1),
            or_none(*nodes_cpu, 2),
        ]);
    }
    table
}

fn over_time(page: &mut Page, seconds: &[Counts]) {
    // The last second is as long as the others.
    let to_the_end =
        || seconds.iter().chain(seconds.last()).enumerate().map(|(second, counts)| (second as f64, counts));
    let points: Vec<_> = to_the_end().map(|(second, counts)| (second, counts.latency_ms)).collect();
    let plot = latency_plot("Latency over time", "seconds", &points);
    page.plot(&plot, "Of the requests that were due in each second and were reserved.");
    let plot = Plot::new("Requests", Axis::linear("seconds"), Axis::linear("requests"));
    let came = to_the_end().map(|(second, counts)| (second, counts.requests as f64));
    page.plot(&plot.area("came", came), "How many were due in each second.");
}

fn latency_plot(title: &str, x: &str, points: &[(f64, Option<Percentiles>)]) -> Plot {
    let area = |value: fn(Percentiles) -> f64| points.iter().map(move |(x, y)| (*x, y.map_or(f64::NAN, value)));
    let plot = Plot::new(title, Axis::linear(x), Axis::linear("ms"));
    plot.area("99 %", area(|latency| latency.p99)).area("median", area(|latency| latency.p50))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::report::findings::Figures;

    #[test]
    fn a_page_shows_every_load_and_what_went_wrong() {
        let latency_ms = Some(Percentiles { p50: 20.0, p99: 90.0, max: 100.0 });
        let counts = Counts { requests: 7, reserved: 7, latency_ms, ..Counts::default() };
        let load = |asked_per_second| LoadFigures {
            asked_per_second,
            counts: counts.clone(),
            seconds: vec![counts.clone(), Counts::default(), counts.clone()],
            ..LoadFigures::default()
        };
        let figures = Figures { nodes: 50, loads: vec![load(10.0), load(20.0)], ..Figures::default() };
        let failed_checks = vec!["node-001 is <wedged>".to_owned()];
        let html = page(&Findings { figures, failed_checks, ..Findings::default() }).html();
        for expected in
            ["A grid of 50 nodes", "Loads from 10.0 to 20.0", "<h2>20.0 requests a second</h2>", "&lt;wedged&gt;"]
        {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert_eq!(html.matches("Latency over time").count(), 4, "title and label of two plots");
        let html = page(&Findings::default()).html();
        assert!(!html.contains("Latency over time") && !html.contains("What went wrong"));
    }
}
