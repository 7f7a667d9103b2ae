//! The file and the flags, put over the defaults.
//!
//! Invariant: a value that was written has a place, which every complaint about it names: file and key, or the flag.

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{self, Path},
};

use broker::document::ByName;
use kolo_text::document::{self, Syntax};
use serde::Deserialize as _;
use toml::{Table, Value};

use super::{args::NodeArgs, error::ConfigError, keys::Key, settings::Settings, values::Kind};

/// Where values were written, by key.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<String, String>);

impl Places {
    /// Where the value of `key` was written; none when it is the default.
    pub fn written(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A complaint about the value of `key`.
    pub fn wrong(&self, key: &str, message: impl Display) -> ConfigError {
        let place = self.written(key).map_or_else(|| format!("{key} (default)"), str::to_owned);
        ConfigError::Value { place, message: message.to_string() }
    }
}

/// Reads the file that `args` name and puts the flags over it.
///
/// # Errors
/// [`ConfigError`] when a key is unknown or a value is not of its key's type.
pub fn read(args: &NodeArgs, data_dir: Option<&Path>, api: Option<&str>) -> Result<(Settings, Places), ConfigError> {
    let (mut merged, mut places) = (Table::new(), Places::default());
    if let Some(path) = &args.config {
        let text = document::read_text(path)?;
        let written: Table = document::parse(path, &text, Syntax::Toml)?;
        refuse_hours(&written, path)?;
        // Checked by itself, for complaints that name the line.
        document::parse::<Settings>(path, &text, Syntax::Toml)?;
        for key in Settings::default().keys("") {
            if let Some(value) = value_at(&written, &key) {
                let place = format!("{}: {}", path.display(), key.path());
                put(&mut merged, &key, absolute(key.kind, value.clone(), path.parent(), &place)?);
                places.0.insert(key.path(), place);
            }
        }
    }
    for (key, place, value) in args.values(data_dir, api)? {
        let mut alone = Table::new();
        put(&mut alone, key, value.clone());
        serde_path_to_error::deserialize::<_, Settings>(ByName(Value::Table(alone))).map_err(|error| {
            let inside = error.path().to_string();
            let inside = inside.strip_prefix(&key.path()).map_or("", |rest| rest.trim_start_matches('.'));
            let inside = if inside.is_empty() { String::new() } else { format!("{inside}: ") };
            let message = format!(
                "{inside}{}",
                broker::document::in_plain_words(error.inner().message()).replace("an object", "a table")
            );
            ConfigError::Value { place: place.clone(), message }
        })?;
        put(&mut merged, key, absolute(key.kind, value, None, &place)?);
        places.0.insert(key.path(), place);
    }
    let settings = Settings::deserialize(Value::Table(merged));
    let settings = settings.map_err(|error| ConfigError::Value {
        place: "configuration".to_owned(),
        message: error.message().to_owned(),
    })?;
    Ok((settings, places))
}

/// `policy.hours` has become tables.
fn refuse_hours(written: &Table, path: &Path) -> Result<(), ConfigError> {
    let Some(hours) = written.get("policy").and_then(|policy| policy.get("hours")) else { return Ok(()) };
    let hours = hours.as_str().unwrap_or("18:00-08:00").trim().trim_end_matches("UTC").trim();
    let message = format!(
        "is written as a table of its own now, which knows days, zones and dates too (docs/policies.md). Write instead:\n\n\
         [[offered]]\nhours = \"{hours}\"\n"
    );
    Err(ConfigError::Value { place: format!("{}: policy.hours", path.display()), message })
}

fn value_at<'a>(table: &'a Table, key: &Key) -> Option<&'a Value> {
    let table = if key.section.is_empty() { table } else { table.get(key.section)?.as_table()? };
    table.get(key.name)
}

fn put(table: &mut Table, key: &Key, value: Value) {
    let table = if key.section.is_empty() {
        table
    } else {
        let section = table.entry(key.section).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(section) = section else { return };
        section
    };
    table.insert(key.name.to_owned(), value);
}

/// Makes paths absolute: one in the file is relative to the file's directory, so that it means the same wherever the node
/// is started.
fn absolute(kind: Kind, value: Value, base: Option<&Path>, place: &str) -> Result<Value, ConfigError> {
    let of_text = |text: String| {
        let joined = base.map_or_else(|| Path::new(&text).to_owned(), |base| base.join(&text));
        let absolute = path::absolute(joined)
            .map_err(|error| ConfigError::Value { place: place.to_owned(), message: error.to_string() })?;
        absolute.into_os_string().into_string().map(Value::String).map_err(|path| ConfigError::Value {
            place: place.to_owned(),
            message: format!("{} is not UTF-8", path.display()),
        })
    };
    match (kind, value) {
        (Kind::Path, Value::String(text)) => of_text(text),
        (Kind::Program, Value::Array(mut words)) => {
            if let Some(Value::String(program)) = words.first_mut() {
                words[0] = of_text(std::mem::take(program))?;
            }
            Ok(Value::Array(words))
        }
        (_, value) => Ok(value),
    }
}
