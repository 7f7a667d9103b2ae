//! Reads the tables of a scenario file key by key, so that whatever is wrong is told with its line.
//!
//! Invariant: a key that nobody has asked for is refused, with the names of those that somebody would have read.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use broker::{
    amount::parse_amount,
    resources::{Amounts, ResourceName},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::grid::scenario::parse_duration;

/// What is wrong at one place of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {key}: expected {expected}, got {found}")]
pub struct Wrong {
    /// Line, from 1.
    pub line: usize,
    /// The key, or what else it is about.
    pub key: String,
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Wrong {
    /// Something is wrong at this line.
    pub fn at(line: usize, key: &str, expected: impl Into<String>, found: impl Into<String>) -> Wrong {
        Wrong { line, key: key.to_owned(), expected: expected.into(), found: found.into() }
    }
}

/// The line, from 1, of a place in a text.
pub fn line_of(text: &str, place: usize) -> usize {
    1 + text.bytes().take(place).filter(|byte| *byte == b'\n').count()
}

/// A table of which the keys are read one by one.
pub struct Table<'a> {
    text: &'a str,
    /// What it is called.
    name: &'a str,
    /// Where it begins.
    line: usize,
    keys: &'a DeTable<'a>,
    asked: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The table in `text` that is called `name` and begins at `place`.
    pub fn new(text: &'a str, name: &'a str, place: usize, keys: &'a DeTable<'a>) -> Table<'a> {
        Table { text, name, line: line_of(text, place), keys, asked: Vec::new() }
    }

    /// Where it begins.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The names of those of `keys` that are there.
    pub fn present(&self, keys: &[&'static str]) -> Vec<&'static str> {
        keys.iter().copied().filter(|key| self.keys.contains_key(*key)).collect()
    }

    /// The names of all keys.
    pub fn names(&self) -> String {
        self.keys.keys().map(|key| key.get_ref().as_ref()).collect::<Vec<_>>().join(", ")
    }

    /// What is written behind a key.
    pub fn get(&mut self, key: &'static str) -> Option<Entry<'a>> {
        self.asked.push(key);
        let (written, value) = self.keys.get_key_value(key)?;
        Some(Entry { text: self.text, key, line: line_of(self.text, written.span().start), value })
    }

    /// What is written behind a key that must be there.
    ///
    /// # Errors
    /// [`Wrong`] when it is not.
    pub fn need(&mut self, key: &'static str, expected: &str) -> Result<Entry<'a>, Wrong> {
        self.get(key).ok_or_else(|| Wrong::at(self.line, key, expected, "nothing"))
    }

    /// All keys have been read.
    ///
    /// # Errors
    /// [`Wrong`] naming one that has not.
    pub fn end(self) -> Result<(), Wrong> {
        let unread = self.keys.keys().find(|key| !self.asked.contains(&key.get_ref().as_ref()));
        let Some(key) = unread else { return Ok(()) };
        let line = line_of(self.text, key.span().start);
        Err(Wrong::at(line, self.name, format!("one of {}", self.asked.join(", ")), format!("{:?}", key.get_ref())))
    }
}

/// What is written behind a key.
pub struct Entry<'a> {
    text: &'a str,
    key: &'static str,
    /// Where it is.
    pub line: usize,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Entry<'a> {
    /// The value as it is.
    pub fn value(&self) -> &'a DeValue<'a> {
        self.value.get_ref()
    }

    /// Where the value begins.
    pub fn start(&self) -> usize {
        self.value.span().start
    }

    /// Something else would be right here.
    pub fn wrong(&self, expected: impl Into<String>) -> Wrong {
        let span = self.value.span();
        let written = self.text.get(span).unwrap_or_default().lines().next().unwrap_or_default();
        Wrong::at(self.line, self.key, expected, written)
    }

    /// A text.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn text(&self) -> Result<&'a str, Wrong> {
        self.value.get_ref().as_str().ok_or_else(|| self.wrong("a text"))
    }

    /// One text or a list of them, at least one.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn texts(&self) -> Result<Vec<&'a str>, Wrong> {
        let expected = "a text or a list of texts";
        let texts: Vec<&str> = match self.value.get_ref() {
            DeValue::String(text) => vec![text.as_ref()],
            DeValue::Array(list) => {
                let texts = list.iter().map(|one| one.get_ref().as_str());
                texts.collect::<Option<_>>().ok_or_else(|| self.wrong(expected))?
            }
            _ => Vec::new(),
        };
        if texts.is_empty() { Err(self.wrong(expected)) } else { Ok(texts) }
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn number(&self, range: &RangeInclusive<u64>) -> Result<u64, Wrong> {
        let number = self.value.get_ref().as_integer().and_then(|number| {
            u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| range.contains(number))
        });
        number.ok_or_else(|| self.wrong(format!("a whole number from {} to {}", range.start(), range.end())))
    }

    /// `true`; whoever does not want it leaves the key out.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn yes(&self) -> Result<(), Wrong> {
        match self.value.get_ref().as_bool() {
            Some(true) => Ok(()),
            _ => Err(self.wrong("true")),
        }
    }

    /// A duration of at most `longest`.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn duration(&self, longest: Duration) -> Result<Duration, Wrong> {
        let duration = self.value.get_ref().as_str().and_then(parse_duration);
        duration.filter(|duration| *duration <= longest).ok_or_else(|| {
            self.wrong(format!("a text such as \"500ms\", \"30s\" or \"2h\", at most {} s", longest.as_secs()))
        })
    }

    /// Amounts as people write them.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn amounts(&self) -> Result<Amounts, Wrong> {
        let expected = "amounts such as { cpu = \"2.5\", memory = \"4GiB\" }";
        let table = self.value.get_ref().as_table().ok_or_else(|| self.wrong(expected))?;
        let mut amounts = BTreeMap::new();
        for (name, written) in table.iter() {
            let line = line_of(self.text, written.span().start);
            let key = format!("{}.{}", self.key, name.get_ref());
            let wrong = |why: String| Wrong::at(line, &key, "an amount of a resource", why);
            let resource = ResourceName::new(name.get_ref()).map_err(|error| wrong(error.to_string()))?;
            let text = written.get_ref().as_str().ok_or_else(|| wrong("no text".to_owned()))?;
            amounts.insert(resource.clone(), parse_amount(&resource, text).map_err(|error| wrong(error.to_string()))?);
        }
        Ok(amounts)
    }
}
