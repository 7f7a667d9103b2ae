//! Licences, sources and banned crates of all dependencies, held against `deny.toml`.
//!
//! Invariant: every crate that is built, tested with or run at build time for one of the targets of `deny.toml` is looked at; what is
//! not understood is a complaint.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

use end_to_end::write_program;
use serde_json::{Value, json};
use spdx::{Expression, ParseMode};

/// Name and version.
type Built = BTreeSet<(String, String)>;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn every_dependency_is_allowed() {
    let rules = rules();
    for target in rules["graph"]["targets"].as_array().unwrap() {
        let target = target.as_str().unwrap();
        let metadata =
            cargo(&["metadata", "--locked", "--all-features", "--format-version", "1", "--filter-platform", target]);
        let edges = ["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}"];
        let tree = cargo(
            &[&["tree", "--locked", "--workspace", "--all-features", "--target", target][..], &edges[..]].concat(),
        );
        // Of the metadata alone some would never be built: it also names what no feature asks for.
        let built: Built = tree.lines().filter_map(name_and_version).collect();
        assert!(built.len() > 200, "{target}: the dependencies were not found");
        let complaints = complaints(&serde_json::from_str(&metadata).unwrap(), &built, &rules);
        assert!(complaints.is_empty(), "{target}:\n{}", complaints.join("\n"));
    }
}

/// Nothing else builds the fuzzer, so nothing else would notice.
#[test]
fn the_fuzzers_lock_file_is_that_of_its_manifests() {
    cargo(&["metadata", "--locked", "--format-version", "1", "--manifest-path", "fuzz/Cargo.toml"]);
}

/// It is unmaintained, so what it takes to replace it stays small.
#[test]
fn one_file_knows_bincode() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"])).unwrap();
    let uses = |package: &&Value| {
        let mut dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies.any(|dependency| dependency["name"] == "bincode" && dependency["kind"].is_null())
    };
    let users: Vec<&Value> =
        metadata["packages"].as_array().unwrap().iter().filter(uses).map(|one| &one["name"]).collect();
    assert_eq!(users, ["discovery"]);
    let mut files = Vec::new();
    let mut folders = vec![root.join("discovery/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if fs::read_to_string(&entry).unwrap().contains("bincode::") {
                files.push(entry);
            }
        }
    }
    assert_eq!(files, [root.join("discovery/src/wire/encoding.rs")]);
}

#[test]
fn what_is_not_allowed_is_found() {
    let package = |name: &str, license: Value, source: Value| json!({"name": name, "version": "3.1.0", "license": license, "source": source, "dependencies": []});
    let good = package("good", json!("(MIT OR GPL-3.0-only) AND Apache-2.0 WITH LLVM-exception"), json!(CRATES_IO));
    let own = package("own", json!("MIT/Apache-2.0"), Value::Null);
    let mut free = own.clone();
    free["dependencies"] = json!([{"name": "any", "req": "*"}, {"name": "own", "req": "*", "path": "/own"}]);
    let cases = [
        (good, None),
        (own, None),
        (package("copyleft", json!("GPL-3.0-only"), json!(CRATES_IO)), Some("licence")),
        (package("both", json!("MIT AND AGPL-3.0-only"), json!(CRATES_IO)), Some("licence")),
        (package("excepted", json!("MIT WITH LLVM-exception"), json!(CRATES_IO)), Some("licence")),
        (package("odd", json!("as you like"), json!(CRATES_IO)), Some("licence")),
        (package("silent", Value::Null, json!(CRATES_IO)), Some("licence")),
        (package("forked", json!("MIT"), json!("git+https://example.org/forked#1")), Some("source")),
        (package("elsewhere", json!("MIT"), json!("registry+https://example.org/index")), Some("source")),
        (package("bincode", json!("MIT"), json!(CRATES_IO)), Some("banned")),
        (free, Some("any version of any")),
    ];
    for (package, expected) in cases {
        let built = Built::from([(package["name"].as_str().unwrap().to_owned(), "3.1.0".to_owned())]);
        let found = complaints(&json!({"packages": [package]}), &built, &rules());
        assert_eq!(found.len(), usize::from(expected.is_some()), "{package}: {found:?}");
        assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{package}: {found:?}");
        assert_eq!(
            complaints(&json!({"packages": [package]}), &Built::new(), &rules()),
            Vec::<String>::new(),
            "not built"
        );
    }
}

/// With a stand-in for `cargo-deny`, which fails at `fails_at`: what the script answers.
fn advisories(fails_at: &str) -> Output {
    let cache = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/advisories");
    let text = fs::read_to_string(&script).unwrap();
    let version = text.lines().find_map(|line| line.strip_prefix("VERSION=")).unwrap();
    let tools = cache.path().join(format!("kolo-tools/cargo-deny-{version}/bin"));
    fs::create_dir_all(&tools).unwrap();
    let deny = tools.join("cargo-deny");
    let calls = cache.path().join("calls");
    write_program(&deny, &format!("#!/bin/sh\necho \"$1\" >> {}\n[ \"$1\" != {fails_at} ]\n", calls.display()));
    let output = Command::new(script).env("XDG_CACHE_HOME", cache.path()).output().unwrap();
    let calls = fs::read_to_string(calls).unwrap();
    assert_eq!(calls.contains("check"), fails_at != "fetch", "{calls}");
    output
}

#[test]
fn advisories_that_cannot_be_reached_are_told_from_those_that_were_found() {
    let [unreached, found, none] = ["fetch", "check", "nothing"].map(advisories);
    let said = String::from_utf8_lossy(&unreached.stderr);
    assert_eq!(unreached.status.code(), Some(2), "{said}");
    assert!(said.contains("the database cannot be reached; nothing was checked"), "{said}");
    assert_eq!((found.status.code(), none.status.code()), (Some(1), Some(0)));
}

fn rules() -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deny.toml");
    fs::read_to_string(path).unwrap().parse().unwrap()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Of a line such as `serde v1.0.0 (proc-macro)`.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
}

/// What is wrong with the packages of `metadata` that are built.
fn complaints(metadata: &Value, built: &Built, rules: &toml::Table) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        if !built.contains(&(name.clone(), version.clone())) {
            continue;
        }
        let mut complain = |what: String| complaints.push(format!("{name} {version}: {what}"));
        if !is_licence_allowed(&text(&package["license"]), rules) {
            complain(format!("its licence {} is not allowed", package["license"]));
        }
        if !package["source"].is_null() && package["source"] != CRATES_IO {
            complain(format!("its source {} is not crates.io", package["source"]));
        }
        if is_banned(&name, &version, rules) {
            complain("it is banned".to_owned());
        }
        let own = package["dependencies"].as_array().unwrap().iter().filter(|_| package["source"].is_null());
        for any in own.filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null()) {
            complain(format!("it takes any version of {}", text(&any["name"])));
        }
    }
    complaints
}

fn is_licence_allowed(licence: &str, rules: &toml::Table) -> bool {
    let allowed: BTreeSet<&str> =
        rules["licenses"]["allow"].as_array().unwrap().iter().map(|licence| licence.as_str().unwrap()).collect();
    let expression = Expression::parse_mode(licence, ParseMode::LAX);
    expression.is_ok_and(|expression| expression.evaluate(|needed| allowed.contains(&*needed.to_string())))
}

/// A ban is of a name, or of a name and a version that others begin with (`name@3`).
fn is_banned(name: &str, version: &str, rules: &toml::Table) -> bool {
    rules["bans"]["deny"].as_array().unwrap().iter().any(|ban| {
        let ban = ban["crate"].as_str().unwrap();
        match ban.split_once('@') {
            Some((banned, of)) => banned == name && (version == of || version.starts_with(&format!("{of}."))),
            None => ban == name,
        }
    })
}
