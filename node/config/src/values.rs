//! The types of the configuration's values: how each is written in a file, and what is accepted.
//!
//! Invariant: what [`Setting::write`] gives, [`Setting::read`] reads as the same value.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use broker::{
    amount::Amount,
    request::Effort,
    resources::{Attributes, ResourceName},
    time::{Millis, Span},
    trust::OwnerPolicy,
};
use kolo_seat::{Runner, uids::RunUids};
use kolo_text::{
    time::{format_duration, format_span, parse_duration, parse_span},
    traffic::{format_rate, parse_rate},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;
use ureq::http::Uri;

use super::{hosts::HostTable, offered::OfferedTable, prices::PriceTable};

/// Longest time-out that makes sense.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// How a value is written in a file, and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A file or directory; in a file relative to that file's directory.
    Path,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Flag,
    /// A list of texts; a flag for each.
    List,
    /// A list of texts of which the first is a path; a flag for each.
    Program,
    /// A table of texts; a flag `key=value` for each.
    Pairs,
    /// A list of tables; a flag with an inline table for each.
    Tables,
}

/// A type of value.
pub trait Setting: Sized {
    /// How it is written.
    const KIND: Kind = Kind::Text;
    /// The words that it takes, if it takes only some.
    const CHOICES: &'static [&'static str] = &[];

    /// Reads it.
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error>;

    /// As it is written in a file; none when it has no value.
    fn write(&self) -> Option<Value>;
}

impl<T: Setting> Setting for Option<T> {
    const KIND: Kind = T::KIND;
    const CHOICES: &'static [&'static str] = T::CHOICES;

    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Option<T>, D::Error> {
        T::read(source).map(Some)
    }

    fn write(&self) -> Option<Value> {
        self.as_ref().and_then(Setting::write)
    }
}

/// A type that serde reads as it is written.
macro_rules! plain {
    ($($Type:ty, $kind:ident, $choices:expr, |$value:ident| $written:expr;)*) => {$(
        impl Setting for $Type {
            const KIND: Kind = Kind::$kind;
            const CHOICES: &'static [&'static str] = &$choices;

            fn read<'de, D: Deserializer<'de>>(source: D) -> Result<$Type, D::Error> {
                Self::deserialize(source)
            }

            fn write(&self) -> Option<Value> {
                let $value = self;
                $written
            }
        }
    )*};
}

/// A type with a text of its own.
macro_rules! text {
    ($($Type:ty, $parse:expr, $format:expr;)*) => {$(
        impl Setting for $Type {
            fn read<'de, D: Deserializer<'de>>(source: D) -> Result<$Type, D::Error> {
                $parse(&String::deserialize(source)?).map_err(D::Error::custom)
            }

            fn write(&self) -> Option<Value> {
                Some(Value::String($format(self)))
            }
        }
    )*};
}

/// Keys as they are written, each with its meaning.
type WrittenKeys = Vec<(&'static str, Value, &'static str)>;

fn table_of(written: WrittenKeys) -> Value {
    Value::Table(written.into_iter().map(|(name, value, _)| (name.to_owned(), value)).collect())
}

fn number(number: impl TryInto<i64>) -> Option<Value> {
    Some(Value::Integer(number.try_into().unwrap_or(i64::MAX)))
}

fn list<'a>(texts: impl IntoIterator<Item = &'a String>) -> Option<Value> {
    Some(Value::Array(texts.into_iter().cloned().map(Value::String).collect()))
}

fn pairs(pairs: impl Iterator<Item = (String, String)>) -> Option<Value> {
    Some(Value::Table(pairs.map(|(key, value)| (key, Value::String(value))).collect()))
}

plain! {
    bool, Flag, ["true", "false"], |flag| Some(Value::Boolean(*flag));
    u32, Number, [], |value| number(*value);
    u64, Number, [], |value| number(*value);
    usize, Number, [], |value| number(*value);
    String, Text, [], |text| Some(Value::String(text.clone()));
    PathBuf, Path, [], |path| Some(Value::String(path.to_string_lossy().into_owned()));
    Vec<String>, List, [], |texts| list(texts);
    BTreeSet<String>, List, [], |texts| list(texts);
    Attributes, Pairs, [], |attributes| pairs(attributes.iter().map(|(key, value)| (key.clone(), value.clone())));
    Effort, Text, ["fast", "balanced", "thorough"], |effort| Value::try_from(effort).ok();
    Binding, Text, ["late", "early"], |binding| Some(Value::String(binding.as_str().to_owned()));
    LogFormat, Text, ["human", "json"], |format| Some(Value::String(format.as_str().to_owned()));
    Runner, Text, ["none", "bubblewrap", "podman", "systemd"], |runner| Some(Value::String(runner.as_str().to_owned()));
    Program, Program, [], |program| (!program.0.is_empty()).then(|| list(&program.0)).flatten();
    Vec<HostTable>, Tables, [], |tables| Some(Value::Array(tables.iter().map(HostTable::written).map(table_of).collect()));
    Vec<OfferedTable>, Tables, [], |tables| Some(Value::Array(tables.iter().map(OfferedTable::written).map(table_of).collect()));
    Vec<PriceTable>, Tables, [], |tables| Some(Value::Array(tables.iter().map(PriceTable::written).map(table_of).collect()));
}

text! {
    Duration, read_duration, |duration: &Duration| format_duration(*duration);
    Millis, read_millis, |millis: &Millis| format_duration(Duration::from_millis(millis.0));
    Span, parse_span, |span: &Span| format_span(*span);
    Percent, Percent::parse, Percent::to_string;
    Loss, Loss::parse, Loss::to_string;
    Rate, Rate::parse, Rate::to_string;
    RunUids, RunUids::parse, RunUids::to_string;
    WebUrl, WebUrl::parse, WebUrl::to_string;
    SocketAddr, read_address, SocketAddr::to_string;
}

impl Setting for BTreeMap<ResourceName, Percent> {
    const KIND: Kind = Kind::Pairs;

    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let texts = BTreeMap::<ResourceName, String>::deserialize(source)?;
        let read = |(name, text): (ResourceName, String)| match Percent::parse(&text) {
            Ok(share) => Ok((name, share)),
            Err(message) => Err(D::Error::custom(format!("{name}: {message}"))),
        };
        texts.into_iter().map(read).collect()
    }

    fn write(&self) -> Option<Value> {
        pairs(self.iter().map(|(name, share)| (name.to_string(), share.to_string())))
    }
}

fn read_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    if duration < Duration::from_millis(1) || duration > LONGEST {
        return Err(format!("expected 1ms to {}", format_duration(LONGEST)));
    }
    Ok(duration)
}

/// Whole milliseconds; what is finer is dropped.
fn read_millis(text: &str) -> Result<Millis, String> {
    let duration = read_duration(text)?;
    Ok(Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

fn read_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no address: expected an address and a port, such as 127.0.0.1:7740 or 0.0.0.0:7743")
    })
}

/// Reads an effort.
pub fn parse_effort(text: &str) -> Result<Effort, String> {
    match text {
        "fast" => Ok(Effort::Fast),
        "balanced" => Ok(Effort::Balanced),
        "thorough" => Ok(Effort::Thorough),
        _ => Err("expected fast, balanced or thorough".to_owned()),
    }
}

/// The URL of a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebUrl(String);

impl WebUrl {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<WebUrl, String> {
        let expected = "expected one such as https://hooks.example.org/kolo";
        let uri: Uri = text.parse().map_err(|error| format!("{text:?} is no URL ({error}): {expected}"))?;
        let is_web = matches!(uri.scheme_str(), Some("https" | "http"));
        if is_web && uri.host().is_some_and(|host| !host.is_empty()) {
            Ok(WebUrl(text.to_owned()))
        } else {
            Err(format!("{text:?} is no URL of a web server: {expected}"))
        }
    }

    /// Whether it is asked over TLS.
    pub fn is_tls(&self) -> bool {
        self.0.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https"))
    }

    /// It as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A program of the owner and its arguments; empty when there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Program(pub Vec<String>);

/// When seats on hosts of a class are bound to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// When they begin.
    Late,
    /// When they are held.
    Early,
}

impl Binding {
    fn as_str(self) -> &'static str {
        match self {
            Binding::Late => "late",
            Binding::Early => "early",
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Human,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    fn as_str(self) -> &'static str {
        match self {
            LogFormat::Human => "human",
            LogFormat::Json => "json",
        }
    }
}

/// What a link carries: at least a Mbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(Amount);

impl Rate {
    /// Reads `1Gbit/s`.
    ///
    /// # Errors
    /// What was expected.
    fn parse(text: &str) -> Result<Rate, String> {
        let mbps = Amount(parse_rate(text.trim())?);
        if mbps == Amount::ZERO || mbps > Amount::MAX {
            return Err(format!(
                "{text:?}: expected 1Mbit/s to {}Mbit/s; without this key there is no limit",
                Amount::MAX.0
            ));
        }
        Ok(Rate(mbps))
    }

    /// In Mbit/s.
    pub fn mbps(self) -> Amount {
        self.0
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_rate(self.0.0))
    }
}

/// A share of 1 to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// What of the machine is offered unless told otherwise: the owner keeps half.
    pub const HALF: Percent = Percent(50);

    /// Reads `50%`.
    ///
    /// # Errors
    /// What was expected, when the text is not a whole number from 1 to 100 with its sign.
    pub fn parse(text: &str) -> Result<Percent, String> {
        text.trim()
            .strip_suffix('%')
            .and_then(|number| number.trim_end().parse::<u8>().ok())
            .and_then(Percent::new)
            .ok_or_else(|| format!("{text:?}: expected 1% to 100%"))
    }

    /// A share of so many percent; none when that is no share.
    pub fn new(percent: u8) -> Option<Percent> {
        (1..=100).contains(&percent).then_some(Percent(percent))
    }

    pub fn number(self) -> u8 {
        self.0
    }

    /// This share of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.0) / 100;
        u64::try_from(part).unwrap_or(whole)
    }
}

impl Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// How much of something may be lost, in percent; more than all of it where that is a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss(pub u32);

impl Default for Loss {
    fn default() -> Loss {
        Loss(OwnerPolicy::default().quality_loss_percent)
    }
}

impl Loss {
    /// Reads `10%`.
    ///
    /// # Errors
    /// What was expected.
    fn parse(text: &str) -> Result<Loss, String> {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
        let loss = number.filter(|percent| *percent <= 10_000).map(Loss);
        loss.ok_or_else(|| format!("{text:?}: expected 0% (nothing) to 10000%"))
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// Reads `18:00-08:00` as seconds after midnight; the minute hand is right, the hour may be any.
pub fn parse_clocks(text: &str) -> Option<(u32, u32)> {
    let clock = |text: &str| {
        let (hour, minute) = text.trim().split_once(':')?;
        let is_number = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(hour) || minute.len() != 2 || !is_number(minute) {
            return None;
        }
        let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
        (minute < 60).then_some(hour * 3600 + minute * 60)
    };
    let (start, end) = text.trim().split_once('-')?;
    clock(start).zip(clock(end))
}

/// Seconds after midnight as [`parse_clocks`] reads them.
pub fn clock_text(seconds: u32) -> String {
    format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_written_with_their_sign() {
        assert_eq!(Percent::parse("50%"), Ok(Percent::HALF));
        assert_eq!(Percent::parse(" 7 %").map(|share| share.to_string()), Ok("7%".to_owned()));
        for text in ["50", "0%", "101%", "-1%", "x%", "%", "256%"] {
            assert!(Percent::parse(text).is_err(), "{text}");
        }
        assert_eq!(Percent::HALF.of(5), 2);
        assert_eq!(Percent::parse("100%").map(|share| share.of(u64::MAX)), Ok(u64::MAX));
    }

    #[test]
    fn a_loss_may_be_nothing_and_is_written_as_it_is_read() {
        for text in ["0%", "10%", "10000%"] {
            assert_eq!(Loss::parse(text).unwrap().to_string(), text);
        }
        for text in ["10", "-1%", "10001%", "1.5%"] {
            assert!(Loss::parse(text).is_err_and(|error| error.contains("expected 0% (nothing)")), "{text}");
        }
    }

    #[test]
    fn links_carry_something_and_are_written_as_they_are_read() {
        for (text, shown, mbps) in
            [("1Gbit/s", "1Gbit/s", 1000), (" 100 Mbit/s", "100Mbit/s", 100), ("1.5Gbit/s", "1500Mbit/s", 1500)]
        {
            let rate = Rate::parse(text).unwrap();
            assert_eq!((rate.to_string().as_str(), rate.mbps()), (shown, Amount(mbps)));
            assert_eq!(Rate::parse(shown), Ok(rate));
        }
        for text in ["0Mbit/s", "281474976710656Mbit/s"] {
            assert!(
                Rate::parse(text).is_err_and(|error| error.contains("without this key there is no limit")),
                "{text}"
            );
        }
        assert!(Rate::parse("1000").is_err_and(|error| error.contains("such as 100Mbit/s")));
    }
}
