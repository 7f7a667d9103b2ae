//! The whole command on a small generated grid, and on files that are wrong.

use std::{fs, path::Path};

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: TablesArgs,
}

fn args(flags: &[&str]) -> TablesArgs {
    Cli::try_parse_from(["tables"].iter().chain(flags)).unwrap_or_else(|error| panic!("{error}")).args
}

/// Everything that does not depend on the clock.
fn without_times(tables: &Tables) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(map) => {
                map.retain(|key, _| !key.contains("_us") && key != "times_slower");
                map.values_mut().for_each(strip);
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(tables).unwrap();
    strip(&mut value);
    value
}

#[test]
fn a_generated_grid_gives_all_tables_and_the_same_ones_again() {
    let args = args(&["--hosts", "60", "--cases", "6", "--repeats", "1", "--study-runs", "2", "--policy", "roomiest"]);
    let (tables, plans) = make(&args).unwrap();
    assert!(tables.collective.iter().map(|row| row.hosts as u32).eq(source::HOSTS));
    assert_eq!(without_times(&tables), without_times(&make(&args).unwrap().0));
    assert_eq!(plans[0].lines().count(), 36);
    // Collective requests solve no fewer, the exact core no fewer than anybody, and the optimum is nobody's to beat.
    let all = tables.comparison.as_ref().unwrap();
    assert!(all.cases == 36 && all.solved_collective >= all.solved_simple && all.solved_collective > 0);
    for version in &tables.versions {
        let optimality = version.table_3_3.as_ref().unwrap();
        assert!(optimality.cases == 6 && optimality.solved <= optimality.solvable, "{version:?}");
        assert!(optimality.factor_shares.iter().all(|share| *share <= 1.0 + 1e-9), "{version:?}");
    }
    let kolo = tables.versions[0].table_3_3.as_ref().unwrap();
    assert!(kolo.solved == kolo.solvable && kolo.late == 0, "{kolo:?}");
    for row in &tables.collective {
        assert!(row.others().all(|other| other.solved <= row.solved), "{row:?}");
    }
    let study = tables.study.as_ref().unwrap();
    assert_eq!((study.hosts, study.cases, study.l1.len()), (15, 6, 10));
    assert!(study.m_init.iter().all(|point| point.textbook.solved <= point.kolo.solved), "{study:?}");
    let (text, page) = (present::text(&tables), page::page(&tables).html());
    for title in
        ["Table 3.2", "Table 3.3", "Table 3.4", "Time by phase", "Parameter M_init", "Parameter L2", "roomiest"]
    {
        assert!(text.contains(title) && page.contains(title), "{title}");
    }
    assert!(!page.contains("http") && !page.contains("NaN"));
}

#[test]
fn a_grid_file_without_requests_gets_drawn_ones_and_named_requests_are_paired() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let grid = at("grid.json", &sim_kit::generate::grid(5, 30).write());
    let one =
        |n: u32, end: u32| format!("{{\"hosts\":{n},\"duration\":60,\"latest\":{end},\"total\":{{\"cpu\":900}}}}\n");
    let run = |flags: &[&str]| make(&args(&[&["--grid", &grid, "--no-study", "--repeats", "1"], flags].concat()));
    let (tables, _) = run(&["--cases", "1", "--no-textbook"]).unwrap();
    assert!(tables.collective.iter().all(|row| row.textbook.is_none()) && tables.study.is_none());
    let collective = at("c.jsonl", &(one(2, 99) + "\n" + &one(5, 99)));
    let (tables, plans) = run(&["--collective", &collective]).unwrap();
    assert!(tables.simple.is_none() && plans[0].lines().count() == 2, "{tables:?}");
    let error = |flags: &[&str]| match run(flags) {
        Ok(_) => panic!("{flags:?}"),
        Err(error) => format!("{error:#}"),
    };
    for (name, text, expected) in [
        ("short.jsonl", one(2, 99), "short.jsonl: line 1: expected 2 requests"),
        ("other.jsonl", one(2, 99) + &one(4, 99), "other.jsonl: line 2: expected a request for 5 hosts"),
        ("late.jsonl", one(2, 98) + &one(5, 99), "late.jsonl: line 1: expected the duration and window"),
        ("broken.jsonl", one(2, 99) + "{\"hosts\":5,\"duration\":true}", "broken.jsonl: line 2: duration"),
        ("none.jsonl", "\n".to_owned(), "none.jsonl: expected at least one request"),
        ("zero.jsonl", one(0, 99), "zero.jsonl: line 1: hosts"),
    ] {
        let simple = at(name, &text);
        let message = error(&["--collective", &collective, "--simple", &simple]);
        assert!(message.contains(expected), "{message}");
    }
    let exact = at("exact.jsonl", "{\"id\":\"a\"}\n{");
    let message = error(&["--collective", &collective, "--exact", &exact]);
    assert!(message.contains("exact.jsonl: line 2"), "{message}");
    assert!(error(&["--collective", "/nowhere/c.jsonl"]).contains("/nowhere/c.jsonl"));
    assert!(write(Some(Path::new("/nowhere/page.html")), String::new).is_err());
}

#[test]
fn impossible_flags_are_refused() {
    for flags in [
        &["--policy", "nobody"][..],
        &["--collective", "c"],
        &["--grid", "g", "--hosts", "50"],
        &["--grid", "g", "--collective", "c", "--cases", "5"],
        &["--simple", "s"],
        &["--repeats", "0"],
        &["--hosts", "1"],
    ] {
        assert!(Cli::try_parse_from(["tables"].iter().chain(flags)).is_err(), "{flags:?}");
    }
}
