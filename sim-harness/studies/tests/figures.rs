//! The figures that documents quote, against what `kolo-study` prints.
//!
//! A document has a fenced block called `figures`. Behind `$ ` stand commands for a shell, in a folder with the published traces; the lines
//! behind a command are lines of what it prints, in their order, spaces aside. Where a block ends with a command and a table stands below,
//! that is a replay for each cell: with the policy and the words at the head of the row, and the word at the head of the column. A cell is the
//! mean wait, slowdown and bounded slowdown. Invariant: cells that are not compared have a word at their column's head that is none of these,
//! or are empty.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use serde_json::Value;

/// Commands with what they print, and the table below.
struct Block {
    place: String,
    commands: Vec<(String, Vec<String>)>,
    table: Vec<Vec<String>>,
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|of| of == "md") {
            found.push(path);
        }
    }
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let mut lines = text.lines().zip(1..).peekable();
    let mut blocks = Vec::new();
    while let Some((_, number)) = lines.find(|(line, _)| *line == "```figures") {
        let mut block =
            Block { place: format!("{}:{number}", page.display()), commands: Vec::new(), table: Vec::new() };
        for (line, _) in lines.by_ref().take_while(|(line, _)| *line != "```") {
            match (line.strip_prefix("$ "), block.commands.last_mut()) {
                (Some(command), _) => block.commands.push((command.to_owned(), Vec::new())),
                (None, Some((_, printed))) => printed.push(line.to_owned()),
                (None, None) => panic!("{}: no command", block.place),
            }
        }
        if block.commands.last().is_some_and(|(_, printed)| printed.is_empty()) {
            while lines.next_if(|(line, _)| line.is_empty()).is_some() {}
            while let Some((row, _)) = lines.next_if(|(line, _)| line.starts_with('|')) {
                block.table.push(row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect());
            }
        }
        blocks.push(block);
    }
    blocks
}

/// Runs a command in the folder, and gives what it prints.
fn run(command: &str, folder: &Path) -> String {
    let begun = Instant::now();
    let program = Path::new(env!("CARGO_BIN_EXE_kolo-study")).parent().unwrap();
    let path = env::join_paths([program.to_owned()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap())));
    let ended =
        Command::new("sh").args(["-ec", command]).current_dir(folder).env("PATH", path.unwrap()).output().unwrap();
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    eprintln!("{:8.1} s  {command}", begun.elapsed().as_secs_f64());
    String::from_utf8(ended.stdout).unwrap()
}

fn without_spaces(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first line that is not printed behind those before it.
fn missing<'a>(expected: &'a [String], printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines().map(without_spaces);
    expected.iter().map(String::as_str).find(|line| !printed.any(|printed| printed == without_spaces(line)))
}

/// The flags that a word at the head of a row or a column stands for.
fn flags(word: &str) -> Option<String> {
    match word {
        "true" | "estimates" => Some(format!("--runtimes {word}")),
        "hpc2n" | "wagap-2013" => Some(format!("--trace {word}.swf --machines {word}.swf.machines")),
        _ => word.starts_with("--").then(|| word.to_owned()),
    }
}

/// The flags of a row.
fn of_row(head: &str) -> String {
    let head = head.replace('`', "");
    let (policy, words) = head.split_once(", ").unwrap_or((&head, ""));
    let words = words.split(", ").filter(|word| !word.is_empty());
    let words = words.map(|word| flags(word).unwrap_or_else(|| panic!("{head}: {word}?")));
    format!("--policy {policy} {}", words.collect::<Vec<_>>().join(" "))
}

/// A number with commas between thousands.
fn grouped(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let whole = text.split('.').next().map_or(0, str::len);
    let comma = |at: usize| at > 0 && at < whole && (whole - at).is_multiple_of(3);
    text.char_indices().flat_map(|(at, digit)| comma(at).then_some(',').into_iter().chain([digit])).collect()
}

fn cell(printed: &str) -> String {
    let outcome: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    let mean = |figure: &str| outcome[figure]["mean"].as_f64().unwrap();
    let [slowdown, bounded] = ["slowdown", "bounded_slowdown"].map(|figure| grouped(mean(figure), 1));
    format!("{}/{slowdown}/{bounded}", grouped(mean("wait_s"), 0))
}

/// What a block quotes and is not printed now.
fn complaints(block: &Block, folder: &Path) -> Vec<String> {
    let Block { place, commands, table } = block;
    let mut complaints = Vec::new();
    for (command, expected) in commands.iter().take(commands.len() - usize::from(!table.is_empty())) {
        let printed = run(command, folder);
        if let Some(line) = missing(expected, &printed) {
            complaints
                .push(format!("{place}: {command} does not print, behind the lines before it: {line}\n{printed}"));
        }
    }
    let (Some((command, _)), Some((heads, rows))) = (commands.last(), table.split_first()) else { return complaints };
    let mut compared = 0;
    for row in &rows[1..] {
        for (head, quoted) in heads.iter().zip(row).skip(1).filter(|(_, quoted)| !quoted.is_empty()) {
            let Some(of_column) = flags(head) else { continue };
            let command = format!("{command} {} {of_column} --output json", of_row(&row[0]));
            let printed = cell(&run(&command, folder));
            compared += 1;
            if printed != *quoted {
                complaints.push(format!("{place}: {command} prints {printed}, quoted is {quoted}"));
            }
        }
    }
    assert!(compared > 0, "{place}: nothing to compare");
    complaints
}

/// The folder with the published traces; else reports that they are missing.
fn traces() -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut beside = checkout.ancestors().skip(3).take(3).map(|folder| folder.join("shared/data/swf"));
    let found = env::var_os("KOLO_TRACES").map(PathBuf::from).or_else(|| beside.find(|folder| folder.is_dir()));
    if found.is_none() {
        let line = "documents_quote_what_is_printed: no published traces, so what is quoted of them is not compared";
        assert!(env::var_os("CI").is_none(), "{line}; where CI is set they must be there");
        // Unlike the macros, this is not caught by the test runner.
        io::stderr().write_all(format!("SKIPPED: {line}\n").as_bytes()).unwrap();
        if let Some(list) = env::var_os("KOLO_SKIPPED") {
            writeln!(OpenOptions::new().append(true).create(true).open(list).unwrap(), "{line}").unwrap();
        }
    }
    found
}

#[test]
fn documents_quote_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let traces = traces();
    for file in traces.iter().flat_map(|traces| fs::read_dir(traces).unwrap()) {
        let file = file.unwrap().path();
        symlink(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let mut found = Vec::new();
    pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"), &mut found);
    found.sort();
    let mut blocks: Vec<Block> = found.iter().flat_map(|page| blocks(page)).collect();
    assert!(blocks.len() > 3, "{} blocks of figures in the documents", blocks.len());
    let needs_traces = |block: &Block| {
        !block.table.is_empty() || block.commands.iter().any(|(command, _)| command.contains("--trace"))
    };
    blocks.retain(|block| traces.is_some() || !needs_traces(block));
    let complaints: Vec<String> = blocks.iter().flat_map(|block| complaints(block, folder.path())).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
