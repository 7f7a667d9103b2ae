//! The owner's prices and conditions as they are written: `[[price]]` tables.
//!
//! Invariant: money is a text with at most three decimals, and what [`PriceTable::written`] gives is read as the same table. What the
//! tables come to is in [`super::tariffs`].

use std::collections::BTreeSet;

use broker::{
    cost::{Cost, Price, PriceList},
    ids::HostId,
    resources::ResourceName,
    tariff::{Before, Conditions, ConditionsError, Parts},
    time::Span,
};
use jiff::tz::TimeZone;
use kolo_text::{
    credits::written_credits,
    time::{format_span, parse_duration},
};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use toml::{Table, Value};

use super::values::{Percent, clock_text, parse_clocks};

/// One `[[price]]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// The hosts that it is about; none: all of the site.
    pub hosts: Option<BTreeSet<HostId>>,
    /// Credits for a priced unit for an hour.
    #[serde(default, deserialize_with = "read_prices")]
    pub per_hour: Option<PriceList>,
    /// When it holds; none: all day.
    pub hours: Option<Hours>,
    /// On which days; none: on all.
    pub days: Option<Days>,
    /// Whose clock hours and days are of; none: UTC.
    pub zone: Option<Zone>,
    /// The conditions of its hosts.
    #[serde(default, deserialize_with = "read_conditions")]
    pub conditions: Option<Conditions>,
}

impl PriceTable {
    /// Its keys as they are written, each with its meaning.
    pub fn written(&self) -> Vec<(&'static str, Value, &'static str)> {
        let hosts = self.hosts.as_ref().map(|hosts| hosts.iter().map(text).collect());
        let prices = self.per_hour.as_ref().map(|prices| {
            prices.iter().map(|(name, price)| (name.to_string(), text(&Cost(price.0.into())))).collect::<Table>()
        });
        let keys = [
            ("hosts", hosts.map(Value::Array), "The hosts that it is about. Default: all."),
            (
                "per_hour",
                prices.map(Value::Table),
                "Credits for an hour of a core, a GiB of memory or disk, or one of anything else.",
            ),
            ("hours", self.hours.map(|hours| text(&hours.written())), "When it holds. Default: all day."),
            ("days", self.days.as_ref().map(Days::written), "On which days its hours begin. Default: all."),
            ("zone", self.zone.as_ref().map(Zone::written), "Whose clock that is. Default: UTC."),
            (
                "conditions",
                self.conditions.as_ref().map(|conditions| Value::Table(conditions_written(conditions))),
                "What else is agreed: surcharge, refund, horizon, notice, share.",
            ),
        ];
        keys.into_iter().filter_map(|(name, value, meaning)| Some((name, value?, meaning))).collect()
    }
}

fn text(text: &(impl ToString + ?Sized)) -> Value {
    Value::String(text.to_string())
}

/// Prices by resource.
fn read_prices<'de, D: Deserializer<'de>>(source: D) -> Result<Option<PriceList>, D::Error> {
    /// Reads one at a time, so that a complaint names the resource.
    struct Prices;

    impl<'de> Visitor<'de> for Prices {
        type Value = PriceList;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("prices by resource, such as { cpu = \"6.00\" }")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PriceList, A::Error> {
            let mut prices = PriceList::new();
            while let Some(name) = map.next_key::<ResourceName>()? {
                let WrittenPrice(price) = map.next_value()?;
                prices.insert(name, price);
            }
            Ok(prices)
        }
    }

    source.deserialize_map(Prices).map(Some)
}

struct WrittenPrice(Price);

impl<'de> Deserialize<'de> for WrittenPrice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenPrice, D::Error> {
        let Cost(thousandths) =
            written_credits(&serde_json::Value::deserialize(deserializer)?).map_err(de::Error::custom)?;
        let most = Cost(u32::MAX.into());
        u32::try_from(thousandths)
            .map(|price| WrittenPrice(Price(price)))
            .map_err(|_| de::Error::custom(format_args!("{}: expected at most {most} credits", Cost(thousandths))))
    }
}

/// Hours of the day, through midnight when the end is the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Hours {
    /// Seconds after midnight.
    pub from_s: u32,
    /// Seconds after midnight; never that of the beginning.
    pub until_s: u32,
}

impl TryFrom<String> for Hours {
    type Error = String;
    fn try_from(text: String) -> Result<Hours, String> {
        let valid = |(from_s, until_s): &(u32, u32)| *from_s < 86_400 && *until_s <= 86_400 && from_s != until_s;
        parse_clocks(&text)
            .filter(valid)
            .map(|(from_s, until_s)| Hours { from_s, until_s })
            .ok_or_else(|| format!("{text:?}: expected hours of the day, such as 08:00-18:00 or 22:00-06:00"))
    }
}

impl Hours {
    /// As it is read.
    pub fn written(self) -> String {
        format!("{}-{}", clock_text(self.from_s), clock_text(self.until_s))
    }
}

/// The days of the week, Monday first.
const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Some days of the week; never none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days([bool; 7]);

impl Days {
    /// Whether this day is one of them; 0 is Monday.
    pub fn contain(self, weekday: usize) -> bool {
        self.0.get(weekday).copied().unwrap_or(false)
    }

    /// As they are read.
    pub fn written(&self) -> Value {
        Value::Array((0..7).filter(|day| self.contain(*day)).map(|day| text(DAY_NAMES[day])).collect())
    }

    /// Adds `mon`, or `fri-mon`.
    fn add(&mut self, word: &str) -> Option<()> {
        let named = |name: &str| DAY_NAMES.iter().position(|day| *day == name.trim());
        let (first, last) = match word.split_once('-') {
            Some((first, last)) => (named(first)?, named(last)?),
            None => (named(word)?, named(word)?),
        };
        let mut day = first;
        while day != last {
            self.0[day] = true;
            day = (day + 1) % 7;
        }
        self.0[last] = true;
        Some(())
    }
}

impl<'de> Deserialize<'de> for Days {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Days, D::Error> {
        let written = serde_json::Value::deserialize(deserializer)?;
        let words = match &written {
            serde_json::Value::String(_) => std::slice::from_ref(&written),
            serde_json::Value::Array(words) => words,
            _ => &[],
        };
        let mut days = Days([false; 7]);
        let added = words.iter().map(|word| days.add(word.as_str()?)).collect::<Option<Vec<()>>>();
        added.filter(|added| !added.is_empty()).map(|_| days).ok_or_else(|| {
            de::Error::custom(format_args!("{written}: expected days, such as \"mon-fri\" or [\"sat\", \"sun\"]"))
        })
    }
}

/// A time zone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Zone(String, TimeZone);

impl Zone {
    /// Its clock.
    pub fn clock(&self) -> &TimeZone {
        &self.1
    }

    /// As it is read.
    pub fn written(&self) -> Value {
        text(&self.0)
    }
}

impl TryFrom<String> for Zone {
    type Error = String;
    fn try_from(name: String) -> Result<Zone, String> {
        match TimeZone::get(&name) {
            Ok(zone) => Ok(Zone(name, zone)),
            Err(_) => {
                Err(format!("{name:?} is no time zone that this machine knows: expected one such as Europe/Berlin"))
            }
        }
    }
}

/// `[price.conditions]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionsTable {
    #[serde(default)]
    surcharge: Vec<Surcharge>,
    #[serde(default)]
    refund: Vec<Refund>,
    horizon: Option<Lead>,
    notice: Option<Lead>,
    share: Option<Share>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Surcharge {
    within: Lead,
    percent: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refund {
    notice: Lead,
    percent: u32,
}

/// Whole seconds, or none, before a start.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Lead(Span);

impl TryFrom<String> for Lead {
    type Error = String;
    fn try_from(text: String) -> Result<Lead, String> {
        let duration = parse_duration(&text).map_err(|error| error.to_string())?;
        let is_whole = duration.subsec_nanos() == 0 && duration.as_secs() <= Span::MAX.0;
        is_whole
            .then_some(Lead(Span(duration.as_secs())))
            .ok_or_else(|| format!("{text:?}: expected whole seconds, such as 24h"))
    }
}

/// `50`, or `"50%"` as other shares are written.
struct Share(Parts);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        let written = serde_json::Value::deserialize(deserializer)?;
        let percent = match &written {
            serde_json::Value::String(text) => Percent::parse(text).ok(),
            other => other.as_u64().and_then(|number| u8::try_from(number).ok()).and_then(Percent::new),
        };
        let expected = || de::Error::custom(format_args!("{written}: expected 1 to 100 (percent)"));
        percent.map(|percent| Share(parts(percent.number().into()))).ok_or_else(expected)
    }
}

fn parts(percent: u32) -> Parts {
    Parts(percent.saturating_mul(10))
}

impl TryFrom<ConditionsTable> for Conditions {
    type Error = ConditionsError;
    fn try_from(table: ConditionsTable) -> Result<Conditions, ConditionsError> {
        let before = |Lead(start), percent| Before { start, part: parts(percent) };
        let mut conditions = Conditions {
            surcharges: table.surcharge.into_iter().map(|step| before(step.within, step.percent)).collect(),
            refunds: table.refund.into_iter().map(|step| before(step.notice, step.percent)).collect(),
            horizon: table.horizon.map(|Lead(span)| span),
            notice_min: table.notice.map_or(Span(0), |Lead(span)| span),
            share_max: table.share.map(|Share(share)| share),
        };
        conditions.surcharges.sort_by_key(|step| step.start);
        conditions.refunds.sort_by_key(|step| step.start);
        conditions.check()?;
        Ok(conditions)
    }
}

fn read_conditions<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Conditions>, D::Error> {
    let table = ConditionsTable::deserialize(source)?;
    Conditions::try_from(table).map(Some).map_err(de::Error::custom)
}

fn conditions_written(conditions: &Conditions) -> Table {
    let percent = |part: Parts| Value::Integer((part.0 / 10).into());
    let steps = |steps: &[Before], name: &str| {
        let step = |step: &Before| {
            let pairs = [(name.to_owned(), text(&format_span(step.start))), ("percent".to_owned(), percent(step.part))];
            Value::Table(pairs.into_iter().collect())
        };
        (!steps.is_empty()).then(|| Value::Array(steps.iter().map(step).collect()))
    };
    let span = |span: Span| text(&format_span(span));
    let keys = [
        ("surcharge", steps(&conditions.surcharges, "within")),
        ("refund", steps(&conditions.refunds, "notice")),
        ("horizon", conditions.horizon.map(span)),
        ("notice", Some(conditions.notice_min).filter(|notice| notice.0 > 0).map(span)),
        ("share", conditions.share_max.map(percent)),
    ];
    keys.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kolo_text::document::{Syntax, parse};

    use super::*;

    #[derive(Deserialize)]
    struct Tables {
        price: Vec<PriceTable>,
    }

    fn read(text: &str) -> Result<PriceTable, String> {
        let text = format!("[[price]]\n{text}");
        let tables = parse::<Tables>(Path::new("site.toml"), &text, Syntax::Toml).map_err(|error| error.to_string())?;
        Ok(tables.price[0].clone())
    }

    #[test]
    fn hours_are_read_as_they_are_shown() {
        let read = |text: &str| Hours::try_from(text.to_owned());
        for (text, shown) in
            [("18:00-08:00", "18:00-08:00"), (" 8:30 - 17:05 ", "08:30-17:05"), ("00:00-24:00", "00:00-24:00")]
        {
            let hours = read(text).unwrap();
            assert_eq!(hours.written(), shown);
            assert_eq!(read(shown), Ok(hours));
        }
        for text in [
            "",
            "18-8",
            "18:00",
            "18:00-18:00",
            "18:60-08:00",
            "25:00-08:00",
            "24:00-08:00",
            "-1:00-08:00",
            "a:bc-1:00",
        ] {
            assert!(read(text).unwrap_err().contains("such as 08:00-18:00"), "{text}");
        }
    }

    #[test]
    fn a_table_is_read_as_it_is_written() {
        let table = read(
            "hosts = [\"h1\"]\nhours = \"22:00-6:00\"\ndays = [\"fri-mon\", \"wed\"]\nzone = \"Europe/Berlin\"\nper_hour = { cpu = \"6\", \
             memory = \"0.5\" }\n[price.conditions]\nsurcharge = [{ within = \"1h\", percent = 50 }, { within = \"10min\", percent = 100 }]\n\
             refund = [{ notice = \"24h\", percent = 100 }, { notice = \"0s\", percent = 20 }]\nhorizon = \"30d\"\nnotice = \"10min\"\nshare = \"50%\"",
        )
        .unwrap();
        let conditions = table.conditions.as_ref().unwrap();
        let steps = |steps: &[Before]| steps.iter().map(|step| (step.start.0, step.part.0)).collect::<Vec<_>>();
        assert_eq!(steps(&conditions.surcharges), [(600, 1000), (3600, 500)]);
        assert_eq!(steps(&conditions.refunds), [(0, 200), (86_400, 1000)]);
        assert_eq!(
            (conditions.horizon, conditions.notice_min, conditions.share_max),
            (Some(Span(30 * 86_400)), Span(600), Some(Parts(500)))
        );
        let written: String = table.written().iter().map(|(name, value, _)| format!("{name} = {value}\n")).collect();
        assert!(written.contains("days = [\"mon\", \"wed\", \"fri\", \"sat\", \"sun\"]\n"), "{written}");
        assert!(written.contains("per_hour = { cpu = \"6.00\", memory = \"0.50\" }\n"), "{written}");
        assert_eq!(read(&written).unwrap(), table);
    }

    #[test]
    fn what_is_wrong_is_named_with_line_and_key() {
        for (text, expected) in [
            ("per_hour = { cpu = 6 }", "site.toml:2: price[0].per_hour.cpu: write \"6.00\", with quotes"),
            (
                "per_hour = { cpu = \"-1\" }",
                "site.toml:2: price[0].per_hour.cpu: \"-1\": expected credits such as 12.50",
            ),
            ("per_hour = { cpu = \"0.0001\" }", "with at most three decimals"),
            ("per_hour = { cpu = \"4294968\" }", "4294968.00: expected at most 4294967.295 credits"),
            ("per_hour = { CPU = \"1\" }", "no resource name"),
            ("per_hour = \"6.00\"", "expected prices by resource, such as { cpu = \"6.00\" }"),
            ("cpu = \"6\"", "price[0].cpu: unknown field"),
            ("hours = \"8-18\"", "price[0].hours: \"8-18\": expected hours of the day, such as 08:00-18:00"),
            ("hours = \"8:00-8:00\"", "expected hours of the day"),
            ("hours = \"24:00-8:00\"", "expected hours of the day"),
            ("hours = \"8:00-24:01\"", "expected hours of the day"),
            ("days = [\"mon\", \"someday\"]", "expected days, such as \"mon-fri\""),
            ("days = []", "expected days"),
            ("days = 5", "expected days"),
            ("zone = \"Mars/Olympus\"", "\"Mars/Olympus\" is no time zone that this machine knows"),
            ("conditions = { horizont = \"1d\" }", "horizont: unknown field"),
            ("conditions = { notice = \"10\" }", "\"10\" has no unit"),
            ("conditions = { share = 0 }", "0: expected 1 to 100 (percent)"),
            (
                "conditions = { refund = [{ notice = \"1h\", percent = 101 }] }",
                "refund: expected at most 100 %, got 101 %",
            ),
            ("conditions = { horizon = \"1h\", notice = \"2h\" }", "horizon: it is below the least notice"),
            (
                "conditions = { surcharge = [{ within = \"1h\", percent = 1 }, { within = \"60min\", percent = 2 }] }",
                "surcharge: the times must rise, and none may be named twice",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("site.toml:2: price[0]") && error.contains(expected), "{text}: {error}");
        }
    }
}
