//! What a run has found, for people and programs.

pub mod findings;
mod page;
mod picture;
mod words;

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::Context;
use sim_kit::{print::OutputForm, report::write_whole};

use self::findings::Findings;

/// Writes the result to the files that were asked for, and prints it. `reasons` lists each request that is not reserved.
///
/// # Errors
/// With the name of the file that cannot be written.
pub fn publish(
    findings: &Findings,
    (json, html): (Option<&Path>, Option<&Path>),
    output: OutputForm,
    reasons: bool,
) -> anyhow::Result<()> {
    let figures = &findings.figures;
    if let Some(path) = json {
        let text = serde_json::to_string(figures)? + "\n";
        let written = write_whole(path, |file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("--json: cannot write {}", path.display()))?;
    }
    if let Some(path) = html {
        let written = page::page(findings).write(path);
        written.with_context(|| format!("--html: cannot write {}", path.display()))?;
    }
    if output == OutputForm::Json {
        // The object is the last line of standard output; words go elsewhere.
        let words = words::not_reserved(findings, reasons) + &words::failures(findings);
        io::stderr().lock().write_all(words.as_bytes())?;
    }
    output.print(|| words::for_people(findings, reasons), figures).context("cannot write the result")
}
