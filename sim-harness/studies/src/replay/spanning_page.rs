//! The report of a replay on clusters with uplinks: the metrics, and how full clusters and uplinks were.

use sim_kit::report::{Axis, Page, Plot, Table};

use crate::clusters::{usage::Usage, world::Cluster};

const DAY_S: f64 = 86_400.0;

/// The page; `names` are those of the clusters.
pub(super) fn page(title: &str, metrics: &Table, names: &[&str], clusters: &[Cluster], usage: &Usage) -> Page {
    let mut page = Page::new(title);
    page.table(metrics);
    page.table(&means(names, clusters, usage));
    let each = format!(
        "Each step is the exact mean over one {}th of the makespan; of a job that lost a host only its last run counts.",
        usage.waiting.len()
    );
    let share = |title: &str, label: &str, series: &[Vec<f64>]| {
        let plot = Plot::new(title, Axis::linear("days"), Axis::linear(label));
        names.iter().zip(series).fold(plot, |plot, (name, shares)| {
            plot.steps(name, steps(usage.piece_s, shares.iter().map(|share| 100.0 * share)))
        })
    };
    page.plot(&share("Hosts in use, by cluster", "per cent of its hosts", &usage.hosts), &each);
    page.plot(
        &share("What jobs would send over uplinks", "per cent of what the uplink bears", &usage.links),
        &format!("Above 100 per cent jobs are slowed down. {each}"),
    );
    page.plot(
        &Plot::new("Waiting jobs", Axis::linear("days"), Axis::linear("jobs"))
            .area("waiting", steps(usage.piece_s, usage.waiting.iter().copied())),
        &each,
    );
    page
}

/// The clusters, and how full they are on the whole.
fn means(names: &[&str], clusters: &[Cluster], usage: &Usage) -> Table {
    let mut table =
        Table::new(["cluster", "hosts", "speed", "uplink, GB/s", "hosts in use, %", "uplink in use, %", "at most, %"]);
    for (at, (name, cluster)) in names.iter().zip(clusters).enumerate() {
        let mean = |shares: &[f64]| 100.0 * shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let most = 100.0 * usage.links[at].iter().copied().fold(0.0, f64::max);
        let shares = [mean(&usage.hosts[at]), mean(&usage.links[at]), most].map(|share| format!("{share:.1}"));
        let plain = [cluster.hosts.to_string(), format!("{:.3}", cluster.power), format!("{:.3}", cluster.link)];
        table.row(*name, plain.into_iter().chain(shares));
    }
    table
}

/// The steps of a series over days, and its end.
fn steps(piece_s: f64, values: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    let values: Vec<f64> = values.collect();
    let last = values.last().copied();
    let all = values.into_iter().chain(last).enumerate();
    all.map(|(index, value)| (index as f64 * piece_s / DAY_S, value)).collect()
}
