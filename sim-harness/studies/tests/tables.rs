//! `kolo-study tables` as a process, on a grid that is small enough to count by hand.

use std::{fs, process::Command};

use serde_json::Value;

/// Two hosts: one nearly full for ten minutes, one free.
const GRID: &str = r#"{"format":"kolo-grid/1","hosts":[
    {"id":"h1","site":"s1","resources":{"cpu":4000},"attributes":{},"occupancy":{"cpu":[[0,3000],[600,0]]}},
    {"id":"h2","site":"s2","resources":{"cpu":2000},"attributes":{},"occupancy":{}}]}"#;

fn requests(amounts: fn(u64) -> String) -> String {
    let one = |(id, each): (&str, u64)| {
        format!(r#"{{"id":"{id}","hosts":2,"duration":300,"earliest":0,"latest":900,{}}}"#, amounts(each))
    };
    [("now", 1000), ("later", 2500), ("never", 3500)].map(one).join("\n")
}

#[test]
fn the_tables_compare_simple_with_collective() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| fs::write(directory.path().join(name), text).unwrap();
    write("grid.json", GRID.to_owned());
    write("collective.jsonl", requests(|each| format!(r#""total":{{"cpu":{}}}"#, 2 * each)));
    write("simple.jsonl", requests(|each| format!(r#""per_host":{{"cpu":{each}}}"#)));
    let mut command = Command::new(env!("CARGO_BIN_EXE_kolo-study"));
    command.current_dir(directory.path()).args(["tables", "--grid", "grid.json", "--output", "json"]);
    let ended = command.args(["--collective", "collective.jsonl", "--simple", "simple.jsonl"]).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let tables: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let comparison = &tables["comparison"];
    // Together the hosts have 5 cores after ten minutes; 2.5 each they never have.
    assert_eq!((&comparison["solved_collective"], &comparison["solved_simple"]), (&2.into(), &1.into()), "{tables}");
    assert_eq!(tables["collective"][0]["proven"], 3, "{tables}");
    assert_eq!(tables["collective"][0]["textbook"]["solved"], 2, "{tables}");
}
