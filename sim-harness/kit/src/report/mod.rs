//! Reports: one self-contained page of text, tables and plots, for every subcommand that has results to show.
//!
//! ```ignore
//! let mut page = Page::new("Search time");
//! page.text("How long phases II to V took.");
//! let mut table = Table::new(["N", "ms"]);
//! table.row("5", [0.02]);
//! page.table(&table);
//! page.plot(&Plot::new("Search time", Axis::linear("N"), Axis::linear("ms")).area("Kolo", points), "The caption.");
//! page.write(path)?;
//! ```
//!
//! Invariant: a page loads nothing, and every text that comes into it is escaped.

mod file;
mod page;
mod plot;
mod table;

pub use self::{
    file::{check_places, write_whole},
    page::Page,
    plot::{Axis, Plot},
    table::Table,
};
