//! How results look: a table or text for people, JSON for programs, bare ids for pipes.
//!
//! Invariant: what came from other sites (names, attributes, reasons) never reaches a terminal with control characters,
//! whatever the format; JSON always carries its schema.

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use comfy_table::{Table, presets};
use jiff::tz::TimeZone;
use kolo_text::safe::{json_safe, safe};
use serde::Serialize;

use super::error::CliError;

/// Narrower terminals get what is meant for this many columns.
const NARROWEST: u16 = 40;

/// The version of what `--output json` prints.
pub const SCHEMA: &str = "kolo-cli/1";

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// Text for people
    #[default]
    Table,
    /// One JSON object
    Json,
    /// Ids only, one a line
    Quiet,
}

/// A result of a command: JSON shows it as it is serialized, an object.
pub trait Report: Serialize {
    /// The text for people. Texts of others must have gone through [`safe`] or [`columns`].
    fn text(&self, look: &Look) -> String;
    /// The ids for pipes.
    fn ids(&self) -> Vec<String>;
}

pub struct Output {
    format: OutputFormat,
    sink: Box<dyn Write>,
    look: Look,
}

/// What the text for people depends on beside the result.
#[derive(Debug, Clone)]
pub struct Look {
    /// The zone of all times.
    pub zone: TimeZone,
    /// Whether it is coloured.
    pub paint: Paint,
    /// Width of the terminal that it is for; none when it goes elsewhere.
    pub columns: Option<usize>,
}

impl Look {
    /// How text on standard output looks: coloured and fitted when that is a terminal.
    pub fn for_stdout(zone: TimeZone) -> Look {
        let stdout = io::stdout();
        let size = stdout.is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
        let columns = size.map(|(columns, _)| usize::from(columns.max(NARROWEST)));
        Look { zone, paint: Paint::for_stream(&stdout), columns }
    }

    /// Times in `zone`, no colours, as wide as need be.
    #[cfg(test)]
    pub fn plain(zone: TimeZone) -> Look {
        Look { zone, paint: Paint { is_on: false }, columns: None }
    }
}

/// Colours, or none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    /// Colours if `stream` is a terminal that shows them and the user has not forbidden them (`NO_COLOR`,
    /// `CLICOLOR=0`, `TERM=dumb`).
    pub fn for_stream(stream: &impl RawStream) -> Paint {
        Paint { is_on: AutoStream::choice(stream) != ColorChoice::Never }
    }

    pub fn title(self, text: &str) -> String {
        self.styled(text, Style::new().bold())
    }

    pub fn good(self, text: &str) -> String {
        self.styled(text, AnsiColor::Green.on_default())
    }

    /// Something to look at.
    pub fn doubtful(self, text: &str) -> String {
        self.styled(text, AnsiColor::Yellow.on_default())
    }

    pub fn bad(self, text: &str) -> String {
        self.styled(text, AnsiColor::Red.on_default().bold())
    }

    pub fn faint(self, text: &str) -> String {
        self.styled(text, Style::new().dimmed())
    }

    /// One of several things that differ in colour as well.
    pub fn numbered(self, text: &str, number: usize) -> String {
        const COLOURS: [AnsiColor; 6] =
            [AnsiColor::Cyan, AnsiColor::Green, AnsiColor::Yellow, AnsiColor::Magenta, AnsiColor::Blue, AnsiColor::Red];
        self.styled(text, COLOURS[number % COLOURS.len()].on_default())
    }

    fn styled(self, text: &str, style: Style) -> String {
        if self.is_on && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

#[derive(Serialize)]
struct Envelope<T> {
    schema: &'static str,
    #[serde(flatten)]
    body: T,
}

impl Output {
    /// Results in `format` to `sink`.
    pub fn new(format: OutputFormat, sink: Box<dyn Write>, look: Look) -> Output {
        Output { format, sink, look }
    }

    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// How text for people looks.
    pub fn look(&self) -> &Look {
        &self.look
    }

    /// Prints a result.
    pub fn print(&mut self, report: &impl Report) -> Result<(), CliError> {
        let text = match self.format {
            OutputFormat::Table => report.text(&self.look),
            OutputFormat::Json => {
                let envelope = Envelope { schema: SCHEMA, body: report };
                let line = serde_json::to_string(&envelope).map_err(|error| CliError::output(error.into()))?;
                json_safe(&line) + "\n"
            }
            OutputFormat::Quiet => report.ids().iter().fold(String::new(), |mut text, id| {
                text.push_str(&safe(id));
                text.push('\n');
                text
            }),
        };
        self.raw(&text)
    }

    /// Prints text as it is.
    pub fn raw(&mut self, text: &str) -> Result<(), CliError> {
        self.sink.write_all(text.as_bytes()).and_then(|()| self.sink.flush()).map_err(CliError::output)
    }

    /// Where text goes, for output that is too long to be kept.
    pub fn sink(&mut self) -> &mut dyn Write {
        &mut self.sink
    }
}

/// Rows in columns under a header, without trailing blanks; as blocks on a terminal that is too narrow for them.
pub fn columns<const N: usize>(look: &Look, header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    table_text(look, &header, rows.into_iter().map(Vec::from))
}

/// The same without the column `optional` where it is `-` in all rows.
pub fn columns_but<const N: usize>(
    look: &Look,
    optional: &str,
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let (mut header, mut rows) = (Vec::from(header), rows.into_iter().map(Vec::from).collect::<Vec<_>>());
    let at = header.iter().position(|name| *name == optional);
    if let Some(at) = at.filter(|at| rows.iter().all(|row| row[*at] == "-")) {
        header.remove(at);
        rows.iter_mut().for_each(|row| drop(row.remove(at)));
    }
    table_text(look, &header, rows)
}

fn table_text(look: &Look, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.iter().map(|cell| safe(cell)).collect()).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().copied());
    table.add_rows(&rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.trim_fmt();
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    if let Some(columns) = look.columns.filter(|columns| widest > *columns && !rows.is_empty()) {
        return rows.iter().map(|row| block(look.paint, header, row, columns)).collect();
    }
    let (head, rows) = text.split_once('\n').unwrap_or((&text, ""));
    let rows = if rows.is_empty() { String::new() } else { format!("{rows}\n") };
    format!("{}\n{rows}", look.paint.title(head))
}

/// A row as its first cell, and below it the others that say something, each behind its name, as many a line as fit.
fn block(paint: Paint, header: &[&str], row: &[String], columns: usize) -> String {
    let mut text = paint.title(&row[0]);
    let mut used = columns;
    for (name, cell) in header.iter().zip(row).skip(1).filter(|(_, cell)| !matches!(cell.as_str(), "" | "-")) {
        let width = 2 + name.chars().count() + 1 + cell.chars().count();
        if used + width > columns {
            text.push('\n');
            used = 0;
        }
        text.push_str(&format!("  {} {cell}", paint.faint(name)));
        used += width;
    }
    text.push('\n');
    text
}

/// Writes `note: what` to standard error, for what is no error.
pub fn remark(what: &str) {
    let stderr = io::stderr().lock();
    let text = format!("{} {}\n", Paint::for_stream(&stderr).doubtful("note:"), safe(what));
    // The command goes on whether or not anybody reads this.
    let _ = { stderr }.write_all(text.as_bytes());
}

/// Whether progress may be shown: only to a person.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::printed;

    #[derive(Serialize)]
    struct Names {
        names: Vec<&'static str>,
    }

    impl Report for Names {
        fn text(&self, look: &Look) -> String {
            columns(
                look,
                ["NAME", "LENGTH"],
                self.names.iter().map(|name| [(*name).to_owned(), name.len().to_string()]),
            )
        }
        fn ids(&self) -> Vec<String> {
            self.names.iter().map(|name| (*name).to_owned()).collect()
        }
    }

    #[test]
    fn a_report_prints_in_every_format() {
        let names = Names { names: vec!["a", "long one"] };
        assert_eq!(printed(&names, OutputFormat::Table), "NAME      LENGTH\na         1\nlong one  8\n");
        assert_eq!(printed(&names, OutputFormat::Json), "{\"schema\":\"kolo-cli/1\",\"names\":[\"a\",\"long one\"]}\n");
        assert_eq!(printed(&names, OutputFormat::Quiet), "a\nlong one\n");
    }

    #[test]
    fn a_terminal_that_is_too_narrow_gets_blocks() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        let rows =
            || [row(["r-42", "confirmed", "2025-11-21 08:00:00+00:00", "1"]), row(["r-43", "refused", "-", "2"])];
        let show = |columns| {
            let look = Look { columns, ..Look::plain(TimeZone::UTC) };
            super::columns(&look, ["ID", "STATE", "START", "HOSTS"], rows())
        };
        let table = "ID    STATE      START                      HOSTS\n\
                     r-42  confirmed  2025-11-21 08:00:00+00:00  1\n\
                     r-43  refused    -                          2\n";
        assert_eq!(show(None), table);
        assert_eq!(show(Some(49)), table);
        assert_eq!(
            show(Some(48)),
            "r-42\n  STATE confirmed\n  START 2025-11-21 08:00:00+00:00  HOSTS 1\nr-43\n  STATE refused  HOSTS 2\n"
        );
        let look = Look { columns: Some(2), ..Look::plain(TimeZone::UTC) };
        assert_eq!(super::columns(&look, ["NAME"], []), "NAME\n", "nothing to show is still shown");
    }

    #[test]
    fn what_others_wrote_cannot_drive_the_terminal() {
        let hostile = Names { names: vec!["\u{1b}[2J\u{1b}]0;x\u{7}", "a\nfake row\r\u{9b}1m\u{202e}"] };
        for format in [OutputFormat::Table, OutputFormat::Json, OutputFormat::Quiet] {
            let text = printed(&hostile, format);
            assert!(!text.contains(['\u{1b}', '\u{7}', '\r', '\u{9b}', '\u{202e}']), "{text:?}");
            assert!(!text.contains("\nfake row"), "{text:?}");
        }
        let json: serde_json::Value = serde_json::from_str(&printed(&hostile, OutputFormat::Json)).unwrap();
        assert_eq!(json["names"][1], hostile.names[1]);
    }
}
