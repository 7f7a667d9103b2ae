//! Requests written into a script, as other schedulers have it: `#KOLO --hosts 5 -t 2:00:00`.
//!
//! Invariant: the script is read and never run; a line that was meant for Kolo is read or complained about with its number,
//! never passed over.

use std::path::Path;

use clap::{Parser, error::ErrorKind};
use jiff::Zoned;
use kolo_text::{
    document::{self, DocumentError},
    request_file::Draft,
};

use super::{error::CliError, foreign, request, request_args::RequestArgs};

/// What such a line begins with.
const MARK: &str = "#KOLO";

/// The flags of one line.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, name = "#KOLO")]
struct Line {
    #[command(flatten)]
    request: RequestArgs,
}

/// Reads the request in the script `file`.
///
/// # Errors
/// [`CliError`] with file and line.
pub fn read(file: &Path, now: &Zoned) -> Result<Draft, CliError> {
    parse(file, &document::read_text(file)?, now)
}

/// Reads the request in `text`, the content of `file`: of two lines with the same flag the later one wins.
pub fn parse(file: &Path, text: &str, now: &Zoned) -> Result<Draft, CliError> {
    let mut draft = Draft::default();
    let (mut has_begun, mut has_flags) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let wrong = |message: String| {
            CliError::Document(DocumentError::Content {
                file: file.to_owned(),
                line: Some(index + 1),
                key: MARK.to_owned(),
                message,
            })
        };
        let line = line.trim();
        if !line.get(..MARK.len()).is_some_and(|head| head.eq_ignore_ascii_case(MARK)) {
            has_begun |= !line.is_empty() && !line.starts_with('#');
            continue;
        }
        let Some(flags) = line.strip_prefix(MARK).filter(|rest| rest.starts_with(char::is_whitespace)) else {
            return Err(wrong(format!("{line:?}: expected {MARK} in capitals, a blank, and flags of kolo submit")));
        };
        if has_begun {
            return Err(wrong("this line is behind the first command: move it to the head of the script".to_owned()));
        }
        let words = shlex::split(flags).ok_or_else(|| wrong("a quote is not closed".to_owned()))?;
        let line = Line::try_parse_from(&words)
            .map_err(|error| wrong(foreign::said_here(&error, &words).unwrap_or_else(|| complaint(&error))))?;
        if line.request.file.is_some() {
            return Err(wrong("a script names no other file: write its keys as flags".to_owned()));
        }
        draft = request::layer(draft, &line.request, now).map_err(|error| wrong(error.to_string()))?;
        has_flags = true;
    }
    if has_flags {
        return Ok(draft);
    }
    let expected = format!("expected a line such as `{MARK} --hosts 5 --duration 2:00:00` before the first command");
    Err(DocumentError::Content { file: file.to_owned(), line: None, key: String::new(), message: expected }.into())
}

/// The parser's complaint and its tip, on one line and without the usage of a command that was not typed.
fn complaint(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayVersion {
        return "expected flags of a request".to_owned();
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("error: ") || line.starts_with("tip: "));
    let parts: Vec<_> = lines.map(|line| line.trim_start_matches("error: ")).collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Draft, String> {
        let now = "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().unwrap();
        parse(Path::new("job.sh"), text, &now).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_at_the_head_of_a_script_are_read() {
        let draft = read(
            "#!/bin/sh\n# A comment.\n\n#KOLO -N 5 --total cpu=12,memory=15GiB\n#KOLO\t--duration 2:00:00\n\
             #KOLO --latest tomorrow 08:00 --id 'my run'\n#KOLO --total cpu=13\nmake run\n# done\n",
        )
        .unwrap();
        let expected = serde_json::json!({"hosts": 5, "duration": 7200, "total": {"cpu": 13000, "memory": 15360},
            "id": "my run", "latest": 1_795_330_800});
        assert_eq!(serde_json::Value::Object(draft), expected);
    }

    #[test]
    fn complaints_name_the_line() {
        for (text, expected) in [
            ("make\n", "job.sh: expected a line such as `#KOLO --hosts 5"),
            (
                "#KOLO --host 5\n",
                "job.sh:1: #KOLO: unexpected argument '--host' found; tip: a similar argument exists: '--hosts'",
            ),
            ("#KOLO --cpus 4\n", "job.sh:1: #KOLO: no flag is called --cpus: say --per-host cpu=4"),
            ("#KOLO --per-host cpu=1 mem=4GiB\n", "job.sh:1: #KOLO: mem=4GiB: no flag is before it; amounts"),
            ("\n#KOLO -N x\n", "job.sh:2: #KOLO: invalid value 'x' for '--hosts <COUNT>'"),
            ("#KOLO -t 90\n", "job.sh:1: #KOLO: --duration: \"90\" has no unit"),
            ("#KOLO -N 5\nmake\n#KOLO -t 1h\n", "job.sh:3: #KOLO: this line is behind the first command"),
            ("#kolo -N 5\n", "job.sh:1: #KOLO: \"#kolo -N 5\": expected #KOLO in capitals"),
            ("#KOLO-N 5\n", "expected #KOLO in capitals, a blank"),
            ("#KOLO --id 'x\n", "a quote is not closed"),
            ("#KOLO --request r.toml\n", "a script names no other file"),
            ("#KOLO 5\n", "unexpected argument '5'"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
