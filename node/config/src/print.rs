//! The configuration in force as a file, with a comment for every key.
//!
//! Invariant: what is printed, fed back as `--config`, gives the same configuration; a key that has no value stands there
//! as a comment.

use std::fmt::Write as _;

use toml::Value;

use super::{
    keys::{Key, text_of},
    load::NodeConfig,
    settings::Settings,
};

/// The configuration as TOML.
pub fn print_config(config: &NodeConfig) -> String {
    let settings = &config.settings;
    let offers_this_machine = settings.hosts.is_none() && settings.hosts_file.is_none();
    let mut text =
        "# Configuration of a Kolo node. Durations have units (10s, 2h30m, 366d); paths are relative to this \
                    file.\n"
            .to_owned();
    let mut section = "";
    for (key, default) in settings.keys("").iter().zip(Settings::default().keys("")) {
        // Hosts are tables, and come last.
        if ["hosts", "offered", "price"].contains(&key.name) || (key.section == "machine" && !offers_this_machine) {
            continue;
        }
        if key.section != section {
            section = key.section;
            let _ = writeln!(text, "\n# {}.\n[{section}]", text_of(key.about));
        }
        push_key(&mut text, key, &default);
    }
    for host in settings.hosts.iter().flatten() {
        text.push_str("\n# A host of the site.\n[[hosts]]\n");
        push_table(&mut text, host.written());
    }
    for offered in settings.offered.iter().flatten() {
        text.push_str("\n# When hosts may be reserved; what any of these tables offers is offered.\n[[offered]]\n");
        push_table(&mut text, offered.written());
    }
    if settings.offered.is_none() {
        text.push_str("\n# When hosts may be reserved. Unset: at all times.\n");
        text.push_str("# [[offered]]\n# hours = \"18:00-08:00\"\n# days = \"mon-fri\"\n# zone = \"Europe/Berlin\"\n");
    }
    for price in settings.price.iter().flatten() {
        text.push_str("\n# Prices or conditions; of tables that hold at the same time the later counts.\n[[price]]\n");
        push_table(&mut text, price.written());
    }
    if settings.price.is_none() {
        text.push_str("\n# Prices or conditions (docs/policies.md). Default: everything is free.\n");
        text.push_str("# [[price]]\n# per_hour = { cpu = \"6.00\", memory = \"0.50\" }\n");
    }
    text
}

fn push_table(text: &mut String, written: Vec<(&'static str, Value, &'static str)>) {
    for (name, value, comment) in written {
        let _ = writeln!(text, "# {comment}\n{name} = {value}");
    }
}

fn push_key(text: &mut String, key: &Key, default: &Key) {
    let comment = format!("# {}. Default: {}.\n", key.meaning(), default.default_text());
    match (&key.value, key.example) {
        (Some(value), _) => {
            let _ = writeln!(text, "{comment}{} = {value}", key.name);
        }
        (None, Some(example)) => {
            let _ = writeln!(text, "{comment}# {} = {example}", key.name);
        }
        // There is nothing to show, as of hosts that are in no file.
        (None, None) => {}
    }
}
