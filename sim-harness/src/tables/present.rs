//! The tables as people read them, on a terminal and on a page.
//!
//! Invariant: the source's figures stand in rows and columns that are called so.

use super::{
    Tables, VersionTables, source,
    study::{Figures, Point, Study},
    summary::{BesideRow, Comparison, Optimality, Row},
};
use crate::{report::Table, stats::Spread};

/// A table with its title.
pub struct Section {
    /// What the table shows.
    pub title: String,
    /// The table.
    pub table: Table,
}

impl Section {
    fn new(title: impl Into<String>, table: Table) -> Section {
        Section { title: title.into(), table }
    }
}

/// All tables as text.
pub fn text(tables: &Tables) -> String {
    let mut sections = vec![table_3_2(tables), table_3_3(tables), table_3_4(tables), times(tables), phases(tables)];
    sections.extend(details(tables).map(Some));
    sections.push(policies(tables));
    sections.extend(tables.study.iter().flat_map(study).map(Some));
    let mut text = format!("{}; {} hosts\n", tables.origin, tables.grid_hosts);
    for Section { title, table } in sections.into_iter().flatten() {
        text += &format!("\n{title}\n{}\n", table.text());
    }
    text
}

/// Table 3.2: simple against collective; `None` without simple requests.
pub fn table_3_2(tables: &Tables) -> Option<Section> {
    type Count = fn(&Comparison) -> usize;
    let first = tables.versions.first().filter(|version| !version.table_3_2.is_empty())?;
    let hosts: Vec<Option<usize>> = first.table_3_2.iter().map(|comparison| comparison.hosts).collect();
    let heads = hosts.iter().map(|hosts| hosts.map_or("all".to_owned(), |hosts| hosts.to_string()));
    let mut table = Table::new(["N =".to_owned()].into_iter().chain(heads));
    let rows: [(&str, Count, Option<source::Counts>); 7] = [
        ("solved, simple", |c| c.solved_simple, Some(source::SOLVED_SIMPLE)),
        ("solved, collective", |c| c.solved_collective, Some(source::SOLVED_COLLECTIVE)),
        ("collective starts earlier", |c| c.collective_earlier, Some(source::COLLECTIVE_EARLIER)),
        ("simple starts earlier", |c| c.simple_earlier, None),
        ("same start", |c| c.same_start, Some(source::SAME_START)),
        ("same start, simple has the better factor", |c| c.simple_better, Some(source::SIMPLE_BETTER)),
        ("same start, collective has the better factor", |c| c.collective_better, Some(source::COLLECTIVE_BETTER)),
    ];
    table.push(["cases".to_owned()].into_iter().chain(first.table_3_2.iter().map(|row| row.cases.to_string())));
    table.push(["cases: source".to_owned()].into_iter().chain(hosts.iter().map(|n| source_count(source::CASES, *n))));
    for (name, count, counts) in rows {
        for VersionTables { version, table_3_2, .. } in &tables.versions {
            let cells = table_3_2.iter().map(|comparison| count(comparison).to_string());
            table.push([format!("{name}: {version}")].into_iter().chain(cells));
        }
        if let Some(counts) = counts {
            let cells = hosts.iter().map(|hosts| source_count(counts, *hosts));
            table.push([format!("{name}: source")].into_iter().chain(cells));
        }
    }
    Some(Section::new("Table 3.2: the same requests, simple and collective", table))
}

fn source_count(counts: source::Counts, hosts: Option<usize>) -> String {
    let Some(hosts) = hosts else { return counts.iter().sum::<usize>().to_string() };
    let at = source::HOSTS.iter().position(|known| *known == hosts);
    at.map_or("-".to_owned(), |at| counts[at].to_string())
}

/// Table 3.3: against exhaustive search; `None` without requests for 5 hosts.
pub fn table_3_3(tables: &Tables) -> Option<Section> {
    let mut table = Table::new(["", "solvable", "solved", "late", "delay, h", "factor of best", "above 99 %"]);
    let mut push = |name: String, optimality: source::Optimality| {
        table.push([
            name,
            optimality.solvable.to_string(),
            optimality.solved.to_string(),
            optimality.late.to_string(),
            format!("{:.1}", optimality.delay_hours),
            format!("{:.4}", optimality.factor_share),
            optimality.above_99.to_string(),
        ]);
    };
    let ours = |optimality: &Optimality| source::Optimality {
        solvable: optimality.solvable,
        solved: optimality.solved,
        late: optimality.late,
        delay_hours: optimality.delay_hours,
        factor_share: optimality.factor_share,
        above_99: optimality.above_99,
    };
    let mut found = false;
    for (kind, of, theirs) in [
        (
            "collective",
            (|v| v.table_3_3.as_ref()) as fn(&VersionTables) -> Option<&Optimality>,
            source::OPTIMALITY_COLLECTIVE,
        ),
        ("simple", |v| v.table_3_3_simple.as_ref(), source::OPTIMALITY_SIMPLE),
    ] {
        for version in &tables.versions {
            if let Some(optimality) = of(version) {
                push(format!("{kind}: {}", version.version), ours(optimality));
                found = true;
            }
        }
        push(format!("{kind}: source"), theirs);
    }
    found.then(|| Section::new("Table 3.3: N = 5 against exhaustive search", table))
}

/// Table 3.4: search times for 5 hosts; `None` without such requests.
pub fn table_3_4(tables: &Tables) -> Option<Section> {
    let mut table = Table::new(["milliseconds", "min", "max", "mean", "sd"]);
    let mut push = |name: &str, values: [f64; 4]| {
        table.push([name.to_owned()].into_iter().chain(values.map(|value| format!("{value:.3}"))));
    };
    let mut found = false;
    for VersionTables { version, table_3_4_us, .. } in &tables.versions {
        if let Some(Spread { min, max, mean, sd }) = *table_3_4_us {
            push(&format!("phases II to V: {version}"), [min, max, mean, sd].map(|us| us / 1e3));
            found = true;
        }
    }
    push("phases II to V: source, 2.2 GHz Opteron", source::TIMES_MS);
    push("phases I to VI: source, 15 machines", source::TIMES_OVER_NETWORK_MS);
    found.then(|| Section::new("Table 3.4: search times for N = 5, collective", table))
}

/// Mean search time by N.
pub fn times(tables: &Tables) -> Option<Section> {
    let rows = |name: &str, rows: &[Row], table: &mut Table| {
        for (at, version) in tables.versions.iter().enumerate() {
            let us = rows.iter().map(|row| version_us(row, at, tables).map_or("-".to_owned(), |us| format!("{us:.1}")));
            table.push([format!("{name}: {}", version.version)].into_iter().chain(us));
        }
    };
    let heads = tables.collective.iter().map(|row| row.hosts.to_string());
    let mut table = Table::new(["N =".to_owned()].into_iter().chain(heads));
    rows("collective", &tables.collective, &mut table);
    if let Some(simple) = &tables.simple {
        rows("simple", simple, &mut table);
    }
    Some(Section::new("Mean search time, phases II to V, microseconds", table))
}

/// The mean time of a version, by its place among the versions.
pub fn version_us(row: &Row, at: usize, tables: &Tables) -> Option<f64> {
    if at == 0 {
        return Some(row.mean_us);
    }
    beside(row, at, tables).map(|beside| beside.mean_us)
}

fn beside<'r>(row: &'r Row, at: usize, tables: &Tables) -> Option<&'r BesideRow> {
    let policies = tables.versions.len() - tables.policies.len();
    if at >= policies { row.policies.get(at - policies) } else { row.textbook.as_ref() }
}

/// Time by phase, as parts of all of it.
pub fn phases(tables: &Tables) -> Option<Section> {
    let mut table = Table::new(["per cent of the time", "II", "III", "IV", "V"]);
    let mut push = |name: &str, us: [f64; 4]| {
        let sum = us.iter().sum::<f64>();
        if sum > 0.0 {
            table.push([name.to_owned()].into_iter().chain(us.map(|us| format!("{:.1}", 100.0 * us / sum))));
        }
    };
    for row in &tables.collective {
        push(&format!("N = {}: Kolo", row.hosts), row.phases_us);
        if let Some(textbook) = &row.textbook {
            push(&format!("N = {}: textbook", row.hosts), textbook.phases_us);
        }
    }
    table.push(["source", "< 1", "about 5", "the rest", "with IV"]);
    Some(Section::new("Time by phase, collective", table))
}

/// What is proven of Kolo's answers, and the textbook beside them.
pub fn details(tables: &Tables) -> impl Iterator<Item = Section> {
    let collective = Section::new("Collective requests, Kolo and the textbook", detail(&tables.collective));
    let simple = tables.simple.as_ref();
    let simple = simple.map(|rows| Section::new("Simple requests, Kolo and the textbook", detail(rows)));
    [collective].into_iter().chain(simple)
}

fn detail(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "N",
        "cases",
        "solved",
        "solvable",
        "late/missed",
        "proven",
        "optimal",
        "of bound",
        "median us",
        "textbook solved",
        "later/missed",
        "its factor",
        "median us",
        "slower",
    ]);
    let known = |count: Option<usize>| count.map_or("-".to_owned(), |count| count.to_string());
    for row in rows {
        let mut cells = vec![
            row.hosts.to_string(),
            row.cases.to_string(),
            row.solved.to_string(),
            known(row.solvable),
            known(row.late_or_missed),
            row.proven.to_string(),
            row.optimal.to_string(),
            format!("{:.4}", row.efficiency_of_bound),
            format!("{:.1}", row.median_us),
        ];
        match &row.textbook {
            Some(textbook) => cells.extend([
                textbook.solved.to_string(),
                textbook.later_or_missed.to_string(),
                format!("{:.4}", textbook.efficiency_of_kolo),
                format!("{:.1}", textbook.median_us),
                format!("{:.1}x", textbook.times_slower),
            ]),
            None => cells.extend(std::iter::repeat_n("-".to_owned(), 5)),
        }
        table.push(cells);
    }
    table
}

/// The policies named beside Kolo; `None` when there are none.
pub fn policies(tables: &Tables) -> Option<Section> {
    let mut table =
        Table::new(["", "cases", "Kolo solved", "solved", "later/missed", "its factor", "mean us", "slower"]);
    for (at, name) in tables.policies.iter().enumerate() {
        for (kind, rows) in [("collective", Some(&tables.collective)), ("simple", tables.simple.as_ref())] {
            for row in rows.into_iter().flatten() {
                let Some(policy) = row.policies.get(at) else { continue };
                table.push([
                    format!("{name}, {kind}, N = {}", row.hosts),
                    row.cases.to_string(),
                    row.solved.to_string(),
                    policy.solved.to_string(),
                    policy.later_or_missed.to_string(),
                    format!("{:.4}", policy.efficiency_of_kolo),
                    format!("{:.1}", policy.mean_us),
                    format!("{:.1}x", policy.times_slower),
                ]);
            }
        }
    }
    (!tables.policies.is_empty()).then(|| Section::new("Policies beside Kolo", table))
}

/// The parameter study: one table a parameter.
pub fn study(study: &Study) -> impl Iterator<Item = Section> {
    let title = |name: &str| {
        let Study { cases, hosts, runs, .. } = study;
        format!("Parameter {name}: {cases} collective requests, N = {hosts}, {runs} runs of each")
    };
    [("M_init", &study.m_init), ("L1", &study.l1), ("L2", &study.l2)]
        .map(|(name, points)| Section::new(title(name), parameter(name, points)))
        .into_iter()
}

fn parameter(name: &str, points: &[Point]) -> Table {
    let mut table = Table::new([
        name,
        "",
        "solved",
        "us solved",
        "us unsolved",
        "start varies",
        "late, h",
        "factor of best",
        "sd mean, %",
        "sd max, %",
    ]);
    for Point { value, textbook, kolo } in points {
        for (version, figures) in [("textbook", textbook), ("Kolo", kolo)] {
            let Figures { solved, solved_us, unsolved_us, start_varies, .. } = figures;
            table.push([
                value.to_string(),
                version.to_owned(),
                format!("{solved:.1}"),
                format!("{solved_us:.0}"),
                format!("{unsolved_us:.0}"),
                start_varies.to_string(),
                format!("{:.3}", figures.late_hours),
                format!("{:.4}", figures.factor_share),
                format!("{:.2}", 100.0 * figures.factor_sd_mean),
                format!("{:.2}", 100.0 * figures.factor_sd_max),
            ]);
        }
    }
    table
}
