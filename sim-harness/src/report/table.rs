//! A table that reads the same on a terminal and on a page.

use comfy_table::{CellAlignment, presets::NOTHING};

use super::page::escape;

/// See the module. The first column is text, the others are numbers.
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

    /// For a terminal, without a line end after the last row.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// For a page.
    pub(super) fn html(&self) -> String {
        let cells = |tag: &str, cells: &[String]| -> String {
            let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(|row| cells("td", row)).collect();
        format!("<table>\n{}{rows}</table>", cells("th", &self.header))
    }
}
