//! The tables of the study as people read them, on a terminal and on a page.
//!
//! Invariant: the source's figures stand in rows and columns that are called so.

use serde::Serialize;
use sim_kit::{
    report::{Axis, Page, Plot, Table},
    stats::mean,
};

use super::{
    example,
    experiments::{BISECTIONS, MIDDLE, Row, Setting},
    setup::JOBS,
    trace::{OnTrace, SOURCE, Trace},
};
use crate::clusters::world::Figures;

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub(super) struct Clusters {
    pub(super) seed: u64,
    pub(super) workloads: u64,
    pub(super) assignment: Vec<Setting>,
    pub(super) selection: Vec<Setting>,
    pub(super) example: Vec<example::Line>,
    pub(super) batches: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<Trace>,
}

const SOURCE_ASSIGNMENT: &str = "The source: all three are alike below 0.6 GB/s at 10 %; above, JPR gets slower, CBS and PAS do not. At 50 and 90 % CBS \
    is worse than both at any load. In more than one cluster: JPR some 60 %, CBS some 14 %, PAS by the load.";
const SOURCE_SELECTION: &str = "The source: execution is nearly the same in all orders of PAS, waiting is not; BJF and LPT wait longest, none is best \
    everywhere.";
const SOURCE_BATCHES: &str = "The source: its exact model is 21 % shorter than PAS and 30 % shorter than the classic orders, MESD some 15 % shorter than the \
    classic orders.";
const SOURCE_TRACE: &str = "The source: MESD has the least mean slowdown, and uses hosts of all clusters most evenly. It ran 15,000 jobs of hpc2n; \
    its shares of all jobs stand beside.";

/// All tables as text.
pub(super) fn text(clusters: &Clusters) -> String {
    let mut text = format!("{} workloads of 100 jobs, seed {}\n", clusters.workloads, clusters.seed);
    let mut add = |title: &str, table: &Table| text += &format!("\n{title}\n{}\n", table.text());
    for (title, figure) in ASSIGNMENT {
        add(title, &by_bandwidth(&clusters.assignment, figure));
    }
    for setting in &clusters.selection {
        add(&selection_title(setting), &rows(&setting.rows));
    }
    add(example::TITLE, &example::table(&clusters.example));
    add(BATCHES, &against_classic(&clusters.batches));
    add(SHORTER, &shorter(&clusters.batches));
    if let Some(trace) = &clusters.trace {
        add(&trace_title(trace), &on_trace(trace));
    }
    let of_trace = clusters.trace.iter().map(|_| SOURCE_TRACE);
    for words in [SOURCE_ASSIGNMENT, SOURCE_SELECTION, SOURCE_BATCHES].into_iter().chain(of_trace) {
        text += &format!("\n{words}");
    }
    text + "\n"
}

/// A figure of the experiment on assignment, by heterogeneity and bandwidth.
type Figure = fn(&Figures) -> f64;
const ASSIGNMENT: [(&str, Figure); 3] = [
    ("Makespan in seconds, by what the halves of a job send each other", |figures| figures.makespan),
    ("Mean response in seconds", Figures::response),
    ("Jobs in more than one cluster, in per cent", |figures| 100.0 * figures.spread),
];
const PLOTTED: [(&str, &str, Figure); 4] = [
    ("Mean response", "seconds", Figures::response),
    ("Makespan", "seconds", |figures| figures.makespan),
    ("Mean execution slowdown", "of the base time, less one", |figures| figures.slowdown),
    ("Throughput", "jobs an hour", |figures| figures.throughput(JOBS)),
];
const BATCHES: &str =
    "Batches of 8 jobs on 3 clusters of 4 hosts; gain: the mean makespan of the classic orders divided by the own one";

const SHORTER: &str = "These batches: by how much mean makespans are shorter";

fn selection_title(setting: &Setting) -> String {
    let bandwidth = f64::from(MIDDLE) / 10.0;
    format!(
        "Orders, hosts that differ by {} %, {bandwidth} GB/s between the halves of a job",
        setting.heterogeneity_percent
    )
}

fn by_bandwidth(settings: &[Setting], figure: Figure) -> Table {
    let header = BISECTIONS.map(|tenths| format!("{} GB/s", f64::from(tenths) / 10.0));
    let mut table = Table::new(["hosts differ by", "policy"].map(str::to_owned).into_iter().chain(header));
    for of_kind in settings.chunk_by(|a, b| a.heterogeneity_percent == b.heterogeneity_percent) {
        let Some(first) = of_kind.first() else { continue };
        for (at, row) in first.rows.iter().enumerate() {
            let figures = of_kind.iter().map(|setting| format!("{:.1}", figure(&setting.rows[at].figures)));
            let kind = format!("{} %", first.heterogeneity_percent);
            table.push([kind, row.policy.clone()].into_iter().chain(figures));
        }
    }
    table
}

fn rows(rows: &[Row]) -> Table {
    let mut table =
        Table::new(["policy", "makespan", "wait", "execution", "response", "slowdown", "spread %", "saturated %"]);
    for Row { policy, figures } in rows {
        let seconds = [figures.makespan, figures.wait, figures.execution, figures.response()];
        let shares = [100.0 * figures.spread, 100.0 * figures.saturated];
        let cells =
            seconds.map(|figure| format!("{figure:.1}")).into_iter().chain([format!("{:.3}", figures.slowdown)]);
        table.row(policy, cells.chain(shares.map(|share| format!("{share:.1}"))));
    }
    table
}

fn trace_title(trace: &Trace) -> String {
    format!("{} on 4 clusters of 60 hosts of power 1, 1.5, 2 and 1, links of 1 GB/s: {} jobs", trace.file, trace.jobs)
}

fn on_trace(trace: &Trace) -> Table {
    let header = ["policy", "slowdown", "wait", "execution", "saturated % (source)", "spread % (source)"];
    let mut table = Table::new(header.into_iter().chain(["hosts in use, %, by cluster", "links in use, %"]));
    for row in &trace.rows {
        let Figures { slowdown, wait, execution, spread, saturated, .. } = row.figures;
        let source = SOURCE.iter().find(|(policy, ..)| *policy == row.policy);
        let beside = |own: f64, source: Option<f64>| match source {
            Some(source) => format!("{:.2} ({source:.2})", 100.0 * own),
            None => format!("{:.2}", 100.0 * own),
        };
        let shares =
            |all: &[f64]| all.iter().map(|share| format!("{:.1}", 100.0 * share)).collect::<Vec<_>>().join(" ");
        table.row(
            &row.policy,
            [
                format!("{slowdown:.3}"),
                format!("{wait:.0}"),
                format!("{execution:.0}"),
                beside(saturated, source.map(|source| source.1)),
                beside(spread, source.map(|source| source.2)),
                shares(&row.hosts_in_use),
                shares(&row.link_in_use),
            ],
        );
    }
    table
}

fn is_classic(row: &Row) -> bool {
    !row.policy.contains('-')
        && row.policy.to_uppercase() == row.policy
        && !["MESD", "OAS"].contains(&row.policy.as_str())
}

fn against_classic(rows: &[Row]) -> Table {
    let classic = mean(rows.iter().filter(|row| is_classic(row)).map(|row| row.figures.makespan));
    let mut table =
        Table::new(["policy", "makespan", "gain", "compaction %", "response", "slowdown", "spread %", "saturated %"]);
    for Row { policy, figures } in rows {
        let Figures { makespan, compaction, slowdown, spread, saturated, .. } = figures;
        table.row(
            policy,
            [
                format!("{makespan:.0}"),
                format!("{:.3}", classic / makespan),
                format!("{:.1}", 100.0 * compaction),
                format!("{:.0}", figures.response()),
                format!("{slowdown:.3}"),
                format!("{:.1}", 100.0 * spread),
                format!("{:.1}", 100.0 * saturated),
            ],
        );
    }
    table
}

/// What the source says of its batches, beside ours.
fn shorter(rows: &[Row]) -> Table {
    let makespan =
        |is_meant: &dyn Fn(&Row) -> bool| mean(rows.iter().filter(|row| is_meant(row)).map(|row| row.figures.makespan));
    let of = |name: &str| makespan(&|row| row.policy == name);
    let (packages, classic) = (makespan(&|row| row.policy.starts_with("PAS-")), makespan(&is_classic));
    let mut table = Table::new(["shorter by, %", "here", "source"]);
    for (name, own, other, source) in [
        ("OAS than PAS (mean of six orders)", of("OAS"), packages, "21"),
        ("OAS than the classic orders (mean of six)", of("OAS"), classic, "30"),
        ("MESD-literal than the classic orders", of("MESD-literal"), classic, "15"),
    ] {
        table.row(name, [format!("{:.1}", 100.0 * (1.0 - own / other)), source.to_owned()]);
    }
    table
}

/// By how much hosts differ, with middle traffic.
fn by_heterogeneity(settings: &[Setting], figure_name: &str, unit: &str, figure: Figure) -> Plot {
    let settings: Vec<&Setting> = settings.iter().filter(|setting| setting.bisection_tenths == MIDDLE).collect();
    let names = settings.iter().map(|setting| format!("{} %", setting.heterogeneity_percent));
    let title = format!("{figure_name}, {} GB/s between the halves of a job", f64::from(MIDDLE) / 10.0);
    let plot = Plot::new(&title, Axis::names("hosts differ by", names), Axis::linear(unit));
    let policies = settings.first().map(|setting| setting.rows.iter().enumerate()).into_iter().flatten();
    policies.fold(plot, |plot, (at, row)| {
        let heights = settings.iter().map(|setting| figure(&setting.rows[at].figures));
        plot.bars(&row.policy, heights.enumerate().map(|(at, height)| (at as f64, height)))
    })
}

/// Hosts and links in use by cluster, one bar a policy.
fn by_cluster(trace: &Trace, title: &str, shares: fn(&OnTrace) -> &[f64]) -> Plot {
    let count = trace.rows.first().map_or(0, |row| shares(row).len());
    let names = trace.rows.iter().map(|row| row.policy.as_str());
    let plot = Plot::new(title, Axis::names("policy", names), Axis::linear("per cent"));
    (0..count).fold(plot, |plot, cluster| {
        let heights = trace.rows.iter().map(|row| 100.0 * shares(row)[cluster]);
        plot.bars(&format!("cluster {}", cluster + 1), heights.enumerate().map(|(at, height)| (at as f64, height)))
    })
}

/// The page.
pub(super) fn page(clusters: &Clusters) -> Page {
    let mut page = Page::new("Clusters with limited links");
    page.text(
        "Jobs whose tasks talk to each other run on several clusters, each behind one link. This page repeats the experiments of a \
         dissertation on multi-clusters. All but PAS and OAS are literal here: links are no limit to them, and a job slows down as far as its \
         slowest host and its most loaded link make it.",
    );
    page.text(&format!("{} workloads of 100 jobs, seed {}.", clusters.workloads, clusters.seed));
    page.heading("How jobs are assigned");
    page.text(SOURCE_ASSIGNMENT);
    for of_kind in clusters.assignment.chunk_by(|a, b| a.heterogeneity_percent == b.heterogeneity_percent) {
        let Some(first) = of_kind.first() else { continue };
        for (figure_name, unit, figure) in PLOTTED {
            let title = format!("{figure_name}, hosts differ by {} %", first.heterogeneity_percent);
            let mut plot = Plot::new(&title, Axis::linear("GB/s between the halves of a job"), Axis::linear(unit));
            for (at, row) in first.rows.iter().enumerate() {
                let point =
                    |setting: &Setting| (f64::from(setting.bisection_tenths) / 10.0, figure(&setting.rows[at].figures));
                plot = plot.line(&row.policy, of_kind.iter().map(point));
            }
            page.plot(&plot, "PAS, CBS and JPR take the jobs in the order of arrival; JPR and the other orders take the fastest hosts.");
        }
    }
    for (figure_name, unit, figure) in PLOTTED {
        page.plot(&by_heterogeneity(&clusters.assignment, figure_name, unit, figure), "Links bear 1 GB/s.");
    }
    for (title, figure) in ASSIGNMENT {
        page.text(&format!("{title}:"));
        page.table(&by_bandwidth(&clusters.assignment, figure));
    }
    page.heading("In which order");
    page.text(SOURCE_SELECTION);
    for setting in &clusters.selection {
        page.text(&format!("{}:", selection_title(setting)));
        page.table(&rows(&setting.rows));
    }
    page.text(&format!("{}:", example::TITLE));
    page.table(&example::table(&clusters.example));
    page.heading("Small batches as a whole");
    page.text(SOURCE_BATCHES);
    page.text(&format!("{BATCHES}."));
    page.table(&against_classic(&clusters.batches));
    page.text(&format!("{SHORTER}."));
    page.table(&shorter(&clusters.batches));
    if let Some(trace) = &clusters.trace {
        page.heading("A trace");
        page.text(SOURCE_TRACE);
        page.text(&format!("{}.", trace_title(trace)));
        page.table(&on_trace(trace));
        let each = "Means over the whole makespan.";
        page.plot(&by_cluster(trace, "Hosts in use, by cluster", |row| &row.hosts_in_use), each);
        page.plot(
            &by_cluster(trace, "What jobs would send over links, of what each bears", |row| &row.link_in_use),
            each,
        );
    }
    page
}
