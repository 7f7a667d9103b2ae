//! A page: text, tables and plots one below the other, readable on a light and on a dark screen, wide or narrow.
//!
//! Invariant: text is escaped when it is added.

use std::{io, path::Path};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Plot, Table, write_whole};

/// A page under a title.
#[derive(Debug)]
pub struct Page {
    title: String,
    body: Vec<Markup>,
}

impl Page {
    /// A page with nothing but a title.
    pub fn new(title: &str) -> Page {
        Page { title: title.to_owned(), body: Vec::new() }
    }

    /// Begins a section.
    pub fn heading(&mut self, text: &str) {
        self.body.push(html! { h2 { (text) } });
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) {
        self.body.push(html! { p { (text) } });
    }

    /// Adds text whose line ends stay.
    pub fn lines(&mut self, text: &str) {
        self.body.push(html! { pre { (text) } });
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) {
        self.body.push(html! { div.scroll { (table.html()) } });
    }

    /// Adds a plot with a caption below it.
    pub fn plot(&mut self, plot: &Plot, caption: &str) {
        self.body.push(html! { figure { (plot.html()) figcaption { (caption) } } });
    }

    /// The whole page.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(include_str!("style.css"))) }
                }
                body {
                    h1 { (self.title) }
                    @for part in &self.body { (part) "\n" }
                }
            }
        };
        page.into_string()
    }

    /// Writes the page as a whole.
    ///
    /// # Errors
    /// See [`write_whole`].
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_whole(path, |file| file.write_all(self.html().as_bytes()))
    }
}
