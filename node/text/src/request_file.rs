//! Request files: JSON exactly as `formats.md` has it, or TOML or JSON from people, with texts such as "40GiB" and "2h".
//!
//! Invariant: programs write whole numbers of base units and seconds; people write units, and a bare number of theirs is
//! refused where its unit would be a guess. Unknown keys are refused with file and key.

use std::{collections::BTreeMap, fmt, path::Path, sync::LazyLock};

use broker::{
    amount::Amount,
    document::{Misfit, read_object},
    ids::{HostId, RequestId},
    needs::ImageName,
    request::RequestDocument,
    resources::{Attributes, ResourceName},
    time::Span,
};
use jiff::Zoned;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, Visitor},
};
use serde_json::{Map, Value, json};

use super::{
    credits::{parse_credits, written_credits},
    document::{self, DocumentError, Syntax, Written},
    request_keys::{KEYS, Key, Kind, SHAPE_KEYS, word_of},
    resource,
    scale::{parse_scale, written_scale},
    speed::{parse_speed, written_speed},
    time::{parse_span, parse_time},
    traffic::{parse_compute, parse_rate, written_traffic},
};

/// Keys of a request as programs write them; any may be missing.
pub type Draft = Map<String, Value>;

/// The document that `draft` describes, not checked yet.
///
/// # Errors
/// [`Misfit`] with the key that is missing or no value of its kind.
pub fn document(draft: Draft) -> Result<RequestDocument, Misfit> {
    if !draft.contains_key("hosts") && !draft.contains_key("shapes") {
        return Err(Misfit { key: "hosts".to_owned(), message: "expected a value".to_owned(), line: 0 });
    }
    read_object(Value::Object(draft).to_string().as_bytes()).map_err(|misfit| {
        // Nobody has seen this text, so the place in it says nothing.
        let message = misfit.message.split(" at line ").next().unwrap_or_default().to_owned();
        Misfit { message, ..misfit }
    })
}

/// The value of a key as it was written: all that is known without its writer.
enum Raw {
    /// As programs write it.
    Done(Value),
    One(Written),
    Amounts(BTreeMap<String, Written>),
    Speed(Value),
    Credits(Value),
    Traffic(Value),
    Shapes(Vec<ShapeText>),
    Scale(Value),
}

/// The keys that a shape has.
struct ShapeText(RequestText);

impl<'de> Deserialize<'de> for ShapeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ShapeText, D::Error> {
        let written = RequestText::deserialize(deserializer)?;
        match written.0.iter().find(|(key, _)| !SHAPE_KEYS.contains(&key.name)) {
            Some((key, _)) => Err(D::Error::unknown_field(key.name, &SHAPE_KEYS)),
            None => Ok(ShapeText(written)),
        }
    }
}

/// The keys that a file has.
struct RequestText(Vec<(&'static Key, Raw)>);

impl<'de> Deserialize<'de> for RequestText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestText, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = RequestText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RequestText, A::Error> {
                let mut written: Vec<(&'static Key, Raw)> = Vec::new();
                while let Some(Known(key)) = map.next_key()? {
                    if written.iter().any(|(known, _)| known.name == key.name) {
                        return Err(A::Error::duplicate_field(key.name));
                    }
                    written.extend(map.next_value_seed(OfKind(key.kind))?.map(|raw| (key, raw)));
                }
                Ok(RequestText(written))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// The name of a key.
struct Known(&'static Key);

impl<'de> Deserialize<'de> for Known {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Known, D::Error> {
        static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| KEYS.iter().map(|key| key.name).collect());
        let name = String::deserialize(deserializer)?;
        Key::named(&name).map(Known).ok_or_else(|| D::Error::unknown_field(&name, &NAMES))
    }
}

/// Reads a value of this kind.
struct OfKind(Kind);

impl<'de> DeserializeSeed<'de> for OfKind {
    type Value = Option<Raw>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Raw>, D::Error> {
        Ok(match self.0 {
            Kind::Label => Option::<RequestId>::deserialize(deserializer)?.map(|id| Raw::Done(id.as_str().into())),
            Kind::Count(_) | Kind::One => {
                Option::<u32>::deserialize(deserializer)?.map(|count| Raw::Done(count.into()))
            }
            Kind::Span(_) | Kind::Time => Option::deserialize(deserializer)?.map(Raw::One),
            Kind::Amounts => Option::deserialize(deserializer)?.map(Raw::Amounts),
            Kind::Attributes => {
                Option::<Attributes>::deserialize(deserializer)?.map(|all| Raw::Done(all.into_iter().collect()))
            }
            Kind::Hosts => {
                let names = |hosts: Vec<HostId>| hosts.iter().map(|host| host.as_str()).collect();
                Option::deserialize(deserializer)?.map(|hosts| Raw::Done(names(hosts)))
            }
            Kind::Choice(_, words) => {
                let known = |text: String| {
                    let word = word_of(words.iter().copied(), &text);
                    word.map(|word| Raw::Done(word.into())).ok_or_else(|| D::Error::unknown_variant(&text, words))
                };
                Option::<String>::deserialize(deserializer)?.map(known).transpose()?
            }
            Kind::Speed => Option::deserialize(deserializer)?.map(Raw::Speed),
            Kind::Credits => Option::deserialize(deserializer)?.map(Raw::Credits),
            Kind::Traffic | Kind::Compute => Option::deserialize(deserializer)?.map(Raw::Traffic),
            Kind::Flag => Option::<bool>::deserialize(deserializer)?.map(|is| Raw::Done(is.into())),
            Kind::Shapes => Option::deserialize(deserializer)?.map(Raw::Shapes),
            Kind::Scale => Option::deserialize(deserializer)?.map(Raw::Scale),
            Kind::Words(_, words) => {
                let known = |text: &String| {
                    let word = words.iter().find(|word| *word == text);
                    word.map(|word| Value::from(*word)).ok_or_else(|| D::Error::unknown_variant(text, words))
                };
                let all = |texts: Vec<String>| texts.iter().map(known).collect::<Result<Value, _>>().map(Raw::Done);
                Option::<Vec<String>>::deserialize(deserializer)?.map(all).transpose()?
            }
            Kind::Image => Option::<ImageName>::deserialize(deserializer)?.map(|name| Raw::Done(name.as_str().into())),
        })
    }
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

    fn resource(self, text: &str) -> Result<ResourceName, String> {
        let named = match self {
            Writer::Person => resource::named(text),
            Writer::Program => ResourceName::new(text),
        };
        named.map_err(|error| error.to_string())
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

    /// The value of `key` as programs write it; else the key, dotted, and what is wrong.
    fn value(self, key: &Key, raw: Raw, now: &Zoned) -> Result<Value, (String, String)> {
        let about = |error: String| (key.name.to_owned(), error);
        Ok(match (self, raw) {
            (_, Raw::Done(value)) => value,
            (Writer::Program, Raw::One(Written::Integer(number))) => number.into(),
            (Writer::Person, Raw::One(Written::Integer(number))) => {
                typed(key.kind, &number.to_string(), now).map_err(about)?
            }
            (_, Raw::One(Written::Text(text))) => typed(key.kind, &text, now).map_err(about)?,
            // Whether it is one of thousandths is checked with the whole document.
            (Writer::Program, Raw::Speed(number @ Value::Number(_)) | Raw::Credits(number @ Value::Number(_))) => {
                number
            }
            (Writer::Program, Raw::Scale(written @ Value::Array(_))) => written,
            (Writer::Program, Raw::Traffic(written)) => written,
            (Writer::Person, Raw::Traffic(written)) => written_traffic(written).map_err(|(inner, error)| {
                (if inner.is_empty() { key.name.to_owned() } else { format!("{}.{inner}", key.name) }, error)
            })?,
            (_, Raw::Speed(written)) => written_speed(&written).map_err(about)?.thousandths().into(),
            (_, Raw::Scale(written)) => written_scale(&written).map_err(about)?,
            (_, Raw::Credits(written)) => written_credits(&written).map_err(about)?.0.into(),
            (_, Raw::Amounts(written)) => {
                let mut amounts = Draft::new();
                for (text, written) in written {
                    let about = |error: String| (format!("{}.{text}", key.name), error);
                    let name = self.resource(&text).map_err(about)?;
                    let amount = self.amount(&name, &written).map_err(about)?;
                    if amounts.insert(name.to_string(), amount.0.into()).is_some() {
                        return Err(about(format!("{name} is given twice")));
                    }
                }
                Value::Object(amounts)
            }
            (_, Raw::Shapes(shapes)) => {
                let value = |index: usize, (of_shape, raw): (&Key, Raw)| {
                    let value = self.value(of_shape, raw, now);
                    let value =
                        value.map_err(|(of_shape, error)| (format!("{}[{index}].{of_shape}", key.name), error))?;
                    Ok((of_shape.name.to_owned(), value))
                };
                let shape = |(index, ShapeText(RequestText(written)))| -> Result<Value, (String, String)> {
                    let keys: Result<Draft, _> = written.into_iter().map(|one| value(index, one)).collect();
                    keys.map(Value::Object)
                };
                shapes.into_iter().enumerate().map(shape).collect::<Result<_, _>>()?
            }
        })
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
    let RequestText(written) = document::parse(file, text, syntax)?;
    let value = |(key, raw): (&'static Key, Raw)| {
        let value = writer.value(key, raw, now).map_err(|(key, error)| DocumentError::about(file, key, error))?;
        Ok((key.name.to_owned(), value))
    };
    written.into_iter().map(value).collect()
}

/// The value of a key of one text, as a person has typed it.
///
/// # Errors
/// What was expected.
pub fn typed(kind: Kind, text: &str, now: &Zoned) -> Result<Value, String> {
    Ok(match kind {
        Kind::Count(_) | Kind::One => text.parse::<u32>().map_err(|error| error.to_string())?.into(),
        Kind::Span(_) => parse_span(text).map(seconds_of).map_err(|error| error.to_string())?.into(),
        Kind::Time => parse_time(text, now).map_err(|error| error.to_string())?.0.into(),
        Kind::Speed => parse_speed(text)?.thousandths().into(),
        Kind::Scale => parse_scale(text)?.into_iter().map(u32::from).collect(),
        Kind::Credits => parse_credits(text)?.0.into(),
        Kind::Traffic => json!({ "mbps": parse_rate(text)? }),
        Kind::Compute => json!({ "compute": parse_compute(text)? }),
        Kind::Image => ImageName::try_from(text.to_owned()).map_err(|error| error.to_string())?.as_str().into(),
        Kind::Label => RequestId::new(text).map_err(|error| error.to_string())?.as_str().into(),
        _ => text.into(),
    })
}

/// A span that was parsed is in range.
pub fn seconds_of(span: Span) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
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
        assert_eq!(Value::Object(draft), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn the_form_of_the_page_is_written_by_a_person() {
        let file = Path::new("request");
        let read = |text| parse(file, text, Syntax::Json, Writer::Person, &now()).map_err(|error| error.to_string());
        let draft = read(r#"{"hosts":2,"duration":"1h","latest":"2026-11-22T07:00:00.000Z"}"#).unwrap();
        assert_eq!((&draft["duration"], &draft["latest"]), (&3600.into(), &1_795_330_800.into()));
        assert!(read(r#"{"hosts":2,"duration":3600}"#).unwrap_err().contains("duration: \"3600\" has no unit"));
        assert!(read(r#"{"total":{"cpu":2}}"#).unwrap_err().contains("total.cpu: write \"2\" for cores"));
        assert!(read("[null,1,3600]").unwrap_err().contains("a list, expected an object"));
    }

    #[test]
    fn traffic_is_read_as_people_and_programs_write_it() {
        let draft = toml("hosts = 2\nwork = \"1h\"\ntraffic = { mbps = \"1Gbit/s\", compute = 0.7 }").unwrap();
        assert_eq!(draft["traffic"], json!({ "mbps": 1000, "compute": 700 }));
        let text = r#"{"hosts":2,"work":9,"traffic":{"mbps":5,"compute":700}}"#;
        let draft = parse(Path::new("r.json"), text, Syntax::Json, Writer::Program, &now()).unwrap();
        assert_eq!(draft["traffic"], json!({ "mbps": 5, "compute": 700 }));
        for (text, expected) in [
            ("traffic = { mbps = \"fast\" }", "traffic.mbps: \"fast\""),
            ("traffic = { mbps = 1, compute = 700 }", "traffic.compute: \"700\": expected which part"),
            ("traffic = 5", "traffic: expected mbps"),
        ] {
            let error = toml(&format!("hosts = 1\n{text}")).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn people_write_texts_with_units() {
        let draft = toml(
            "hosts = 5\nduration = \"2:00:00\"\nearliest = \"now+1h\"\nlatest = 2026-11-22T08:00:00+01:00\neffort = \
             \"thorough\"\n[total]\ncpu = \"12\"\nmemory = \"40GiB\"\ngpu = 2\n[per_host]\ncpu = \"500m\"",
        )
        .unwrap();
        assert_eq!(
            Value::Object(draft),
            serde_json::json!({"hosts": 5, "duration": 7200, "earliest": 1_795_253_400, "latest": 1_795_330_800,
                "effort": "thorough", "total": {"cpu": 12000, "memory": 40960, "gpu": 2}, "per_host": {"cpu": 500}})
        );
    }

    #[test]
    fn shapes_are_written_as_requests_are() {
        let draft = toml(
            "earliest = \"+1h\"\n[per_host]\ncpu = \"1\"\n[[shapes]]\nhosts = 4\nduration = \"2h\"\n[[shapes]]\nhosts = 8\n\
             work = \"70min\"\n[shapes.total]\nmemory = \"1GiB\"",
        );
        assert_eq!(
            Value::Object(draft.unwrap()),
            serde_json::json!({"earliest": 1_795_253_400, "per_host": {"cpu": 1000}, "shapes": [{"hosts": 4, "duration": 7200},
                {"hosts": 8, "work": 4200, "total": {"memory": 1024}}]})
        );
    }

    #[test]
    fn speeds_are_ratios_for_people_and_thousandths_for_programs() {
        assert_eq!(toml("speed_min = 1.5").unwrap()["speed_min"], 1500);
        assert_eq!(toml("speed_min = 2").unwrap()["speed_min"], 2000);
        let program = |speed: &str| {
            let text = format!(r#"{{"hosts":1,"work":60,"speed_min":{speed}}}"#);
            let draft = parse(Path::new("r.json"), &text, Syntax::Json, Writer::Program, &now()).unwrap();
            document(draft)
                .map(|document| document.speed_min.unwrap().thousandths())
                .map_err(|misfit| misfit.to_string())
        };
        assert_eq!((program("1500"), program("\"1.5\"")), (Ok(1500), Ok(1500)));
        let error = program("1.5").unwrap_err();
        assert!(error.starts_with("speed_min: invalid type: floating point") && !error.contains("line"), "{error}");
    }

    #[test]
    fn budgets_are_credits_for_people_and_thousandths_for_programs() {
        assert_eq!(toml("budget = \"12.50\"").unwrap()["budget"], 12_500);
        let program = |budget: &str| {
            let text = format!(r#"{{"hosts":1,"work":60,"budget":{budget},"objective":"cost"}}"#);
            let draft = parse(Path::new("r.json"), &text, Syntax::Json, Writer::Program, &now()).unwrap();
            document(draft).map(|document| document.budget.unwrap().0).map_err(|misfit| misfit.to_string())
        };
        assert_eq!((program("12500"), program("\"12.5\"")), (Ok(12_500), Ok(12_500)));
        assert!(program("12.5").unwrap_err().starts_with("budget: invalid type: floating point"));
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
            ("total = { \"1 x\" = 1 }", "r.toml: total.1 x: \"1 x\" is no resource name"),
            ("total = { CPU = 1 }", "r.toml: total.CPU: write \"1\" for cores"),
            ("total = { mem = \"1GiB\", memory = \"1GiB\" }", "memory is given twice"),
            ("duration = \"90\"", "r.toml: duration: \"90\" has no unit"),
            ("latest = \"soon\"", "r.toml: latest: \"soon\" is no time"),
            ("latest = 2026-11-22", "r.toml: latest: \"2026-11-22\" is no time"),
            ("effort = \"lazy\"", "r.toml:1: effort: unknown variant"),
            ("candidates = [\"\"]", "r.toml:1: candidates[0]: an id must not be empty"),
            ("hosts = 1\nhosts = 2", "r.toml:2"),
            ("work = 3600", "r.toml: work: \"3600\" has no unit"),
            ("speed_min = \"fast\"", "r.toml: speed_min: \"fast\": expected how many times"),
            ("speed_min = 1.0005", "r.toml: speed_min: \"1.0005\": expected how many times"),
            ("objective = \"best\"", "r.toml:1: objective: unknown variant"),
            ("exclusive = 1", "r.toml:1: exclusive: invalid type"),
            ("hosts = 1\nbudget = 5", "r.toml: budget: write \"5.00\", with quotes, for credits"),
            ("budget = 12.5", "r.toml: budget: write \"12.50\", with quotes"),
            ("budget = \"12.5005\"", "r.toml: budget: \"12.5005\": expected credits such as 12.50"),
            ("budget = []", "r.toml: budget: []: expected credits such as \"12.50\""),
            ("hosts = 1\nscale = [1, 2]", "r.toml: scale: [1,2]: expected the least and the largest factor"),
            ("hosts = 1\nscale = \"2..0.5\"", "r.toml: scale: \"2..0.5\": the least is above the largest"),
            ("shapes = [{ hosts = 1, latest = \"+1h\" }]", "r.toml:1: shapes[0]: unknown field `latest`"),
            ("shapes = [{ hosts = 1 }, { duration = 60 }]", "r.toml: shapes[1].duration: \"60\" has no unit"),
            ("shapes = [{ total = { cpu = 2 } }]", "r.toml: shapes[0].total.cpu: write \"2\" for cores"),
        ] {
            let error = toml(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
