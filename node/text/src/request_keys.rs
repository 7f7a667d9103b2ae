//! The keys of a request, each written down once: files, flags, `#KOLO` lines and the API's description are made of this table.
//!
//! Invariant: it has every key of [`RequestDocument`](broker::request::RequestDocument), and no other. What else a new key
//! needs is its meaning, in the core.

use broker::{
    request::{MAX_HOSTS, SLACK_MAX},
    time::Span,
};

/// What the value of a key is: how people write it, how programs do, and how it is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request's name.
    Label,
    /// A whole number from 1 to this.
    Count(u32),
    /// A duration, at most this long; for programs, seconds.
    Span(Span),
    /// A time; for programs, Unix seconds.
    Time,
    /// Amounts with units by resource; for programs, base units.
    Amounts,
    /// Texts by name.
    Attributes,
    /// Names of hosts.
    Hosts,
    /// One of these words, and what stands for it in help.
    Choice(&'static str, &'static [&'static str]),
    /// Times the reference speed, such as 1.5; for programs, thousandths.
    Speed,
    /// Credits such as 12.50; for programs, thousandths of a credit.
    Credits,
    /// What hosts send to each other; for programs, an object.
    Traffic,
    /// Which part of the work computes, of the key for traffic; for programs, thousandths.
    Compute,
    /// Yes, when it is there.
    Flag,
    /// One, when it is there.
    One,
    /// Objects with keys of [`SHAPE_KEYS`].
    Shapes,
    /// The least and the largest factor, such as 0.5..2; for programs, two of thousandths.
    Scale,
    /// Some of these words, each once, and what stands for one in help.
    Words(&'static str, &'static [&'static str]),
    /// The name of an image.
    Image,
}

/// A key of a request.
#[derive(Debug)]
pub struct Key {
    /// As in the formats.
    pub name: &'static str,
    pub kind: Kind,
    /// The flag of the command line, if it has one.
    pub flag: Option<&'static str>,
    pub short: Option<char>,
    /// What it means.
    pub help: &'static str,
    /// What people are told beside that, in the help of the flag.
    pub hint: &'static str,
}

const fn key(name: &'static str, kind: Kind, flag: &'static str, help: &'static str, hint: &'static str) -> Key {
    Key { name, kind, flag: Some(flag), short: None, help, hint }
}

/// All keys, in the order of the help.
pub const KEYS: &[Key] = &[
    Key { short: Some('N'), ..key("hosts", Kind::Count(MAX_HOSTS), "hosts", "How many hosts", "") },
    Key {
        short: Some('t'),
        ..key("duration", Kind::Span(Span::MAX), "duration", "How long", ", such as 2:00:00, 2h30m or 90min")
    },
    key(
        "work",
        Kind::Span(Span::MAX),
        "work",
        "How long at reference speed, in place of the duration",
        "; faster hosts end earlier",
    ),
    key(
        "total",
        Kind::Amounts,
        "total",
        "What all hosts together must give",
        ", such as memory=40GiB; may be repeated",
    ),
    key("per_host", Kind::Amounts, "per-host", "What every single host must give", ", such as cpu=1; may be repeated"),
    key(
        "earliest",
        Kind::Time,
        "earliest",
        "Earliest start",
        ", such as +3h, tomorrow 08:00 or 2026-11-21T08:00+01:00 [default: now]",
    ),
    key(
        "latest",
        Kind::Time,
        "latest",
        "Latest start",
        ", such as +1d or tomorrow 08:00 [default: the deadline, else the node's reach behind the earliest]",
    ),
    key("deadline", Kind::Time, "deadline", "Latest end", ", such as tomorrow 08:00"),
    key(
        "objective",
        Kind::Choice("OBJECTIVE", &["start", "finish", "runtime", "host_time", "cost"]),
        "objective",
        "What is to be smallest",
        ": start, finish, runtime (of the slowest host), host_time (of all together) or cost [default: start]",
    ),
    key("budget", Kind::Credits, "budget", "What all hosts together may cost", ", in credits, such as 12.50"),
    key(
        "attributes",
        Kind::Attributes,
        "where",
        "Attribute that every host must have",
        ", such as arch=x86_64; may be repeated",
    ),
    key("candidates", Kind::Hosts, "candidate", "Choose among these hosts only", "; may be repeated"),
    key("speed_min", Kind::Speed, "speed-min", "Least speed of every host", ", such as 1.5 (times the reference)"),
    key("exclusive", Kind::Flag, "exclusive", "Take whole hosts, and only free ones", ""),
    key("sites_max", Kind::Count(u32::MAX), "sites-max", "Hosts of at most so many sites", ""),
    key(
        "slack",
        Kind::Span(SLACK_MAX),
        "slack",
        "How much later than reserved all hosts may begin where that lets own jobs of their one site end",
        ", such as 10m; within the window",
    ),
    key(
        "effort",
        Kind::Choice("EFFORT", &["fast", "balanced", "thorough"]),
        "effort",
        "How hard to look",
        ": fast, balanced, thorough [default: the node's]",
    ),
    key(
        "move_on_loss",
        Kind::Flag,
        "move-on-loss",
        "If lost hosts cannot be replaced at the reservation's start, choose all hosts again at another start inside the window",
        "",
    ),
    key("id", Kind::Label, "id", "Label of your own, by which the request can be named later", ""),
    Key { flag: None, ..key("extends", Kind::Label, "", "The request whose reservation this one lengthens", "") },
    key(
        "shapes",
        Kind::Shapes,
        "or",
        "Alternatives, of which the best is taken",
        ": another one, such as hosts=8,duration=70m,total.cpu=4; its own total or per-host take the place of all of the others'; may be repeated",
    ),
    key(
        "traffic",
        Kind::Traffic,
        "traffic",
        "What each host sends to all others",
        ", such as 100Mbit/s; all then last as long as the slowest, and asks for --work",
    ),
    key(
        "scale",
        Kind::Scale,
        "scale",
        "By which factors all amounts may be multiplied and the length divided",
        ", such as 0.5..2; the best is chosen",
    ),
    key(
        "needs",
        Kind::Words("WHAT", &["run", "network"]),
        "needs",
        "Only hosts whose owner lets commands run, or gives them the network",
        ": run, network",
    ),
    key(
        "image",
        Kind::Image,
        "image",
        "Only hosts whose owner has this image for commands",
        ", such as docker.io/library/python:3.13",
    ),
];

/// A flag of its own for a part of the key for traffic.
pub const COMPUTE: &Key = &key(
    "traffic",
    Kind::Compute,
    "compute",
    "With --traffic, which part of the work computes and is longer on slow hosts",
    ", such as 0.7 [default: 1]",
);

/// A flag of its own for the commonest value of the key.
pub const SAME_SITE: &Key = &key("sites_max", Kind::One, "same-site", "Hosts of one site only, as --sites-max 1", "");

/// The keys of a shape.
pub const SHAPE_KEYS: [&str; 5] = ["hosts", "duration", "work", "per_host", "total"];

/// The word of these that is meant: one of several parts may be written with `-` for `_`, as flags are.
pub fn word_of(words: impl IntoIterator<Item = &'static str>, text: &str) -> Option<&'static str> {
    words.into_iter().find(|word| *word == text || word.replace('_', "-") == text)
}

impl Key {
    /// The key with this name.
    pub fn named(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use broker::request::RequestDocument;

    use super::*;

    /// The words that an error of serde's expected; some are read with `-`, too.
    fn expected_in(text: &str) -> BTreeSet<String> {
        let error = serde_json::from_str::<RequestDocument>(text).unwrap_err().to_string();
        let expected = error.split_once("expected ").unwrap().1;
        expected.split('`').skip(1).step_by(2).map(|word| word.replace('-', "_")).collect()
    }

    #[test]
    fn words_may_be_written_as_flags_are() {
        let words = ["start", "host_time"];
        assert_eq!(
            ["host_time", "host-time", "start"].map(|text| word_of(words, text)),
            [Some("host_time"), Some("host_time"), Some("start")]
        );
        assert_eq!(["host time", "", "Start"].map(|text| word_of(words, text)), [None; 3]);
    }

    #[test]
    fn the_table_has_the_keys_and_words_of_the_core() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        assert_eq!(words(&names), expected_in(r#"{"":1}"#));
        for key in KEYS {
            match key.kind {
                Kind::Choice(_, choices) => {
                    assert_eq!(words(choices), expected_in(&format!(r#"{{"{}":""}}"#, key.name)));
                }
                Kind::Words(_, choices) => {
                    assert_eq!(words(choices), expected_in(&format!(r#"{{"{}":[""]}}"#, key.name)));
                }
                _ => {}
            }
        }
    }
}
