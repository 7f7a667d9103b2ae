//! Request files: JSON exactly as `formats.md` has it, or TOML or JSON from people, with texts such as "40GiB" and "2h".
//!
//! Invariant: a whole number is always base units or seconds, a text always has its unit; unknown keys are refused with
//! file and key.

use std::{collections::BTreeMap, fmt, path::Path};

use broker::{
    amount::{Amount, parse_amount},
    ids::{HostId, RequestId},
    request::{Effort, RequestDocument},
    resources::{Amounts, Attributes, ResourceName},
    time::{Span, Time},
};
use jiff::Zoned;
use serde::Deserialize;

use super::time::{parse_span, parse_time};
use crate::config::document::{self, DocumentError, Syntax, Written};

/// A request in which anything may be missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// The label.
    pub id: Option<RequestId>,
    /// N.
    pub hosts: Option<u32>,
    /// `t_res` in seconds, as written: it may be negative.
    pub duration: Option<i64>,
    /// `t_earliest`.
    pub earliest: Option<Time>,
    /// `t_latest`.
    pub latest: Option<Time>,
    /// `d_i`.
    pub per_host: Amounts,
    /// `e_i`.
    pub total: Amounts,
    /// Qualitative requirements.
    pub attributes: Attributes,
    /// Restricts the host set.
    pub candidates: Option<Vec<HostId>>,
    /// How hard to look.
    pub effort: Option<Effort>,
    /// Whether the reservation may move when hosts are lost.
    pub move_on_loss: bool,
}

/// What no request can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// N.
    Hosts,
    /// `t_res`.
    Duration,
}

impl Missing {
    /// The key of a request's document.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Missing::Hosts => "hosts",
            Missing::Duration => "duration",
        }
    }
}

impl Draft {
    /// The document that this describes, not checked yet.
    ///
    /// # Errors
    /// What is missing.
    pub fn document(self) -> Result<RequestDocument, Missing> {
        Ok(RequestDocument {
            id: self.id,
            hosts: self.hosts.ok_or(Missing::Hosts)?,
            duration: self.duration.ok_or(Missing::Duration)?,
            earliest: self.earliest,
            latest: self.latest,
            per_host: self.per_host,
            total: self.total,
            attributes: self.attributes,
            candidates: self.candidates,
            effort: self.effort,
            move_on_loss: self.move_on_loss,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestText {
    id: Option<RequestId>,
    hosts: Option<u32>,
    duration: Option<Written>,
    earliest: Option<Written>,
    latest: Option<Written>,
    #[serde(default)]
    per_host: BTreeMap<ResourceName, Written>,
    #[serde(default)]
    total: BTreeMap<ResourceName, Written>,
    #[serde(default)]
    attributes: Attributes,
    candidates: Option<Vec<HostId>>,
    effort: Option<Effort>,
    move_on_loss: Option<bool>,
}

/// Reads the request in `file`; times in it are relative to `now`.
///
/// # Errors
/// [`DocumentError`] with file and key.
pub fn read(file: &Path, now: &Zoned) -> Result<Draft, DocumentError> {
    parse(file, &document::read_text(file)?, Syntax::of(file), now)
}

/// Reads the request in `text`, the content of `file`.
///
/// # Errors
/// As for [`read`].
pub fn parse(file: &Path, text: &str, syntax: Syntax, now: &Zoned) -> Result<Draft, DocumentError> {
    let written: RequestText = document::parse(file, text, syntax)?;
    let time = |key: &str, value: &Written| match value {
        Written::Integer(seconds) => Ok(Time(*seconds)),
        Written::Text(text) => parse_time(text, now).map_err(|error| DocumentError::about(file, key, error)),
    };
    let duration = match &written.duration {
        Some(Written::Integer(seconds)) => Some(*seconds),
        Some(Written::Text(text)) => {
            Some(parse_span(text).map(seconds_of).map_err(|error| DocumentError::about(file, "duration", error))?)
        }
        None => None,
    };
    Ok(Draft {
        id: written.id,
        hosts: written.hosts,
        duration,
        earliest: written.earliest.as_ref().map(|value| time("earliest", value)).transpose()?,
        latest: written.latest.as_ref().map(|value| time("latest", value)).transpose()?,
        per_host: amounts(file, "per_host", &written.per_host)?,
        total: amounts(file, "total", &written.total)?,
        attributes: written.attributes,
        candidates: written.candidates,
        effort: written.effort,
        move_on_loss: written.move_on_loss.unwrap_or(false),
    })
}

/// A span that was parsed is in range.
pub fn seconds_of(span: Span) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}

fn amounts(file: &Path, key: &str, written: &BTreeMap<ResourceName, Written>) -> Result<Amounts, DocumentError> {
    let mut amounts = Amounts::new();
    for (name, value) in written {
        let wrong = |message: &dyn fmt::Display| DocumentError::about(file, format!("{key}.{name}"), message);
        let amount = match value {
            Written::Integer(number) => Amount(
                u64::try_from(*number).map_err(|_| wrong(&format_args!("{number} is negative: expected 0 or more")))?,
            ),
            Written::Text(text) => parse_amount(name, text).map_err(|error| wrong(&error))?,
        };
        amounts.insert(name.clone(), amount);
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().unwrap()
    }

    fn toml(text: &str) -> Result<Draft, String> {
        parse(Path::new("r.toml"), text, Syntax::Toml, &now()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_format_of_programs_is_read() {
        let text = r#"{"id":"r1","hosts":5,"duration":3600,"earliest":0,"latest":82800,"per_host":{"cpu":500},
            "total":{"cpu":12000,"memory":15360},"attributes":{"arch":"x86_64"},"candidates":["h1","h2"]}"#;
        let draft = parse(Path::new("r.json"), text, Syntax::Json, &now()).unwrap();
        assert_eq!((draft.hosts, draft.duration), (Some(5), Some(3600)));
        assert_eq!((draft.earliest, draft.latest), (Some(Time(0)), Some(Time(82_800))));
        assert_eq!(draft.total[&ResourceName::new("cpu").unwrap()], Amount(12_000));
        assert_eq!(draft.candidates.unwrap().len(), 2);
    }

    #[test]
    fn people_write_texts_with_units() {
        let draft = toml(
            "hosts = 5\nduration = \"2:00:00\"\nearliest = \"now+1h\"\nlatest = 2026-11-22T08:00:00+01:00\neffort = \
             \"thorough\"\n[total]\ncpu = \"12\"\nmemory = \"40GiB\"\n[per_host]\ncpu = 500",
        )
        .unwrap();
        assert_eq!(draft.duration, Some(7200));
        assert_eq!(draft.latest.unwrap().since(draft.earliest.unwrap()), Span(77_400));
        assert_eq!(draft.total[&ResourceName::new("cpu").unwrap()], Amount(12_000));
        assert_eq!(draft.total[&ResourceName::new("memory").unwrap()], Amount(40_960));
        assert_eq!(draft.per_host[&ResourceName::new("cpu").unwrap()], Amount(500));
        assert_eq!(draft.effort, Some(Effort::Thorough));
    }

    #[test]
    fn complaints_name_file_and_key() {
        for (text, expected) in [
            ("hosts = \"5\"", "r.toml:1: hosts: invalid type"),
            ("hosts = -5", "r.toml:1: hosts: invalid value"),
            ("totals = {}", "r.toml:1: totals: unknown field"),
            ("total = { cpu = 1.5 }", "r.toml:1: total.cpu: invalid type: floating point"),
            ("total = { memory = \"40\" }", "r.toml: total.memory: memory=40: expected a number with its unit"),
            ("total = { cpu = -1 }", "r.toml: total.cpu: -1 is negative"),
            ("total = { CPU = 1 }", "no resource name"),
            ("duration = \"90\"", "r.toml: duration: \"90\" has no unit"),
            ("latest = \"soon\"", "r.toml: latest: \"soon\" is no time"),
            ("latest = 2026-11-22", "r.toml: latest: \"2026-11-22\" is no time"),
            ("effort = \"lazy\"", "r.toml:1: effort: unknown variant"),
            ("candidates = [\"\"]", "r.toml:1: candidates[0]: an id must not be empty"),
            ("hosts = 1\nhosts = 2", "r.toml:2"),
        ] {
            let error = toml(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
