//! Reading files that people write (TOML) or programs write (JSON).
//!
//! Invariant: a file is read whole and only up to a limit, and every complaint names the file, the key and, where the
//! parser knows it, the line.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use broker::{
    amount::{Amount, parse_amount},
    document::{ByName, Misfit, in_plain_words, key_of, read_object},
    resources::ResourceName,
};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// Largest file that is read, in bytes: a snapshot of 10,000 hosts with a day of load each has some 60 MB.
pub const MAX_FILE_BYTES: u64 = 512 << 20;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// For people.
    Toml,
    /// For programs.
    Json,
}

impl Syntax {
    /// JSON for `*.json`, TOML for everything else.
    pub fn of(file: &Path) -> Syntax {
        if file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            Syntax::Json
        } else {
            Syntax::Toml
        }
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It cannot be read.
    #[error("{}: {source}", .file.display())]
    Read { file: PathBuf, source: io::Error },
    /// Its text is not what was expected.
    #[error("{}{}: {message}", .file.display(), Place { line: *.line, key })]
    Content {
        file: PathBuf,
        line: Option<usize>,
        /// The key, dotted; empty when the whole document is meant.
        key: String,
        /// What is wrong and what was expected.
        message: String,
    },
}

struct Place<'a> {
    line: Option<usize>,
    key: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if self.key.is_empty() { Ok(()) } else { write!(f, ": {}", self.key) }
    }
}

impl DocumentError {
    /// A complaint about one key, found after parsing.
    pub fn about(file: &Path, key: impl Into<String>, message: impl fmt::Display) -> DocumentError {
        DocumentError::Content { file: file.to_owned(), line: None, key: key.into(), message: message.to_string() }
    }
}

/// What some editors put before a text; it means nothing.
pub const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a file as text, without a byte order mark.
///
/// # Errors
/// [`DocumentError::Read`] when it cannot be read, is no UTF-8, or is larger than [`MAX_FILE_BYTES`].
pub fn read_text(file: &Path) -> Result<String, DocumentError> {
    let failed = |source| DocumentError::Read { file: file.to_owned(), source };
    let mut text = String::new();
    let mut reader = File::open(file).map_err(failed)?.take(MAX_FILE_BYTES + 1);
    reader.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::other(format!("larger than {} MiB", MAX_FILE_BYTES >> 20))));
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// Reads `text`, the content of `file`, as a `T`.
///
/// # Errors
/// [`DocumentError::Content`] with file, line and key when the text is malformed or does not fit `T`.
pub fn parse<T: DeserializeOwned>(file: &Path, text: &str, syntax: Syntax) -> Result<T, DocumentError> {
    match syntax {
        Syntax::Toml => parse_toml(file, text),
        Syntax::Json => parse_json(file, text),
    }
}

fn parse_toml<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, DocumentError> {
    let content = |error: &toml::de::Error, path: &str| DocumentError::Content {
        file: file.to_owned(),
        line: error.span().map(|span| line_at(text, span.start)),
        key: key_of(path, error.message()),
        message: in_plain_words(error.message()).replace("an object", "a table"),
    };
    let deserializer = toml::de::Deserializer::parse(text).map_err(|error| content(&error, "."))?;
    serde_path_to_error::deserialize(ByName(deserializer))
        .map_err(|error| content(error.inner(), &error.path().to_string()))
}

fn parse_json<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, DocumentError> {
    read_object(text.as_bytes()).map_err(|Misfit { key, message, line }| DocumentError::Content {
        file: file.to_owned(),
        line: (line > 0).then_some(line),
        key,
        message: message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message).to_owned(),
    })
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// A value that people may write as a whole number or as a text; what either means depends on the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// A whole number.
    Integer(i64),
    /// A text, or one of TOML's own dates, as text.
    Text(String),
}

impl Written {
    /// The amount of `name` that a person has written: a text with its unit, or a whole number where the unit is not in
    /// doubt.
    pub fn amount(&self, name: &ResourceName) -> Result<Amount, String> {
        match self {
            Written::Text(text) => parse_amount(name, text).map_err(|error| error.to_string()),
            // As a text it would be cores, as a base unit millicores.
            Written::Integer(number) if name.as_str() == "cpu" => {
                Err(format!("write \"{number}\" for cores or \"{number}m\" for millicores"))
            }
            Written::Integer(number) => parse_amount(name, &number.to_string()).map_err(|error| error.to_string()),
        }
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written, D::Error> {
        struct WrittenVisitor;

        impl<'de> Visitor<'de> for WrittenVisitor {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or a text with its unit")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Written, E> {
                Ok(Written::Integer(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Written, E> {
                i64::try_from(value)
                    .map(Written::Integer)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &"a smaller number"))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Written, E> {
                Ok(Written::Text(value.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
                let datetime = toml::value::Datetime::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Written::Text(datetime.to_string()))
            }
        }

        deserializer.deserialize_any(WrittenVisitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        inner: BTreeMap<String, Written>,
        #[serde(default)]
        count: u32,
    }

    fn error(text: &str, syntax: Syntax) -> String {
        parse::<Outer>(Path::new("f.x"), text, syntax).unwrap_err().to_string()
    }

    #[test]
    fn complaints_name_file_line_and_key() {
        assert!(error("a = ", Syntax::Toml).starts_with("f.x:1: "));
        assert!(error("inner = {}\ncount = \"x\"", Syntax::Toml).starts_with("f.x:2: count: invalid type"));
        assert!(error("\n[inner]\na = 2.5", Syntax::Toml).starts_with("f.x:3: inner.a: invalid type"));
        assert!(error("\ncuont = 1", Syntax::Toml).contains("f.x:2: cuont: unknown field `cuont`"));
        assert!(error("{\n\"count\":-1}", Syntax::Json).starts_with("f.x:2: count: invalid value"));
        assert!(error("{\"inner\":{\"a\":[]}}", Syntax::Json).starts_with("f.x:1: inner.a: invalid type: a list"));
        assert!(error("[{},1]", Syntax::Json).contains(": invalid type: a list, expected an object"));
        assert!(
            error("inner = 1", Syntax::Toml).starts_with("f.x:1: inner: invalid type: integer `1`, expected a table")
        );
        assert!(error("count = -1", Syntax::Toml).contains("expected a whole number from 0 to 4294967295"));
        assert!(error("{} x", Syntax::Json).starts_with("f.x:1: trailing"));
        assert!(!error("{\"count\":-1}", Syntax::Json).contains("column"));
    }

    #[test]
    fn a_written_value_is_a_number_a_text_or_a_date() {
        let text = "count = 2\n[inner]\na = 3\nb = \"4GiB\"\nc = 2026-11-21T08:00:00+01:00";
        let outer: Outer = parse(Path::new("f"), text, Syntax::Toml).unwrap();
        assert_eq!(outer.inner["a"], Written::Integer(3));
        assert_eq!(outer.inner["b"], Written::Text("4GiB".to_owned()));
        assert_eq!(outer.count, 2);
        assert_eq!(outer.inner["c"], Written::Text("2026-11-21T08:00:00+01:00".to_owned()));
        let outer: Outer = parse(Path::new("f"), r#"{"inner":{"a":3,"b":"x"}}"#, Syntax::Json).unwrap();
        assert_eq!(outer.inner["a"], Written::Integer(3));
    }
}
