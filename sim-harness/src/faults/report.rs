//! The result as people and programs read it.

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;

use super::{canary::Canary, figures::Figures, runner::RunResult};

#[derive(Serialize)]
struct Document<'a> {
    from: u64,
    #[serde(flatten)]
    figures: &'a Figures,
    canary: Option<&'static str>,
    violated_seed: Option<u64>,
    violation: Option<String>,
    seconds: f64,
    seeds_per_second: f64,
}

/// The figures as a table.
pub fn table(from: u64, figures: &Figures, seconds: f64) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["", "count"]);
    table.add_row(["first seed".to_owned(), from.to_string()]);
    for (name, value) in figures.rows() {
        table.add_row([name.to_owned(), value.to_string()]);
    }
    table.add_row(["seconds".to_owned(), format!("{seconds:.1}")]);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// The result as one line of JSON.
///
/// # Errors
/// Never for these values; the writer's type allows it.
pub fn json(from: u64, result: &RunResult, canary: Option<Canary>, seconds: f64) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Document {
        from,
        figures: &result.figures,
        canary: canary.map(Canary::name),
        violated_seed: result.found.as_ref().map(|(seed, _)| *seed),
        violation: result.found.as_ref().map(|(_, violation)| violation.what.clone()),
        seconds,
        seeds_per_second: result.figures.seeds as f64 / seconds.max(1e-9),
    })
}

/// The command that replays a seed.
pub fn replay_command(seed: u64, canary: Option<Canary>) -> String {
    let canary = canary.map_or_else(String::new, |canary| format!(" --canary {}", canary.name()));
    format!("kolo-sim faults --from {seed} --seeds 1 --history{canary}")
}
