//! `kolo-sim compare A.json B.json`: what two results of the same kind differ in, figure by figure.
//!
//! Every number of the two objects is a figure, named by its keys. Which direction is better follows from the name; a
//! figure of which that is not known is shown without a judgement. Invariant: a figure that only one file has is shown as
//! missing in the other one, never left out.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    error::BAD_USAGE,
    print::{OutputForm, print},
    report::Table,
};

/// Ratios this near to 1 are the same: two runs of one binary differ by as much.
const SAME: f64 = 0.05;
/// Largest result that is read, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// What is less of, the better, wherever one of these words is part of a figure's name.
const LESS_IS_BETTER: [&str; 22] = [
    "_ms",
    "_mib",
    "_s",
    "cpu",
    "conflicts",
    "attempts",
    "violations",
    "crashes",
    "failed",
    "rejected",
    "lost",
    "wedged",
    "wait",
    "response",
    "slowdown",
    "killed",
    "makespan",
    "bytes",
    "staleness",
    "messages",
    "memory",
    "dropped",
];
/// What is more of, the better.
const MORE_IS_BETTER: [&str; 6] = ["reserved", "per_second", "utilisation", "answered", "highest_rate", "placed"];
/// What was asked for, or counts something that is neither good nor bad, whatever else is in the name.
const NEUTRAL: [&str; 6] = ["seed", "nodes", "hosts", "requests", "duration", "asked_per_second"];

/// Compare two results written with `--output json` or `--json`.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// The result to compare with: a file whose text, or whose last line, is one JSON object.
    #[arg(value_name = "A.json")]
    first: PathBuf,
    /// The result that may be better or worse.
    #[arg(value_name = "B.json")]
    second: PathBuf,
    /// Leave out figures that are the same.
    #[arg(long)]
    changed: bool,
    /// How the comparison is printed.
    #[arg(long, value_enum, default_value = "table")]
    output: OutputForm,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
enum CompareError {
    /// A file cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds no result.
    #[error("{path}: expected a JSON object, as the whole text or on the last line: {detail}", path = .path.display())]
    NoObject {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        detail: String,
    },
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Write(#[from] io::Error),
}

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Better {
    /// The first.
    A,
    /// The second.
    B,
    /// Neither, or they are as good as the same.
    Same,
    /// Nothing says which direction is better, or a value is missing.
    Unknown,
}

/// One figure of both results.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    figure: String,
    a: Option<f64>,
    b: Option<f64>,
    /// `b / a`, where that is a number.
    ratio: Option<f64>,
    better: Better,
}

/// Runs the command. The exit code is 64 when a file is no result.
pub fn run(args: &CompareArgs) -> ExitCode {
    match compare(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if matches!(error, CompareError::Write(_)) { ExitCode::FAILURE } else { ExitCode::from(BAD_USAGE) }
        }
    }
}

fn compare(args: &CompareArgs) -> Result<(), CompareError> {
    let mut found = differences(&figures(&args.first)?, &figures(&args.second)?);
    if args.changed {
        found.retain(|difference| difference.better != Better::Same);
    }
    let text = match args.output {
        OutputForm::Table => table(&found).text(),
        OutputForm::Json => serde_json::to_string(&serde_json::json!({ "figures": found })).map_err(io::Error::from)?,
    };
    print(&(text + "\n"))?;
    Ok(())
}

fn figures(path: &Path) -> Result<BTreeMap<String, f64>, CompareError> {
    let read = |source| CompareError::Read { path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(read)?.len();
    if length > FILE_BYTES_MAX {
        return Err(read(io::Error::other(format!("larger than {} MiB", FILE_BYTES_MAX >> 20))));
    }
    let text = fs::read_to_string(path).map_err(read)?;
    let wrong = |detail: String| CompareError::NoObject { path: path.to_owned(), detail };
    let value = object(&text).map_err(wrong)?;
    let mut figures = BTreeMap::new();
    flatten("", &value, &mut figures);
    Ok(figures)
}

/// The object that `text` is, or ends with.
fn object(text: &str) -> Result<Value, String> {
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).ok_or("it is empty")?;
    let value: Value = serde_json::from_str(text).or_else(|_| serde_json::from_str(last)).map_err(|e| e.to_string())?;
    if value.is_object() { Ok(value) } else { Err("it is JSON, but no object".to_owned()) }
}

/// Adds every number in `value`, under the names of the keys that lead there. Members of a list are named by what they call
/// themselves, else by their place.
fn flatten(prefix: &str, value: &Value, figures: &mut BTreeMap<String, f64>) {
    let below = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Number(number) => {
            figures.extend(number.as_f64().map(|number| (prefix.to_owned(), number)));
        }
        Value::Object(members) => members.iter().for_each(|(name, member)| flatten(&below(name), member, figures)),
        Value::Array(members) => {
            for (place, member) in members.iter().enumerate() {
                let own = ["phase", "name", "policy", "asked_per_second"].iter().find_map(|key| member.get(key));
                let name = own.map_or_else(|| place.to_string(), |own| own.to_string().trim_matches('"').to_owned());
                flatten(&below(&name), member, figures);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn differences(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> Vec<Difference> {
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name: &String| {
        let (a, b) = (a.get(name).copied(), b.get(name).copied());
        let ratio = a.zip(b).map(|(a, b)| b / a).filter(|ratio| ratio.is_finite());
        Difference { figure: name.clone(), a, b, ratio, better: better(name, a, b) }
    };
    names.into_iter().map(one).collect()
}

fn better(name: &str, a: Option<f64>, b: Option<f64>) -> Better {
    let (Some(a), Some(b)) = (a, b) else { return Better::Unknown };
    if (a - b).abs() <= SAME * a.abs().min(b.abs()) {
        return Better::Same;
    }
    let is_any_of = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let last = name.rsplit('.').next().unwrap_or(name);
    if NEUTRAL.contains(&last) || is_any_of(&["deeds", "node_per_second"]) {
        Better::Unknown
    } else if is_any_of(&MORE_IS_BETTER) {
        if b > a { Better::B } else { Better::A }
    } else if is_any_of(&LESS_IS_BETTER) {
        if b < a { Better::B } else { Better::A }
    } else {
        Better::Unknown
    }
}

fn table(differences: &[Difference]) -> Table {
    let mut table = Table::new(["", "A", "B", "B / A", "better"]);
    for difference in differences {
        let value = |value: Option<f64>| value.map_or_else(|| "missing".to_owned(), number);
        let better = match difference.better {
            Better::A => "A",
            Better::B => "B",
            Better::Same => "same",
            Better::Unknown => "-",
        };
        let ratio = difference.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        table.push([difference.figure.clone(), value(difference.a), value(difference.b), ratio, better.to_owned()]);
    }
    table
}

/// Whole numbers as they are, others with three digits behind the point.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(text: &str) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        flatten("", &object(text).unwrap(), &mut figures);
        figures
    }

    #[test]
    fn figures_are_compared_by_their_names() {
        let a = r#"{"nodes":15,"reserved":40,"violations":0,"latency_ms":{"p50":10,"p99":40.5},"gossip_ms":null,
            "hostile":[{"phase":"baseline","nodes_cpu":0.5}],"note":"x"}"#;
        let b = "words before\n{\"nodes\":50,\"reserved\":41,\"violations\":2,\"latency_ms\":{\"p50\":5,\"p99\":50},\
            \"gossip_ms\":7,\"hostile\":[{\"phase\":\"baseline\",\"nodes_cpu\":0.25}]}\n";
        let text = table(&differences(&flat(a), &flat(b))).text();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "A B B / A better",
                "gossip_ms missing 7 - -",
                "hostile.baseline.nodes_cpu 0.500 0.250 0.50 B",
                "latency_ms.p50 10 5 0.50 B",
                "latency_ms.p99 40.500 50 1.23 A",
                "nodes 15 50 3.33 -",
                "reserved 40 41 1.02 same",
                "violations 0 2 - A",
            ]
        );
    }

    #[test]
    fn what_is_no_result_is_told_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        for (text, expected) in
            [("", "it is empty"), ("[1]", "no object"), ("{\"a\":", "EOF"), ("x\n", "expected value")]
        {
            fs::write(&path, text).unwrap();
            let error = figures(&path).unwrap_err().to_string();
            assert!(error.contains("r.json: expected a JSON object") && error.contains(expected), "{text:?}: {error}");
        }
        assert!(figures(&dir.path().join("none")).unwrap_err().to_string().contains("none: "));
    }
}
