//! Request files: JSON exactly as `formats.md` has it, or TOML or JSON from people, with texts such as "40GiB" and "2h".
//!
//! Invariant: programs write whole numbers of base units and seconds; people write units, and a bare number of theirs is
//! refused where its unit would be a guess. Unknown keys are refused with file and key.

use std::{collections::BTreeMap, path::Path};

use broker::{
    amount::Amount,
    ids::{HostId, RequestId},
    request::{Effort, RequestDocument},
    resources::{Amounts, Attributes, ResourceName},
    time::{Span, Time},
};
use jiff::Zoned;
use serde::Deserialize;

use super::{
    document::{self, DocumentError, Syntax, Written},
    time::{TimeTextError, parse_span, parse_time},
};

/// A request in which anything may be missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    pub id: Option<RequestId>,
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
    pub attributes: Attributes,
    pub candidates: Option<Vec<HostId>>,
    /// How hard to look.
    pub effort: Option<Effort>,
    /// Whether the reservation may move when hosts are lost.
    pub move_on_loss: bool,
}

impl Draft {
    /// The document that this describes, not checked yet.
    ///
    /// # Errors
    /// The key that is missing.
    pub fn document(self) -> Result<RequestDocument, &'static str> {
        Ok(RequestDocument {
            id: self.id,
            hosts: self.hosts.ok_or("hosts")?,
            duration: Some(self.duration.ok_or("duration")?),
            earliest: self.earliest,
            latest: self.latest,
            per_host: self.per_host,
            total: self.total,
            attributes: self.attributes,
            candidates: self.candidates,
            effort: self.effort,
            move_on_loss: self.move_on_loss,
            ..RequestDocument::default()
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

/// Who has written a request, which says what a bare number in it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A person, in TOML or in the form of the page: a number without a unit is refused.
    Person,
    /// A program: whole base units and Unix seconds.
    Program,
}

impl Writer {
    fn of(syntax: Syntax) -> Writer {
        match syntax {
            Syntax::Toml => Writer::Person,
            Syntax::Json => Writer::Program,
        }
    }

    fn span(self, written: &Written) -> Result<i64, TimeTextError> {
        match (self, written) {
            (Writer::Program, Written::Integer(seconds)) => Ok(*seconds),
            (Writer::Person, Written::Integer(number)) => parse_span(&number.to_string()).map(seconds_of),
            (_, Written::Text(text)) => parse_span(text).map(seconds_of),
        }
    }

    fn time(self, written: &Written, now: &Zoned) -> Result<Time, TimeTextError> {
        match (self, written) {
            (Writer::Program, Written::Integer(seconds)) => Ok(Time(*seconds)),
            (Writer::Person, Written::Integer(number)) => parse_time(&number.to_string(), now),
            (_, Written::Text(text)) => parse_time(text, now),
        }
    }

    fn amount(self, name: &ResourceName, written: &Written) -> Result<Amount, String> {
        match (self, written) {
            (Writer::Program, Written::Integer(number)) => {
                let amount = u64::try_from(*number);
                amount.map(Amount).map_err(|_| format!("{number} is negative: expected 0 or more"))
            }
            (_, written) => written.amount(name),
        }
    }
}

/// Reads the request in `file`; times in it are relative to `now`.
///
/// # Errors
/// [`DocumentError`] with file and key.
pub fn read(file: &Path, now: &Zoned) -> Result<Draft, DocumentError> {
    let syntax = Syntax::of(file);
    parse(file, &document::read_text(file)?, syntax, Writer::of(syntax), now)
}

/// Reads the request in `text`, the content of `file`.
pub fn parse(file: &Path, text: &str, syntax: Syntax, writer: Writer, now: &Zoned) -> Result<Draft, DocumentError> {
    let written: RequestText = document::parse(file, text, syntax)?;
    let about = |key: &'static str| move |error: TimeTextError| DocumentError::about(file, key, error);
    let time = |key, value: &Option<Written>| {
        value.as_ref().map(|value| writer.time(value, now)).transpose().map_err(about(key))
    };
    let amounts = |key, written: &BTreeMap<ResourceName, Written>| amounts(file, key, written, writer);
    Ok(Draft {
        id: written.id,
        hosts: written.hosts,
        duration: written.duration.map(|value| writer.span(&value)).transpose().map_err(about("duration"))?,
        earliest: time("earliest", &written.earliest)?,
        latest: time("latest", &written.latest)?,
        per_host: amounts("per_host", &written.per_host)?,
        total: amounts("total", &written.total)?,
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

fn amounts(
    file: &Path,
    key: &str,
    written: &BTreeMap<ResourceName, Written>,
    writer: Writer,
) -> Result<Amounts, DocumentError> {
    let amount = |(name, value): (&ResourceName, &Written)| {
        let amount = writer.amount(name, value);
        let amount = amount.map_err(|error| DocumentError::about(file, format!("{key}.{name}"), error))?;
        Ok((name.clone(), amount))
    };
    written.iter().map(amount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().unwrap()
    }

    fn toml(text: &str) -> Result<Draft, String> {
        parse(Path::new("r.toml"), text, Syntax::Toml, Writer::Person, &now()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_format_of_programs_is_read() {
        let text = r#"{"id":"r1","hosts":5,"duration":3600,"earliest":0,"latest":82800,"per_host":{"cpu":500},
            "total":{"cpu":12000,"memory":15360},"attributes":{"arch":"x86_64"},"candidates":["h1","h2"]}"#;
        let draft = parse(Path::new("r.json"), text, Syntax::Json, Writer::Program, &now()).unwrap();
        assert_eq!((draft.hosts, draft.duration), (Some(5), Some(3600)));
        assert_eq!((draft.earliest, draft.latest), (Some(Time(0)), Some(Time(82_800))));
        assert_eq!(draft.total[&ResourceName::new("cpu").unwrap()], Amount(12_000));
        assert_eq!(draft.candidates.unwrap().len(), 2);
    }

    #[test]
    fn the_form_of_the_page_is_written_by_a_person() {
        let file = Path::new("request");
        let read = |text| parse(file, text, Syntax::Json, Writer::Person, &now()).map_err(|error| error.to_string());
        let draft = read(r#"{"hosts":2,"duration":"1h","latest":"2026-11-22T07:00:00.000Z"}"#).unwrap();
        assert_eq!((draft.duration, draft.latest), (Some(3600), Some(Time(1_795_330_800))));
        assert!(read(r#"{"hosts":2,"duration":3600}"#).unwrap_err().contains("duration: \"3600\" has no unit"));
        assert!(read(r#"{"total":{"cpu":2}}"#).unwrap_err().contains("total.cpu: write \"2\" for cores"));
        assert!(read("[null,1,3600]").unwrap_err().contains("a list, expected an object"));
    }

    #[test]
    fn people_write_texts_with_units() {
        let draft = toml(
            "hosts = 5\nduration = \"2:00:00\"\nearliest = \"now+1h\"\nlatest = 2026-11-22T08:00:00+01:00\neffort = \
             \"thorough\"\n[total]\ncpu = \"12\"\nmemory = \"40GiB\"\ngpu = 2\n[per_host]\ncpu = \"500m\"",
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
            ("total = { gpu = -1 }", "r.toml: total.gpu: gpu=-1: expected a whole number of GPUs"),
            ("total = { cpu = 2 }", "r.toml: total.cpu: write \"2\" for cores or \"2m\" for millicores"),
            ("total = { memory = 40 }", "r.toml: total.memory: memory=40: expected a number with its unit"),
            ("per_host = { disk = 40 }", "r.toml: per_host.disk: disk=40: expected a number with its unit"),
            ("duration = 3600", "r.toml: duration: \"3600\" has no unit"),
            ("latest = 1795253400", "r.toml: latest: \"1795253400\" is no time"),
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
