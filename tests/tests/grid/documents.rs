//! Every command in the documentation is run: the blocks marked `console` in `docs/*.md`, in order, on machines of their own.
//!
//! A block runs on the machine `alpha` unless its mark says `at=NAME`; a block marked `file=NAME` is written to that file
//! first. A command that starts a node goes on in the background until the page ends; every other one must end with exit code
//! 0, or with the one that its comment names (`# exit code 2`). Lines below a command are expected in its output, in this
//! order; `...` stands for anything. Invariant: every page has its own machines and its own grid.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use end_to_end::{Ended, binary, run, wait_for};
use serde_json::Value;
use tempfile::TempDir;

/// What a fenced block of a page is for.
enum Block {
    Commands { machine: String, steps: Vec<Step> },
    File { name: String, text: String },
}

/// A command and what it is expected to say.
struct Step {
    line: usize,
    command: String,
    exit: i32,
    expected: Vec<String>,
}

/// The blocks of a page that do something, in order.
fn blocks_of(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(mark) = line.strip_prefix("```").filter(|mark| !mark.is_empty()) else { continue };
        let inside: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        let mut words = mark.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let setting = |key: &str| mark.split_whitespace().find_map(|word| word.strip_prefix(key)).map(str::to_owned);
        if let Some(name) = setting("file=") {
            let text = inside.iter().map(|(_, line)| format!("{line}\n")).collect();
            blocks.push(Block::File { name, text });
        } else if kind == "console" {
            let machine = setting("at=").unwrap_or_else(|| "alpha".to_owned());
            blocks.push(Block::Commands { machine, steps: steps_of(&inside) });
        }
    }
    blocks
}

fn steps_of(lines: &[(usize, &str)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (index, line) in lines {
        let last = steps.last_mut();
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: index + 1, command: command.to_owned(), exit: 0, expected: Vec::new() });
        } else if let (true, Some(step)) = (goes_on, last) {
            step.command.push_str(&format!("\n{line}"));
        } else if let Some(step) = steps.last_mut() {
            step.expected.push((*line).to_owned());
        }
        goes_on = line.ends_with('\\');
    }
    for step in &mut steps {
        let exit = step.command.split_once("# exit code ").map(|(_, code)| code.trim().to_owned());
        step.exit = exit.map_or(0, |code| code.parse().expect("an exit code is a number"));
    }
    steps
}

/// Whether `pattern`, in which `...` stands for anything, is the whole of `line`.
fn matches(pattern: &str, line: &str) -> bool {
    let pieces: Vec<&str> = pattern.trim_end().split("...").collect();
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return false };
    let line = line.trim_end();
    if pieces.len() == 1 {
        return *first == line;
    }
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for piece in &pieces[1..pieces.len() - 1] {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// The machines of one page, and the nodes that run on them.
struct Stage {
    directory: TempDir,
    nodes: Vec<(String, Child)>,
}

impl Stage {
    fn new() -> Stage {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let stage = Stage { directory, nodes: Vec::new() };
        for name in ["bin", "work"] {
            fs::create_dir(stage.path(name)).expect("writable");
        }
        // All machines share this one's loopback, so the system chooses the ports; and nobody waits for gossip. Where the tests run as root,
        // commands run as another user and without a sandbox, in which `kolo` would have to be where that user can run it.
        let wrapper = format!(
            "#!/bin/sh\nkolo={}\nif [ \"$1\" = node ]; then\n    case \"$(id -u) $*\" in\n    \"0 node --runner bubblewrap\"*) shift 3; set -- node --runner none \
             --runner-user nobody \"$@\" ;;\n    esac\n    exec \"$kolo\" \"$@\" --api 127.0.0.1:0 --gossip-interval 100ms\nfi\nexec \"$kolo\" \"$@\"\n",
            binary("kolo").display()
        );
        let path = stage.path("bin/kolo");
        fs::write(&path, wrapper).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self, machine: &str) -> PathBuf {
        self.path(machine).join(".local/share/kolo")
    }

    fn shell(&self, machine: &str, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        shell.args(["-c", command]).current_dir(self.path("work")).stdin(Stdio::null());
        shell.env("PATH", path).env("HOME", self.path(machine)).env("TZ", "UTC");
        for variable in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "KOLO_API", "KOLO_TOKEN_FILE", "KOLO_CA_FILE", "KOLO_KEY"]
        {
            shell.env_remove(variable);
        }
        shell
    }

    fn run(&mut self, page: &Path, machine: &str, step: &Step) {
        let place = format!("{}:{}: {}", page.display(), step.line, step.command);
        let is_node = step.command.starts_with("kolo node") && !step.command.contains("--print-config");
        if is_node {
            self.start(machine, &step.command, &place);
            return;
        }
        let Ended { code, out: told, .. } = run(&mut self.shell(machine, &format!("exec 2>&1\n{}", step.command)));
        assert_eq!(code, Some(step.exit), "{place}\n{told}{}", self.logs());
        let mut lines = told.lines();
        for expected in &step.expected {
            let is_there = lines.any(|line| matches(expected, line));
            assert!(is_there, "{place}\nexpected {expected:?} in\n{told}");
        }
    }

    fn start(&mut self, machine: &str, command: &str, place: &str) {
        let log = fs::File::create(self.path(&format!("{machine}.log"))).expect("writable");
        let errors = log.try_clone().expect("a handle can be doubled");
        let child =
            self.shell(machine, &format!("exec {command}")).stdout(log).stderr(errors).spawn().expect("sh runs");
        self.nodes.push((machine.to_owned(), child));
        let count = self.nodes.len();
        wait_for(&format!("{place} to know {count} sites"), || {
            for (machine, child) in &mut self.nodes {
                let ended = child.try_wait().expect("the child can be asked");
                assert!(ended.is_none(), "{place}: the node of {machine} ended with {ended:?}");
            }
            self.nodes.iter().try_for_each(|(machine, _)| self.knows(machine, count))
        });
    }

    fn knows(&self, machine: &str, count: usize) -> Result<(), String> {
        if !self.data(machine).join("api.address").exists() {
            return Err(format!("{machine} does not answer yet"));
        }
        let ended = run(&mut self.shell(machine, "kolo sites --output json"));
        let list: Value = serde_json::from_str(&ended.out).map_err(|error| format!("{machine}: {error}: {ended:?}"))?;
        let sites = list["sites"].as_array().cloned().unwrap_or_default();
        let current = sites.iter().filter(|site| site["schedule"] == "current").count();
        if current == count { Ok(()) } else { Err(format!("{machine}: {list}")) }
    }

    fn logs(&self) -> String {
        let logs = self.nodes.iter().map(|(machine, _)| {
            let log = fs::read_to_string(self.path(&format!("{machine}.log"))).unwrap_or_default();
            format!("\n{machine}'s log:\n{log}")
        });
        logs.collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for (_, child) in &mut self.nodes {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the workspace").to_owned()
}

#[test]
fn every_command_in_the_documentation_works() {
    let mut pages: Vec<PathBuf> =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut commands = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let mut stage = Stage::new();
        for block in blocks_of(&text) {
            match block {
                Block::File { name, text } => fs::write(stage.path("work").join(name), text).unwrap(),
                Block::Commands { machine, steps } => {
                    for step in steps {
                        stage.run(&page, &machine, &step);
                        commands += 1;
                    }
                }
            }
        }
    }
    assert!(commands >= 40, "only {commands} commands were found");
}

#[test]
fn six_commands_lead_from_nothing_to_a_reservation_on_two_nodes() {
    let Ended { code, out: told, err } =
        run(Command::new(root().join("scripts/first-reservation")).env("KOLO", binary("kolo")));
    assert_eq!(code, Some(0), "{told}{err}");
    let typed = told.lines().filter(|line| line.contains("$ ")).count();
    assert!((1..=6).contains(&typed), "{typed} commands:\n{told}");
    assert!(told.contains("2 hosts at 2 sites"), "{told}");
}

#[test]
fn the_runner_of_pages_notices_what_is_wrong() {
    for (pattern, line, expected) in [
        ("reserved ...: 2 hosts...", "reserved abc: 2 hosts at 2 sites", true),
        ("reserved ...: 3 hosts...", "reserved abc: 2 hosts at 2 sites", false),
        ("...", "anything", true),
        ("exact", "exact ", true),
        ("exact", "exactly", false),
        ("a...b...c", "a1b2c", true),
        ("a...b...c", "a1c2b", false),
    ] {
        assert_eq!(matches(pattern, line), expected, "{pattern} {line}");
    }
    let page =
        "```console at=beta\n$ one \\\n  two  # exit code 2\nsaid\n$ three\n```\n```toml file=x.toml\na = 1\n```\n";
    let blocks = blocks_of(page);
    let Block::Commands { machine, steps } = &blocks[0] else { panic!("no commands") };
    assert_eq!((machine.as_str(), steps.len(), steps[0].exit, steps[0].line), ("beta", 2, 2, 2));
    assert_eq!((steps[0].expected.len(), steps[1].exit), (1, 0));
    assert!(matches!(&blocks[1], Block::File { name, text } if name == "x.toml" && text == "a = 1\n"));
}
