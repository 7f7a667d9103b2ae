//! The tables as people read them, on a terminal and on a page.
//!
//! Invariant: the source's figures stand in rows and columns that are called so.

use sim_kit::{report::Table, stats::Spread};

use super::{
    Tables, source,
    study::{Point, Study},
    summary::{Comparison, Optimality, Row, VersionTables},
};

/// A table with its title.
pub(super) type Section = (String, Table);

/// All tables as text.
pub(super) fn text(tables: &Tables) -> String {
    let mut sections = vec![table_3_2(tables), table_3_3(tables), table_3_4(tables), times(tables), phases(tables)];
    sections.extend(details(tables).map(Some));
    sections.push(policies(tables));
    sections.extend(tables.study.iter().flat_map(study).map(Some));
    let mut text = format!("{}; {} hosts\n", tables.origin, tables.grid_hosts);
    for (title, table) in sections.into_iter().flatten() {
        text += &format!("\n{title}\n{}\n", table.text());
    }
    text
}

/// A count, or a dash where there is none.
fn known(count: Option<usize>) -> String {
    count.map_or("-".to_owned(), |count| count.to_string())
}

/// A table with a column for each N.
fn by_hosts(hosts: impl Iterator<Item = Option<usize>>) -> Table {
    let heads = hosts.map(|hosts| hosts.map_or("all".to_owned(), |hosts| hosts.to_string()));
    Table::new(["N =".to_owned()].into_iter().chain(heads))
}

/// The kinds of requests with their rows.
pub(super) fn kinds(tables: &Tables) -> impl Iterator<Item = (&'static str, &Vec<Row>)> {
    [("collective", &tables.collective)].into_iter().chain(tables.simple.iter().map(|rows| ("simple", rows)))
}

/// Table 3.2: simple against collective; `None` without simple requests.
pub(super) fn table_3_2(tables: &Tables) -> Option<Section> {
    type Count = fn(&Comparison) -> usize;
    let first = tables.versions.first().filter(|version| !version.table_3_2.is_empty())?;
    let hosts = || first.table_3_2.iter().map(|comparison| comparison.hosts);
    let source = |counts: source::Counts| {
        hosts().map(move |hosts| match hosts {
            Some(hosts) => known(source::count(counts, hosts)),
            None => counts.iter().sum::<usize>().to_string(),
        })
    };
    let mut table = by_hosts(hosts());
    table.row("cases", first.table_3_2.iter().map(|row| row.cases));
    table.row("cases: source", source(source::CASES));
    let rows: [(&str, Count, Option<source::Counts>); 7] = [
        ("solved, simple", |c| c.solved_simple, Some(source::SOLVED_SIMPLE)),
        ("solved, collective", |c| c.solved_collective, Some(source::SOLVED_COLLECTIVE)),
        ("collective starts earlier", |c| c.collective_earlier, Some(source::COLLECTIVE_EARLIER)),
        ("simple starts earlier", |c| c.simple_earlier, None),
        ("same start", |c| c.same_start, Some(source::SAME_START)),
        ("same start, simple has the better factor", |c| c.simple_better, Some(source::SIMPLE_BETTER)),
        ("same start, collective has the better factor", |c| c.collective_better, Some(source::COLLECTIVE_BETTER)),
    ];
    for (name, count, counts) in rows {
        for VersionTables { version, table_3_2, .. } in &tables.versions {
            table.row(format!("{name}: {version}"), table_3_2.iter().map(count));
        }
        if let Some(counts) = counts {
            table.row(format!("{name}: source"), source(counts));
        }
    }
    Some(("Table 3.2: the same requests, simple and collective".to_owned(), table))
}

/// Table 3.3: against exhaustive search; `None` without requests for 5 hosts.
pub(super) fn table_3_3(tables: &Tables) -> Option<Section> {
    type Of = fn(&VersionTables) -> Option<&Optimality>;
    let mut table = Table::new(["", "solvable", "solved", "late", "delay, h", "factor of best", "above 99 %"]);
    let mut found = false;
    let collective: Of = |version| version.table_3_3.as_ref();
    let simple: Of = |version| version.table_3_3_simple.as_ref();
    for (kind, of, theirs) in
        [("collective", collective, source::OPTIMALITY_COLLECTIVE), ("simple", simple, source::OPTIMALITY_SIMPLE)]
    {
        for (version, ours) in tables.versions.iter().filter_map(|version| Some((&version.version, of(version)?))) {
            let [delay, share] = [format!("{:.1}", ours.delay_hours), format!("{:.4}", ours.factor_share)];
            let [solvable, solved, late, above_99] =
                [ours.solvable, ours.solved, ours.late, ours.above_99].map(|count| count.to_string());
            table.row(format!("{kind}: {version}"), [solvable, solved, late, delay, share, above_99]);
            found = true;
        }
        table.row(format!("{kind}: source"), theirs);
    }
    found.then(|| ("Table 3.3: N = 5 against exhaustive search".to_owned(), table))
}

/// Table 3.4: search times for 5 hosts; `None` without such requests.
pub(super) fn table_3_4(tables: &Tables) -> Option<Section> {
    let mut table = Table::new(["milliseconds", "min", "max", "mean", "sd"]);
    let mut push = |name: &str, ms: [f64; 4]| table.row(name, ms.map(|ms| format!("{ms:.3}")));
    let ours = tables.versions.iter().filter_map(|version| Some((&version.version, version.table_3_4_us?)));
    for (version, Spread { min, max, mean, sd }) in ours.clone() {
        push(&format!("phases II to V: {version}"), [min, max, mean, sd].map(|us| us / 1e3));
    }
    push("phases II to V: source, 2.2 GHz Opteron", source::TIMES_MS);
    push("phases I to VI: source, 15 machines", source::TIMES_OVER_NETWORK_MS);
    (ours.count() > 0).then(|| ("Table 3.4: search times for N = 5, collective".to_owned(), table))
}

/// Mean search time by N.
pub(super) fn times(tables: &Tables) -> Option<Section> {
    let mut table = by_hosts(tables.collective.iter().map(|row| Some(row.hosts)));
    for (kind, rows) in kinds(tables) {
        for (at, version) in tables.versions.iter().enumerate() {
            let us = rows.iter().map(|row| version_us(row, at).map_or("-".to_owned(), |us| format!("{us:.1}")));
            table.row(format!("{kind}: {}", version.version), us);
        }
    }
    Some(("Mean search time, phases II to V, microseconds".to_owned(), table))
}

/// The mean time of a version, by its place among the versions.
pub(super) fn version_us(row: &Row, at: usize) -> Option<f64> {
    [row.mean_us].into_iter().chain(row.others().map(|other| other.mean_us)).nth(at)
}

/// Time by phase, as parts of all of it.
pub(super) fn phases(tables: &Tables) -> Option<Section> {
    let mut table = Table::new(["per cent of the time", "II", "III", "IV", "V"]);
    for row in &tables.collective {
        let textbook = row.textbook.iter().map(|textbook| ("textbook", textbook.phases_us));
        for (version, us) in [("Kolo", row.phases_us)].into_iter().chain(textbook) {
            let sum = us.iter().sum::<f64>();
            if sum > 0.0 {
                let shares = us.map(|us| format!("{:.1}", 100.0 * us / sum));
                table.row(format!("N = {}: {version}", row.hosts), shares);
            }
        }
    }
    table.push(["source", "< 1", "about 5", "the rest", "with IV"]);
    Some(("Time by phase, collective".to_owned(), table))
}

/// Proofs of Kolo's answers, and the textbook beside them.
pub(super) fn details(tables: &Tables) -> impl Iterator<Item = Section> {
    let titles =
        ["Collective requests, Kolo and the textbook", "Simple requests, Kolo and the textbook"].map(str::to_owned);
    titles.into_iter().zip(kinds(tables).map(|(_, rows)| detail(rows)))
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
    for row in rows {
        let textbook = match &row.textbook {
            Some(textbook) => [
                textbook.solved.to_string(),
                textbook.later_or_missed.to_string(),
                format!("{:.4}", textbook.efficiency_of_kolo),
                format!("{:.1}", textbook.median_us),
                format!("{:.1}x", textbook.times_slower),
            ],
            None => [(); 5].map(|()| "-".to_owned()),
        };
        let kolo = [
            row.cases.to_string(),
            row.solved.to_string(),
            known(row.solvable),
            known(row.late_or_missed),
            row.proven.to_string(),
            row.optimal.to_string(),
            format!("{:.4}", row.efficiency_of_bound),
            format!("{:.1}", row.median_us),
        ];
        table.row(row.hosts.to_string(), kolo.into_iter().chain(textbook));
    }
    table
}

/// The policies named beside Kolo; `None` when there are none.
pub(super) fn policies(tables: &Tables) -> Option<Section> {
    let mut table =
        Table::new(["", "cases", "Kolo solved", "solved", "later/missed", "its factor", "mean us", "slower"]);
    for (at, name) in tables.policies.iter().enumerate() {
        for (kind, row) in kinds(tables).flat_map(|(kind, rows)| rows.iter().map(move |row| (kind, row))) {
            let policy = &row.policies[at];
            let counts = [row.cases, row.solved, policy.solved, policy.later_or_missed].map(|count| count.to_string());
            let figures = [
                format!("{:.4}", policy.efficiency_of_kolo),
                format!("{:.1}", policy.mean_us),
                format!("{:.1}x", policy.times_slower),
            ];
            table.row(format!("{name}, {kind}, N = {}", row.hosts), counts.into_iter().chain(figures));
        }
    }
    (!tables.policies.is_empty()).then(|| ("Policies beside Kolo".to_owned(), table))
}

/// The parameter study: one table a parameter.
pub(super) fn study(study: &Study) -> impl Iterator<Item = Section> {
    let Study { cases, hosts, runs, m_init, l1, l2 } = study;
    [("M_init", m_init), ("L1", l1), ("L2", l2)].into_iter().map(move |(name, points)| {
        let title = format!("Parameter {name}: {cases} collective requests, N = {hosts}, {runs} runs of each");
        (title, parameter(name, points))
    })
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
            let cells = [
                version.to_owned(),
                format!("{:.1}", figures.solved),
                format!("{:.0}", figures.solved_us),
                format!("{:.0}", figures.unsolved_us),
                figures.start_varies.to_string(),
                format!("{:.3}", figures.late_hours),
                format!("{:.4}", figures.factor_share),
                format!("{:.2}", 100.0 * figures.factor_sd_mean),
                format!("{:.2}", 100.0 * figures.factor_sd_max),
            ];
            table.row(value.to_string(), cells);
        }
    }
    table
}
