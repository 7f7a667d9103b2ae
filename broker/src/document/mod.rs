//! Documents of programs (JSON) as they are read: one place for what is taken as an object, and for what is said of the rest.
//!
//! Invariant: a list is never taken for an object, at no depth ([`ByName`]); every complaint has the key that it is about,
//! where there is one, and no name of a type of this program.

mod by_name;

use serde::de::DeserializeOwned;

pub use by_name::ByName;

/// Why a text is not the object that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", .key, if .key.is_empty() { "" } else { ": " })]
pub struct Misfit {
    /// The key, dotted; empty when the whole document is meant.
    pub key: String,
    /// What is wrong and what was expected, with line and column.
    pub message: String,
    /// The line, from 1; 0 when it is not known.
    pub line: usize,
}

impl Misfit {
    /// The key, or the word under a key, that is not known here; none when something else is wrong.
    #[must_use]
    pub fn unknown(&self) -> Option<String> {
        let word_in = |head: &str| self.message.strip_prefix(head)?.split('`').next();
        let key = || word_in("unknown field `").map(|_| format!("the key `{}`", self.named()));
        key().or_else(|| word_in("unknown variant `").map(|word| format!("`{word}` under the key `{}`", self.key)))
    }

    /// The key; what was refused only when the object was read whole has its own in the message.
    fn named(&self) -> String {
        match self.message.split_once(": ") {
            Some((inner, _)) if self.key.is_empty() => inner.to_owned(),
            Some((inner, _)) if !inner.contains(' ') => format!("{}.{inner}", self.key),
            _ => self.key.clone(),
        }
    }
}

/// What some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Reads a text that is one JSON object, perhaps behind a byte order mark.
///
/// # Errors
/// [`Misfit`] with the key when it is none, or does not fit `T`.
pub fn read_object<T: DeserializeOwned>(text: &[u8]) -> Result<T, Misfit> {
    let mut reader = serde_json::Deserializer::from_slice(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text));
    let value = serde_path_to_error::deserialize(ByName(&mut reader))
        .map_err(|error| misfit(&error.path().to_string(), error.inner()))?;
    reader.end().map_err(|error| misfit(".", &error))?;
    Ok(value)
}

fn misfit(path: &str, error: &serde_json::Error) -> Misfit {
    let text = error.to_string();
    Misfit { key: key_of(path, &text), message: in_plain_words(&text), line: error.line() }
}

/// The key that a complaint is about. A key that is missing, or there twice, is told of the object around it.
///
/// `path` is where the reader was, `.` the document itself; `message` is serde's own.
#[must_use]
pub fn key_of(path: &str, message: &str) -> String {
    let path = if path == "." { "" } else { path };
    let field = ["missing field `", "duplicate field `"]
        .iter()
        .find_map(|head| message.strip_prefix(head))
        .and_then(|rest| rest.split('`').next());
    match field {
        Some(field) if path.is_empty() => field.to_owned(),
        Some(field) if path != field && !path.ends_with(&format!(".{field}")) => format!("{path}.{field}"),
        _ => path.to_owned(),
    }
}

/// A complaint of serde without the names of this program's types.
#[must_use]
pub fn in_plain_words(message: &str) -> String {
    let (what, place) = match message.rfind(" at line ") {
        Some(at) => message.split_at(at),
        None => (message, ""),
    };
    let what = what.replace("invalid type: sequence,", "invalid type: a list,");
    let what = what.replace("invalid type: map,", "invalid type: an object,");
    let Some((head, expected)) = what.rsplit_once(", expected ") else { return format!("{what}{place}") };
    let plain = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        name if name.starts_with("enum ") || name == "string or map" => "a text",
        other => other,
    };
    format!("{head}, expected {plain}{place}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        count: u32,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        inner: Inner,
        #[serde(default)]
        amounts: BTreeMap<String, u64>,
    }

    #[test]
    fn objects_are_read() {
        let read = read_object::<Outer>(br#" {"inner":{"count":3},"amounts":{"a":1}} "#).unwrap();
        assert_eq!((read.inner.count, read.amounts["a"]), (3, 1));
        assert_eq!(read_object::<Outer>("\u{feff}{\"inner\":{\"count\":3}}".as_bytes()).unwrap().inner.count, 3);
        let twice = read_object::<Outer>("\u{feff}\u{feff}{\"inner\":{\"count\":3}}".as_bytes());
        assert!(twice.unwrap_err().message.contains("expected value at line 1 column 1"));
    }

    #[test]
    fn what_is_not_known_is_told_from_what_is_wrong() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            Known,
        }
        #[derive(Debug, Deserialize)]
        struct Words {
            #[serde(rename = "word")]
            _word: Word,
        }
        let unknown = |misfit: Misfit| misfit.unknown();
        let outer = |text: &str| unknown(read_object::<Outer>(text.as_bytes()).unwrap_err());
        assert_eq!(outer(r#"{"inner":{"count":1,"new":2}}"#).as_deref(), Some("the key `inner.new`"));
        for wrong in [r#"{"inner":{}}"#, r#"{"inner":{"count":-1}}"#, "{", r#"{"inner":[1]}"#] {
            assert_eq!(outer(wrong), None, "{wrong}");
        }
        assert!(matches!(read_object::<Words>(br#"{"word":"known"}"#).unwrap()._word, Word::Known));
        let word = unknown(read_object::<Words>(br#"{"word":"new"}"#).unwrap_err());
        assert_eq!(word.as_deref(), Some("`new` under the key `word`"));
    }

    #[test]
    fn complaints_have_the_key_and_plain_words() {
        for (text, key, message) in [
            (r#"[{"count":3},{}]"#, "", "invalid type: a list, expected an object"),
            (r#"{"inner":[3]}"#, "inner", "invalid type: a list, expected an object"),
            ("7", "", "invalid type: integer `7`, expected an object"),
            (r#"{"inner":{}}"#, "inner.count", "missing field `count`"),
            ("{}", "inner", "missing field `inner`"),
            (r#"{"inner":{"count":1,"count":2}}"#, "inner.count", "duplicate field `count`"),
            (r#"{"inner":{"count":1},"inner":{"count":1}}"#, "inner", "duplicate field `inner`"),
            (r#"{"inner":{"cuont":1}}"#, "inner.cuont", "unknown field `cuont`"),
            (r#"{"inner":{"count":-1}}"#, "inner.count", "expected a whole number from 0 to 4294967295 at line 1"),
            (r#"{"inner":{"count":1},"amounts":[]}"#, "amounts", "invalid type: a list, expected an object"),
            (r#"{"inner":{"count":1},"amounts":{"a":"x"}}"#, "amounts.a", "expected a whole number of 0 or more"),
            (r#"{"inner":{"count":1}} x"#, "", "trailing characters"),
            ("", "", "EOF"),
        ] {
            let misfit = read_object::<Outer>(text.as_bytes()).unwrap_err();
            assert_eq!(misfit.key, key, "{text}: {misfit}");
            assert!(misfit.message.contains(message), "{text}: {misfit}");
            assert!(!misfit.message.contains("struct") && !misfit.message.contains("u32"), "{misfit}");
        }
    }
}
