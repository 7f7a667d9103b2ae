//! The imports of every crate run one way: no circle of imports has more than five files, and none leads out of its folder. Those between
//! the crates of the node do as well.
//!
//! Reads `use` trees and written-out paths (`crate::a::b`) as text. A module that only re-exports a name (`pub use`) imports nothing; whoever
//! uses the name imports the file that defines it. Tests and benchmarks are left out.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The largest circle that one folder may have.
const CIRCLE_MAX: usize = 5;

/// Every crate of more than a few files.
const CRATES: [&str; 14] = [
    "broker",
    "discovery",
    "node/api",
    "node/cli",
    "node/config",
    "node/daemon",
    "node/runtime",
    "node/seat",
    "node/storage",
    "node/text",
    "node/trust",
    "sim-harness",
    "sim-harness/kit",
    "sim-harness/studies",
];

/// The crates of the node, each above those that may import it.
const NODE: [&str; 9] = ["text", "runtime", "trust", "seat", "api", "config", "storage", "cli", "daemon"];

type Module = Vec<String>;

/// What one source file says about itself.
#[derive(Default)]
struct Source {
    /// Child modules that it declares.
    children: BTreeSet<String>,
    /// Paths that it imports or writes out, as they stand there.
    paths: Vec<Vec<String>>,
    /// Names that it re-exports, and the path of each.
    exports: BTreeMap<String, Vec<String>>,
}

#[test]
fn no_import_closes_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut complaints = Vec::new();
    for krate in CRATES {
        let imports = imports(&root.join(krate).join("src"));
        assert!(imports.len() > 5 && imports.values().any(|to| !to.is_empty()), "{krate}: its imports were not found");
        for circle in circles(&imports) {
            let folders: BTreeSet<_> = circle.iter().map(|file| file.parent()).collect();
            if circle.len() > CIRCLE_MAX || folders.len() > 1 {
                complaints.push(describe(krate, &circle, &imports));
            }
        }
    }
    assert!(complaints.is_empty(), "{} circles of imports:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn a_crate_of_the_node_imports_those_above_it_and_the_daemon_no_command_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("node");
    for (at, krate) in NODE.iter().enumerate() {
        let manifest: toml::Table = fs::read_to_string(root.join(krate).join("Cargo.toml")).unwrap().parse().unwrap();
        for name in manifest["dependencies"].as_table().unwrap().keys().filter_map(|name| name.strip_prefix("kolo-")) {
            let is_above = NODE[..at].contains(&name) && (*krate, name) != ("daemon", "cli");
            assert!(is_above, "node/{krate} must not depend on node/{name}");
        }
    }
}

#[test]
fn circles_are_found() {
    let tree = |files: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), text).unwrap();
        }
        circles(&imports(folder.path()))
    };
    let one_way = [("lib.rs", "mod a;\nmod b;\npub use b::B;"), ("a.rs", "use crate::B;"), ("b.rs", "pub struct B;")];
    assert_eq!(tree(&one_way), Vec::<Vec<PathBuf>>::new());
    let through_export = [one_way[0], one_way[1], ("b.rs", "fn b() { crate::a::a() }\npub struct B;")];
    assert_eq!(tree(&through_export), [["a.rs", "b.rs"].map(PathBuf::from)]);
    let to_parent =
        [("lib.rs", "mod a;"), ("a/mod.rs", "mod b;\nuse b::{B, self};\npub struct A;"), ("a/b.rs", "use super::{A};")];
    assert_eq!(tree(&to_parent), [["a/b.rs", "a/mod.rs"].map(PathBuf::from)]);
    let past_parent = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b;\nmod c;\nuse b::B;"),
        ("a/b.rs", "use crate::a::{c::C};"),
        ("a/c.rs", "pub struct C;"),
    ];
    assert_eq!(tree(&past_parent), Vec::<Vec<PathBuf>>::new());
    let in_tests =
        [to_parent[0], to_parent[1], ("a/b.rs", "// use super::A;\n#[cfg(test)]\nmod tests { use super::super::A; }")];
    assert_eq!(tree(&in_tests), Vec::<Vec<PathBuf>>::new());
}

/// Every import of a file by another of the same crate; files relative to `src`.
fn imports(src: &Path) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut files: BTreeMap<Module, PathBuf> = BTreeMap::new();
    collect(src, src, &mut files);
    let read = |file: &PathBuf| parse(&fs::read_to_string(src.join(file)).unwrap());
    let sources: BTreeMap<Module, Source> = files.iter().map(|(module, file)| (module.clone(), read(file))).collect();
    let mut imports = BTreeMap::new();
    for (module, source) in &sources {
        let targets = source.paths.iter().filter_map(|path| resolve(&sources, module, path, 8));
        let targets: BTreeSet<PathBuf> =
            targets.map(|target| files[&target].clone()).filter(|to| *to != files[module]).collect();
        imports.insert(files[module].clone(), targets);
    }
    imports
}

fn collect(src: &Path, folder: &Path, files: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "tests" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            collect(src, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(src).unwrap();
            let mut module: Module =
                relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
            module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
            files.insert(module, relative.to_owned());
        }
    }
}

/// The module that defines what `path` names in `module`; none for other crates and generics.
fn resolve(sources: &BTreeMap<Module, Source>, module: &Module, path: &[String], depth: usize) -> Option<Module> {
    let mut at = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {}
        child if sources.get(module).is_some_and(|source| source.children.contains(child)) => {}
        _ => return None,
    }
    while let [first, more @ ..] = rest {
        if first == "super" {
            at.pop()?;
        } else if sources.contains_key(&[&at[..], std::slice::from_ref(first)].concat()) {
            at.push(first.clone());
        } else if let Some(exported) = sources.get(&at).and_then(|source| source.exports.get(first)) {
            let target = resolve(sources, &at, exported, depth.checked_sub(1)?);
            return Some(target.unwrap_or(at));
        } else {
            break;
        }
        rest = more;
    }
    Some(at)
}

fn parse(text: &str) -> Source {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut source = Source::default();
    for statement in code.split([';', '{', '}']).map(str::trim) {
        if let Some((head, name)) = statement.rsplit_once(char::is_whitespace)
            && head.split_whitespace().last() == Some("mod")
        {
            source.children.insert(name.to_owned());
        }
    }
    let (mut rest, mut written_out) = (code, String::new());
    while let Some(at) = find_use(rest) {
        let is_export = rest[..at].lines().last().is_some_and(|line| line.trim_start().starts_with("pub"));
        let end = rest[at..].find(';').map_or(rest.len(), |length| at + length);
        for (path, name) in expand(rest[at + 4..end].trim(), &[]) {
            if is_export {
                source.exports.insert(name, path);
            } else {
                source.paths.push(path);
            }
        }
        written_out += &rest[..at];
        rest = &rest[end..];
    }
    written_out += rest;
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in written_out.split(|c| !is_part(c)) {
        let path: Vec<String> = word.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if path.len() > 1 && !word.starts_with(':') && !path.iter().any(|name| name.contains(':')) {
            source.paths.push(path);
        }
    }
    source
}

/// Where the next `use` statement begins.
fn find_use(code: &str) -> Option<usize> {
    let is_start = |at: usize| code[..at].chars().next_back().is_none_or(char::is_whitespace);
    code.match_indices("use ").map(|(at, _)| at).find(|&at| is_start(at))
}

/// All paths of a `use` tree, with the name that each brings in.
fn expand(tree: &str, prefix: &[String]) -> Vec<(Vec<String>, String)> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in tree.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(c),
        }
    }
    let names = |text: &str| {
        text.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut paths = Vec::new();
    for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        if let Some((head, body)) = part.split_once('{') {
            let body = body.rsplit_once('}').map_or(body, |(body, _)| body);
            paths.extend(expand(body, &[prefix, &names(head)].concat()));
        } else {
            let (path, alias) = part.split_once(" as ").map_or((part, None), |(path, alias)| (path, Some(alias)));
            let mut path = [prefix, &names(path)].concat();
            if path.len() > 1 {
                path.pop_if(|last| last == "self");
            }
            let name = alias.map(str::trim).or(path.last().map(String::as_str)).unwrap_or_default().to_owned();
            paths.push((path, name));
        }
    }
    paths
}

/// The strongly connected components of more than one file: files that reach each other.
fn circles(imports: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> Vec<Vec<PathBuf>> {
    let reach = |from: &PathBuf| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&PathBuf> = imports[from].iter().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(&imports[file]);
            }
        }
        seen
    };
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = imports.keys().map(|file| (file, reach(file))).collect();
    let mut circles = BTreeSet::new();
    for (&file, targets) in &reached {
        let circle: Vec<PathBuf> =
            targets.iter().copied().filter(|other| reached[other].contains(file)).cloned().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn describe(krate: &str, circle: &[PathBuf], imports: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> String {
    let mut text = format!("{krate}: a circle of {} files; its imports:", circle.len());
    for file in circle {
        for to in imports[file].iter().filter(|to| circle.contains(to)) {
            text.push_str(&format!("\n  {} -> {}", file.display(), to.display()));
        }
    }
    text
}
