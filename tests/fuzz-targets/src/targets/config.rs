//! The node's configuration, and request files of people.

use std::{fs, path::Path, sync::LazyLock};

use jiff::Zoned;
use kolo::readers::{NodeArgs, Surroundings, Syntax, Writer, load_config, read_request_file};

use super::directory::in_directory;
use crate::{Input, Seed, Target};

/// A configuration file, all the way to the configuration in force.
pub const CONFIG: Target = Target { name: "config", run: config, seeds: config_seeds };
/// A request file: the first byte says whether it is TOML or JSON.
pub const REQUEST_FILE: Target = Target { name: "request-file", run: request_file, seeds: request_file_seeds };

fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // These name other files, or have the machine looked at; what the text itself says is the same without them.
    if text.contains("hosts_file") || text.contains("data_dir") || !text.contains("hosts") {
        return;
    }
    in_directory(|directory| {
        let file = directory.join("site.toml");
        fs::write(&file, text).expect("a file that can be written");
        let mut args = NodeArgs::default();
        args.config = Some(file);
        let (home, host_name) = (Some(directory.to_owned()), Some("tester".to_owned()));
        let surroundings = Surroundings { home, host_name, ..Surroundings::default() };
        match load_config(&args, None, None, &surroundings) {
            Ok(config) => assert!(config.settings.api.ip().is_loopback() && !config.settings.listen.is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

fn config_seeds() -> Vec<Seed> {
    let full = r#"name = "here"
grid = "test"
listen = ["/ip4/127.0.0.1/tcp/0"]
bootstrap = []
api = "127.0.0.1:0"

[[hosts]]
id = "h1"
resources = { cpu = "4", memory = "8GiB", gpu = 2 }
attributes = { arch = "x86_64" }

[planner]
effort = "fast"
m_init = 3
default_reach = "1d"

[negotiation]
hold = "10s"
attempts = 3

[ledger]
max_holds = 10
farthest_future = "30d"

[policy]
allow = ["ann", "0123456789abcdef"]
max_duration = "2h"
hours = "18:00-08:00"
user_share = { cpu = "50%" }
max_holds = 3

[gossip]
interval = "1s"

[log]
format = "json"
filter = "info"
"#;
    let least = "[[hosts]]\nid = \"h1\"\nresources = { cpu = \"4\" }\n";
    let wrong = "hosts = 1\nunknown = \"\"\n[ledger]\nhold_max = 5\n";
    [("full", full), ("least", least), ("wrong", wrong)].map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec()
}

static NOW: LazyLock<Zoned> =
    LazyLock::new(|| "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().expect("a legal time"));

fn request_file(data: &[u8]) {
    let mut input = Input::new(data);
    let (syntax, writer) = if input.flag() { (Syntax::Json, Writer::Program) } else { (Syntax::Toml, Writer::Person) };
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    if let Err(error) = read_request_file(Path::new("request"), text, syntax, writer, &NOW) {
        assert!(error.to_string().starts_with("request"), "whatever it is about, it names the file: {error}");
    }
}

fn request_file_seeds() -> Vec<Seed> {
    let toml = "hosts = 5\nduration = \"2h\"\nearliest = \"now+1h\"\nlatest = \"tomorrow 08:00\"\n\
                per_host = { cpu = \"1\" }\ntotal = { cpu = \"12\", memory = \"15GiB\" }\nattributes = { arch = \"x86_64\" }\n";
    let dates =
        "hosts = 1\nduration = \"60s\"\nearliest = 2026-11-21T08:00:00Z\neffort = \"fast\"\ncandidates = [\"h1\"]\n";
    let json = r#"{"id":"r1","hosts":5,"duration":3600,"earliest":0,"latest":82800,"total":{"memory":"4GiB"}}"#;
    [("toml", 0, toml), ("dates", 0, dates), ("json", 1, json)]
        .map(|(name, syntax, text)| (name, [&[syntax], text.as_bytes()].concat()))
        .to_vec()
}
