//! A page: text, tables and plots one below the other, readable on a light and on a dark screen, wide or narrow.
//!
//! Invariant: what is added is escaped when it is added.

use std::{fmt::Write as _, io, path::Path};

use super::{Plot, Table, write_whole};

/// See the module.
#[derive(Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page with nothing but a title.
    pub fn new(title: &str) -> Page {
        Page { title: title.to_owned(), body: String::new() }
    }

    /// Begins a section.
    pub fn heading(&mut self, text: &str) {
        self.add(format_args!("<h2>{}</h2>\n", escape(text)));
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) {
        self.add(format_args!("<p>{}</p>\n", escape(text)));
    }

    /// Adds text whose line ends stay.
    pub fn lines(&mut self, text: &str) {
        self.add(format_args!("<pre>{}</pre>\n", escape(text)));
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) {
        self.add(format_args!("<div class=\"scroll\">{}</div>\n", table.html()));
    }

    /// Adds a plot with the words below it.
    pub fn plot(&mut self, plot: &Plot, caption: &str) {
        self.add(format_args!("<figure>{}<figcaption>{}</figcaption></figure>\n", plot.html(), escape(caption)));
    }

    /// The whole page.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\n\
             <style>\n{style}</style></head>\n<body><h1>{title}</h1>\n{body}</body></html>\n",
            style = include_str!("style.css"),
            body = self.body,
        )
    }

    /// Writes the page as a whole.
    ///
    /// # Errors
    /// See [`write_whole`].
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_whole(path, |file| file.write_all(self.html().as_bytes()))
    }

    fn add(&mut self, html: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.body.write_fmt(html);
    }
}

/// `text` as it may stand in a page, in text or in an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
