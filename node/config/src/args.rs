//! The flags of `kolo node`: every key of the configuration, with dots and underscores as dashes.
//!
//! Invariant: a flag is made of the key's definition ([`super::settings`]); its value is checked as one in a file is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches,
    builder::{PossibleValuesParser, ValueParser},
    value_parser,
};
use kolo_text::document::{self, Syntax};
use toml::{Table, Value};

use super::{error::ConfigError, keys::Key, settings::Settings, values::Kind};

/// These are flags of every command, and come in separately.
const GLOBAL: [&str; 2] = ["data_dir", "api"];

/// A flag and its help.
struct Flag {
    key: Key,
    name: String,
    help: String,
}

static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    let flag = |key: Key| {
        let repeated = match key.kind {
            Kind::List | Kind::Pairs | Kind::Tables => "; may be repeated",
            Kind::Program => ", one a flag",
            Kind::Text | Kind::Path | Kind::Number | Kind::Flag => "",
        };
        let help = format!("{}{repeated} [default: {}]", key.meaning(), key.default_text());
        Flag { name: flag_name(&key.path()), help, key }
    };
    Settings::default().keys("").into_iter().map(flag).collect()
});

fn flag_name(path: &str) -> String {
    path.replace(['.', '_'], "-")
}

/// Flags of `kolo node`. The data directory and the address of the API are global flags.
#[derive(Debug, Clone, Default)]
pub struct NodeArgs {
    /// Configuration file (TOML); flags win over it.
    pub config: Option<PathBuf>,
    /// Print the configuration in force, with comments, and exit.
    pub print_config: bool,
    /// What was written for each flag, by the flag's name.
    written: BTreeMap<&'static str, Vec<String>>,
}

impl NodeArgs {
    /// As if nothing but this configuration file were named.
    pub fn of_file(config: PathBuf) -> NodeArgs {
        NodeArgs { config: Some(config), ..NodeArgs::default() }
    }

    /// The keys that have a flag, each with the flag's name and value.
    ///
    /// # Errors
    /// [`ConfigError`] when a value is not of its key's kind.
    pub(super) fn values(
        &self,
        data_dir: Option<&Path>,
        api: Option<&str>,
    ) -> Result<Vec<(&'static Key, String, Value)>, ConfigError> {
        let mut values = Vec::new();
        for Flag { key, name, .. } in FLAGS.iter() {
            let texts = match (key.name, key.section) {
                ("data_dir", "") => data_dir.map(text_of).transpose()?,
                ("api", "") => api.map(|text| vec![text.to_owned()]),
                _ => self.written.get(name.as_str()).cloned(),
            };
            if let Some(texts) = texts {
                let place = format!("--{name}");
                let value = value_of(key.kind, &texts);
                let value = value.map_err(|message| ConfigError::Value { place: place.clone(), message })?;
                values.push((key, place, value));
            }
        }
        Ok(values)
    }
}

fn text_of(data_dir: &Path) -> Result<Vec<String>, ConfigError> {
    data_dir.to_str().map(|text| vec![text.to_owned()]).ok_or_else(|| ConfigError::Value {
        place: "--data-dir".to_owned(),
        message: format!("{} is not UTF-8", data_dir.display()),
    })
}

fn value_of(kind: Kind, texts: &[String]) -> Result<Value, String> {
    let last = texts.last().map_or("", String::as_str);
    Ok(match kind {
        Kind::Text | Kind::Path => Value::String(last.to_owned()),
        Kind::Number => {
            Value::Integer(last.parse().map_err(|_| format!("{last:?}: expected a whole number of 0 or more"))?)
        }
        Kind::Flag => Value::Boolean(last == "true"),
        Kind::List | Kind::Program => Value::Array(texts.iter().cloned().map(Value::String).collect()),
        Kind::Pairs => {
            let pair = |text: &String| match text.split_once('=') {
                Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), Value::String(value.to_owned()))),
                _ => Err(format!("{text:?}: expected key=value, such as cpu=50% or arch=x86_64")),
            };
            Value::Table(texts.iter().map(pair).collect::<Result<Table, String>>()?)
        }
        Kind::Tables => {
            let table = |text: &String| -> Result<Value, String> {
                let line = document::parse::<Table>(Path::new("table"), &format!("table = {text}"), Syntax::Toml);
                let line = line.map_err(|error| error.to_string().replacen("table:1: ", "", 1));
                line?.remove("table").ok_or_else(|| text.clone())
            };
            Value::Array(texts.iter().map(table).collect::<Result<Vec<Value>, String>>()?)
        }
    })
}

impl Args for NodeArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config").long("config").value_name("FILE").value_parser(value_parser!(PathBuf));
        let print = Arg::new("print_config").long("print-config").action(ArgAction::SetTrue);
        let command = command
            .arg(config.help("Configuration file (TOML); flags win over it"))
            .arg(print.help("Print the configuration in force, with comments, and exit"));
        let flags = FLAGS.iter().filter(|flag| !(flag.key.section.is_empty() && GLOBAL.contains(&flag.key.name)));
        command.args(flags.map(|Flag { key, name, help }| {
            let parser: ValueParser = match key.choices {
                [] => ValueParser::string(),
                choices => PossibleValuesParser::new(choices).into(),
            };
            Arg::new(name.as_str())
                .long(name.as_str())
                .help(help.as_str())
                .value_name(key.value_name)
                .value_parser(parser)
                .hide_possible_values(true)
                .allow_hyphen_values(key.kind == Kind::Program)
                .action(match key.kind {
                    Kind::Text | Kind::Path | Kind::Number | Kind::Flag => ArgAction::Set,
                    Kind::List | Kind::Program | Kind::Pairs | Kind::Tables => ArgAction::Append,
                })
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        NodeArgs::augment_args(command)
    }
}

impl FromArgMatches for NodeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<NodeArgs, Error> {
        let mut args = NodeArgs::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.config = matches.get_one("config").cloned();
        self.print_config = matches.get_flag("print_config");
        for name in FLAGS.iter().map(|flag| flag.name.as_str()) {
            // The global flags are none of these.
            if let Ok(Some(texts)) = matches.try_get_many::<String>(name) {
                self.written.insert(name, texts.cloned().collect());
            }
        }
        Ok(())
    }
}
