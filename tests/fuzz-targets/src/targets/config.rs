//! The node's configuration, and request files of people.

use std::{fs, path::Path, sync::LazyLock};

use jiff::Zoned;
use kolo_config::{NodeArgs, Surroundings, load as load_config};
use kolo_text::{
    document::Syntax,
    request_file::{Writer, parse as read_request_file},
};

use super::directory::in_directory;
use crate::{Input, Target};

/// A configuration file, all the way to the configuration in force.
pub const CONFIG: Target = Target { name: "config", run: config, golden: Vec::new };
/// A request file: the first byte says whether it is TOML or JSON.
pub const REQUEST_FILE: Target = Target { name: "request-file", run: request_file, golden: Vec::new };

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
            Ok(config) => assert!(
                config.settings.api.is_none_or(|api| api.ip().is_loopback()) && !config.settings.listen.is_empty()
            ),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
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
