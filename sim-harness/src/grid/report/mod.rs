//! What a run has found, for people and programs.

pub mod findings;
mod page;
mod picture;
mod words;

use std::io::{self, Write};

use anyhow::Context;

use self::findings::Findings;
use super::args::GridArgs;
use crate::{print::OutputForm, report::write_whole};

/// Prints the result, and writes it to the files that were asked for.
///
/// # Errors
/// With the name of the file that cannot be written.
pub fn publish(findings: &Findings, args: &GridArgs) -> anyhow::Result<()> {
    let figures = findings.figures();
    if let Some(path) = &args.json {
        let write = |file: &mut dyn Write| {
            serde_json::to_writer(&mut *file, &figures)?;
            file.write_all(b"\n")
        };
        write_whole(path, write).with_context(|| format!("--json: cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.html {
        let written = page::page(findings, &figures).write(path);
        written.with_context(|| format!("--html: cannot write {}", path.display()))?;
    }
    if args.output == OutputForm::Json {
        // The object is the last line of standard output; words go elsewhere.
        let words = words::not_reserved(findings, args.reasons) + &words::failures(findings);
        io::stderr().lock().write_all(words.as_bytes())?;
    }
    args.output
        .print(|| words::for_people(findings, &figures, args.reasons), &figures)
        .context("cannot write the result")
}
