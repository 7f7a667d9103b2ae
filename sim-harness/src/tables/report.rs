//! The tables as people read them.

use comfy_table::{Table, presets::NOTHING};

use super::{
    Tables,
    summary::{Comparison, Row},
};

/// All tables as text.
pub fn text(tables: &Tables) -> String {
    let mut text = format!("Collective requests (phases II to V)\n{}\n", rows(&tables.collective));
    if let Some(simple) = &tables.simple {
        text += &format!("\nSimple requests (phases II to V)\n{}\n", rows(simple));
    }
    if let Some(comparison) = &tables.comparison {
        text += &format!("\nThe same requests, simple and collective\n{}\n", compared(comparison));
    }
    text
}

fn rows(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "N",
        "cases",
        "solved",
        "solvable",
        "late/missed",
        "proven",
        "optimal",
        "of bound",
        "mean us",
        "median us",
        "textbook solved",
        "later/missed",
        "its factor",
        "mean us",
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
            format!("{:.1}", row.mean_us),
            format!("{:.1}", row.median_us),
        ];
        match &row.textbook {
            Some(textbook) => cells.extend([
                textbook.solved.to_string(),
                textbook.later_or_missed.to_string(),
                format!("{:.4}", textbook.efficiency_of_kolo),
                format!("{:.1}", textbook.mean_us),
                format!("{:.1}", textbook.median_us),
                format!("{:.1}x", textbook.times_slower),
            ]),
            None => cells.extend(std::iter::repeat_n("-".to_owned(), 6)),
        }
        table.add_row(cells);
    }
    table
}

fn compared(comparison: &Comparison) -> Table {
    let mut table = Table::new();
    let share = |count: usize| format!("{count} ({:.0} %)", 100.0 * count as f64 / comparison.cases.max(1) as f64);
    table.load_style(NOTHING).set_header(["", "simple", "collective"]);
    table.add_row([
        format!("solved of {}", comparison.cases),
        share(comparison.solved_simple),
        share(comparison.solved_collective),
    ]);
    table.add_row([
        format!("earlier start, of {} solved by both", comparison.solved_by_both),
        comparison.simple_earlier.to_string(),
        format!("{} ({:.1} h on average)", comparison.collective_earlier, comparison.hours_earlier),
    ]);
    table.add_row([
        "better factor at the same start".to_owned(),
        comparison.simple_better.to_string(),
        format!("{} ({:.1} % better on average)", comparison.collective_better, 100.0 * comparison.collective_gain),
    ]);
    table
}
