//! Times and durations as people write them, and requests in scripts.

use std::{path::Path, sync::LazyLock};

use jiff::Zoned;
use kolo_cli::script::parse as read_script;
use kolo_text::time;

use crate::{Input, Target};

/// Durations and times.
pub const TIMES: Target = Target { name: "times", run, golden: Vec::new };

/// Scripts with `#KOLO` lines.
pub const IMPORTS: Target = Target { name: "imports", run: run_imports, golden: Vec::new };

static NOW: LazyLock<[Zoned; 3]> = LazyLock::new(|| {
    ["2026-10-25T00:30:00+02:00[Europe/Ljubljana]", "1970-01-01T00:00:00Z[UTC]", "9999-12-30T22:00:00Z[UTC]"]
        .map(|text| text.parse().expect("a legal time"))
});

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let now = &NOW[usize::from(input.below(3))];
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    if let Ok(duration) = time::parse_duration(text) {
        assert_eq!(time::parse_duration(&time::format_duration(duration)), Ok(duration), "{text:?}");
    }
    if let Ok(span) = time::parse_span(text) {
        assert_eq!(time::parse_span(&time::format_span(span)), Ok(span), "{text:?}");
    }
    if let Ok(found) = time::parse_time(text, now) {
        assert!(found.is_in_range(), "{text:?}: {found:?}");
        let shown = time::format_time(found, now.time_zone());
        assert_eq!(time::parse_time(&shown, now), Ok(found), "{text:?} is shown as {shown:?}");
    }
}

/// Whatever is wrong is an error with the file in it. What is read is checked where all requests are.
fn run_imports(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let error = read_script(Path::new("j.sh"), text, &NOW[0]).err().map(|error| error.to_string());
    assert!(error.is_none_or(|error| error.starts_with("j.")), "{text:?}");
}
