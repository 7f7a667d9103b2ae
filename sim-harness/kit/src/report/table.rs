//! A table that reads the same on a terminal and on a page.

use comfy_table::{CellAlignment, presets::NOTHING};
use maud::{Markup, html};

/// A table whose first column is text and whose others are numbers.
#[derive(Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Table {
        Table { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds a row of values under a name.
    pub fn row<T: ToString>(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = T>) {
        let values = values.into_iter().map(|value| value.to_string());
        self.rows.push([name.into()].into_iter().chain(values).collect());
    }

    /// For a terminal, without a line end after the last row.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(&self.header).add_rows(&self.rows);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// For a page.
    pub(super) fn html(&self) -> Markup {
        html! {
            table {
                tr { @for cell in &self.header { th { (cell) } } }
                @for row in &self.rows { tr { @for cell in row { td { (cell) } } } }
            }
        }
    }
}
