//! One line of a trace in the Standard Workload Format: 18 numbers, or those and more (a queue's name, then what the job
//! asks of its nodes, as the Czech MetaCentrum writes it).
//!
//! Invariant: a record that was read has a submission at or after zero, unless it is a part of an execution; nothing else is
//! promised.

use std::str::from_utf8;

use anyhow::{Context, ensure};

/// Fields of the format; see the format's definition, version 2.2.
const FIELDS: usize = 18;
/// Fields of the extended lines, at least.
pub const FIELDS_EXTENDED: usize = 20;
/// Larger numbers than this, or smaller than its negative, are nonsense in any field.
const NUMBER_MAX: f64 = (1_i64 << 50) as f64;

/// Where field 9 is, from 0.
const LIMIT: usize = 8;
/// Longest run time and limit, in seconds: thirty years.
const RUN_S_MAX: i64 = 1_000_000_000;
/// Latest submission, in seconds: as an epoch time the year 5138.
const SUBMIT_S_MAX: i64 = 100_000_000_000;

/// Field 11 of a job that was cancelled, perhaps before it began.
const CANCELLED: i64 = 5;
/// Field 11 of the parts of an execution that was interrupted: one that goes on, the last one, the last one that failed.
const PARTS: std::ops::RangeInclusive<i64> = 2..=4;

/// What is used of a line. Negative numbers mean "unknown".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Field 1.
    pub id: i64,
    /// Field 2, in seconds.
    pub submit_s: i64,
    /// Field 4, in seconds.
    pub run_s: i64,
    /// Field 5, or field 8 where that is unknown.
    pub processors: i64,
    /// Field 9, in seconds. No limit at all, as programs write it (0, 4294967295 and the like), is unknown.
    pub limit_s: i64,
    /// Field 10, of each node: KiB, in extended lines bytes. (The format says "a processor"; the simulator that the
    /// figures are compared with takes it for a node's, and so does this.)
    pub memory: i64,
    /// The node specification of extended lines.
    pub nodes: Option<NodeSpec>,
    /// Whether it is a part of an execution (field 11): the job has a line of its own, with all of its run time.
    pub is_part: bool,
    /// Whether the job ran, by fields 4, 5, 8 and 11.
    pub has_run: bool,
}

/// What an extended line asks of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// As it is written.
    text: String,
    /// `ppn=`; unknown in specifications of several different nodes, which are put on one node.
    pub processors_per_node: Option<u32>,
}

impl Record {
    /// Reads a line that is neither empty nor a comment.
    ///
    /// # Errors
    /// What is wrong with which field.
    pub fn read(line: &[u8]) -> anyhow::Result<Record> {
        let mut numbers = [0_i64; FIELDS];
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        for (index, number) in numbers.iter_mut().enumerate() {
            let field = fields.next().with_context(|| format!("expected at least {FIELDS} fields, got {index}"))?;
            *number = if index == LIMIT { parse_limit(field) } else { parse(field) }.with_context(|| {
                let (field, text) = (index + 1, cut(field));
                format!("field {field}: expected a number of at most {NUMBER_MAX:.0}, got {text:?}")
            })?;
        }
        let nodes = fields.nth(FIELDS_EXTENDED - FIELDS - 1).map(NodeSpec::read).transpose()?;
        let [id, submit_s, _, run_s, allocated, _, _, asked, limit_s, memory, status, ..] = numbers;
        let is_part = PARTS.contains(&status);
        ensure!(submit_s >= 0 || is_part, "field 2: expected a submission time of 0 or later, got {submit_s}");
        for (field, most, got) in [(2, SUBMIT_S_MAX, submit_s), (4, RUN_S_MAX, run_s)] {
            ensure!(got <= most, "field {field}: expected at most {most} seconds, got {got}");
        }
        let processors = if allocated > 0 { allocated } else { asked };
        // One that was cancelled while it waited has a run time of 0 in some logs, and -1 in others.
        let was_begun = run_s > 0 || (allocated != 0 && status != CANCELLED);
        let has_run = run_s != -1 && processors > 0 && was_begun;
        Ok(Record { id, submit_s, run_s, processors, limit_s, memory, nodes, is_part, has_run })
    }
}

/// The limit in a field; -1 when there is none.
fn parse_limit(field: &[u8]) -> Option<i64> {
    let number = from_utf8(field).ok()?.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some(if number < 1.0 || number > RUN_S_MAX as f64 { -1 } else { number as i64 })
}

fn parse(field: &[u8]) -> Option<i64> {
    let text = from_utf8(field).ok()?;
    if let Ok(number) = text.parse::<i64>() {
        return (number as f64).abs().le(&NUMBER_MAX).then_some(number);
    }
    // Some logs hold fractions; what is below a second or a KiB does not matter.
    let number = text.parse::<f64>().ok()?;
    (number.abs() <= NUMBER_MAX).then_some(number as i64)
}

/// The beginning of a field, for a message.
fn cut(field: &[u8]) -> String {
    String::from_utf8_lossy(field).chars().take(24).collect()
}

impl NodeSpec {
    /// Reads a count of nodes, `ppn=`, or both, with tags between colons or behind `#`; what follows the number of `ppn=`, a
    /// fraction or a mark, plays no role. With `+` there are several kinds of nodes.
    fn read(field: &[u8]) -> anyhow::Result<NodeSpec> {
        let text = String::from_utf8_lossy(field).into_owned();
        let part = text.split(':').find_map(|part| part.strip_prefix("ppn="));
        let processors_per_node = if text.contains('+') {
            part.filter(|part| !part.contains('+')).and_then(leading_count)
        } else {
            let number = match part {
                Some(part) => part.split(['.', '#']).next(),
                None => text.split([':', '#']).next(),
            };
            let number = number.unwrap_or_default();
            let count = leading_count(number).filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()));
            let count = count.with_context(|| {
                let text = cut(field);
                format!(
                    "field {FIELDS_EXTENDED}: expected what is asked of the nodes, such as 2 or 2:ppn=4 (at least 1 \
                     processor), got {text:?}"
                )
            })?;
            part.map(|_| count)
        };
        Ok(NodeSpec { text, processors_per_node })
    }

    fn tags(&self) -> impl Iterator<Item = &str> {
        self.text.split([':', '#'])
    }

    /// Whether the job starts only while as many hosts as it has are empty: the tag `excl`.
    pub fn is_exclusive(&self) -> bool {
        self.tags().any(|tag| tag == "excl")
    }

    /// Whether the tags `cl_X` (only cluster X) and `^cl_X` (not cluster X) allow a cluster of this name.
    pub fn allows(&self, name: &str) -> bool {
        self.tags().all(|tag| match tag.strip_prefix("^cl_") {
            Some(never) => never != name,
            None => tag.strip_prefix("cl_").is_none_or(|only| only == name),
        })
    }
}

/// The digits that a text begins with, as a count of at least 1.
fn leading_count(text: &str) -> Option<u32> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok().filter(|count| *count > 0)
}
